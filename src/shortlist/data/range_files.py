"""Divide Parquet files by user, file by file: each step reads one file or writes one range of users.

The steps can run on any node that sees the files. A range holds all rows of consecutive users in the order of
their ids, so that the dense indices are those of `read_interactions`, in whatever order files are processed.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.files import atomic_write
from shortlist.data.aliases import ColumnNames
from shortlist.data.columns import Table
from shortlist.data.grouping import (
    NO_BASKET,
    NO_TIME,
    NO_WEIGHT,
    basket_times,
    build_arrays,
    encode,
    group_by_user,
    in_last_basket,
)
from shortlist.data.history import Totals
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.negative_rows import NegativeWeights, subtract_min_rating
from shortlist.data.times import number_unit
from shortlist.types import Bools, Floats, Ints, Longs

SAMPLES = 1024  # user ids per file from which the ranges are chosen
ARRAYS = ("indptr", "item", "baskets", "user_baskets", "time", "weight")  # of Interactions, in a range
HELD = "held_"  # before the names of the arrays of held-out rows


class ReadOptions(NamedTuple):
    """How to read the columns of every file; see `read_interactions`."""

    names: ColumnNames
    time_format: str | None = None
    negative_weights: NegativeWeights = "drop"
    min_rating: float | None = None

    def open(self, path: Path) -> Table:
        """The table of one file."""
        return Table(
            pl.scan_parquet([path], glob=False),
            self.names,
            time_format=self.time_format,
            columnar=True,
            negative_weights=self.negative_weights,
            min_rating=self.min_rating,
            label=str(path),
        )


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
    table = options.open(path)
    kinds = _kinds(table, path)
    users, items, labels = table.required_ids("user_id"), table.required_ids("item_id"), table.labels()
    _, keep, n_negative = _weights(table)
    n_rows = len(users)
    if keep is not None:
        mask = pl.Series(keep)
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
        n_negative=n_negative,
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


def _weights(table: Table) -> tuple[Floats, Bools | None, int]:
    """(weights, rows to keep or None, number of rows with a negative weight)."""
    found = table.weights()
    weight = subtract_min_rating(NO_WEIGHT if found is None else found, table.min_rating)
    negative = weight < 0
    n = int(negative.sum())
    return weight, None if not n or table.negative_weights == "keep" else ~negative, n


def split_file(plan: RangePlan, task: tuple[int, Path]) -> None:
    """Write the rows of one file to the ranges of their users, with encoded items."""
    number, path = task
    table = plan.options.open(path)
    users, items = table.required_ids("user_id"), table.required_ids("item_id")
    basket, (weight, keep, _), time = table.ids("basket_id"), _weights(table), table.times()
    columns: dict[str, Any] = {"user_id": users, "item": plan.items.lookup(items)}
    del items
    columns |= {} if time is None else {"time": time}
    columns |= {} if basket is None else {"basket": basket}
    columns |= {"weight": weight} if weight.size else {}
    frame = pl.DataFrame(columns)
    if keep is not None:
        frame = frame.filter(pl.Series(keep))
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
    rows = group_by_user(len(users), user, item, basket_times(user, basket, time), basket, weight)
    return Interactions(users=users, items=items, **build_arrays(rows)._asdict())


def remove_parts(plan: RangePlan, number: int) -> None:
    """Remove what `split_file` wrote for a range."""
    for part in plan.range_folder(number).glob("part-*.parquet"):
        part.unlink(missing_ok=True)


def remove_ranges(folder: Path) -> None:
    """Remove everything that was written."""
    shutil.rmtree(folder, ignore_errors=True)
