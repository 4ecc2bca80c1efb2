"""TwoStage: a hundred or so candidates a user, then boosted trees over what is known about each of them."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit

from shortlist.core.threads import thread_count
from shortlist.core.trees import Growth, Text, Trees, trees_grow
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.kernels.candidates import Asked, Rules
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.snapshots import N_FEATURES, Moments
from shortlist.kernels.topk import top_k
from shortlist.models.base import Recommender, at_least, whole
from shortlist.models.two_stage.snapshots import (
    ABOUT_USER,
    ANY,
    FEATURES,
    WINDOWS,
    Block,
    Timeline,
    asked_moments,
    last_moments,
)
from shortlist.recommend.batch import asked_users
from shortlist.recommend.item_filter import ItemFilter, alike
from shortlist.recommend.request import renamed
from shortlist.recommend.retrieve import Sets
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

SIZE = Growth(objective="poisson", n_rounds=150, lr=0.05, n_leaves=15, rows=0.7)


class Examples(NamedTuple):
    """What the trees learn from."""

    columns: Floats  # (n_rows, N_FEATURES)
    taken: Bools  # (n_rows,)
    weight: Floats  # (n_rows,)
    about: Floats  # (n_snapshots, n) columns of the user
    sizes: Doubles  # (n_snapshots,) items of the basket that followed


@dataclass(kw_only=True, eq=False)
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

    def fit(self, train: Interactions) -> Self:
        """Learn which candidates were taken, and how many items in all."""
        timeline = self.lay_out(train)
        return self.learn(train, timeline, self.examples(timeline))

    def lay_out(self, train: Interactions) -> Timeline:
        """The data by time."""
        self._check()
        self.check_data(train)
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

    def learn(self, train: Interactions, timeline: Timeline, examples: Examples) -> Self:
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
        self.trees_, self.sizes_ = tuple(trees), sizes
        vars(self).pop("_forests", None)
        self.remember(train)
        self.timeline = timeline
        return self

    def _check(self) -> None:
        whole(
            1,
            candidates_per_source=self.candidates_per_source,
            reach=self.transition_window,
            n_snapshots=self.n_snapshots,
            n_rounds=self.n_rounds,
        )
        whole(1, min_leaf=self.min_leaf, n_bags=self.n_bags)
        whole(2, n_leaves=self.n_leaves)
        whole(0, seed=self.seed, n_threads=self.n_threads)
        at_least(0, decay=self.decay, lr=self.lr, share=self.negative_rate)
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

    @cached_property
    def timeline(self) -> Timeline:
        """The data by time; laid out again after loading."""
        return Timeline(self.history, self.transition_window)

    def partial_fit(self, more: Interactions) -> Self:
        """Learn again with more data; new users and items are appended."""
        return self.fit(self.history.concat(more))

    def fold_in(self, newcomers: dict[Any, Any]) -> Self:
        """Take in one more basket of new or known users; the trees stay as they are."""
        self.need("trees_")
        self.remember(self.history.add_baskets(newcomers))
        return self

    def remember(self, data: Interactions) -> None:
        """Take up the data; what was worked out from other data is forgotten."""
        super().remember(data)
        for name in ("timeline", "_foretold"):
            vars(self).pop(name, None)

    # ------------------------------------------------------------------ serving
    def describe(
        self, users: Ints, at: Any = None, asked: Sets | None = None
    ) -> tuple[Longs, Iterable[Block]]:
        """(order, blocks): moment number k is that of users[order[k]]; `asked` names their candidates."""
        self.need("trees_")
        end = self._now(users) if at is None else at
        moment = np.ascontiguousarray(np.broadcast_to(np.asarray(end, np.int64), users.shape))
        order = np.argsort(moment, kind="stable")
        moments = Moments(users[order], moment[order], np.full(users.size, -1, np.int64))
        named = ANY
        if asked is not None:
            sets = asked.take(order)
            named = Asked(sets.indptr, sets.items, True)
        return order, self.timeline.describe(self._rules(self.timeline), moments, named, self._workers)

    def _now(self, users: Ints) -> Any:
        """Just after the last event; where nobody knows when that was, a user's next day."""
        if self.history.time is not None:
            return self.timeline.end
        return np.diff(self.history.user_baskets)[users] * DAY

    def recommend(
        self, users: Any = None, *, at: Any = None, candidates: Any = None, **wishes: Any
    ) -> RankedLists:
        """Lists made `at` a moment, from the candidates it proposes or from those that are named.

        A moment is a date, ISO 8601 or an epoch number; one for all or one per user; or Interactions, whose
        first rows say when each user is asked, as a test does. None, or no times: just after the last event.
        """
        wishes = renamed({**wishes, **({} if candidates is None else {"candidates": candidates})})
        named = wishes.get("candidates")
        users = wishes.pop("users", users)
        model = self
        if at is not None or named is not None:
            ids = asked_users(self, users)
            choice = ItemFilter.of("candidates", named, ids, self.items_)
            request = asked_moments(self.users_, self.timeline.end, ids, at), choice
            model = copy(self)
            vars(model).update(_request=request, _forests=self._forests)  # trees are read for all copies
        return super(TwoStage, model).recommend(users, **wishes)

    def score(self, users: Ints) -> Floats:
        at, choice = vars(self).get("_request", (None, ItemFilter()))
        asked = choice.sets(self.users_.to_ids(users), self.items_)
        if choice.shared is not None:
            asked = alike(choice.shared, users.size)
        return self.score_at(users, None if at is None else at[users], asked)

    def expected_sizes(self, users: Ints) -> Doubles:
        """(n,) how many items each user is expected to take next."""
        known, found = vars(self).get("_foretold", (None, None))
        if found is None or not np.array_equal(known, users):
            self.score(users)
            found = vars(self)["_foretold"][1]
        return np.asarray(found)

    def score_at(self, users: Ints, at: Any = None, asked: Sets | None = None) -> Floats:
        """(n, n_items) log-odds at moments `at` (microseconds, one or one per user; None: after all)."""
        order, blocks = self.describe(users, at, asked)
        scores = np.full((users.size, self.history.n_items), -np.inf, np.float32)
        expected = np.ones(users.size)
        for block in blocks:
            numbers = order[block.first : block.first + block.indptr.size - 1]
            odds = self._log_odds(block)
            scores[np.repeat(numbers, np.diff(block.indptr)), block.items] = odds
            self._foretell(block, numbers, expected)
        vars(self)["_foretold"] = users.copy(), expected  # a decider asks for them next
        return scores

    def _foretell(self, block: Block, numbers: Longs, expected: Doubles) -> None:
        """expected[numbers]: sizes of the next baskets, 1 of those who have no candidates."""
        filled = np.diff(block.indptr) > 0
        about = block.columns[block.indptr[:-1][filled]][:, ABOUT_USER]
        expected[numbers[filled]] = self._forests[1].predict(about)

    def heads(self, users: Ints, at: Any = None, n_candidates: int = 100) -> RankedLists:
        """The best candidates of each user, with probabilities and expected basket sizes."""
        return self.rank(users, *self.describe(users, at), n_candidates)

    def rank(
        self, users: Ints, order: Longs, blocks: Iterable[Block], n_candidates: int = 100
    ) -> RankedLists:
        """`heads` for users who are described already."""
        items, scores = (
            np.zeros((users.size, n_candidates), np.int32),
            np.zeros((users.size, n_candidates), np.float32),
        )
        found, expected = np.zeros(users.size, np.int64), np.ones(users.size)
        for block in blocks:
            numbers = order[block.first : block.first + block.indptr.size - 1]
            odds = self._log_odds(block).astype(np.float32)
            indptr, best, values = top_k(block.indptr, block.items, odds, n_candidates)
            found[numbers] = np.diff(indptr)
            row = np.repeat(numbers, np.diff(indptr))
            place = np.arange(best.size) - np.repeat(indptr[:-1], np.diff(indptr))
            items[row, place], scores[row, place] = best, values
            self._foretell(block, numbers, expected)
        kept = np.arange(n_candidates) < found[:, None]
        return RankedLists(
            users=IdMap(self.users_.to_ids(users)),
            item_ids=self.items_,
            indptr=np.concatenate([[0], np.cumsum(found)]).astype(np.int64),
            items=items[kept],
            scores=scores[kept],
            probabilities=np.asarray(expit(scores[kept].astype(np.float64))),
            expected_sizes=expected,
        )

    def _log_odds(self, block: Block) -> Doubles:
        """(n_candidates,) mean over the bags."""
        return self._forests[0].odds(self._seen(block.columns), self._workers)

    @cached_property
    def _forests(self) -> tuple[Trees, Trees]:
        """What is taken, and how many."""
        return Trees(*self.need("trees_")), Trees(self.sizes_)

    def log_odds_shift(self, users: Ints) -> Floats:
        """Scores are log-odds already."""
        return np.zeros(users.size, np.float32)

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        bags = {f"trees.{bag}": text for bag, text in enumerate(self.need("trees_"))}
        return {**bags, "sizes": self.sizes_}, {"features": FEATURES}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        if tuple(notes.get("features", ())) != FEATURES:
            raise ModelFileError(
                "the TwoStage saved here was taught other features than this release has; fit it again."
            )
        self.trees_ = tuple(arrays[f"trees.{bag}"] for bag in range(self.n_bags))
        self.sizes_ = arrays["sizes"]
        self.without = tuple(self.without)
