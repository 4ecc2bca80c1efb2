"""Lists joined with what their users did next, by user and item id; truth that a model was trained on."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.metrics import ListSums, Metric, Money, prefix_sums
from shortlist.core.ragged import row_owners
from shortlist.data.ids import UNKNOWN, id_series
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError, warn
from shortlist.kernels.lists import Chunk, Truth, mark_hits
from shortlist.kernels.rows import read_only, sum_rows, take_rows
from shortlist.types import Bools, Doubles, Ints, Longs


def probabilities_of(lists: RankedLists) -> Doubles:
    """(n_candidates,) the probabilities of candidates that a cutoff has ranked."""
    assert lists.probabilities is not None
    return lists.probabilities


def rank_by_probability(lists: RankedLists, n_candidates: int) -> Longs | None:
    """(n_candidates,) the order in which no probability of a list rises; None if none does.

    Candidates after the first `n_candidates` of a list stay behind them, in their order.
    """
    p = lists.probabilities
    if p is None or not ((p[1:] > p[:-1]) & (lists.positions[1:] > 0)).any():
        return None
    is_later = lists.positions >= n_candidates
    return np.lexsort((np.where(is_later, 0.0, -p), is_later, lists.owner))


@dataclass(frozen=True, eq=False)
class LabeledLists:
    """Candidates with their outcomes; users without candidates may be labeled too."""

    lists: RankedLists
    relevant: Bools  # (n_candidates,)
    n_relevant: Ints  # (n_lists,) distinct truth items, whether they are candidates or not
    labeled: Bools  # (n_lists,) whether the user has truth rows, or is known to have none

    @cached_property
    def rows(self) -> Bools:
        """(n_candidates,) whether the candidate's user is labeled."""
        return self.labeled[self.lists.owner]

    @property
    def n_outcomes(self) -> int:
        """Number of candidates whose outcome is known."""
        return int(self.rows.sum())

    @cached_property
    def list_number(self) -> Ints:
        """(n_candidates,) number of the list of each candidate."""
        return self.lists.owner.astype(np.int32)

    @cached_property
    def prefixes(self) -> ListSums:
        """The sums of the list that ends with each candidate."""
        return prefix_sums(self.lists.indptr, self.relevant, self.n_relevant)

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
        lists = self.lists.take(numbers)
        rows = take_rows(self.lists.indptr, numbers)[1]
        return LabeledLists(lists, self.relevant[rows], self.n_relevant[numbers], self.labeled[numbers])

    def rank(self, probabilities: Doubles) -> "LabeledLists":
        """The labels with these probabilities (n_candidates,), in their order."""
        lists = replace(self.lists, probabilities=probabilities)
        order = rank_by_probability(lists, max(lists.items.size, 1))
        if order is None:
            return replace(self, lists=lists)
        return replace(self, lists=lists.reorder(order), relevant=self.relevant[order])

    def utilities(self, metric: str, money: Money | None = None) -> Doubles:
        """(n_candidates,) metric of the list that ends with this candidate; NaN for unlabeled users."""
        sums = self.prefixes._replace(money=money)
        return np.where(self.rows, Metric.registry[metric].values(sums), np.nan)


def label_lists(lists: RankedLists, truth: Interactions, users: Iterable[Any] | None = None) -> LabeledLists:
    """Match users and items by id. `users`: ids of users who count even if they have no truth rows."""
    truth = without_negative(truth)
    sets = truth.item_sets
    pairs = ((truth.users, lists.users, "user id"), (truth.items, lists.item_ids, "item id"))
    for truth_ids, ids, kind in pairs:
        if len(ids):
            truth_ids.check_type(ids.values[0], f"truth: {kind}")
    user, item = truth.users.align(lists.users), truth.items.align(lists.item_ids)
    n_relevant = np.append(sets.lengths, np.int32(0))[user]  # the last one is for unknown users
    relevant = np.zeros(lists.items.size, np.bool_)
    chunk = Chunk(read_only(lists.indptr), read_only(lists.items), item, user, np.arange(len(lists)))
    stamp, no_weights = np.full(len(truth.items), -1, np.int32), (np.empty(0, np.float32), np.empty(0))
    mark_hits(chunk, Truth(sets.indptr[:-1], sets.indptr[1:], sets.items, stamp, *no_weights), relevant)
    labeled = n_relevant > 0
    if users is not None:
        numbers = lists.users.lookup(user_series(users))
        if not (numbers != UNKNOWN).any():
            raise DataError("users must name users who have lists, got none; pass the ids used in the lists.")
        labeled[numbers[numbers != UNKNOWN]] = True
    return LabeledLists(lists, relevant, n_relevant, labeled)


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
