"""Independent pieces of work on threads; kernels release the interpreter lock, so this is worth while."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
MANY = 1_000_000  # rows from which a second thread pays


def n_threads(n_rows: int) -> int:
    """How many to use for so many rows."""
    return min(os.cpu_count() or 1, 8) if n_rows >= MANY else 1


def each(function: Callable[[Piece], None], pieces: Iterable[Piece], n_rows: int) -> None:
    """Call the function on every piece, in any order; pieces must not touch each other's memory."""
    if n_threads(n_rows) == 1:
        for piece in pieces:
            function(piece)
        return
    with ThreadPoolExecutor(n_threads(n_rows)) as pool:
        list(pool.map(function, pieces))
