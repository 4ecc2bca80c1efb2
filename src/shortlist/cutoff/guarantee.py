"""Guarantee: a promise about lists that holds with a stated confidence, or a plain refusal.

Learn then test: half of the users shape a grid of thresholds, the other half tests the risk of each with a
p-value that is valid for any number of users; only thresholds that pass, corrected for trying many, are used.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy
from scipy.stats import binom

from shortlist.cutoff.base import Decision
from shortlist.cutoff.calibrated import Calibrated
from shortlist.cutoff.labels import Labels
from shortlist.cutoff.sweep import falling
from shortlist.cutoff.threshold import exceeding
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, InfeasibleError
from shortlist.types import Bools, Doubles, Ints

OVER = ("covered", "users", "items")
FIRST = 0.02  # the strictest threshold shows about this many items per user


@dataclass(kw_only=True, eq=False)
class Guarantee(Calibrated):
    """Keep `min_precision`, or at most `max_empty` empty lists, with probability `confidence`.

    The promise holds only while users stay exchangeable with those in `truth`: same product, same kind of
    people, same season. Precision is the mean, `over`: `covered` users of the relevant share of their list;
    all `users`, an empty list counting as precision 1; shown `items`, pooled (wants many users, a small M).
    No threshold that passes: InfeasibleError, or empty lists with fallback="empty".
    """

    min_precision: float | None = None
    max_empty: float | None = None
    confidence: float = 0.95
    over: str = "covered"
    on: str = "score"
    n_thresholds: int = 25
    fallback: str | None = None
    seed: int = 0

    reason = "guarantee"
    empty_reason = "guarantee"

    def _check(self) -> None:
        super()._check()
        if (self.min_precision is None) == (self.max_empty is None):
            raise ConfigError(
                "pass exactly one of min_precision and max_empty; use two cutoffs for two promises."
            )
        level = self.min_precision if self.max_empty is None else self.max_empty
        if not (level is not None and 0 < level < 1 and 0 < self.confidence < 1):
            raise ConfigError(
                f"levels and confidence must lie in (0, 1), got {level} and {self.confidence}; 0.95 is usual."
            )
        if self.over not in OVER or self.on not in ("score", "probability") or self.n_thresholds < 1:
            raise ConfigError(
                f"over must be one of {', '.join(OVER)}, on score or probability and n_thresholds positive, "
                f"got {self.over!r}, {self.on!r} and {self.n_thresholds}."
            )
        if self.fallback not in ((None, "empty") if self.max_empty is None else (None,)):
            raise ConfigError(
                f"fallback must be None, or 'empty' with min_precision, got {self.fallback!r}; choose one."
            )

    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        numbers = np.flatnonzero(known.labelled).astype(np.int32)
        shuffled = numbers[np.random.default_rng(self.seed).permutation(numbers.size)]
        shape, test = known.take(shuffled[::2]), known.take(shuffled[1::2])
        if self.on == "probability":
            self._calibrate(shape, history)
        self.grid_ = _grid(self._values(shape.lists, history), len(shape.lists), self.n_thresholds)
        lengths = [exceeding(self._values(test.lists, history), test.lists, limit) for limit in self.grid_]
        self.p_values_ = np.array([self._p_value(test, k) for k in lengths])
        passed = self._passed()
        if not passed.any() and self.fallback is None:
            raise InfeasibleError(self._refusal(len(test.lists)))
        ends = np.flatnonzero(passed)
        # the loosest threshold that keeps the precision, the strictest that keeps lists from being empty
        at = (ends[-1] if self.max_empty is None else ends[0]) if ends.size else None
        self.threshold_ = np.inf if at is None else float(self.grid_[at])
        self.promise_ = self._promise(len(test.lists), feasible=at is not None)

    def _values(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        return falling(lists.scores if self.on == "score" else self._probabilities(lists, history), lists)

    def _p_value(self, test: Labels, lengths: Ints) -> float:
        """How surprising the outcome would be if the risk at this threshold were above its limit."""
        shown = lengths > 0
        if self.max_empty is not None:
            return hoeffding_bentkus((~shown).mean() if lengths.size else 1.0, lengths.size, self.max_empty)
        ends = (test.lists.indptr[:-1] + lengths - 1)[shown]
        hits = np.zeros(lengths.size)
        hits[shown] = test.hits[ends]
        limit = 1.0 - (self.min_precision or 0.0)
        if self.over == "items":  # E[hits − min_precision·K] ≥ 0, each term within an interval of length M
            spare = (
                float((hits - (1 - limit) * lengths)[shown].mean()) / self.n_candidates
                if shown.any()
                else 0.0
            )
            return float(np.exp(-2 * shown.sum() * spare**2)) if spare > 0 else 1.0
        loss = np.zeros(lengths.size)
        loss[shown] = 1 - hits[shown] / lengths[shown]
        if self.over == "covered":  # given who is covered, their losses are again independent and alike
            loss = loss[shown]
        return hoeffding_bentkus(float(loss.mean()), loss.size, limit) if loss.size else 1.0

    def _passed(self) -> Bools:
        """Thresholds whose risk is below its limit, all at once, with the confidence asked for."""
        delta = 1 - self.confidence
        if self.max_empty is not None:  # tested in turn from the loosest, until the first failure
            return np.logical_and.accumulate(self.p_values_[::-1] <= delta)[::-1]
        if self.over == "users":  # tested in turn from the strictest
            return np.logical_and.accumulate(self.p_values_ <= delta)
        return self.p_values_ <= delta / self.p_values_.size  # strict thresholds cover too few to go first

    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        self._check()
        limit = self.need("threshold_")
        p = self._probabilities(lists, history) if self.on == "probability" else None
        return Decision(exceeding(self._values(lists, history), lists, limit), p)

    def _wish(self) -> str:
        if self.max_empty is not None:
            return f"at most {self.max_empty:.1%} of lists are empty"
        what = {
            "covered": "mean precision over covered users",
            "users": "mean precision over all users, empty lists counting 1,",
            "items": "the relevant share of all shown items",
        }[self.over]
        return f"{what} is at least {self.min_precision:.1%}"

    def _promise(self, n_users: int, *, feasible: bool) -> str:
        if not feasible:
            return f"nothing is shown: no threshold could promise that {self._wish()}"
        return (
            f"{self._wish()}, with confidence {self.confidence:.1%} (tested on {n_users:,} users), "
            "while users stay exchangeable with them"
        )

    def _refusal(self, n_users: int) -> str:
        way_out = "allow more" if self.max_empty is not None else "ask for less, or pass fallback='empty'"
        return (
            f"no threshold can promise that {self._wish()} with confidence {self.confidence:.1%}: the "
            f"smallest p-value on {n_users:,} users is {self.p_values_.min(initial=1.0):.3g}; "
            f"bring more users, {way_out}."
        )


def _grid(values: Doubles, n_lists: int, n_thresholds: int) -> Doubles:
    """Falling thresholds; items shown grow geometrically from a few per hundred users to everything."""
    ordered = np.sort(values)[::-1]
    if not ordered.size:
        return np.array([-np.inf])
    counts = np.geomspace(max(FIRST * n_lists, 1), max(ordered.size, 1), n_thresholds)
    at = np.minimum(counts.astype(np.int64), ordered.size - 1)
    return np.append(np.unique(ordered[at])[::-1][: n_thresholds - 1], -np.inf)


def hoeffding_bentkus(risk: float, n: int, limit: float) -> float:
    """p-value for "the mean loss exceeds `limit`", when n losses in [0, 1] average to `risk`."""
    if n == 0:
        return 1.0
    low = min(risk, limit)
    gap = xlogy(low, low / limit) + xlogy(1 - low, (1 - low) / (1 - limit))
    bentkus = np.e * binom.cdf(np.ceil(n * risk - 1e-9), n, limit)
    return float(min(1.0, np.exp(-n * gap), bentkus))
