"""PerK: the published method for personal list lengths, a baseline for the other cutoffs."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import polars as pl
from scipy.special import expit

from shortlist.core.codec import DistinctIds, Shape
from shortlist.core.glm import LOGISTIC, glm_fit, log_loss, newton
from shortlist.core.metrics import ideal_dcg
from shortlist.core.options import FITTED, AtLeast, Positive
from shortlist.cutoff.base import (
    CutLists,
    Cutoff,
)
from shortlist.cutoff.calibration import bounded_scores, score_range
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists, probabilities_of
from shortlist.types import Doubles, Longs
from shortlist_extras.kernels import compute_refined_utilities


@dataclass(kw_only=True, eq=False, repr=False)
class PerK(Cutoff):
    """Choose the length with the highest expected utility, as published by Kweon et al.

    Each user has a slope and an intercept of their own that turn scores into probabilities. The number of
    relevant candidates follows the refined normal approximation. No list is empty. `ExpectedF1` differs in
    all three: one calibration for all users, the exact distribution, and empty lists.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    target
        Utility to maximize: "f1" or "ndcg".
    prior
        Strength with which a user's slope and intercept are regularized towards those of all users. It is
        needed because a user has only one basket of validation data here; users without any get the
        common ones.

    References
    ----------
    Kweon, Kang, Jang and Yu, "Top-Personalized-K Recommendation", WWW 2024.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> from shortlist_extras import PerK
    >>> lists = PerK().fit(candidates, split.valid).apply(candidates)
    >>> int(lists.lengths.min())
    1
    """

    target: Literal["f1", "ndcg"] = "f1"
    prior: Positive = 1.0

    rule = (
        "Each candidate has a probability, calibrated for each user. The list stops where its expected "
        "utility is highest, and is never empty."
    )
    reason = "utility"
    empty_reason = "utility"

    center_: float = FITTED
    spread_: Annotated[float, AtLeast(1e-300)] = FITTED
    users_: Annotated[pl.Series, DistinctIds(), Shape("n_users")] = FITTED
    calibrations_: Annotated[Doubles, Shape("n_users + 1", 2)] = FITTED

    def _summary(self) -> str:
        return f"calibrations of {len(self.users_):,} users"

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        labeled = labels.take(np.flatnonzero(labels.labeled).astype(np.int32))
        scores = bounded_scores(labeled.lists, *score_range(labeled.lists))
        self.center_ = float(scores.mean()) if scores.size else 0.0
        self.spread_ = float(scores.std()) if scores.size and scores.std() > 1e-9 else 1.0
        z, y = (scores - self.center_) / self.spread_, labeled.relevant.astype(np.float64)
        common = glm_fit(z[:, None], y, LOGISTIC) if z.size else np.zeros(2)
        personal = fit_user_wise(labeled.lists.indptr, z, y, common, self.prior)
        self.users_, self.calibrations_ = labeled.lists.users.values, np.vstack([personal, common])

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        p = probabilities_of(lists)
        ideal = ideal_dcg(int(np.diff(lists.indptr).max(initial=0)))
        curve, lengths = np.empty(p.size), np.zeros(len(lists), np.int32)
        compute_refined_utilities(lists.indptr, p, self.target == "ndcg", ideal, curve, lengths)
        return CutLists(np.clip(lengths, np.diff(lists.indptr) > 0, None).astype(np.int32))

    @property
    def uses_probabilities(self) -> bool:
        """True: the lists carry the probabilities that the sizes are computed from."""
        return True

    def _ranked(self, lists: RankedLists, history: Interactions | None) -> RankedLists:
        """The published method keeps the order of the scores, also for users with a negative slope."""
        return replace(lists, probabilities=self._probabilities(lists, history))

    def _probabilities(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_candidates,) by the calibration of the user, or the common one for users not seen in `fit`."""
        calibrations = self.need("calibrations_")
        user = np.full(len(lists), UNKNOWN)
        if len(self.users_):
            user = IdMap(self.users_).align(lists.users)
        personal = np.repeat(calibrations[np.where(user == UNKNOWN, -1, user)], np.diff(lists.indptr), axis=0)
        scores = np.clip(lists.scores.astype(np.float64), -1e300, 1e300)
        z = (scores - self.center_) / self.spread_
        return np.asarray(expit(personal[:, 0] + personal[:, 1] * z))


def fit_user_wise(indptr: Longs, z: Doubles, y: Doubles, common: Doubles, prior: float) -> Doubles:
    """(n_lists, 2) intercept and slope of each user: log loss + prior / 2 · |coefficients − common|²."""
    n_lists = indptr.size - 1
    owner = np.repeat(np.arange(n_lists), np.diff(indptr))

    def total(values: Doubles) -> Doubles:
        return np.bincount(owner, values, n_lists).astype(np.float64)

    def log_odds(beta: Doubles) -> Doubles:
        return np.asarray(beta[owner, 0] + beta[owner, 1] * z)

    def loss(beta: Doubles) -> Doubles:
        penalty: Doubles = 0.5 * prior * ((beta - common) ** 2).sum(axis=1)
        return total(log_loss(log_odds(beta), y)) + penalty

    def derivatives(beta: Doubles) -> tuple[Doubles, Doubles]:
        p = expit(log_odds(beta))
        error, curved = p - y, p * (1 - p)
        gradient = np.column_stack([total(error), total(error * z)]) + prior * (beta - common)
        mixed = total(curved * z)
        hessian = np.column_stack([total(curved) + prior, mixed, mixed, total(curved * z * z) + prior])
        return gradient, hessian.reshape(-1, 2, 2)

    return newton(np.tile(common, (n_lists, 1)), loss, derivatives)
