"""ExpectedF1, ExpectedNDCG: the length at which the list's expected worth is largest."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shortlist.cutoff.base import Decision
from shortlist.cutoff.basket_size import ListSize
from shortlist.cutoff.calibrated import Calibrated
from shortlist.cutoff.labels import Labels
from shortlist.cutoff.sweep import TARGETS, clearly_best, coverage_threshold, user_utilities
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.kernels.expected import utilities_apart, utilities_joint
from shortlist.types import Doubles, Ints

SIZES = ("both", "history", "probabilities")


@dataclass(kw_only=True, eq=False)
class ExpectedUtility(Calibrated):
    """Candidates are calibrated, the number n of relevant items is predicted, and the best prefix is shown.

    `size` says where n comes from: `probabilities` (relevant candidates only), `history` (the user's next
    list size, whichever candidates are relevant), `both` (relevant candidates plus a prediction of how many
    lie outside them), `auto` (`both`, unless another is clearly better on validation).
    A list whose expected worth is below `floor` stays empty; `coverage` sets the floor on validation so that
    this share of users is shown something. `method="normal"` replaces the exact distribution of relevant
    candidates by a refined normal.
    """

    size: str = "auto"
    floor: float = 0.0
    coverage: float | None = None
    method: str = "exact"

    reason = "utility"
    empty_reason = "below_floor"
    target: ClassVar[str] = TARGETS[0]

    def _check(self) -> None:
        super()._check()
        if self.size not in (*SIZES, "auto"):
            raise ConfigError(f"size must be one of {', '.join(SIZES)}, auto, got {self.size!r}; choose one.")
        if self.method not in ("exact", "normal"):
            raise ConfigError(f"method must be exact or normal, got {self.method!r}; choose one.")
        if self.coverage is not None and not 0 <= self.coverage <= 1:
            raise ConfigError(f"coverage must lie in [0, 1], got {self.coverage}; it is a share of users.")
        if np.isnan(self.floor):
            raise ConfigError("floor must be a number, got NaN; 0 shows every list worth anything.")

    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        self._calibrate(known, history)
        p = self._probabilities(lists, history)
        came = known.take(
            np.flatnonzero(known.n_relevant).astype(np.int32)
        )  # a relevant item implies so much
        self.next_ = ListSize().learn(came, came.n_relevant - 1, history)
        self.outside_ = ListSize().learn(known, known.n_relevant - known.n_found, history)
        self.size_ = self._choose(known, p, history) if self.size == "auto" else self.size
        self.floor_ = float(self.floor)
        if self.coverage is not None:
            curve, lengths = self._curve(lists, p, history, self.size_)
            best = curve[(lists.indptr[:-1] + lengths - 1)[lengths > 0]]
            self.floor_ = coverage_threshold(best, len(lists), self.coverage)

    def _choose(self, known: Labels, p: Doubles, history: Interactions | None) -> str:
        """`both`, unless another is better on validation by more than one standard error."""
        worths = [
            user_utilities(known, self._curve(known.lists, p, history, size)[1], self.target)
            for size in SIZES
        ]
        return SIZES[clearly_best(worths)]

    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        self._check()
        floor = self.need("floor_")
        p = self._probabilities(lists, history)
        curve, lengths = self._curve(lists, p, history, self.size_)
        best = np.zeros(len(lists))
        best[lengths > 0] = curve[(lists.indptr[:-1] + lengths - 1)[lengths > 0]]
        return Decision(np.where(best < floor, 0, lengths).astype(np.int32), probabilities=p)

    def expected(self, lists: RankedLists, *, history: Interactions | None = None) -> Doubles:
        """(n_candidates,) expected worth of the list that ends with each candidate."""
        size = self.need("size_")
        return self._curve(lists, self._probabilities(lists, history), history, size)[0]

    def _curve(
        self, lists: RankedLists, p: Doubles, history: Interactions | None, size: str
    ) -> tuple[Doubles, Ints]:
        """((n_candidates,) expected worth, (n_lists,) the best lengths)."""
        ideal = ideal_dcg(int(np.diff(lists.indptr).max(initial=0)))
        curve, lengths = np.empty(p.size), np.zeros(len(lists), np.int32)
        ndcg = self.target == "ndcg"
        if size == "history":
            mean, spread = self.next_.predict(lists, history), self.next_.dispersion_
            utilities_apart(lists.indptr, p, mean, spread, ndcg, ideal, curve, lengths)
            return curve, lengths
        outside, spread = np.zeros(len(lists)), 0.0
        if size == "both":
            outside, spread = self.outside_.predict(lists, history), self.outside_.dispersion_
        refined = self.method == "normal"
        utilities_joint(lists.indptr, p, outside, spread, refined, ndcg, ideal, curve, lengths)
        return curve, lengths


@dataclass(kw_only=True, eq=False)
class ExpectedF1(ExpectedUtility):
    """Maximise E[2·hits / (K + n)]: each candidate adds a hit with its probability and always adds to K."""

    target = "f1"


@dataclass(kw_only=True, eq=False)
class ExpectedNDCG(ExpectedUtility):
    """Maximise E[DCG / ideal DCG of the same length]; against a fixed ideal, longer is always better."""

    target = "ndcg"


def ideal_dcg(width: int) -> Doubles:
    """(width + 1,) DCG of a list of nothing but relevant items, by length."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(width) + 2.0))])
