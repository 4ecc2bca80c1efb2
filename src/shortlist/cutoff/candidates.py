"""The candidates of any ranker: lists, tables, arrays, sparse matrices and functions as ranked lists."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from shortlist.core.options import Count, check_value, explain_keywords
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists, label_lists, user_series, warn_if_trained_on
from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates
from shortlist.errors import DataError
from shortlist.kernels.retrieval import rank_rows, top_k
from shortlist.types import Floats, Ints, Longs

# RankedLists, a table of user, item and score, a users × items array, a SciPy matrix, or a function from user
# indices to rows of scores
AnyScores: TypeAlias = Any
Ids: TypeAlias = Interactions | tuple[IdMap | None, IdMap | None] | None
BLOCK = 1024  # users per call of a scoring function


@explain_keywords
def top_candidates(
    scores: AnyScores, *, ids: Ids = None, users: Ints | None = None, n_candidates: int = 100
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
    if type(n_candidates) is not int or n_candidates < 1:  # a cutoff has checked its own
        check_value(Count, n_candidates=n_candidates)
    if not (ids is None or isinstance(ids, (Interactions, tuple))):
        raise DataError(
            f"history must be Interactions, got a {type(ids).__name__}; use Interactions.from_frame."
        )
    if is_table(scores):
        scores = read_candidates(scores)
    if isinstance(scores, RankedLists):
        return rank_lists(scores, n_candidates)
    user_ids, item_ids = (ids.users, ids.items) if isinstance(ids, Interactions) else (ids or (None, None))
    if isinstance(scores, type | str):
        raise DataError(
            f"scores must be RankedLists, an array, a SciPy matrix or a function, got {scores!r:.60}; "
            "pass model.recommend(N=100), for example."
        )
    if callable(scores):
        return _from_function(scores, user_ids, item_ids, users, n_candidates)
    from scipy.sparse import csr_array, issparse  # takes a tenth of a second to import

    if issparse(scores):
        return _from_sparse(csr_array(cast(Any, scores)), user_ids, item_ids, n_candidates)
    return _from_dense(_to_matrix(scores), user_ids, item_ids, n_candidates)


def is_table(scores: AnyScores) -> bool:
    """Whether the candidates come as a table, a run or a file, with ids of their own."""
    return isinstance(scores, Mapping | Path) or (
        not isinstance(scores, RankedLists)
        and any(hasattr(type(scores), name) for name in ("columns", "column_names", "to_df"))
    )


def rank_lists(lists: RankedLists, n_candidates: int) -> RankedLists:
    """RankedLists sorted by score, without scores of NaN or -inf, at most n_candidates each."""
    valid = lists.scores > -np.inf
    if not valid.all():
        lists = lists.where(valid)
    order = rank_rows(lists.indptr, lists.items, lists.scores)
    if (order[1:] < order[:-1]).any():
        lists = lists.reorder(order)
    return lists.head(n_candidates) if (lists.lengths > n_candidates).any() else lists


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
    blocks = []
    for start in range(0, users.size, BLOCK):
        block = users[start : start + BLOCK]
        rows = _to_matrix(score(block))
        if rows.shape != (block.size, len(item_ids)):
            raise DataError(
                f"a scoring function must return one row per user and one column per item, "
                f"{(block.size, len(item_ids))}, got {rows.shape}; return complete rows."
            )
        blocks.append(_from_dense(rows, None, item_ids, n_candidates))
    if not blocks:
        blocks = [_from_dense(np.empty((0, len(item_ids)), np.float32), None, item_ids, n_candidates)]
    return replace(RankedLists.concat(blocks), users=IdMap(user_ids.to_ids(users)))


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


def label_candidates(
    scores: AnyScores,
    truth: Interactions,
    history: Interactions | None,
    users: Iterable[Any] | None,
    n_candidates: int,
) -> LabeledLists:
    """Candidates and labels of all users with truth rows, and of `users`."""
    origin = scores.origin if isinstance(scores, RankedLists) else None
    warn_if_trained_on((origin, history), truth, "the cutoff expects too much of every list")
    ids = truth if history is None else history
    numbers = ids.users.align(truth.users)[truth.active_users]
    if users is not None:
        users = user_series(users)
        numbers = np.union1d(numbers, ids.users.lookup(users)).astype(np.int32)
    numbers = numbers[numbers != UNKNOWN]
    lists = top_candidates(scores, ids=ids, users=numbers, n_candidates=n_candidates)
    return label_lists(lists, truth, users)


def label_to_fit(
    scores: AnyScores,
    truth: Interactions,
    history: Interactions | None,
    n_candidates: int,
    users: Iterable[Any] | None = None,
) -> LabeledLists:
    """The candidates with their outcomes, by user id; DataError if nothing can be learned from them."""
    labels = label_candidates(scores, truth, history, users, n_candidates)
    ids = labels.lists.users.values
    if not ids.is_sorted():  # so that the order of users does not change the result, even in the last bit
        labels = labels.take(ids.arg_sort().to_numpy())
    if not labels.n_relevant.any():
        raise DataError(
            "truth must have rows of at least one user who has a list, got none; "
            "pass the interactions that followed the scores, with the same user ids."
        )
    return labels
