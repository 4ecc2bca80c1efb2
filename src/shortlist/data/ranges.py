"""Rows for training: UserRanges, in files divided by user, and MemoryRows; users can be read alone."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.engine import Engine
from shortlist.core.files import atomic_write
from shortlist.core.params import warn
from shortlist.data.columns import NO_TIME, NO_WEIGHT, DataSource, NoRowsError, Table, number_unit
from shortlist.data.history import ARRAYS, History, StoredRows, Totals, store_rows
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
    slice_users,
)
from shortlist.data.select import flat_types
from shortlist.errors import DataError
from shortlist.kernels.rows import ArrayParts, starts
from shortlist.types import Bools, Floats, Ints, Longs

SAMPLES = 1024  # user ids per file from which the ranges are chosen
HELD = "held_"  # before the names of the arrays of held-out rows


class FileSummary(NamedTuple):
    """What one file contributes to the ids and ranges of all files."""

    kinds: dict[str, str]  # type of each column, and the unit of the times; equal in all files
    n_read: int  # rows before any was left out
    n_rows: int  # rows that where, missing and the rules of an export leave
    n_negative: int
    notes: list[str]
    users: pl.Series  # a sample of the rows' user ids, in order
    rows_per_sample: float
    items: pl.Series  # distinct, ascending
    item_names: pl.DataFrame | None  # the first name of each item that has one


class EmptyFile(NamedTuple):
    """A file of which no row is left, and why."""

    path: Path
    n_read: int
    reason: str


class RangeSummary(NamedTuple):
    """What the driver has to know of a range."""

    set_sizes: Ints  # (n_users,) distinct items of each user
    rows: Ints  # (n_users,) rows of each user
    baskets: Ints  # (n_users,) baskets of each user
    held: Bools  # (n_users,) whether the user's last basket was held out
    totals: Totals
    digest: str  # of the rows


class RangePlan(NamedTuple):
    """How rows are divided; sent to the steps that write."""

    open_table: Callable[[Path], Table]
    folder: Path
    items: IdMap
    splits: pl.Series  # (n_ranges - 1,) the first user id of each range but the first
    holds_out: bool = False  # whether the last basket of each user is kept apart

    def range_folder(self, number: int) -> Path:
        """Where a range is written."""
        return self.folder / f"range-{number:05}"


def summarize_file(open_table: Callable[[Path], Table], path: Path) -> FileSummary | EmptyFile:
    """Read the ids of one file."""
    n_read = pl.scan_parquet([path], glob=False).select(pl.len()).collect().item()
    try:
        return _summarize(open_table(path), path, n_read)
    except NoRowsError as error:
        return EmptyFile(path, n_read, str(error))


def _summarize(table: Table, path: Path, n_read: int) -> FileSummary:
    """The ids of one table."""
    kinds = _kinds(table, path)
    users, items, labels = table.required_ids("user_id"), table.required_ids("item_id"), table.labels()
    n_rows, weight = len(users), table.weights()
    if table.options.future == "drop":
        table.times()
    if (mask := _find_kept(table, weight)) is not None:
        users, items = users.filter(mask), items.filter(mask)
        labels = None if labels is None else labels.filter(mask)
    ids, codes = encode(users)
    before = np.cumsum(np.bincount(codes, minlength=len(ids)))
    at = (np.arange(min(SAMPLES, codes.size)) * codes.size) // max(min(SAMPLES, codes.size), 1)
    names = None
    if labels is not None:
        named = pl.DataFrame({"item": items, "name": labels}).drop_nulls()
        names = named.unique("item", keep="first", maintain_order=True)
    return FileSummary(
        kinds=kinds,
        n_read=n_read,
        n_rows=n_rows - int(table.is_late.sum()),
        n_negative=int((weight < 0).sum()),
        notes=table.notes,
        users=ids.to_ids(np.searchsorted(before, at, side="right")),
        rows_per_sample=codes.size / max(at.size, 1),
        items=items.unique().sort(),
        item_names=names,
    )


def _kinds(table: Table, path: Path) -> dict[str, str]:
    """What must be equal in all files: types of columns, and what numbers mean as times."""
    schema = dict(flat_types(pl.read_parquet_schema(path)))
    kinds = {role: str(schema[name]) for role, name in table.roles.items()}
    name = table.roles.get("timestamp")
    if name is not None and schema[name].is_numeric() and name in pl.read_parquet_schema(path):
        column = pl.col(name).cast(pl.Float64)
        limits = pl.scan_parquet([path], glob=False).select(low=column.min(), high=column.max()).collect()
        kinds["unit of timestamp"] = number_unit(limits["low"][0] or 0.0, limits["high"][0] or 0.0)
    return kinds


def _find_kept(table: Table, weight: Floats) -> pl.Series | None:
    """(n_rows,) which rows are kept, None for all; the purchase of a return may be in another file."""
    dropped = table.is_late
    if table.options.negative_weights != "keep" and (weight < 0).any():
        dropped = dropped | (weight < 0) if dropped.size else weight < 0
    return pl.Series(~dropped) if dropped.any() else None


def split_file(plan: RangePlan, task: tuple[int, Path]) -> None:
    """Write the rows of one file to the ranges of their users, with encoded items."""
    number, path = task
    table = plan.open_table(path)
    users, items = table.required_ids("user_id"), table.required_ids("item_id")
    basket, weight, time = table.ids("basket_id"), table.weights(), table.times()
    columns: dict[str, Any] = {"user_id": users, "item": plan.items.lookup(items)}  # -1: of dropped rows only
    del items
    columns |= {"time": time} if time.size else {}
    columns |= {} if basket is None else {"basket": basket}
    columns |= {"weight": weight} if weight.size else {}
    frame = pl.DataFrame(columns)
    if (mask := _find_kept(table, weight)) is not None:
        frame = frame.filter(mask)
    ids, codes = encode(frame["user_id"])
    cuts = [int((ids.values < split).sum()) for split in plan.splits]
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
    pieces = sorted(folder.glob("part-*.parquet"))
    if not pieces:
        none = np.empty(0, np.int32)
        empty = Totals(0, 0, 0, 0, np.zeros(len(plan.items), np.int64))
        return RangeSummary(none, none, none, np.empty(0, np.bool_), empty, "")
    data = _read_range(pieces, plan.items)
    held, digest = np.zeros(data.n_users, np.bool_), data.fingerprint
    if plan.holds_out:
        is_last = in_last_basket(data)
        data, last_baskets = data.where(~is_last), data.where(is_last)
        _write_arrays(folder, HELD, last_baskets)
        held, digest = np.diff(last_baskets.indptr) > 0, f"{digest} without last baskets"
    _write_arrays(folder, "", data)
    with atomic_write(folder / "users.parquet") as temporary:
        pl.DataFrame({"user_id": data.users.values}).write_parquet(temporary)
    set_sizes = np.diff(data.item_sets[0]).astype(np.int32)
    return RangeSummary(
        set_sizes=set_sizes,
        rows=np.diff(data.indptr).astype(np.int32),
        baskets=np.diff(data.user_baskets).astype(np.int32),
        held=held,
        totals=Totals(data.n_rows, int(set_sizes.sum()), data.n_baskets, data.end_time, data.item_counts),
        digest=digest,
    )


def _write_arrays(folder: Path, prefix: str, data: Interactions) -> None:
    """Write the arrays of some interactions to a file each."""
    for name in ARRAYS:
        if getattr(data, name) is not None:
            with atomic_write(folder / f"{prefix}{name}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, getattr(data, name))


def _read_range(pieces: list[Path], items: IdMap) -> Interactions:
    """The rows of these files, in their order."""
    frame = pl.read_parquet(pieces, glob=False)
    users, user = encode(frame.drop_in_place("user_id"))
    item = frame.drop_in_place("item").to_numpy()
    time = frame.drop_in_place("time").to_numpy() if "time" in frame.columns else NO_TIME
    weight = frame.drop_in_place("weight").to_numpy() if "weight" in frame.columns else NO_WEIGHT
    basket = encode(frame["basket"])[1] if "basket" in frame.columns else NO_BASKET
    rows = group_by_user(len(users), user, item, earliest_basket_times(user, basket, time), basket, weight)
    return Interactions(users=users, items=items, **build_arrays(rows))


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
        sizes: Longs = np.diff(self.load(starts_name)[self.first : self.last + 1])
        return sizes


@dataclass(frozen=True)
class UserSlices:
    """Some users, in one or more ranges; a slice of a column is in memory only while it is used."""

    slices: tuple[RangeSlice, ...]

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
        columns: dict[str, Any] = {
            "indptr": self._starts(f"{prefix}indptr"),
            "user_baskets": self._starts(f"{prefix}user_baskets"),
            "baskets": self._baskets(prefix),
        }
        for name in COLUMNS:
            if self.slices[0].has(prefix + name):
                columns[name] = self._entries(prefix + name, f"{prefix}indptr")
        return columns

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
        folders = {users.folder for users in self.slices}
        tables = {folder: pl.read_parquet(folder / "users.parquet", glob=False) for folder in folders}
        ids = (tables[users.folder]["user_id"][users.first : users.last] for users in self.slices)
        return IdMap(pl.concat(ids))

    def _starts(self, name: str) -> Longs:
        return starts(np.concatenate([users.lengths(name) for users in self.slices]))

    def _entries(self, name: str, starts_name: str) -> ArrayParts:
        """A column with an entry per row, or per item of a set."""
        bounds = [users.bounds(starts_name) for users in self.slices]
        size = sum(end - begin for begin, end in bounds)
        return ArrayParts(self.slices[0].load(name).dtype, (size,), partial(self._read, name, bounds))

    def _read(self, name: str, bounds: list[tuple[int, int]]) -> Iterator[npt.NDArray[Any]]:
        for users, (begin, end) in zip(self.slices, bounds, strict=True):
            yield np.asarray(users.load(name)[begin:end])

    def _baskets(self, prefix: str) -> ArrayParts:
        """Where the rows of each basket start."""
        bounds = [users.bounds(f"{prefix}user_baskets") for users in self.slices]
        size = 1 + sum(end - begin for begin, end in bounds)
        return ArrayParts(np.dtype(np.int64), (size,), partial(self._read_baskets, prefix, bounds))

    def _read_baskets(self, prefix: str, bounds: list[tuple[int, int]]) -> Iterator[Longs]:
        yield np.zeros(1, np.int64)
        done = 0
        for users, (begin, end) in zip(self.slices, bounds, strict=True):
            at = users.load(f"{prefix}baskets")[begin : end + 1]
            yield at[1:] - (int(at[0]) - done)
            done += int(at[-1] - at[0])


def without_rows(users: IdMap, items: IdMap) -> Interactions:
    """Ids whose rows are elsewhere."""
    none = np.zeros(1, np.int64)
    return Interactions(
        users, items, indptr=none, item=np.empty(0, np.int32), baskets=none, user_baskets=none
    )


def number_ids(n: int) -> IdMap:
    """Ids for users or items whose own ids are not needed."""
    return IdMap(pl.Series(np.arange(n)))


NO_IDS = number_ids(0)


def load_users(users: Interactions | UserSlices, n_items: int) -> Interactions:
    """The rows of some users in memory."""
    return users if isinstance(users, Interactions) else users.interactions(number_ids(n_items))


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """All rows in memory, with what training needs of `UserRanges`."""

    data: Interactions

    @property
    def n_users(self) -> int:
        """Number of users."""
        return self.data.n_users

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.data.n_items

    @property
    def totals(self) -> Totals:
        """Numbers that describe all rows."""
        return History.of(self.data).totals

    @property
    def set_starts(self) -> Longs:
        """(n_users + 1,) where the distinct items of each user start."""
        return self.data.item_sets[0]

    @property
    def row_starts(self) -> Longs:
        """(n_users + 1,) where the rows of each user start."""
        return self.data.indptr

    @property
    def basket_starts(self) -> Longs:
        """(n_users + 1,) where the baskets of each user start."""
        return self.data.user_baskets

    def users(self, first: int, last: int) -> Interactions:
        """The rows of users first … last - 1, which have other ids unless they are all users."""
        data = self.data
        if (first, last) == (0, data.n_users):
            return data
        ids = number_ids(last - first), number_ids(data.n_items)
        return Interactions(*ids, **slice_users(data, first, last))

    def each_range(self) -> Iterator[tuple[int, Interactions]]:
        """(first user, rows): all rows are one range."""
        yield 0, self.data


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
    row_starts: Longs  # (n_users + 1,) where the rows of each user start
    basket_starts: Longs  # (n_users + 1,) where the baskets of each user start
    held: Bools | None  # (n_users,) whether the user's last basket was held out; None: no basket was
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
        slices = []
        for number, (begin, end) in enumerate(pairwise(self.range_starts.tolist())):
            low, high = max(first, begin), min(last, end)
            if low < high:
                slices.append(RangeSlice(self.folder / f"range-{number:05}", low - begin, high - begin))
        return UserSlices(tuple(slices))

    def each_range(self) -> Iterator[tuple[int, UserSlices]]:
        """(first user, users) of each range that has users."""
        for first, last in pairwise(self.range_starts.tolist()):
            if first < last:
                yield first, self.users(first, last)

    def take(self, users: Ints) -> UserSlices:
        """These users, in this order."""
        ranges = np.searchsorted(self.range_starts, users, side="right") - 1
        places = zip(ranges.tolist(), (users - self.range_starts[ranges]).tolist(), strict=True)
        return UserSlices(
            tuple(RangeSlice(self.folder / f"range-{at:05}", user, user + 1) for at, user in places)
        )


def divide_files(
    paths: list[Path],
    open_table: Callable[[Path], Table],
    folder: Path,
    engine: Engine,
    label: str,
    *,
    holds_out: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> UserRanges:
    """Read the files on the engine, and write their rows to `folder`, in ranges of users.

    `open_table` opens the table of one file. `progress` is called with the name of a step, the number of its
    finished tasks, and of all its tasks.
    """
    report = progress or (lambda step, done, total: None)
    plan, names, table, paths = _plan_ranges(paths, open_table, folder, engine, holds_out, report)
    for done, _ in enumerate(engine.map(partial(split_file, plan), list(enumerate(paths))), 1):
        report("dividing rows", done, len(paths))
    ranges: list[RangeSummary] = []
    numbers, counts = range(len(plan.splits) + 1), np.zeros(len(plan.items), np.int64)
    for number, summary in zip(numbers, engine.map(partial(build_range, plan), numbers), strict=True):
        for piece in plan.range_folder(number).glob("part-*.parquet"):
            piece.unlink(missing_ok=True)
        counts += summary.totals.item_counts  # summed at once, because they are large
        ranges.append(summary._replace(totals=summary.totals._replace(item_counts=counts)))
        report("grouping rows", len(ranges), len(numbers))
    for doubt in table.doubts:
        warn(doubt)
    set_sizes, rows, baskets, held, totals, digests = zip(*ranges, strict=True)
    n_rows, n_pairs, n_baskets, ends, _ = zip(*totals, strict=True)
    return UserRanges(
        folder=folder,
        range_starts=starts(np.array([sizes.size for sizes in set_sizes])),
        set_starts=starts(np.concatenate(set_sizes)),
        row_starts=starts(np.concatenate(rows)),
        basket_starts=starts(np.concatenate(baskets)),
        held=np.concatenate(held) if holds_out else None,
        items=plan.items,
        item_names=_join_names(plan.items, names),
        totals=Totals(sum(n_rows), sum(n_pairs), sum(n_baskets), max(ends), counts),
        source=replace(table.source(), label=label),
        digest=hashlib.blake2b("".join(digests).encode(), digest_size=16).hexdigest(),
    )


def _plan_ranges(
    paths: list[Path],
    open_table: Callable[[Path], Table],
    folder: Path,
    engine: Engine,
    holds_out: bool,
    report: Callable[[str, int, int], None],
) -> tuple[RangePlan, list[pl.DataFrame], Table, list[Path]]:
    """(plan, names of items by file, table of the first file, files with rows), from the ids of all files."""
    files: list[FileSummary] = []
    empty: list[EmptyFile] = []
    items, samples, names = pl.Series(), [], []
    for summary in engine.map(partial(summarize_file, open_table), paths):
        if isinstance(summary, EmptyFile):
            empty.append(summary)
            continue
        _check_equal(files[0] if files else summary, summary, paths[len(files) + len(empty)])
        items = pl.concat([items, summary.items]).unique().sort() if files else summary.items
        rows = [summary.rows_per_sample] * len(summary.users)
        samples.append(pl.DataFrame({"user_id": summary.users, "rows": rows}))
        names += [] if summary.item_names is None else [summary.item_names]
        files.append(summary._replace(items=summary.items[:0], users=summary.users[:0], item_names=None))
        report("reading ids", len(files) + len(empty), len(paths))
    if not files:
        raise DataError(f"{empty[0].path}: {empty[0].reason}")
    left_out = {file.path for file in empty}
    paths = [path for path in paths if path not in left_out]
    table = open_table(paths[0])
    _note_files(table, files, sum(file.n_read for file in empty))
    _check_baskets(table.roles, files[0].kinds)
    table.note_negative(sum(file.n_negative for file in files), sum(file.n_rows for file in files))
    plan = RangePlan(open_table, folder, IdMap(items), _choose_splits(pl.concat(samples)), holds_out)
    return plan, names, table, paths


def _note_files(table: Table, files: list[FileSummary], n_others: int) -> None:
    """Keep the notes that hold for all files, and say how many rows were left out, also of other files."""
    if len(files) == 1 and not n_others:
        table.notes[:] = files[0].notes
        return
    shared = [note for note in files[0].notes if all(note in file.notes for file in files)]
    table.notes[:] = [note for note in table.notes if note in shared or note in table.doubts]
    n_read, n_rows = n_others + sum(file.n_read for file in files), sum(file.n_rows for file in files)
    if n_read > n_rows:
        table.note(
            f"{n_read - n_rows:,} of {n_read:,} rows were left out by where, missing, future or the rules of "
            "an export."
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


def _join_names(items: IdMap, names: list[pl.DataFrame]) -> pl.Series | None:
    """The first name of each item, in the order of the files."""
    if not names:
        return None
    joined = pl.concat(names).unique("item", keep="first", maintain_order=True)
    return first_names(items, items.lookup(joined["item"]), joined["name"])
