"""Labels: which candidates the user interacted with next, and how many items in total."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.core.metrics import prefix_f1, prefix_hits, prefix_ndcg
from shortlist.cutoff.candidates import Scores, top_candidates
from shortlist.data.id_map import UNKNOWN, id_series
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.kernels.features import rows_label
from shortlist.types import Bools, Doubles, Ints, Longs


@dataclass(frozen=True, eq=False)
class Labels:
    """Candidates with their outcomes; users without candidates may be labeled too."""

    lists: RankedLists
    relevant: Bools  # (n_candidates,)
    n_relevant: Ints  # (n_lists,) distinct truth items, whether they are candidates or not
    labeled: Bools  # (n_lists,) whether the user has truth rows, or is known to have none

    @cached_property
    def rows(self) -> Bools:
        """(n_candidates,) whether the candidate's user is labeled."""
        return np.repeat(self.labeled, np.diff(self.lists.indptr))

    @cached_property
    def list_number(self) -> Ints:
        """(n_candidates,) number of the list of each candidate."""
        return np.repeat(np.arange(len(self.lists), dtype=np.int32), np.diff(self.lists.indptr))

    @cached_property
    def hits(self) -> Longs:
        """(n_candidates,) relevant candidates of the list up to and including this one."""
        return prefix_hits(self.lists.indptr, self.relevant)

    @cached_property
    def n_retrieved(self) -> Ints:
        """(n_lists,) relevant items among the candidates."""
        total = np.concatenate([[0], np.cumsum(self.relevant)])
        return np.diff(total[self.lists.indptr]).astype(np.int32)

    def take(self, numbers: Ints) -> "Labels":
        """The labels of these lists."""
        lists = self.lists.take(numbers)
        offset = np.repeat(self.lists.indptr[numbers] - lists.indptr[:-1], np.diff(lists.indptr))
        rows = offset + np.arange(lists.indptr[-1])
        return Labels(lists, self.relevant[rows], self.n_relevant[numbers], self.labeled[numbers])

    def f1(self) -> Doubles:
        """(n_candidates,) F1 of the list that ends with this candidate; NaN for unlabeled users."""
        return np.where(self.rows, prefix_f1(self.lists.indptr, self.relevant, self.n_relevant), np.nan)

    def ndcg(self) -> Doubles:
        """(n_candidates,) NDCG of the list that ends here, against an ideal list of the same length."""
        return np.where(self.rows, prefix_ndcg(self.lists.indptr, self.relevant, self.n_relevant), np.nan)


def label_lists(lists: RankedLists, truth: Interactions, users: Iterable[Any] | None = None) -> Labels:
    """Match users and items by id. `users`: ids of users who count even if they have no truth rows."""
    indptr, items = truth.item_sets
    user, item = truth.users.align(lists.users), truth.items.align(lists.item_ids)
    known = user != UNKNOWN
    n_relevant = np.where(known, np.diff(indptr)[user] if indptr.size > 1 else 0, 0).astype(np.int32)
    relevant = np.zeros(lists.items.size, np.bool_)
    rows_label(lists.indptr, item[lists.items], user, indptr, items, relevant)
    labeled = n_relevant > 0
    if users is not None:
        found = lists.users.lookup(user_series(users))
        if not (found != UNKNOWN).any():
            raise DataError("users must name users who have lists, got none; pass the ids used in the lists.")
        labeled[found[found != UNKNOWN]] = True
    return Labels(lists, relevant, n_relevant, labeled)


def label_candidates(
    scores: Scores,
    truth: Interactions,
    history: Interactions | None,
    users: Iterable[Any] | None,
    n_candidates: int,
) -> Labels:
    """Candidates and labels of all users with truth rows, and of `users`."""
    wanted = truth.active_users
    if users is not None:
        users = user_series(users)
        found = (history or truth).users.lookup(users)
        wanted = np.union1d(wanted, found[found != UNKNOWN]).astype(np.int32)
    lists = top_candidates(scores, ids=history or truth, users=wanted, n_candidates=n_candidates)
    return label_lists(lists, truth, users)


def user_series(users: Iterable[Any]) -> Any:
    """User ids as a series; a single string is not a collection of ids."""
    if isinstance(users, str | bytes):
        raise DataError(f"users must be a collection of ids, got the text {users!r:.60}; pass a list.")
    return id_series(users)
