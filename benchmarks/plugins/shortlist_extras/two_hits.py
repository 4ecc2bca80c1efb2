"""TwoHits: a metric in one class."""

import numpy as np

from shortlist.core.metrics import ListSums, Metric
from shortlist.types import Doubles


class TwoHits(Metric):
    """Whether a list has at least two hits."""

    name, title = "two_hits", "two hits"
    can_optimize = can_choose_length = True

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return (sums.hits >= 2).astype(np.float64)
