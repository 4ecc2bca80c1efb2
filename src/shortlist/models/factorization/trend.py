"""Sales by item and day, from which trend scores are computed for any day."""

from dataclasses import dataclass, field

import numpy as np

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
    cache: dict[int, Floats] = field(default_factory=dict)  # trend scores of recently requested days

    @classmethod
    def of(cls, data: Interactions, half_life: float) -> "Trend":
        """Count the sales of data with timestamps; memory grows with the rows, not with items × days."""
        assert data.time is not None
        day, log_decay = to_days(data.time), -np.log(2) / half_life
        first, span = int(day.min()), int(day.max()) - int(day.min()) + 1
        keys = data.item.astype(np.int64) * span + (day - first)
        keys.sort()
        keys, count = _count_runs(keys)
        item, day = (keys // span).astype(np.int32), (keys % span + first).astype(np.int32)
        decayed, total = _accumulate(item, day, count, log_decay)
        at = np.searchsorted(item, np.arange(data.n_items + 1)).astype(np.int64)
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
        return cls(sales, days, *overall, int(data.time.max()) + 1)

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


def relabel_sales(sales: Sales, label: Ints) -> Sales:
    """Index the items by `label` (n_items,); the entries are not moved."""
    if not sales.begin.size:
        return sales
    begin, end = np.empty_like(sales.begin), np.empty_like(sales.end)
    begin[label], end[label] = sales.begin, sales.end
    return sales._replace(begin=begin, end=end)


def _count_runs(keys: Longs) -> tuple[Longs, Longs]:
    """(distinct keys, number of occurrences) of ascending keys."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.diff(first, append=keys.size)


def _accumulate(item: Ints, day: Ints, count: Longs, log_decay: float) -> tuple[Doubles, Doubles]:
    decayed, total = np.empty(item.size), np.empty(item.size)
    decay_sales(item, day, count, log_decay, decayed, total)
    return decayed, total
