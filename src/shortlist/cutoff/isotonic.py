"""Isotonic calibration: the rising step function nearest to the outcomes."""

import numpy as np

from shortlist.kernels.isotonic import violators_pool
from shortlist.types import Doubles


def isotonic_fit(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """((n_steps,) where each step begins, (n_steps,) its height); heights keep off 0 and 1 by half a case."""
    values, which = np.unique(x, return_inverse=True)
    total = np.bincount(which, y).astype(np.float64)
    weight = np.bincount(which).astype(np.float64)
    first = np.empty(values.size, np.int64)
    n_steps = violators_pool(total, weight, first)
    heights = total[:n_steps] / weight[:n_steps]
    edge = 0.5 / y.size
    return values[first[:n_steps]], np.clip(heights, edge, 1 - edge)


def isotonic_predict(steps: Doubles, heights: Doubles, x: Doubles) -> Doubles:
    """Height of the step each value stands on; values below the first stand on the first."""
    return heights[np.maximum(np.searchsorted(steps, x, side="right") - 1, 0)]
