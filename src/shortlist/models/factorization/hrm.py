"""HRM and DK-HRM: what the user usually takes and what stood in the last basket, pooled (paper §3.3)."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.fold import AVERAGE, MAXIMUM
from shortlist.kernels.hrm import USER_TREND_START, Contexts
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.mf import Parameters
from shortlist.models.base import at_least, whole
from shortlist.models.counting import faded_counts
from shortlist.models.factorization.engine import DynamicK, JointModel
from shortlist.models.factorization.hybrid import Hybrid, repeat_level, vectors_at
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.trend import NOTHING, Trend
from shortlist.models.two_stage.snapshots import asked_moments
from shortlist.recommend.batch import asked_users
from shortlist.recommend.request import renamed
from shortlist.types import Doubles, Floats, Ints, Longs

POOLS = ("average", "max")
Made = TypeVar("Made")


@dataclass(kw_only=True, eq=False)
class HRM(JointModel):
    """Rank the next basket's items from the user and the last `window` baskets (Wang et al., 2015).

    `pool_items` joins the items of the context, `pool_user` joins the user with them: average or max. With
    `memory`, what the user took before counts beside the factors: (a_u + b_i) · ln(1 + past baskets with item
    i), each basket counting memory^(baskets since). a_u and b_i are learned, a_u from where counting puts it,
    and what is taken again is held against the rest of the user's past in half of its pairs. With `trend`,
    what sells these days counts: (c_u + d_i) · ln(sales of item i / its usual ones), where a sale counts half
    after `trend` days and only whole days before the basket's count. c_u starts at 1; both are learned.
    """

    pool_items: str = "average"
    pool_user: str = "average"
    window: int = 1
    repeat_decay: float | None = None
    trend_half_life: float | None = None

    def objective(self) -> Objective:
        return Objective()

    def representation(self, train: Interactions, history: Interactions) -> Representation:
        pools, sales = (self.pool_items == "max", self.pool_user == "max"), NOTHING
        if self.trend_half_life is not None:
            assert train.time is not None
            sales = self._kept(Trend.of, history, self.trend_half_life).before(train.time[train.baskets[:-1]])
        return Hybrid(train, self.window, *pools, self.repeat_decay, sales)

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

    def scores_of(
        self, theta: Parameters, history: Interactions, users: Ints, at: Longs | None = None
    ) -> Floats:
        scores = super().scores_of(theta, history, users, at)
        if self.repeat_decay is not None:
            indptr, items = history.item_sets
            counts = self._kept(faded_counts, history, self.repeat_decay)
            for row, user in enumerate(users):
                own = slice(indptr[user], indptr[user + 1])
                weight = theta.user_repeat[user] + theta.item_repeat[items[own]]
                scores[row, items[own]] += weight * np.log1p(counts[own])
        if self.trend_half_life is not None:
            trend = self._kept(Trend.of, history, self.trend_half_life)
            moment = np.full(users.size, trend.end) if at is None else at
            trend.add(scores, theta.user_trend[users], theta.item_trend, moment)
        return scores

    def offsets(self, theta: Parameters, history: Interactions) -> Floats:
        bias = super().offsets(theta, history)
        if self.trend_half_life is None:
            return bias
        trend = self._kept(Trend.of, history, self.trend_half_life)
        lately: Floats = (USER_TREND_START + theta.item_trend) * trend.trend_scores(trend.end // DAY)
        return lately + bias if bias.size else lately

    def _kept(self, make: Callable[[Interactions, float], Made], history: Interactions, by: float) -> Made:
        """What is made of the history at hand, made once: training asks after every epoch."""
        store = vars(self).setdefault("_store", {})
        known = store.get(make)
        if known is None or known[0] is not history or known[1] != by:
            known = store[make] = history, by, make(history, by)
        made: Made = known[2]
        return made

    def score(self, users: Ints) -> Floats:
        moments = vars(self).get("_moments")
        at = None if moments is None else moments[users]
        return self.scores_of(self.need("theta_"), self.history_, users, at)

    def recommend(self, users: Any = None, *, at: Any = None, **wishes: Any) -> RankedLists:
        """Lists made `at` a moment, which matters to a model with a `trend`: sales before that day count.

        Moments are given as to `TwoStage.recommend`; None, or no times: just after the last event.
        """
        if self.trend_half_life is None or at is None:
            return super().recommend(users, **wishes)
        wishes = renamed(wishes)
        users = wishes.pop("users", users)
        end = self._kept(Trend.of, self.history, self.trend_half_life).end
        model = copy(self)
        vars(model)["_moments"] = asked_moments(self.users_, end, asked_users(self, users), at)
        return super(HRM, model).recommend(users, **wishes)

    def levels(self, data: Interactions) -> tuple[float | None, ...]:
        past = None if self.repeat_decay is None else repeat_level(data, self.repeat_decay)
        return past, None if self.trend_half_life is None else float(USER_TREND_START)

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
        if self.repeat_decay is not None:
            at_least(0, repeat_decay=self.repeat_decay)
        if self.repeat_decay is not None and not 0 < self.repeat_decay <= 1:
            raise ConfigError(
                f"repeat_decay must lie above 0 and be at most 1, or be None, got {self.repeat_decay}; try 0.9."
            )
        if self.trend_half_life is not None:
            at_least(0, trend_half_life=self.trend_half_life)
            if self.trend_half_life == 0:
                raise ConfigError("trend_half_life must be above 0 days, or be None, got 0; try 3.")
        for name in ("pool_items", "pool_user"):
            if getattr(self, name) not in POOLS:
                raise ConfigError(f"{name} must be one of {', '.join(POOLS)}, got {getattr(self, name)!r}.")
        objective = super()._check(data)
        if self.trend_half_life is not None and data.time is None:
            raise ConfigError(
                "trend_half_life needs timestamps, got data without them; bring a time column or leave trend_half_life None."
            )
        return objective


@dataclass(kw_only=True, eq=False)
class DKHRM(DynamicK, HRM):
    """HRM with a personal decision boundary, learned jointly (paper §3.3)."""

    t: float = 2.0
