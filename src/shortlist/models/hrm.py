"""HRM and DK-HRM: what the user usually takes and what stood in the last basket, pooled (paper §3.3)."""

from dataclasses import dataclass, field

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.fold import AVERAGE, MAXIMUM
from shortlist.kernels.hrm import (
    Contexts,
    Trace,
    context_apply,
    hrm_round,
    hybrid_vectors,
    past_strengths,
    repeats_tally,
)
from shortlist.kernels.mf import Parameters, Rates
from shortlist.kernels.rows import factor_width
from shortlist.models.base import at_least, whole
from shortlist.models.counting import faded_counts
from shortlist.models.joint import DynamicK, JointModel
from shortlist.models.objective import Objective
from shortlist.models.representation import Representation
from shortlist.models.strata import Schedule, read_only
from shortlist.types import Doubles, Floats, Ints, Longs

POOLS = ("average", "max")


@dataclass(eq=False)
class Hybrid(Representation):
    """Groups are baskets; a basket's context is the `window` baskets before it."""

    train: Interactions
    window: int
    max_items: bool
    max_user: bool
    memory: float | None
    own: Contexts = field(init=False)  # items by their own index
    labelled: Contexts = field(init=False)  # items by their place in this era

    least_blocks = 64  # short rounds, so that contexts are read fresh

    def __post_init__(self) -> None:
        train = self.train
        n_baskets = np.diff(train.user_baskets)
        user = np.repeat(np.arange(train.n_users, dtype=np.int32), n_baskets)
        first = np.repeat(train.user_baskets[:-1], n_baskets)
        here = np.arange(train.n_baskets)
        begin = train.baskets[np.maximum(here - self.window, first)]
        end, fade = train.baskets[:-1].copy(), np.float32(np.log(self.memory or 1.0))
        level = np.float32(0 if self.memory is None else habit_level(train, self.memory))
        self.own = Contexts(user, begin, end, train.item, self.max_items, self.max_user, fade, level)

    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        return train.baskets, train.item, train.user_baskets

    def enter(self, schedule: Schedule) -> None:
        self.labelled = self.own._replace(item=schedule.label[self.own.item])

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

    def strengths(self, groups: Ints, items: Ints) -> Floats | None:
        if self.memory is None:
            return None
        first, out = self.train.user_baskets[self.own.user[groups]], np.empty(groups.size, np.float32)
        past_strengths(groups, items, first, self.train.baskets, self.train.item, self.own.fade, out)
        return out


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


def habit_level(data: Interactions, memory: float) -> float:
    """How much log-odds a unit of past strength is worth, by counting alone."""
    trace = Trace(
        np.zeros(data.n_items, np.int32),
        np.empty(data.n_items, np.float32),
        np.empty(data.n_items, np.int32),
        np.empty(data.n_items, np.int32),
    )
    fade = np.float32(np.log(memory))
    chances, takes, total = repeats_tally(data.user_baskets, data.baskets, data.item, fade, trace)
    usual = data.n_rows / (data.n_baskets * data.n_items)  # the chance of any item to be in a basket
    return float(max(np.log(takes / chances / usual), 0.0) * takes / total) if takes else 0.0


@dataclass(kw_only=True, eq=False)
class HRM(JointModel):
    """Rank the next basket's items from the user and the last `window` baskets (Wang et al., 2015).

    `pool_items` joins the items of the context, `pool_user` joins the user with them: average or max. With
    `memory`, what the user took before counts beside the factors: (a_u + b_i) · ln(1 + past baskets with item
    i), each basket counting memory^(baskets since). a_u and b_i are learned, a_u from where counting puts it,
    and what is taken again is held against the rest of the user's past in half of its pairs.
    """

    pool_items: str = "average"
    pool_user: str = "average"
    window: int = 1
    memory: float | None = None

    def objective(self) -> Objective:
        return Objective()

    def representation(self, train: Interactions) -> Representation:
        return Hybrid(train, self.window, self.pool_items == "max", self.pool_user == "max", self.memory)

    def vectors_of(self, theta: Parameters, history: Interactions, users: Ints) -> Floats:
        last = history.user_baskets[users + 1]
        begin = history.baskets[np.maximum(last - self.window, history.user_baskets[users])]
        contexts = Contexts(
            users,
            begin,
            history.baskets[last],
            history.item,
            self.pool_items == "max",
            self.pool_user == "max",
            np.float32(0),
            np.float32(0),
        )
        return vectors_at(theta, contexts)

    def scores_of(self, theta: Parameters, history: Interactions, users: Ints) -> Floats:
        scores = super().scores_of(theta, history, users)
        if self.memory is not None:
            indptr, items = history.item_sets
            counts = self._counts(history, self.memory)
            for row, user in enumerate(users):
                own = slice(indptr[user], indptr[user + 1])
                weight = theta.habit[user] + theta.repeat[items[own]]
                scores[row, items[own]] += weight * np.log1p(counts[own])
        return scores

    def _counts(self, history: Interactions, memory: float) -> Floats:
        """Kept for the history at hand: training asks after every epoch."""
        kept: tuple[Interactions, float, Floats] | None = vars(self).get("_kept")
        if kept is None or kept[0] is not history or kept[1] != memory:
            kept = self._kept = history, memory, faded_counts(history, memory)
        return kept[2]

    @property
    def repeats(self) -> bool:
        return self.memory is not None

    def habits(self, data: Interactions) -> Floats:
        if self.memory is None:
            return super().habits(data)
        return np.full(data.n_users, habit_level(data, self.memory), np.float32)

    @property
    def pool(self) -> int:
        return MAXIMUM if self.pool_user == "max" else AVERAGE

    def n_taken(self, history: Interactions, users: Ints) -> Doubles:
        rows, baskets = np.diff(history.indptr)[users], np.diff(history.user_baskets)[users]
        return np.asarray(rows / np.maximum(baskets, 1))

    def check_start(self, train: Interactions) -> None:
        if not (np.diff(train.user_baskets) > 1).any():
            raise DataError(
                f"{type(self).__name__} learns from the second basket of a user on, got data without one; "
                "bring timestamps or basket ids, or use BPRMF or DKBPRMF."
            )

    def _check(self, data: Interactions) -> Objective:
        whole(1, window=self.window)
        if self.memory is not None:
            at_least(0, memory=self.memory)
        if self.memory is not None and not 0 < self.memory <= 1:
            raise ConfigError(
                f"memory must lie above 0 and be at most 1, or be None, got {self.memory}; try 0.9."
            )
        for name in ("pool_items", "pool_user"):
            if getattr(self, name) not in POOLS:
                raise ConfigError(f"{name} must be one of {', '.join(POOLS)}, got {getattr(self, name)!r}.")
        return super()._check(data)


@dataclass(kw_only=True, eq=False)
class DKHRM(DynamicK, HRM):
    """HRM with a personal decision boundary, learned jointly (paper §3.3)."""

    t: float = 2.0
