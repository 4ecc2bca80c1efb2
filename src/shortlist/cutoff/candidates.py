"""The top candidates of every user, from any kind of scores, and their labels."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from shortlist.core.metrics import prefix_f1, prefix_hits, prefix_ndcg
from shortlist.core.params import check_whole
from shortlist.core.ragged import starts, take_rows
from shortlist.data.ids import UNKNOWN, IdMap, id_series
from shortlist.data.interactions import Interactions, warn_if_trained_on, without_negative
from shortlist.data.lists import RankedLists, find_propensities
from shortlist.errors import DataError
from shortlist.kernels.lists import mark_members
from shortlist.kernels.retrieval import rank_rows, top_k
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

# RankedLists, a users × items array, a SciPy matrix, or a function from user indices to rows of scores
Scores: TypeAlias = Any
Ids: TypeAlias = Interactions | tuple[IdMap | None, IdMap | None] | None
BLOCK = 1024  # users per call of a scoring function


def top_candidates(
    scores: Scores, *, ids: Ids = None, users: Ints | None = None, n_candidates: int = 100
) -> RankedLists:
    """Rank the best candidates of every user.

    Ties go to the smaller item index. Items with score NaN or -inf are not candidates.

    Parameters
    ----------
    scores
        `RankedLists`, a dense array or a SciPy matrix (users × items; stored entries are the candidates), or
        a function that maps an array of user indices to rows of scores, one column per item.
    ids
        Ids of the rows and columns: `Interactions`, or a pair of `IdMap` for users and items. Without it,
        ids are row and column numbers. A function requires it.
    users
        Indices of the users to score with a function; all users by default.
    n_candidates
        Maximum number of candidates per user.

    Returns
    -------
    RankedLists
        One list per user, best candidate first.

    Raises
    ------
    ConfigError
        If `n_candidates` is not a positive integer.
    DataError
        If the scores are none of the accepted kinds or do not match the ids.

    Examples
    --------
    >>> import numpy as np
    >>> lists = sl.cutoff.top_candidates(np.array([[0.1, 0.9, 0.5]]), n_candidates=2)
    >>> lists[0].items
    [1, 2]
    """
    check_whole(1, n_candidates=n_candidates)
    if not (ids is None or isinstance(ids, (Interactions, tuple))):
        raise DataError(
            f"history must be Interactions, got a {type(ids).__name__}; use Interactions.from_frame."
        )
    if isinstance(scores, RankedLists):
        return _from_lists(scores, n_candidates)
    user_ids, item_ids = (ids.users, ids.items) if isinstance(ids, Interactions) else (ids or (None, None))
    if isinstance(scores, type | str):
        raise DataError(
            f"scores must be RankedLists, an array, a SciPy matrix or a function, got {scores!r:.60}; "
            "pass model.recommend(N=100), for example."
        )
    if callable(scores):
        return _from_function(scores, user_ids, item_ids, users, n_candidates)
    if issparse(scores):
        return _from_sparse(csr_array(cast(Any, scores)), user_ids, item_ids, n_candidates)
    return _from_dense(_to_matrix(scores), user_ids, item_ids, n_candidates)


def _from_lists(lists: RankedLists, n_candidates: int) -> RankedLists:
    """RankedLists sorted by score, without scores of NaN or -inf, at most n_candidates each."""
    valid = lists.scores > -np.inf
    if not valid.all():
        n_before = np.concatenate([[0], np.cumsum(valid)])
        lists = _gather(lists, n_before[lists.indptr], np.flatnonzero(valid))
    order = rank_rows(lists.indptr, lists.items, lists.scores)
    if (order[1:] < order[:-1]).any():
        lists = _gather(lists, lists.indptr, order)
    return lists.head(n_candidates) if (np.diff(lists.indptr) > n_candidates).any() else lists


def _gather(lists: RankedLists, indptr: Longs, rows: Longs) -> RankedLists:
    """The candidates at these positions, with the new starts of the lists."""
    return replace(
        lists,
        indptr=indptr,
        items=lists.items[rows],
        scores=lists.scores[rows],
        probabilities=None if lists.probabilities is None else lists.probabilities[rows],
        propensities=None if lists.propensities is None else lists.propensities[rows],
    )


def _from_dense(
    matrix: Floats, user_ids: IdMap | None, item_ids: IdMap | None, n_candidates: int
) -> RankedLists:
    n_users, n_items = matrix.shape
    indptr = np.arange(n_users + 1, dtype=np.int64) * n_items
    items = np.arange(n_items, dtype=np.int32)
    ranked = top_k(indptr, items, np.ascontiguousarray(matrix).ravel(), min(n_candidates, n_items))
    return _to_lists(ranked, *_check_ids(user_ids, item_ids, n_users, n_items))


def _from_sparse(
    matrix: Any, user_ids: IdMap | None, item_ids: IdMap | None, n_candidates: int
) -> RankedLists:
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    indptr, candidates = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    ranked = top_k(indptr, candidates, np.asarray(matrix.data, np.float32), n_candidates)
    return _to_lists(ranked, *_check_ids(user_ids, item_ids, *matrix.shape))


def _from_function(
    score: Callable[[Ints], Any],
    user_ids: IdMap | None,
    item_ids: IdMap | None,
    users: Ints | None,
    n_candidates: int,
) -> RankedLists:
    """Score in blocks of users, so that memory does not grow with their number."""
    if user_ids is None or item_ids is None:
        raise DataError("a scoring function needs the ids of users and items, got none; pass history=.")
    users = np.arange(len(user_ids), dtype=np.int32) if users is None else users
    parts = []
    for start in range(0, users.size, BLOCK):
        block = users[start : start + BLOCK]
        rows = _to_matrix(score(block))
        if rows.shape != (block.size, len(item_ids)):
            raise DataError(
                f"a scoring function must return one row per user and one column per item, "
                f"{(block.size, len(item_ids))}, got {rows.shape}; return complete rows."
            )
        parts.append(_from_dense(rows, None, item_ids, n_candidates))
    lengths = [np.diff(part.indptr) for part in parts]
    return RankedLists(
        users=IdMap(user_ids.to_ids(users)),
        item_ids=item_ids,
        indptr=starts(np.concatenate([*lengths, np.empty(0, np.int64)])),
        items=np.concatenate([*(part.items for part in parts), np.empty(0, np.int32)]),
        scores=np.concatenate([*(part.scores for part in parts), np.empty(0, np.float32)]),
    )


def _to_lists(ranked: tuple[Longs, Ints, Floats], users: IdMap, item_ids: IdMap) -> RankedLists:
    indptr, items, scores = ranked
    return RankedLists(users=users, item_ids=item_ids, indptr=indptr, items=items, scores=scores)


def _to_matrix(scores: Any) -> Floats:
    try:
        matrix = np.asarray(scores, np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"scores must be RankedLists, an array, a SciPy matrix or a function, "
            f"got {type(scores).__name__}; pass model.recommend(N=100), for example."
        ) from None
    if matrix.ndim != 2:
        raise DataError(f"scores must be a users × items matrix, got {matrix.ndim} dimensions; reshape them.")
    return matrix


def _check_ids(
    user_ids: IdMap | None, item_ids: IdMap | None, n_users: int, n_items: int
) -> tuple[IdMap, IdMap]:
    """Ids of rows and columns: the given maps, which must match the shape, or row and column numbers."""
    users = IdMap.of(np.arange(n_users)) if user_ids is None else user_ids
    items = IdMap.of(np.arange(n_items)) if item_ids is None else item_ids
    if (len(users), len(items)) != (n_users, n_items):
        raise DataError(
            f"scores must have one row per user and one column per item of the given ids, "
            f"{(len(users), len(items))}, got {(n_users, n_items)}; pass RankedLists for some users only."
        )
    return users, items


@dataclass(frozen=True, eq=False)
class Labels:
    """Candidates with their outcomes; users without candidates may be labeled too."""

    lists: RankedLists
    relevant: Bools  # (n_candidates,)
    n_relevant: Ints  # (n_lists,) distinct truth items, whether they are candidates or not
    labeled: Bools  # (n_lists,) whether the user has truth rows, or is known to have none
    weights: Doubles | None = None  # (n_candidates,) 1 / propensity, 0 if not shown; None: all were shown

    @cached_property
    def rows(self) -> Bools:
        """(n_candidates,) whether the candidate's user is labeled."""
        return np.repeat(self.labeled, np.diff(self.lists.indptr))

    @property
    def n_outcomes(self) -> int:
        """Number of candidates whose outcome is known."""
        return int((self.rows if self.weights is None else self.rows & (self.weights > 0)).sum())

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

    @cached_property
    def calibrations(self) -> dict[tuple[str, int], Any]:
        """Calibrations fitted on these labels, by settings and history; several cutoffs may need one."""
        return {}

    def take(self, numbers: Ints) -> "Labels":
        """The labels of these lists."""
        lists = self.lists.take(numbers)
        rows = take_rows(self.lists.indptr, numbers)[1]
        weights = None if self.weights is None else self.weights[rows]
        return Labels(lists, self.relevant[rows], self.n_relevant[numbers], self.labeled[numbers], weights)

    def f1(self) -> Doubles:
        """(n_candidates,) F1 of the list that ends with this candidate; NaN for unlabeled users."""
        return np.where(self.rows, prefix_f1(self.lists.indptr, self.relevant, self.n_relevant), np.nan)

    def ndcg(self) -> Doubles:
        """(n_candidates,) NDCG of the list that ends here, against an ideal list of the same length."""
        return np.where(self.rows, prefix_ndcg(self.lists.indptr, self.relevant, self.n_relevant), np.nan)


