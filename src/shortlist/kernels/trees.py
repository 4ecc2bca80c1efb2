"""Sums over boosted trees: rows that descend side by side. `leaf_masks` is faster for small trees."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Longs

WIDTH = 64  # rows evaluated together: their columns fit the first-level cache
Nodes = npt.NDArray[np.uint32]  # unsigned: no check for negative indices


class Forest(NamedTuple):
    """Trees one after the other. The children of a node are adjacent; a leaf is its own child."""

    roots: Nodes  # (n_trees,)
    depth: Longs  # (n_trees,) steps from the root to the lowest leaf
    column: Nodes  # (n_nodes,) twice the column to compare, plus 1 if a missing value goes right
    threshold: Floats  # (n_nodes,) larger values go right; inf at a leaf
    left: Nodes  # (n_nodes,)
    value: Doubles  # (n_nodes,) prediction at the node


@inlined
def transpose(columns: Floats, first: int, n: int, batch: Floats) -> None:
    """Write every column twice: with missing values below all thresholds, and above them."""
    for k in range(WIDTH):
        row = first + min(k, n - 1)  # the last row again where there are fewer
        for c in range(columns.shape[1]):
            value = columns[row, c]
            missing = value != value
            batch[2 * c * WIDTH + k] = -np.inf if missing else value
            batch[(2 * c + 1) * WIDTH + k] = np.inf if missing else value


@kernel
def sum_trees(forest: Forest, columns: Floats, total: Doubles) -> None:
    """Add to total (n_rows,) the values of the leaves that each row (n_rows, n_columns) reaches."""
    batch = np.zeros(2 * columns.shape[1] * WIDTH, np.float32)
    node = np.zeros(WIDTH, np.uint32)
    stride = np.uint32(WIDTH)
    for first in range(0, columns.shape[0], WIDTH):
        n = min(WIDTH, columns.shape[0] - first)
        transpose(columns, first, n, batch)
        for tree in range(forest.roots.size):
            for k in range(np.uint32(WIDTH)):
                node[k] = forest.roots[tree]
            for _ in range(forest.depth[tree]):
                for k in range(np.uint32(WIDTH)):
                    at = node[k]
                    right = batch[forest.column[at] * stride + k] > forest.threshold[at]
                    node[k] = forest.left[at] + np.uint32(right)
            for k in range(n):
                total[first + k] += forest.value[node[k]]


@kernel
def sum_contributions(forest: Forest, columns: Floats, total: Doubles) -> None:
    """Add to total (n_rows, n_columns) what each column changed on the rows' paths (Saabas, 2014)."""
    for row in range(columns.shape[0]):
        for tree in range(forest.roots.size):
            at = forest.roots[tree]
            for _ in range(forest.depth[tree]):
                column = forest.column[at] // np.uint32(2)
                value = columns[row, column]
                missing_right = forest.column[at] % np.uint32(2) == 1
                right = missing_right if value != value else value > forest.threshold[at]
                child = forest.left[at] + np.uint32(right)
                if child != at:
                    total[row, column] += forest.value[child] - forest.value[at]
                at = child
