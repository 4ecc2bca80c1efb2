"""Features of candidates: their ranks, the user's history and baskets."""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Ints, Longs


@kernel
def fill_basket_sizes(
    user: Ints,  # (n,) -1: unknown
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    usual: float,  # mean size of all baskets, for users without any
    out: Doubles,  # (n, 4) filled
) -> None:
    """Mean size of each user's baskets, sizes of the last and the one before, number of baskets."""
    for k in range(user.size):
        u = user[k]
        first, end = (user_baskets[u], user_baskets[u + 1]) if u >= 0 else (0, 0)
        n = end - first
        mean = (baskets[end] - baskets[first]) / n if n > 0 else usual
        out[k, 0] = mean
        out[k, 1] = baskets[end] - baskets[end - 1] if n > 0 else mean
        out[k, 2] = baskets[end - 1] - baskets[end - 2] if n > 1 else mean
        out[k, 3] = n


@kernel
def fill_rank_features(indptr: Longs, scores: Doubles, out: Doubles) -> None:
    """out (n_candidates, ≥ 4): score, gap to the top score, log of the rank, 1 / rank."""
    for number in range(indptr.size - 1):
        for at in range(indptr[number], indptr[number + 1]):
            rank = at - indptr[number] + 1.0
            out[at, 0] = scores[at]
            out[at, 1] = scores[indptr[number]] - scores[at]
            out[at, 2] = np.log(rank)
            out[at, 3] = 1.0 / rank


@kernel
def fill_history_features(
    indptr: Longs,  # (n_lists + 1,)
    candidates: Ints,  # (n_candidates,) item indices of the history; -1: unknown item
    user: Ints,  # (n_lists,) user indices of the history; -1: unknown user
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_popularity: Doubles,  # (n_items + 1,), the last value for unknown items
    user_features: Doubles,  # (n_lists, 2) log history length, log mean basket size
    out: Doubles,  # (n_candidates, 9) the last five columns are filled
) -> None:
    """History length, basket size, popularity, share of the user's baskets with the item, and its recency."""
    n_items = log_popularity.size - 1
    owner = np.full(n_items, -1, np.int32)
    count, last = np.zeros(n_items, np.int32), np.zeros(n_items, np.int32)
    for number in range(user.size):
        u = user[number]
        first = user_baskets[u] if u >= 0 else 0
        end = user_baskets[u + 1] if u >= 0 else 0
        for basket in range(first, end):
            for row in range(baskets[basket], baskets[basket + 1]):
                i = item[row]
                if owner[i] != number:
                    owner[i], count[i], last[i] = number, 0, -1
                if last[i] != basket - first:  # count a basket once
                    count[i] += 1
                    last[i] = basket - first
        for at in range(indptr[number], indptr[number + 1]):
            i = candidates[at]
            out[at, 4], out[at, 5] = user_features[number, 0], user_features[number, 1]
            out[at, 6] = log_popularity[i]
            bought = i >= 0 and owner[i] == number
            out[at, 7] = count[i] / (end - first) if bought else 0.0
            out[at, 8] = 1.0 / (end - first - last[i]) if bought else 0.0
