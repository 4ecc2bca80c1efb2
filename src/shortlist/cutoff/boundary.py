"""Boundary: every user's own threshold t_u, from a joint model or learned on any ranker's frozen scores."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from shortlist.core.glm import logistic_fit, sigmoid
from shortlist.cutoff.base import Cutoff, Decision
from shortlist.cutoff.features import bounded, score_range
from shortlist.cutoff.labels import Labels
from shortlist.cutoff.sweep import best_threshold, falling
from shortlist.cutoff.threshold import exceeding
from shortlist.data.id_map import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, NotFittedError
from shortlist.kernels.boundary import boundaries_solve
from shortlist.types import Doubles, Floats

FAR = 30.0  # in units of the margin: beyond this a logistic loss is flat


@dataclass(kw_only=True, eq=False)
class Boundary(Cutoff):
    """Show what scores above t_u. Unfitted, it reads the boundaries the lists carry.

    `fit` minimises, with scores frozen, Σ ℓ(±scale·(s − t_u)) + lambda_t·R(scale·(t_u − t)) over all t_u and,
    where `t` is None, over t too; users it has not met get t. `negatives` is the strictness: irrelevant
    candidates weigh as if there were that many per relevant one ("uniform": one each, as they come; None:
    so that the loss of everybody together is smallest at the one threshold with the best F1 on validation).
    `scale` is the unit of the scores; None learns it, 1 is the paper's loss as written.
    """

    t: float | None = None
    lambda_t: float = 10.0
    negatives: float | str | None = None
    loss: str = "logistic"
    penalty: str = "l2"
    scale: float | None = None

    reason = "boundary"
    empty_reason = "no_candidate_above_boundary"

    def _check(self) -> None:
        super()._check()
        if not self.lambda_t > 0:
            raise ConfigError(
                f"lambda_t must be positive, got {self.lambda_t}; large values mean one t for all."
            )
        if self.loss not in ("logistic", "hinge") or self.penalty not in ("l2", "l1"):
            raise ConfigError(
                f"loss is logistic or hinge, penalty l2 or l1, got {self.loss!r}, {self.penalty!r}; choose."
            )
        if self.scale is not None and not 0 < self.scale < np.inf:
            raise ConfigError(f"scale must be positive, got {self.scale}; pass None to learn it.")
        if self.negatives not in (None, "uniform") and not _positive(self.negatives):
            raise ConfigError(
                f"negatives must be positive, 'uniform' or None, got {self.negatives!r}; 3 is usual."
            )

    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        part = known.take(np.flatnonzero(known.labelled).astype(np.int32))
        low, high = score_range(part.lists)
        scores = bounded(part.lists, low, high)
        scale = self._scale(scores, part) if self.scale is None else float(self.scale)
        scaled = scores * scale
        negative = self._negative(scaled, part)
        t = self._global(scaled, part, negative) if self.t is None else float(self.t) * scale
        boundaries, _ = self._solve(scaled, part, negative, t)
        self.scale_, self.t_, self.negative_ = scale, t / scale, negative
        self.known_, self.boundaries_ = part.lists.users, boundaries / scale

    def _negative(self, scaled: Doubles, part: Labels) -> float:
        """Weight of an irrelevant candidate against a relevant one."""
        n_relevant = int(part.relevant.sum())
        n_other = part.relevant.size - n_relevant
        if self.negatives == "uniform" or not n_relevant or not n_other:
            return 1.0
        if self.negatives is not None:
            return float(self.negatives) * n_relevant / n_other
        best = best_threshold(falling(scaled, part.lists), part, "f1")
        if not np.isfinite(best):
            best = float(scaled.min() if best < 0 else scaled.max())
        pulls = sigmoid(np.where(part.relevant, best - scaled, scaled - best))
        return float(pulls[part.relevant].sum() / pulls[~part.relevant].sum())

    def _scale(self, scores: Doubles, part: Labels) -> float:
        """What one unit of score is worth in log-odds: the slope of a line through all candidates."""
        spread = float(scores.std())
        if spread < 1e-9:
            return 1.0
        standard = ((scores - scores.mean()) / spread)[:, None]
        slope = float(logistic_fit(standard, part.relevant.astype(np.float64), ridge=1.0)[1])
        return max(slope, 1e-2) / spread

    def _solve(self, scaled: Doubles, part: Labels, negative: float, t: float) -> tuple[Doubles, Doubles]:
        boundaries, slopes = np.empty(len(part.lists)), np.empty(len(part.lists))
        boundaries_solve(
            part.lists.indptr,
            scaled,
            part.relevant,
            float(negative),
            float(t),
            float(self.lambda_t),
            self.loss == "hinge",
            self.penalty == "l1",
            boundaries,
            slopes,
        )
        return boundaries, slopes

    def _global(self, scaled: Doubles, part: Labels, negative: float) -> float:
        """The t at which the users' pulls on it cancel: the derivative of a convex function crosses 0."""
        if not scaled.size:
            return 0.0

        def pull(t: float) -> float:
            return float(self._solve(scaled, part, negative, t)[1].sum())

        low, high = float(scaled.min()) - FAR, float(scaled.max()) + FAR
        if pull(low) >= 0:
            return low
        if pull(high) <= 0:  # nothing relevant was found: no height is high enough
            return high
        return float(brentq(pull, low, high, xtol=1e-11, rtol=1e-12))

    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        self._check()
        boundary = self._boundary(lists)
        unknown = np.flatnonzero(np.isnan(boundary)).astype(np.int32)
        limit = np.where(np.isnan(boundary), np.inf, boundary.astype(np.float64))
        lengths = exceeding(falling(lists.scores, lists), lists, limit)
        return Decision(lengths, boundary=boundary, unknown=unknown)

    def _boundary(self, lists: RankedLists) -> Floats:
        """(n_lists,) fitted boundaries, else those of the lists; NaN where nothing is known of the user."""
        if "boundaries_" in vars(self):
            user = self.known_.lookup(lists.users.values)
            if not self.boundaries_.size:
                return np.full(len(lists), self.t_, np.float32)
            return np.where(user == UNKNOWN, self.t_, self.boundaries_[user]).astype(np.float32)
        prior = np.nan if self.t is None else self.t
        if lists.boundary is not None:
            return np.where(np.isnan(lists.boundary), prior, lists.boundary).astype(np.float32)
        if self.t is None:
            raise NotFittedError(
                "Boundary was used before it was fitted, on lists without boundaries; "
                "call fit(scores, truth) or use lists of a model that learns them."
            )
        return np.full(len(lists), prior, np.float32)


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < np.inf
