"""TwoStage: candidates from several sources, ranked by boosted trees over features of user and item."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from shortlist.core.checks import check_array, check_names
from shortlist.core.estimator import MAX_SEED, check_number, check_whole, short_repr
from shortlist.core.ragged import ItemSets, starts
from shortlist.core.threads import thread_count
from shortlist.core.trees import Text, TreeEnsemble, TreeParams, fit_trees
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.kernels.item_stats import DAY, Rules
from shortlist.kernels.snapshots import Snapshots
from shortlist.models.base import Recommender
from shortlist.models.contract import FitOptions, ModelState
from shortlist.models.two_stage.features import FEATURES, PROPOSED, USER_FEATURES, compute_features
from shortlist.models.two_stage.quantities import QUANTITY_FEATURES
from shortlist.models.two_stage.request_blocks import compute_blocks
from shortlist.models.two_stage.snapshots import WINDOWS, EventReplay, select_last_snapshots
from shortlist.models.weighting import WeightParams
from shortlist.recommend.explain import Contributions, largest_first
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

SIZE_PARAMS = TreeParams(objective="poisson", n_rounds=150, lr=0.05, n_leaves=15, rows=0.7)
BATCH = 4096  # users scored at once


class Examples(NamedTuple):
    """Training examples: candidates of snapshots, and the snapshots' users; from `compute_examples`."""

    replay: EventReplay  # the data that the examples come from
    snapshots: Snapshots  # (n_snapshots,) users just before a basket
    owner: Longs  # (n_rows,) snapshot of each candidate
    items: Ints  # (n_rows,)
    features: Floats  # (n_rows, N_FEATURES) or more
    labels: Bools  # (n_rows,) whether the user bought the candidate next
    weight: Floats  # (n_rows,)
    user_features: Floats  # (n_snapshots, n)
    sizes: Doubles  # (n_snapshots,) sizes of the baskets that followed


@dataclass(frozen=True, eq=False, kw_only=True)
class TwoStageState(ModelState):
    """The trained trees, and the history in a form that can be replayed."""

    replay: EventReplay
    ranker_texts: tuple[Text, ...]
    size_text: Text
    ranker: TreeEnsemble  # log-odds that the next basket contains the candidate
    size_trees: TreeEnsemble  # logarithm of the size of the next basket


