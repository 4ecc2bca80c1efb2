"""FactorModel: what a factor model defines, its scores, how it is saved, and how it learns."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np

from shortlist.core.codec import NotStored, Scope, Shape, Within, file_error
from shortlist.core.options import (
    MAX_NUMBER,
    SMALLEST,
    AtLeast,
    AtMost,
    Choices,
    Count,
    Dimensions,
    Fraction,
    NotNegative,
    Positive,
    Probability,
    Seed,
    Whole,
)
from shortlist.core.threads import map_slices, thread_count
from shortlist.cutoff.expected import ExpectedF1
from shortlist.data.history import History, NewRows, Totals
from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions, in_last_basket
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.new_users import FoldInPairs, fold_in_users
from shortlist.kernels.parameters import TERMS, Hyperparameters, Parameters
from shortlist.kernels.rows import read_only
from shortlist.kernels.snapshot_features import DAY
from shortlist.kernels.terms import USER_TREND_START
from shortlist.models.base import MAX_BATCH, FitOptions, ModelState, Recommender, WeightParams
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.parameters import (
    MAX_SIZE,
    freeze,
    initialize_parameters,
    mean_user,
    parameter_shapes,
    set_untrained_users,
)
from shortlist.models.factorization.representation import Representation, UserFactors
from shortlist.models.factorization.terms import GrowingTrend, TermOptions, TermStart, add_trend
from shortlist.models.factorization.training import (
    STOPPED,
    Trainer,
    TrainingOptions,
    TrainingRows,
    build_evaluator,
    run_epochs,
)
from shortlist.models.matrix import pad_columns, score_vectors
from shortlist.models.search_space import Range, Space
from shortlist.recommend.request import Contributions, Factors, RecommendRequest, Scores, largest_first
from shortlist.recommend.retrieval import ItemIndexCache
from shortlist.split import draw_items, users_return
from shortlist.types import Doubles, Floats, Ints, Longs

ITEMS_PER_DRAW, MAX_DRAWS = 500, 20  # of negative_draws=None
SGD_SPACE: Space = {"lr": Range(0.02, 0.2), "reg": Range(1e-3, 0.05), "init": (0.1, 1.0)}
LearningRate = Annotated[float, AtLeast(SMALLEST), AtMost(10)]
Negatives = Positive | Literal["uniform"]  # per positive example
BoundaryStart = Annotated[float, AtLeast(-MAX_NUMBER), AtMost(MAX_NUMBER)]
AUTO: Final = "auto"  # a parameter that `fit` chooses by what the data has


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorState(ModelState):
    """The learned parameters, and how training went."""

    parameters: Annotated[Parameters, Within(MAX_SIZE)]
    objective: Annotated[Objective, NotStored()]  # that the parameters were trained for
    start_weights: tuple[float | None, ...]  # of new users, for each of TERMS; None where a term is off
    # of users without training pairs, and where fold-in starts
    mean_user: Annotated[Floats, Shape("n_factors"), Within(MAX_SIZE)]
    mean_boundary: Annotated[float, AtLeast(-MAX_SIZE), AtMost(MAX_SIZE)]  # likewise
    # of the items, if the model has a trend term
    trend: Annotated[GrowingTrend | None, NotStored()] = None
    index: Annotated[ItemIndexCache, NotStored()] = field(default_factory=ItemIndexCache)
    n_epochs: Whole = 0
    losses: tuple[float, ...] = ()
    valid_scores: tuple[float, ...] = ()
    stopped: Annotated[str, Choices(lambda: STOPPED)] = "n_epochs"
    lr: Annotated[float, AtLeast(0), AtMost(10)] = 0.0  # the step size at the end of training
    # of `DynamicK`, learned on an inner hold-out; it sees the numbers that `fit` counted, not what came later
    boundary_cutoff: ExpectedF1 | None = None
    totals: Totals | None = None

    @property
    def counted(self) -> History:
        """The history, with the numbers that `fit` counted if lists depend on them."""
        return self.history if self.totals is None else replace(self.history, counted=self.totals)

    @property
    def n_learned(self) -> int:
        """Number of users with parameters; users that `observe` added follow them."""
        return int(self.parameters.user.shape[0])


def item_offsets(state: FactorState) -> Floats:
    """(n_items,) or (0,) what is added to the inner product in the score of a new user."""
    bias, trend = state.parameters.bias, state.trend
    if trend is None:
        return bias
    weights = USER_TREND_START + state.parameters.item_trend
    recent: Floats = weights * trend.trend_scores(trend.end // DAY)
    return recent + bias if bias.size else recent


MIN_PAIRS = 200  # pairs per user, at least
FOLD_IN = 7  # id of a random stream


def _draw_pairs(
    data: Interactions, users: Ints, density: Doubles, lambda_t: Doubles, seed: int
) -> FoldInPairs:
    """Every item of a user against a few others; the draws depend only on the seed and the user's items."""
    liked, unseen, lengths = [], [], [0]
    for user in users:
        items = data.item_sets.row(user)
        rng = np.random.Generator(np.random.PCG64([seed, FOLD_IN, *items.tolist()]))
        each = -(-MIN_PAIRS // items.size)
        drawn = rng.integers(data.n_items, size=items.size * each, dtype=np.int32)
        at = np.searchsorted(items, drawn)
        is_unseen = items[np.minimum(at, items.size - 1)] != drawn
        liked.append(np.repeat(items, each)[is_unseen])
        unseen.append(drawn[is_unseen])
        lengths.append(int(is_unseen.sum()))
    return FoldInPairs(np.cumsum(lengths), np.concatenate(liked), np.concatenate(unseen), density, lambda_t)


@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(WeightParams, Recommender):
    """Scores are inner products of user and item vectors, learned by stochastic gradient descent."""

    uses_epochs: ClassVar[bool] = True
    trial_cost: ClassVar[int] = 4
    uses_new_items: ClassVar[bool] = False
    search_space: ClassVar[Space] = {**SGD_SPACE, "negative_draws": (1, 5, 20)}
    timed_params: ClassVar[tuple[str, ...]] = ("trend_half_life",)
    warmup_params: ClassVar[dict[str, Any]] = {"n_epochs": 1}

    n_factors: Dimensions = 50
    n_epochs: Count | Literal["auto"] = 100
    lr: LearningRate = 0.05
    reg: NotNegative = 0.01
    reg_user: NotNegative | None = None
    reg_item: NotNegative | None = None
    reg_negative: NotNegative | None = None
    bias: bool = True
    negative_draws: Count | None = 1
    init: NotNegative = 0.1
    tol: NotNegative = 1e-4
    patience: Count = 15
    repeat_decay: Fraction | Literal["auto"] | None = None
    trend_half_life: Positive | Literal["auto"] | None = None
    seed: Seed = 0

    # ------------------------------------------------------------------ what a subclass defines
    @abstractmethod
    def objective(self) -> Objective:
        """The loss that training minimizes."""

    @property
    def representation(self) -> Representation:
        """What the score vector of a user is."""
        return UserFactors(by_basket=any(self.terms.on))

    def choose_params(self, *, has_times: bool, has_repeats: bool) -> None:
        """Replace the parameters that are "auto" by values that suit such data."""
        if self.n_epochs == AUTO:  # the terms are learned soon, vectors alone need longer
            self.n_epochs = 20 if has_repeats else 100
        if self.repeat_decay == AUTO:
            self.repeat_decay = 0.9 if has_repeats else None
        if self.trend_half_life == AUTO:
            self.trend_half_life = 3.0 if has_times and has_repeats else None

    # ------------------------------------------------------------------ scoring
    @property
    def terms(self) -> TermOptions:
        """The terms beside the inner product, once they are chosen."""
        repeat_decay, half_life = self.repeat_decay, self.trend_half_life
        return TermOptions(
            None if isinstance(repeat_decay, str) else repeat_decay,
            None if isinstance(half_life, str) else half_life,
        )

    def dense_scores(
        self,
        parameters: Parameters,
        history: Interactions,
        trend: GrowingTrend | None,
        users: Ints,
        timestamps: Longs | None = None,
    ) -> Floats:
        """(n, n_items) scores after the users' history, at the prediction times (None: after all events)."""
        vectors = self.representation.vectors(parameters, history, users)
        outputs = pad_columns(np.ascontiguousarray(parameters.item.T))
        scores = score_vectors(vectors, outputs)[:, : len(parameters.item)]
        if parameters.bias.size:
            scores += parameters.bias
        self.terms.add_repeats(scores, parameters, history, users)
        add_trend(scores, parameters, trend, users, timestamps)
        return scores

    def score(self, request: RecommendRequest[FactorState]) -> Scores:
        """Inner products, with the learned boundary and the shift to log-odds where there are any."""
        state, history, users = request.state, request.history, request.rows
        parameters = self._request_parameters(request)
        boundaries = parameters.boundary
        rates = self.representation.items_per_group(history, users)
        shift = state.objective.log_odds_shift(boundaries, rates, state.history.n_items)
        learned = boundaries if state.objective.has_boundary else None
        if any(weight is not None for weight in state.start_weights):
            values = self.dense_scores(parameters, history, state.trend, users, request.timestamps)
            return Scores(values=values, boundaries=learned, log_odds_shift=shift)
        bias = parameters.bias if parameters.bias.size else None
        vectors = self.representation.vectors(parameters, history, users)
        factors = Factors(vectors, parameters.item, bias, state.index)
        return Scores(factors=factors, boundaries=learned, log_odds_shift=shift)

    def _request_parameters(self, request: RecommendRequest[FactorState]) -> Parameters:
        """The parameters with one user row per user of the request.

        Sessions and users that the model has not learned are folded in, with the weights of a new user.
        """
        state, history, trained = request.state, request.history, request.state.parameters
        users = np.full(len(request), UNKNOWN) if request.is_session else request.users
        is_learned = (users != UNKNOWN) & (users < state.n_learned)
        means = self._mean_values(state)
        if is_learned.all():
            return trained._replace(**{name: getattr(trained, name)[users] for name in means})
        n = len(request)
        values = {name: np.full((n, *np.shape(mean)), mean, np.float32) for name, mean in means.items()}
        for name, array in values.items():
            array[is_learned] = getattr(trained, name)[users[is_learned]]
        new = np.flatnonzero(~is_learned & (history.user_counts > 0)).astype(np.int32)
        self._fold_into(state, history, new, values)
        return trained._replace(**values)

    @staticmethod
    def _mean_values(state: FactorState) -> dict[str, Any]:
        """The parameters of the mean user by name, with which new users start."""
        pairs = zip(TERMS, state.start_weights, strict=True)
        weights = {name: start for (name, _), start in pairs if start is not None}
        return {"user": state.mean_user, "boundary": state.mean_boundary, **weights}

    @property
    def has_boundary(self) -> bool:
        """Whether the objective learns a boundary."""
        return self.current_objective.has_boundary

    @property
    def current_objective(self) -> Objective:
        """The objective that the model was trained for, or will be."""
        return self.objective() if self._state is None else self._state.objective

    def batch_size(self, state: FactorState) -> int:
        """Large unless repeat or trend terms need dense scores."""
        return super().batch_size(state) if any(w is not None for w in state.start_weights) else MAX_BATCH

    def contributions(self, request: RecommendRequest[FactorState], items: Ints) -> Contributions:
        """What the score of each item is the sum of; without terms, the history items that resemble it."""
        if isinstance(self.representation, UserFactors) and not any(self.terms.on):
            return self._similar_history(request, items)
        history, users, parameters = request.history, request.rows, self._request_parameters(request)
        vectors = self.representation.vectors(parameters, history, users)
        sources = {self.representation.source: vectors @ parameters.item.T}
        if parameters.bias.size:
            sources["item bias"] = parameters.bias[None, :]
        if self.terms.repeat_decay is not None:
            sources["bought before"] = np.zeros((1, history.n_items), np.float32)
            self.terms.add_repeats(sources["bought before"], parameters, history, users)
        if request.state.trend is not None:
            sources["trend"] = np.zeros((1, history.n_items), np.float32)
            add_trend(sources["trend"], parameters, request.state.trend, users, request.timestamps)
        amounts = [[(name, float(row[0, item])) for name, row in sources.items()] for item in items]
        return [sorted(named, key=lambda source: -abs(source[1])) for named in amounts]

    @staticmethod
    def _similar_history(request: RecommendRequest[FactorState], items: Ints) -> Contributions:
        """The items of the user's history whose vectors point in the same direction, and the item's bias."""
        state = request.state
        history_items = request.history.item_sets.items
        vectors = state.parameters.item.astype(np.float64)
        names = [*state.history.item_labels(history_items), "item bias"]
        inner = vectors[items] @ vectors[history_items].T
        bias = state.parameters.bias[items] if state.parameters.bias.size else np.zeros(items.size)
        return [largest_first(names, row) for row in np.column_stack([inner, bias])]

    def _item_vectors(self, state: FactorState) -> Floats | None:
        return state.parameters.item

    def _fold_into(
        self, state: FactorState, history: Interactions, users: Ints, values: dict[str, Floats]
    ) -> None:
        """Solve the vectors and boundaries of these users with all items fixed, from those in `values`."""
        if not users.size:
            return
        vectors, boundaries = values["user"][users], values["boundary"][users]
        density = self.representation.items_per_group(history, users) / state.history.n_items
        lambda_t = state.objective.lambda_of_examples(history.user_counts[users].astype(np.float64))
        pairs = _draw_pairs(history, users, density, lambda_t, self.seed)
        # read-only as in all calls, so that the kernel is compiled once
        items, bias = read_only(state.parameters.item), read_only(item_offsets(state))
        hyper = self._hyperparameters(state.history.n_items)
        pooling = self.representation.pooling

        def fold(rows: slice) -> None:
            fold_in_users(rows.start, rows.stop, pairs, items, bias, hyper, pooling, vectors, boundaries)

        map_slices(fold, users.size, -(-users.size // thread_count()))
        values["user"][users], values["boundary"][users] = vectors, boundaries

    def _hyperparameters(self, n_items: int) -> Hyperparameters[float]:
        draws = self.negative_draws
        if draws is None:
            draws = min(max(n_items // ITEMS_PER_DRAW, 1), MAX_DRAWS)
        return self.objective().hyperparameters(
            lr=self.lr,
            reg_user=self.reg if self.reg_user is None else self.reg_user,
            reg_item=self.reg if self.reg_item is None else self.reg_item,
            reg_negative=self.reg if self.reg_negative is None else self.reg_negative,
            negative_draws=draws,
        )

    # ------------------------------------------------------------------ saving
    def _build_state(self, learned: dict[str, Any]) -> FactorState:
        parameters, history = learned["parameters"], learned["history"]
        n_learned = len(parameters.user)
        if self.terms.half_life is not None and not history.has_times:
            raise file_error("history.time", "is missing, but the model has a trend term")
        if tuple(weight is not None for weight in learned["start_weights"]) != self.terms.on:
            raise file_error("start_weights", "must have a weight for each term of the model")
        if not 1 <= n_learned <= history.n_users:
            raise file_error("parameters.user", f"must have 1 to {history.n_users} rows, got {n_learned}")
        shapes = parameter_shapes(n_learned, history.n_items, self.n_factors, self.bias, self.terms.on)
        for name, shape in shapes.items():
            Scope().match_sizes(f"parameters.{name}", tuple(map(str, shape)), getattr(parameters, name).shape)
        freeze(parameters)
        trend = self.terms.trend_of(history.merged)
        return FactorState(**learned, objective=self.objective(), trend=trend)

    # ------------------------------------------------------------------ learning
    def _learn(self, train: Interactions, options: FitOptions) -> FactorState:
        self.choose_params(has_times=train.time is not None, has_repeats=train.has_repeats)
        if self.terms.half_life is not None and train.time is None:
            raise ConfigError(
                "trend_half_life needs timestamps, got data without them; add them or set it to None."
            )
        if not self.representation.trained_users(train).any():
            raise DataError(
                f"{type(self).__name__} learns from users with two baskets or more, got none; "
                "add timestamps or basket ids, or use BPRMF or DKBPRMF."
            )
        start = self.terms.start(train)
        theta = self.initialize(train.n_users, train.n_items, start)
        trend, evaluator, valid = GrowingTrend.grow(start.trend), None, options.valid
        if valid is not None:
            if valid.users != train.users or valid.items != train.items:
                raise DataError(
                    "validation data must share its id tables with the training data; take both from one "
                    "split."
                )
            if not valid.active_users.size:
                raise DataError("validation data must hold at least one interaction, got none; omit valid.")
            evaluator = build_evaluator(self, valid, train, trend)
        training = TrainingOptions(
            n_epochs=int(self.n_epochs),
            patience=self.patience,
            tol=self.tol,
            progress=options.progress,
            evaluator=evaluator,
            waits=self.objective().alpha > 0 and not any(self.terms.on),
        )
        representation = self.representation
        rows = TrainingRows.of(self, representation.groups(train, start, self.weight_transform))
        with Trainer(self, rows, theta) as trainer:
            run = run_epochs(trainer, self.lr, training)
            learned, cuts = trainer.finish(), trainer.user_cuts
        trained = representation.trained_users(train)
        mean = mean_user(learned, trained, cuts)
        return FactorState(
            history=History.of(train),
            parameters=freeze(set_untrained_users(learned, trained, mean)),
            objective=self.objective(),
            start_weights=tuple(float(mean[name]) if name in mean else None for name, _ in TERMS),
            mean_user=mean["user"],
            mean_boundary=float(mean["boundary"]),
            trend=trend,
            n_epochs=run.best_epoch or run.epoch,
            losses=tuple(run.losses),
            valid_scores=tuple(run.scores),
            stopped=run.stopped,
            lr=self.lr * run.step_size.factor,
        )

    def _observe(self, state: FactorState, history: History, new: NewRows | None) -> FactorState:
        """Vectors and boundaries stay; those of new users are computed with every request."""
        if new is None:
            trend = self.terms.trend_of(history.merged)
        else:
            trend = None if state.trend is None else state.trend.observe(new.item, new.time)
        return replace(state, history=history, trend=trend)

    def _check_together(self) -> None:
        self.objective()

    def initialize(self, n_users: int, n_items: int, start: TermStart) -> Parameters:
        """The parameters before training."""
        return initialize_parameters(
            n_users,
            n_items=n_items,
            n_factors=self.n_factors,
            init=self.init,
            t=self.objective().t,
            bias=self.bias,
            start_weights=start.weights,
            seed=self.seed,
        )

    # ------------------------------------------------------------------ what training reports
    @property
    def n_epochs_(self) -> int:
        """Number of epochs that the kept parameters were trained for."""
        return int(self._fitted_state().n_epochs)

    @property
    def losses_(self) -> list[float]:
        """The loss after every epoch, on a fixed sample of the training data."""
        return list(self._fitted_state().losses)

    @property
    def valid_scores_(self) -> list[float]:
        """F1 on the validation data after every epoch; empty without validation data."""
        return list(self._fitted_state().valid_scores)

    @property
    def stopped_(self) -> str:
        """Why training ended: n_epochs, tol, patience, interrupted or step_size (every step diverged)."""
        return str(self._fitted_state().stopped)

    @property
    def lr_(self) -> float:
        """The step size at the end of training: lr, halved each time that an epoch diverged."""
        return float(self._fitted_state().lr)


BoundaryName = Literal["expected_f1", "learned"]
HOLD_OUT_ONE_IN = 5  # items of each user, if users have no second baskets
MAX_USERS = 2_000  # users on whom the cutoff is learned
HOLD_OUT = 9  # id of a random stream


def hold_out_inner(train: Interactions, seed: int) -> tuple[Interactions, Interactions]:
    """(history, truth): each user's last basket is held out, or some items if few users have two."""
    if users_return(train):
        held = in_last_basket(train) & (train.basket_counts > 1)[train.user]
    else:
        held = draw_items(train, HOLD_OUT_ONE_IN, seed)
    history, truth = train.where(~held), train.where(held)
    users = truth.active_users
    if users.size > MAX_USERS:
        drawn = np.zeros(train.n_users, np.bool_)
        rng = np.random.Generator(np.random.PCG64([seed, HOLD_OUT]))
        drawn[rng.choice(users, MAX_USERS, replace=False)] = True
        truth = truth.where(drawn[truth.user])
    return history, truth


@dataclass(kw_only=True, eq=False, repr=False)
class DynamicK(FactorModel):
    """The parameters that joint models add to their ranker: classification examples, personal boundaries."""

    is_tried_by_fit: ClassVar[bool] = False
    not_searched: ClassVar[tuple[str, ...]] = ("negative_draws",)  # more would distort the probabilities

    alpha: Probability = 0.5
    t: BoundaryStart = 1.0
    lambda_t: NotNegative = 0.01
    lambda_t_per: Literal["user", "step"] = "step"
    negatives: Negatives | Literal["auto"] = AUTO
    loss: Literal["logistic", "hinge"] = "logistic"
    penalty: Literal["l2", "l1"] = "l2"
    boundary: BoundaryName = "expected_f1"

    def choose_params(self, *, has_times: bool, has_repeats: bool) -> None:
        super().choose_params(has_times=has_times, has_repeats=has_repeats)
        if self.negatives == AUTO:
            self.negatives = 100.0 if has_repeats else 10.0

    def objective(self) -> Objective:
        """The joint loss."""
        return Objective(
            alpha=self.alpha,
            t=self.t,
            lambda_t=self.lambda_t,
            lambda_t_per=self.lambda_t_per,
            negatives=10.0 if self.negatives == AUTO else self.negatives,
            loss=self.loss,
            penalty=self.penalty,
            learn_boundary=True,
        )

    def boundary_cutoff(self, state: FactorState) -> ExpectedF1 | None:
        """The cutoff that was learned on the inner hold-out."""
        return state.boundary_cutoff

    def _learn(self, train: Interactions, options: FitOptions) -> FactorState:
        state = super()._learn(train, options)
        is_trained = state.n_epochs > 0 and state.stopped != "interrupted"
        if self.boundary == "learned" or not state.objective.has_boundary or not is_trained:
            return state
        return replace(
            state, boundary_cutoff=self._learn_cutoff(train, state.n_epochs), totals=Totals.of(train)
        )

    def _learn_cutoff(self, train: Interactions, n_epochs: int) -> ExpectedF1 | None:
        """Learn where lists end from what a model without each user's last basket says of that basket.

        In-sample scores of items that the user has are too high, so they say little of the next basket. None
        if there is nothing to hold out.
        """
        history, truth = hold_out_inner(train, self.seed)
        if not truth.n_rows or not self.representation.trained_users(history).any():
            return None
        model = self.clone().set_params(n_epochs=n_epochs, boundary="learned").fit(history)
        if model.stopped_ == "interrupted":
            return None
        cutoff = ExpectedF1(calibration="features", size="both", floor=0.0)
        candidates = model.recommend(
            truth.users.to_ids(truth.active_users),
            N=cutoff.n_candidates,
            filter_seen=not train.has_repeats,
            at=truth,
        )
        return cutoff.fit(candidates, truth, history=history)
