"""HRM and DK-HRM: what the user usually takes and what stood in the last basket, pooled (paper §3.3)."""

from dataclasses import dataclass, field

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.fold import AVERAGE, MAXIMUM
from shortlist.kernels.hrm import Contexts, context_apply, hrm_round, hybrid_vectors
from shortlist.kernels.mf import Parameters, Rates
from shortlist.kernels.rows import factor_width
from shortlist.models.base import whole
from shortlist.models.joint import DynamicK, JointModel
from shortlist.models.objective import Objective
from shortlist.models.representation import Representation
from shortlist.models.strata import Schedule
from shortlist.types import Doubles, Floats, Ints, Longs

POOLS = ("average", "max")


@dataclass(eq=False)
class Hybrid(Representation):
    """Groups are baskets; a basket's context is the `window` baskets before it."""

    train: Interactions
    window: int
    max_items: bool
    max_user: bool
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
        self.own = Contexts(user, begin, train.baskets[:-1].copy(), train.item, self.max_items, self.max_user)

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
        asked = self.labelled._replace(begin=self.own.begin[groups], end=self.own.end[groups])
        vectors = np.empty((groups.size, theta.item.shape[1]), np.float32)
        hybrid_vectors(
            self.own.user[groups], theta.user, theta.item, asked, vectors, factor_width(vectors.shape[1])
        )
        return vectors

    def group_users(self, groups: Ints) -> Ints:
        return self.own.user[groups]


@dataclass(kw_only=True, eq=False)
class HRM(JointModel):
    """Rank the next basket's items from the user and the last `window` baskets (Wang et al., 2015).

    `pool_items` joins the items of the context, `pool_user` joins the user with them: average or max.
    """

    pool_items: str = "average"
    pool_user: str = "average"
    window: int = 1

    def objective(self) -> Objective:
        return Objective()

    def representation(self, train: Interactions) -> Representation:
        return Hybrid(train, self.window, self.pool_items == "max", self.pool_user == "max")

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
        )
        vectors = np.empty((users.size, theta.item.shape[1]), np.float32)
        hybrid_vectors(users, theta.user, theta.item, contexts, vectors, factor_width(vectors.shape[1]))
        return vectors

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
        for name in ("pool_items", "pool_user"):
            if getattr(self, name) not in POOLS:
                raise ConfigError(f"{name} must be one of {', '.join(POOLS)}, got {getattr(self, name)!r}.")
        return super()._check(data)


@dataclass(kw_only=True, eq=False)
class DKHRM(DynamicK, HRM):
    """HRM with a personal decision boundary, learned jointly (paper §3.3)."""

    t: float = 2.0
