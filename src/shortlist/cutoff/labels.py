"""Labels: which candidates the user went on to take, and how many items the user took in all."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.cutoff.top_candidates import Scores, heads
from shortlist.data.id_map import UNKNOWN, id_series
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.kernels.label import rows_label
from shortlist.types import Bools, Doubles, Ints


@dataclass(frozen=True, eq=False)
class Labels:
    """Truth laid beside heads; users without candidates may be labelled, too."""

    lists: RankedLists
    relevant: Bools  # (n_candidates,)
    n_relevant: Ints  # (n_lists,) distinct truth items, inside the head or not
    labelled: Bools  # (n_lists,) whether the user has truth rows, or is known to have taken nothing

    @cached_property
    def rows(self) -> Bools:
        """(n_candidates,) whether the candidate's user is labelled."""
        return np.repeat(self.labelled, np.diff(self.lists.indptr))

    @cached_property
    def number(self) -> Ints:
        """(n_candidates,) list number of each candidate."""
        return np.repeat(np.arange(len(self.lists), dtype=np.int32), np.diff(self.lists.indptr))

    @cached_property
    def hits(self) -> Ints:
        """(n_candidates,) relevant items among the list's candidates up to and including this one."""
        seen = np.cumsum(self.relevant, dtype=np.int32)
        before = np.append(np.int32(0), seen)[self.lists.indptr[:-1]]
        return np.subtract(seen, np.repeat(before, np.diff(self.lists.indptr)))

    @cached_property
    def n_found(self) -> Ints:
        """(n_lists,) relevant items inside the head."""
        seen = np.concatenate([[0], np.cumsum(self.relevant)])
        return np.diff(seen[self.lists.indptr]).astype(np.int32)

    def take(self, numbers: Ints) -> "Labels":
        """The labels of these lists."""
        lists = self.lists.take(numbers)
        sizes = np.diff(lists.indptr)
        rows = np.repeat(self.lists.indptr[numbers] - lists.indptr[:-1], sizes) + np.arange(lists.indptr[-1])
        return Labels(lists, self.relevant[rows], self.n_relevant[numbers], self.labelled[numbers])

    def f1(self) -> Doubles:
        """(n_candidates,) F1 of the list that ends with this candidate; NaN where not labelled."""
        with np.errstate(invalid="ignore"):
            total = np.where(self.labelled, self.n_relevant, np.nan)[self.number]
            return 2 * self.hits / (self.lists.positions + 1 + total)

    def ndcg(self) -> Doubles:
        """(n_candidates,) NDCG of the list that ends here, against an ideal list no longer than it."""
        place = self.lists.positions
        gain = self.relevant / np.log2(place + 2.0)
        summed = np.concatenate([[0.0], np.cumsum(gain)])
        dcg = summed[1:] - np.repeat(summed[self.lists.indptr[:-1]], np.diff(self.lists.indptr))
        ideal = np.cumsum(1 / np.log2(np.arange(max(int(place.max(initial=0)) + 1, 1)) + 2.0))
        total = self.n_relevant[self.number]
        best = ideal[np.minimum(place, np.maximum(total, 1) - 1)]
        return np.where(self.labelled[self.number], dcg / best, np.nan)


def label(lists: RankedLists, truth: Interactions, asked: Iterable[Any] | None = None) -> Labels:
    """Users and items are matched by outside id; a truth user without a list has no say.

    `asked`: ids of users who count also if they took nothing.
    """
    indptr, items = truth.item_sets
    user = np.arange(len(lists), dtype=np.int32)
    if lists.users != truth.users:
        user = truth.users.lookup(lists.users.values)
    item = np.arange(len(lists.item_ids), dtype=np.int32)
    if lists.item_ids != truth.items:
        item = truth.items.lookup(lists.item_ids.values)
    known = user != UNKNOWN
    n_relevant = np.where(known, np.diff(indptr)[user] if indptr.size > 1 else 0, 0).astype(np.int32)
    relevant = np.zeros(lists.items.size, np.bool_)
    rows_label(lists.indptr, item[lists.items], user, indptr, items, relevant)
    labelled = n_relevant > 0
    if asked is not None:
        found = lists.users.lookup(id_series(asked))
        if not (found != UNKNOWN).any():
            raise DataError(
                "asked must name users who have lists, got none of them; pass ids as they are in the lists."
            )
        labelled[found[found != UNKNOWN]] = True
    return Labels(lists, relevant, n_relevant, labelled)


def labelled_heads(
    scores: Scores,
    truth: Interactions,
    history: Interactions | None,
    asked: Iterable[Any] | None,
    n_candidates: int,
) -> Labels:
    """The candidates of everybody who has something to teach: those with truth rows, and those `asked`."""
    users = truth.active_users
    if asked is not None:
        asked = id_series(asked)
        found = (history or truth).users.lookup(asked)
        users = np.union1d(users, found[found != UNKNOWN]).astype(np.int32)
    return label(heads(scores, ids=history or truth, users=users, n_candidates=n_candidates), truth, asked)
