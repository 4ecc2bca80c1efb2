"""What to show where a list would be empty."""

from itertools import islice
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.ranked_lists import RankedLists
from shortlist.recommend.item_filter import starts
from shortlist.recommend.lists import as_lists, codes
from shortlist.recommend.request import Wishes
from shortlist.recommend.retrieve import Hits, Sets, from_factors, from_pairs
from shortlist.recommend.scorer import Scorer
from shortlist.types import Ints


def fallback_lists(
    scorer: Scorer, users: pl.Series, wishes: Wishes, shared: Ints | None, own: Sets | None, excluded: Sets
) -> RankedLists:
    """Lists by the fallback, within the candidates and without excluded items; they may be empty still."""
    if callable(wishes.fallback):
        hits = _asked(scorer, users, wishes, shared, own, excluded)
    else:
        hits = _popular(scorer, len(users), wishes.fallback_limit, shared, own, excluded)
    return as_lists(users, scorer.items_, hits, codes(len(users), "fallback"), None, None)


def _popular(
    scorer: Scorer, n: int, limit: int, shared: Ints | None, own: Sets | None, excluded: Sets
) -> Hits:
    """What most people took; the score is how often. A model of one factor, the same for everybody."""
    counts = np.bincount(scorer.history.item, minlength=len(scorer.items_)).astype(np.float32)[:, None]
    everybody, floors = np.ones((n, 1), np.float32), np.zeros(n, np.float32)
    if own is not None:
        return from_pairs(everybody, counts, None, own, floors, excluded, limit, 1)
    taken = np.flatnonzero(counts[:, 0]).astype(np.int32)
    items = taken if shared is None else np.intersect1d(taken, shared, assume_unique=True)
    # nobody is excluded from more than the longest set holds, so the head of the ranking serves all
    deep = limit + int(np.diff(excluded.indptr).max(initial=0))
    best = items[np.argsort(-counts[items, 0], kind="stable")[:deep]]
    return from_factors(everybody, counts, None, np.sort(best), floors, excluded, limit, 1)


def _asked(
    scorer: Scorer, users: pl.Series, wishes: Wishes, shared: Ints | None, own: Sets | None, excluded: Sets
) -> Hits:
    """What the callable names, in its order; scores 0, -1, -2 … say no more than that."""
    assert callable(wishes.fallback)
    rows = []
    for number, user_id in enumerate(users.to_list()):
        allowed = shared if own is None else own.row(number)
        away = set(excluded.row(number).tolist())
        named = dict.fromkeys(_positions(scorer, wishes.fallback(user_id)))
        fine = (item for item in named if item not in away and (allowed is None or item in allowed))
        rows.append(np.fromiter(islice(fine, wishes.fallback_limit), np.int32))
    indptr = starts(np.array([row.size for row in rows], np.int64))
    items = np.concatenate([np.empty(0, np.int32), *rows])
    scores = (np.repeat(indptr[:-1], np.diff(indptr)) - np.arange(items.size)).astype(np.float32)
    return Hits(indptr, items, scores, np.zeros(len(users), np.bool_))


def _positions(scorer: Scorer, item_ids: Any) -> list[int]:
    """Dense items in the order given; an unknown id raises."""
    return [scorer.items_.index(item_id) for item_id in item_ids]
