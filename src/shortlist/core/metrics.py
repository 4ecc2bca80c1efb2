"""Discounted gain, F1 and calibration error: one implementation for evaluation, cutoffs and training.

Lists are ragged: list k holds the positions indptr[k] … indptr[k + 1] - 1, best item first.
"""

import numpy as np

from shortlist.core.ragged import read_only
from shortlist.kernels.lists import sum_prefixes
from shortlist.types import Bools, Doubles, Ints, Longs

# columns of `sums_at_n`
AT_N = ("f1", "precision", "recall", "ndcg", "ndcg_paper", "length")


def discounts(n: int) -> Doubles:
    """(n,) gain of a hit at rank 1, 2, … n: 1 / log2(rank + 1)."""
    return 1 / np.log2(np.arange(2, n + 2))


def ideal_dcg(n: int) -> Doubles:
    """(n + 1,) DCG of a list that consists of 0, 1, … n hits."""
    return np.concatenate([[0.0], np.cumsum(discounts(n))])


def prefix_hits(indptr: Longs, relevant: Bools) -> Longs:
    """(n_shown,) hits among the items of the list up to and including each position."""
    total = np.concatenate([[0], np.cumsum(relevant)])
    return np.asarray(total[1:] - np.repeat(total[indptr[:-1]], np.diff(indptr)), np.int64)


def prefix_f1(indptr: Longs, relevant: Bools, n_relevant: Ints) -> Doubles:
    """(n_shown,) F1 of the list that ends at each position; n_relevant: (n_lists,) size of the truth."""
    lengths = np.diff(indptr)
    return 2 * prefix_hits(indptr, relevant) / (_ranks(indptr) + np.repeat(n_relevant, lengths))


def prefix_ndcg(indptr: Longs, relevant: Bools, n_relevant: Ints) -> Doubles:
    """(n_shown,) NDCG of the list that ends at each position, against an ideal list of the same length."""
    lengths, ranks = np.diff(indptr), _ranks(indptr)
    longest = int(lengths.max(initial=0))
    total = np.concatenate([[0.0], np.cumsum(relevant * discounts(longest)[ranks - 1])])
    dcg = total[1:] - np.repeat(total[indptr[:-1]], lengths)
    possible = np.minimum(ranks, np.repeat(np.maximum(n_relevant, 1), lengths))
    return np.asarray(dcg / ideal_dcg(longest)[possible])


def sums_at_n(
    indptr: Longs,
    relevant: Bools,
    n_relevant: Ints,
    n_max: int,
    *,
    max_items: int,
    numbers: Longs | None = None,
) -> Doubles:
    """(n_max, 6) sums over lists of the `AT_N` metrics when every list is cut after N = 1 … n_max items.

    A list shorter than N counts whole, an empty list counts as 0. `ndcg` is normalized by the ideal list of
    `max_items`, `ndcg_paper` by the ideal list of the same length. `numbers`: the lists to add, in order.
    """
    longest = max(n_max, max_items)
    sums = np.zeros((n_max, len(AT_N)))
    if numbers is None:
        numbers = np.arange(indptr.size - 1)
    given = read_only(indptr), relevant, n_relevant, numbers  # one type of array, so one compilation
    sum_prefixes(*given, discounts(longest), ideal_dcg(longest), max_items, sums)
    return sums


def f1_at_n(indptr: Longs, relevant: Bools, n_relevant: Ints, n_max: int) -> Doubles:
    """(n_max,) sum over lists of F1 when every list is cut after N = 1 … n_max items."""
    return sums_at_n(indptr, relevant, n_relevant, n_max, max_items=n_max)[:, AT_N.index("f1")]


def calibration_error(n: Longs, predicted: Doubles, observed: Doubles) -> float:
    """Expected calibration error: mean |predicted - observed| over bins, weighted by their n; NaN if empty.

    All arguments are (n_bins,): number of predictions, mean prediction and observed rate of each bin.
    """
    total = n.sum()
    if not total:
        return float("nan")
    return float(
        np.cumsum(n * (1 / total) * np.abs(predicted - observed))[-1]
    )  # cumsum adds in a fixed order


def _ranks(indptr: Longs) -> Longs:
    """(n_shown,) rank of each position in its list, from 1."""
    return np.arange(1, indptr[-1] + 1) - np.repeat(indptr[:-1], np.diff(indptr))
