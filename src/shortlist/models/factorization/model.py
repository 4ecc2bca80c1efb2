"""FactorScoring: what a factor model defines, its scores, and how it is saved; `FactorModel` trains it."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from shortlist.content.features import FeatureSpace, extend_items
from shortlist.core.checks import (
    check_array,
    check_float_value,
    check_floats,
    check_names,
    check_text,
    check_whole_value,
    file_error,
)
from shortlist.core.engine import thread_count
from shortlist.core.params import (
    MAX_SEED,
    MAX_WHOLE,
    Range,
    Space,
    check_flag,
    check_number,
    check_whole,
    short_repr,
)
from shortlist.core.ragged import read_only
from shortlist.cutoff.basket_size import N_HISTORY_COLUMNS, BasketSize, history_columns
from shortlist.data.history import History, NewRows
from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions, in_last_basket
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.kernels.fold import USER_ONLY, FoldInPairs, fold_in_users
from shortlist.kernels.rng import stream
from shortlist.kernels.sgd import TERMS, Hyperparameters, Parameters
from shortlist.models.base import MAX_BATCH, ContentRecommender, FitOptions, ModelState, WeightParams
from shortlist.models.factorization.objective import Objective, positive_rates, single_precision
from shortlist.models.factorization.parameters import (
    MAX_SIZE,
    ItemFeatures,
    check_options,
    extend_values,
    freeze,
    initialize_parameters,
    load_parameters,
    mean_user,
    parameter_shapes,
    set_untrained_users,
)
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.schedule import random_bits
from shortlist.models.factorization.trainer import ThreadTrainer, TrainingTask
from shortlist.models.factorization.training import (
    STOPPED,
    DenseScores,
    Evaluator,
    TrainingOptions,
    TrainingState,
    build_evaluator,
    train,
)
from shortlist.recommend.request import Contributions, Factors, RecommendRequest, Scores, largest_first
from shortlist.recommend.retrieval import ItemIndexCache
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

SGD_SPACE: Space = {"lr": Range(0.02, 0.2), "reg": Range(1e-3, 0.05), "init": (0.1, 1.0)}


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorState(ModelState):
    """The learned parameters, and how training went."""

    parameters: Parameters
    objective: Objective  # that the parameters were trained for
    start_weights: tuple[float | None, ...]  # of new users, for each of TERMS; None where a term is off
    mean_user: Floats  # (n_factors,) of users without training pairs, and where fold-in starts
    mean_boundary: float  # likewise
    side: Any = None  # what `side_data` derived from the history
    index: ItemIndexCache = field(default_factory=ItemIndexCache)
    n_epochs: int = 0
    losses: tuple[float, ...] = ()
    valid_scores: tuple[float, ...] = ()
    stopped: str = "n_epochs"
    lr: float = 0.0  # the step size at the end of training
    next_size: BasketSize | None = None  # predicts the size of the next list
    features: ItemFeatures | None = None  # the content of items, if `fit` got it

    @property
    def n_learned(self) -> int:
        """Number of users with parameters; users that `observe` added follow them."""
        return int(self.parameters.user.shape[0])

    @property
    def n_trained_items(self) -> int:
        """Number of items that training saw; items that were added later follow them."""
        return self.history.n_items if self.features is None else self.features.n_trained


MIN_PAIRS = 200  # pairs per user, at least
FOLD_IN = 7  # id of a random stream


def fold_in(
    data: Interactions,
    users: Ints,
    density: Doubles,
    vectors: Floats,
    boundary: Floats,
    items: Floats,
    bias: Floats,
    hyper: Hyperparameters[float],
    pooling: int,
    seed: int,
    n_threads: int,
) -> tuple[Floats, Floats]:
    """Return the (vectors, boundaries) of `users`, which start at the given ones; HRM gets no context."""
    pairs = _draw_pairs(data, users, density, seed)
    contexts = np.zeros_like(vectors)
    items, bias = read_only(items), read_only(bias)  # as in all calls, so that the kernel is compiled once
    n = thread_count(n_threads)
    cuts = np.linspace(0, users.size, min(n, users.size) + 1).astype(int)
    with ThreadPoolExecutor(n) as pool:
        jobs = [
            pool.submit(fold_in_users, a, b, pairs, contexts, items, bias, hyper, pooling, vectors, boundary)
            for a, b in pairwise(cuts)
        ]
        for job in jobs:
            job.result()
    return vectors, boundary


def _draw_pairs(data: Interactions, users: Ints, density: Doubles, seed: int) -> FoldInPairs:
    """Every item of a user against a few others; the draws depend only on the seed and the user's items."""
    indptr, sets = data.item_sets
    liked, unseen, lengths = [], [], [0]
    for user in users:
        own = sets[indptr[user] : indptr[user + 1]]
        rng = np.random.Generator(np.random.PCG64([seed, FOLD_IN, *own.tolist()]))
        each = -(-MIN_PAIRS // own.size)
        drawn = rng.integers(data.n_items, size=own.size * each, dtype=np.int32)
        at = np.searchsorted(own, drawn)
        is_unseen = own[np.minimum(at, own.size - 1)] != drawn
        liked.append(np.repeat(own, each)[is_unseen])
        unseen.append(drawn[is_unseen])
        lengths.append(int(is_unseen.sum()))
    return FoldInPairs(np.cumsum(lengths), np.concatenate(liked), np.concatenate(unseen), density)


@dataclass(kw_only=True, eq=False, repr=False)
class FactorScoring(WeightParams, ContentRecommender):
    """Scores are inner products of user and item vectors."""

    uses_engine: ClassVar[bool] = True
    uses_epochs: ClassVar[bool] = True
    uses_new_items: ClassVar[bool] = False
    search_space: ClassVar[Space] = {**SGD_SPACE, "negative_draws": (1, 5, 20)}
    warmup_params: ClassVar[dict[str, Any]] = {"n_epochs": 1}

    n_factors: int = 50
    n_epochs: int = 100
    lr: float = 0.05
    reg: float = 0.01
    reg_user: float | None = None
    reg_item: float | None = None
    reg_negative: float | None = None
    bias: bool = True
    negative_draws: int = 1
    init: float = 0.1
    tol: float = 1e-4
    patience: int = 15
    seed: int = 0
    n_threads: int = 0

    # ------------------------------------------------------------------ what a subclass defines
    @abstractmethod
    def objective(self) -> Objective:
        """The loss that training minimizes."""

    @abstractmethod
    def representation(self, train: Interactions, history: Interactions) -> Representation:
        """How users become score vectors; `train` are the rows of `history` that are visited."""

    @abstractmethod
    def user_vectors(self, parameters: Parameters, history: Interactions, users: Ints) -> Floats:
        """(n, n_factors) the score vectors of users after their history."""

    def side_data(self, history: Interactions) -> Any:
        """Derive from the history, once, what scores need in addition to the parameters."""
        return None

    def request_side_data(self, side: Any, history: Interactions) -> Any:
        """The same for some users: from their own history and the statistics of items in `side`."""
        return side

    def observed_side_data(self, state: FactorState, history: History, new: NewRows) -> Any:
        """`side_data` after new rows."""
        return state.side

    def start_weights(self, data: Interactions) -> tuple[float | None, ...]:
        """For each of TERMS, the initial weight of a user; None where the term is off."""
        return (None,) * len(TERMS)

    @property
    def terms_on(self) -> tuple[bool, ...]:
        """Whether the model has each of TERMS."""
        return (False,) * len(TERMS)

    def item_offsets(self, state: FactorState) -> Floats:
        """(n_items,) or (0,) what is added to the inner product in the score of a new user."""
        return state.parameters.bias

    def trained_users(self, history: Interactions) -> Bools:
        """(n_users,) whether training has pairs of each user."""
        return np.diff(history.indptr) > 0

    def check_rows(self, has_times: bool, has_trained_users: bool) -> None:  # optional
        """Raise an error if the model cannot learn from such rows."""

    def fit_next_size(self, history: Interactions) -> BasketSize | None:
        """Learn to predict the size of the next list, if lists need it."""
        return None

    def items_per_group(self, history: Interactions, users: Ints) -> Doubles:
        """(n,) mean number of items per training group of a user, here the whole history: the base rate."""
        return np.diff(history.item_sets[0])[users].astype(np.float64)

    def dense_scores(
        self,
        parameters: Parameters,
        history: Interactions,
        side: Any,
        users: Ints,
        timestamps: Longs | None = None,
    ) -> Floats:
        """(n, n_items) scores after the users' history, at the prediction times (None: after all events)."""
        scores: Floats = self.user_vectors(parameters, history, users) @ parameters.item.T
        if parameters.bias.size:
            scores += parameters.bias
        return scores

    @property
    def pooling(self) -> int:
        """How the user enters the score vector, for fold-in."""
        return USER_ONLY

    # ------------------------------------------------------------------ scoring
    def score(self, request: RecommendRequest[FactorState]) -> Scores:
        """Inner products, with the learned boundary and the shift to log-odds where there are any."""
        state, history, users = request.state, request.history, request.rows
        parameters, side = self._request_parameters(request), self.request_side_data(state.side, history)
        boundaries = parameters.boundary
        rates = self.items_per_group(history, users)
        shift = state.objective.log_odds_shift(boundaries, rates, state.n_trained_items)
        learned = boundaries if state.objective.has_boundary else None
        if any(weight is not None for weight in state.start_weights):
            values = self.dense_scores(parameters, history, side, users, request.timestamps)
            return Scores(values=values, boundaries=learned, log_odds_shift=shift)
        bias = parameters.bias if parameters.bias.size else None
        vectors = self.user_vectors(parameters, history, users)
        factors = Factors(vectors, parameters.item, bias, state.index)
        return Scores(factors=factors, boundaries=learned, log_odds_shift=shift)

    def _request_parameters(self, request: RecommendRequest[FactorState]) -> Parameters:
        """The parameters with one user row per user of the request.

        Sessions and users that the model has not learned are folded in, with the weights of a new user.
        """
        state, history, known = request.state, request.history, request.state.parameters
        users = np.full(len(request), UNKNOWN) if request.is_session else request.users
        learned = np.flatnonzero((users != UNKNOWN) & (users < state.n_learned))
        if learned.size == len(request):
            own = {name: getattr(known, name) for name in ("user", "boundary", *self._user_weights(state))}
            return known._replace(**{name: values[users] for name, values in own.items()})
        n, of_learned = len(request), users[learned]
        user, boundary = np.tile(state.mean_user, (n, 1)), np.full(n, state.mean_boundary, np.float32)
        others = np.ones(n, np.bool_)
        others[learned] = False
        new = np.flatnonzero(others & (np.diff(history.indptr) > 0)).astype(np.int32)
        if new.size:
            user[new], boundary[new] = self._fold(state, history, new, user[new], boundary[new])
        user[learned], boundary[learned] = known.user[of_learned], known.boundary[of_learned]
        weights = {name: np.full(n, start, np.float32) for name, start in self._user_weights(state).items()}
        for name, values in weights.items():
            values[learned] = getattr(known, name)[of_learned]
        return known._replace(user=user, boundary=boundary, **weights)

    @staticmethod
    def _user_weights(state: FactorState) -> dict[str, float]:
        """Name and initial value of each weight that users have."""
        pairs = zip(TERMS, state.start_weights, strict=True)
        return {name: start for (name, _), start in pairs if start is not None}

    @property
    def has_boundary(self) -> bool:
        """Whether the objective learns a boundary."""
        return self.objective().has_boundary

    def batch_size(self, state: FactorState) -> int:
        """Large unless repeat or trend terms need dense scores."""
        return super().batch_size(state) if any(w is not None for w in state.start_weights) else MAX_BATCH

    def contributions(self, request: RecommendRequest[FactorState], items: Ints) -> Contributions:
        """The items of the user's history whose vectors point in the same direction, and the item's bias."""
        state = request.state
        own_items = request.history.item_sets[1]
        vectors = state.parameters.item.astype(np.float64)
        names = [*state.history.item_labels(own_items), "item bias"]
        inner = vectors[items] @ vectors[own_items].T
        bias = state.parameters.bias[items] if state.parameters.bias.size else np.zeros(items.size)
        return [largest_first(names, row) for row in np.column_stack([inner, bias])]

    def _item_vectors(self, state: FactorState) -> Floats | None:
        return state.parameters.item

    def _space(self, state: FactorState) -> FeatureSpace | None:
        return None if state.features is None else state.features.space

    def _fold(
        self, state: FactorState, history: Interactions, users: Ints, vectors: Floats, boundaries: Floats
    ) -> tuple[Floats, Floats]:
        """(vectors, boundaries) of these users with all items fixed."""
        return fold_in(
            history,
            users,
            self.items_per_group(history, users) / state.n_trained_items,
            vectors,
            boundaries,
            state.parameters.item,
            self.item_offsets(state),
            self._hyperparameters(),
            self.pooling,
            self.seed,
            self.n_threads,
        )

    def _hyperparameters(self) -> Hyperparameters[float]:
        return self.objective().hyperparameters(
            lr=self.lr,
            reg_user=self.reg if self.reg_user is None else self.reg_user,
            reg_item=self.reg if self.reg_item is None else self.reg_item,
            reg_negative=self.reg if self.reg_negative is None else self.reg_negative,
            negative_draws=self.negative_draws,
        )

    # ------------------------------------------------------------------ saving
    def _to_arrays(self, state: FactorState) -> tuple[dict[str, Any], dict[str, Any]]:
        notes = {
            "n_epochs": state.n_epochs,
            "losses": state.losses,
            "valid_scores": state.valid_scores,
            "stopped": state.stopped,
            "start_weights": state.start_weights,
            "n_learned": state.n_learned,
            "lr": state.lr,
            "mean_boundary": state.mean_boundary,
        }
        arrays = state.parameters._asdict() | {"mean_user": state.mean_user}
        if state.features is None:
            return arrays, notes
        own, said = state.features.to_arrays()
        return arrays | own, notes | said

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> FactorState:
        features = None
        if "fields" in notes:
            features = ItemFeatures.from_arrays(arrays, notes, history.n_items, self.n_factors, self.bias)
            arrays = {name: arrays[name] for name in arrays if name not in features.to_arrays()[0]}
        check_names(arrays, Parameters._fields, ("mean_user",))
        start = check_floats(notes, "start_weights", optional=True)
        if tuple(weight is not None for weight in start) != self.terms_on:
            raise file_error("start_weights", "must have a weight for each term of the model")
        learned = {"n_learned": history.n_users} | notes  # files without observed users may not say it
        n_learned = check_whole_value(learned, "n_learned", 1, history.n_users)
        shapes = parameter_shapes(n_learned, history.n_items, self.n_factors, self.bias, self.terms_on)
        parameters = load_parameters(arrays, shapes)
        # files of earlier versions have neither
        given = {"mean_user": parameters.user.mean(axis=0)} | arrays
        means = {"mean_boundary": float(parameters.boundary.mean()), "lr": float(self.lr)} | notes
        return FactorState(
            history=History.of(history),
            parameters=freeze(parameters),
            objective=self.objective(),
            start_weights=start,
            mean_user=check_array(given, "mean_user", np.float32, (self.n_factors,), limit=MAX_SIZE),
            mean_boundary=check_float_value(means, "mean_boundary", -MAX_SIZE, MAX_SIZE),
            side=self.side_data(history),
            n_epochs=check_whole_value(notes, "n_epochs", 0, MAX_WHOLE),
            losses=check_floats(notes, "losses"),
            valid_scores=check_floats(notes, "valid_scores"),
            stopped=check_text(notes, "stopped", STOPPED),
            lr=check_float_value(means, "lr", 0, 10),
            features=features,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(FactorScoring):
    """Scores are inner products of user and item vectors, learned by stochastic gradient descent."""

    def _learn(self, train: Interactions, options: FitOptions) -> FactorState:
        weights, items, features = self.start_weights(train), options.items, None
        if items is not None:
            check_options(options)
            features = ItemFeatures.of(items, train.items, self.n_factors, self.bias)
        start = self._initializer(weights, train.n_items)
        state = self._train(start, weights, train, train, options, features=features)
        if items is None:
            return state
        # items without interactions are added after training, which would only learn that no user has them
        return self._with_items(state, items, extend_items(state.history, items))

    def _learn_more(
        self, state: FactorState, more: Interactions, options: FitOptions, n_epochs: int | None
    ) -> FactorState:
        """Continue with more data; only users with new rows are trained."""
        data = state.history.merged.concat(more)
        weights = self.start_weights(data)
        fresh = self._initializer(weights, data.n_items)(0, data.n_users)
        for new, known in zip(fresh, state.parameters, strict=True):
            new[: known.shape[0]] = known
        touched = np.arange(data.n_users) >= state.n_learned
        touched[data.users.lookup(more.users.to_ids(more.active_users))] = True
        visited = data.where(touched[data.user])
        features = state.features
        if features is not None:
            features = features.align(state.history.items.align(data.items))
        return self._train(lambda first, last: fresh, weights, data, visited, options, n_epochs, features)

    def _add_history(self, state: FactorState, history: Interactions, users: Ints) -> FactorState:
        """Vectors and boundaries of new users, or of known ones with more history; items stay."""
        old, n_known = state.parameters, state.n_learned
        users = np.union1d(users, np.arange(n_known, history.n_users)).astype(np.int32)
        user = np.concatenate([old.user, np.tile(state.mean_user, (history.n_users - n_known, 1))])
        boundary = extend_values(old.boundary, history.n_users, state.mean_boundary)
        user[users], boundary[users] = self._fold(state, history, users, user[users], boundary[users])
        weights = {
            name: extend_values(getattr(old, name), history.n_users, start)
            for name, start in self._user_weights(state).items()
        }
        parameters = freeze(old._replace(user=user, boundary=boundary, **weights))
        side = self.side_data(history)
        return replace(state, history=History.of(history), parameters=parameters, side=side)

    def _observe(self, state: FactorState, history: History, new: NewRows) -> FactorState:
        """Vectors and boundaries stay; those of new users are computed with every request."""
        return replace(state, history=history, side=self.observed_side_data(state, history, new))

    def _train(
        self,
        start: Callable[[int, int], Parameters],
        weights: tuple[float | None, ...],
        history: Interactions,
        data: Interactions,
        options: FitOptions,
        n_epochs: int | None = None,
        features: ItemFeatures | None = None,
    ) -> FactorState:
        """Train from the parameters that `start` makes, on the rows of `data`."""
        objective, side = self.objective(), self.side_data(history)
        task = TrainingTask(
            start=start,
            data=data,
            representation=self.representation(data, history),
            objective=objective,
            hyper=single_precision(self._hyperparameters()),
            n_factors=self.n_factors,
            seed=self.seed,
            n_threads=self.n_threads,
            features=features,
            transform=self.weight_transform,
        )
        training = TrainingOptions(
            n_epochs=self.n_epochs if n_epochs is None else n_epochs,
            patience=self.patience,
            tol=self.tol,
            shapes=parameter_shapes(data.n_users, data.n_items, self.n_factors, self.bias, self.terms_on),
            identity={} if options.checkpoint is None else self._identity(*_fingerprints(history, options)),
            checkpoint=options.checkpoint,
            progress=options.progress,
            evaluator=self._evaluator(options.valid, history, side),
        )
        with options.engine.open_trainer(task) or ThreadTrainer(task) as trainer:
            run = train(trainer, self.lr, training)
            learned, cuts, features = trainer.finish(), trainer.user_cuts, trainer.features()
        trained = self.trained_users(history)
        mean = mean_user(learned, trained, cuts)
        learned = freeze(set_untrained_users(learned, trained, mean))
        next_size = self.fit_next_size(history)
        return replace(self._build_state(history, learned, mean, run, side, next_size), features=features)

    def _build_state(
        self,
        history: Interactions,
        parameters: Parameters,
        mean: Mapping[str, Any],
        run: TrainingState,
        side: Any,
        next_size: BasketSize | None,
    ) -> FactorState:
        """What the model knows after training; `mean` are the parameters of the mean user."""
        return FactorState(
            history=History.of(history),
            parameters=parameters,
            objective=self.objective(),
            start_weights=tuple(float(mean[name]) if name in mean else None for name, _ in TERMS),
            mean_user=mean["user"],
            mean_boundary=float(mean["boundary"]),
            side=side,
            n_epochs=run.best_epoch or run.epoch,
            losses=tuple(run.losses),
            valid_scores=tuple(run.scores),
            stopped=run.stopped,
            lr=self.lr * run.step_size.factor,
            next_size=next_size,
        )

    def _evaluator(self, valid: Interactions | None, history: Interactions, side: Any) -> Evaluator | None:
        """What scores the parameters on validation data."""
        if valid is None:
            return None

        def prepare(own: Interactions) -> DenseScores:
            own_side = self.request_side_data(side, own)
            return lambda theta, users, times: self.dense_scores(theta, own, own_side, users, times)

        return build_evaluator(valid, history, prepare, self.seed, self.trained_users(history))

    def _identity(self, data: str, valid: str | None) -> dict[str, Any]:
        """Parameters and fingerprints of the data; a checkpoint of another identity is rejected."""
        identity = {**self.get_params(), "class": type(self).__name__, "data": data, "valid": valid}
        del identity["n_threads"], identity["n_epochs"]
        if not self.weight_transform.is_used:  # checkpoints of earlier versions have neither
            del identity["weighting"], identity["weight_cap"]
        return identity

    def _check_params(self) -> None:
        check_whole(
            1,
            negative_draws=self.negative_draws,
            n_factors=self.n_factors,
            n_epochs=self.n_epochs,
            patience=self.patience,
        )
        check_whole(0, n_threads=self.n_threads)
        check_whole(0, MAX_SEED, seed=self.seed)
        check_flag(bias=self.bias)
        self.weight_transform.check()
        check_number(0, lr=self.lr, reg=self.reg, tol=self.tol, init=self.init)
        for name in ("reg_user", "reg_item", "reg_negative"):
            if getattr(self, name) is not None:
                check_number(0, **{name: getattr(self, name)})
        if not 0 < self.lr <= 10:
            raise ConfigError(f"lr must lie between 0 and 10, got {self.lr}; try 0.05.")
        self.objective()

    def _initializer(
        self, weights: tuple[float | None, ...], n_items: int
    ) -> Callable[[int, int], Parameters]:
        """What makes the initial parameters of users first … last - 1 and of all items."""
        return partial(
            initialize_parameters,
            n_items=n_items,
            n_factors=self.n_factors,
            init=self.init,
            t=self.objective().t,
            bias=self.bias,
            start_weights=weights,
            seed=self.seed,
        )

    def _with_items(self, state: FactorState, items: Items, history: History) -> FactorState:
        if state.features is None:
            return replace(state, history=history)
        features, parameters = state.features.add_items(items, history.items, state.parameters)
        side = self.side_data(history.merged)
        return replace(
            state,
            history=history,
            features=features,
            parameters=freeze(parameters),
            side=side,
            index=ItemIndexCache(),
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


def _fingerprints(history: Interactions, options: FitOptions) -> tuple[str, str | None]:
    """Of the training data and the validation data."""
    return history.fingerprint, None if options.valid is None else options.valid.fingerprint


BOUNDARIES = ("expected_f1", "learned")
MAX_SIZE_USERS = 500_000  # users from whom the prediction of sizes is learned, about
SIZES = 9  # id of a random stream
SIZE_ARRAYS = {  # arrays of a BasketSize in a file, and their shapes
    "center_": (N_HISTORY_COLUMNS,),
    "scale_": (N_HISTORY_COLUMNS,),
    "beta_": (N_HISTORY_COLUMNS + 1,),
}


@dataclass(kw_only=True, eq=False, repr=False)
class DynamicK(FactorModel):
    """The parameters that joint models add to their ranker: classification examples, personal boundaries."""

    earlier_params: ClassVar[dict[str, Any]] = {"boundary": "learned"}
    is_tried_by_fit: ClassVar[bool] = False
    not_searched: ClassVar[tuple[str, ...]] = ("negative_draws",)  # more would distort the probabilities

    alpha: float = 0.5
    t: float = 1.0
    lambda_t: float = 1.0
    negatives: float | str = 10.0
    loss: str = "logistic"
    penalty: str = "l2"
    boundary: str = "expected_f1"

    def objective(self) -> Objective:
        """The joint loss."""
        return Objective(
            alpha=self.alpha,
            t=self.t,
            lambda_t=self.lambda_t,
            negatives=self.negatives,
            loss=self.loss,
            penalty=self.penalty,
            learn_boundary=True,
        )

    @property
    def maximizes_f1(self) -> bool:
        """Whether lists end at the boundary with the highest expected F1, which needs probabilities."""
        objective = self.objective()
        return self.boundary == "expected_f1" and objective.has_boundary and objective.has_log_odds

    def fit_next_size(self, history: Interactions) -> BasketSize | None:
        """Predict the size of each user's last basket from the earlier ones; None without such users."""
        if not self.maximizes_f1:
            return None
        return fit_sizes(*size_examples(history, 0, history.n_users))

    def score(self, request: RecommendRequest[FactorState]) -> Scores:
        """The scores of the ranker; probabilities are those of the next list, whose size is predicted."""
        scores, next_size = super().score(request), request.state.next_size
        if not self.maximizes_f1:
            return scores
        assert scores.log_odds_shift is not None
        own = positive_rates(self.items_per_group(request.history, request.rows))
        if next_size is None:  # the data has no second baskets: the next list is like the history
            return replace(scores, expected_sizes=np.maximum(own, 1), size_dispersion=0.0)
        sizes = 1 + next_size.predict_history(request.history, request.rows)
        return replace(
            scores,
            log_odds_shift=(scores.log_odds_shift + np.log(sizes / own)).astype(np.float32),
            expected_sizes=sizes,
            size_dispersion=float(next_size.dispersion_),
        )

    def _check_params(self) -> None:
        super()._check_params()
        if not any(self.boundary == one for one in BOUNDARIES):
            raise ConfigError(
                f"boundary must be one of {', '.join(BOUNDARIES)}, got {short_repr(self.boundary)}."
            )

    def _to_arrays(self, state: FactorState) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, notes = super()._to_arrays(state)
        if state.next_size is not None:
            arrays |= {f"next_size.{name}": vars(state.next_size)[name] for name in SIZE_ARRAYS}
            notes |= {"next_size_dispersion": state.next_size.dispersion_}
        return arrays, notes

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> FactorState:
        own = {name: array for name, array in arrays.items() if name.startswith("next_size.")}
        state = super()._from_arrays(
            history, {name: array for name, array in arrays.items() if name not in own}, notes
        )
        return replace(state, next_size=_load_size(own, notes)) if own else state


def size_examples(history: Interactions, first_user: int, n_users: int) -> tuple[Doubles, Ints]:
    """(columns, counts): what is known of users before their last baskets, and the items of these but one.

    `history` has the rows of users first_user … of all n_users. Of very many users, a part is drawn.
    """
    is_used = np.diff(history.user_baskets) > 1
    if n_users > MAX_SIZE_USERS:
        numbers = np.arange(history.n_users, dtype=np.uint64) + np.uint64(first_user)
        drawn = random_bits(stream(0, SIZES)[0], numbers) >> np.uint64(11)
        is_used &= drawn * 2.0**-53 < MAX_SIZE_USERS / n_users
    users = np.flatnonzero(is_used).astype(np.int32)
    # a list has at least one item: predict the others
    last = np.diff(history.baskets)[history.user_baskets[users + 1] - 1] - 1
    earlier = history.where(~in_last_basket(history))
    return history_columns(earlier, users), last.astype(np.int32)


def fit_sizes(columns: Doubles, counts: Ints) -> BasketSize | None:
    """Learn to predict the size of the next list from `size_examples`; None without examples."""
    return BasketSize().fit_history_columns(columns, counts) if counts.size else None


def _load_size(arrays: dict[str, Any], notes: dict[str, Any]) -> BasketSize:
    size = BasketSize()
    for name, shape in SIZE_ARRAYS.items():
        low = 1e-9 if name == "scale_" else None
        vars(size)[name] = check_array(arrays, f"next_size.{name}", np.float64, shape, low=low)
    size.uses_history_, size.uses_expected_sizes_ = True, False
    size.dispersion_ = check_float_value(notes, "next_size_dispersion", 0, 1e300)
    return size
