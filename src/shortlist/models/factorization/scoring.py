"""FactorScoring: what a factor model defines, its scores, and how it is saved; `FactorModel` trains it."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shortlist.content.space import FeatureSpace
from shortlist.core.checks import (
    check_array,
    check_float_value,
    check_floats,
    check_names,
    check_text,
    check_whole_value,
    file_error,
)
from shortlist.core.estimator import MAX_WHOLE
from shortlist.cutoff.basket_size import BasketSize
from shortlist.data.history import History, NewRows
from shortlist.data.id_map import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.kernels.fold import USER_ONLY
from shortlist.kernels.mf import TERMS, Hyperparameters, Parameters
from shortlist.models.contract import MAX_BATCH
from shortlist.models.factorization.fold_in import fold_in
from shortlist.models.factorization.item_features import ItemFeatures
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.parameters import (
    MAX_SIZE,
    freeze,
    load_parameters,
    parameter_shapes,
)
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.state import FactorState
from shortlist.models.factorization.training import STOPPED
from shortlist.models.new_items import ContentRecommender
from shortlist.models.weighting import WeightParams
from shortlist.recommend.explain import Contributions, largest_first
from shortlist.recommend.request import Factors, RecommendRequest, Scores
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


@dataclass(kw_only=True, eq=False, repr=False)
class FactorScoring(WeightParams, ContentRecommender):
    """Scores are inner products of user and item vectors."""

    uses_engine: ClassVar[bool] = True
    uses_epochs: ClassVar[bool] = True
    uses_new_items: ClassVar[bool] = False

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
