"""Sums over grown trees: rows walk down side by side, so that one's waiting is another's turn."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Longs

LANES = 64  # rows that walk together: their columns fit the first-level cache
Nodes = npt.NDArray[np.uint32]  # unsigned: no index counts from the end


class Forest(NamedTuple):
    """Trees, one after the other; the children of a node stand side by side, a leaf is its own child."""

    roots: Nodes  # (n_trees,)
    depth: Longs  # (n_trees,) steps from the root to the lowest leaf
    column: Nodes  # (n_nodes,) twice the column asked for, and 1 more where a missing value goes right
    threshold: Floats  # (n_nodes,) what is larger goes right; inf at a leaf
    left: Nodes  # (n_nodes,)
    value: Doubles  # (n_nodes,) of a leaf


@inlined
def _lay_out(columns: Floats, first: int, n: int, lanes: Floats) -> None:
    """Every column twice: once with what is missing below all thresholds, once above them."""
    for lane in range(n):
        for c in range(columns.shape[1]):
            value = columns[first + lane, c]
            missing = value != value
            lanes[2 * c * LANES + lane] = -np.inf if missing else value
            lanes[(2 * c + 1) * LANES + lane] = np.inf if missing else value


@kernel
def trees_sum(forest: Forest, columns: Floats, total: Doubles) -> None:
    """total (n_rows,) gains the values of the leaves that each row (n_rows, n_columns) reaches."""
    lanes = np.zeros(2 * columns.shape[1] * LANES, np.float32)
    node = np.zeros(LANES, np.uint32)
    stride = np.uint32(LANES)
    for first in range(0, columns.shape[0], LANES):
        n = min(LANES, columns.shape[0] - first)
        _lay_out(columns, first, n, lanes)
        for tree in range(forest.roots.size):
            for lane in range(np.uint32(LANES)):
                node[lane] = forest.roots[tree]
            for _ in range(forest.depth[tree]):
                for lane in range(np.uint32(LANES)):
                    k = node[lane]
                    right = lanes[forest.column[k] * stride + lane] > forest.threshold[k]
                    node[lane] = forest.left[k] + np.uint32(right)
            for lane in range(n):
                total[first + lane] += forest.value[node[lane]]
