"""Lists joined with what their users did next: the one place that matches them; truth a model has seen."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.metrics import ListSums, Metric, Money, prefix_sums
from shortlist.core.ragged import row_owners
from shortlist.data.ids import UNKNOWN, IdMap, id_series
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.lists import RankedLists, rank_by_probability
from shortlist.errors import DataError, warn
from shortlist.kernels.list_metrics import TruthSets, mark_hits
from shortlist.kernels.rows import read_only, starts, sum_rows, take_rows
from shortlist.types import Bools, Doubles, Ints


@dataclass(frozen=True, eq=False)
class LabeledLists:
    """Lists, and which of their items were relevant."""

    lists: RankedLists
    relevant: Bools  # (n_candidates,)
    n_relevant: Ints  # (n_lists,) distinct truth items, whether they are candidates or not
    row: Ints  # (n_lists,) number of the list's user among those who count, -1 for others
    gains: Doubles | None = None  # (n_candidates,) weight of each relevant item in the truth, 0 for others

    @cached_property
    def labeled(self) -> Bools:
        """(n_lists,) whether the user has truth, or is known to have none."""
        return self.row >= 0

    @cached_property
    def rows(self) -> Bools:
        """(n_candidates,) whether the candidate's user is labeled."""
        return self.labeled[self.lists.owner]

    @property
    def n_outcomes(self) -> int:
        """Number of candidates whose outcome is known."""
        return int(self.rows.sum())

    @cached_property
    def prefixes(self) -> ListSums:
        """The sums of the list that ends with each candidate."""
        return prefix_sums(self.lists.indptr, self.relevant, self.n_relevant)

    def at_lengths(self, values: npt.NDArray[Any], lengths: Ints) -> npt.NDArray[Any]:
        """(n_lists,) the value (n_candidates,) at the end of lists of these lengths; 0 for empty ones."""
        shown, result = lengths > 0, np.zeros(lengths.size, values.dtype)
        result[shown] = values[(self.lists.indptr[:-1] + lengths - 1)[shown]]
        return result

    def sums(self, lengths: Ints) -> ListSums:
        """The sums of lists of these lengths (n_lists,)."""
        names = ("hits", "first", "dcg", "dcg_capped", "precision_sum")
        columns: dict[str, Any] = {
            name: self.at_lengths(getattr(self.prefixes, name), lengths) for name in names
        }
        return self.prefixes._replace(n_relevant=self.n_relevant, lengths=lengths, **columns)

    @cached_property
    def n_retrieved(self) -> Ints:
        """(n_lists,) relevant items among the candidates."""
        counts: Ints = sum_rows(self.lists.indptr, self.relevant).astype(np.int32)
        return counts

    @cached_property
    def calibrations(self) -> dict[tuple[str, int], Any]:
        """Calibrations fitted on these labels, by settings and history; several cutoffs may need one."""
        return {}

    def take(self, numbers: Ints) -> "LabeledLists":
        """The labels of these lists."""
        candidates = take_rows(self.lists.indptr, numbers)[1]
        return LabeledLists(
            self.lists.take(numbers),
            self.relevant[candidates],
            self.n_relevant[numbers],
            self.row[numbers],
            None if self.gains is None else self.gains[candidates],
        )

    def rank(self, probabilities: Doubles) -> "LabeledLists":
        """The labels with these probabilities (n_candidates,), in their order."""
        lists = replace(self.lists, probabilities=probabilities)
        order = rank_by_probability(lists, max(lists.items.size, 1))
        if order is None:
            return replace(self, lists=lists)
        gains = None if self.gains is None else self.gains[order]
        return replace(self, lists=lists.reorder(order), relevant=self.relevant[order], gains=gains)

    def utilities(self, metric: str, money: Money | None = None) -> Doubles:
        """(n_candidates,) metric of the list that ends with this candidate; NaN for unlabeled users."""
        sums = self.prefixes._replace(money=money)
        return np.where(self.rows, Metric.registry[metric].values(sums), np.nan)


