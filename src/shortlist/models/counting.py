"""Counting models: no learning, hard to beat."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.models.base import Recommender, at_least
from shortlist.types import Doubles, Floats, Ints

DAY = 86_400_000_000  # microseconds


def popular(data: Interactions, half_life: float | None = None) -> Doubles:
    """(n_items,) how often each item was taken; with a half-life in days, the past fades."""
    if half_life is None:
        return np.asarray(np.bincount(data.item, minlength=data.n_items), np.float64)
    if data.time is None:
        raise ConfigError("half_life needs timestamps, got data without them; leave it out or bring times.")
    age = (data.time.max() - data.time) / DAY
    faded = np.bincount(data.item, weights=0.5 ** (age / half_life), minlength=data.n_items)
    return np.asarray(faded, np.float64)


def faded_counts(data: Interactions, decay: float) -> Floats:
    """For every entry of data.item_sets, its baskets; each counts decay^(baskets of the user since)."""
    number = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    since = data.user_baskets[data.user + 1] - 1 - number
    indptr, items = data.item_sets
    owner = np.repeat(np.arange(data.n_users), np.diff(indptr))
    keys = owner * data.n_items + items  # ascending, as are the sets
    at = np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)
    return np.bincount(at, weights=decay**since, minlength=items.size).astype(np.float32)


@dataclass(kw_only=True, eq=False)
class _Counting(Recommender):
    half_life: float | None = None  # days after which a sale counts half; None: all sales alike

    def _check(self, data: Interactions) -> None:
        self.check_data(data)
        if self.half_life is not None and not 0 < self.half_life < np.inf:
            raise ConfigError(
                f"half_life must be above 0 days, got {self.half_life}; None counts all sales alike."
            )

    def partial_fit(self, more: Interactions) -> Self:
        """Count more data in; new users and items are appended."""
        return self.fit(self.history.concat(more))

    def fold_in(self, newcomers: dict[Any, Any]) -> Self:
        """Count in the items of new or known users."""
        return self.fit(self.history.add_baskets(newcomers))

    @abstractmethod
    def fit(self, train: Interactions) -> Self:
        """Count."""


@dataclass(kw_only=True, eq=False)
class Popularity(_Counting):
    """What most people take; the score is the number of sales."""

    def fit(self, train: Interactions) -> Self:
        """Count."""
        self._check(train)
        self.popularity_ = popular(train, self.half_life).astype(np.float32)
        self.remember(train)
        return self

    def score(self, users: Ints) -> Floats:
        return np.tile(self.need("popularity_"), (users.size, 1))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"popularity": self.need("popularity_")}, {}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        self.popularity_ = arrays["popularity"]


@dataclass(kw_only=True, eq=False)
class PersonalFrequency(_Counting):
    """What this user took before, recent baskets first; popularity orders the rest.

    Each past basket with the item adds decay^(baskets since); the share of all sales, times `popularity`, is
    added to every item.
    """

    decay: float = 0.9
    popularity: float = 10.0

    def fit(self, train: Interactions) -> Self:
        """Count."""
        self._check(train)
        at_least(0, popularity=self.popularity)
        if not 0 < self.decay <= 1:
            raise ConfigError(
                f"decay must lie above 0 and be at most 1, got {self.decay}; 1 forgets nothing."
            )
        sales = popular(train, self.half_life)
        self.shelf_ = (self.popularity * sales / sales.sum()).astype(np.float32)
        self.counts_ = faded_counts(train, self.decay)
        self.remember(train)
        return self

    def score(self, users: Ints) -> Floats:
        scores = np.tile(self.need("shelf_"), (users.size, 1))
        indptr, items = self.seen_items
        for row, user in enumerate(users):
            part = slice(indptr[user], indptr[user + 1])
            scores[row, items[part]] += self.counts_[part]
        return scores

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"item_stats": self.need("shelf_"), "counts": self.counts_}, {}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        self.shelf_, self.counts_ = arrays["item_stats"], arrays["counts"]
