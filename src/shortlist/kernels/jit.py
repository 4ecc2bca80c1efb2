"""Compilation of kernels: all compiler flags are set here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

# contract and reassoc allow vectorized loops; inf and NaN keep their meaning.
FASTMATH = {"contract", "reassoc"}


def sources_stamp(folder: Path) -> str:
    """Return a digest of the sources of all kernels."""
    digest = sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


STAMP = sources_stamp(Path(__file__).parent)


def kernel(function: F) -> F:
    """Compile to serial machine code that releases the interpreter lock and is cached on disk."""
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FASTMATH)(function)
    # Numba invalidates its cache only when the kernel's own file changes. Code inlined from other files would
    # stay as it was, and could write past the end of arrays whose layout has changed.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)  # None: no writable folder
    if cache_file is not None:
        cache_file._source_stamp = (cache_file._source_stamp, STAMP)
    return cast(F, compiled)


def inlined(function: F) -> F:
    """Compile a function that only kernels call, and inline it in them.

    Inlining is forced: a function that is called instead exists twice, compiled alone and with its caller.
    Which copy runs depends on whether the caller came from the cache, and their last bits may differ.
    """
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)(function)
    return cast(F, compiled)


def ir_inlined(function: F) -> F:
    """Inline a small function before compilation, which avoids reference counting of its array arguments."""
    compiled = numba.njit(inline="always", nogil=True, error_model="numpy", fastmath=FASTMATH)(function)
    return cast(F, compiled)


def exact(function: F) -> F:
    """Compile a small function without reordering or fusing: the same bits wherever it is inlined."""
    # fastmath is explicit because a missing flag is inherited from the calling kernel
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=False)(function)
    return cast(F, compiled)


class _FirstCompilation(event.Listener):
    """Calls a function when the first kernel is compiled."""

    def __init__(self, announce: Callable[[], object]) -> None:
        self.announce, self.is_announced = announce, False

    def on_start(self, event: Any) -> None:
        if not self.is_announced:
            self.is_announced = True
            self.announce()

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def announce_compilation(announce: Callable[[], object]) -> Iterator[None]:
    """Call a function once if a kernel is compiled meanwhile, which can take longer than the work itself."""
    with event.install_listener("numba:compile", _FirstCompilation(announce)):
        yield
