"""What a user's own past says about each candidate."""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Ints, Longs


@kernel
def past_count(
    indptr: Longs,  # (n_lists + 1,)
    candidates: Ints,  # (n_candidates,) items in the numbering of the history; -1: unknown there
    user: Ints,  # (n_lists,) in the numbering of the history; -1: unknown there
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    n_items: int,
    share: Doubles,  # (n_candidates,) zeros; becomes the share of the user's baskets that hold the item
    fresh: Doubles,  # (n_candidates,) zeros; becomes 1 / (1 + baskets since the last one that holds it)
) -> None:
    """Count baskets, not rows: a past basket either holds the item or does not."""
    owner = np.full(n_items, -1, np.int32)
    count, last = np.zeros(n_items, np.int32), np.zeros(n_items, np.int32)
    for number in range(user.size):
        u = user[number]
        if u < 0:
            continue
        first, end = user_baskets[u], user_baskets[u + 1]
        for basket in range(first, end):
            for row in range(baskets[basket], baskets[basket + 1]):
                i = item[row]
                if owner[i] != number:
                    owner[i], count[i], last[i] = number, 0, -1
                if last[i] != basket - first:
                    count[i] += 1
                    last[i] = basket - first
        for at in range(indptr[number], indptr[number + 1]):
            i = candidates[at]
            if i >= 0 and owner[i] == number:
                share[at] = count[i] / (end - first)
                fresh[at] = 1.0 / (end - first - last[i])
