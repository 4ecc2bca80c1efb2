"""UserSlices: some users of ranges in files, read column by column."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.array_parts import ArrayParts
from shortlist.core.ragged import starts
from shortlist.data.data_source import DataSource
from shortlist.data.grouping import fingerprint
from shortlist.data.history import Totals
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.range_files import HELD
from shortlist.data.stored_rows import StoredRows, store_rows
from shortlist.types import Ints, Longs

COLUMNS = ("item", "time", "weight")  # one entry per row


class Slice(NamedTuple):
    """Some consecutive users of one range."""

    folder: Path
    first: int  # counted from the first user of the range
    last: int

    def load(self, name: str) -> Any:
        """An array of the range, not yet in memory."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def has(self, name: str) -> bool:
        """Whether the range has an array of this name."""
        return (self.folder / f"{name}.npy").exists()

    def bounds(self, starts_name: str) -> tuple[int, int]:
        """Where the entries of the users begin and end, from an array of starts."""
        at = self.load(starts_name)
        return int(at[self.first]), int(at[self.last])

    def lengths(self, starts_name: str) -> Longs:
        """The number of entries of each user."""
        found: Longs = np.diff(self.load(starts_name)[self.first : self.last + 1])
        return found


@dataclass(frozen=True)
class UserSlices:
    """Some users, in one or more ranges; a part of a column is in memory only while it is used."""

    parts: tuple[Slice, ...]

    def item_sets(self) -> tuple[Longs, Ints]:
        """(indptr, items): the distinct items of each user, ascending."""
        items: Ints = self._entries("set_item", "set_indptr").load()
        return self._starts("set_indptr"), items

    def interactions(
        self,
        items: IdMap,
        item_names: pl.Series | None = None,
        source: DataSource | None = None,
        *,
        held: bool = False,
    ) -> Interactions:
        """The rows of these users, or their held-out rows, over all items."""
        arrays: dict[str, Any] = {
            name: column.load() if isinstance(column, ArrayParts) else column
            for name, column in self.columns(HELD if held else "").items()
        }
        return Interactions(users=self._users(), items=items, item_names=item_names, source=source, **arrays)

    def columns(self, prefix: str = "") -> dict[str, Any]:
        """The arrays of Interactions; those that grow with the rows are read when they are used."""
        found: dict[str, Any] = {
            "indptr": self._starts(f"{prefix}indptr"),
            "user_baskets": self._starts(f"{prefix}user_baskets"),
            "baskets": self._baskets(prefix),
        }
        for name in COLUMNS:
            if self.parts[0].has(prefix + name):
                found[name] = self._entries(prefix + name, f"{prefix}indptr")
        return found

    def store(
        self, items: IdMap, item_names: pl.Series | None, source: DataSource | None, totals: Totals
    ) -> StoredRows:
        """The rows in the form in which a model file keeps them; `totals` are those of all users."""
        about = replace(without_rows(self._users(), items), item_names=item_names, source=source)
        columns = self.columns()
        hashed = [columns.get(name) for name in ("indptr", "item", "baskets", "time", "weight")]
        n_rows = int(columns["indptr"][-1])
        return store_rows(about, columns, fingerprint(about.users, items, hashed), n_rows, totals)

    def _users(self) -> IdMap:
        tables: dict[Path, pl.Series] = {}
        found = []
        for part in self.parts:
            if part.folder not in tables:
                tables[part.folder] = pl.read_parquet(part.folder / "users.parquet", glob=False)["user_id"]
            found.append(tables[part.folder][part.first : part.last])
        return IdMap(pl.concat(found))

    def _starts(self, name: str) -> Longs:
        return starts(np.concatenate([part.lengths(name) for part in self.parts]))

    def _entries(self, name: str, starts_name: str) -> ArrayParts:
        """A column with an entry per row, or per item of a set."""
        bounds = [part.bounds(starts_name) for part in self.parts]
        size = sum(end - begin for begin, end in bounds)
        return ArrayParts(self.parts[0].load(name).dtype, (size,), partial(self._read, name, bounds))

    def _read(self, name: str, bounds: list[tuple[int, int]]) -> Iterator[npt.NDArray[Any]]:
        for part, (begin, end) in zip(self.parts, bounds, strict=True):
            yield np.asarray(part.load(name)[begin:end])

    def _baskets(self, prefix: str) -> ArrayParts:
        """Where the rows of each basket start."""
        bounds = [part.bounds(f"{prefix}user_baskets") for part in self.parts]
        size = 1 + sum(end - begin for begin, end in bounds)
        return ArrayParts(np.dtype(np.int64), (size,), partial(self._read_baskets, prefix, bounds))

    def _read_baskets(self, prefix: str, bounds: list[tuple[int, int]]) -> Iterator[Longs]:
        yield np.zeros(1, np.int64)
        done = 0
        for part, (begin, end) in zip(self.parts, bounds, strict=True):
            at = part.load(f"{prefix}baskets")[begin : end + 1]
            yield at[1:] - (int(at[0]) - done)
            done += int(at[-1] - at[0])


def without_rows(users: IdMap, items: IdMap) -> Interactions:
    """Ids whose rows are elsewhere."""
    none = np.zeros(1, np.int64)
    return Interactions(
        users, items, indptr=none, item=np.empty(0, np.int32), baskets=none, user_baskets=none
    )
