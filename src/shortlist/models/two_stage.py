"""TwoStage: a few hundred candidates a user, then boosted trees over what is known about each of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from shortlist.data.ids import Ids
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.head import rows_head
from shortlist.kernels.moments import N_FEATURES, Moments, Rules
from shortlist.kernels.shelf import DAY
from shortlist.models.base import Recommender, at_least, whole
from shortlist.models.moments import FEATURES, WINDOWS, Block, Timeline
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


@dataclass(kw_only=True, eq=False)
class TwoStage(Recommender):
    """Scores are log-odds that the user takes the item next; items that are no candidates score -inf.

    Training looks back at each user's last `n_targets` baskets, each as it stood the moment before; serving
    looks at the moment asked for by the same code. `share` of the untaken candidates are kept for training
    and weighted up.
    """

    quota: int = 40
    reach: int = 3
    decay: float = 0.6
    n_targets: int = 2
    share: float = 0.3
    n_rounds: int = 250
    lr: float = 0.05
    n_leaves: int = 31
    min_leaf: int = 100
    without: tuple[str, ...] = ()  # features left out
    seed: int = 0
    n_threads: int = 1

    def fit(self, train: Interactions) -> Self:
        """Learn which of the candidates were taken."""
        self._check()
        self.check_data(train)
        timeline = Timeline(train, self.reach)
        moments = last_moments(timeline, self.n_targets)
        columns, taken, weight = self._examples(timeline, moments)
        if not taken.any():
            raise DataError(
                "TwoStage learns from users with at least two baskets whose later items were proposed, "
                "got none; bring more history, or use a counting model."
            )
        self.text_ = self._boost(columns, taken, weight)
        self.remember(train)
        self.timeline = timeline
        return self

    def _check(self) -> None:
        whole(1, quota=self.quota, reach=self.reach, n_targets=self.n_targets, n_rounds=self.n_rounds)
        whole(2, n_leaves=self.n_leaves)
        whole(1, min_leaf=self.min_leaf)
        whole(0, seed=self.seed, n_threads=self.n_threads)
        at_least(0, decay=self.decay, lr=self.lr, share=self.share)
        if not 0 < self.share <= 1:
            raise ConfigError(f"share must lie above 0 and be at most 1, got {self.share}; 1 keeps all.")
        strangers = [name for name in self.without if name not in FEATURES]
        if strangers:
            raise ConfigError(
                f"without names features, got {strangers[0]!r}; known are {', '.join(FEATURES)}."
            )

    def _rules(self, returns: bool) -> Rules:
        windows = np.array(WINDOWS, np.int64) * DAY
        return Rules(windows, self.quota, self.reach, self.decay, returns)

    @property
    def _used(self) -> Longs:
        return np.array([k for k, name in enumerate(FEATURES) if name not in self.without])

    def _examples(self, timeline: Timeline, moments: Moments) -> tuple[Floats, Bools, Floats]:
        """(columns, taken, weight): all that was taken, and a share of what was not."""
        rng = np.random.default_rng(self.seed)
        columns, taken = [np.empty((0, N_FEATURES), np.float32)], [np.empty(0, np.bool_)]
        for block in timeline.describe(self._rules(timeline.returns), moments):
            kept = block.taken | (rng.random(block.taken.size) < self.share)
            columns.append(block.columns[kept])
            taken.append(block.taken[kept])
        y = np.concatenate(taken)
        return np.concatenate(columns)[:, self._used], y, np.where(y, 1.0, 1 / self.share).astype(np.float32)

    def _boost(self, columns: Floats, taken: Bools, weight: Floats) -> Any:
        lightgbm = _lightgbm()
        settings = {
            "objective": "binary",
            "learning_rate": self.lr,
            "num_leaves": self.n_leaves,
            "min_data_in_leaf": self.min_leaf,
            "feature_fraction": 0.5,
            "bagging_fraction": 0.7,
            "bagging_freq": 1,
            "lambda_l2": 5.0,
            "max_bin": 127,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": self.n_threads,
            "seed": self.seed,
            "verbose": -1,
        }
        data = lightgbm.Dataset(columns, taken, weight=weight, params={"verbose": -1, "max_bin": 127})
        booster = lightgbm.train(settings, data, self.n_rounds)
        return np.frombuffer(booster.model_to_string().encode(), np.uint8)

    @cached_property
    def timeline(self) -> Timeline:
        """The data by time; made again after loading."""
        return Timeline(self.past, self.reach)

    def _scored(self, users: Ints, at: Longs) -> Iterator[tuple[Longs, Block, Doubles]]:
        """(numbers of the users, their candidates, log-odds), block by block in order of time."""
        booster = _lightgbm().Booster(model_str=self.need("text_").tobytes().decode())
        order = np.argsort(at, kind="stable")
        moments = Moments(users[order], at[order], np.full(users.size, -1, np.int64))
        for block in self.timeline.describe(self._rules(self.timeline.returns), moments):
            odds = np.empty(0)
            if block.items.size:
                rows = block.columns[:, self._used]
                odds = booster.predict(rows, raw_score=True, num_threads=self.n_threads)
            yield order[block.first : block.first + block.indptr.size - 1], block, np.asarray(odds)

    def score(self, users: Ints) -> Floats:
        return self.score_at(users)

    def score_at(self, users: Ints, at: Any = None) -> Floats:
        """(n, n_items) log-odds at moments `at` (microseconds, one or one per user; None: after all)."""
        self.need("text_")
        scores = np.full((users.size, self.past.n_items), -np.inf, np.float32)
        for numbers, block, odds in self._scored(users, self._moments(users, at)):
            scores[np.repeat(numbers, np.diff(block.indptr)), block.items] = odds
        return scores

    def heads(self, users: Ints, at: Any = None, M: int = 100) -> RankedLists:
        """The best M candidates of each user at its moment, with probabilities."""
        self.need("text_")
        items, scores = np.empty((users.size, M), np.int32), np.empty((users.size, M), np.float32)
        sizes = np.zeros(users.size, np.int64)
        for numbers, block, odds in self._scored(users, self._moments(users, at)):
            n = numbers.size
            best, value, size = np.empty(n * M, np.int32), np.empty(n * M, np.float32), np.zeros(n, np.int64)
            rows_head(block.indptr, block.items, odds.astype(np.float32), M, best, value, size)
            items[numbers], scores[numbers], sizes[numbers] = best.reshape(n, M), value.reshape(n, M), size
        kept = np.arange(M) < sizes[:, None]
        found = scores[kept]
        return RankedLists(
            users=Ids(self.users_.outside(users)),
            item_ids=self.items_,
            indptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            items=items[kept],
            scores=found,
            probabilities=1 / (1 + np.exp(-found.astype(np.float64))),
        )

    def _moments(self, users: Ints, at: Any) -> Longs:
        moment = self.timeline.end if at is None else at
        return np.ascontiguousarray(np.broadcast_to(np.asarray(moment, np.int64), users.shape))

    def log_odds_shift(self, users: Ints) -> Floats:
        """Scores are log-odds already."""
        return np.zeros(users.size, np.float32)

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"trees": self.need("text_")}, {}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        self.text_ = arrays["trees"]


def last_moments(timeline: Timeline, n_targets: int) -> Moments:
    """The last baskets of every user as things to foretell; a user's first basket is never one."""
    log = timeline.log
    number = np.arange(log.moment.size)
    user = log.owner
    latest = log.user_baskets[user + 1] - number
    target = number[(latest <= n_targets) & (number > log.user_baskets[user])]
    target = target[np.argsort(log.moment[target], kind="stable")]
    return Moments(user[target], log.moment[target], target)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(
            "TwoStage needs LightGBM, which is not installed; pip install 'shortlist[trees]'."
        ) from None
    return lightgbm
