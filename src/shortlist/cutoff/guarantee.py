"""Guarantee: bounds on precision, recall or empty lists that hold with a stated confidence.

Every list has a loss from 0 to 1. Thresholds are tested from the most careful one on, each at the full error
rate, until the first that fails. A test bets on the losses, list by list, or counts empty lists.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import bdtr

from shortlist.core.checks import check_array, check_float_value, check_names, check_text, check_whole_value
from shortlist.core.options import (
    MAX_WHOLE,
    AtLeast,
    AtMost,
    Confidence,
    Count,
    Seed,
    Whole,
    check_value,
)
from shortlist.cutoff.base import CutLists
from shortlist.cutoff.threshold import ThresholdCutoff, count_above
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists, label_lists
from shortlist.data.lists import REASON_CODE, RankedLists
from shortlist.errors import ConfigError, DataError, DataWarning, InfeasibleError
from shortlist.kernels.rows import sum_rows
from shortlist.kernels.significance import bet_on_losses
from shortlist.text import short_repr
from shortlist.types import Bools, Doubles, Ints

GuaranteeName = Literal["precision", "empty", "calibration"]
NOT_DECIDED = ("unknown_user", "no_candidates")  # the cutoff had nothing to decide


def list_values(
    lists: RankedLists,
    truth: Interactions | Any,
    users: Iterable[Any] | None,
    guarantee: str,
    over: str = "covered",
) -> Doubles:
    """(n,) one value per list that counts, in the order of the lists.

    precision: hits / length of users with truth; with over="users" an empty list is 1, else it is left out.
    empty: 1 for an empty list, 0 for another; users for whom nothing could be recommended are left out.
    calibration: observed minus predicted rate of the shown items.
    """
    lengths = lists.lengths
    covered = (lengths > 0) & ~_has_reason(lists, ("fallback",))
    if guarantee == "empty":
        return (~covered)[~_has_reason(lists, NOT_DECIDED)].astype(np.float64)
    if truth is None:
        raise DataError(f"{guarantee} needs truth, got None; pass what the users interacted with.")
    labels = label_lists(lists, Interactions.of(truth), users)
    safe = np.maximum(lengths, 1)
    precision = np.where(covered, labels.n_retrieved / safe, 1.0)
    if guarantee == "precision":
        return precision[labels.labeled & (covered if over == "covered" else True)]
    if lists.probabilities is None:
        raise DataError("calibration needs lists with probabilities, got none; calibrate the scores first.")
    predicted: Doubles = sum_rows(lists.indptr, lists.probabilities) / safe
    counts = labels.labeled & covered & ~np.isnan(predicted)
    return (precision - predicted)[counts]


def _has_reason(lists: RankedLists, reasons: Iterable[str]) -> Bools:
    """(n_lists,) whether a list ends for one of these reasons."""
    if lists.reason is None:
        return np.zeros(len(lists), np.bool_)
    return np.isin(lists.reason, [REASON_CODE[name] for name in reasons])


LEVELS = ("min_precision", "max_empty", "min_recall")
Over = Literal["covered", "users"]
MIN_COVERED = {"covered": (0.1, 20), "users": (0.02, 1)}  # by `over`: share and number at the first threshold
N_LEVELS = 1_000  # levels considered for the best possible guarantee
ONLINE = ("start_", "position_", "n_updates_", "total_")  # set by `update`
MAX_UPDATES = 2**53


def threshold_at(grid: Doubles, position: float) -> float:
    """The threshold at a position: 1 is +inf (nothing is shown), 0 is -inf (everything), linear between.

    grid: (n_thresholds,) descending thresholds that end with -inf.
    """
    finite = grid[np.isfinite(grid)]
    if position >= 1 or position <= 0 or not finite.size:
        return float(np.inf if position >= 1 else -np.inf)
    return float(np.interp(position, _positions(finite.size), finite[::-1]))


def position_at(grid: Doubles, threshold: float) -> float:
    """The position of a threshold; the inverse of `threshold_at`."""
    finite = grid[np.isfinite(grid)]
    if not np.isfinite(threshold) or not finite.size:
        return float(threshold > 0)
    return float(np.interp(threshold, finite[::-1], _positions(finite.size)))


def _positions(n: int) -> Doubles:
    """(n,) positions of the finite thresholds in ascending order, strictly between 0 and 1."""
    return np.arange(1, n + 1) / (n + 1)


def next_position(position: float, shortfall: float, step: float) -> float:
    """The position after a batch with this shortfall, a share of the largest possible one."""
    return max(0.0, position + step * min(max(shortfall, -1.0), 1.0))


def largest_mean_shortfall(start: float, step: float, n_batches: int, delay: int = 0) -> float:
    """Bound on the mean shortfall of n batches that holds for any data; delay: batches until the feedback."""
    return (1 + step * (1 + delay) - start) / (step * max(n_batches, 1))


@dataclass(kw_only=True, eq=False, repr=False)
class Guarantee(ThresholdCutoff):
    """Guarantee a minimum precision or recall, or a maximum share of empty lists, with a stated confidence.

    The guarantee holds while users are exchangeable with those it was fitted on: the same product, the same
    kind of users, the same season.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities if `on="probability"`: a method of `Calibration` or a `Calibration`.
    min_precision
        Guarantee at least this mean precision and show as much as possible. Pass this or one of the next two.
    max_empty
        Guarantee at most this share of empty lists and show as little as possible.
    min_recall
        Guarantee that a list keeps at least this share of the relevant items among all candidates, on average
        over lists with such an item, and show as little as possible: passages for a prompt, for example.
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
        Number of thresholds that may be tested. They are chosen by the scores of the candidates alone.
    fallback
        What to do if no threshold passes: None raises `InfeasibleError`, which names the best level that
        passes; "empty" shows nothing.
    seed
        Seed of the order in which lists are bet on, and of the half of the users that calibrates
        probabilities.

    Notes
    -----
    Thresholds are tested from the most careful one on, each with the full confidence, until the first that
    fails. For the precision of covered users the first one covers a tenth of the users. A test of precision
    bets on the lists one by one. A bet uses only the lists before it, so that the capital ever exceeds
    1 / (1 - confidence) with a probability of at most 1 - confidence if the precision is too low. A test of
    empty lists is the exact binomial one.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024.
    Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then Test: Calibrating Predictive Algorithms to
    Achieve Risk Control", 2021 (arXiv 2110.01052), for tests in a fixed sequence.
    `update`: Gibbs and Candès, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021;
    Feldman, Ringel, Bates and Romano, "Achieving Risk Control in Online Learning Settings", TMLR 2023;
    Angelopoulos, Candès and Tibshirani, "Conformal PID Control for Time Series Prediction", NeurIPS 2023.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Guarantee(min_precision=0.1).fit(candidates, split.valid)
    >>> print(cut.guarantee_.split(" (")[0])
    mean precision over covered users is at least 10.0%, with confidence 95.0%
    """

    min_precision: Confidence | None = None
    max_empty: Confidence | None = None
    min_recall: Confidence | None = None
    over: Over = "covered"
    step: Confidence = 0.2
    confidence: Confidence = 0.95
    n_thresholds: Annotated[int, AtLeast(1), AtMost(10_000)] = 50
    fallback: Literal["empty"] | None = None
    seed: Seed = 0

    rule = "The list stops where the requested guarantee would no longer hold."
    flags = ("min_precision", "confidence")
    warmup_params: ClassVar[dict[str, Any]] = {"min_precision": 0.01, "fallback": "empty"}
    reason = "guarantee"
    empty_reason = "guarantee"
    learned = ("grid_", "p_values_", "threshold_", "longest_", "guarantee_", "source_")
    updated = ONLINE

    def _check_together(self) -> None:
        given = [name for name in LEVELS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"pass exactly one of {', '.join(LEVELS)}, got {' and '.join(given) or 'none'}; use two "
                "cutoffs for two guarantees."
            )
        if self.fallback is not None and self.min_precision is None:
            raise ConfigError(
                f"fallback must be None, or 'empty' with min_precision, got {short_repr(self.fallback)}; "
                "choose one."
            )

    def _summary(self) -> str:
        return f"{self.on} > {self.threshold_:.6g}; {self.guarantee_}"

    def _check_fitted(self) -> None:
        super()._check_fitted()
        grid = check_array(vars(self), "grid_", np.float64, (None,), finite=False)
        check_array(vars(self), "p_values_", np.float64, grid.shape, low=0, high=1)
        check_float_value(vars(self), "threshold_")
        check_whole_value(vars(self), "longest_", 0, MAX_WHOLE)
        check_text(vars(self), "guarantee_")
        if self.source_ is not None:
            check_text(vars(self), "source_")
        if any(name in vars(self) for name in ONLINE):
            check_names([name for name in vars(self) if name in ONLINE], ONLINE)
            check_float_value(vars(self), "start_", 0, 1)
            check_float_value(vars(self), "position_", 0, 1 + self.step)
            n = check_whole_value(vars(self), "n_updates_", 1, MAX_UPDATES)
            check_float_value(vars(self), "total_", 0, n)

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        numbers = np.flatnonzero(labels.labeled).astype(np.int32)
        numbers = numbers[np.random.default_rng(self.seed).permutation(numbers.size)]
        if self.on == "probability":  # the calibration has seen the outcomes of its users
            self._calibrate(labels.take(numbers[::2]), history)
            numbers = numbers[1::2]
        test = self._rank_labels(labels.take(numbers), history)
        values = self._values(test.lists)
        first = values[test.lists.indptr[:-1][test.lists.lengths > 0]]
        share, least = MIN_COVERED[self.over]
        n_covered = int(max(share * numbers.size, least))
        counted, spacing = (values, np.geomspace) if self.max_empty is None else (first, np.linspace)
        self.grid_ = _grid(counted, first, n_covered, partial(spacing, num=self.n_thresholds))
        self.p_values_ = np.ones(self.grid_.size)
        chosen, careful = None, None
        for at in self._sequence():
            losses = self._losses(test, count_above(values, test.lists, self.grid_[at]))
            careful = losses if careful is None else careful
            self.p_values_[at] = self._p_value(losses, self._limit(self._level()))
            if self.p_values_[at] > 1 - self.confidence:
                break
            chosen = at
        best = "" if chosen is not None or careful is None else self._describe_best(careful)
        if chosen is None and self.fallback is None:
            raise InfeasibleError(self._infeasible_message(numbers.size, best))
        self.threshold_ = np.inf if chosen is None else float(self.grid_[chosen])
        self.longest_ = int(test.lists.lengths.max(initial=0))
        self.source_ = labels.lists.source
        self.guarantee_ = self._describe(numbers.size, best, feasible=chosen is not None)

    def _sequence(self) -> Iterable[int]:
        """Positions in the grid from the most careful threshold on."""
        numbers = range(self.grid_.size)
        return reversed(numbers) if self.min_precision is None else numbers

    def _losses(self, labels: LabeledLists, lengths: Ints) -> Doubles:
        """(n_lists,) loss of each list at these lengths, from 0 to 1; NaN for a list that does not count."""
        shown = lengths > 0
        if self.max_empty is not None:
            return (~shown).astype(np.float64)
        hits = labels.at_lengths(labels.prefixes.hits, lengths)
        if self.min_recall is not None:
            recall = hits / np.maximum(labels.n_retrieved, 1)
            return np.where(labels.n_retrieved > 0, 1 - recall, np.nan)
        empty = np.nan if self.over == "covered" else 0.0
        return np.where(shown, 1 - hits / np.maximum(lengths, 1), empty)

    def _limit(self, level: float) -> float:
        """The largest mean loss that this level allows."""
        return level if self.max_empty is not None else 1 - level

    def _p_value(self, losses: Doubles, limit: float) -> float:
        """p-value of the hypothesis that the mean loss exceeds this limit."""
        if self.max_empty is not None:  # losses of 0 and 1: exact
            return float(bdtr(losses.sum(), losses.size, limit)) if losses.size else 1.0
        return float(np.exp(-bet_on_losses(losses, limit, 1 - self.confidence)))

    def _describe_best(self, losses: Doubles) -> str:
        """The best level that the most careful threshold guarantees, in words; empty if there is none."""
        limits = np.arange(1, N_LEVELS) / N_LEVELS
        low, high = 0, limits.size  # the smallest limit that passes: a larger one is easier
        while low < high:
            middle = (low + high) // 2
            passes = self._p_value(losses, limits[middle]) <= 1 - self.confidence
            low, high = (low, middle) if passes else (middle + 1, high)
        if low == limits.size:
            return ""
        limit = float(limits[low])
        if self.max_empty is not None:
            return f"the smallest share of empty lists that can be guaranteed is {limit:.1%}"
        name = "recall" if self.min_precision is None else "precision"
        return f"the highest {name} that can be guaranteed is {1 - limit:.1%}"

    def update(
        self,
        lists: RankedLists,
        truth: Interactions | Any = None,
        *,
        users: Iterable[Any] | None = None,
        shown: bool = False,
    ) -> Self:
        """Move the threshold after a batch of lists, so that the long-run mean meets the level.

        No assumption on the data is needed. The mean over T updates falls short of the level by at most
        `bound(T)`, whatever happens. A batch in which no list has items counts as one that meets the level.

        Parameters
        ----------
        lists
            The lists as they were shown, cut by this guarantee; lists from a fallback count as empty.
        truth
            What the users interacted with. Not needed with `max_empty`.
        users
            Ids of users who count even if they interacted with nothing.
        shown
            Whether `truth` is what is known about the shown items. Then all users with a list count.

        Returns
        -------
        Guarantee
            A new guarantee with the next threshold; this one stays as it is. Set it with
            `model.set_cutoff(guarantee.update(lists, truth))`.

        Raises
        ------
        DataError
            If `truth` is missing although `min_precision` is guaranteed.
        ConfigError
            If recall is guaranteed, which the lists as they were shown cannot prove.

        Examples
        --------
        >>> split = sl.split.last_basket(sl.load_dataset("sample"))
        >>> model = sl.PersonalFrequency().fit(split.train)
        >>> cut = sl.cutoff.Guarantee(min_precision=0.15).fit(model.recommend(N=20), split.valid)
        >>> after = cut.update(model.recommend(cutoff=cut), split.valid)
        >>> after.n_updates_, after.threshold_ < cut.threshold_
        (1, True)
        """
        self._check_params()
        self.need("threshold_")
        self.check_source(lists.source)
        users = lists.users.values if shown and users is None else users
        rate = self.batch_rate(lists, truth, users=users)
        level, scale = self._level(), 1 - self._limit(self._level())
        rate = 1.0 * (self.max_empty is None) if rate is None else rate  # without lists, nothing is broken
        shortfall = (level - rate) if self.max_empty is None else (rate - level)
        before = {"start_": self._start(), "position_": self._start(), "n_updates_": 0, "total_": 0.0}
        before |= self.fitted()
        position = next_position(before["position_"], shortfall / scale, self.step)
        end = position if self.max_empty is None else 1 - position
        after = {"position_": position, "threshold_": threshold_at(self.need("grid_"), end)}
        after |= {"n_updates_": before["n_updates_"] + 1, "total_": before["total_"] + rate}
        fresh = self.clone()
        vars(fresh).update(before | after)
        vars(fresh)["guarantee_"] = fresh._describe_online()
        return fresh

    def bound(self, n_updates: int, *, delay: int = 0) -> float:
        """Compute by how much the mean over updates can fall short of the level, whatever the data.

        Parameters
        ----------
        n_updates
            Number of calls of `update`.
        delay
            Number of updates between showing lists and learning their outcome.

        Returns
        -------
        float
            The largest possible shortfall: (1 + step · (1 + delay) − start) / (step · n_updates) times the
            largest shortfall of one batch. `start` in [0, 1] is where the threshold was before the first
            update; 1 is the safe end.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> split = sl.split.last_basket(sl.load_dataset("sample"))
        >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20)
        >>> cut = sl.cutoff.Guarantee(min_precision=0.1).fit(candidates, split.valid)
        >>> cut.bound(1000) < 0.001
        True
        """
        check_value(Count, n_updates=n_updates)
        check_value(Whole, delay=delay)
        scale = 1 - self._limit(self._level())
        return scale * largest_mean_shortfall(self._start(), self.step, n_updates, delay)

    def batch_rate(
        self, lists: RankedLists, truth: Interactions | Any = None, *, users: Iterable[Any] | None = None
    ) -> float | None:
        """Compute the guaranteed mean on one batch: the mean precision, or the share of empty lists.

        Parameters
        ----------
        lists, truth, users
            As in `update`.

        Returns
        -------
        float or None
            None if no list counts.

        Examples
        --------
        >>> import polars as pl
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> table = pl.DataFrame({"user_id": ["ann", "ann"], "item_id": ["tea", "rice"], "rank": [1, 2]})
        >>> sl.cutoff.Guarantee(min_precision=0.3).batch_rate(sl.RankedLists.from_frame(table), truth)
        0.5
        """
        if self.min_recall is not None:
            raise ConfigError(
                "a guarantee of recall needs the relevant items that were not shown, and shown lists do not "
                "have them; fit it again on complete lists."
            )
        guarantee = "precision" if self.max_empty is None else "empty"
        values = list_values(lists, truth, users, guarantee, self.over)
        return float(values.mean()) if values.size else None

    def _start(self) -> float:
        """Where the threshold was before the first update; 1 is the safe end."""
        if "start_" in vars(self):
            return float(vars(self)["start_"])
        position = position_at(self.need("grid_"), self.need("threshold_"))
        return position if self.max_empty is None else 1 - position

    def _level(self) -> float:
        """The guaranteed level."""
        return float(next(level for name in LEVELS if (level := getattr(self, name)) is not None))

    def _describe_online(self) -> str:
        n, name = self.need("n_updates_"), "precision" if self.max_empty is None else "share of empty lists"
        level, bound, mean = self._level(), self.bound(n), self.need("total_") / n
        limit = f"at least {level - bound:.2%}" if self.max_empty is None else f"at most {level + bound:.2%}"
        return (
            f"mean {name} {mean:.2%} over {n:,} updates for a guaranteed {level:.1%}; for any data it is "
            f"{limit} (the bound is {bound:.2%} now and falls like 1 / updates)"
        )

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
                f"one, or the same one after fit; test it again with {again}."
            )
        was, now = (
            "lists of no known model" if model is None else f"model {model[:8]}" for model in (tested, source)
        )
        warnings.warn(
            f"the guarantee was tested on {was} and is used on {now}; it holds only if these are "
            f"the same. If in doubt, test it again with {again}.",
            DataWarning,
            stacklevel=3,
        )

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        threshold = self.need("threshold_")
        self.check_source(lists.source)
        lengths = count_above(self._values(lists), lists, threshold)
        return CutLists(np.minimum(lengths, self.need("longest_")).astype(np.int32))  # none was tested longer

    def _target(self) -> str:
        if self.max_empty is not None:
            return f"at most {self.max_empty:.1%} of lists are empty"
        if self.min_recall is not None:
            return f"lists keep on average at least {self.min_recall:.1%} of the relevant candidates"
        mean = {
            "covered": "mean precision over covered users",
            "users": "mean precision over all users, where an empty list counts as 1,",
        }[self.over]
        return f"{mean} is at least {self.min_precision:.1%}"

    def _describe(self, n_users: int, best: str, *, feasible: bool) -> str:
        if not feasible:
            nothing = f"nothing is shown: no threshold guarantees that {self._target()}"
            return f"{nothing}; {best}" if best else nothing
        what = "lists" if self.source_ is None else f"model {self.source_[:8]}"
        return (
            f"{self._target()}, with confidence {self.confidence:.1%} (tested on {n_users:,} users), "
            f"for the {what} it was tested on, as long as users stay exchangeable with them"
        )

    def _infeasible_message(self, n_users: int, best: str) -> str:
        advice = "allow more" if self.max_empty is not None else "require less"
        advice += ", or pass fallback='empty'" if self.min_precision is not None else ""
        return (
            f"no threshold guarantees that {self._target()} with confidence {self.confidence:.1%}: on "
            f"{n_users:,} users {best or 'no level can be guaranteed'}; use more users, {advice}."
        )


def _grid(values: Doubles, first: Doubles, n_covered: int, spacing: Callable[[int, int], Doubles]) -> Doubles:
    """Descending thresholds; the number of values above them grows by this spacing until all are.

    first: (n_lists,) top value of each list; the strictest threshold leaves n_covered of them.
    """
    distinct = np.unique(values)[::-1]
    if distinct.size < 2:
        return np.array([-np.inf])
    start = np.sort(first)[::-1][min(n_covered, first.size) - 1]
    strictest = min(int(np.searchsorted(-distinct, -start, side="right")), distinct.size - 1)
    n_above = values.size - np.searchsorted(np.sort(values), distinct, side="right")
    wanted = spacing(max(int(n_above[strictest]), 1), values.size)
    at = np.searchsorted(n_above, wanted, side="right") - 1
    return np.append(distinct[np.unique(np.maximum(at, strictest))][: wanted.size - 1], -np.inf)
