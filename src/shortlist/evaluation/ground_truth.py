"""Lists from any library and the truth they are evaluated against, matched by user and item id."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl

from shortlist.data.ids import IdMap, id_series
from shortlist.data.interactions import NO_WEIGHT, Interactions, without_negative
from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.lists import Chunk, Truth, count_distinct, mark_hits
from shortlist.kernels.rows import read_only, starts
from shortlist.types import Bools, Doubles, Ints, Longs


@runtime_checkable
class ArrowTable(Protocol):
    """Tables of pandas, pyarrow, polars, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the table as an Arrow stream."""


Lists = RankedLists | ArrowTable | pl.LazyFrame | Mapping[Any, Iterable[Any]] | str | Path
ListsOrChunks = Lists | Iterable[Lists]
LIST_TYPES = (RankedLists, ArrowTable, pl.LazyFrame, Mapping, str, Path)  # types of `Lists`, for isinstance


def as_chunks(lists: ListsOrChunks) -> Iterator[RankedLists]:
    """The lists in one piece, or piece by piece if the caller passes an iterable."""
    if isinstance(lists, LIST_TYPES) or not isinstance(lists, Iterable):
        yield read_candidates(lists, "lists")
        return
    for chunk in lists:
        yield read_candidates(chunk, "lists")


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """How many evaluated users were shown each item, had it as a hit, and have it in their truth."""

    ids: IdMap
    shown: Longs  # (n_items,)
    hits: Longs  # (n_items,)
    relevant: Longs  # (n_items,)
    n_unknown: int  # shown items that neither truth nor history contains

    @property
    def coverage(self) -> float:
        """Share of the catalog that was shown to any user."""
        return (int((self.shown > 0).sum()) + self.n_unknown) / (len(self.ids) + self.n_unknown)


@dataclass(frozen=True, eq=False)
class RepeatCounts:
    """Interactions before the lists were made, and how far lists and truth repeat them."""

    history_lengths: Ints  # (n_users,) earlier interactions
    popularity: Longs  # (n_items,) earlier interactions of all users
    relevant: Ints  # (n_users,) truth items that the user's history contains
    shown: Ints  # (n_users,) shown items that the user's history contains
    hits: Ints  # (n_users,) hits that the user's history contains


class WeightedGains(NamedTuple):
    """Hits that count by the weight of the item in the truth; arrays have one value per user."""

    gains: Doubles  # of the hits
    total_gains: Doubles  # of all relevant items
    gain_dcg: Doubles  # of the first max_items
    ideal_gain_dcg: Doubles

    @property
    def metrics(self) -> dict[str, Doubles]:
        """The metrics by name."""
        return {
            "weighted_ndcg": self.gain_dcg / np.where(self.ideal_gain_dcg > 0, self.ideal_gain_dcg, 1.0),
            "weighted_recall": self.gains / np.where(self.total_gains > 0, self.total_gains, 1.0),
        }


class GroundTruth:
    """The truth with one row per evaluated user: users with truth, and users named by the caller.

    Rows of negative weight are left out.
    """

    def __init__(
        self,
        truth: Interactions | Any,
        history: Interactions | None = None,
        users: Iterable[Any] | None = None,  # ids of users who count even without truth
        *,
        weighted: bool = False,
    ) -> None:
        truth = without_negative(Interactions.of(truth))
        if not truth.n_rows:
            raise DataError(
                "truth must hold at least one interaction, got none; pass the test part of a split."
            )
        if weighted and truth.weight is None:
            raise ConfigError(
                'gains="weight" needs a truth with weights, got one without; name the column with weight=…, '
                "or leave gains out."
            )
        self.users, self.items = truth.users, truth.items
        if history is not None and history.items is not truth.items:
            self.items = truth.items.union(history.items.values)
        self.user_of_row = truth.active_users
        if users is not None:
            ids = id_series(users)
            self.users = truth.users.union(ids)
            self.user_of_row = np.union1d(self.user_of_row, self.users.lookup(ids)).astype(np.int32)
        self.row_of_user = np.full(len(self.users), -1, np.int32)
        self.row_of_user[self.user_of_row] = np.arange(self.n_rows, dtype=np.int32)
        indptr = np.pad(truth.indptr, (0, len(self.users) - truth.n_users), mode="edge")
        self.truth = Truth(
            indptr[self.user_of_row],
            indptr[self.user_of_row + 1],
            truth.item,
            np.full(len(self.items), -1, np.int32),
            truth.weight if weighted and truth.weight is not None else NO_WEIGHT,
            np.empty(len(self.items) if weighted else 0),
        )
        self.sizes: Ints = np.zeros(self.n_rows, np.int32)  # distinct relevant items per row
        self.relevant_of: Longs = np.zeros(len(self.items), np.int64)
        count_distinct(self.truth, self.sizes, self.relevant_of)

    @property
    def n_rows(self) -> int:
        """Number of evaluated users."""
        return int(self.user_of_row.size)

    @property
    def user_ids(self) -> pl.Series:
        """(n_rows,) ids as the caller knows them."""
        return self.users.to_ids(self.user_of_row)

    def chunk(self, lists: RankedLists) -> Chunk:
        """Lists in the form the kernels use."""
        _check(lists)
        code, user = _align(lists.item_ids, self.items, "items"), _align(lists.users, self.users, "users")
        row = np.where(user < 0, -1, self.row_of_user[user]).astype(np.int32)
        order = _order_by_row(row, self.n_rows)
        indptr, items = np.asarray(lists.indptr, np.int64), np.asarray(lists.items, np.int32)
        return Chunk(read_only(indptr), read_only(items), code, row, order)

    def relevant(self, chunk: Chunk) -> Bools:
        """(n_shown,) whether each item of the lists is in its user's truth."""
        relevant = np.zeros(chunk.items.size, np.bool_)
        mark_hits(chunk, self.truth, relevant)
        return relevant

    def n_relevant(self, chunk: Chunk) -> Ints:
        """(n_lists,) size of the truth of each list's user, 0 for a user without a row."""
        return np.where(chunk.row < 0, 0, self.sizes[chunk.row])

    def history(self, history: Interactions) -> Truth:
        """Earlier interactions of the evaluated users, with the item indices of the truth."""
        user = _align(self.users, history.users, "users")[self.user_of_row]
        start = np.where(user < 0, 0, history.indptr[user])
        end = np.where(user < 0, 0, history.indptr[user + 1])
        item = _align(history.items, self.items, "items")[history.item]
        stamp = np.full(len(self.items), -1, np.int32)
        return Truth(start, end, read_only(item), stamp, NO_WEIGHT, np.empty(0))

    def ideal_gains(self, discount: Doubles) -> tuple[Doubles, Doubles]:
        """((n_rows,) weights of the relevant items, (n_rows,) discounted, the heaviest first)."""
        truth, sizes = self.truth, self.truth.end - self.truth.start
        row = np.repeat(np.arange(self.n_rows), sizes)
        rows = np.arange(row.size) + np.repeat(truth.start - starts(sizes)[:-1], sizes)
        keys, place = np.unique(row * len(self.items) + truth.item[rows], return_inverse=True)
        gain = np.bincount(place, truth.weight[rows].astype(np.float64), keys.size)
        heaviest = np.lexsort((-gain, keys // len(self.items)))
        row, gain = keys[heaviest] // len(self.items), gain[heaviest]
        rank = np.minimum(np.arange(row.size) - np.searchsorted(row, row), discount.size)
        discounted = gain * np.append(discount, 0.0)[rank]
        total, ideal = (np.bincount(row, values, self.n_rows) for values in (gain, discounted))
        return total.astype(np.float64), ideal.astype(np.float64)


def _order_by_row(row: Ints, n_rows: int) -> Longs:
    """(n_lists,) list numbers by ascending row; without a sort, because no row but -1 occurs twice."""
    if (row[1:] >= row[:-1]).all():
        return np.arange(row.size)
    is_known = row >= 0
    list_of_row = np.full(n_rows, -1, np.int64)
    list_of_row[row[is_known]] = np.flatnonzero(is_known)
    return np.concatenate([np.flatnonzero(~is_known), list_of_row[list_of_row >= 0]])


def _example(ids: IdMap) -> str:
    """The type of the ids, with the first one."""
    kind = "the integer" if ids.values.dtype.is_integer() else "the string"
    return f"{kind} {ids.values[0]!r:.40}" if len(ids) else kind.replace("the", "a")


def _align(ids: IdMap, id_map: IdMap, what: str) -> Ints:
    """(n_ids,) the index of each id in the map, -1 for unknown ids."""
    is_integer = ids.values.dtype.is_integer(), id_map.values.dtype.is_integer()
    if len(ids) and is_integer[0] != is_integer[1]:
        raise DataError(
            f"ids of {what} must have one type in lists, truth and history, got {_example(ids)} and "
            f"{_example(id_map)}; cast one of them. A CSV file whose ids are all numbers is read as "
            "integers; Parquet keeps the type."
        )
    return id_map.align(ids)


def _check(lists: RankedLists) -> None:
    """Raise DataError for arrays that kernels cannot index safely, and for users with two lists."""
    lengths = np.diff(lists.indptr)
    if lists.indptr[0] != 0 or (lengths.size and lengths.min() < 0):
        raise DataError(
            "indptr of lists must start at 0 and never decrease, got other values; use RankedLists methods."
        )
    if lists.items.size and not 0 <= lists.items.min() <= lists.items.max() < len(lists.item_ids):
        raise DataError(
            f"items of lists must be indices below {len(lists.item_ids)}, got {lists.items.min()} to "
            f"{lists.items.max()}; pass the `item_ids` they belong to."
        )
    if lists.users.values.n_unique() != len(lists):
        raise DataError("a user must have one list, got a user with several; remove all but one.")
    p = lists.probabilities
    if p is not None and p.size and not (np.nanmin(p) >= 0 and np.nanmax(p) <= 1):
        raise DataError(
            f"probabilities must lie between 0 and 1, got {np.nanmin(p)} to {np.nanmax(p)}; "
            "calibrate the scores first."
        )
