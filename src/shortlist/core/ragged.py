"""Ragged arrays: rows of different lengths, one after the other, such as the list of each user."""

from collections.abc import Sequence
from dataclasses import Field, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shortlist.kernels.rows import starts, take_rows
from shortlist.types import Bools, Ints, Longs


class Ragged:
    """Rows of different lengths: `indptr` says where each starts, columns have an entry per element or row.

    A subclass is a frozen dataclass that names its columns. A column that is None is absent.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    per_element: ClassVar[tuple[str, ...]] = ()
    per_row: ClassVar[tuple[str, ...]] = ()
    indptr: Longs  # (n_rows + 1,)

    def __len__(self) -> int:
        return self.indptr.size - 1

    @property
    def lengths(self) -> Ints:
        """(n_rows,) number of elements of each row."""
        return row_lengths(self.indptr)

    @property
    def owner(self) -> Longs:
        """(n_elements,) number of each element's row, wide enough for keys of row and item."""
        return row_owners(self.indptr)

    @property
    def positions(self) -> Ints:
        """(n_elements,) position of each element within its row, from 0."""
        first = np.repeat(self.indptr[:-1], self.lengths)
        return (np.arange(first.size) - first).astype(np.int32)

    def take(self, numbers: npt.ArrayLike) -> Self:
        """Return the rows at these numbers, in this order."""
        return replace(self, **self._at_rows(np.asarray(numbers, np.int64)))

    def where(self, keep: Bools) -> Self:
        """Return the rows without some elements.

        Parameters
        ----------
        keep
            (n_elements,) whether the element stays.
        """
        n_before = np.concatenate([[0], np.cumsum(keep)])
        return replace(self, indptr=n_before[self.indptr], **self._select(self.per_element, keep))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, of which there is at least one."""
        return parts[0] if len(parts) == 1 else replace(parts[0], **cls._joined(parts))

    def _at_rows(self, numbers: npt.NDArray[np.integer]) -> dict[str, Any]:
        """The columns of these rows."""
        indptr, elements = take_rows(self.indptr, numbers)
        columns = self._select(self.per_element, elements) | self._select(self.per_row, numbers)
        return {"indptr": indptr, **columns}

    def _select(self, names: tuple[str, ...], entries: npt.NDArray[Any]) -> dict[str, Any]:
        """Some entries of the columns of these names that are present."""
        return {name: values[entries] for name in names if (values := getattr(self, name)) is not None}

    @classmethod
    def _joined(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """The columns of all parts; one that only some parts have is NaN in the others."""
        columns: dict[str, Any] = {"indptr": starts(np.concatenate([part.lengths for part in parts]))}
        for name in (*cls.per_element, *cls.per_row):
            arrays = [getattr(part, name) for part in parts]
            present = next((array for array in arrays if array is not None), None)
            if present is None:
                continue
            for k, part in enumerate(parts):
                if arrays[k] is None:
                    n = len(part) if name in cls.per_row else part.indptr[-1]
                    arrays[k] = np.full(n, np.nan, present.dtype)
            columns[name] = np.concatenate(arrays)
        return columns


def row_lengths(indptr: npt.NDArray[np.integer]) -> Ints:
    """(n_rows,) number of elements of each row."""
    return (indptr[1:] - indptr[:-1]).astype(np.int32)


def row_owners(indptr: npt.NDArray[np.integer]) -> Longs:
    """(n_elements,) number of each element's row."""
    return np.repeat(np.arange(indptr.size - 1), indptr[1:] - indptr[:-1])


@dataclass(frozen=True, eq=False)
class ItemSets(Ragged):
    """One set of items per user; immutable."""

    per_element: ClassVar[tuple[str, ...]] = ("items",)

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n,) ascending per user

    def __post_init__(self) -> None:
        self.indptr.flags.writeable = self.items.flags.writeable = False

    def row(self, number: int) -> Ints:
        """The set of one user."""
        return self.items[self.indptr[number] : self.indptr[number + 1]]

    def part(self, rows: slice) -> "ItemSets":
        """The sets of consecutive users."""
        at = self.indptr[rows.start : rows.stop + 1]
        return ItemSets(at - at[0], self.items[at[0] : at[-1]])


def no_sets(n_users: int) -> ItemSets:
    """An empty set for each user."""
    return ItemSets(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))


def same_sets(items: Ints, n_users: int) -> ItemSets:
    """The same set for each user."""
    return ItemSets(np.arange(n_users + 1, dtype=np.int64) * items.size, np.tile(items, n_users))
