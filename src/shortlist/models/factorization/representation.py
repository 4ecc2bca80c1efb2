"""Representations: how a user, with or without the previous baskets, becomes a score vector."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.rows import read_only, starts
from shortlist.kernels.sgd import (
    SIGNAL_UNITS,
    TERMS,
    ContextGradients,
    Contexts,
    HybridRound,
    Hyperparameters,
    Parameters,
    RepeatSignal,
    Sales,
    apply_context_gradients,
    count_repeats,
    decay_sales,
    hybrid_vectors,
    repeat_signals,
    sgd_round,
    trend_scores,
)
from shortlist.kernels.simd import factor_width
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import WeightTransform, decayed_counts
from shortlist.models.factorization.schedule import Schedule
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

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


class Representation(ABC):
    """How training forms groups of the rows, runs a round, and computes score vectors.

    Groups are divided by `indptr` (n_groups + 1,) and hold rows of `item`; those of a user start at
    `group_starts` (n_users + 1,).
    """

    indptr: Longs
    item: Ints
    group_starts: Longs
    min_blocks: ClassVar[int] = 4

    @abstractmethod
    def amounts(self, train: Interactions, transform: WeightTransform) -> Doubles:
        """(n_rows,) what each row of the groups counts, by its weight."""

    def relabel(self, label: Ints) -> None:  # noqa: B027  # optional
        """Adapt to new labels; called after every relabeling, before the next round."""

    def run_round(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
    ) -> None:
        """Make the steps of one round; items are in the order of schedule.label."""
        steps = round_index, schedule.strata, theta, hyper, key, factor_width(theta.user.shape[1]), None
        schedule.run_parallel(sgd_round, schedule.n_blocks, *steps)

    @abstractmethod
    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        """(n, n_factors) the score vectors of training groups; items are in the order of schedule.label."""

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        """For each of TERMS, the signal (n,) of each item in its group; None if the term is not used."""
        return (None,) * len(TERMS)

    @abstractmethod
    def group_users(self, groups: Ints) -> Ints:
        """(n,) the user of each group."""

    @property
    @abstractmethod
    def trained_groups(self) -> Bools:
        """(n_groups,) whether training makes steps for a group."""


class UserFactors(Representation):
    """Matrix factorization: the score vector is the user's factors, and a group is the user's history."""

    def __init__(self, train: Interactions) -> None:
        self.indptr, self.item = train.item_sets.indptr, train.item_sets.items
        self.group_starts = np.arange(train.n_users + 1, dtype=np.int64)

    def amounts(self, train: Interactions, transform: WeightTransform) -> Doubles:
        return decayed_counts(train, 1.0, transform).astype(np.float64)

    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        return theta.user[groups]

    def group_users(self, groups: Ints) -> Ints:
        return groups

    @property
    def trained_groups(self) -> Bools:
        return np.diff(self.indptr) > 0


class HybridFactors(Representation):
    """HRM: groups are baskets, and the context of a basket is the `window` baskets before it (eq. 12-16)."""

    min_blocks: ClassVar[int] = 64  # short rounds, so that contexts are read from a recent snapshot
    labeled_contexts: Contexts  # items by their current label
    labeled_sales: Sales

    def __init__(
        self,
        train: Interactions,
        window: int,
        max_pool_items: bool,
        max_pool_user: bool,
        repeat_decay: float | None,
        repeat_start: float,  # the initial weight of the repeat term
        sales: Sales,  # items by their index
    ) -> None:
        self.indptr, self.item, self.group_starts = train.baskets, train.item, train.user_baskets
        self.sales, self.uses_repeats = sales, repeat_decay is not None
        n_baskets = train.basket_counts
        first = np.repeat(train.user_baskets[:-1], n_baskets)
        self.contexts = Contexts(  # items by their index
            np.repeat(np.arange(train.n_users, dtype=np.int32), n_baskets),
            train.baskets[np.maximum(np.arange(train.n_baskets) - window, first)],
            train.baskets[:-1].copy(),
            train.item,
            max_pool_items,
            max_pool_user,
            log_decay=np.float32(np.log(repeat_decay or 1.0)),
            repeat_start=np.float32(repeat_start),
        )

    def amounts(self, train: Interactions, transform: WeightTransform) -> Doubles:
        amounts = transform.of_rows(train)
        return np.ones(train.n_rows) if amounts is None else amounts

    def relabel(self, label: Ints) -> None:
        self.labeled_contexts = self.contexts._replace(item=label[self.contexts.item])
        self.labeled_sales = relabel_sales(self.sales, label)

    def run_round(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
    ) -> None:
        n_blocks, (n_items, n_factors) = schedule.n_blocks, theta.item.shape
        strata, each, width = schedule.strata, schedule.partition.ranges_per_block, factor_width(n_factors)
        numbers = np.arange(n_blocks)
        cell = numbers * schedule.n_ranges + (numbers + round_index) % n_blocks * each
        visit_starts = starts(strata.cells[cell + each] - strata.cells[cell])
        gradients = np.empty((int(visit_starts[-1]), n_factors), np.float32)
        collected = ContextGradients(theta.item.copy(), gradients, visit_starts)
        hybrid = HybridRound(self.labeled_contexts, collected, self.labeled_sales)
        schedule.run_parallel(sgd_round, n_blocks, round_index, strata, theta, hyper, key, width, hybrid)
        # the gradients of the contexts, in the order of the visits
        updates = round_index, strata, self.labeled_contexts, collected, theta.item, width
        schedule.run_parallel(apply_context_gradients, n_items, *updates)

    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        user, begin, end = self.contexts.user, self.contexts.begin, self.contexts.end
        chosen = self.labeled_contexts._replace(user=user[groups], begin=begin[groups], end=end[groups])
        return context_vectors(theta, chosen)

    def group_users(self, groups: Ints) -> Ints:
        return self.contexts.user[groups]

    @property
    def trained_groups(self) -> Bools:
        return self.contexts.begin < self.contexts.end  # a first basket has no context

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        repeat, trend = None, None
        if self.uses_repeats:
            first, repeat = self.group_starts[self.group_users(groups)], np.empty(groups.size, np.float32)
            repeat_signals(groups, items, first, self.indptr, self.item, self.contexts.log_decay, repeat)
        if self.sales.begin.size:
            trend = np.empty(groups.size, np.float32)
            days, recent_share = self.sales.group_day[groups], self.sales.recent_share[groups]
            trend_scores(self.sales, items, days, recent_share, trend)
        return repeat, trend


def context_vectors(theta: Parameters, contexts: Contexts) -> Floats:
    """(n, n_factors) the score vectors of the groups of `contexts`, in their order."""
    out = np.empty((contexts.user.size, theta.item.shape[1]), np.float32)
    # all callers pass read-only arrays, so that the kernel is compiled once
    contexts = contexts._replace(
        user=read_only(contexts.user),
        begin=read_only(contexts.begin),
        end=read_only(contexts.end),
        item=read_only(contexts.item),
    )
    hybrid_vectors(read_only(theta.user), read_only(theta.item), contexts, out, factor_width(out.shape[1]))
    return out


def repeat_weight(data: Interactions, repeat_decay: float) -> float:
    """The log-odds that one unit of repeat signal adds to an item, estimated by counting."""
    kinds = (np.int32, np.float32, np.int32, np.int32)
    counts = RepeatSignal(*(np.zeros(data.n_items, kind) for kind in kinds))  # type: ignore[arg-type]
    log_decay = np.float32(np.log(repeat_decay))
    # items of the history over all baskets, how many of them are repeated, and the sum of their signals
    n_candidates, n_repeats, units = map(
        int, count_repeats(data.user_baskets, data.baskets, data.item, log_decay, counts)
    )
    if not n_repeats:
        return 0.0
    base_rate = data.n_rows / (data.n_baskets * data.n_items)  # probability that a basket has an item
    ratio = n_repeats / n_candidates / base_rate
    return float(max(np.log(ratio), 0.0) * n_repeats / (units / SIGNAL_UNITS))
