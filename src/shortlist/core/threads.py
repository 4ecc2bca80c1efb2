"""Threads: how many to use, and calling a function on slices or pieces of data on several of them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shortlist.errors import ConfigError

T = TypeVar("T")
Piece = TypeVar("Piece")
PARALLEL_ROWS = 1_000_000  # below this many rows, starting threads costs more than it saves


def thread_count(n_threads: int) -> int:
    """The number of threads to use; 0 means every core that this process may use."""
    if n_threads < 0:
        raise ConfigError(f"n_threads must be at least 0, got {n_threads}; 0 uses every core.")
    if n_threads > 0:
        return n_threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_slices(task: Callable[[slice], T], n: int, size: int, n_threads: int) -> list[T]:
    """Call `task` on slices of `size` that cover 0 … n - 1; results are in order."""
    if 0 < n <= size:
        return [task(slice(0, n))]
    slices = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    workers = min(thread_count(n_threads), len(slices))
    if workers <= 1:
        return [task(rows) for rows in slices]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, slices))


def run_each(function: Callable[[Piece], None], pieces: Iterable[Piece], n_rows: int) -> None:
    """Call the function on every piece, in parallel for large data; pieces must not share memory."""
    workers = rows_thread_count(n_rows)
    if workers == 1:
        for piece in pieces:
            function(piece)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(function, pieces))


def rows_thread_count(n_rows: int) -> int:
    """The number of threads that pay off for this many rows."""
    return min(thread_count(0), 8) if n_rows >= PARALLEL_ROWS else 1