def label_lists(lists: RankedLists, truth: Interactions, users: Iterable[Any] | None = None) -> Labels:
    """Match users and items by id. `users`: ids of users who count even if they have no truth rows."""
    truth = without_negative(truth)
    indptr, items = truth.item_sets
    for known_ids, ids, kind in (
        (truth.users, lists.users, "user id"),
        (truth.items, lists.item_ids, "item id"),
    ):
        if len(ids):
            known_ids.check_type(ids.values[0], f"truth: {kind}")
    user, item = truth.users.align(lists.users), truth.items.align(lists.item_ids)
    known = user != UNKNOWN
    n_relevant = np.where(known, np.diff(indptr)[user] if indptr.size > 1 else 0, 0).astype(np.int32)
    relevant = np.zeros(lists.items.size, np.bool_)
    mark_members(lists.indptr, item[lists.items], user, indptr, items, relevant)
    labeled = n_relevant > 0
    if users is not None:
        found = lists.users.lookup(user_series(users))
        if not (found != UNKNOWN).any():
            raise DataError("users must name users who have lists, got none; pass the ids used in the lists.")
        labeled[found[found != UNKNOWN]] = True
    return Labels(lists, relevant, n_relevant, labeled)


def limit_to_shown(labels: Labels, shown: RankedLists) -> Labels:
    """Outcomes of shown items only: users with a list are labeled, other items count as not relevant."""
    propensities = find_propensities(labels.lists, shown)
    seen = propensities > 0
    weights = np.divide(1.0, propensities, where=seen, out=np.zeros(seen.size))
    relevant = labels.relevant & seen
    total = np.concatenate([[0], np.cumsum(relevant)])
    n_relevant = np.diff(total[labels.lists.indptr]).astype(np.int32)
    labeled: Bools = shown.users.align(labels.lists.users) != UNKNOWN
    return Labels(labels.lists, relevant, n_relevant, labeled, weights)


