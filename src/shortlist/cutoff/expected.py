"""Cutoffs by expectation: the best expected F1, NDCG or value of a list, and value within a budget."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np

from shortlist.core.codec import Ascending, MayBeInfinite, Shape
from shortlist.core.metrics import ideal_dcg
from shortlist.core.options import (
    FITTED,
    AtLeast,
    Choices,
    Cost,
    Gain,
    check_value,
)
from shortlist.core.task_options import Coverage, Floor, ItemsPerList
from shortlist.cutoff.base import (
    CutLists,
    Cutoff,
)
from shortlist.cutoff.basket_size import BasketSize
from shortlist.cutoff.calibration import CalibratedCutoff
from shortlist.cutoff.threshold import (
    TARGETS,
    choose_by_standard_error,
    count_above,
    coverage_threshold,
    running_minimum,
    user_utilities,
)
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists, probabilities_of
from shortlist.errors import ConfigError
from shortlist.kernels.expected_utility import compute_independent_utilities, compute_joint_utilities
from shortlist.types import Doubles, Ints

N_QUANTILES = 1001  # of the expected utilities of validation lists, to choose a floor later
N_PRICES = 1001  # points of the curve of items against price
SIZES = ("both", "history", "probabilities")
Size = Literal["both", "history", "probabilities", "auto"]


@dataclass(kw_only=True, eq=False, repr=False)
class ExpectedUtility(CalibratedCutoff):
    """Shows the prefix of the candidates whose expected utility is highest.

    The expectation is exact: relevant candidates follow a Poisson binomial distribution, other relevant items
    a negative binomial one.
    """

    size: Size = "auto"
    floor: Floor = None
    coverage: Coverage = None

    is_base = True
    flags = ("coverage", "floor")
    reason = "utility"
    empty_reason = "below_floor"

    next_size_: BasketSize = FITTED
    n_missed_: BasketSize = FITTED
    size_: Annotated[str, Choices(lambda: SIZES)] = FITTED
    floor_: Annotated[float, MayBeInfinite()] = FITTED
    utility_quantiles_: Annotated[Doubles, Shape("n_quantiles"), Ascending()] = FITTED

    target: ClassVar[str] = TARGETS[0]

    def _summary(self) -> str:
        floor = f", floor {self.floor_:.4g}" if self.floor is not None or self.coverage is not None else ""
        origin = "history and candidates" if self.size_ == "both" else self.size_
        return f"{self._calibration_summary()}, number of relevant items from {origin}{floor}"

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        self._calibrate(labels, history)
        labels = self._rank_labels(labels, history)
        lists, p = labels.lists, probabilities_of(labels.lists)
        # if any item is relevant, the basket has at least one: predict the size minus one
        active = labels.take(np.flatnonzero(labels.n_relevant).astype(np.int32))
        self.next_size_ = BasketSize().fit(active, active.n_relevant - 1, history)
        self.n_missed_ = BasketSize().fit(labels, labels.n_relevant - labels.n_retrieved, history)
        self.size_ = self.size
        if self.size == "auto":
            self.size_ = self._choose(labels, p, history)
        best = _best_utilities(lists, *self._curve(lists, p, history, self.size_))
        self.utility_quantiles_ = np.sort(best)
        if best.size > N_QUANTILES:
            self.utility_quantiles_ = np.quantile(best, np.linspace(0, 1, N_QUANTILES))
        # a list that is worse than all of these is not shown because there is nothing better
        self.floor_ = float(best[best > 0].min(initial=np.inf)) if self.floor is None else float(self.floor)
        self.floor_ = 0.0 if self.floor_ == np.inf else self.floor_
        if self.coverage is not None:
            self.floor_ = coverage_threshold(best[best > 0], best.size, self.coverage)

    def _choose(self, labels: LabeledLists, p: Doubles, history: Interactions | None) -> str:
        """Choose "both", unless another size is better on validation data by more than one standard error."""
        lengths = [self._curve(labels.lists, p, history, size)[1] for size in SIZES]
        return SIZES[choose_by_standard_error([user_utilities(labels, n, self.target) for n in lengths])]

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        floor = self.need("floor_")
        p = probabilities_of(lists)
        curve, lengths = self._curve(lists, p, history, self.size_)
        best = _best_utilities(lists, curve, lengths)
        lowest = np.maximum(floor, self._value_of_empty(lists, p, history))
        return CutLists(np.where(best < lowest, 0, lengths).astype(np.int32))

    def _value_of_empty(self, lists: RankedLists, p: Doubles, history: Interactions | None) -> Doubles:
        """(n_lists,) expected utility of an empty list."""
        return np.zeros(len(lists))

    def with_floor(self, floor: float) -> Self:
        """Return a fitted copy with another floor.

        Parameters
        ----------
        floor
            Lists with a lower expected utility stay empty.

        Returns
        -------
        ExpectedUtility
            A copy; the cutoff itself does not change.

        Raises
        ------
        ConfigError
            If the floor is not a number.
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.fit(data, models="PersonalFrequency", cutoff=sl.cutoff.ExpectedF1())
        >>> strict = model.cutoff_.with_floor(0.3)
        >>> bool(model.recommend(cutoff=strict).cover_ratio < model.recommend().cover_ratio)
        True
        """
        self.need("floor_")
        changed = self.clone().set_params(floor=floor, coverage=None)
        vars(changed).update(self.fitted() | {"floor_": float(floor)})
        return changed

    def with_coverage(self, coverage: float) -> Self:
        """Return a fitted copy whose floor gives this share of the validation users a list.

        Parameters
        ----------
        coverage
            Share of users who get a list; the least certain users get none.

        Returns
        -------
        ExpectedUtility
            A copy; the cutoff itself does not change.

        Raises
        ------
        ConfigError
            If the coverage is not a share.
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.fit(data, models="PersonalFrequency", cutoff=sl.cutoff.ExpectedF1())
        >>> half = model.cutoff_.with_coverage(0.5)
        >>> bool(0.4 < model.recommend(cutoff=half).cover_ratio < 0.6)
        True
        """
        quantiles = self.need("utility_quantiles_")
        changed = self.clone().set_params(coverage=coverage)
        floor = coverage_threshold(quantiles[quantiles > 0], quantiles.size, coverage)
        vars(changed).update(self.fitted() | {"floor_": floor})
        return changed

    def expected_utility(self, lists: RankedLists, *, history: Interactions | None = None) -> Doubles:
        """Compute the expected utility of every prefix.

        Parameters
        ----------
        lists
            Candidates.
        history
            Interactions of these users so far; required if the cutoff was fitted with a history.

        Returns
        -------
        numpy.ndarray
            One value per candidate, the most probable first: the expected utility of the list that ends with
            it.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> split = sl.split.last_basket(sl.load_dataset("sample"))
        >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
        >>> cut = sl.cutoff.ExpectedF1(calibration="platt").fit(candidates, split.valid)
        >>> cut.expected_utility(candidates).shape == candidates.scores.shape
        True
        """
        size, ranked = self.need("size_"), self.with_probabilities(lists, history=history)
        return self._curve(ranked, probabilities_of(ranked), history, size)[0]

    def _curve(
        self, lists: RankedLists, p: Doubles, history: Interactions | None, size: str
    ) -> tuple[Doubles, Ints]:
        """((n_candidates,) expected utility of each prefix, (n_lists,) lengths of the best ones)."""
        longest, ndcg = int(lists.lengths.max(initial=0)), self.target == "ndcg"
        ideal = ideal_dcg(longest) if ndcg else np.zeros(longest + 1)
        curve, lengths = np.empty(p.size), np.zeros(len(lists), np.int32)
        if size == "history":
            mean, dispersion = self.next_size_.predict(lists, history), self.next_size_.dispersion_
            compute_independent_utilities(lists.indptr, p, mean, dispersion, ndcg, ideal, curve, lengths)
            return curve, lengths
        missed, dispersion = np.zeros(len(lists)), 0.0
        if size == "both":
            missed, dispersion = self.n_missed_.predict(lists, history), self.n_missed_.dispersion_
        compute_joint_utilities(lists.indptr, p, missed, dispersion, ndcg, ideal, curve, lengths)
        return curve, lengths


def _best_utilities(lists: RankedLists, curve: Doubles, lengths: Ints) -> Doubles:
    """(n_lists,) expected utility of the best prefix; 0 for an empty list."""
    best = np.zeros(len(lists))
    best[lengths > 0] = curve[(lists.indptr[:-1] + lengths - 1)[lengths > 0]]
    return best


@dataclass(kw_only=True, eq=False, repr=False)
class ExpectedF1(ExpectedUtility):
    """Choose the length with the highest expected F1: E[2 · hits / (length + number of relevant items)].

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities: a method of `Calibration` or a `Calibration`; "none" uses the
        probabilities that the lists carry.
    size
        How the number of relevant items is predicted. "probabilities": relevant candidates only. "history":
        the size of the user's next basket. "both": relevant candidates plus a prediction of the relevant
        items that are not candidates. "auto": "both", unless another is clearly better on validation data.
    floor
        Lists with a lower expected F1 stay empty. None: the lowest among the lists that the cutoff was fitted
        on, so that with few candidates no useless list is shown; 0 shows every list.
    coverage
        Choose the floor so that this share of the validation users gets a list.
    count_empty_as_correct
        Whether an empty list for a user without any relevant item counts 1, as in `evaluate_alerts`, instead
        of 0. A list then stays empty if that is more likely to be right. The number of relevant items is
        predicted from the candidates of each request: size must be "auto" or "probabilities".

    References
    ----------
    Kweon, Kang, Jang and Yu, "Top-Personalized-K Recommendation" (PerK), WWW 2024: the same expectation with
    a normal approximation. Here it is exact, the number of relevant items may come from the history, and
    lists may be empty. Ye, Chai, Lee and Chieu, "Optimizing F-measures: a tale of two approaches", ICML 2012.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.ExpectedF1().fit(candidates, split.valid, history=split.train)
    >>> lists = cut.apply(candidates, history=split.train)
    >>> cut.size_ in ("both", "history", "probabilities")
    True
    """

    count_empty_as_correct: bool = False

    target = "f1"
    rule = (
        "Each candidate has a probability of being relevant. The list stops where one more item "
        "would lower its expected F1."
    )

    def _check_together(self) -> None:
        if self.count_empty_as_correct and self.size not in ("auto", "probabilities"):
            raise ConfigError(
                f"size must be 'auto' or 'probabilities' with count_empty_as_correct=True, got "
                f"{self.size!r}; the number of relevant items is that of the candidates of a request."
            )

    def _choose(self, labels: LabeledLists, p: Doubles, history: Interactions | None) -> str:
        return "probabilities" if self.count_empty_as_correct else super()._choose(labels, p, history)

    def _value_of_empty(self, lists: RankedLists, p: Doubles, history: Interactions | None) -> Doubles:
        if not self.count_empty_as_correct:
            return super()._value_of_empty(lists, p, history)
        with np.errstate(divide="ignore"):
            log_none = np.bincount(lists.owner, weights=np.log1p(-p), minlength=len(lists))
        value: Doubles = np.exp(log_none)  # no candidate is relevant
        return value


@dataclass(kw_only=True, eq=False, repr=False)
class ExpectedNDCG(ExpectedUtility):
    """Choose the length with the highest expected NDCG, against an ideal list of the same length.

    Against an ideal list of fixed length, a longer list would never be worse.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities: a method of `Calibration` or a `Calibration`; "none" uses the
        probabilities that the lists carry.
    size
        How the number of relevant items is predicted; see `ExpectedF1`.
    floor
        Lists with a lower expected NDCG stay empty; see `ExpectedF1`.
    coverage
        Choose the floor so that this share of the validation users gets a list.

    References
    ----------
    Kweon, Kang, Jang and Yu, "Top-Personalized-K Recommendation" (PerK), WWW 2024.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.ExpectedNDCG(coverage=0.5).fit(candidates, split.valid, history=split.train)
    >>> lists = cut.apply(candidates, history=split.train)
    """

    target = "ndcg"
    rule = (
        "Each candidate has a probability of being relevant. The list stops where one more item "
        "would lower its expected NDCG."
    )


@dataclass(kw_only=True, eq=False, repr=False)
class ExpectedValue(CalibratedCutoff):
    """Show items while their expected value p · gain − (1 − p) · cost is positive.

    That is while the probability p exceeds cost / (gain + cost).

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities: a method of `Calibration` or a `Calibration`; "none" uses the
        probabilities that the lists carry.
    gain
        Value of an item that the user interacts with.
    cost
        Cost of an item that the user does not interact with, in the same unit as `gain`.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.ExpectedValue(gain=3.0, cost=1.0).fit(candidates, split.valid, history=split.train)
    >>> lists = cut.apply(candidates, history=split.train)
    >>> bool((lists.probabilities > 0.25).all())
    True
    """

    gain: Gain = 1.0
    cost: Cost = 0.1

    rule = "The list stops where one more item would cost more than it is expected to gain."
    flags = ("gain", "cost")
    reason = "value"
    empty_reason = "value"

    @property
    def is_ready(self) -> bool:
        """Whether `fit` has been called; not needed if the scores are probabilities."""
        return self.calibration == "none" or super().is_ready

    def _summary(self) -> str:
        return self._calibration_summary()

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        self._calibrate(labels, history)

    def reuse_calibration(self, other: Cutoff | None, *, has_probabilities: bool) -> bool:
        """Take the calibration of another fitted cutoff, or the probabilities of the lists if they have any.

        Parameters
        ----------
        other
            A fitted cutoff.
        has_probabilities
            Whether the lists carry probabilities.

        Returns
        -------
        bool
            Whether there are probabilities.
        """
        self.calibration = "none"
        if isinstance(other, CalibratedCutoff) and "calibration_" in vars(other):
            self.calibration, self.n_candidates = other.calibration, other.n_candidates
            self.calibration_ = other.calibration_
            return other.calibration != "none" or has_probabilities
        return has_probabilities

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        threshold = self.cost / (self.gain + self.cost)
        return CutLists(count_above(running_minimum(probabilities_of(lists), lists), lists, threshold))


@dataclass(kw_only=True, eq=False, repr=False)
class Budget(CalibratedCutoff):
    """Show an item if its expected value p · gain − cost exceeds a price that makes the budget last.

    `allocate` decides for all users at once. This cutoff decides for each request alone, as a service must:
    the price is that of an allocation of as many items to the validation users.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities: a method of `Calibration` or a `Calibration`; "none" uses the
        probabilities that the lists carry.
    items_per_list
        The budget divided by the expected number of lists: how many items a list has on average, empty lists
        included.
    gain
        Value of an item that the user interacts with.
    cost
        Cost of each shown item, in the same unit as `gain`.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Budget(items_per_list=2.0).fit(candidates, split.valid, history=split.train)
    >>> round(float(cut.apply(candidates, history=split.train).lengths.mean()), 1)
    2.0
    """

    items_per_list: ItemsPerList = 1.0
    gain: Gain = 1.0
    cost: Cost = 0.0

    rule = "The list stops at the first item that is worth less than the price at which the budget lasts."
    flags = ("items_per_list",)
    reason = "below_price"
    empty_reason = "below_price"

    price_: Annotated[float, AtLeast(0)] = FITTED
    prices_: Annotated[Doubles, Shape("n_prices"), Ascending()] = FITTED
    demands_: Annotated[Doubles, Shape("n_prices"), AtLeast(0)] = FITTED

    def _summary(self) -> str:
        return f"{self._calibration_summary()}, price {self.price_:.4g}"

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        self._calibrate(labels, history)
        lists = self._rank_labels(labels, history).lists
        values = np.sort(self._values(lists))[::-1]
        values = values[values > 0]
        # at the price values[k], k items are shown; 0 shows all of them
        at = np.unique(np.linspace(0, values.size, min(N_PRICES, values.size + 1)).round().astype(np.int64))
        self.prices_ = np.append(values, 0.0)[at][::-1].copy()
        self.demands_ = at[::-1] / max(len(lists), 1)
        k = round(self.items_per_list * len(lists))
        self.price_ = float(values[k]) if k < values.size else 0.0

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        return CutLists(count_above(self._values(lists), lists, self.need("price_")))

    def _values(self, lists: RankedLists) -> Doubles:
        """(n_candidates,) expected value of each item; it never rises along a list."""
        return running_minimum(probabilities_of(lists), lists) * self.gain - self.cost

    def price_at(self, items_per_list: float) -> float:
        """Return the price at which a list has so many items on average.

        Parameters
        ----------
        items_per_list
            Mean number of items, empty lists included.

        Returns
        -------
        float
            The price on validation lists; 0 if even a price of 0 gives fewer items.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.fit(data, models="PersonalFrequency", cutoff=sl.cutoff.Budget(items_per_list=2.0))
        >>> model.cutoff_.price_at(1.0) > model.cutoff_.price_at(3.0)
        True
        """
        prices = self.need("prices_")
        return float(np.interp(items_per_list, self.demands_[::-1], prices[::-1]))

    def with_price(self, price: float) -> Self:
        """Return a fitted copy with another price.

        Parameters
        ----------
        price
            Items with a lower expected value are not shown.

        Returns
        -------
        Budget
            A copy; the cutoff itself does not change.

        Raises
        ------
        ConfigError
            If the price is not a number of at least 0.
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.fit(data, models="PersonalFrequency", cutoff=sl.cutoff.Budget(items_per_list=2.0))
        >>> free = model.cutoff_.with_price(0.0)
        >>> bool(model.recommend(cutoff=free).lengths.sum() > model.recommend().lengths.sum())
        True
        """
        self.need("price_")
        check_value(Cost, price=price)
        changed = self.clone()
        vars(changed).update(self.fitted() | {"price_": float(price)})
        return changed
