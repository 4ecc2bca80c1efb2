"""FixedN: the same length for everybody, the baseline every other cutoff must beat."""

from dataclasses import dataclass

import numpy as np

from shortlist.cutoff.base import Cutoff, Decision
from shortlist.cutoff.labels import Labels
from shortlist.cutoff.sweep import best_length, utilities
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError


@dataclass(kw_only=True, eq=False)
class FixedN(Cutoff):
    """Top N; `N=None` takes the N with the best mean F1 (or NDCG) on validation, all users counted."""

    N: int | None = None
    target: str = "f1"

    reason = "top_n"
    empty_reason = "top_n"

    def _check(self) -> None:
        super()._check()
        if self.N is not None and self.N < 0:
            raise ConfigError(f"N must be at least 0, got {self.N}; pass a length, or None to choose it.")

    def candidates_needed(self) -> int:
        return max(self.n_candidates, self.N or 0)

    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        utilities(known, self.target)
        self.N_ = best_length(known, self.target) if self.N is None else self.N

    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        self._check()
        N = self.need("N_") if self.N is None else self.N
        return Decision(np.minimum(np.diff(lists.indptr), N).astype(np.int32))
