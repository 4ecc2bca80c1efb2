"""TwoStage: a hundred or so candidates a user, then boosted trees over what is known about each of them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.estimator import check_number, check_whole
from shortlist.core.ragged import ItemSets
from shortlist.core.threads import thread_count
from shortlist.core.trees import Growth, Text, Trees, trees_grow
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.kernels.candidates import Asked, Rules
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.snapshots import N_FEATURES, Moments
from shortlist.models.base import Recommender
from shortlist.models.contract import FitOptions, ModelState
from shortlist.models.two_stage.snapshots import (
    ABOUT_USER,
    ANY,
    FEATURES,
    WINDOWS,
    Block,
    Timeline,
    last_moments,
)
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Bools, Doubles, Floats, Ints

SIZE = Growth(objective="poisson", n_rounds=150, lr=0.05, n_leaves=15, rows=0.7)


class Examples(NamedTuple):
    """What the trees learn from."""

    columns: Floats  # (n_rows, N_FEATURES)
    taken: Bools  # (n_rows,)
    weight: Floats  # (n_rows,)
    about: Floats  # (n_snapshots, n) columns of the user
    sizes: Doubles  # (n_snapshots,) items of the basket that followed


@dataclass(kw_only=True, eq=False, repr=False)
class TwoStage(Recommender):
    """Scores are log-odds that the user takes the item next; what is no candidate scores -inf.

    Training looks at users' last baskets, each as things stood the moment before; serving looks at the
    moment asked for, through the same code. `share` of the untaken candidates are kept for training and
    weighted up.
    """

    candidates_per_source: int = (
        40  # candidates from each source: own items, neighbours, followers, best sellers, taste
    )
    transition_window: int = 5  # baskets back from which transitions are followed
    decay: float = 0.7  # of transitions per basket back
    n_snapshots: int = 30_000  # baskets to learn from: everybody's last one, two, … while they fit
    negative_rate: float = 0.2
    n_bags: int = 2  # ensembles grown from different draws; their log-odds are averaged
    n_rounds: int = 120
    lr: float = 0.08
    n_leaves: int = 31
    min_leaf: int = 100
    without: tuple[str, ...] = ()  # features the trees may not see
    seed: int = 0
    n_threads: int = 0  # 0: every core

    def _learn(self, train: Interactions, options: FitOptions) -> "TwoStageState":
        timeline = self.lay_out(train)
        return self.learn(train, timeline, self.examples(timeline))

    def lay_out(self, train: Interactions) -> Timeline:
        """The data by time."""
        return Timeline(train, self.transition_window)

    def examples(self, timeline: Timeline) -> Examples:
        """All candidates that were taken, and a share of the others; the seed has no say."""
        rng = np.random.default_rng(0)
        moments = last_moments(timeline, self.n_snapshots)
        columns, taken, about = [np.empty((0, N_FEATURES), np.float32)], [np.empty(0, np.bool_)], []
        known = np.zeros(moments.user.size, np.bool_)
        for block in timeline.describe(self._rules(timeline), moments, n_threads=self._workers):
            kept = block.taken | (rng.random(block.taken.size) < self.negative_rate)
            columns.append(block.columns[kept])
            taken.append(block.taken[kept])
            filled = np.diff(block.indptr) > 0
            known[block.first : block.first + filled.size] = filled
            about.append(block.columns[block.indptr[:-1][filled]][:, ABOUT_USER])
        y = np.concatenate(taken)
        if not y.any():
            raise DataError(
                "TwoStage learns from users whose later baskets hold something that was proposed, got none; "
                "bring users with two baskets or more, or use a counting model."
            )
        weight = np.where(y, 1.0, 1 / self.negative_rate).astype(np.float32)
        sizes = np.diff(timeline.log.baskets)[moments.target[known]].astype(np.float64)
        return Examples(np.concatenate(columns), y, weight, np.concatenate(about), sizes)

    def learn(self, train: Interactions, timeline: Timeline, examples: Examples) -> "TwoStageState":
        """`fit` from examples made before, of the same data; only parameters of the trees may differ."""
        columns = self._seen(examples.columns)

        def grow(bag: int) -> Text:
            if bag == self.n_bags:
                return trees_grow(examples.about, examples.sizes, None, SIZE)
            growth = Growth(
                n_rounds=self.n_rounds,
                lr=self.lr,
                n_leaves=self.n_leaves,
                min_leaf=self.min_leaf,
                columns=0.5,
                rows=0.7,
                seed=self.seed * self.n_bags + bag,
            )
            return trees_grow(columns, examples.taken, examples.weight, growth)

        with ThreadPoolExecutor(self._workers) as pool:  # one thread each: the same bits anywhere
            *trees, sizes = pool.map(grow, range(self.n_bags + 1))
        return TwoStageState(history=train, trees=tuple(trees), sizes=sizes, timeline=timeline)

    def _check_params(self) -> None:
        check_whole(
            1,
            candidates_per_source=self.candidates_per_source,
            reach=self.transition_window,
            n_snapshots=self.n_snapshots,
            n_rounds=self.n_rounds,
        )
        check_whole(1, min_leaf=self.min_leaf, n_bags=self.n_bags)
        check_whole(2, n_leaves=self.n_leaves)
        check_whole(0, seed=self.seed, n_threads=self.n_threads)
        check_number(0, decay=self.decay, lr=self.lr, share=self.negative_rate)
        if not 0 < self.negative_rate <= 1:
            raise ConfigError(
                f"negative_rate must lie above 0 and be at most 1, got {self.negative_rate}; 1 keeps all."
            )
        for name in self.without:
            if name not in FEATURES:
                raise ConfigError(f"without must name features, got {name!r}; known: {', '.join(FEATURES)}.")

    def _rules(self, timeline: Timeline) -> Rules:
        windows = np.array(WINDOWS, np.int64) * DAY
        return Rules(
            windows, self.candidates_per_source, self.transition_window, self.decay, timeline.has_repeats
        )

    @property
    def _workers(self) -> int:
        return thread_count(self.n_threads)

    def _seen(self, columns: Floats) -> Floats:
        """The columns that the trees may see."""
        used = [k for k, name in enumerate(FEATURES) if name not in self.without]
        return columns if len(used) == len(FEATURES) else columns[:, used]

    def _add_history(self, state: "TwoStageState", history: Interactions, users: Ints) -> "TwoStageState":
        return replace(state, history=history, timeline=Timeline(history, self.transition_window))

    # ------------------------------------------------------------------ serving
    def score(self, request: RecommendRequest["TwoStageState"]) -> Scores:
        """Log-odds of the proposed or given candidates, and the expected size of the next basket."""
        state, users = request.state, request.users
        timeline = state.timeline
        end: Any = request.timestamps
        if end is None:
            end = (
                timeline.end
                if state.history.time is not None
                else np.diff(state.history.user_baskets)[users] * DAY
            )
        moment = np.ascontiguousarray(np.broadcast_to(np.asarray(end, np.int64), users.shape))
        order = np.argsort(moment, kind="stable")
        moments = Moments(users[order], moment[order], np.full(users.size, -1, np.int64))
        named, wanted = ANY, request.candidate_sets()
        if wanted is not None:
            sets = wanted.take(order)
            named = Asked(sets.indptr, sets.items, True)
        rows: list[Any] = [(np.empty(0, np.int32), np.empty(0, np.float32))] * users.size
        expected = np.ones(users.size)
        for block in timeline.describe(self._rules(timeline), moments, named, self._workers):
            numbers = order[block.first : block.first + block.indptr.size - 1]
            odds = self._log_odds(state, block).astype(np.float32)
            for k, number in enumerate(numbers):
                part = slice(block.indptr[k], block.indptr[k + 1])
                by_item = np.argsort(block.items[part], kind="stable")
                rows[number] = block.items[part][by_item], odds[part][by_item]
            filled = np.diff(block.indptr) > 0
            about = block.columns[block.indptr[:-1][filled]][:, ABOUT_USER]
            expected[numbers[filled]] = state.forests[1].predict(about)
        lengths = np.array([items.size for items, _ in rows], np.int64)
        candidates = ItemSets(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([np.empty(0, np.int32), *(items for items, _ in rows)]),
        )
        values = np.concatenate([np.empty(0, np.float32), *(odds for _, odds in rows)])
        return Scores(
            values=values,
            candidates=candidates,
            log_odds_shift=np.zeros(users.size, np.float32),
            expected_sizes=expected,
        )

    def _log_odds(self, state: "TwoStageState", block: Block) -> Doubles:
        """(n_candidates,) mean over the bags."""
        return state.forests[0].odds(self._seen(block.columns), self._workers)

    def _to_arrays(self, state: "TwoStageState") -> tuple[dict[str, Any], dict[str, Any]]:
        bags = {f"trees.{bag}": text for bag, text in enumerate(state.trees)}
        return {**bags, "sizes": state.sizes}, {"features": FEATURES}

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> "TwoStageState":
        if tuple(notes.get("features", ())) != FEATURES:
            raise ModelFileError(
                "this TwoStage was trained on other features than this version has; fit it again."
            )
        self.without = tuple(self.without)
        trees = tuple(arrays[f"trees.{bag}"] for bag in range(self.n_bags))
        timeline = Timeline(history, self.transition_window)
        return TwoStageState(history=history, trees=trees, sizes=arrays["sizes"], timeline=timeline)


@dataclass(frozen=True, eq=False, kw_only=True)
class TwoStageState(ModelState):
    """Trees and the replayable history."""

    trees: tuple[Text, ...]
    sizes: Text
    timeline: Timeline

    @cached_property
    def forests(self) -> tuple[Trees, Trees]:
        """Trees of what is bought, and of how many items."""
        return Trees(*self.trees), Trees(self.sizes)
