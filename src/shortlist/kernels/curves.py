"""Utility curves: the shape of a list's scores, and ridge regression of the utility of every length on it.

Sums are added in a fixed order, so that the same lists give the same bits on any number of threads.
"""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Ints, Longs


@kernel
def fill_shapes(indptr: Longs, scores: Doubles, ranks: Longs, out: Doubles) -> None:
    """out (n_lists, ≥ 2 · n_ranks + 1): scores at these ranks, raw and standardized in the list, log length.

    A list that ends earlier has its last score at the later ranks. An empty list has zeros.
    """
    n_ranks = ranks.size
    for number in range(indptr.size - 1):
        row = scores[indptr[number] : indptr[number + 1]]
        n = row.size
        mean, spread = 0.0, 0.0
        for k in range(n):
            mean += row[k]
        mean /= max(n, 1)
        for k in range(n):
            spread += (row[k] - mean) ** 2
        spread = np.sqrt(spread / max(n, 1))
        for j in range(n_ranks):
            value = row[min(ranks[j], n) - 1] if n else 0.0
            out[number, j] = value
            out[number, n_ranks + j] = (value - mean) / spread if spread > 1e-9 * abs(mean) and n else 0.0
        out[number, 2 * n_ranks] = np.log(max(n, 1))


@kernel
def add_curve_products(
    rows: Doubles,  # (n_lists, n_columns)
    indptr: Longs,  # (n_lists + 1,)
    utilities: Doubles,  # (n_candidates,) utility of the list that ends with each candidate
    fold: Ints,  # (n_lists,)
    out: Doubles,  # (n_folds, n_lengths, n_columns)
) -> None:
    """out[f] += utility of every length times the columns, over lists of fold f; short lists count whole."""
    for number in range(indptr.size - 1):
        start, length = indptr[number], indptr[number + 1] - indptr[number]
        if length == 0:
            continue
        total, row = out[fold[number]], rows[number]
        for k in range(total.shape[0]):
            utility = utilities[start + min(k, length - 1)]
            line = total[k]
            for column in range(row.size):
                line[column] += utility * row[column]


@kernel
def find_best_lengths(rows: Doubles, indptr: Longs, weights: Doubles, lengths: Ints) -> None:
    """lengths (n_lists,): where rows · weightsᵀ is largest, the shortest of equals; 0 without candidates.

    weights: (n_lengths, n_columns).
    """
    for number in range(indptr.size - 1):
        longest = min(indptr[number + 1] - indptr[number], weights.shape[0])
        row, best, lengths[number] = rows[number], -np.inf, 0
        for k in range(longest):
            value, line = 0.0, weights[k]
            for column in range(row.size):
                value += row[column] * line[column]
            if value > best:
                best, lengths[number] = value, k + 1
