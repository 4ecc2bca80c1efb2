"""Popularity and PersonalFrequency: baselines that count interactions."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from shortlist.core.checks import check_array
from shortlist.core.params import check_fraction, check_number
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import NO_TIME, Interactions
from shortlist.errors import ConfigError
from shortlist.kernels.replay import DAY
from shortlist.kernels.rows import add_decayed
from shortlist.models.base import FitOptions, ModelState, Recommender
from shortlist.models.weighting import WeightParams, WeightTransform, decayed_counts
from shortlist.recommend.explain import Contributions, largest_first
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Doubles, Floats, Ints, Longs


class ItemCounts(NamedTuple):
    """Interactions per item; with a half-life in days, older ones count less."""

    counts: Doubles  # (n_items,) decayed up to the item's last interaction
    last: Longs  # (n_items,) its time; (0,) without a half-life
    half_life: float | None
    transform: WeightTransform

    @classmethod
    def of(cls, data: Interactions, half_life: float | None, transform: WeightTransform) -> "ItemCounts":
        """Count all rows."""
        amount = transform.of_rows(data)
        if half_life is None:
            counts = data.item_counts if amount is None else _sum_by_item(data.item, amount, data.n_items)
            return cls(counts.astype(np.float64), NO_TIME, None, transform)
        if data.time is None:
            raise ConfigError("half_life needs timestamps, got data without them; set half_life=None.")
        empty = cls(np.zeros(data.n_items), np.zeros(data.n_items, np.int64), half_life, transform)
        return cast(ItemCounts, empty._add(data.item, data.time, amount))

    def observe(self, history: History, new: NewRows) -> "ItemCounts":
        """Count new rows too; all rows again if one is older than the last of its item, or has changed."""
        weigh = self.transform.is_used and new.weight.size > 0
        if weigh and new.reweighted.size:
            return ItemCounts.of(history.merged, self.half_life, self.transform)
        amount = self.transform.values(new.weight) if weigh else None
        if self.half_life is None and amount is None:
            return self._replace(counts=history.totals.item_counts.astype(np.float64))
        n_new = history.n_items - self.counts.size
        counts = np.pad(self.counts, (0, n_new))
        if self.half_life is None and amount is not None:
            return self._replace(counts=counts + _sum_by_item(new.item, amount, history.n_items))
        longer = self._replace(counts=counts, last=np.pad(self.last, (0, n_new)))
        added = longer._add(new.item, new.time, amount)
        return added or ItemCounts.of(history.merged, self.half_life, self.transform)

    def _add(self, item: Ints, time: Longs, amount: Doubles | None) -> "ItemCounts | None":
        """Count more rows; None if one of them is too old to be added."""
        assert self.half_life is not None
        order, added = (
            np.argsort(time, kind="stable"),
            self._replace(counts=self.counts.copy(), last=self.last.copy()),
        )
        each = np.empty(0) if amount is None else amount[order]
        half_life = self.half_life * DAY
        in_order = add_decayed(item[order], time[order], each, half_life, added.counts, added.last)
        return added if in_order else None

    def values(self) -> Doubles:
        """(n_items,) the counts just after the last interaction of all."""
        if self.half_life is None:
            return self.counts
        age = (self.last.max() - self.last) / DAY
        return np.asarray(self.counts * 0.5 ** (age / self.half_life))


def _sum_by_item(item: Ints, amount: Doubles, n_items: int) -> Doubles:
    return np.asarray(np.bincount(item, weights=amount, minlength=n_items), np.float64)


def check_half_life(half_life: float | None) -> None:
    """Raise ConfigError for a half-life that is not above 0."""
    if half_life is not None:
        check_number(0, half_life=half_life)
        if half_life == 0:
            raise ConfigError("half_life must be above 0 days, got 0; None counts all interactions equally.")


@dataclass(frozen=True, eq=False, kw_only=True)
class PopularityState(ModelState):
    """Interactions per item."""

    counts: ItemCounts

    @cached_property
    def popularity(self) -> Floats:
        """(n_items,) interactions per item."""
        return self.counts.values().astype(np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class Popularity(WeightParams, Recommender):
    """Recommend the items with the most interactions, the same to every user.

    Parameters
    ----------
    half_life
        Days after which an interaction counts half; None: all interactions count the same.
    weighting
        What a row counts, by its weight w: a quantity, a rating, a number of plays or the like. "none": 1.
        "linear": w. "log": log2(1 + w). "cap": w, at most `weight_cap`. Rows of negative weight (returns,
        dislikes) count negatively, except with "none".
    weight_cap
        The most that a row can count, for `weighting="cap"`.

    Examples
    --------
    >>> model = sl.Popularity(half_life=7).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    half_life: float | None = None

    def _check_params(self) -> None:
        check_half_life(self.half_life)
        self.weight_transform.check()

    def _learn(self, train: Interactions, options: FitOptions) -> PopularityState:
        counts = ItemCounts.of(train, self.half_life, self.weight_transform)
        return PopularityState(history=History.of(train), counts=counts)

    def _observe(self, state: PopularityState, history: History, new: NewRows) -> PopularityState:
        return replace(state, history=history, counts=state.counts.observe(history, new))

    def score(self, request: RecommendRequest[PopularityState]) -> Scores:
        """Interactions per item."""
        return Scores(values=np.tile(request.state.popularity, (len(request), 1)))

    def contributions(self, request: RecommendRequest[PopularityState], items: Ints) -> Contributions:
        """The popularity of each item."""
        return [[("popularity", float(value))] for value in request.state.popularity[items]]

    def _to_arrays(self, state: PopularityState) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"popularity": state.popularity}, {}

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> PopularityState:
        low = None if self.weight_transform.is_used else 0  # returns may outweigh purchases
        check_array(arrays, "popularity", np.float32, (history.n_items,), low=low)
        return self._learn(history, FitOptions())  # counting again gives the counts that were saved


