"""Ragged arrays: rows of different lengths, stored one after the other."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayParts:
    """An array that is written part by part, so that it is never in memory as a whole."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[AnyArray]]  # consecutive rows

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.itemsize

    def load(self) -> AnyArray:
        """The whole array in memory."""
        found, done = np.empty(self.shape, self.dtype), 0
        for part in self.parts():
            found[done : done + len(part)] = part
            done += len(part)
        return found


def parts_of(array: "Array | ArrayParts") -> Iterator[memoryview]:
    """The bytes of an array, in parts if it has parts; contiguous arrays are not copied."""
    parts = array.parts() if isinstance(array, ArrayParts) else iter([array])
    for part in parts:
        yield np.ascontiguousarray(part, array.dtype).reshape(-1).view(np.uint8).data
