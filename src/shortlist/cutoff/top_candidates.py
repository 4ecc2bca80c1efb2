"""Heads: the top n_candidates candidates of every user, from whatever a ranker hands over."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.topk import rank_rows, top_k
from shortlist.types import Floats, Ints, Longs

# RankedLists, a dense users × items array, a SciPy sparse matrix, or a callable: dense users → dense rows
Scores: TypeAlias = Any
Tables: TypeAlias = Interactions | tuple[IdMap | None, IdMap | None] | None
BLOCK = 1024  # users asked of a callable at a time


def heads(
    scores: Scores, *, ids: Tables = None, users: Ints | None = None, n_candidates: int = 100
) -> RankedLists:
    """Every user's n_candidates best items, ties to the smaller index; NaN and -inf are no candidates.

    `ids` names the rows and columns of bare scores; without it they are row and column numbers.
    `users` are the dense users a callable is asked for; all of the table without it.
    """
    if n_candidates < 1:
        raise ConfigError(f"n_candidates must be at least 1, got {n_candidates}; 100 is plenty.")
    if isinstance(scores, RankedLists):
        return _ranked(scores, n_candidates)
    user_ids, item_ids = (ids.users, ids.items) if isinstance(ids, Interactions) else (ids or (None, None))
    if callable(scores):
        return _called(scores, user_ids, item_ids, users, n_candidates)
    if hasattr(scores, "tocsr"):
        return _sparse(scores.tocsr(), user_ids, item_ids, n_candidates)
    return _dense(_matrix(scores), user_ids, item_ids, n_candidates)


def _ranked(lists: RankedLists, n_candidates: int) -> RankedLists:
    """RankedLists brought into the canonical order, without impossible scores, cut to n_candidates."""
    fair = lists.scores > -np.inf
    if not fair.all():
        kept = np.concatenate([[0], np.cumsum(fair)])
        lists = replace(
            lists,
            indptr=kept[lists.indptr],
            items=lists.items[fair],
            scores=lists.scores[fair],
            probabilities=None if lists.probabilities is None else lists.probabilities[fair],
        )
    order = rank_rows(lists.indptr, lists.items, lists.scores)
    if (order[1:] < order[:-1]).any():
        lists = replace(
            lists,
            items=lists.items[order],
            scores=lists.scores[order],
            probabilities=None if lists.probabilities is None else lists.probabilities[order],
        )
    return lists.head(n_candidates) if (np.diff(lists.indptr) > n_candidates).any() else lists


def _dense(matrix: Floats, user_ids: IdMap | None, item_ids: IdMap | None, n_candidates: int) -> RankedLists:
    n_users, n_items = matrix.shape
    indptr = np.arange(n_users + 1, dtype=np.int64) * n_items
    every_item = np.arange(n_items, dtype=np.int32)
    found = top_k(indptr, every_item, np.ascontiguousarray(matrix).ravel(), min(n_candidates, n_items))
    return _lists(found, *_tables(user_ids, item_ids, n_users, n_items))


def _sparse(matrix: Any, user_ids: IdMap | None, item_ids: IdMap | None, n_candidates: int) -> RankedLists:
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    indptr, candidates = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    found = top_k(indptr, candidates, np.asarray(matrix.data, np.float32), n_candidates)
    return _lists(found, *_tables(user_ids, item_ids, *matrix.shape))


def _called(
    score: Callable[[Ints], Any],
    user_ids: IdMap | None,
    item_ids: IdMap | None,
    users: Ints | None,
    n_candidates: int,
) -> RankedLists:
    """Ask block by block, so that memory does not grow with the number of users."""
    if user_ids is None or item_ids is None:
        raise DataError(
            "a callable needs to know its users and items, got no id tables; pass history= (Interactions)."
        )
    asked = np.arange(len(user_ids), dtype=np.int32) if users is None else users
    parts = []
    for start in range(0, asked.size, BLOCK):
        block = asked[start : start + BLOCK]
        rows = _matrix(score(block))
        if rows.shape != (block.size, len(item_ids)):
            raise DataError(
                f"a callable returns a row per user and a column per item, {(block.size, len(item_ids))}, "
                f"got {rows.shape}; return the full rows."
            )
        parts.append(_dense(rows, None, item_ids, n_candidates))
    chosen = IdMap(user_ids.to_ids(asked))
    if not parts:
        nothing = np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
        return _lists(nothing, chosen, item_ids)
    sizes = np.concatenate([np.diff(part.indptr) for part in parts])
    found = (
        _starts(sizes),
        np.concatenate([p.items for p in parts]),
        np.concatenate([p.scores for p in parts]),
    )
    return _lists(found, chosen, item_ids)


def _matrix(scores: Any) -> Floats:
    matrix = np.asarray(scores, np.float32)
    if matrix.ndim != 2:
        raise DataError(f"scores must be a users × items matrix, got {matrix.ndim} dimensions; reshape them.")
    return matrix


def _tables(
    user_ids: IdMap | None, item_ids: IdMap | None, n_users: int, n_items: int
) -> tuple[IdMap, IdMap]:
    """Names for rows and columns: the tables, which must fit, or the numbers."""
    users = IdMap.of(np.arange(n_users)) if user_ids is None else user_ids
    items = IdMap.of(np.arange(n_items)) if item_ids is None else item_ids
    if (len(users), len(items)) != (n_users, n_items):
        raise DataError(
            f"scores must have a row per user and a column per item of the id tables, "
            f"{(len(users), len(items))}, got {(n_users, n_items)}; pass RankedLists to score fewer."
        )
    return users, items


def _lists(found: tuple[Longs, Ints, Floats], users: IdMap, item_ids: IdMap) -> RankedLists:
    indptr, items, scores = found
    return RankedLists(users=users, item_ids=item_ids, indptr=indptr, items=items, scores=scores)


def _starts(sizes: Longs) -> Longs:
    """Where groups of these sizes start."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