def label_candidates(
    scores: Scores,
    truth: Interactions,
    history: Interactions | None,
    users: Iterable[Any] | None,
    n_candidates: int,
) -> Labels:
    """Candidates and labels of all users with truth rows, and of `users`."""
    origin = scores.origin if isinstance(scores, RankedLists) else None
    warn_if_trained_on((origin, history), truth, "the cutoff expects too much of every list")
    known = truth if history is None else history
    wanted = known.users.align(truth.users)[truth.active_users]
    wanted = wanted[wanted != UNKNOWN]
    if users is not None:
        users = user_series(users)
        found = known.users.lookup(users)
        wanted = np.union1d(wanted, found[found != UNKNOWN]).astype(np.int32)
    lists = top_candidates(scores, ids=known, users=wanted, n_candidates=n_candidates)
    return label_lists(lists, truth, users)


def user_series(users: Iterable[Any]) -> Any:
    """User ids as a series; a single string is not a collection of ids."""
    if isinstance(users, str | bytes):
        raise DataError(f"users must be a collection of ids, got the text {users!r:.60}; pass a list.")
    return id_series(users)


def label_to_fit(
    scores: Scores,
    truth: Interactions,
    history: Interactions | None,
    n_candidates: int,
    users: Iterable[Any] | None = None,
    shown: RankedLists | None = None,
) -> Labels:
    """The candidates with their outcomes, by user id; DataError if nothing can be learned from them."""
    labels = label_candidates(scores, truth, history, users, n_candidates)
    if shown is not None:
        labels = limit_to_shown(labels, shown)
    ids = labels.lists.users.values
    if not ids.is_sorted():  # so that the order of users does not change the result, even in the last bit
        labels = labels.take(ids.arg_sort().to_numpy())
    if not labels.n_relevant.any():
        raise DataError(
            "truth must have rows of at least one user who has a list, got none; "
            "pass the interactions that followed the scores, with the same user ids."
        )
    return labels
