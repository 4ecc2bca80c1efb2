"""Guarantee: bounds on precision or on empty lists that hold with a stated confidence.

Learn then test: half of the users define a grid of thresholds, the other half tests the risk of each one
with a p-value that is valid for any number of users. Only thresholds that pass, corrected for multiple tests,
are used.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from shortlist.core.checks import check_array, check_float_value, check_names, check_text
from shortlist.core.estimator import MAX_SEED, check_choice, check_whole, short_repr
from shortlist.cutoff.base import FITTED_IDS, CutLists
from shortlist.cutoff.candidates import Labels
from shortlist.cutoff.checks import check_interval
from shortlist.cutoff.online import ONLINE, OnlineCutoff
from shortlist.cutoff.search import count_above, running_minimum
from shortlist.cutoff.threshold import ON
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataWarning, InfeasibleError
from shortlist.types import Bools, Doubles, Ints

OVER = ("covered", "users")
MIN_ITEMS = 0.02  # the strictest threshold shows about this many items per user


@dataclass(kw_only=True, eq=False, repr=False)
class Guarantee(OnlineCutoff):
    """Guarantee a minimum precision, or a maximum share of empty lists, with a stated confidence.

    The guarantee holds while users are exchangeable with those it was fitted on: the same product, the same
    kind of users, the same season.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities if `on="probability"`: a method of `Calibration` or a `Calibration`.
    min_precision
        Guarantee at least this mean precision and show as much as possible. Pass this or `max_empty`.
    max_empty
        Guarantee at most this share of empty lists and show as little as possible.
    over
        Users over whom precision is averaged: "covered" users, who get a non-empty list, or all "users",
        where an empty list has precision 1.
    step
        How far `update` moves the threshold after a batch: 1 moves it from one end to the other if the
        shortfall is as large as possible. A larger step gives a tighter bound and less steady lists.
    confidence
        Probability that the guarantee holds.
    on
        What is compared with the threshold: "score" or "probability".
    n_thresholds
        Number of thresholds that are tested.
    fallback
        What to do if no threshold passes: None raises `InfeasibleError`, "empty" shows nothing.
    seed
        Seed of the random split of users into the two halves.

    References
    ----------
    Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then Test: Calibrating Predictive Algorithms to
    Achieve Risk Control", 2021 (arXiv 2110.01052). The p-value is Hoeffding–Bentkus: Bates, Angelopoulos,
    Lei, Malik and Jordan, "Distribution-Free, Risk-Controlling Prediction Sets", Journal of the ACM 2021.
    `update`: Gibbs and Candès, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021;
    Feldman, Ringel, Bates and Romano, "Achieving Risk Control in Online Learning Settings", TMLR 2023;
    Angelopoulos, Candès and Tibshirani, "Conformal PID Control for Time Series Prediction", NeurIPS 2023.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Guarantee(min_precision=0.1).fit(candidates, split.valid)
    >>> print(cut.promise_.split(" (")[0])
    mean precision over covered users is at least 10.0%, with confidence 95.0%
    """

    confidence: float = 0.95
    on: str = "score"
    n_thresholds: int = 25
    fallback: str | None = None
    seed: int = 0

    reason = "guarantee"
    empty_reason = "guarantee"

    def _check_params(self) -> None:
        super()._check_params()
        if (self.min_precision is None) == (self.max_empty is None):
            raise ConfigError(
                f"pass exactly one of min_precision and max_empty, got {short_repr(self.min_precision)} and "
                f"{short_repr(self.max_empty)}; use two cutoffs for two guarantees."
            )
        levels = {"min_precision": self.min_precision, "max_empty": self.max_empty}
        levels["confidence"] = self.confidence
        for name, level in levels.items():
            if level is not None:
                check_interval(name, level, low=0, high=1, ends=False, advice="pass a share, such as 0.95.")
        check_choice("over", self.over, OVER)
        check_choice("on", self.on, ON)
        check_whole(1, 10_000, n_thresholds=self.n_thresholds)
        check_whole(0, MAX_SEED, seed=self.seed)
        fallback: object = self.fallback  # may be anything; comparing an array would be ambiguous
        is_empty = isinstance(fallback, str) and fallback == "empty"
        if fallback is not None and (not is_empty or self.max_empty is not None):
            raise ConfigError(
                f"fallback must be None, or 'empty' with min_precision, got {short_repr(self.fallback)}; "
                "choose one."
            )

    @property
    def is_ready(self) -> bool:
        """Whether `fit` has been called."""
        return "threshold_" in vars(self)

    def _summary(self) -> str:
        return f"{self.on} > {self.threshold_:.6g}; {self.promise_}" if "promise_" in vars(self) else ""

    def _check_fitted(self) -> None:
        super()._check_fitted()
        calibrated = ("calibration_",) if self.on == "probability" else ()
        names = ("grid_", "p_values_", "threshold_", "promise_", "source_", *calibrated)
        check_names(self.fitted(), names, (*FITTED_IDS, *ONLINE))
        grid = check_array(vars(self), "grid_", np.float64, (None,), finite=False)
        check_array(vars(self), "p_values_", np.float64, grid.shape, low=0, high=1)
        check_float_value(vars(self), "threshold_")
        check_text(vars(self), "promise_")
        if self.source_ is not None:
            check_text(vars(self), "source_")

    def _fit_labels(self, labels: Labels, history: Interactions | None) -> None:
        numbers = np.flatnonzero(labels.labeled).astype(np.int32)
        shuffled = numbers[np.random.default_rng(self.seed).permutation(numbers.size)]
        grid_half, test_half = labels.take(shuffled[::2]), labels.take(shuffled[1::2])
        if self.on == "probability":
            self._calibrate(grid_half, history)
        self.grid_ = _grid(self._values(grid_half.lists, history), len(grid_half.lists), self.n_thresholds)
        values = self._values(test_half.lists, history)
        lengths = [count_above(values, test_half.lists, threshold) for threshold in self.grid_]
        self.p_values_ = np.array([self._p_value(test_half, one) for one in lengths])
        passed = np.flatnonzero(self._passed())
        if not passed.size and self.fallback is None:
            raise InfeasibleError(self._infeasible_message(len(test_half.lists)))
        # the loosest threshold that keeps the precision, the strictest that avoids empty lists
        at = (passed[-1] if self.max_empty is None else passed[0]) if passed.size else None
        self.threshold_ = np.inf if at is None else float(self.grid_[at])
        self.source_ = labels.lists.source
        self.promise_ = self._promise(len(test_half.lists), feasible=at is not None)

    def check_source(self, source: str | None) -> None:
        """Raise ConfigError unless the model is the one that the guarantee was tested on.

        Parameters
        ----------
        source
            Fingerprint of the model; None for lists from elsewhere.

        Raises
        ------
        ConfigError
            If the guarantee was tested on another model, or on this one before it was fitted again.

        Warns
        -----
        DataWarning
            If only one of the two fingerprints is known, so that they cannot be compared.
        """
        tested = self.need("source_")
        if tested == source:
            return
        again = "guarantee.fit(model.recommend(users, N=100, at=truth), truth)"
        if tested is not None and source is not None:
            raise ConfigError(
                f"this guarantee was tested on the model {tested[:8]}, got the model {source[:8]}: another "
                f"one, or the same one after fit or partial_fit; test it again with {again}."
            )
        was, now = (
            "lists of no known model" if one is None else f"model {one[:8]}" for one in (tested, source)
        )
        warnings.warn(
            f"the guarantee was tested on {was} and is used on {now}; it holds only if these are "
            f"the same. If in doubt, test it again with {again}.",
            DataWarning,
            stacklevel=3,
        )

    def _values(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """What is compared with the threshold; it never rises along a list."""
        scores = lists.scores if self.on == "score" else self._probabilities(lists, history)
        return running_minimum(scores, lists)

    def _p_value(self, test: Labels, lengths: Ints) -> float:
        """p-value of the hypothesis that the risk at this threshold exceeds its limit."""
        shown = lengths > 0
        if self.max_empty is not None:
            return hoeffding_bentkus((~shown).mean() if lengths.size else 1.0, lengths.size, self.max_empty)
        ends = (test.lists.indptr[:-1] + lengths - 1)[shown]
        loss = np.zeros(lengths.size)
        loss[shown] = 1 - test.hits[ends] / lengths[shown]
        if self.over == "covered":  # given who is covered, the losses are still independent and identical
            loss = loss[shown]
        limit = 1.0 - (self.min_precision or 0.0)
        return hoeffding_bentkus(float(loss.mean()), loss.size, limit) if loss.size else 1.0

    def _passed(self) -> Bools:
        """Thresholds whose risk is below its limit, all of them with the required confidence."""
        delta = 1 - self.confidence
        if self.max_empty is not None:  # fixed sequence from the loosest, until the first failure
            return np.logical_and.accumulate(self.p_values_[::-1] <= delta)[::-1]
        if self.over == "users":  # fixed sequence from the strictest
            return np.logical_and.accumulate(self.p_values_ <= delta)
        return self.p_values_ <= delta / self.p_values_.size  # Bonferroni: strict thresholds cover few users

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        threshold = self.need("threshold_")
        self.check_source(lists.source)
        p = self._probabilities(lists, history) if self.on == "probability" else None
        return CutLists(count_above(self._values(lists, history), lists, threshold), p)

    def _target(self) -> str:
        if self.max_empty is not None:
            return f"at most {self.max_empty:.1%} of lists are empty"
        mean = {
            "covered": "mean precision over covered users",
            "users": "mean precision over all users, where an empty list counts as 1,",
        }[self.over]
        return f"{mean} is at least {self.min_precision:.1%}"

    def _promise(self, n_users: int, *, feasible: bool) -> str:
        if not feasible:
            return f"nothing is shown: no threshold guarantees that {self._target()}"
        what = "lists" if self.source_ is None else f"model {self.source_[:8]}"
        return (
            f"{self._target()}, with confidence {self.confidence:.1%} (tested on {n_users:,} users), "
            f"for the {what} it was tested on, as long as users stay exchangeable with them"
        )

    def _infeasible_message(self, n_users: int) -> str:
        advice = "allow more" if self.max_empty is not None else "require less, or pass fallback='empty'"
        return (
            f"no threshold guarantees that {self._target()} with confidence {self.confidence:.1%}: the "
            f"smallest p-value on {n_users:,} users is {self.p_values_.min(initial=1.0):.3g}; "
            f"use more users, {advice}."
        )


def _grid(values: Doubles, n_lists: int, n_thresholds: int) -> Doubles:
    """Descending thresholds; the number of shown items grows geometrically up to all candidates."""
    ordered = np.sort(values)[::-1]
    if not ordered.size:
        return np.array([-np.inf])
    counts = np.geomspace(max(MIN_ITEMS * n_lists, 1), max(ordered.size, 1), n_thresholds)
    at = np.minimum(counts.astype(np.int64), ordered.size - 1)
    return np.append(np.unique(ordered[at])[::-1][: n_thresholds - 1], -np.inf)


def hoeffding_bentkus(risk: float, n: int, limit: float) -> float:
    """p-value of the hypothesis that the mean loss exceeds `limit`, given n losses of mean `risk`."""
    from scipy.stats import binom  # slow to import

    if n == 0:
        return 1.0
    low = min(risk, limit)
    gap = xlogy(low, low / limit) + xlogy(1 - low, (1 - low) / (1 - limit))
    bentkus = np.e * binom.cdf(np.ceil(n * risk - 1e-9), n, limit)
    return float(min(1.0, np.exp(-n * gap), bentkus))