@dataclass(frozen=True, eq=False, kw_only=True)
class FrequencyState(ModelState):
    """Interactions per item, and the popularity that is added to personal counts."""

    counts: ItemCounts
    weight: float  # of the popularity

    @cached_property
    def popularity(self) -> Floats:
        """(n_items,) the weighted share of each item in all interactions."""
        sales = self.counts.values()
        return np.asarray(self.weight * sales / (np.abs(sales).sum() or 1.0), np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalFrequency(WeightParams, Recommender):
    """Recommend what the user interacted with before, recent baskets first, then popular items.

    The score of an item is the sum of decay^(baskets since) over the user's baskets with the item, plus
    `popularity` times the item's share of all interactions.

    Parameters
    ----------
    half_life
        Days after which an interaction counts half in the popularity; None: all count the same.
    decay
        How much a basket counts one basket later.
    popularity
        Weight of the popularity.
    weighting, weight_cap
        As in `Popularity`.

    Examples
    --------
    >>> model = sl.PersonalFrequency(decay=0.8).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    half_life: float | None = None
    decay: float = 0.9
    popularity: float = 10.0

    def _check_params(self) -> None:
        check_half_life(self.half_life)
        check_fraction(decay=self.decay)
        check_number(0, popularity=self.popularity)
        self.weight_transform.check()

    def _learn(self, train: Interactions, options: FitOptions) -> FrequencyState:
        counts = ItemCounts.of(train, self.half_life, self.weight_transform)
        return FrequencyState(history=History.of(train), counts=counts, weight=self.popularity)

    def _observe(self, state: FrequencyState, history: History, new: NewRows) -> FrequencyState:
        return replace(state, history=history, counts=state.counts.observe(history, new))

    def score(self, request: RecommendRequest[FrequencyState]) -> Scores:
        """Decayed personal counts plus popularity."""
        scores = np.tile(request.state.popularity, (len(request), 1))
        indptr, items = request.history.item_sets
        owner = np.repeat(request.rows, np.diff(indptr))
        scores[owner, items] += decayed_counts(request.history, self.decay, self.weight_transform)
        return Scores(values=scores)

    def contributions(self, request: RecommendRequest[FrequencyState], items: Ints) -> Contributions:
        """The user's own count and the popularity of each item."""
        own = self.score(request).values[0] - request.state.popularity  # type: ignore[index]
        both = np.stack([own[items], request.state.popularity[items]], axis=1).astype(np.float64)
        return [largest_first(["own baskets", "popularity"], row) for row in both]

    def _to_arrays(self, state: FrequencyState) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"popularity": state.popularity}, {}

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> FrequencyState:
        low = None if self.weight_transform.is_used else 0  # returns may outweigh purchases
        check_array(arrays, "popularity", np.float32, (history.n_items,), low=low)
        return self._learn(history, FitOptions())  # counting again gives the counts that were saved
