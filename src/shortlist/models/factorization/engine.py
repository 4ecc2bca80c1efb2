"""FactorModel: training of all factor models (paper §3.2); a subclass defines what `FactorScoring` lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shortlist.content.space import extend_items
from shortlist.core.estimator import MAX_SEED, check_flag, check_number, check_whole
from shortlist.cutoff.basket_size import BasketSize
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.kernels.mf import TERMS, Parameters
from shortlist.models.contract import FitOptions
from shortlist.models.factorization.item_features import ItemFeatures, check_options
from shortlist.models.factorization.objective import single_precision
from shortlist.models.factorization.parameters import (
    extend_values,
    freeze,
    initialize_parameters,
    mean_user,
    parameter_shapes,
    set_untrained_users,
)
from shortlist.models.factorization.scoring import FactorScoring
from shortlist.models.factorization.state import FactorState
from shortlist.models.factorization.trainer import ThreadTrainer, TrainingTask
from shortlist.models.factorization.training import TrainingOptions, TrainingState, train
from shortlist.models.factorization.validation import DenseScores, Evaluator, build_evaluator
from shortlist.recommend.index import ItemIndexCache
from shortlist.types import Ints


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
