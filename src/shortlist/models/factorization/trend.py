"""Sales by item and day, from which trend scores are computed for any day."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from shortlist.core.growing import GrowingArray
from shortlist.data.interactions import Interactions
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.trend import Sales, decay_sales, trend_scores
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


MAX_CACHED_DAYS = 16
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
    cache: dict[int, Floats] = field(default_factory=dict)  # trend scores of recently requested days

    @classmethod
    def of(cls, data: Interactions, half_life: float) -> "Trend":
        """Count the sales of data with timestamps; memory grows with the rows, not with items × days."""
        return cls.build(*count_sales(data), data.n_items, half_life, data.end_time)

    @classmethod
    def build(cls, keys: Longs, count: Longs, n_items: int, half_life: float, end: int) -> "Trend":
        """From the number of sales of each item on each day; `end` is just after the last sale."""
        return cls._build(keys, count, n_items, -np.log(2) / half_life, end)

    @classmethod
    def _build(cls, keys: Longs, count: Longs, n_items: int, log_decay: float, end: int) -> "Trend":
        """From the sales of items on days."""
        item, day = (keys >> DAY_BITS).astype(np.int32), _day_of(keys)
        decayed, total = _accumulate(item, day, count, log_decay)
        at = np.searchsorted(item, np.arange(n_items + 1)).astype(np.int64)
        sales = NO_SALES._replace(
            begin=at[:-1].copy(),
            end=at[1:].copy(),
            day=day,
            decayed=decayed.astype(np.float32),
            total=total.astype(np.float32),
            log_decay=np.float32(log_decay),
        )
        days, number = np.unique(day, return_inverse=True)
        per_day = np.bincount(number, weights=count).astype(np.int64)
        overall = _accumulate(np.zeros(days.size, np.int32), days, per_day, log_decay)
        return cls(sales, days, *overall, end, keys, count)

    def add(self, more: Longs, half_life: float, end: int) -> "Trend":
        """With the sales of these keys, in any order; the result is that of `of` on all sales."""
        keys, place = np.unique(np.concatenate([self.keys, more]), return_inverse=True)
        counts = np.concatenate([self.count, np.ones(more.size, np.int64)])
        count = np.bincount(place, weights=counts).astype(np.int64)
        return Trend._build(keys, count, self.sales.begin.size, -np.log(2) / half_life, end)

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
    half_life: float
    end: int  # just after the last sale, in microseconds
    pending: GrowingArray  # keys of the sales that are not counted
    first_day: int  # of the pending sales
    is_shared: bool = False  # whether it counts the sales of users in other shards, too

    @classmethod
    def of(cls, data: Interactions, half_life: float) -> "GrowingTrend":
        """All sales are counted."""
        return cls.grow(Trend.of(data, half_life), half_life)

    @classmethod
    def grow(cls, trend: Trend, half_life: float, is_shared: bool = False) -> "GrowingTrend":
        """A trend to which sales can be added."""
        none = GrowingArray(np.empty(0, np.int64))
        return cls(trend, half_life, trend.end, none, NEVER, is_shared)

    def observe(self, item: Ints, time: Longs) -> "GrowingTrend":
        """With more sales."""
        if not item.size:
            return self
        keys, day, end = sale_keys(item, time), int(time.min() // DAY), max(self.end, int(time.max()) + 1)
        if "complete" in vars(self):
            return replace(self, counted=self.complete, end=end, pending=GrowingArray(keys), first_day=day)
        pending = self.pending.append(keys)
        return replace(self, end=end, pending=pending, first_day=min(day, self.first_day))

    @cached_property
    def complete(self) -> Trend:
        """The trend with all sales counted."""
        return self.counted.add(self.pending.values, self.half_life, self.end)

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
    keys = sale_keys(data.item, data.time)
    keys.sort()
    return _count_runs(keys)


def add_sales(parts: Iterable[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    """(keys, counts) of all parts together."""
    total = np.empty(0, np.int64), np.empty(0, np.int64)
    for part in parts:
        keys, place = np.unique(np.concatenate([total[0], part[0]]), return_inverse=True)
        counts = np.bincount(place, weights=np.concatenate([total[1], part[1]]), minlength=keys.size)
        total = keys, counts.astype(np.int64)
    return total


def _day_of(keys: Longs) -> Ints:
    return ((keys & ((1 << DAY_BITS) - 1)) - FIRST_DAY).astype(np.int32)


def _count_runs(keys: Longs) -> tuple[Longs, Longs]:
    """(distinct keys, number of occurrences) of ascending keys."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.diff(first, append=keys.size)


def _accumulate(item: Ints, day: Ints, count: Longs, log_decay: float) -> tuple[Doubles, Doubles]:
    decayed, total = np.empty(item.size), np.empty(item.size)
    decay_sales(item, day, count, log_decay, decayed, total)
    return decayed, total
