"""Sums over boosted trees of at most 32 leaves: all splits of a column at once.

Lists of `TwoStage` take 1.8 times the processor time without it, when rows descend the trees instead
(`kernels/trees`); one list at a time takes 1.5 times as long. Measured on Online Retail.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.simd import lowest_bit
from shortlist.kernels.trees import Nodes
from shortlist.types import Doubles, Floats, Longs

MAX_LEAVES = 32  # bits of a word
ROWS = 64  # rows compared at once: enough to pay for reading the split
ALL = np.uint32(0xFFFFFFFF)
Places = npt.NDArray[np.uint64]


class SplitIndex(NamedTuple):
    """The splits of all trees, column by column, for trees of at most MAX_LEAVES leaves (QuickScorer).

    Lucchese et al., "QuickScorer: a Fast Algorithm to Rank Documents with Additive Ensembles of Regression
    Trees", SIGIR 2015. The leaves of a tree are the bits of a word, from left to right. A split whose value
    is above its threshold removes the leaves on its left; the lowest bit that remains is the leaf of the row.
    """

    starts: Longs  # (2 * n_columns + 1,) by twice the column, plus 1 if a missing value goes right
    threshold: Floats  # (n_splits,) ascending within a column
    tree: Longs  # (n_splits,)
    mask: Nodes  # (n_splits,) leaves that remain if the value is above the threshold
    first: Places  # (n_trees,) where the leaves of each tree start
    value: Doubles  # (n_leaves,) from left to right


@inlined
def _load_rows(columns: Floats, first: int, n: int, batch: Floats) -> None:
    """Write every column twice: with missing values below all thresholds, and above them."""
    for k in range(ROWS):
        row = first + min(k, n - 1)  # the last row again where there are fewer
        for c in range(columns.shape[1]):
            value = columns[row, c]
            missing = value != value
            batch[2 * c * ROWS + k] = -np.inf if missing else value
            batch[(2 * c + 1) * ROWS + k] = np.inf if missing else value


@inlined
def _remove_leaves(leaves: Nodes, mask: np.uint32, values: Floats, threshold: np.float32) -> None:
    """Apply the mask to the words of the rows (ROWS,) whose values are above the threshold."""
    for k in range(np.uint64(ROWS)):
        leaves[k] &= mask | (ALL * np.uint32(not values[k] > threshold))  # without a branch


@kernel
def sum_splits(index: SplitIndex, columns: Floats, total: Doubles) -> None:
    """Add to total (n_rows,) what `sum_trees` adds, to the same bits."""
    n_trees, n_columns = index.first.size, columns.shape[1]
    batch = np.zeros(2 * n_columns * ROWS, np.float32)
    leaves = np.zeros(n_trees * ROWS, np.uint32)
    sums = np.zeros(ROWS)
    for first in range(0, columns.shape[0], ROWS):
        n = min(ROWS, columns.shape[0] - first)
        _load_rows(columns, first, n, batch)
        leaves[:] = ALL
        for c in range(2 * n_columns):
            largest = batch[c * ROWS]
            for k in range(1, ROWS):
                largest = max(largest, batch[c * ROWS + k])
            for split in range(index.starts[c], index.starts[c + 1]):
                if index.threshold[split] >= largest:
                    break  # no value is above this threshold, nor above the later ones
                words = leaves[ROWS * index.tree[split] : ROWS * (index.tree[split] + 1)]
                values = batch[ROWS * c : ROWS * (c + 1)]
                _remove_leaves(words, index.mask[split], values, index.threshold[split])
        sums[:] = 0
        for tree in range(n_trees):
            start = index.first[tree]
            for k in range(ROWS):
                sums[k] += index.value[start + np.uint64(lowest_bit(np.uint64(leaves[tree * ROWS + k])))]
        for k in range(n):
            total[first + k] += sums[k]
