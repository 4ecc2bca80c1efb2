"""Light features: how a candidate stands in its list, and what the history says about it and its user."""

import numpy as np

from shortlist.data.id_map import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.kernels.features import past_fill, place_fill
from shortlist.types import Doubles, Ints

PLACE = ("score", "gap_to_top", "log_rank", "one_over_rank")
PAST = ("log_history", "log_basket", "log_popularity", "share_of_baskets", "freshness")


def bounded(lists: RankedLists, low: float, high: float) -> Doubles:
    """(n_candidates,) scores as doubles, no further outside [low, high] than that interval is long."""
    span = max(high - low, 1.0)
    return np.clip(lists.scores.astype(np.float64), low - span, high + span)


def score_range(lists: RankedLists) -> tuple[float, float]:
    """Smallest and largest finite score."""
    finite = lists.scores[np.isfinite(lists.scores)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def candidate_features(lists: RankedLists, scores: Doubles, history: Interactions | None) -> Doubles:
    """(n_candidates, n_features) under the names PLACE, then PAST where there is a history."""
    columns = np.empty((scores.size, len(PLACE) + (0 if history is None else len(PAST))))
    place_fill(lists.indptr, scores, columns)
    if history is not None:
        user, item = match(lists, history)
        sold = np.append(np.bincount(history.item, minlength=history.n_items), 0)
        past_fill(
            lists.indptr,
            item[lists.items],
            user,
            history.user_baskets,
            history.baskets,
            history.item,
            np.log((sold + 1.0) / (history.n_rows + history.n_items + 1.0)),
            np.log(
                np.column_stack([1 + _of_user(np.diff(history.indptr), user), mean_basket(history, user)])
            ),
            columns,
        )
    return columns


def match(lists: RankedLists, history: Interactions) -> tuple[Ints, Ints]:
    """((n_lists,) users, (n_item_ids,) items) in the history's numbering; -1 where it does not know them."""
    user = np.arange(len(lists), dtype=np.int32)
    if lists.users != history.users:
        user = history.users.lookup(lists.users.values)
    item = np.arange(len(lists.item_ids), dtype=np.int32)
    if lists.item_ids != history.items:
        item = history.items.lookup(lists.item_ids.values)
    return user, item


def mean_basket(history: Interactions, user: Ints) -> Doubles:
    """(n,) mean items per past basket; everybody's mean for users without a past."""
    n_baskets = _of_user(np.diff(history.user_baskets), user)
    rows = _of_user(np.diff(history.indptr), user)
    overall = history.n_rows / history.n_baskets if history.n_baskets else 1.0
    return np.where(n_baskets > 0, rows / np.maximum(n_baskets, 1), overall)


def recent_basket(history: Interactions, user: Ints, back: int) -> Doubles:
    """(n,) size of the last basket but `back`; the user's mean where there are not so many."""
    sizes = np.append(np.diff(history.baskets), 0)
    ends = history.user_baskets[np.maximum(user, 0) + 1] if history.n_users else np.zeros(user.size, np.int64)
    enough = _of_user(np.diff(history.user_baskets), user) > back
    return np.where(enough, sizes[np.where(enough, ends - 1 - back, -1)], mean_basket(history, user))


def _of_user(counts: np.ndarray[tuple[int], np.dtype[np.int64]], user: Ints) -> Doubles:
    """The count of each user, 0 for a stranger."""
    if not counts.size:
        return np.zeros(user.size)
    return np.where(user == UNKNOWN, 0, counts[user]).astype(np.float64)
