"""FrozenBoundary: the classification loss of the paper with fixed scores, one boundary per user."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import polars as pl
from scipy.special import expit

from shortlist.core.codec import DistinctIds, MayBeInfinite, Shape
from shortlist.core.glm import LOGISTIC, glm_fit
from shortlist.core.options import FITTED, AtLeast, Positive
from shortlist.cutoff.base import CutLists, Cutoff
from shortlist.cutoff.calibration import bounded_scores, score_range
from shortlist.cutoff.threshold import best_threshold, count_above, running_minimum
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists
from shortlist.types import Doubles
from shortlist_extras.kernels import solve_boundaries

FAR = 30.0  # in units of the scaled score: beyond this the logistic loss is flat


@dataclass(kw_only=True, eq=False, repr=False)
class FrozenBoundary(Cutoff):
    """Show the items that score above the user's own boundary t_u, learned on the scores of any ranker.

    `fit` minimizes, for fixed scores s, Σ log(1 + exp(∓scale · (s − t_u))) + lambda_t · (scale · (t_u − t))²
    over all t_u and, if `t` is None, over t. Users without labels get t.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    t
        Boundary of an unknown user, towards which the others are regularized; None learns it.
    lambda_t
        Strength of the regularization. Large values give all users the same boundary.
    negatives
        Total weight of irrelevant candidates, as a multiple of the relevant ones. "uniform": every candidate
        has weight 1. None: chosen so that a single boundary for all users would equal the threshold with the
        best F1 on validation data.
    scale
        Factor that turns scores into log-odds; None learns it, 1 is the loss as published.

    References
    ----------
    Gao, Guo, Lan and Liao, "Dynamic-K Recommendation with Personalized Decision Boundary", CCIR 2017 (eq. 4).
    Zhuo, Zhu, Yue and Zhao, "Learning Explicit User Interest Boundary for Recommendation", WWW 2022.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> from shortlist_extras import FrozenBoundary
    >>> cut = FrozenBoundary(lambda_t=1.0).fit(candidates, split.valid)
    >>> lists = cut.apply(candidates)
    >>> lists.boundary.shape == lists.lengths.shape
    True
    """

    t: float | None = None
    lambda_t: Positive = 10.0
    negatives: Positive | Literal["uniform"] | None = None
    scale: Positive | None = None

    rule = "The list stops at the first item below the user's own boundary."
    reason = "boundary"
    empty_reason = "no_candidate_above_boundary"

    scale_: Annotated[float, AtLeast(0)] = FITTED
    t_: float = FITTED
    negative_weight_: Annotated[float, MayBeInfinite(), AtLeast(0)] = FITTED
    users_: Annotated[pl.Series, DistinctIds(), Shape("n_users")] = FITTED
    boundaries_: Annotated[Doubles, Shape("n_users")] = FITTED

    def _summary(self) -> str:
        return f"boundaries of {self.boundaries_.size:,} users, t={self.t_:.6g} for others"

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        labeled = labels.take(np.flatnonzero(labels.labeled).astype(np.int32))
        low, high = score_range(labeled.lists)
        scores = bounded_scores(labeled.lists, low, high)
        scale = _log_odds_scale(scores, labeled) if self.scale is None else float(self.scale)
        scaled = scores * scale
        negative = self._negative_weight(scaled, labeled)
        t = self._common_boundary(scaled, labeled, negative) if self.t is None else float(self.t) * scale
        boundaries, _ = self._solve(scaled, labeled, negative, t)
        self.scale_, self.t_, self.negative_weight_ = scale, t / scale, negative
        self.users_, self.boundaries_ = labeled.lists.users.values, boundaries / scale

    def _negative_weight(self, scaled: Doubles, labeled: LabeledLists) -> float:
        """Weight of an irrelevant candidate; a relevant one has weight 1."""
        n_relevant = int(labeled.relevant.sum())
        n_other = labeled.relevant.size - n_relevant
        if self.negatives == "uniform" or not n_relevant or not n_other:
            return 1.0
        if self.negatives is not None:
            return float(self.negatives) * n_relevant / n_other
        best = best_threshold(running_minimum(scaled, labeled.lists), labeled, "f1")
        if not np.isfinite(best):
            best = float(scaled.min() if best < 0 else scaled.max())
        gradients = expit(np.where(labeled.relevant, best - scaled, scaled - best))
        return float(gradients[labeled.relevant].sum() / gradients[~labeled.relevant].sum())

    def _solve(
        self, scaled: Doubles, labeled: LabeledLists, negative: float, t: float
    ) -> tuple[Doubles, Doubles]:
        """((n_lists,) boundaries, (n_lists,) derivatives of the minimized losses with respect to t)."""
        boundaries, slopes = np.empty(len(labeled.lists)), np.empty(len(labeled.lists))
        solve_boundaries(
            labeled.lists.indptr,
            scaled,
            labeled.relevant,
            float(negative),
            float(t),
            float(self.lambda_t),
            boundaries,
            slopes,
        )
        return boundaries, slopes

    def _common_boundary(self, scaled: Doubles, labeled: LabeledLists, negative: float) -> float:
        """The t that minimizes the total loss, a convex function: the root of its derivative."""
        from scipy.optimize import brentq  # slow to import

        if not scaled.size:
            return 0.0

        def derivative(t: float) -> float:
            return float(self._solve(scaled, labeled, negative, t)[1].sum())

        low, high = float(scaled.min()) - FAR, float(scaled.max()) + FAR
        if derivative(low) >= 0:
            return low
        if derivative(high) <= 0:  # no candidate is relevant: the minimum is at infinity
            return high
        return float(brentq(derivative, low, high, xtol=1e-11, rtol=1e-12))

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        boundary = np.full(len(lists), self.need("t_"), np.float32)
        if self.boundaries_.size:
            user = self._fitted_users().align(lists.users)
            boundary[user != UNKNOWN] = self.boundaries_[user[user != UNKNOWN]]
        lengths = count_above(running_minimum(lists.scores, lists), lists, boundary.astype(np.float64))
        return CutLists(lengths, boundary=boundary)

    def _fitted_users(self) -> IdMap:
        """The users seen in `fit`; the map is kept, because its index is expensive to build."""
        id_map = vars(self).get("_id_map")
        if not isinstance(id_map, IdMap) or id_map.values is not self.users_:
            id_map = vars(self)["_id_map"] = IdMap(self.users_)
        return id_map


def _log_odds_scale(scores: Doubles, labeled: LabeledLists) -> float:
    """Log-odds per unit of score: the slope of a logistic regression over all candidates."""
    spread = float(scores.std())
    if spread < 1e-9:
        return 1.0
    standard = ((scores - scores.mean()) / spread)[:, None]
    slope = float(glm_fit(standard, labeled.relevant.astype(np.float64), LOGISTIC, ridge=1.0)[1])
    return max(slope, 1e-2) / spread