@dataclass(kw_only=True, eq=False, repr=False)
class TwoStage(WeightParams, Recommender):
    """Propose candidates from several sources, then rank them by boosted trees.

    Candidates are items that the user bought before, items often bought together with them or after them,
    best sellers of the last days and of all time, and the items with the highest EASE scores. The trees see
    48 features of user and item, all computed from events before the prediction time. Scores are log-odds
    that the user buys the item next. A second ensemble predicts the size of the next basket.

    Training replays the history: each example is a user just before one of their last baskets, described by
    the code that also serves requests. Fitting needs LightGBM (`pip install 'shortlist[trees]'`); serving a
    fitted model does not.

    Parameters
    ----------
    candidates_per_source
        Maximum number of candidates of each source: twice as many for the user's own items, half as many for
        EASE.
    transition_window
        How many baskets back a transition to a later basket may start.
    decay
        Factor on a transition for each basket further back.
    n_snapshots
        Maximum number of baskets to learn from: the last one of every user, the last two, and so on.
    negative_rate
        Share of the candidates not bought that are kept for training. They are weighted by its inverse.
    n_bags
        Ensembles trained with different seeds; their log-odds are averaged.
    n_rounds
        Number of trees per ensemble.
    lr
        Step size of the trees.
    n_leaves
        Number of leaves per tree.
    min_leaf
        Minimum number of examples per leaf.
    exclude_features
        Names of features that the trees must not use.
    seed
        The same seed gives the same model, bit for bit, on any number of threads.
    n_threads
        Number of threads for training; 0 uses every core.
    weighting, weight_cap
        As in `Popularity`. Other values than "none" add eight features of quantities, such as the quantity of
        the user's last purchase of the item. Rows of negative weight are then returns, not purchases.

    Examples
    --------
    >>> data = sl.load_dataset("sample")
    >>> model = sl.TwoStage(n_rounds=5, n_bags=1, n_snapshots=500).fit(data)
    >>> lists = model.recommend(data.users.values[:2], N=3)
    >>> lists.lengths.tolist()
    [3, 3]
    """

    candidates_per_source: int = 40
    transition_window: int = 5
    decay: float = 0.7
    n_snapshots: int = 30_000
    negative_rate: float = 0.2
    n_bags: int = 2
    n_rounds: int = 120
    lr: float = 0.08
    n_leaves: int = 31
    min_leaf: int = 100
    exclude_features: tuple[str, ...] = ()
    seed: int = 0
    n_threads: int = 0

    def _convert_param(self, name: str, value: Any) -> Any:
        return tuple(value) if name == "exclude_features" and isinstance(value, list) else value

    def _check_params(self) -> None:
        self.weight_transform.check()
        check_whole(1, candidates_per_source=self.candidates_per_source, n_snapshots=self.n_snapshots)
        check_whole(1, transition_window=self.transition_window, n_rounds=self.n_rounds)
        check_whole(1, min_leaf=self.min_leaf)
        check_whole(1, 1000, n_bags=self.n_bags)
        check_whole(2, n_leaves=self.n_leaves)
        check_whole(0, n_threads=self.n_threads)
        check_whole(0, MAX_SEED, seed=self.seed)
        check_number(0, decay=self.decay, lr=self.lr, negative_rate=self.negative_rate)
        if not 0 < self.negative_rate <= 1:
            raise ConfigError(
                f"negative_rate must be above 0 and at most 1, got {self.negative_rate}; 1 keeps all."
            )
        if not isinstance(self.exclude_features, tuple):
            raise ConfigError(f"exclude_features must be a list, got {short_repr(self.exclude_features)}.")
        unknown = [name for name in self.exclude_features if name not in (*FEATURES, *QUANTITY_FEATURES)]
        if unknown:
            raise ConfigError(
                f"exclude_features must name features, got {short_repr(unknown[0])}; the features are listed "
                "in shortlist.models.two_stage.features.FEATURES."
            )

    # ------------------------------------------------------------------ training
    def compute_examples(self, train: Interactions | Any) -> Examples:
        """Compute the training examples of `fit`, to train several models on them.

        Parameters
        ----------
        train
            Interactions, in any form that `fit` accepts.

        Returns
        -------
        The examples. They depend on `candidates_per_source`, `transition_window`, `decay`, `n_snapshots` and
        `negative_rate`, and not on the seed.

        Raises
        ------
        DataError
            If no user bought a proposed item in a later basket.

        Examples
        --------
        >>> base = sl.TwoStage(n_snapshots=500, n_rounds=5, n_bags=1)
        >>> examples = base.compute_examples(sl.load_dataset("sample"))
        >>> models = [base.clone().set_params(seed=s).fit_from_examples(examples) for s in range(2)]
        """
        data = self._check_data(train)
        replay, rng = self._replay(History.of(data)), np.random.default_rng(0)
        log, n_threads = replay.layout.log, thread_count(self.n_threads)
        snapshots = select_last_snapshots(log, self.n_snapshots)
        used, parts = np.zeros(snapshots.user.size, np.bool_), []
        quantities = replay.layout.quantities
        blocks = compute_features(replay, log.users, snapshots, PROPOSED, n_threads, quantities)
        for block in blocks:
            kept = block.labels | (rng.random(block.labels.size) < self.negative_rate)
            numbers = block.first + np.arange(block.indptr.size - 1)
            used[numbers] = block.non_empty
            owner = np.repeat(numbers, np.diff(block.indptr))[kept]
            rows = owner, block.items[kept], block.features[kept], block.labels[kept], block.user_features
            parts.append(rows)
        if not any(part[3].any() for part in parts):
            raise DataError(
                "TwoStage needs users whose later baskets contain a proposed item, got none; "
                "add users with two or more baskets, or use Popularity or PersonalFrequency."
            )
        owner, items, features, y, user_features = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Examples(
            replay=replay,
            snapshots=Snapshots(snapshots.user[used], snapshots.at[used], snapshots.target[used]),
            owner=(np.cumsum(used) - 1)[owner],
            items=items,
            features=features,
            labels=y,
            weight=np.where(y, 1.0, 1 / self.negative_rate).astype(np.float32),
            user_features=user_features,
            sizes=np.diff(log.users.baskets)[snapshots.target[used]].astype(np.float64),
        )

    def fit_from_examples(self, examples: Examples) -> Self:
        """Fit on examples computed before; the result is that of `fit` on the same data.

        Parameters
        ----------
        examples
            The result of `compute_examples` of a model with the same parameters, except those of the trees
            (`n_bags`, `n_rounds`, `lr`, `n_leaves`, `min_leaf`, `exclude_features`, `seed`).

        Returns
        -------
        The model itself.

        Raises
        ------
        ConfigError
            If the examples were computed with other candidates.

        Examples
        --------
        >>> model = sl.TwoStage(n_snapshots=500, n_rounds=5, n_bags=1)
        >>> examples = model.compute_examples(sl.load_dataset("sample"))
        >>> model = model.fit_from_examples(examples)
        """
        known = examples.replay
        same = known.rules[1:] == self._rules(known.history)[1:]
        if not same or known.transform != self.weight_transform:
            raise ConfigError(
                "examples must be computed with the same candidates_per_source, transition_window, decay and "
                "weighting; call compute_examples of this model."
            )
        with self._lock:
            self._state = self._train(examples)
        return self

    def predict_examples(self, examples: Examples) -> tuple[Doubles, Doubles]:
        """Predict for examples as for the requests they stand for.

        Parameters
        ----------
        examples
            The result of `compute_examples`, of this or of another model.

        Returns
        -------
        The log-odds of each candidate, and the expected basket size of each snapshot.

        Examples
        --------
        >>> model = sl.TwoStage(n_snapshots=500, n_rounds=5, n_bags=1)
        >>> examples = model.compute_examples(sl.load_dataset("sample"))
        >>> log_odds, sizes = model.fit_from_examples(examples).predict_examples(examples)
        """
        state: TwoStageState = self._fitted_state()
        log_odds = state.ranker.raw_scores(self._select(examples.features), self.n_threads)
        return log_odds, state.size_trees.predict(examples.user_features)

    def _learn(self, train: Interactions, options: FitOptions) -> TwoStageState:
        return self._train(self.compute_examples(train))

    def _train(self, examples: Examples) -> TwoStageState:
        """Train each ensemble on one thread, so that the number of threads does not change the bits."""
        features = self._select(examples.features)

        def train(bag: int) -> Text:
            if bag == self.n_bags:
                return fit_trees(examples.user_features, examples.sizes, None, SIZE_PARAMS)
            params = TreeParams(
                n_rounds=self.n_rounds,
                lr=self.lr,
                n_leaves=self.n_leaves,
                min_leaf=self.min_leaf,
                columns=0.5,
                rows=0.7,
                seed=self.seed * self.n_bags + bag,
            )
            return fit_trees(features, examples.labels, examples.weight, params)

        with ThreadPoolExecutor(thread_count(self.n_threads)) as pool:
            *texts, size_text = pool.map(train, range(self.n_bags + 1))
        return _build_state(examples.replay, tuple(texts), size_text)

    def _rules(self, history: Interactions | History) -> Rules:
        return Rules(
            np.array(WINDOWS, np.int64) * DAY,
            min(self.candidates_per_source, 2 * history.n_items),  # half of it are still all items
            self.transition_window,
            self.decay,
            history.has_repeats,
        )

    def _replay(self, history: History) -> EventReplay:
        return EventReplay(history, self._rules(history), transform=self.weight_transform)

    def _feature_names(self) -> tuple[str, ...]:
        """All features that are computed."""
        return (*FEATURES, *QUANTITY_FEATURES) if self.weight_transform.is_used else FEATURES

    def _used_features(self) -> list[int]:
        return [k for k, name in enumerate(self._feature_names()) if name not in self.exclude_features]

    def _select(self, features: Floats) -> Floats:
        """The columns that the trees use."""
        return features[:, self._used_features()] if self.exclude_features else features

    def _add_history(self, state: TwoStageState, history: Interactions, users: Ints) -> TwoStageState:
        rules = state.replay.rules._replace(has_repeats=history.has_repeats)
        known = History.of(history)
        replay = EventReplay(known, rules, transform=self.weight_transform)
        return replace(state, history=known, replay=replay)

    def _observe(self, state: TwoStageState, history: History, new: NewRows) -> TwoStageState:
        rules = state.replay.rules._replace(has_repeats=history.has_repeats)
        return replace(state, history=history, replay=state.replay.observe(history, rules, new))

    # ------------------------------------------------------------------ serving
    @property
    def proposes_candidates(self) -> bool:
        return True

    def batch_size(self, state: TwoStageState) -> int:
        return BATCH  # memory grows with the candidates of a block, not with the number of items

    def score(self, request: RecommendRequest[TwoStageState]) -> Scores:
        """Log-odds of each user's candidates, and the expected size of the next basket."""
        state, n = request.state, len(request)
        owners, items, values = [np.empty(0, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
        sizes = np.ones(n)
        order, blocks = compute_blocks(request, request.candidate_sets())
        for block in blocks:
            numbers = order[block.first : block.first + block.indptr.size - 1]
            log_odds = state.ranker.raw_scores(self._select(block.features), request.n_threads)
            owners.append(np.repeat(numbers, np.diff(block.indptr)))
            items.append(block.items)
            values.append(log_odds.astype(np.float32))
            sizes[numbers[block.non_empty]] = state.size_trees.predict(block.user_features)
        owner, item, value = np.concatenate(owners), np.concatenate(items), np.concatenate(values)
        by_user = np.lexsort((item, owner))
        return Scores(
            values=value[by_user],
            candidates=ItemSets(starts(np.bincount(owner, minlength=n)), item[by_user]),
            log_odds_shift=np.zeros(n, np.float32),
            expected_sizes=sizes,
        )

    def contributions(self, request: RecommendRequest[TwoStageState], items: Ints) -> Contributions:
        """What each feature adds to the log-odds on the paths through the trees."""
        _, blocks = compute_blocks(request, ItemSets(np.array([0, items.size]), items))
        names = [self._feature_names()[k] for k in self._used_features()]
        return [
            largest_first(names, row)
            for block in blocks
            for row in request.state.ranker.contributions(self._select(block.features))
        ]

    # ------------------------------------------------------------------ saving
    def _to_arrays(self, state: TwoStageState) -> tuple[dict[str, Any], dict[str, Any]]:
        bags = {f"trees.{bag}": text for bag, text in enumerate(state.ranker_texts)}
        return {**bags, "sizes": state.size_text}, {"features": self._feature_names()}

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> TwoStageState:
        if notes.get("features") != list(self._feature_names()):
            raise ModelFileError(
                "this TwoStage was trained on other features than this release computes; fit it again."
            )
        names = [f"trees.{bag}" for bag in range(min(self.n_bags, len(arrays)))]
        check_names(arrays, (*names, "sizes"))
        *texts, size_text = (check_array(arrays, name, np.uint8, (None,)) for name in (*names, "sizes"))
        state = _build_state(self._replay(History.of(history)), tuple(texts), size_text)
        state.ranker.check_kind("binary", len(self._used_features()))
        state.size_trees.check_kind("poisson", len(FEATURES[USER_FEATURES]))
        return state


def _build_state(replay: EventReplay, texts: tuple[Text, ...], size_text: Text) -> TwoStageState:
    return TwoStageState(
        history=replay.history,
        replay=replay,
        ranker_texts=texts,
        size_text=size_text,
        ranker=TreeEnsemble(*texts),
        size_trees=TreeEnsemble(size_text),
    )
