"""Ragged arrays: rows of different lengths, stored one after the other."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.types import Ints, Longs

Array = TypeVar("Array", bound=npt.NDArray[Any])


class ItemSets(NamedTuple):
    """One set of items per user."""

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n,) ascending per user

    def part(self, rows: slice) -> "ItemSets":
        """The sets of consecutive users."""
        at = self.indptr[rows.start : rows.stop + 1]
        return ItemSets(read_only(at - at[0]), read_only(self.items[at[0] : at[-1]]))

    def row(self, number: int) -> Ints:
        """The set of one user."""
        return self.items[self.indptr[number] : self.indptr[number + 1]]

    def take(self, numbers: npt.NDArray[np.integer]) -> "ItemSets":
        """The sets of these users, in this order; an empty set for a negative number."""
        at, rows = take_rows(self.indptr, numbers)
        return ItemSets(at, self.items[rows])


def take_rows(indptr: Longs, numbers: npt.NDArray[np.integer]) -> tuple[Longs, Longs]:
    """(starts, positions) of the entries of these rows; a negative number stands for an empty row."""
    if indptr.size < 2:
        return np.zeros(numbers.size + 1, np.int64), np.empty(0, np.int64)
    known = np.maximum(numbers, 0)
    first = indptr[known]
    lengths = indptr[known + 1] - first
    if numbers.size and numbers.min() < 0:
        lengths[numbers < 0] = 0
    at = starts(lengths)
    return at, np.repeat(first - at[:-1], lengths) + np.arange(at[-1])


def no_sets(n_users: int) -> ItemSets:
    """An empty set for each user."""
    return ItemSets(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))


def same_sets(items: Ints, n_users: int) -> ItemSets:
    """The same set for each user."""
    return ItemSets(np.arange(n_users + 1, dtype=np.int64) * items.size, np.tile(items, n_users))


def starts(lengths: npt.NDArray[np.integer]) -> Longs:
    """(n + 1,) where rows of these lengths start."""
    indptr = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def read_only(array: Array) -> Array:
    """A contiguous read-only view; a copy only if needed. Numba compiles once per kind of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view  # type: ignore[return-value]
