"""UserRanges: interactions in files, divided by user; any run of consecutive users can be read alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.calls import warn
from shortlist.core.engine import Engine
from shortlist.core.ragged import starts
from shortlist.data.data_source import DataSource
from shortlist.data.grouping import first_names
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.negative_rows import note_negative
from shortlist.data.range_files import (
    ARRAYS,
    FileSummary,
    RangePlan,
    RangeSummary,
    ReadOptions,
    build_range,
    remove_parts,
    split_file,
    summarize_file,
)
from shortlist.errors import DataError
from shortlist.types import Ints, Longs

RANGE_ROWS = 4_000_000  # about as many rows as a range should have
MAX_RANGES = 1024


class Slice(NamedTuple):
    """Some consecutive users of one range."""

    folder: Path
    first: int  # counted from the first user of the range
    last: int

    def load(self, name: str) -> Any:
        """An array of the range, not yet in memory."""
        path = self.folder / f"{name}.npy"
        return np.load(path, mmap_mode="r") if path.exists() else None


@dataclass(frozen=True)
class UserSlices:
    """Consecutive users, in one or more ranges."""

    parts: tuple[Slice, ...]

    def item_sets(self) -> tuple[Longs, Ints]:
        """(indptr, items): the distinct items of each user, ascending."""
        return _rows_of([(part.load("set_indptr"), part.load("set_item"), part) for part in self.parts])

    def interactions(
        self, items: IdMap, item_names: pl.Series | None, source: DataSource | None
    ) -> Interactions:
        """The rows of these users, over all items."""
        columns: dict[str, list[Any]] = {name: [] for name in ("item", "time", "weight")}
        rows, sizes, n_baskets, users = [], [], [], []
        for part in self.parts:
            arrays = {name: part.load(name) for name in ARRAYS}
            own = slice(part.first, part.last + 1)
            indptr, user_baskets = arrays["indptr"][own], arrays["user_baskets"][own]
            rows.append(np.diff(indptr))
            n_baskets.append(np.diff(user_baskets))
            sizes.append(np.diff(arrays["baskets"][user_baskets[0] : user_baskets[-1] + 1]))
            for name, found in columns.items():
                if arrays[name] is not None:
                    found.append(arrays[name][indptr[0] : indptr[-1]])
            ids = pl.read_parquet(part.folder / "users.parquet", glob=False)["user_id"]
            users.append(ids[part.first : part.last])
        return Interactions(
            users=IdMap(pl.concat(users)),
            items=items,
            indptr=starts(np.concatenate(rows)),
            item=np.concatenate(columns["item"]),
            baskets=starts(np.concatenate(sizes)),
            user_baskets=starts(np.concatenate(n_baskets)),
            time=np.concatenate(columns["time"]) if columns["time"] else None,
            weight=np.concatenate(columns["weight"]) if columns["weight"] else None,
            item_names=item_names,
            source=source,
        )


def _rows_of(parts: list[tuple[Longs, Ints, Slice]]) -> tuple[Longs, Ints]:
    """(indptr, values) of the users of some slices."""
    sizes = [np.diff(indptr[part.first : part.last + 1]) for indptr, _, part in parts]
    values = [value[indptr[part.first] : indptr[part.last]] for indptr, value, part in parts]
    return starts(np.concatenate(sizes)), np.concatenate(values)


@dataclass(frozen=True, eq=False)
class UserRanges:
    """All interactions of some files, in ranges of users; the ids and counts are in memory, the rows are not.

    Users and items have the dense indices that `read_interactions` gives them.
    """

    folder: Path
    range_starts: Longs  # (n_ranges + 1,) the first user of each range
    row_starts: Longs  # (n_users + 1,) where the distinct items of each user start
    items: IdMap
    item_names: pl.Series | None
    n_rows: int
    source: DataSource

    @property
    def n_users(self) -> int:
        """Number of users."""
        return int(self.range_starts[-1])

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.items)

    def users(self, first: int, last: int) -> UserSlices:
        """Users first … last - 1."""
        found = []
        for number, begin in enumerate(self.range_starts[:-1].tolist()):
            low, high = max(first, begin), min(last, int(self.range_starts[number + 1]))
            if low < high:
                found.append(Slice(self.folder / f"range-{number:05}", low - begin, high - begin))
        return UserSlices(tuple(found))


def divide_files(
    paths: list[Path], options: ReadOptions, folder: Path, engine: Engine, label: str
) -> UserRanges:
    """Read the files on the engine, and write their rows to `folder`, in ranges of users."""
    found: list[FileSummary] = []
    items, samples, names = None, [], []
    for one in engine.map(partial(summarize_file, options), paths):
        _check_equal(found[0] if found else one, one, paths[len(found)])
        items = one.items if items is None else pl.concat([items, one.items]).unique().sort()
        samples.append(pl.DataFrame({"user_id": one.users, "rows": [one.rows_per_sample] * len(one.users)}))
        names += [] if one.item_names is None else [one.item_names]
        found.append(one._replace(items=one.items[:0], users=one.users[:0], item_names=None))
    assert items is not None
    table = options.open(paths[0])
    _check_baskets(table.roles, found[0].kinds)
    note_negative(table, sum(one.n_negative for one in found), sum(one.n_rows for one in found))
    plan = RangePlan(options, folder, IdMap(items), _choose_splits(pl.concat(samples)))
    numbers = range(len(plan.splits) + 1)
    for _ in engine.map(partial(split_file, plan), list(enumerate(paths))):
        pass
    ranges: list[RangeSummary] = []
    for number, summary in zip(numbers, engine.map(partial(build_range, plan), numbers), strict=True):
        remove_parts(plan, number)
        ranges.append(summary)
    for doubt in table.doubts:
        warn(doubt)
    return UserRanges(
        folder=folder,
        range_starts=starts(np.array([one.set_sizes.size for one in ranges])),
        row_starts=starts(np.concatenate([one.set_sizes for one in ranges])),
        items=plan.items,
        item_names=_join_names(plan.items, names),
        n_rows=sum(one.n_rows for one in ranges),
        source=DataSource(label, dict(table.roles), table.unused, tuple(table.notes)),
    )


def _check_equal(first: FileSummary, other: FileSummary, path: Path) -> None:
    """Raise DataError if a file has other columns or types than the first one."""
    if first.kinds != other.kinds:
        role = next(r for r in first.kinds | other.kinds if first.kinds.get(r) != other.kinds.get(r))
        raise DataError(
            f"{path}: all files must have the same types, got {role} {other.kinds.get(role, 'missing')} "
            f"instead of {first.kinds.get(role, 'none')}; cast the column."
        )


def _check_baskets(roles: dict[str, str], kinds: dict[str, str]) -> None:
    """Raise DataError if the order of the baskets depends on all rows together."""
    if "basket_id" in roles and "timestamp" not in roles and kinds["basket_id"] == "String":
        raise DataError(
            "basket ids must be numbers if there are no times and files are read on a cluster, got strings; "
            'cast the column, or pass basket_id="" to ignore baskets.',
            parameter="basket_id",
        )


def _choose_splits(samples: pl.DataFrame) -> pl.Series:
    """The first user id of each range but the first: about equally many rows lie between them."""
    ordered = samples.sort("user_id")
    before = np.cumsum(ordered["rows"].to_numpy())
    n = int(np.clip(np.ceil(before[-1] / RANGE_ROWS), 1, MAX_RANGES))
    at = np.searchsorted(before, before[-1] * np.arange(1, n) / n)
    return ordered["user_id"].gather(at).unique().sort()


def _join_names(items: IdMap, names: Iterable[pl.DataFrame]) -> pl.Series | None:
    """The first name of each item, in the order of the files."""
    tables = list(names)
    if not tables:
        return None
    joined = pl.concat(tables).unique("item", keep="first", maintain_order=True)
    return first_names(items, items.lookup(joined["item"]), joined["name"])
