"""UserRanges: interactions in files, divided by user; any run of consecutive users can be read alone."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from shortlist.core.calls import warn
from shortlist.core.engine import Engine
from shortlist.core.ragged import starts
from shortlist.data.data_source import DataSource
from shortlist.data.grouping import first_names
from shortlist.data.history import Totals
from shortlist.data.id_map import IdMap
from shortlist.data.negative_rows import note_negative
from shortlist.data.range_files import (
    FileSummary,
    RangePlan,
    RangeSummary,
    ReadOptions,
    build_range,
    remove_parts,
    split_file,
    summarize_file,
)
from shortlist.data.user_slices import Slice, UserSlices
from shortlist.errors import DataError
from shortlist.types import Bools, Ints, Longs

RANGE_ROWS = 4_000_000  # about as many rows as a range should have
MAX_RANGES = 1024


@dataclass(frozen=True, eq=False)
class UserRanges:
    """All interactions of some files, in ranges of users; the ids and counts are in memory, the rows are not.

    Users and items have the dense indices that `read_interactions` gives them.
    """

    folder: Path
    range_starts: Longs  # (n_ranges + 1,) the first user of each range
    set_starts: Longs  # (n_users + 1,) where the distinct items of each user start
    row_starts: Longs | None  # (n_users + 1,) where the rows of each user start, if they were counted
    basket_starts: Longs | None  # (n_users + 1,) where the baskets of each user start, likewise
    held: Bools | None  # (n_users,) whether the user's last basket was held out
    items: IdMap
    item_names: pl.Series | None
    totals: Totals  # without held-out rows
    source: DataSource
    digest: str  # of all rows

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

    def each_range(self) -> Iterator[tuple[int, UserSlices]]:
        """(first user, users) of each range that has users."""
        for first, last in zip(self.range_starts[:-1].tolist(), self.range_starts[1:].tolist(), strict=True):
            if first < last:
                yield first, self.users(first, last)

    def take(self, users: Ints) -> UserSlices:
        """These users, in this order."""
        ranges = np.searchsorted(self.range_starts, users, side="right") - 1
        own = (users - self.range_starts[ranges]).tolist()
        pairs = zip(ranges.tolist(), own, strict=True)
        return UserSlices(tuple(Slice(self.folder / f"range-{at:05}", user, user + 1) for at, user in pairs))


def divide_files(
    paths: list[Path],
    options: ReadOptions,
    folder: Path,
    engine: Engine,
    label: str,
    *,
    holds_out: bool = False,
    counts_baskets: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> UserRanges:
    """Read the files on the engine, and write their rows to `folder`, in ranges of users.

    `progress` is called with the name of a step, the number of its finished tasks, and of all its tasks.
    """
    tell = progress or _ignore
    found: list[FileSummary] = []
    items, samples, names = None, [], []
    for one in engine.map(partial(summarize_file, options), paths):
        _check_equal(found[0] if found else one, one, paths[len(found)])
        items = one.items if items is None else pl.concat([items, one.items]).unique().sort()
        samples.append(pl.DataFrame({"user_id": one.users, "rows": [one.rows_per_sample] * len(one.users)}))
        names += [] if one.item_names is None else [one.item_names]
        found.append(one._replace(items=one.items[:0], users=one.users[:0], item_names=None))
        tell("reading ids", len(found), len(paths))
    assert items is not None
    table = options.open(paths[0])
    _check_baskets(table.roles, found[0].kinds)
    note_negative(table, sum(one.n_negative for one in found), sum(one.n_rows for one in found))
    splits = _choose_splits(pl.concat(samples))
    plan = RangePlan(options, folder, IdMap(items), splits, holds_out, counts_baskets)
    numbers = range(len(plan.splits) + 1)
    for done, _ in enumerate(engine.map(partial(split_file, plan), list(enumerate(paths))), 1):
        tell("dividing rows", done, len(paths))
    ranges: list[RangeSummary] = []
    counts = np.zeros(len(plan.items), np.int64)
    for number, summary in zip(numbers, engine.map(partial(build_range, plan), numbers), strict=True):
        remove_parts(plan, number)
        ranges.append(summary._replace(totals=_without_counts(summary.totals, counts)))
        tell("grouping rows", len(ranges), len(numbers))
    for doubt in table.doubts:
        warn(doubt)
    return UserRanges(
        folder=folder,
        range_starts=starts(np.array([one.set_sizes.size for one in ranges])),
        set_starts=starts(np.concatenate([one.set_sizes for one in ranges])),
        row_starts=_starts_of([one.rows for one in ranges]),
        basket_starts=_starts_of([one.baskets for one in ranges]),
        held=np.concatenate([one.held for one in ranges if one.held is not None]) if holds_out else None,
        items=plan.items,
        item_names=_join_names(plan.items, names),
        totals=_sum_totals([one.totals for one in ranges], counts),
        source=DataSource(label, dict(table.roles), table.unused, tuple(table.notes)),
        digest=hashlib.blake2b("".join(one.digest for one in ranges).encode(), digest_size=16).hexdigest(),
    )


def _ignore(step: str, done: int, total: int) -> None:
    """Report nothing."""


def _without_counts(totals: Totals, counts: Longs) -> Totals:
    """The totals without item counts, which are added to `counts`."""
    counts += totals.item_counts
    return totals._replace(item_counts=counts)


def _sum_totals(parts: list[Totals], counts: Longs) -> Totals:
    n_rows, n_pairs, n_baskets, ends, _ = zip(*parts, strict=True)
    return Totals(sum(n_rows), sum(n_pairs), sum(n_baskets), max(ends), counts)


def _starts_of(parts: list[Ints | None]) -> Longs | None:
    """Where each user's part starts; None if the parts were not counted."""
    found = [part for part in parts if part is not None]
    return starts(np.concatenate(found)) if len(found) == len(parts) else None


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
