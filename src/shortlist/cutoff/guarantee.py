"""Guarantee: bounds on precision, recall or empty lists that hold with a stated confidence.

Every list has a loss from 0 to 1. Thresholds are tested from the most careful one on, each at the full error
rate, until the first that fails. A threshold must pass on each of the latest baskets. A test bets on the
losses, list by list, or counts empty lists.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from shortlist.core.codec import MayBeInfinite, Shape
from shortlist.core.options import FITTED, AtLeast, AtMost, Choices, Confidence, Seed, Whole
from shortlist.core.special import binomial_tail
from shortlist.core.task_options import MinPrecision, SomeConfidence
from shortlist.cutoff.base import CutLists
from shortlist.cutoff.candidates import AnyScores
from shortlist.cutoff.threshold import ThresholdCutoff, compared_values, count_above
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError, DataWarning, InfeasibleError
from shortlist.kernels.significance import bet_on_losses
from shortlist.text import short_repr
from shortlist.types import Doubles, Ints

LEVELS = ("min_precision", "max_empty", "min_recall")
Over = Literal["covered", "users"]
Compared = Literal["score", "probability", "rank"]
MIN_COVERED = {"covered": (0.1, 20), "users": (0.02, 1)}  # by `over`: share and number at the first threshold
N_LEVELS = 1_000  # levels considered for the best possible guarantee
RECALL_SHARES: dict[Compared, float] = {"rank": 0.8, "score": 0.2}  # of the error rate, by kind of threshold


class Tested(NamedTuple):
    """The outcome of the tests of one kind of threshold."""

    on: Compared
    grid: Doubles  # (n_thresholds,) descending
    p_values: Doubles  # (n_thresholds,) 1 for those that were not tested
    position: int | None  # in the grid, of the last threshold that passed
    n_shown: float  # candidates above it in the latest basket
    careful: list[Doubles]  # losses at the most careful threshold, one array per basket


@dataclass(kw_only=True, eq=False, repr=False)
class Guarantee(ThresholdCutoff):
    """Guarantee a minimum precision or recall, or a maximum share of empty lists, with a stated confidence.

    The guarantee holds while users are exchangeable with those it was fitted on: the same product, the same
    kind of users, the same season. What changes from one basket to the next is covered as far as it changed
    between the baskets that `fit` gets: a threshold must pass the test on each of them.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities if `on="probability"`: a method of `Calibration` or a `Calibration`.
    min_precision
        Guarantee at least this mean precision and show as much as possible. Pass this or one of the next two.
    max_empty
        Guarantee at most this share of empty lists and show as little as possible. Every list that `fit` gets
        counts, whether its user interacted afterwards or not.
    min_recall
        Guarantee that a list keeps at least this share of the relevant items among all candidates, on average
        over lists with such an item, and show as little as possible: passages for a prompt, for example.
    over
        Users over whom precision is averaged: "covered" users, who get a non-empty list, or all "users",
        where an empty list has precision 1.
    horizon
        None: the level holds for each of the tested baskets. "next": with a margin, the largest fall of the
        mean from one tested basket to the next, so that the basket after them may fall as much.
    confidence
        Probability that the guarantee holds.
    on
        What is compared with the threshold: "score", "probability" or "rank" (the same number for all users).
        "auto": the score; for `min_recall` the rank or the score, whichever keeps fewer items.
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
    empty lists is the exact binomial one. A threshold that must pass on each of several baskets needs no
    correction, because one basket on which it is wrong is enough to stop it (intersection-union test). If the
    rank and the score are tried, they share the error rate, 4 : 1.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024.
    Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then Test: Calibrating Predictive Algorithms to
    Achieve Risk Control", 2021 (arXiv 2110.01052), for tests in a fixed sequence. Berger,
    "Multiparameter hypothesis testing and acceptance sampling", Technometrics 1982, for intersection-union
    tests.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Guarantee(min_precision=0.1).fit(candidates, split.valid)
    >>> print(cut.guarantee_.split(" (")[0])
    mean precision over covered users is at least 10.0%, with confidence 95.0%
    """

    min_precision: MinPrecision = None
    max_empty: Confidence | None = None
    min_recall: Confidence | None = None
    over: Over = "covered"
    horizon: Literal["next"] | None = None
    confidence: SomeConfidence = 0.95
    on: Literal["auto", "score", "probability", "rank"] = "auto"
    n_thresholds: Annotated[int, AtLeast(1), AtMost(10_000)] = 50
    fallback: Literal["empty"] | None = None
    seed: Seed = 0

    rule = "The list stops where the requested guarantee would no longer hold."
    flags = ("min_precision", "confidence")
    warmup_params: ClassVar[dict[str, Any]] = {"min_precision": 0.01, "fallback": "empty"}
    reason = "guarantee"
    empty_reason = "guarantee"

    on_: Annotated[str, Choices(lambda: ("score", "probability", "rank"))] = FITTED
    grid_: Annotated[Doubles, Shape("n_grid"), MayBeInfinite()] = FITTED
    p_values_: Annotated[Doubles, Shape("n_grid"), AtLeast(0), AtMost(1)] = FITTED
    threshold_: Annotated[float, MayBeInfinite()] = FITTED
    longest_: Whole = FITTED
    guarantee_: str = FITTED
    source_: str | None = FITTED

    def _check_together(self) -> None:
        levels = [name for name in LEVELS if getattr(self, name) is not None]
        if len(levels) != 1:
            raise ConfigError(
                f"pass exactly one of {', '.join(LEVELS)}, got {' and '.join(levels) or 'none'}; use two "
                "cutoffs for two guarantees."
            )
        if self.fallback is not None and self.min_precision is None:
            raise ConfigError(
                f"fallback must be None, or 'empty' with min_precision, got {short_repr(self.fallback)}; "
                "choose one."
            )

    def _summary(self) -> str:
        return f"{self.on_} > {self.threshold_:.6g}; {self.guarantee_}"

    def fit(
        self,
        scores: AnyScores,
        truth: Interactions | Any,
        *,
        history: Interactions | Any = None,
        users: Iterable[Any] | None = None,
        earlier: Sequence[tuple[Any, ...]] = (),
    ) -> Self:
        """Test thresholds on what followed the scores. A failed fit leaves the cutoff unchanged.

        Parameters
        ----------
        scores, truth, history, users
            The latest basket of each user or the latest period, as in `Cutoff.fit`.
        earlier
            Earlier baskets or periods, on each of which a threshold must pass, too: tuples `(scores, truth)`,
            `(scores, truth, history)` or `(scores, truth, history, users)` in the order of time. The scores
            are those of a model that was trained before.

        Returns
        -------
        Guarantee
            The fitted guarantee itself.

        Raises
        ------
        InfeasibleError
            If no threshold passes and `fallback` is None.
        DataError
            If no user of `truth` has a list, or `horizon="next"` has no earlier basket.

        Examples
        --------
        >>> split = sl.split.last_basket(sl.load_dataset("sample"))
        >>> before = sl.split.last_basket(split.train)
        >>> model = sl.PersonalFrequency()
        >>> lists = model.clone().fit(split.train).recommend(N=20, at=split.valid)
        >>> earlier = model.clone().fit(before.train_valid).recommend(N=20, at=before.test)
        >>> guarantee = sl.cutoff.Guarantee(min_precision=0.1)
        >>> cut = guarantee.fit(lists, split.valid, earlier=[(earlier, before.test)])
        >>> "on each of the last 2 baskets" in cut.guarantee_
        True
        """
        fresh = self.clone()
        baskets = [fresh._label(*basket) for basket in earlier]
        baskets.append(fresh._label(scores, truth, history, users))
        fresh._test(baskets)
        return self._take_fitted(fresh)

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        self._test([(labels, history)])

    def _test(self, baskets: Sequence[tuple[LabeledLists, Interactions | None]]) -> None:
        """Set the fitted attributes from labeled candidates of each basket, the latest one last."""
        if self.horizon == "next" and len(baskets) < 2:
            raise DataError(
                "horizon='next' needs at least two baskets or periods to see how much the mean may fall, got "
                "one; leave it out, or use more history."
            )
        *earlier, latest = baskets
        tested = [self._shuffle(labels) for labels, _ in earlier]
        last = self._shuffle(latest[0])
        if self.on == "probability":  # the calibration has seen the outcomes of its users
            self._calibrate(last.take(np.arange(0, len(last.lists), 2, dtype=np.int32)), latest[1])
            last = last.take(np.arange(1, len(last.lists), 2, dtype=np.int32))
        histories = [history for _, history in baskets]
        ranked = [self._rank_labels(*pair) for pair in zip([*tested, last], histories, strict=True)]
        results = [self._test_kind(ranked, on, share) for on, share in self._shares().items()]
        best = min(results, key=lambda result: result.n_shown)
        n_lists, is_feasible = len(last.lists), best.position is not None
        hint = "" if is_feasible else self._describe_best(best)
        if not is_feasible and self.fallback is None:
            raise InfeasibleError(self._infeasible_message(n_lists, hint))
        self.on_, self.grid_, self.p_values_ = best.on, best.grid, best.p_values
        self.threshold_ = np.inf if best.position is None else float(best.grid[best.position])
        self.longest_ = int(ranked[-1].lists.lengths.max(initial=0))
        self.source_ = latest[0].lists.source
        self.guarantee_ = (
            self._describe(n_lists, len(baskets)) if is_feasible else self._describe_nothing(hint)
        )

    def _shuffle(self, labels: LabeledLists) -> LabeledLists:
        """The lists that count, in random order."""
        counts = np.ones(len(labels.lists), np.bool_) if self.max_empty is not None else labels.labeled
        numbers = np.flatnonzero(counts).astype(np.int32)
        return labels.take(numbers[np.random.default_rng(self.seed).permutation(numbers.size)])

    def _shares(self) -> dict[Compared, float]:
        """The share of the error rate that each kind of threshold may use."""
        if self.on != "auto":
            return {self.on: 1.0}
        return {"score": 1.0} if self.min_recall is None else RECALL_SHARES

    def _test_kind(self, baskets: Sequence[LabeledLists], on: Compared, share: float) -> Tested:
        """Test thresholds of one kind in a fixed sequence, until the first that fails on a basket."""
        values = [compared_values(labels.lists, on) for labels in baskets]
        grid = self._grid(baskets[-1].lists, values[-1])
        is_same = on == "rank" or self.max_empty is not None
        grids = [grid if is_same else _matching(grid, values[-1], earlier) for earlier in values]
        p_values, position = np.ones(grid.size), None
        careful: list[Doubles] = []
        for at in range(grid.size) if self.min_precision is not None else reversed(range(grid.size)):
            losses = [
                self._losses(labels, count_above(value, labels.lists, thresholds[at]))
                for labels, value, thresholds in zip(baskets, values, grids, strict=True)
            ]
            careful = careful or losses
            p_values[at] = min(self._p_value(losses, self._limit(self._level()), share) / share, 1.0)
            if p_values[at] > 1 - self.confidence:
                break
            position = at
        n_shown = np.inf if position is None else float((values[-1] > grid[position]).sum())
        return Tested(on, grid, p_values, position, n_shown, careful)

    def _grid(self, lists: RankedLists, values: Doubles) -> Doubles:
        """(n_thresholds,) descending; chosen by the values alone, so that no list is used up."""
        first = values[lists.indptr[:-1][lists.lengths > 0]]
        share, least = MIN_COVERED[self.over]
        n_covered = int(max(share * len(lists), least))
        if self.max_empty is not None:
            return _grid(first, first, n_covered, partial(np.linspace, num=self.n_thresholds))
        return _grid(values, first, n_covered, partial(np.geomspace, num=self.n_thresholds))

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

    def _level(self) -> float:
        """The guaranteed level."""
        return float(next(level for name in LEVELS if (level := getattr(self, name)) is not None))

    def _limit(self, level: float) -> float:
        """The largest mean loss that this level allows."""
        return level if self.max_empty is not None else 1 - level

    def _p_value(self, baskets: Sequence[Doubles], limit: float, share: float = 1.0) -> float:
        """p-value of the hypothesis that the mean loss exceeds this limit on one of the baskets."""
        if self.horizon == "next":
            means = [float(np.nanmean(losses)) if np.isfinite(losses).any() else 1.0 for losses in baskets]
            limit -= max(0.0, float(np.diff(means).max()))
        if limit <= 0:
            return 1.0
        return max(self._p_value_of_basket(losses, limit, share) for losses in baskets)

    def _p_value_of_basket(self, losses: Doubles, limit: float, share: float) -> float:
        if self.max_empty is not None:  # losses of 0 and 1: exact
            return binomial_tail(losses.sum(), losses.size, limit) if losses.size else 1.0
        return float(np.exp(-bet_on_losses(losses, limit, share * (1 - self.confidence))))

    def _describe_best(self, tested: Tested) -> str:
        """The best level that the most careful threshold guarantees, in words; empty if there is none."""
        limits = np.arange(1, N_LEVELS) / N_LEVELS
        share = self._shares()[tested.on]
        low, high = 0, limits.size  # the smallest limit that passes: a larger one is easier
        while low < high:
            middle = (low + high) // 2
            passes = self._p_value(tested.careful, limits[middle], share) <= share * (1 - self.confidence)
            low, high = (low, middle) if passes else (middle + 1, high)
        if low == limits.size:
            return ""
        limit = float(limits[low])
        if self.max_empty is not None:
            return f"the smallest share of empty lists that can be guaranteed is {limit:.1%}"
        name = "recall" if self.min_precision is None else "precision"
        return f"the highest {name} that can be guaranteed is {1 - limit:.1%}"

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
        lengths = count_above(compared_values(lists, self.need("on_")), lists, threshold)
        return CutLists(np.minimum(lengths, self.need("longest_")).astype(np.int32))  # none was tested longer

    def _target(self) -> str:
        if self.max_empty is not None:
            return (
                f"at most {self.max_empty:.1%} of lists are empty, counted over everyone who was given one, "
                "whether they interacted afterwards or not"
            )
        if self.min_recall is not None:
            return f"lists keep on average at least {self.min_recall:.1%} of the relevant candidates"
        mean = {
            "covered": "mean precision over covered users",
            "users": "mean precision over all users, where an empty list counts as 1,",
        }[self.over]
        return f"{mean} is at least {self.min_precision:.1%}"

    def _describe(self, n_users: int, n_baskets: int) -> str:
        what = "lists" if self.source_ is None else f"model {self.source_[:8]}"
        when = "on one basket or period only: changes from one to the next are not covered"
        if n_baskets > 1:
            when = f"on each of the last {n_baskets} baskets or periods"
        if self.horizon == "next":
            when += ", with their largest fall as a margin for the next one"
        return (
            f"{self._target()}, with confidence {self.confidence:.1%} (tested on {n_users:,} users, {when}), "
            f"for the {what} it was tested on, as long as users stay exchangeable with them"
        )

    def _describe_nothing(self, best: str) -> str:
        nothing = f"nothing is shown: no threshold guarantees that {self._target()}"
        return f"{nothing}; {best}" if best else nothing

    def _infeasible_message(self, n_users: int, best: str) -> str:
        advice = "allow more" if self.max_empty is not None else "require less"
        advice += ", or pass fallback='empty'" if self.min_precision is not None else ""
        return (
            f"no threshold guarantees that {self._target()} with confidence {self.confidence:.1%}: on "
            f"{n_users:,} users {best or 'no level can be guaranteed'}; use more users, {advice}."
        )


def _matching(grid: Doubles, latest: Doubles, earlier: Doubles) -> Doubles:
    """(n_thresholds,) thresholds above which the same share of the earlier values lies.

    Scores of models that count events grow with time; the same share of the candidates is the same rule.
    """
    ordered = np.sort(earlier)[::-1]
    n_above = latest.size - np.searchsorted(np.sort(latest), grid, side="right")
    at = np.round(n_above / max(latest.size, 1) * earlier.size).astype(np.int64)
    return np.append(ordered, -np.inf)[at]


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
