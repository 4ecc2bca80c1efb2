"""Baskets as groups, and what stood before each: HRM's way to a score vector (paper eq. 12-16)."""

from dataclasses import dataclass, field

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.hrm import Contexts, context_apply, hrm_round, hybrid_vectors
from shortlist.kernels.mf import Parameters, Rates
from shortlist.kernels.repeats import Trace, past_strengths, repeats_tally
from shortlist.kernels.simd import factor_width
from shortlist.kernels.trend import Sales, trend_scores
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.schedule import Schedule, read_only
from shortlist.models.factorization.trend import relabelled
from shortlist.types import Floats, Ints, Longs


@dataclass(eq=False)
class Hybrid(Representation):
    """Groups are baskets; a basket's context is the `window` baskets before it."""

    train: Interactions
    window: int
    max_items: bool
    max_user: bool
    repeat_decay: float | None
    sales: Sales  # items by their own index
    own: Contexts = field(init=False)  # items by their own index
    labelled: Contexts = field(init=False)  # items by their place in this era
    labelled_sales: Sales = field(init=False)

    least_blocks = 64  # short rounds, so that contexts are read fresh

    def __post_init__(self) -> None:
        train = self.train
        n_baskets = np.diff(train.user_baskets)
        user = np.repeat(np.arange(train.n_users, dtype=np.int32), n_baskets)
        first = np.repeat(train.user_baskets[:-1], n_baskets)
        here = np.arange(train.n_baskets)
        begin = train.baskets[np.maximum(here - self.window, first)]
        end, fade = train.baskets[:-1].copy(), np.float32(np.log(self.repeat_decay or 1.0))
        level = np.float32(0 if self.repeat_decay is None else repeat_level(train, self.repeat_decay))
        self.own = Contexts(user, begin, end, train.item, self.max_items, self.max_user, fade, level)

    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        return train.baskets, train.item, train.user_baskets

    def enter(self, schedule: Schedule) -> None:
        self.labelled = self.own._replace(item=schedule.label[self.own.item])
        self.labelled_sales = relabelled(self.sales, schedule.label)

    def run_round(
        self, schedule: Schedule, turn: int, theta: Parameters, rates: Rates, word: np.uint64
    ) -> None:
        n_blocks, n_factors = schedule.n_blocks, theta.item.shape[1]
        blocks = np.arange(n_blocks)
        cell = blocks * schedule.n_ranges + (blocks + turn) % n_blocks * schedule.cut.each
        visits = schedule.strata.cells[cell + schedule.cut.each] - schedule.strata.cells[cell]
        debt_at = np.concatenate([[0], np.cumsum(visits)])
        debts = np.empty((int(debt_at[-1]), n_factors), np.float32)
        snapshot = theta.item.copy()
        schedule.spread(
            hrm_round,
            n_blocks,
            turn,
            schedule.strata,
            self.labelled,
            self.labelled_sales,
            schedule.size,
            snapshot,
            theta,
            debts,
            debt_at,
            rates,
            word,
            factor_width(n_factors),
        )
        schedule.spread(
            context_apply,
            theta.item.shape[0],
            turn,
            schedule.strata,
            self.labelled,
            snapshot,
            theta.item,
            debts,
            debt_at,
            factor_width(n_factors),
        )

    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        asked = self.labelled._replace(
            user=self.own.user[groups], begin=self.own.begin[groups], end=self.own.end[groups]
        )
        return vectors_at(theta, asked)

    def group_users(self, groups: Ints) -> Ints:
        return self.own.user[groups]

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        past, recent = None, None
        if self.repeat_decay is not None:
            first, past = self.train.user_baskets[self.own.user[groups]], np.empty(groups.size, np.float32)
            past_strengths(groups, items, first, self.train.baskets, self.train.item, self.own.fade, past)
        if self.sales.begin.size:
            recent = np.empty(groups.size, np.float32)
            trend_scores(self.sales, items, self.sales.today[groups], self.sales.usual[groups], recent)
        return past, recent


def vectors_at(theta: Parameters, contexts: Contexts) -> Floats:
    """(n, n_factors) the score vectors of the groups of `contexts`, in their order."""
    out = np.empty((contexts.user.size, theta.item.shape[1]), np.float32)
    # whoever asks, the kernel sees arrays of one kind, and is compiled once
    asked = contexts._replace(
        user=read_only(contexts.user),
        begin=read_only(contexts.begin),
        end=read_only(contexts.end),
        item=read_only(contexts.item),
    )
    hybrid_vectors(read_only(theta.user), read_only(theta.item), asked, out, factor_width(out.shape[1]))
    return out


def repeat_level(data: Interactions, repeat_decay: float) -> float:
    """How much log-odds a unit of past strength is worth, by counting alone."""
    trace = Trace(
        np.zeros(data.n_items, np.int32),
        np.empty(data.n_items, np.float32),
        np.empty(data.n_items, np.int32),
        np.empty(data.n_items, np.int32),
    )
    fade = np.float32(np.log(repeat_decay))
    chances, takes, total = repeats_tally(data.user_baskets, data.baskets, data.item, fade, trace)
    usual = data.n_rows / (data.n_baskets * data.n_items)  # the chance of any item to be in a basket
    return float(max(np.log(takes / chances / usual), 0.0) * takes / total) if takes else 0.0
