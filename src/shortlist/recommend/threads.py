"""Work cut into pieces of users; what a piece gives does not depend on who runs it."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shortlist.errors import ConfigError

T = TypeVar("T")


def thread_count(n_threads: int) -> int:
    """0 means every core this process may use."""
    if n_threads < 0:
        raise ConfigError(f"n_threads must be at least 0, got {n_threads}; 0 takes every core.")
    if n_threads > 0:
        return n_threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_pieces(task: Callable[[slice], T], n: int, size: int, n_threads: int) -> list[T]:
    """task(slice) over 0 … n - 1 in pieces of `size`, in order; kernels inside release the lock."""
    pieces = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    workers = min(thread_count(n_threads), len(pieces))
    if workers <= 1:
        return [task(piece) for piece in pieces]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, pieces))
