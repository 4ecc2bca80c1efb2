"""Columns that describe a candidate: its place in the list, and what the user's own past says about it."""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Ints, Longs


@kernel
def place_fill(indptr: Longs, scores: Doubles, out: Doubles) -> None:
    """out (n_candidates, ≥ 4): score, gap to the top score, log of the rank, one over the rank."""
    for number in range(indptr.size - 1):
        for at in range(indptr[number], indptr[number + 1]):
            rank = at - indptr[number] + 1.0
            out[at, 0] = scores[at]
            out[at, 1] = scores[indptr[number]] - scores[at]
            out[at, 2] = np.log(rank)
            out[at, 3] = 1.0 / rank


@kernel
def past_fill(
    indptr: Longs,  # (n_lists + 1,)
    candidates: Ints,  # (n_candidates,) items in the numbering of the history; -1: unknown there
    user: Ints,  # (n_lists,) in the numbering of the history; -1: unknown there
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_sold: Doubles,  # (n_items + 1,) log popularity, the last for items unknown to the history
    about: Doubles,  # (n_lists, 2) log history length, log mean basket size
    out: Doubles,  # (n_candidates, 9) the last five columns are filled
) -> None:
    """History length, basket size, popularity, share of the user's baskets with the item, its freshness."""
    n_items = log_sold.size - 1
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
                if last[i] != basket - first:  # a basket holds the item or does not, however often
                    count[i] += 1
                    last[i] = basket - first
        for at in range(indptr[number], indptr[number + 1]):
            i = candidates[at]
            out[at, 4], out[at, 5] = about[number, 0], about[number, 1]
            out[at, 6] = log_sold[i]
            had = i >= 0 and owner[i] == number
            out[at, 7] = count[i] / (end - first) if had else 0.0
            out[at, 8] = 1.0 / (end - first - last[i]) if had else 0.0


@kernel
def hinges_fill(columns: Doubles, starts: Longs, knots: Doubles, out: Doubles) -> None:
    """out (n_rows, n_columns + n_knots): each column, then how far it lies above each of its knots."""
    for row in range(columns.shape[0]):
        at = 0
        for j in range(columns.shape[1]):
            out[row, at] = columns[row, j]
            at += 1
            for k in range(starts[j], starts[j + 1]):
                out[row, at] = max(columns[row, j] - knots[k], 0.0)
                at += 1


@kernel
def hinges_sum(columns: Doubles, starts: Longs, knots: Doubles, beta: Doubles, out: Doubles) -> None:
    """out (n_rows,) += the columns of `hinges_fill` times beta, none of them written down."""
    for row in range(columns.shape[0]):
        at, total = 0, 0.0
        for j in range(columns.shape[1]):
            x = columns[row, j]
            total += beta[at] * x
            at += 1
            for k in range(starts[j], starts[j + 1]):
                if x <= knots[k]:
                    at += starts[j + 1] - k  # knots rise: the others are not passed either
                    break
                total += beta[at] * (x - knots[k])
                at += 1
        out[row] += total
