"""What the benchmarks compare with and the library does not have: a model, two cutoffs, metrics of lists.

`shortlist` finds the classes by the entry points in `pyproject.toml`; nothing else is needed.
"""

from shortlist_extras.diversity import measure_diversity
from shortlist_extras.frozen_boundary import FrozenBoundary
from shortlist_extras.perk import PerK
from shortlist_extras.two_hits import TwoHits
from shortlist_extras.upcf import UPCF

__all__ = ["UPCF", "FrozenBoundary", "PerK", "TwoHits", "measure_diversity"]
