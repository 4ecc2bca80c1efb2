"""Features of candidates: their rank in the list, and what the history says about item and user."""

import numpy as np

from shortlist.data.id_map import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.kernels.features import fill_history_features, fill_rank_features
from shortlist.types import Doubles, Ints, Longs

RANK_FEATURES = ("score", "gap_to_top", "log_rank", "reciprocal_rank")
HISTORY_FEATURES = ("log_history", "log_basket", "log_popularity", "share_of_baskets", "recency")


def bounded_scores(lists: RankedLists, low: float, high: float) -> Doubles:
    """(n_candidates,) scores as doubles, limited to [low, high] extended by its own length on both sides."""
    span = max(high - low, 1.0)
    return np.clip(lists.scores.astype(np.float64), low - span, high + span)


def score_range(lists: RankedLists) -> tuple[float, float]:
    """Smallest and largest finite score."""
    finite = lists.scores[np.isfinite(lists.scores)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def candidate_features(lists: RankedLists, scores: Doubles, history: Interactions | None) -> Doubles:
    """(n_candidates, n_features): RANK_FEATURES, then HISTORY_FEATURES if there is a history."""
    columns = np.empty((scores.size, len(RANK_FEATURES) + (0 if history is None else len(HISTORY_FEATURES))))
    fill_rank_features(lists.indptr, scores, columns)
    if history is not None:
        user, item = history.users.align(lists.users), history.items.align(lists.item_ids)
        counts = np.append(history.item_counts, 0)
        n_interactions = _per_user(np.diff(history.indptr), user)
        fill_history_features(
            lists.indptr,
            item[lists.items],
            user,
            history.user_baskets,
            history.baskets,
            history.item,
            np.log((counts + 1.0) / (counts.sum() + history.n_items + 1.0)),
            np.log(np.column_stack([1 + n_interactions, mean_basket(history, user)])),
            columns,
        )
    return columns


def mean_basket(history: Interactions, user: Ints) -> Doubles:
    """(n,) mean basket size of each user; the mean over all baskets for users without history."""
    n_baskets = _per_user(np.diff(history.user_baskets), user)
    rows = _per_user(np.diff(history.indptr), user)
    return np.where(n_baskets > 0, rows / np.maximum(n_baskets, 1), history.mean_basket_size)


def recent_basket(history: Interactions, user: Ints, back: int) -> Doubles:
    """(n,) size of the last basket (back=0), the one before (back=1), …; the user's mean if there is none."""
    sizes = np.append(np.diff(history.baskets), 0)
    ends = history.user_baskets[np.maximum(user, 0) + 1] if history.n_users else np.zeros(user.size, np.int64)
    enough = _per_user(np.diff(history.user_baskets), user) > back
    return np.where(enough, sizes[np.where(enough, ends - 1 - back, -1)], mean_basket(history, user))


def _per_user(counts: Longs, user: Ints) -> Doubles:
    """The count of each user, 0 for unknown users."""
    if not counts.size:
        return np.zeros(user.size)
    return np.where(user == UNKNOWN, 0, counts[user]).astype(np.float64)
