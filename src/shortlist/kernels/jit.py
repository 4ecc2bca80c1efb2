"""Compilation of kernels: all compiler flags are set here."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event
from numba.core.registry import CPUDispatcher

F = TypeVar("F", bound=Callable[..., Any])

# contract and reassoc allow vectorized loops; inf and NaN keep their meaning.
FASTMATH = {"contract", "reassoc"}
# a wrapper for callbacks from C would be compiled with every function, and is never used
FLAGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": FASTMATH,
    "no_cfunc_wrapper": True,
}
_njit: Any = numba.njit  # its type hints lack two of the options


HERE = Path(__file__).parent  # kernels may be compiled elsewhere, too
IMPORTED = re.compile(r"^ *from shortlist\.kernels\.(\w+) import", re.MULTILINE)


@cache
def sources_stamp(file: Path) -> str:
    """Return a digest of the source of a module and of all kernel modules that it imports."""
    sources: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = path.read_bytes()
            names = IMPORTED.findall(sources[path].decode())
            imported = [file.with_name(f"{name}.py") for name in names]
            waiting += [place if place.exists() else HERE / place.name for place in imported]
    return sha256(b"".join(sources[path] for path in sorted(sources))).hexdigest()


def kernel(function: F) -> F:
    """Compile to serial machine code that releases the interpreter lock and is cached on disk."""
    compiled = _njit(**FLAGS, cache=True)(function)
    # Numba invalidates its cache only when the file of the kernel changes. Code inlined from others would
    # stay as it was, and could write past the end of arrays whose layout has changed.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)  # None: no writable folder
    if cache_file is not None:
        stamp = sources_stamp(Path(function.__code__.co_filename))
        cache_file._source_stamp = (cache_file._source_stamp, stamp)
        cache_file._load_index = partial(_load_index, cache_file._load_index)
    return cast(F, compiled)


def _load_index(load: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """The index of cached code; empty if it names classes that another version had."""
    try:
        return load()
    except (AttributeError, ImportError):
        return {}


class _Helper(CPUDispatcher):
    """A function for kernels without a wrapper for calls from Python, a third of its compile time.

    Only tests call it from Python; then it is compiled once more, with a wrapper.
    """

    def __call__(self, *args: Any) -> Any:
        if not hasattr(self, "from_python"):
            self.from_python = _njit(**FLAGS | {"fastmath": self.targetoptions["fastmath"]})(self.py_func)
        return self.from_python(*args)


def _as_helper(compiled: Any) -> Any:
    """Turn a new dispatcher into one that may lack the wrapper; plain functions, without JIT, stay."""
    if isinstance(compiled, CPUDispatcher):
        compiled.__class__ = _Helper
    return compiled


def inlined(function: F) -> F:
    """Compile a function that only kernels call, and inline it in them.

    Inlining is forced: a function that is called instead exists twice, compiled alone and with its caller.
    Which copy runs depends on whether the caller came from the cache, and their last bits may differ.
    """
    compiled = _njit(**FLAGS, no_cpython_wrapper=True, forceinline=True)(function)
    return cast(F, _as_helper(compiled))


def borrowing(function: F) -> F:
    """Do as `inlined`, without reference counting of arguments, which costs more than a step of SGD.

    The function may not create arrays other than views.
    """
    compiled = _njit(**FLAGS, no_cpython_wrapper=True, forceinline=True, _nrt=False)(function)
    return cast(F, _as_helper(compiled))


def ir_inlined(function: F) -> F:
    """Inline a small function before compilation, which avoids reference counting of its array arguments."""
    compiled = _njit(**FLAGS, inline="always")(function)
    return cast(F, compiled)


def exact(function: F) -> F:
    """Compile a small function without reordering or fusing: the same bits wherever it is inlined."""
    # fastmath is explicit because a missing flag is inherited from the calling kernel
    compiled = _njit(**FLAGS | {"fastmath": False}, no_cpython_wrapper=True)(function)
    return cast(F, _as_helper(compiled))


class _Compilations(event.Listener):
    """Calls a function with the name of each kernel that is compiled, not with those of its helpers."""

    def __init__(self, announce: Callable[[str], object]) -> None:
        self.announce, self.depth = announce, 0

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            self.announce(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: Any) -> None:
        self.depth -= 1


@contextmanager
def announce_compilation(announce: Callable[[str], object]) -> Iterator[None]:
    """Call a function with the name of each kernel that is compiled meanwhile, which can take seconds.

    Kernels that are in the cache are not announced. Numba compiles one kernel at a time.
    """
    with event.install_listener("numba:compile", _Compilations(announce)):
        yield
