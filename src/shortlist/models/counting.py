"""Popularity and PersonalFrequency: baselines that count interactions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.core.checks import check_array
from shortlist.core.estimator import check_fraction, check_number
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.kernels.item_stats import DAY
from shortlist.models.base import Recommender
from shortlist.models.contract import FitOptions, ModelState
from shortlist.recommend.explain import Contributions, largest_first
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Doubles, Floats, Ints


def count_interactions(data: Interactions, half_life: float | None = None) -> Doubles:
    """(n_items,) interactions per item; with a half-life in days, older ones count less."""
    if half_life is None:
        return np.asarray(np.bincount(data.item, minlength=data.n_items), np.float64)
    if data.time is None:
        raise ConfigError("half_life needs timestamps, got data without them; set half_life=None.")
    age = (data.time.max() - data.time) / DAY
    decayed = np.bincount(data.item, weights=0.5 ** (age / half_life), minlength=data.n_items)
    return np.asarray(decayed, np.float64)


def decayed_counts(data: Interactions, decay: float) -> Floats:
    """For every entry of data.item_sets, the user's baskets with the item, decayed by baskets since then."""
    basket = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    since = data.user_baskets[data.user + 1] - 1 - basket
    indptr, items = data.item_sets
    owner = np.repeat(np.arange(data.n_users), np.diff(indptr))
    keys = owner * data.n_items + items  # ascending, as the sets are
    at = np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)
    return np.bincount(at, weights=decay**since, minlength=items.size).astype(np.float32)


def check_half_life(half_life: float | None) -> None:
    """Raise ConfigError for a half-life that is not above 0."""
    if half_life is not None:
        check_number(0, half_life=half_life)
        if half_life == 0:
            raise ConfigError("half_life must be above 0 days, got 0; None counts all interactions equally.")


@dataclass(frozen=True, eq=False, kw_only=True)
class PopularityState(ModelState):
    """Interactions per item."""

    popularity: Floats  # (n_items,)


@dataclass(kw_only=True, eq=False, repr=False)
class Popularity(Recommender):
    """Recommend the items with the most interactions, the same to every user.

    Parameters
    ----------
    half_life
        Days after which an interaction counts half; None: all interactions count the same.

    Examples
    --------
    >>> model = sl.Popularity(half_life=7).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    half_life: float | None = None

    def _check_params(self) -> None:
        check_half_life(self.half_life)

    def _learn(self, train: Interactions, options: FitOptions) -> PopularityState:
        popularity = count_interactions(train, self.half_life).astype(np.float32)
        return PopularityState(history=train, popularity=popularity)

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
        popularity = check_array(arrays, "popularity", np.float32, (history.n_items,), low=0)
        return PopularityState(history=history, popularity=popularity)


@dataclass(frozen=True, eq=False, kw_only=True)
class FrequencyState(ModelState):
    """Personal counts, and the popularity added to them."""

    popularity: Floats  # (n_items,)
    counts: Floats  # one per entry of history.item_sets


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalFrequency(Recommender):
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

    def _learn(self, train: Interactions, options: FitOptions) -> FrequencyState:
        sales = count_interactions(train, self.half_life)
        return FrequencyState(
            history=train,
            popularity=(self.popularity * sales / sales.sum()).astype(np.float32),
            counts=decayed_counts(train, self.decay),
        )

    def _counts(self, request: RecommendRequest[FrequencyState]) -> Floats:
        """Personal counts over request.history.item_sets."""
        return decayed_counts(request.history, self.decay) if request.is_session else request.state.counts

    def score(self, request: RecommendRequest[FrequencyState]) -> Scores:
        """Decayed personal counts plus popularity."""
        scores, counts = np.tile(request.state.popularity, (len(request), 1)), self._counts(request)
        indptr, items = request.history.item_sets
        for row, user in enumerate(request.users):
            own = slice(indptr[user], indptr[user + 1])
            scores[row, items[own]] += counts[own]
        return Scores(values=scores)

    def contributions(self, request: RecommendRequest[FrequencyState], items: Ints) -> Contributions:
        """The user's own count and the popularity of each item."""
        own = self.score(request).values[0] - request.state.popularity  # type: ignore[index]
        both = np.stack([own[items], request.state.popularity[items]], axis=1).astype(np.float64)
        return [largest_first(["own baskets", "popularity"], row) for row in both]

    def _to_arrays(self, state: FrequencyState) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"popularity": state.popularity, "counts": state.counts}, {}

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> FrequencyState:
        return FrequencyState(
            history=history,
            popularity=check_array(arrays, "popularity", np.float32, (history.n_items,), low=0),
            counts=check_array(arrays, "counts", np.float32, (history.item_sets[1].size,), low=0),
        )
