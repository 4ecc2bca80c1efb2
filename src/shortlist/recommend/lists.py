"""Assembling RankedLists: from hits, from several parts, by replacing or cutting some of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.special import expit

from shortlist.core.calls import warn
from shortlist.core.ragged import starts
from shortlist.data.id_map import IdMap
from shortlist.data.ranked_lists import RankedLists
from shortlist.data.reasons import REASON_CODE, REASON_TEXT, REASONS, Codes
from shortlist.recommend.retrieval import Hits
from shortlist.types import Bools, Longs

MANY_LISTS = 10  # fewer lists may all be empty by chance
NO_DOUBT = {"unknown_user", "no_candidates"}  # reasons that say all there is to say

if TYPE_CHECKING:
    from shortlist.recommend.scores import Scores


def warn_if_all_empty(model: str, codes: Codes | None, n_items: int) -> None:
    """Issue a DataWarning if the lists of many users are all empty although there were candidates."""
    if n_items or codes is None or codes.size < MANY_LISTS:
        return
    reasons = {REASONS[code] for code in np.unique(codes)} - NO_DOUBT
    if not reasons:
        return
    advice = "lower the floor or the threshold of the cutoff, or pass N=10"
    if reasons == {"value"}:
        advice = "lower the cost or raise the gain, or pass N=10"
    if "no_candidate_above_boundary" in reasons:
        advice = f"train {model} for more epochs, let sl.fit choose a cutoff, or pass N=10"
    text = "; ".join(REASON_TEXT[reason] for reason in sorted(reasons))
    warn(f"all {codes.size:,} lists of {model} are empty: {text}; {advice}.")


def same_reason(n: int, reason: str) -> Codes:
    """(n,) the same reason for all lists."""
    return np.full(n, REASON_CODE[reason], np.uint8)


def build_lists(
    users: pl.Series, item_ids: IdMap, hits: Hits, reason: Codes, scores: "Scores | None" = None
) -> RankedLists:
    """The lists of these users, with probabilities, boundaries and expected sizes from `scores`."""
    probabilities, boundary, expected_sizes = None, None, None
    if scores is not None:
        boundary, expected_sizes = scores.boundaries, scores.expected_sizes
        if scores.log_odds_shift is not None:
            shift = np.repeat(scores.log_odds_shift.astype(np.float64), np.diff(hits.indptr))
            probabilities = expit(hits.scores + shift)
    return RankedLists(
        users=IdMap(users),
        item_ids=item_ids,
        indptr=hits.indptr,
        items=hits.items,
        scores=hits.scores,
        probabilities=probabilities,
        boundary=boundary,
        reason=reason,
        expected_sizes=expected_sizes,
    )


def empty_lists(users: pl.Series, item_ids: IdMap, reason: str) -> RankedLists:
    """An empty list for each user."""
    n = len(users)
    nothing = Hits(
        np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(n, np.bool_)
    )
    return build_lists(users, item_ids, nothing, same_reason(n, reason))


def concat_lists(parts: Sequence[RankedLists]) -> RankedLists:
    """All lists, one part after the other; values that a part lacks are NaN, propensities 1."""
    if len(parts) == 1:
        return parts[0]

    def concat(name: str, n_missing: str, kind: type, missing: float = np.nan) -> Any:
        """One optional column over all parts."""
        if all(getattr(part, name) is None for part in parts):
            return None
        columns = [
            np.full(len(getattr(part, n_missing)), missing, kind)
            if (own := getattr(part, name)) is None
            else own
            for part in parts
        ]
        return np.concatenate(columns)

    return RankedLists(
        users=IdMap(pl.concat([part.users.values for part in parts])),
        item_ids=parts[0].item_ids,
        item_names=parts[0].item_names,
        indptr=starts(np.concatenate([np.diff(part.indptr) for part in parts])),
        items=np.concatenate([part.items for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        probabilities=concat("probabilities", "items", np.float64),
        boundary=concat("boundary", "users", np.float32),
        reason=np.concatenate([part.reason for part in parts if part.reason is not None]),
        expected_sizes=concat("expected_sizes", "users", np.float64),
        propensities=concat("propensities", "items", np.float64, 1.0),
        source=parts[0].source,
        origin=parts[0].origin,
    )


def replace_lists(lists: RankedLists, numbers: Longs, others: RankedLists) -> RankedLists:
    """`others` instead of the lists at `numbers`; boundaries and expected sizes stay."""
    if numbers.size == 0:
        return lists
    order = np.arange(len(lists))
    order[numbers] = len(lists) + np.arange(numbers.size)
    joined = concat_lists([lists, others]).take(order)
    return replace(joined, boundary=lists.boundary, expected_sizes=lists.expected_sizes)


def truncate_lists(lists: RankedLists, limit: int | None, truncated: Bools | None = None) -> RankedLists:
    """No list longer than `limit`; lists cut now or before (`truncated`) get the reason max_items."""
    if limit is None:
        return lists
    long = np.diff(lists.indptr) > limit
    ended = long if truncated is None else long | truncated
    if not ended.any():
        return lists
    assert lists.reason is not None
    reason = np.where(ended, np.uint8(REASON_CODE["max_items"]), lists.reason)
    return lists.head(limit, reason) if long.any() else replace(lists, reason=reason)
