"""TwoStage: candidates from several sources, ranked by boosted trees over features of user and item."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from shortlist.content.features import FeatureSpace, extend_items
from shortlist.core.codec import NotStored, file_error
from shortlist.core.options import AtLeast, AtMost, Count, Fraction, NotNegative, Seed
from shortlist.core.ragged import ItemSets, row_owners
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError, ModelFileError
from shortlist.kernels.rows import starts
from shortlist.kernels.snapshot_features import DAY, CandidateRules, FeatureRows, GivenCandidates, Snapshots
from shortlist.models.base import FitOptions, ModelState, WeightParams
from shortlist.models.content import ContentRecommender
from shortlist.models.search_space import Range, Space
from shortlist.models.two_stage.content import PREFIX, ItemContent
from shortlist.models.two_stage.features import (
    CLOCK_FEATURES,
    FEATURES,
    PROPOSED,
    USER_FEATURES,
    compute_features,
    tells_hours,
)
from shortlist.models.two_stage.quantities import QUANTITY_FEATURES
from shortlist.models.two_stage.snapshots import WINDOWS, EventReplay
from shortlist.models.two_stage.training import Examples, collect_examples, train_ensembles
from shortlist.models.two_stage.trees import Text, TreeEnsemble, TreeParams, bin_columns
from shortlist.recommend.request import Contributions, RecommendRequest, Scores, largest_first
from shortlist.text import short_repr
from shortlist.types import Doubles, Floats, Ints, Longs


@dataclass(frozen=True, eq=False, kw_only=True)
class TwoStageState(ModelState):
    """The trained trees, and the history in a form that can be replayed."""

    replay: Annotated[EventReplay, NotStored()]
    ranker_texts: tuple[Text, ...]
    size_text: Text
    ranker: Annotated[TreeEnsemble, NotStored()]  # log-odds that the next basket contains the candidate
    size_trees: Annotated[TreeEnsemble, NotStored()]  # logarithm of the size of the next basket
    features: tuple[str, ...]  # that are computed, whether the trees use them or not
    content: ItemContent | None = None


def feature_names(replay: EventReplay, content: ItemContent | None) -> tuple[str, ...]:
    """All features that are computed, in the order of their columns."""
    clock = CLOCK_FEATURES if replay.rules.has_clock else ()
    quantities = QUANTITY_FEATURES if replay.transform is not None else ()
    return (*FEATURES, *clock, *quantities, *(() if content is None else content.names))


def build_state(replay: EventReplay, texts: Sequence[Text], content: ItemContent | None) -> TwoStageState:
    """The state with these ensembles, of which the last predicts sizes."""
    *ranker, sizes = texts
    return TwoStageState(
        history=replay.history,
        replay=replay,
        ranker_texts=tuple(ranker),
        size_text=sizes,
        ranker=TreeEnsemble(*ranker),
        size_trees=TreeEnsemble(sizes),
        features=feature_names(replay, content),
        content=content,
    )


BASKETS = "the user's baskets"
BY_PREFIX = {  # the first prefix that fits
    PREFIX: "content of the item",
    **dict.fromkeys(CLOCK_FEATURES, "hour and weekday"),
    "own_": "own purchases",
    "user_": BASKETS,
    "together_": "bought together",
    "after_": "bought after own items",
    "before_": "bought before own items",
    "ease": "similar items (EASE)",
    "sales_per_buyer": "repeat purchases of all buyers",
    "repeat_": "repeat purchases of all buyers",
    "sales_": "recent sales",
    "trend_": "recent sales",
    "sales": "total sales",
    "item_": "the item in general",
    "buyer_": "usual buyers",
    "experience_": "usual buyers",
}


def group_of(feature: str) -> str:
    """What a feature is about."""
    if feature in FEATURES[USER_FEATURES]:
        return BASKETS
    return next(words for prefix, words in BY_PREFIX.items() if feature.startswith(prefix))


def merge_by_group(features: Sequence[str], amounts: Doubles) -> list[list[tuple[str, float]]]:
    """(n_items, n_features) contributions as (words, sum over the features of the group), largest first."""
    groups = [group_of(feature) for feature in features]
    names = list(dict.fromkeys(groups))
    sums = np.zeros((amounts.shape[0], len(names)))
    for column, group in enumerate(groups):
        sums[:, names.index(group)] += amounts[:, column]
    return [largest_first(names, row) for row in sums]


def compute_blocks(
    request: RecommendRequest[Any], candidates: ItemSets | None
) -> tuple[Longs, Iterator[FeatureRows]]:
    """(order, blocks): snapshot number k is that of user order[k] of the request."""
    replay: EventReplay = request.state.replay
    visible, quantities = request.users, replay.whole.quantities
    at = _prediction_times(request)
    order = np.argsort(at, kind="stable")
    users, given = replay.whole.timeline.log.users, PROPOSED
    if request.is_session:
        visible, users = request.rows, replay.session_log(request.history, at)
        quantities = replay.session_quantities(request.history, users.time)
    snapshots = Snapshots(visible[order], at[order], np.full(at.size, -1, np.int64))
    if candidates is not None:
        sets = candidates.take(order)
        given = GivenCandidates(sets.indptr, sets.items, True)
    content = request.state.content
    return order, compute_features(replay, users, snapshots, given, quantities, content)


def _prediction_times(request: RecommendRequest[Any]) -> Longs:
    """(n,) microseconds; by default just after the last event, a session's own events included.

    Without times, it is the day after the user's last basket.
    """
    history = request.history
    if not request.state.history.has_times:
        return history.basket_counts * DAY
    if request.timestamps is not None:
        return request.timestamps
    at: Longs = np.full(len(request), request.state.history.end_time)
    if request.is_session and history.time is not None and history.n_rows:
        last = history.time[np.maximum(history.indptr[1:] - 1, 0)] + 1
        at = np.maximum(at, np.where(history.user_counts > 0, last, at))
    return at


BATCH = 4096  # users scored at once


@dataclass(kw_only=True, eq=False, repr=False)
class TwoStage(WeightParams, ContentRecommender):
    """Propose candidates from several sources, then rank them by boosted trees.

    Candidates are items that the user bought before, items often bought together with them or after them,
    best sellers of the last days and of all time, and the items with the highest EASE scores. The trees see
    48 features of user and item, all computed from events before the prediction time, and six of the hour and
    the weekday if the times of the data tell the hour. Scores are log-odds that the user buys the item next.
    A second ensemble predicts the size of the next basket.

    With the content of items (`fit(train, items=items)`), items in their first 30 days whose content
    resembles the user's items are candidates too, and the trees see how similar each candidate is to the
    user's items and to the latest ones, field by field. Items without any sale are proposed for times
    after the training data.

    Training replays the history: each example is a user just before one of their last baskets, described by
    the code that also serves requests. Fitting needs LightGBM (`pip install lightgbm`); serving a
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
        Maximum number of baskets to learn from: the last one of every user, the last two, and so on; the last
        one of a sample of the users if there are more users.
    negative_rate
        Share of the candidates not bought that are kept for training. They are weighted by its inverse.
    n_bags
        Ensembles trained with different seeds, each on the candidates that were bought and half of the
        others (one ensemble: on all); their log-odds are averaged.
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

    is_tried_by_fit: ClassVar[bool] = True
    trial_cost: ClassVar[int] = 4
    warmup_params: ClassVar[dict[str, Any]] = {"n_snapshots": 500, "n_rounds": 5, "n_bags": 1}
    search_space: ClassVar[Space] = {
        "candidates_per_source": (25, 40, 60),
        "transition_window": (1, 3, 5, 8),
        "decay": Range(0.4, 1.0, log=False),
        "n_rounds": (80, 120, 200),
        "lr": Range(0.03, 0.12),
        "n_leaves": (15, 31, 63),
        "min_leaf": (30, 100, 300),
    }

    candidates_per_source: Count = 40
    transition_window: Count = 5
    decay: NotNegative = 0.7
    n_snapshots: Count = 30_000
    negative_rate: Fraction = 0.2
    n_bags: Annotated[int, AtLeast(1), AtMost(1000)] = 2
    n_rounds: Count = 100
    lr: NotNegative = 0.1
    n_leaves: Annotated[int, AtLeast(2), AtMost(131_072)] = 31
    min_leaf: Count = 100
    exclude_features: tuple[str, ...] = ()
    seed: Seed = 0

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        if not data.has_baskets:
            return "it needs users with more than one basket"
        if find_spec("lightgbm") is None:
            return "LightGBM is not installed; pip install lightgbm"
        return None

    def _convert_param(self, name: str, value: Any) -> Any:
        return tuple(value) if name == "exclude_features" and isinstance(value, list) else value

    def _check_together(self) -> None:
        features = (*FEATURES, *CLOCK_FEATURES, *QUANTITY_FEATURES)
        unknown = [
            name for name in self.exclude_features if name not in features and not name.startswith(PREFIX)
        ]
        if unknown:
            raise ConfigError(
                f"exclude_features must name features, got {short_repr(unknown[0])}; the features are listed "
                "in shortlist.models.two_stage.features.FEATURES."
            )

    # ------------------------------------------------------------------ training
    def compute_examples(self, train: Interactions | Any, *, items: Items | Any = None) -> Examples:
        """Compute the training examples of `fit`, to train several models on them.

        Parameters
        ----------
        train
            Interactions, in any form that `fit` accepts.
        items
            Content of items, as in `fit`.

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
        content = None if items is None else Items.of(items)
        return self._collect(self._check_data(train), content)

    def _collect(self, train: Interactions, items: Items | None) -> Examples:
        history, content = History.of(train), None
        if items is not None:
            history = extend_items(history, items)
            content = ItemContent.fit(items, history)
        replay = self._replay(history, has_clock=tells_hours(train.time))
        return collect_examples(replay, content, self.n_snapshots, self.negative_rate)

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
        replay = examples.replay
        same = replay.rules[1:] == self._rules(replay.history, has_clock=replay.rules.has_clock)[1:]
        if not same or replay.transform != self.weight_transform:
            raise ConfigError(
                "examples must be computed with the same candidates_per_source, transition_window, decay and "
                "weighting; call compute_examples of this model."
            )
        with self._lock:
            self._state = self._train(examples)
        return self

    def _learn(self, train: Interactions, options: FitOptions) -> TwoStageState:
        return self._train(self._collect(train, options.items))

    def _train(self, examples: Examples) -> TwoStageState:
        names = feature_names(examples.replay, examples.content)
        columns = self._select(examples.features, names)
        binned = bin_columns(columns, examples.labels, examples.weight)
        del columns
        examples = examples._replace(features=np.empty((0, 0), np.float32))  # most of the memory
        params = TreeParams(
            n_rounds=self.n_rounds, lr=self.lr, n_leaves=self.n_leaves, min_leaf=self.min_leaf, columns=0.35
        )
        texts = train_ensembles(examples, binned, params, self.n_bags, self.seed)
        return build_state(examples.replay, texts, examples.content)

    def _rules(self, history: History, *, has_clock: bool) -> CandidateRules:
        return CandidateRules(
            np.array(WINDOWS, np.int64) * DAY,
            min(self.candidates_per_source, 2 * history.n_items),  # half of it are still all items
            self.transition_window,
            self.decay,
            history.has_repeats,
            has_clock,
        )

    def _replay(self, history: History, *, has_clock: bool) -> EventReplay:
        rules = self._rules(history, has_clock=has_clock)
        return EventReplay(history, rules, transform=self.weight_transform)

    def _used_features(self, names: tuple[str, ...]) -> list[int]:
        return [k for k, name in enumerate(names) if name not in self.exclude_features]

    def _select(self, features: Floats, names: tuple[str, ...]) -> Floats:
        """The columns that the trees use."""
        return features[:, self._used_features(names)] if self.exclude_features else features

    def _observe(self, state: TwoStageState, history: History, new: NewRows | None) -> TwoStageState:
        rules = state.replay.rules._replace(has_repeats=history.has_repeats)
        replay = state.replay.observe(history, rules, new)
        content = None if state.content is None else state.content.resize(history.n_items)
        return replace(state, history=history, replay=replay, content=content)

    def _space(self, state: TwoStageState) -> FeatureSpace | None:
        return None if state.content is None else state.content.space

    def _with_items(self, state: TwoStageState, items: Items, history: History) -> TwoStageState:
        content = None if state.content is None else state.content.update(items, history)
        replay = self._replay(history, has_clock=state.replay.rules.has_clock)
        return replace(state, history=history, replay=replay, content=content)

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
            numbers = order[block.numbers]
            log_odds = state.ranker.raw_scores(self._select(block.features, state.features))
            owners.append(numbers[row_owners(block.indptr)])
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
        """What each group of features adds to the log-odds on the paths through the trees."""
        _, blocks = compute_blocks(request, ItemSets(np.array([0, items.size]), items))
        state = request.state
        names = [state.features[k] for k in self._used_features(state.features)]
        return [
            contributions
            for block in blocks
            for contributions in merge_by_group(
                names, state.ranker.contributions(self._select(block.features, state.features))
            )
        ]

    # ------------------------------------------------------------------ saving
    def _build_state(self, learned: dict[str, Any]) -> TwoStageState:
        content, texts = learned["content"], (*learned["ranker_texts"], learned["size_text"])
        replay = self._replay(learned["history"], has_clock=CLOCK_FEATURES[0] in learned["features"])
        if learned["features"] != feature_names(replay, content):
            raise ModelFileError(
                "this TwoStage was trained on other features than this release computes; fit it again."
            )
        if len(texts) != self.n_bags + 1:
            raise file_error("ranker_texts", f"must hold {self.n_bags} ensembles, got {len(texts) - 1}")
        state = build_state(replay, texts, content)
        state.ranker.check_kind("binary", len(self._used_features(state.features)))
        state.size_trees.check_kind("poisson", len(FEATURES[USER_FEATURES]))
        return state
