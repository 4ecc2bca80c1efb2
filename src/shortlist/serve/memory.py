"""How the C library keeps memory: a model that is replaced must not leave its memory behind."""

import ctypes
import gc
import sys
from contextlib import suppress

M_ARENA_MAX = -8  # of malloc.h
ARENAS = 2


def limit_arenas() -> None:
    """Let all threads share two heaps; with one for each thread, every new model leaves gaps in another one.

    It must be called before threads start. Other C libraries than that of GNU have no such setting.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def release_memory() -> None:
    """Give back the memory of a model that is no longer served, which the C library would keep."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
