"""ExpectedValue: a good item is worth `gain`, a bad one costs `cost`; the one knob a business understands."""

from dataclasses import dataclass

import numpy as np

from shortlist.cutoff.base import Decision
from shortlist.cutoff.calibrated import Calibrated
from shortlist.cutoff.labels import Labels
from shortlist.cutoff.sweep import falling
from shortlist.cutoff.threshold import exceeding
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError


@dataclass(kw_only=True, eq=False)
class ExpectedValue(Calibrated):
    """Show while p·gain − (1 − p)·cost > 0, that is while p > cost / (gain + cost)."""

    gain: float = 1.0
    cost: float = 0.1

    reason = "value"
    empty_reason = "value"

    def _check(self) -> None:
        super()._check()
        if not (0 < self.gain < np.inf and 0 <= self.cost < np.inf):
            raise ConfigError(
                f"gain must be positive, cost at least 0, got {self.gain} and {self.cost}; use one currency."
            )

    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        self._calibrate(known, history)

    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        self._check()
        p = self._probabilities(lists, history)
        return Decision(exceeding(falling(p, lists), lists, self.cost / (self.gain + self.cost)), p)
