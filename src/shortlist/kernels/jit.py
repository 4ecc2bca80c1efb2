"""How kernels are compiled: the flags live here and nowhere else."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

# contract and reassoc let loops become vector code; inf and NaN keep their meaning.
FASTMATH = {"contract", "reassoc"}


def sources_stamp(folder: Path) -> str:
    """A digest of all kernels' sources."""
    digest = sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


STAMP = sources_stamp(Path(__file__).parent)


def kernel(function: F) -> F:
    """Compile to serial machine code that releases the interpreter lock and is kept on disk."""
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FASTMATH)(function)
    # Numba asks only whether the kernel's own file has changed. Pieces of other files are folded in, and what
    # was compiled from old ones would write past the end of new arrays.
    kept = getattr(getattr(compiled, "_cache", None), "_cache_file", None)  # None: nowhere to write
    if kept is not None:
        kept._source_stamp = (kept._source_stamp, STAMP)
    return cast(F, compiled)


def inlined(function: F) -> F:
    """Compile a piece that only other kernels call, and fold it into them.

    Forced: a piece that is called, not folded in, exists twice, compiled alone and beside its caller. Which
    one runs depends on whether the caller came from the cache, and their last bits may differ.
    """
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)(function)
    return cast(F, compiled)


def folded(function: F) -> F:
    """Fold a small piece into its callers before they are compiled; arrays passed to it are not counted."""
    compiled = numba.njit(inline="always", nogil=True, error_model="numpy", fastmath=FASTMATH)(function)
    return cast(F, compiled)


def exact(function: F) -> F:
    """Compile a small piece without licence to reorder or fuse: the same bits wherever it is folded in."""
    # spelled out, because a flag that is left out is inherited from the kernel that calls
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=False)(function)
    return cast(F, compiled)
