"""Calibration turns scores into the probability that the user interacts with an item next."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from shortlist.core.codec import Ascending, Shape, When, file_error
from shortlist.core.glm import AdditiveLogistic, log_loss
from shortlist.core.options import FITTED, AtLeast, AtMost, Choices, Count, Seed
from shortlist.core.special import expit
from shortlist.cutoff.base import Cutoff, SavedEstimator
from shortlist.cutoff.candidates import AnyScores, label_candidates, top_candidates
from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError
from shortlist.kernels.candidate_features import fill_basket_sizes, fill_history_features, fill_rank_features
from shortlist.kernels.rows import read_only
from shortlist.types import Doubles, Ints, Longs

RANK_FEATURES = ("score", "gap_to_top", "log_rank", "reciprocal_rank")
HISTORY_FEATURES = ("log_history", "log_basket", "log_popularity", "share_of_baskets", "recency")


def bounded_scores(lists: RankedLists, low: float, high: float) -> Doubles:
    """(n_candidates,) scores as doubles, limited to [low, high] extended by its own length on both sides."""
    span = max(high - low, 1.0)
    return np.clip(lists.scores.astype(np.float64), low - span, high + span)


def score_range(lists: RankedLists) -> tuple[float, float]:
    """Smallest and largest finite score."""
    finite = lists.scores[np.isfinite(lists.scores)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def candidate_features(lists: RankedLists, scores: Doubles, history: Interactions | None) -> Doubles:
    """(n_candidates, n_features): RANK_FEATURES, then HISTORY_FEATURES if there is a history."""
    columns = np.empty((scores.size, len(RANK_FEATURES) + (0 if history is None else len(HISTORY_FEATURES))))
    fill_rank_features(lists.indptr, scores, columns)
    if history is not None:
        user, item = history.users.align(lists.users), history.items.align(lists.item_ids)
        counts = np.append(history.item_counts, 0)
        n_interactions = _per_user(history.user_counts, user)
        fill_history_features(
            lists.indptr,
            item[lists.items],
            user,
            history.user_baskets,
            history.baskets,
            history.item,
            np.log((counts + 1.0) / (counts.sum() + history.n_items + 1.0)),
            np.log(np.column_stack([1 + n_interactions, basket_sizes(history, user)[:, 0]])),
            columns,
        )
    return columns


def basket_sizes(history: Interactions, user: Ints) -> Doubles:
    """(n, 4) mean size of each user's baskets, sizes of the last and the one before, number of baskets.

    A basket that the user does not have counts as the user's mean; the mean of a user without baskets is
    that over all baskets.
    """
    sizes = np.empty((user.size, 4))
    numbers = user if history.n_users else np.full(user.size, UNKNOWN, np.int32)
    baskets = read_only(history.user_baskets), read_only(history.baskets)
    fill_basket_sizes(read_only(numbers), *baskets, float(history.mean_basket_size), sizes)
    return sizes


def _per_user(counts: Longs, user: Ints) -> Doubles:
    """The count of each user, 0 for unknown users."""
    if not counts.size:
        return np.zeros(user.size)
    return np.where(user == UNKNOWN, 0, counts[user]).astype(np.float64)


QUANTILES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.995)  # dense at the top, where most hits are
BLOCK = 1 << 20  # candidates per batch of features
Method = Literal["platt", "isotonic", "features", "none", "auto"]
METHODS = ("platt", "isotonic", "features", "none")


@dataclass(kw_only=True, eq=False, repr=False)
class Calibration(SavedEstimator):
    """Estimates the probability that the user interacts with a candidate next.

    It is fitted on labeled candidates, so it holds for items that the ranker retrieves, not for all items.

    Parameters
    ----------
    method
        "platt": logistic regression on the score. "isotonic": a non-decreasing step function of the score.
        "features": additive logistic regression on score, rank, gap to the top score and history. "none": use
        the probabilities that the lists carry. "auto": platt, isotonic or features, whichever has the lowest
        cross-validated log loss.
    n_candidates
        Number of top candidates considered per user.
    seed
        Seed of the sampling of negatives ("features").

    References
    ----------
    Platt, "Probabilistic outputs for support vector machines", 1999. Zadrozny and Elkan, "Transforming
    classifier scores into accurate multiclass probability estimates", KDD 2002 (isotonic regression).

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> calibration = sl.cutoff.Calibration(method="isotonic").fit(candidates, split.valid)
    >>> lists = calibration.apply(candidates)
    >>> bool(((lists.probabilities > 0) & (lists.probabilities < 1)).all())
    True
    """

    method: Method = "auto"
    n_candidates: Count = 100
    seed: Seed = 0

    kind: ClassVar[str] = "calibration"

    method_: Annotated[str, Choices(lambda: METHODS)] = FITTED
    low_: float = FITTED
    high_: float = FITTED
    uses_history_: bool = FITTED
    logistic_: Annotated[AdditiveLogistic, When("method_", ("platt", "features"))] = FITTED
    steps_: Annotated[Doubles, Shape("n_steps"), Ascending(strict=True), When("method_", ("isotonic",))] = (
        FITTED
    )
    heights_: Annotated[
        Doubles, Shape("n_steps"), AtLeast(0), AtMost(1), Ascending(), When("method_", ("isotonic",))
    ] = FITTED

    def fit(
        self,
        scores: AnyScores,
        truth: Interactions,
        *,
        history: Interactions | None = None,
        users: Iterable[Any] | None = None,
    ) -> Self:
        """Learn from the interactions that followed the scores.

        Parameters
        ----------
        scores
            Candidates, in any form that `Cutoff.fit` accepts.
        truth
            Interactions that happened after the scores were computed.
        history
            Interactions known when the scores were computed; used by "features".
        users
            Ids of the users who received a list or were eligible for one. They count even if they interacted
            with nothing.

        Returns
        -------
        Calibration
            The fitted calibration itself.

        Raises
        ------
        ConfigError
            If a parameter is invalid.
        DataError
            If no user of `truth` has a candidate.

        Examples
        --------
        >>> import numpy as np
        >>> truth = sl.Interactions.from_tuples([(0, 0), (0, 1), (1, 1)])
        >>> sl.cutoff.Calibration(method="platt").fit(np.array([[0.9, 0.8], [0.1, 0.7]]), truth)
        Calibration(method='platt') fitted: platt
        """
        truth, history = Interactions.of(truth), None if history is None else Interactions.of(history)
        return self.fit_labels(label_candidates(scores, truth, history, users, self.n_candidates), history)

    def fit_labels(self, labels: LabeledLists, history: Interactions | None) -> Self:
        """Fit on candidates that are already labeled.

        Parameters
        ----------
        labels
            Candidates with labels.
        history
            As in `fit`.
        """
        if self.method != "none" and not labels.n_outcomes:
            raise DataError(
                "calibration needs at least one candidate of a user with truth rows, got none; "
                "pass the interactions that followed the scores, with the same user ids."
            )
        method = self._choose(labels, history) if self.method == "auto" else self.method
        labeled = labels.take(np.flatnonzero(labels.labeled).astype(np.int32))
        self.low_, self.high_ = score_range(labeled.lists)
        self.uses_history_ = history is not None
        scores, y = bounded_scores(labeled.lists, self.low_, self.high_), labeled.relevant.astype(np.float64)
        if method == "platt":
            self.logistic_ = _fit_platt(scores, y)
        elif method == "isotonic":
            self.steps_, self.heights_ = isotonic_fit(scores, y)
        elif method == "features":
            model = AdditiveLogistic(quantiles=QUANTILES, ridge=10.0, seed=self.seed)
            self.logistic_ = model.fit(candidate_features(labeled.lists, scores, history), y)
        self.method_ = method
        return self

    def probabilities(self, scores: AnyScores, *, history: Interactions | None = None) -> Doubles:
        """Estimate the probability of every candidate.

        Parameters
        ----------
        scores
            Candidates, in any form that `Cutoff.fit` accepts.
        history
            Interactions of these users so far; required if the calibration was fitted with a history.

        Returns
        -------
        numpy.ndarray
            One probability per candidate, in the order of `top_candidates(scores)`.

        Raises
        ------
        NotFittedError
            If `fit` has not been called and `method` is not "none".
        DataError
            If the history, or the probabilities of the lists, are needed and missing.

        Examples
        --------
        >>> import numpy as np
        >>> scores, truth = np.array([[2.0, 1.0], [4.0, 3.0]]), sl.Interactions.from_tuples([(0, 0), (1, 1)])
        >>> calibration = sl.cutoff.Calibration(method="isotonic").fit(scores, truth)
        >>> calibration.probabilities(scores).round(2).tolist()
        [0.67, 0.12, 0.67, 0.67]
        """
        return self.predict(top_candidates(scores, ids=history, n_candidates=self.n_candidates), history)

    def predict(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_candidates,) the probability of every candidate, however many a list has.

        Parameters
        ----------
        lists
            Candidates, ordered by score.
        history
            As in `probabilities`.
        """
        method = self.need("method_") if self.method != "none" else "none"
        if method == "none":
            if lists.probabilities is None:
                raise DataError(
                    "calibration 'none' needs lists with probabilities, got none; use another method."
                )
            return np.clip(np.nan_to_num(lists.probabilities, nan=0.0), 0.0, 1.0)
        values = bounded_scores(lists, self.low_, self.high_)
        if method == "isotonic":
            return isotonic_predict(self.steps_, self.heights_, values)
        if method == "platt":
            probabilities: Doubles = expit(self.logistic_.log_odds(values[:, None]))
            return probabilities
        if self.uses_history_ and history is None:
            raise DataError(
                f"calibration {method!r} was fitted with a history and needs one to predict; pass history=."
            )
        return self._from_features(lists, values, history if self.uses_history_ else None)

    def apply(self, scores: AnyScores, *, history: Interactions | None = None) -> RankedLists:
        """Return the candidates with their probabilities.

        Parameters
        ----------
        scores
            Candidates, in any form that `Cutoff.fit` accepts.
        history
            Interactions of these users so far; required if the calibration was fitted with a history.

        Returns
        -------
        RankedLists
            The top candidates, not cut, with `probabilities`.

        Raises
        ------
        NotFittedError
            If `fit` has not been called and `method` is not "none".

        Examples
        --------
        >>> import numpy as np
        >>> scores, truth = np.array([[2.0, 1.0], [4.0, 3.0]]), sl.Interactions.from_tuples([(0, 0), (1, 1)])
        >>> lists = sl.cutoff.Calibration(method="isotonic").fit(scores, truth).apply(scores)
        >>> lists[0].probabilities.round(2).tolist()
        [0.67, 0.12]
        """
        lists = top_candidates(scores, ids=history, n_candidates=self.n_candidates)
        return replace(lists, probabilities=self.probabilities(lists, history=history))

    def _summary(self) -> str:
        uses = " with history" if self.uses_history_ and self.method_ == "features" else ""
        return f"{self.method_}{uses}"

    def _check_loaded(self) -> None:
        if not self.low_ <= self.high_:
            raise file_error("high_", "must not be below low_")
        n_columns = len(RANK_FEATURES) + (len(HISTORY_FEATURES) if self.uses_history_ else 0)
        if self.method_ == "isotonic" and not self.steps_.size:
            raise file_error("steps_", "must have at least one step")
        expected = {"platt": 1, "features": n_columns}.get(self.method_)
        if expected is not None and self.logistic_.n_columns != expected:
            raise file_error("logistic_", f"must have {expected} columns, got {self.logistic_.n_columns}")

    def _choose(self, labels: LabeledLists, history: Interactions | None) -> str:
        """Choose the method with the lowest log loss in two-fold cross-validation over users."""
        numbers = np.flatnonzero(labels.labeled).astype(np.int32)
        halves = [labels.take(numbers[::2]), labels.take(numbers[1::2])]
        if not all(half.n_outcomes for half in halves):
            return "platt"
        losses = {}
        for method in ("platt", "isotonic", "features"):
            loss = 0.0
            for train, test in (halves, halves[::-1]):
                fitted = self.clone().set_params(method=method).fit_labels(train, history)
                p = np.clip(fitted.probabilities(test.lists, history=history), 1e-6, 1 - 1e-6)
                loss += float(log_loss(np.log(p / (1 - p)), test.relevant.astype(np.float64)).sum())
            losses[method] = loss
        return min(losses, key=losses.__getitem__)

    def _from_features(self, lists: RankedLists, values: Doubles, history: Interactions | None) -> Doubles:
        """(n_candidates,) probabilities, in batches of lists so that the features stay small."""
        step = max(1, BLOCK // self.n_candidates)
        probabilities = np.empty(values.size)
        for start in range(0, len(lists), step):
            is_whole = len(lists) <= step  # a single list of a prepared cutoff is not copied
            piece = lists if is_whole else lists.take(np.arange(start, min(start + step, len(lists))))
            rows = slice(int(lists.indptr[start]), int(lists.indptr[start]) + piece.items.size)
            probabilities[rows] = expit(
                self.logistic_.log_odds(candidate_features(piece, values[rows], history))
            )
        return probabilities


@dataclass(kw_only=True, eq=False, repr=False)
class CalibratedCutoff(Cutoff):
    """A cutoff on probabilities, with its own calibration; "none" uses the probabilities of the lists."""

    calibration: Method | Calibration = "auto"

    calibration_: Calibration = FITTED

    is_base = True

    def _calibrate(self, labels: LabeledLists, history: Interactions | None) -> None:
        """Fit the calibration on labeled candidates."""
        given = self.calibration
        calibration = Calibration(method=given) if isinstance(given, str) else given.clone()
        calibration.set_params(n_candidates=self.candidates_needed())
        calibrations, key = labels.calibrations, (repr(calibration.get_params()), id(history))
        if key not in calibrations:
            calibrations[key] = calibration.fit_labels(labels, history)
        self.calibration_ = copy(calibrations[key])

    @property
    def uses_probabilities(self) -> bool:
        """Whether the cutoff computes the probabilities of candidates, which the lists then carry."""
        return True

    @property
    def is_calibrated(self) -> bool:
        """Whether the probabilities were calibrated on validation data."""
        calibration = vars(self).get("calibration_")
        return self.uses_probabilities and getattr(calibration, "method_", "none") != "none"

    @property
    def reorders(self) -> bool:
        """Whether the fitted calibration may give probabilities another order than the scores."""
        calibration = vars(self).get("calibration_")
        return self.uses_probabilities and getattr(calibration, "method_", "none") == "features"

    def _probabilities(self, lists: RankedLists, history: Interactions | None) -> Doubles | None:
        """(n_candidates,) from the fitted calibration, or from the lists; None if only scores are used."""
        if not self.uses_probabilities:
            return None
        if self.calibration == "none":
            return Calibration(method="none").predict(lists, history)
        calibration: Calibration = self.need("calibration_")
        return calibration.predict(lists, history)

    def _rank_labels(self, labels: LabeledLists, history: Interactions | None) -> LabeledLists:
        """The labels in the order in which `apply` shows the candidates."""
        p = self._probabilities(labels.lists, history)
        return labels if p is None else labels.rank(p)

    def _calibration_summary(self) -> str:
        """How the probabilities are computed, after `fit`."""
        if "calibration_" not in vars(self):
            return ""
        method = self.calibration_._summary()
        return "probabilities of the model" if method == "none" else f"probabilities calibrated by {method}"


def _fit_platt(scores: Doubles, y: Doubles) -> AdditiveLogistic:
    """Logistic regression on the score; a negative slope becomes 0: a higher score is never worse."""
    model = AdditiveLogistic().fit(scores[:, None], y)
    return model if model.slopes_[0] >= 0 else model.fit(np.zeros((y.size, 1)), y)


def isotonic_fit(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """((n_steps,) where each step begins, (n_steps,) its height), at least half a case away from 0 and 1."""
    from scipy.optimize import isotonic_regression  # slow to import

    values, which = np.unique(x, return_inverse=True)
    weight = np.bincount(which).astype(np.float64)
    heights = isotonic_regression(np.bincount(which, y) / weight, weights=weight).x
    first = np.flatnonzero(np.append(True, heights[1:] > heights[:-1]))
    edge = 0.5 / y.size
    return values[first], np.clip(heights[first], edge, 1 - edge)


def isotonic_predict(steps: Doubles, heights: Doubles, x: Doubles) -> Doubles:
    """Height of the step below each value; the first height for values below all steps."""
    return heights[np.maximum(np.searchsorted(steps, x, side="right") - 1, 0)]
