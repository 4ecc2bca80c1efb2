"""UserRanges: interactions in files, divided by user; any run of consecutive users can be read alone."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.engine import Engine
from shortlist.core.files import atomic_write
from shortlist.core.params import warn
from shortlist.core.ragged import ArrayParts, starts
from shortlist.data.columns import NO_TIME, NO_WEIGHT, DataSource, ReadOptions, Table, number_unit
from shortlist.data.history import StoredRows, Totals, store_rows
from shortlist.data.ids import IdMap
from shortlist.data.interactions import (
    NO_BASKET,
    Interactions,
    build_arrays,
    earliest_basket_times,
    encode,
    fingerprint,
    first_names,
    group_by_user,
    in_last_basket,
)
from shortlist.errors import DataError
from shortlist.types import Bools, Floats, Ints, Longs

SAMPLES = 1024  # user ids per file from which the ranges are chosen
ARRAYS = ("indptr", "item", "baskets", "user_baskets", "time", "weight")  # of Interactions, in a range
HELD = "held_"  # before the names of the arrays of held-out rows


class FileSummary(NamedTuple):
    """What one file contributes to the ids and ranges of all files."""

    kinds: dict[str, str]  # type of each column, and the unit of the times; equal in all files
    n_rows: int
    n_negative: int
    users: pl.Series  # a sample of the rows' user ids, in order
    rows_per_sample: float
    items: pl.Series  # distinct, ascending
    item_names: pl.DataFrame | None  # the first name of each item that has one


class RangeSummary(NamedTuple):
    """What the driver has to know of a range."""

    set_sizes: Ints  # (n_users,) distinct items of each user
    rows: Ints | None  # (n_users,) rows of each user, if they are counted
    baskets: Ints | None  # (n_users,) baskets of each user, likewise
    held: Bools | None  # (n_users,) whether the user's last basket was held out
    totals: Totals
    digest: str  # of the rows


class RangePlan(NamedTuple):
    """How rows are divided; sent to the steps that write."""

    options: ReadOptions
    folder: Path
    items: IdMap
    splits: pl.Series  # (n_ranges - 1,) the first user id of each range but the first
    holds_out: bool = False  # whether the last basket of each user is kept apart
    counts_baskets: bool = False  # whether the driver needs rows and baskets of each user

    def range_folder(self, number: int) -> Path:
        """Where a range is written."""
        return self.folder / f"range-{number:05}"


def summarize_file(options: ReadOptions, path: Path) -> FileSummary:
    """Read the ids of one file."""
    table = open_parquet(options, path)
    kinds = _kinds(table, path)
    users, items, labels = table.required_ids("user_id"), table.required_ids("item_id"), table.labels()
    n_rows, weight = len(users), table.weights()
    if _drops(options, weight):
        mask = pl.Series(weight >= 0)
        users, items = users.filter(mask), items.filter(mask)
        labels = None if labels is None else labels.filter(mask)
    known, codes = encode(users)
    before = np.cumsum(np.bincount(codes, minlength=len(known)))
    at = (np.arange(min(SAMPLES, codes.size)) * codes.size) // max(min(SAMPLES, codes.size), 1)
    names = None
    if labels is not None:
        named = pl.DataFrame({"item": items, "name": labels}).drop_nulls()
        names = named.unique("item", keep="first", maintain_order=True)
    return FileSummary(
        kinds=kinds,
        n_rows=n_rows,
        n_negative=int((weight < 0).sum()),
        users=known.to_ids(np.searchsorted(before, at, side="right")),
        rows_per_sample=codes.size / max(at.size, 1),
        items=items.unique().sort(),
        item_names=names,
    )


def _kinds(table: Table, path: Path) -> dict[str, str]:
    """What must be equal in all files: types of columns, and what numbers mean as times."""
    schema = pl.read_parquet_schema(path)
    kinds = {role: str(schema[name]) for role, name in table.roles.items()}
    name = table.roles.get("timestamp")
    if name is not None and schema[name].is_numeric():
        column = pl.col(name).cast(pl.Float64)
        limits = pl.scan_parquet([path], glob=False).select(low=column.min(), high=column.max()).collect()
        kinds["unit of timestamp"] = number_unit(limits["low"][0] or 0.0, limits["high"][0] or 0.0)
    return kinds


def open_parquet(options: ReadOptions, path: Path) -> Table:
    """The table of one file."""
    return Table(pl.scan_parquet([path], glob=False), options, columnar=True, label=str(path))


def _drops(options: ReadOptions, weight: Floats) -> bool:
    """Whether rows are dropped because of their weight."""
    return options.negative_weights == "drop" and bool((weight < 0).any())


def split_file(plan: RangePlan, task: tuple[int, Path]) -> None:
    """Write the rows of one file to the ranges of their users, with encoded items."""
    number, path = task
    table = open_parquet(plan.options, path)
    users, items = table.required_ids("user_id"), table.required_ids("item_id")
    basket, weight, time = table.ids("basket_id"), table.weights(), table.times()
    columns: dict[str, Any] = {"user_id": users, "item": plan.items.lookup(items)}
    del items
    columns |= {"time": time} if time.size else {}
    columns |= {} if basket is None else {"basket": basket}
    columns |= {"weight": weight} if weight.size else {}
    frame = pl.DataFrame(columns)
    if _drops(plan.options, weight):
        frame = frame.filter(pl.Series(weight >= 0))
    known, codes = encode(frame["user_id"])
    cuts = [int((known.values < split).sum()) for split in plan.splits]
    of_range = np.searchsorted(cuts, codes, side="right")
    order = np.argsort(of_range, kind="stable")  # rows of a range stay in the order of the file
    ends = np.cumsum(np.bincount(of_range, minlength=len(plan.splits) + 1))
    for at, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if first < last:
            target = plan.range_folder(at) / f"part-{number:05}.parquet"
            with atomic_write(target) as temporary:
                frame[order[first:last]].write_parquet(temporary, compression="lz4")


def build_range(plan: RangePlan, number: int) -> RangeSummary:
    """Group the rows of a range by user and write the arrays of their Interactions."""
    folder = plan.range_folder(number)
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        none = np.empty(0, np.int32)
        empty = Totals(0, 0, 0, 0, np.zeros(len(plan.items), np.int64))
        return RangeSummary(none, none, none, np.empty(0, np.bool_), empty, "")
    data, held = _read_range(parts, plan.items), None
    digest = hashlib.blake2b(data.fingerprint.encode(), digest_size=16)
    if plan.holds_out:
        is_last = in_last_basket(data)
        data, held = data.where(~is_last), data.where(is_last)
        _write_arrays(folder, HELD, held, ())
        digest.update(b"without last baskets")
    indptr, items = data.item_sets
    _write_arrays(folder, "", data, (("set_indptr", indptr), ("set_item", items)))
    with atomic_write(folder / "users.parquet") as temporary:
        pl.DataFrame({"user_id": data.users.values}).write_parquet(temporary)
    return RangeSummary(
        set_sizes=np.diff(indptr).astype(np.int32),
        rows=np.diff(data.indptr).astype(np.int32) if plan.counts_baskets else None,
        baskets=np.diff(data.user_baskets).astype(np.int32) if plan.counts_baskets else None,
        held=None if held is None else np.diff(held.indptr) > 0,
        totals=Totals(data.n_rows, int(indptr[-1]), data.n_baskets, data.end_time, data.item_counts),
        digest=digest.hexdigest(),
    )


def _write_arrays(
    folder: Path, prefix: str, data: Interactions, more: tuple[tuple[str, Longs | Ints], ...]
) -> None:
    """Write the arrays of some interactions, and others, to a file each."""
    arrays = {prefix + name: value for name in ARRAYS if (value := getattr(data, name)) is not None}
    for name, array in (arrays | dict(more)).items():
        with atomic_write(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, array)


def _read_range(parts: list[Path], items: IdMap) -> Interactions:
    """The rows of the parts, in the order of the files."""
    frame = pl.read_parquet(parts, glob=False)
    users, user = encode(frame.drop_in_place("user_id"))
    item = frame.drop_in_place("item").to_numpy()
    time = frame.drop_in_place("time").to_numpy() if "time" in frame.columns else NO_TIME
    weight = frame.drop_in_place("weight").to_numpy() if "weight" in frame.columns else NO_WEIGHT
    basket = encode(frame["basket"])[1] if "basket" in frame.columns else NO_BASKET
    rows = group_by_user(len(users), user, item, earliest_basket_times(user, basket, time), basket, weight)
    return Interactions(users=users, items=items, **build_arrays(rows))


def remove_parts(plan: RangePlan, number: int) -> None:
    """Remove what `split_file` wrote for a range."""
    for part in plan.range_folder(number).glob("part-*.parquet"):
        part.unlink(missing_ok=True)


def remove_ranges(folder: Path) -> None:
    """Remove everything that was written."""
    shutil.rmtree(folder, ignore_errors=True)


COLUMNS = ("item", "time", "weight")  # one entry per row


class RangeSlice(NamedTuple):
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

    parts: tuple[RangeSlice, ...]

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
                found.append(RangeSlice(self.folder / f"range-{number:05}", low - begin, high - begin))
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
        return UserSlices(
            tuple(RangeSlice(self.folder / f"range-{at:05}", user, user + 1) for at, user in pairs)
        )


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
    table = open_parquet(options, paths[0])
    _check_baskets(table.roles, found[0].kinds)
    table.note_negative(sum(one.n_negative for one in found), sum(one.n_rows for one in found))
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
        source=replace(table.source(), label=label),
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
