"""Fixed-N rivals that are given what the dynamic lists took: the users, the silence, the item_stats space."""

import numpy as np

from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.evaluation.ground_truth import GroundTruth, Lists, as_lists
from shortlist.types import Doubles, Longs


def matched(lists: Lists, heads: Lists, truth: Interactions, N: int) -> dict[str, RankedLists]:
    """The top N of `heads` on equal terms with `lists`; hand the result to `compare`.

    Over the users with truth: "top N" for everybody; "same users" only for those `lists` covers; "same
    abstention" for as many users, silent where the first item is least sure; "same items" shows as many
    items in all: equal lengths, one more for the surest users until the total is met. How sure a list is says
    the probability of its first item, or its score where there is none.
    """
    if N < 1:
        raise ConfigError(f"N must be at least 1, got {N}; pass the length chosen on validation.")
    bench = GroundTruth(truth)
    given, ranked = as_lists(lists), as_lists(heads)
    ids = IdMap(bench.user_ids)
    lengths = _by_row(given, ids)
    available = _by_row(ranked, ids)
    order = _surest_first(ranked, ids)
    top = np.minimum(N, available)
    served = np.zeros(lengths.size, np.bool_)
    served[order[: int((lengths > 0).sum())]] = True
    rivals = {
        f"top {N}": top,
        f"top {N}, same users": np.where(lengths > 0, top, 0),
        f"top {N}, same abstention": np.where(served, top, 0),
        "fixed length, same items": _share_out(int(lengths.sum()), available, order),
    }
    return {name: _cut(ranked, ids, kept) for name, kept in rivals.items()}


def _by_row(lists: RankedLists, ids: IdMap) -> Longs:
    """(n_rows,) how many items each user with truth has in these lists."""
    number = lists.users.lookup(ids.values)
    return np.where(number < 0, 0, lists.lengths[number] if len(lists) else 0).astype(np.int64)


def _surest_first(lists: RankedLists, ids: IdMap) -> Longs:
    """(n_rows,) users with truth by falling confidence; empty lists last, equals in the order of ids."""
    number = lists.users.lookup(ids.values)
    top: Doubles = np.full(len(ids), -np.inf)
    filled = np.flatnonzero(_by_row(lists, ids) > 0)
    sure = lists.scores if lists.probabilities is None else lists.probabilities
    top[filled] = sure[lists.indptr[number[filled]]]
    return np.argsort(-np.nan_to_num(top, nan=-np.inf), kind="stable")


def _share_out(total: int, available: Longs, order: Longs) -> Longs:
    """(n_rows,) lengths that differ by at most one and sum to `total`, or all that is available."""
    lengths = np.zeros(available.size, np.int64)
    left = min(total, int(available.sum()))
    level = 0
    while left:
        room = order[available[order] > level]
        taking = room[:left]
        lengths[taking] += 1
        left -= taking.size
        level += 1
    return lengths


def _cut(lists: RankedLists, ids: IdMap, kept: Longs) -> RankedLists:
    """Each user's list cut to the length kept for them; users without truth get nothing."""
    row = ids.lookup(lists.users.values)
    known = np.flatnonzero(row >= 0)
    return lists.take(known).head(kept[row[known]])
