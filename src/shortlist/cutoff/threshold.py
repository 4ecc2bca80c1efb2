"""Threshold: one number for everybody; a list ends at the first candidate that does not exceed it."""

from dataclasses import dataclass

import numpy as np

from shortlist.cutoff.base import Decision
from shortlist.cutoff.calibrated import Calibrated
from shortlist.cutoff.labels import Labels
from shortlist.cutoff.sweep import best_threshold, coverage_threshold, falling, utilities
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.types import Doubles, Ints


@dataclass(kw_only=True, eq=False)
class Threshold(Calibrated):
    """Chosen on validation for the best mean F1 or NDCG over all users, or for a share of covered users.

    `threshold` fixes the number instead; on scores there is then nothing to fit.
    """

    on: str = "score"
    target: str = "f1"
    coverage: float | None = None
    threshold: float | None = None

    def _check(self) -> None:
        super()._check()
        if self.on not in ("score", "probability"):
            raise ConfigError(f"on must be score or probability, got {self.on!r}; choose one.")
        if self.coverage is not None and not 0 <= self.coverage <= 1:
            raise ConfigError(f"coverage must lie in [0, 1], got {self.coverage}; it is a share of users.")
        if self.threshold is not None and np.isnan(self.threshold):
            raise ConfigError("threshold must be a number, got NaN; pass None to choose it on validation.")

    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        utilities(known, self.target)
        probabilities = None
        if self.on == "probability":
            self._calibrate(known, history)
            probabilities = self._probabilities(lists, history)
        values = self._values(lists, probabilities)
        if self.threshold is not None:
            self.threshold_ = float(self.threshold)
        elif self.coverage is not None:
            tops = values[lists.indptr[:-1][np.diff(lists.indptr) > 0]]
            self.threshold_ = coverage_threshold(tops, len(lists), self.coverage)
        else:
            self.threshold_ = best_threshold(values, known, self.target)

    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        self._check()
        bare = self.on == "score" and self.threshold is not None
        limit = float(self.threshold) if bare and self.threshold is not None else self.need("threshold_")
        probabilities = self._probabilities(lists, history) if self.on == "probability" else None
        return Decision(exceeding(self._values(lists, probabilities), lists, limit), probabilities)

    def _values(self, lists: RankedLists, probabilities: Doubles | None) -> Doubles:
        """What is compared with the threshold, falling along each list."""
        return falling(lists.scores if probabilities is None else probabilities, lists)


def exceeding(values: Doubles, lists: RankedLists, limit: float | Doubles) -> Ints:
    """(n_lists,) how many leading candidates exceed the limit; values falling along each list."""
    limits = np.repeat(np.broadcast_to(limit, len(lists)), np.diff(lists.indptr))
    passed = np.concatenate([[0], np.cumsum(values > limits)])
    return np.diff(passed[lists.indptr]).astype(np.int32)
