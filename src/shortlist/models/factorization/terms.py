"""The repeat and trend terms of any factor model: the counts behind their signals, and their scores."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.parameters import Parameters
from shortlist.kernels.rows import read_only
from shortlist.kernels.snapshot_features import DAY
from shortlist.kernels.terms import (
    SIGNAL_UNITS,
    USER_TREND_START,
    Sales,
    Terms,
    count_repeats,
    decay_sales,
    trend_scores,
)
from shortlist.models.weighting import decayed_counts
from shortlist.types import Doubles, Floats, Ints, Longs

NO_SALES = Sales(
    begin=np.zeros(0, np.int64),
    end=np.zeros(0, np.int64),
    day=np.zeros(0, np.int32),
    decayed=np.zeros(0, np.float32),
    total=np.zeros(0, np.float32),
    log_decay=np.float32(0),
    group_day=np.zeros(0, np.int32),
    recent_share=np.zeros(0, np.float32),
)
NO_TERMS = Terms(NO_SALES, np.float32(0), np.float32(0))

MAX_CACHED_DAYS = 16
MAX_PENDING = 64  # arrays of pending sales before they are joined
DAY_BITS, FIRST_DAY = 31, 1 << 30  # of a key; days before 1970 are negative
NEVER = np.iinfo(np.int32).max


def to_days(timestamps: Longs) -> Ints:
    """Whole days since 1970, in UTC."""
    return (timestamps // DAY).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Trend:
    """Sales over time, by item and overall; the weight of a sale halves every few days."""

    sales: Sales  # items by their index, without baskets
    day: Ints  # (n_days,) the days with any sale, ascending
    decayed: Doubles  # (n_days,) sales of all items up to each day, decayed
    total: Doubles  # (n_days,) the same, not decayed
    end: int  # just after the last sale, in microseconds
    keys: Longs  # (n_entries,) items with days, ascending
    count: Longs  # (n_entries,) sales of the item on the day
    half_life: float  # in days
    cache: dict[int, Floats] = field(default_factory=dict)  # trend scores of recently requested days

    @classmethod
    def of(cls, data: Interactions, half_life: float) -> "Trend":
        """Count the sales of data with timestamps; memory grows with the rows, not with items × days."""
        return cls.build(*count_sales(data), data.n_items, half_life, data.end_time)

    @classmethod
    def build(cls, keys: Longs, count: Longs, n_items: int, half_life: float, end: int) -> "Trend":
        """From the number of sales of each item on each day; `end` is just after the last sale."""
        log_decay = -np.log(2) / half_life
        item = (keys >> DAY_BITS).astype(np.int32)
        day = ((keys & ((1 << DAY_BITS) - 1)) - FIRST_DAY).astype(np.int32)
        decayed, total = _accumulate(item, day, count, log_decay)
        at = np.searchsorted(item, np.arange(n_items + 1)).astype(np.int64)
        sales = NO_SALES._replace(
            # read-only, like those of a saved model, so that kernels are compiled once
            begin=read_only(at[:-1]),
            end=read_only(at[1:]),
            day=read_only(day),
            decayed=read_only(decayed.astype(np.float32)),
            total=read_only(total.astype(np.float32)),
            log_decay=np.float32(log_decay),
        )
        days, number = np.unique(day, return_inverse=True)
        per_day = np.bincount(number, weights=count).astype(np.int64)
        overall = _accumulate(np.zeros(days.size, np.int32), days, per_day, log_decay)
        return cls(sales, days, *overall, end, keys, count, half_life)

    def add(self, more: Iterable[Longs], end: int) -> "Trend":
        """With the sales of these keys, in any order; the result is that of `of` on all sales."""
        pieces = ((keys, np.ones(keys.size, np.int64)) for keys in more)
        keys, count = add_sales([(self.keys, self.count), *pieces])
        return Trend.build(keys, count, self.sales.begin.size, self.half_life, end)

    def recent_share(self, days: Ints) -> Floats:
        """(n,) decayed sales divided by all sales, over all items before each day; 0 before any sale."""
        at = np.searchsorted(self.day, days) - 1  # the value at -1 is computed, then discarded
        weight = np.exp(np.float64(self.sales.log_decay) * np.maximum(days - 1 - self.day[at], 0))
        return np.where(at < 0, 0.0, self.decayed[at] * weight / self.total[at]).astype(np.float32)

    def for_baskets(self, timestamps: Longs) -> Sales:
        """The sales, with the days of baskets at these times."""
        days = to_days(timestamps)
        return self.sales._replace(group_day=days, recent_share=self.recent_share(days))

    def trend_scores(self, day: int | np.integer) -> Floats:
        """(n_items,) the trend score of each item at the start of the day."""
        cached = self.cache.get(int(day))
        if cached is not None:
            return cached
        n = self.sales.begin.size
        days, out = np.full(n, day, np.int32), np.empty(n, np.float32)
        trend_scores(self.sales, np.arange(n, dtype=np.int32), days, self.recent_share(days), out)
        if len(self.cache) >= MAX_CACHED_DAYS:
            self.cache.clear()
        self.cache[int(day)] = out
        return out

    def add_to(self, scores: Floats, user_trend: Floats, item_trend: Floats, timestamps: Longs) -> None:
        """Add (user_trend (n,) + item_trend (n_items,)) · trend score to scores (n, n_items), in place."""
        days = to_days(timestamps)
        for day in np.unique(days):
            rows = np.flatnonzero(days == day)
            scores[rows] += (user_trend[rows, None] + item_trend) * self.trend_scores(day)


@dataclass(frozen=True, eq=False)
class GrowingTrend:
    """A trend and later sales, which are counted when a day after them is first requested."""

    counted: Trend
    end: int  # just after the last sale, in microseconds
    pending: tuple[Longs, ...] = ()  # keys of the sales that are not counted
    first_day: int = NEVER  # of the pending sales

    @classmethod
    def grow(cls, trend: Trend | None) -> "GrowingTrend | None":
        """A trend to which sales can be added; None for None."""
        return None if trend is None else cls(trend, trend.end)

    def observe(self, item: Ints, time: Longs) -> "GrowingTrend":
        """With more sales."""
        if not item.size:
            return self
        keys, day, end = sale_keys(item, time), int(time.min() // DAY), max(self.end, int(time.max()) + 1)
        if "complete" in vars(self):
            return replace(self, counted=self.complete, end=end, pending=(keys,), first_day=day)
        pending = (*self.pending, keys)
        if len(pending) > MAX_PENDING:
            pending = (np.concatenate(pending),)
        return replace(self, end=end, pending=pending, first_day=min(day, self.first_day))

    @cached_property
    def complete(self) -> Trend:
        """The trend with all sales counted."""
        return self.counted.add(self.pending, self.end)

    def _at(self, day: int) -> Trend:
        """The trend with all sales before this day counted."""
        return self.counted if self.first_day >= day else self.complete

    def trend_scores(self, day: int) -> Floats:
        """As in `Trend`."""
        return self._at(day).trend_scores(day)

    def add_to(self, scores: Floats, user_trend: Floats, item_trend: Floats, timestamps: Longs) -> None:
        """As in `Trend`."""
        last = int(timestamps.max(initial=0) // DAY)
        self._at(last).add_to(scores, user_trend, item_trend, timestamps)


def relabel_sales(sales: Sales, label: Ints) -> Sales:
    """Index the items by `label` (n_items,); the entries are not moved."""
    if not sales.begin.size:
        return sales
    begin, end = np.empty_like(sales.begin), np.empty_like(sales.end)
    begin[label], end[label] = sales.begin, sales.end
    return sales._replace(begin=begin, end=end)


def sale_keys(item: Ints, time: Longs) -> Longs:
    """(n,) item and day in one number, which sorts by item, then by day."""
    return (item.astype(np.int64) << DAY_BITS) + (time // DAY + FIRST_DAY)


def count_sales(data: Interactions) -> tuple[Longs, Longs]:
    """(keys, counts) of the sales of each item on each day, ascending."""
    assert data.time is not None
    keys, counts = np.unique(sale_keys(data.item, data.time), return_counts=True)
    return keys, counts.astype(np.int64)


def add_sales(pieces: Iterable[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    """(keys, counts) of all pieces together."""
    keys, counts = map(np.concatenate, zip(*pieces, strict=True))
    distinct, place = np.unique(keys, return_inverse=True)
    return distinct, np.bincount(place, weights=counts, minlength=distinct.size).astype(np.int64)


def _accumulate(item: Ints, day: Ints, count: Longs, log_decay: float) -> tuple[Doubles, Doubles]:
    decayed, total = np.empty(item.size), np.empty(item.size)
    decay_sales(item, day, count, log_decay, decayed, total)
    return decayed, total


def repeat_weight(data: Interactions, repeat_decay: float) -> float:
    """The log-odds that one unit of repeat signal adds to an item, estimated by counting."""
    log_decay = np.float32(np.log(repeat_decay))
    # items of the history over all baskets, how many of them are repeated, and the sum of their signals
    n_candidates, n_repeats, units = map(
        int, count_repeats(data.user_baskets, data.baskets, data.item, data.n_items, log_decay)
    )
    if not n_repeats:
        return 0.0
    base_rate = data.n_rows / (data.n_baskets * data.n_items)  # probability that a basket has an item
    ratio = n_repeats / n_candidates / base_rate
    return float(max(np.log(ratio), 0.0) * n_repeats / (units / SIGNAL_UNITS))


class TermStart(NamedTuple):
    """What the terms of a model start from; None: the model does not have the term."""

    repeat: float | None  # initial weight of the repeat term
    trend: Trend | None
    log_decay: np.float32  # logarithm of the weight of a basket one basket later

    @property
    def weights(self) -> tuple[float | None, ...]:
        """The initial weights of users, for each of TERMS."""
        return self.repeat, None if self.trend is None else float(USER_TREND_START)

    def of_baskets(self, train: Interactions) -> Terms:
        """What the kernels know about the baskets of the training data; items by their index."""
        sales = NO_SALES
        if self.trend is not None:
            assert train.time is not None
            sales = self.trend.for_baskets(train.time[train.baskets[:-1]])
        return Terms(sales, self.log_decay, np.float32(self.repeat or 0.0))


class TermOptions(NamedTuple):
    """Which terms a model has."""

    repeat_decay: float | None
    half_life: float | None  # days

    @property
    def on(self) -> tuple[bool, ...]:
        """Whether the model has each of TERMS."""
        return self.repeat_decay is not None, self.half_life is not None

    def start(self, data: Interactions) -> TermStart:
        """Count what the terms start from."""
        repeat = None if self.repeat_decay is None else repeat_weight(data, self.repeat_decay)
        trend = None if self.half_life is None else Trend.of(data, self.half_life)
        return TermStart(repeat, trend, np.float32(np.log(self.repeat_decay or 1.0)))

    def trend_of(self, history: Interactions) -> GrowingTrend | None:
        """The trend of the items, if scores depend on it."""
        return None if self.half_life is None else GrowingTrend.grow(Trend.of(history, self.half_life))

    def add_repeats(self, scores: Floats, parameters: Parameters, history: Interactions, users: Ints) -> None:
        """Add the repeat term to the scores of each user's own items."""
        if self.repeat_decay is None:
            return
        sets, counts = history.item_sets, decayed_counts(history, self.repeat_decay)
        for row, user in enumerate(users):
            items, count = sets.row(user), counts[sets.indptr[user] : sets.indptr[user + 1]]
            weight = parameters.user_repeat[user] + parameters.item_repeat[items]
            scores[row, items] += weight * np.log1p(count)


def add_trend(
    scores: Floats,
    parameters: Parameters,
    trend: GrowingTrend | None,
    users: Ints,
    timestamps: Longs | None,
) -> None:
    """Add the trend term at the prediction times (None: after all events)."""
    if trend is not None:
        times = np.full(users.size, trend.end) if timestamps is None else timestamps
        trend.add_to(scores, parameters.user_trend[users], parameters.item_trend, times)
