"""Putting lists together: from hits, one after the other, and in place of others."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from shortlist.data.id_map import IdMap
from shortlist.data.ranked_lists import REASON_CODE, Codes, RankedLists
from shortlist.recommend.item_filter import starts
from shortlist.recommend.retrieve import Hits
from shortlist.types import Bools, Doubles, Floats, Longs


def codes(n: int, reason: str) -> Codes:
    """(n,) the same reason for all."""
    return np.full(n, REASON_CODE[reason], np.uint8)


def as_lists(
    users: pl.Series,
    item_ids: IdMap,
    hits: Hits,
    reason: Codes,
    boundary: Floats | None,
    shift: Floats | None,
) -> RankedLists:
    """Lists of these users; `shift` (n_users,) turns a score into log-odds."""
    probabilities = None
    if shift is not None:
        log_odds = hits.scores + np.repeat(shift.astype(np.float64), np.diff(hits.indptr))
        probabilities = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))
    return RankedLists(
        IdMap(users), item_ids, hits.indptr, hits.items, hits.scores, probabilities, boundary, reason
    )


def empty_lists(users: pl.Series, item_ids: IdMap, reason: str) -> RankedLists:
    """Nothing for anybody."""
    n = len(users)
    nothing = Hits(
        starts(np.zeros(n, np.int64)), np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(n, np.bool_)
    )
    return as_lists(users, item_ids, nothing, codes(n, reason), None, None)


def stacked(parts: Sequence[RankedLists]) -> RankedLists:
    """One after the other; a part without probabilities or boundaries has NaN there if another has them."""
    if len(parts) == 1:
        return parts[0]
    with_odds = any(part.probabilities is not None for part in parts)
    sizes = [part.expected_sizes for part in parts if part.expected_sizes is not None]
    with_boundary = any(part.boundary is not None for part in parts)
    return RankedLists(
        users=IdMap(pl.concat([part.users.values for part in parts])),
        item_ids=parts[0].item_ids,
        indptr=starts(np.concatenate([np.diff(part.indptr) for part in parts])),
        items=np.concatenate([part.items for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        probabilities=np.concatenate([_probabilities(part) for part in parts]) if with_odds else None,
        boundary=np.concatenate([_boundary(part) for part in parts]) if with_boundary else None,
        reason=np.concatenate([part.reason for part in parts if part.reason is not None]),
        expected_sizes=np.concatenate(sizes) if len(sizes) == len(parts) else None,
    )


def overlaid(lists: RankedLists, numbers: Longs, others: RankedLists) -> RankedLists:
    """`others` in place of the lists at `numbers`; boundaries stay."""
    if numbers.size == 0:
        return lists
    order = np.arange(len(lists))
    order[numbers] = len(lists) + np.arange(numbers.size)
    return replace(stacked([lists, others]).take(order), boundary=lists.boundary)


def cut(lists: RankedLists, limit: int | None, fuller: Bools | None = None) -> RankedLists:
    """No list longer than `limit`; those cut, now or already (`fuller`), say so."""
    if limit is None:
        return lists
    long = lists.lengths > limit
    told = long if fuller is None else long | fuller
    assert lists.reason is not None
    reason = np.where(told, codes(len(lists), "max_items"), lists.reason)
    return lists.head(limit, reason)


def _probabilities(part: RankedLists) -> Doubles:
    return np.full(part.items.size, np.nan) if part.probabilities is None else part.probabilities


def _boundary(part: RankedLists) -> Floats:
    return np.full(len(part), np.nan, np.float32) if part.boundary is None else part.boundary
