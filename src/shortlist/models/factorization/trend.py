"""Sales laid out by item and day, so that what was selling when any day began can be looked up."""

from dataclasses import dataclass, field

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.trend import Sales, sales_fade, trend_scores
from shortlist.types import Doubles, Floats, Ints, Longs

NOTHING = Sales(
    begin=np.zeros(0, np.int64),
    end=np.zeros(0, np.int64),
    day=np.zeros(0, np.int32),
    faded=np.zeros(0, np.float32),
    sold=np.zeros(0, np.float32),
    fade=np.float32(0),
    today=np.zeros(0, np.int32),
    usual=np.zeros(0, np.float32),
)


KEPT_DAYS = 16  # of trend scores


def days_of(moments: Longs) -> Ints:
    """Whole days since 1970, by UTC."""
    return (moments // DAY).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Trend:
    """What sold when, by item and in all; a sale counts half after some days."""

    sales: Sales  # items by their own index; no baskets yet
    day: Ints  # (n_days,) on which anything sold, ascending
    faded: Doubles  # (n_days,) sales up to each
    sold: Doubles  # (n_days,)
    end: int  # just after the last sale, in microseconds
    kept: dict[int, Floats] = field(default_factory=dict)  # scores of the days asked for last

    @classmethod
    def of(cls, data: Interactions, half_life: float) -> "Trend":
        """Laid out in as much memory as there are rows."""
        assert data.time is not None
        day, fade = days_of(data.time), -np.log(2) / half_life
        first, span = int(day.min()), int(day.max()) - int(day.min()) + 1
        keys = data.item.astype(np.int64) * span + (day - first)
        keys.sort()
        keys, count = _counted(keys)
        item, day = (keys // span).astype(np.int32), (keys % span + first).astype(np.int32)
        faded, sold = _summed(item, day, count, fade)
        at = np.searchsorted(item, np.arange(data.n_items + 1)).astype(np.int64)
        sales = NOTHING._replace(
            begin=at[:-1].copy(),
            end=at[1:].copy(),
            day=day,
            faded=faded.astype(np.float32),
            sold=sold.astype(np.float32),
            fade=np.float32(fade),
        )
        days, number = np.unique(day, return_inverse=True)
        in_all = np.bincount(number, weights=count).astype(np.int64)
        shop = _summed(np.zeros(days.size, np.int32), days, in_all, fade)
        return cls(sales, days, *shop, int(data.time.max()) + 1)

    def usual(self, days: Ints) -> Floats:
        """(n,) faded sales of all items before each day, per sale; 0 before the first."""
        at = np.searchsorted(self.day, days) - 1  # -1 is looked up too, and thrown away
        kept = np.exp(np.float64(self.sales.fade) * (days - 1 - self.day[at]))
        return np.where(at < 0, 0.0, self.faded[at] * kept / self.sold[at]).astype(np.float32)

    def before(self, moments: Longs) -> Sales:
        """Ready for baskets of these moments."""
        today = days_of(moments)
        return self.sales._replace(today=today, usual=self.usual(today))

    def trend_scores(self, day: int | np.integer) -> Floats:
        """(n_items,) how much more than usual each item was selling when the day began."""
        kept = self.kept.get(int(day))
        if kept is not None:
            return kept
        n = self.sales.begin.size
        days, out = np.full(n, day, np.int32), np.empty(n, np.float32)
        trend_scores(self.sales, np.arange(n, dtype=np.int32), days, self.usual(days), out)
        if len(self.kept) >= KEPT_DAYS:
            self.kept.clear()
        self.kept[int(day)] = out
        return out

    def add(self, scores: Floats, own: Floats, each: Floats, moments: Longs) -> None:
        """Scores (n, n_items) grow by (own (n,) + each (n_items,)) · trend_score, at the moments (n,)."""
        day = days_of(moments)
        for one in np.unique(day):
            rows = np.flatnonzero(day == one)
            scores[rows] += (own[rows, None] + each) * self.trend_scores(one)


def relabelled(sales: Sales, label: Ints) -> Sales:
    """Items by their places under `label` (n_items,); the entries stay where they are."""
    if not sales.begin.size:
        return sales
    begin, end = np.empty_like(sales.begin), np.empty_like(sales.end)
    begin[label], end[label] = sales.begin, sales.end
    return sales._replace(begin=begin, end=end)


def _counted(keys: Longs) -> tuple[Longs, Longs]:
    """(distinct keys, how often each occurs); keys must be ascending."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.diff(first, append=keys.size)


def _summed(item: Ints, day: Ints, count: Longs, fade: float) -> tuple[Doubles, Doubles]:
    faded, sold = np.empty(item.size), np.empty(item.size)
    sales_fade(item, day, count, fade, faded, sold)
    return faded, sold