class GroundTruth:
    """What users did next, to be joined with lists; users who are named count even if they did nothing."""

    def __init__(
        self, truth: Interactions, users: Iterable[Any] | None = None, *, weighted: bool = False
    ) -> None:
        self.users, self.items, self.user_of_row = truth.users, truth.items, truth.active_users
        if users is not None:
            ids = user_series(users)
            self.users = self.users.union(ids) if len(self.users) else IdMap(ids.unique(maintain_order=True))
            self.user_of_row = np.union1d(self.user_of_row, self.users.lookup(ids)).astype(np.int32)
        self.row_of_user = np.full(len(self.users), -1, np.int32)
        self.row_of_user[self.user_of_row] = np.arange(self.n_rows, dtype=np.int32)
        sets = truth.item_sets
        self.sets = TruthSets(
            read_only(np.pad(sets.indptr, (0, len(self.users) - truth.n_users), mode="edge")),
            read_only(sets.items),
            _sum_weights(truth) if weighted else np.empty(0),
            np.full(len(self.items), -1, np.int32),
        )

    @property
    def n_rows(self) -> int:
        """Number of users who count."""
        return int(self.user_of_row.size)

    @property
    def user_ids(self) -> pl.Series:
        """(n_rows,) ids as the caller knows them."""
        return self.users.to_ids(self.user_of_row)

    @cached_property
    def sizes(self) -> Ints:
        """(n_rows,) number of relevant items."""
        return np.diff(self.sets.indptr).astype(np.int32)[self.user_of_row]

    def label(self, lists: RankedLists) -> LabeledLists:
        """The lists with the items that were relevant; an item counts once in a list."""
        user = align(lists.users, self.users, "users")
        row, sizes = np.append(self.row_of_user, np.int32(-1))[user], np.append(self.sizes, np.int32(0))
        relevant, gains = self.mark(lists, user)
        return LabeledLists(lists, relevant, sizes[row], row, gains if gains.size else None)

    def mark(self, lists: RankedLists, user: Ints) -> tuple[Bools, Doubles]:
        """((n_candidates,) relevant, (n_candidates,) or (0,) gains) of lists of these users (n_lists,)."""
        item, relevant = align(lists.item_ids, self.items, "items"), np.zeros(lists.items.size, np.bool_)
        gains = np.zeros(lists.items.size if self.sets.weight.size else 0)
        indptr, items = np.asarray(lists.indptr, np.int64), np.asarray(lists.items, np.int32)
        mark_hits(read_only(indptr), read_only(items), item, user, self.sets, relevant, gains)
        return relevant, gains

    def as_lists(self) -> RankedLists:
        """The relevant items of every user who counts."""
        items = self.sets.item
        return RankedLists(
            users=IdMap(self.user_ids),
            item_ids=self.items,
            indptr=starts(self.sizes),
            items=items,
            scores=np.zeros(items.size, np.float32),
        )

    def ideal_gains(self, discount: Doubles) -> tuple[Doubles, Doubles]:
        """((n_rows,) weights of the relevant items, (n_rows,) discounted, the heaviest first)."""
        row, gain = np.repeat(np.arange(self.n_rows), self.sizes), self.sets.weight
        heaviest = np.lexsort((-gain, row))
        gain = gain[heaviest]
        rank = np.minimum(np.arange(row.size) - np.searchsorted(row, row), discount.size)
        discounted = gain * np.append(discount, 0.0)[rank]
        total, ideal = (np.bincount(row, values, self.n_rows) for values in (gain, discounted))
        return total.astype(np.float64), ideal.astype(np.float64)


def label_lists(lists: RankedLists, truth: Interactions, users: Iterable[Any] | None = None) -> LabeledLists:
    """Match users and items by id. `users`: ids of users who count even if they have no truth rows."""
    if users is not None:
        users = user_series(users)
        if not (lists.users.lookup(users) != UNKNOWN).any():
            raise DataError("users must name users who have lists, got none; pass the ids used in the lists.")
    return GroundTruth(without_negative(truth), users).label(lists)


def _sum_weights(truth: Interactions) -> Doubles:
    """(n,) total weight of each item of `item_sets`."""
    keys = truth.user.astype(np.int64) * truth.n_items + truth.item
    place = np.unique(keys, return_inverse=True)[1]
    return np.bincount(place, truth.weight).astype(np.float64)


def align(ids: IdMap, others: IdMap, what: str) -> Ints:
    """(n_ids,) the index of each id among the others, -1 for unknown ids; DataError if the types differ."""
    if len(ids) and len(others) and ids.kind != others.kind:
        raise DataError(
            f"ids of {what} must have one type in lists, truth and history, got {_example(ids)} and "
            f"{_example(others)}; cast one of them. A CSV file whose ids are all numbers is read as "
            "integers; Parquet keeps the type."
        )
    return others.align(ids)


def _example(ids: IdMap) -> str:
    """The type of the ids, with the first one."""
    return f"the {ids.kind} {ids.values[0]!r:.40}"


def user_series(users: Iterable[Any]) -> pl.Series:
    """User ids as a series; a single string is not a collection of ids."""
    if isinstance(users, str | bytes):
        raise DataError(f"users must be a collection of ids, got the text {users!r:.60}; pass a list.")
    return id_series(users)


MAX_ROWS = 2_000  # rows of the truth that are looked up
MIN_SHARE = 0.01  # a smaller share may be chance, such as two orders of an item on one day
MIN_ROWS = 20  # without times, so few rows may be chance


def warn_if_trained_on(
    histories: Iterable[Interactions | None], truth: Interactions, consequence: str
) -> None:
    """Issue a DataWarning if `truth` has rows that one of the histories contains."""
    share = max((overlap_share(history, truth) for history in histories if history is not None), default=0.0)
    if share > MIN_SHARE:
        warn(
            f"{share:.0%} of the rows of truth are also in the data that the model was trained on, so "
            f"{consequence}; fit the model without these rows, such as on split.train."
        )


def overlap_share(trained: Interactions, truth: Interactions) -> float:
    """The share of the rows of `truth` that `trained` contains.

    Rows are the same if user, item and time are; an item that was bought again later is another row. Without
    times, a repeat looks like the same row. Then only a truth that `trained` contains as a whole
    counts.
    """
    rows = np.unique(np.linspace(0, truth.n_rows - 1, min(truth.n_rows, MAX_ROWS)).astype(np.int64))
    if not rows.size or trained.users.values.dtype.is_integer() != truth.users.values.dtype.is_integer():
        return 0.0
    user = trained.users.align(truth.users)[truth.user[rows]]
    item = trained.items.align(truth.items)[truth.item[rows]]
    shared = np.flatnonzero((user != UNKNOWN) & (item != UNKNOWN))
    indptr, at = take_rows(trained.indptr, user[shared].astype(np.int64))
    number = row_owners(indptr)
    same = trained.item[at] == item[shared][number]
    timed = trained.time is not None and truth.time is not None
    if trained.time is not None and truth.time is not None:
        same &= trained.time[at] == truth.time[rows][shared][number]
    share = np.unique(number[same]).size / rows.size
    return share if timed or (share == 1 and rows.size >= MIN_ROWS) else 0.0
