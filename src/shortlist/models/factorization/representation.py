"""Representations: how a user, with or without the previous baskets, becomes a score vector."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np

from shortlist.core.ragged import read_only, starts
from shortlist.data.interactions import Interactions
from shortlist.kernels.hrm import (
    ContextGradients,
    Contexts,
    apply_context_gradients,
    hrm_round,
    hybrid_vectors,
)
from shortlist.kernels.mf import TERMS, Hyperparameters, Parameters, mf_round
from shortlist.kernels.repeats import SIGNAL_UNITS, RepeatCounts, count_repeats, repeat_signals
from shortlist.kernels.simd import factor_width
from shortlist.kernels.trend import Sales, trend_scores
from shortlist.models.counting import decayed_counts
from shortlist.models.factorization.schedule import Schedule
from shortlist.models.factorization.trend import relabel_sales
from shortlist.models.weighting import WeightTransform
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


class Representation(ABC):
    """How training forms groups of rows, runs a round, and computes score vectors."""

    min_blocks = 4
    changes_all_items: ClassVar[bool] = False  # whether a step changes items outside the block's ranges

    @abstractmethod
    def part(self, first: int, last: int) -> Self:
        """The representation of users first … last - 1 alone, counted from 0."""

    @abstractmethod
    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        """(indptr, item, group_starts): the rows of each group, and where the groups of each user start."""

    @abstractmethod
    def amounts(self, train: Interactions, transform: WeightTransform) -> Doubles:
        """(n_rows,) what each row of the groups counts, by its weight."""

    def relabel(self, schedule: Schedule) -> None:  # noqa: B027  # optional
        """Adapt to new labels; called after every relabeling, before the next round."""

    @abstractmethod
    def run_round(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
        blocks: tuple[int, int] | None = None,  # (first, last); None: all blocks whose rows are here
    ) -> None:
        """Make the steps of one round; items are in the order of schedule.label."""

    @abstractmethod
    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        """(n, n_factors) the score vectors of training groups; items are in the order of schedule.label."""

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        """For each of TERMS, the signal (n,) of each item in its group; None if the term is not used."""
        return (None,) * len(TERMS)

    @abstractmethod
    def group_users(self, groups: Ints) -> Ints:
        """(n,) the user of each group."""

    @abstractmethod
    def trained_groups(self, indptr: Longs) -> Bools:
        """(n_groups,) whether training makes steps for a group with these rows."""


@dataclass(eq=False)
class UserFactors(Representation):
    """Matrix factorization: the score vector is the user's factors, and a group is the user's history."""

    def part(self, first: int, last: int) -> Self:
        return self

    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        indptr, items = train.item_sets
        return indptr, items, np.arange(train.n_users + 1, dtype=np.int64)

    def amounts(self, train: Interactions, transform: WeightTransform) -> Doubles:
        return decayed_counts(train, 1.0, transform).astype(np.float64)

    def run_round(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
        blocks: tuple[int, int] | None = None,
    ) -> None:
        width = factor_width(theta.user.shape[1])
        args = round_index, schedule.strata, schedule.user_starts, theta, hyper, key, width
        schedule.run_blocks(mf_round, blocks, *args)

    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        return theta.user[groups]

    def group_users(self, groups: Ints) -> Ints:
        return groups

    def trained_groups(self, indptr: Longs) -> Bools:
        return np.diff(indptr) > 0


class Baskets(NamedTuple):
    """The items of each basket, and the baskets of each user; see `Interactions`."""

    user_baskets: Longs  # (n_users + 1,)
    baskets: Longs  # (n_baskets + 1,)
    item: Ints  # (n_rows,)


@dataclass(eq=False)
class HybridFactors(Representation):
    """HRM: groups are baskets, and the context of a basket is the `window` baskets before it (eq. 12-16)."""

    rows: Baskets
    contexts: Contexts  # items by their index
    sales: Sales  # items by their index
    uses_repeats: bool
    labeled_contexts: Contexts = field(init=False)  # items by their current label
    labeled_sales: Sales = field(init=False)

    min_blocks = 64  # short rounds, so that contexts are read from a recent snapshot
    changes_all_items: ClassVar[bool] = True  # the items of contexts may lie anywhere

    @classmethod
    def of(
        cls,
        train: Interactions,
        window: int,
        max_pool_items: bool,
        max_pool_user: bool,
        repeat_decay: float | None,
        repeat_start: float,  # the initial weight of the repeat term
        sales: Sales,
    ) -> Self:
        """The baskets of `train` with their contexts."""
        n_baskets = np.diff(train.user_baskets)
        user = np.repeat(np.arange(train.n_users, dtype=np.int32), n_baskets)
        first = np.repeat(train.user_baskets[:-1], n_baskets)
        begin = train.baskets[np.maximum(np.arange(train.n_baskets) - window, first)]
        contexts = Contexts(
            user,
            begin,
            train.baskets[:-1].copy(),
            train.item,
            max_pool_items,
            max_pool_user,
            log_decay=np.float32(np.log(repeat_decay or 1.0)),
            repeat_start=np.float32(repeat_start),
        )
        rows = Baskets(train.user_baskets, train.baskets, train.item)
        return cls(rows, contexts, sales, repeat_decay is not None)

    def part(self, first: int, last: int) -> Self:
        rows, contexts, sales = self.rows, self.contexts, self.sales
        groups = slice(int(rows.user_baskets[first]), int(rows.user_baskets[last]))
        begin, end = int(rows.baskets[groups.start]), int(rows.baskets[groups.stop])
        if sales.begin.size:
            sales = sales._replace(group_day=sales.group_day[groups], recent_share=sales.recent_share[groups])
        item = rows.item[begin:end]
        return type(self)(
            Baskets(
                rows.user_baskets[first : last + 1] - groups.start,
                rows.baskets[groups.start : groups.stop + 1] - begin,
                item,
            ),
            contexts._replace(
                user=contexts.user[groups] - np.int32(first),
                begin=contexts.begin[groups] - begin,
                end=contexts.end[groups] - begin,
                item=item,
            ),
            sales,
            self.uses_repeats,
        )

    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        return self.rows.baskets, self.rows.item, self.rows.user_baskets

    def amounts(self, train: Interactions, transform: WeightTransform) -> Doubles:
        found = transform.of_rows(train)
        return np.ones(train.n_rows) if found is None else found

    def relabel(self, schedule: Schedule) -> None:
        self.labeled_contexts = self.contexts._replace(item=schedule.label[self.contexts.item])
        self.labeled_sales = relabel_sales(self.sales, schedule.label)

    def run_round(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
        blocks: tuple[int, int] | None = None,
    ) -> None:
        collected = self.run_steps(schedule, round_index, theta, hyper, key, blocks)
        self.apply_gradients(schedule, round_index, theta, collected)

    def run_steps(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
        blocks: tuple[int, int] | None = None,
    ) -> ContextGradients:
        """Make the steps of a round; return the gradients of the contexts, which are not applied yet."""
        n_blocks, n_factors = schedule.n_blocks, theta.item.shape[1]
        strata, each = schedule.strata, schedule.partition.ranges_per_block
        numbers = np.arange(n_blocks)
        cell = numbers * schedule.n_ranges + (numbers + round_index) % n_blocks * each
        visit_starts = starts(strata.cells[cell + each] - strata.cells[cell])
        gradients = np.empty((int(visit_starts[-1]), n_factors), np.float32)
        collected = ContextGradients(theta.item.copy(), gradients, visit_starts)
        contexts, width = self.labeled_contexts, factor_width(n_factors)
        steps = round_index, strata, contexts, collected, self.labeled_sales, theta, hyper, key, width
        schedule.run_blocks(hrm_round, blocks, *steps)
        return collected

    def apply_gradients(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        collected: ContextGradients,
        items: tuple[int, int] | None = None,  # (first, last); None: all items
    ) -> None:
        """Apply the gradients of the contexts to these items, in the order of the visits."""
        first, last = (0, theta.item.shape[0]) if items is None else items
        contexts, width = self.labeled_contexts, factor_width(theta.item.shape[1])
        updates = round_index, schedule.strata, contexts, collected, theta.item, width
        schedule.run_parallel(apply_context_gradients, first, last, *updates)

    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        known = self.contexts
        return context_vectors(
            theta,
            self.labeled_contexts._replace(
                user=known.user[groups], begin=known.begin[groups], end=known.end[groups]
            ),
        )

    def group_users(self, groups: Ints) -> Ints:
        return self.contexts.user[groups]

    def trained_groups(self, indptr: Longs) -> Bools:
        return self.contexts.begin < self.contexts.end  # a first basket has no context

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        repeat, trend = None, None
        if self.uses_repeats:
            user_baskets, baskets, item = self.rows
            first, repeat = user_baskets[self.group_users(groups)], np.empty(groups.size, np.float32)
            repeat_signals(groups, items, first, baskets, item, self.contexts.log_decay, repeat)
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


class RepeatTotals(NamedTuple):
    """Whole numbers, so that the totals of parts of the users can be added in any order."""

    n_candidates: int  # items of the history, over all baskets
    n_repeats: int
    units: int  # sum of their signals, see SIGNAL_UNITS

    @classmethod
    def of(cls, data: Interactions, repeat_decay: float) -> Self:
        """Count over all baskets of some users."""
        kinds = (np.int32, np.float32, np.int32, np.int32)
        counts = RepeatCounts(*(np.zeros(data.n_items, kind) for kind in kinds))  # type: ignore[arg-type]
        log_decay = np.float32(np.log(repeat_decay))
        return cls(*map(int, count_repeats(data.user_baskets, data.baskets, data.item, log_decay, counts)))

    def initial_weight(self, n_rows: int, n_baskets: int, n_items: int) -> float:
        """The log-odds that one unit of repeat signal adds to an item, estimated by counting."""
        if not self.n_repeats:
            return 0.0
        base_rate = n_rows / (n_baskets * n_items)  # probability that a basket contains an item
        ratio = self.n_repeats / self.n_candidates / base_rate
        return float(max(np.log(ratio), 0.0) * self.n_repeats / (self.units / SIGNAL_UNITS))


def initial_repeat_weight(data: Interactions, repeat_decay: float) -> float:
    """The log-odds that one unit of repeat signal adds to an item, estimated by counting."""
    return RepeatTotals.of(data, repeat_decay).initial_weight(data.n_rows, data.n_baskets, data.n_items)
