"""The joint engine: a representation, an objective and the training loop, put together (paper §3.2)."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.kernels.fold import PLAIN
from shortlist.kernels.mf import TERMS, Parameters
from shortlist.kernels.rng import stream, uniform_fill
from shortlist.models.base import Recommender, at_least, whole
from shortlist.models.factorization.fold_in import fold
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.training import Plan, Progress, frozen, train
from shortlist.models.factorization.validation import judge_of
from shortlist.types import Doubles, Floats, Ints, Longs

USERS, ITEMS = 4, 5  # names of random streams


@dataclass(kw_only=True, eq=False)
class JointModel(Recommender):
    """Scores are inner products; same seed, same bits, on any number of threads.

    `reg` is the strength of L2 on all factors; reg_user, reg_item and reg_negative override it for the user,
    the liked item and the sampled unseen item. `bias` adds one number per item, not regularised. For a pair,
    `draws` unseen items are drawn and the one that scores best is used: 1 is plain BPR, more climb higher at
    the top of the list. Training ends after `n_epochs`, or when the loss has not changed by `tol` (relative)
    for three epochs, or, where `fit` is given validation data, when its F1 has not risen for `patience`
    epochs; then the best state is kept.
    """

    fixed_factors: ClassVar[bool] = True  # every fit makes new arrays, so an index of them may be kept

    n_factors: int = 50
    n_epochs: int = 100
    lr: float = 0.05
    reg: float = 0.01
    reg_user: float | None = None
    reg_item: float | None = None
    reg_negative: float | None = None
    bias: bool = True
    negative_draws: int = 1
    init: float = 0.1  # spread of the factors at the start
    tol: float = 1e-4
    patience: int = 15
    seed: int = 0
    n_threads: int = 0  # 0: every core

    @abstractmethod
    def objective(self) -> Objective:
        """What is descended."""

    @abstractmethod
    def representation(self, train: Interactions, history: Interactions) -> Representation:
        """How users become score vectors; `train` are the rows of `history` that are visited."""

    def fit(
        self,
        train: Interactions,
        *,
        valid: Interactions | None = None,
        progress: Callable[[Progress], None] | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn from scratch; a run found at `checkpoint` is continued and ends in the same bits."""
        objective = self._check(train)
        self.check_start(train)
        theta = self._start(objective, train)
        return self._descend(theta, train, train, valid, progress, checkpoint)

    def partial_fit(
        self,
        more: Interactions,
        *,
        progress: Callable[[Progress], None] | None = None,
        n_epochs: int | None = None,
    ) -> Self:
        """Go on with more data: new users and items are appended, users with new rows are visited again."""
        old: Parameters = self.need("theta_")
        objective = self._check(more)
        data = self.history_.concat(more)
        fresh = self._start(objective, data)
        theta = Parameters(*(_grown(start, array) for start, array in zip(fresh, old, strict=True)))
        touched = np.zeros(data.n_users, np.bool_)
        touched[data.users.lookup(more.users.to_ids(more.active_users))] = True
        visited = data.where(touched[data.user])
        return self._descend(theta, data, visited, None, progress, None, n_epochs)

    def fold_in(self, newcomers: Mapping[Any, Iterable[Any]]) -> Self:
        """Vectors and boundaries for new users (or known ones with one more basket); items stay as is."""
        old: Parameters = self.need("theta_")
        data = self.history_.add_baskets(newcomers)
        fresh = self._start(self.objective(), data)
        user, boundary = _grown(fresh.user, old.user), _grown(fresh.boundary, old.boundary)
        users = data.users.lookup(list(newcomers))
        goal = self.objective().goal(self.reg if self.reg_user is None else self.reg_user, self.pool)
        density = self.n_taken(data, users) / data.n_items
        user[users], boundary[users] = fold(
            data,
            users,
            density,
            user[users],
            boundary[users],
            old.item,
            self.offsets(old, data),
            goal,
            self.seed,
            self.n_threads,
        )
        self.remember(data)
        weights = {name: _grown(getattr(fresh, name), getattr(old, name)) for name, _ in TERMS}
        self.theta_ = frozen(old._replace(user=user, boundary=boundary, **weights))
        return self

    def _descend(
        self,
        theta: Parameters,
        history: Interactions,
        data: Interactions,
        valid: Interactions | None,
        progress: Callable[[Progress], None] | None,
        checkpoint: str | Path | None,
        n_epochs: int | None = None,
    ) -> Self:
        objective, representation = self.objective(), self.representation(data, history)
        regs = [self.reg if r is None else r for r in (self.reg_user, self.reg_item, self.reg_negative)]
        identity = {} if checkpoint is None else self._identity(history, valid)
        judge = None if valid is None else judge_of(valid, history, self.scores_of, self.seed)
        run = train(
            theta,
            data,
            representation,
            objective,
            objective.rates(self.lr, regs[0], regs[1], regs[2], self.negative_draws),
            Plan(
                n_epochs=self.n_epochs if n_epochs is None else n_epochs,
                patience=self.patience,
                tol=self.tol,
                seed=self.seed,
                n_threads=self.n_threads,
                identity=identity,
                checkpoint=None if checkpoint is None else Path(checkpoint),
                progress=progress,
                judge=judge,
            ),
        )
        self.remember(history)
        self.theta_ = run.theta if run.best is None else run.best
        self.n_epochs_ = run.best_epoch or run.epoch
        self.losses_, self.valid_scores_, self.stopped_ = run.losses, run.scores, run.stopped
        return self

    def check_start(self, train: Interactions) -> None:
        """Refuse data that the representation cannot start from."""

    def _identity(self, history: Interactions, valid: Interactions | None) -> dict[str, Any]:
        """What a checkpoint must agree with; it reads all the data, so only checkpoints ask for it."""
        identity = {**self.get_params(), "class": type(self).__name__, "data": history.fingerprint}
        identity["valid"] = None if valid is None else valid.fingerprint
        del identity["n_threads"], identity["n_epochs"]
        return identity

    def _check(self, data: Interactions) -> Objective:
        whole(
            1,
            negative_draws=self.negative_draws,
            n_factors=self.n_factors,
            n_epochs=self.n_epochs,
            patience=self.patience,
        )
        whole(0, seed=self.seed, n_threads=self.n_threads)
        at_least(0, lr=self.lr, reg=self.reg, tol=self.tol, init=self.init)
        at_least(
            0,
            **{n: v for n in ("reg_user", "reg_item", "reg_negative") if (v := getattr(self, n)) is not None},
        )
        if not 0 < self.lr <= 10:
            raise ConfigError(f"lr must lie between 0 and 10, got {self.lr}; 0.05 is a good start.")
        self.check_data(data)
        return self.objective()

    def _start(self, objective: Objective, data: Interactions) -> Parameters:
        """Small random factors; row n depends on the seed and n alone, so that later rows can be appended."""
        n_users, n_items = data.n_users, data.n_items
        reach = np.float32(self.init * np.sqrt(3 / self.n_factors))  # its spread is init / √n_factors

        def draw(name: int, n: int) -> Floats:
            factors = np.empty((n, self.n_factors), np.float32)
            uniform_fill(stream(self.seed, name)[0], reach, factors.reshape(-1))
            return factors

        terms: list[Floats] = []
        for level in self.levels(data):
            counts = level is not None
            terms.append(np.full(n_users if counts else 0, level or 0, np.float32))
            terms.append(np.zeros(n_items if counts else 0, np.float32))
        return Parameters(
            draw(USERS, n_users),
            np.full(n_users, objective.t, np.float32),
            draw(ITEMS, n_items),
            np.zeros(n_items if self.bias else 0, np.float32),
            *terms,
        )

    def levels(self, data: Interactions) -> tuple[float | None, ...]:
        """For each of TERMS, where users' weights start; None where it does not count."""
        return (None,) * len(TERMS)

    def offsets(self, theta: Parameters, history: Interactions) -> Floats:
        """(n_items,) or (0,) what a newcomer's scores hold beside the factors."""
        return theta.bias

    @abstractmethod
    def vectors_of(self, theta: Parameters, history: Interactions, users: Ints) -> Floats:
        """(n, n_factors) what users look like to the scorer after their history."""

    @property
    def pool(self) -> int:
        """How the user enters the score vector, for `fold_in`."""
        return PLAIN

    def n_taken(self, history: Interactions, users: Ints) -> Doubles:
        """(n,) how many items a user takes of those that are scored: the base rate of the examples."""
        return np.diff(history.item_sets[0])[users].astype(np.float64)

    def scores_of(
        self, theta: Parameters, history: Interactions, users: Ints, at: Longs | None = None
    ) -> Floats:
        """(n, n_items) every item's score after the users' history, at their moments (None: after all)."""
        scores: Floats = self.vectors_of(theta, history, users) @ theta.item.T
        if theta.bias.size:
            scores += theta.bias
        return scores

    # ------------------------------------------------------------------ the contract
    def factors(self, users: Ints) -> tuple[Floats, Floats, Floats | None] | None:
        """(score vectors, item vectors, item bias), unless something counts beside them."""
        theta: Parameters = self.need("theta_")
        if any(getattr(theta, name).size for name, _ in TERMS):
            return None
        return (
            self.vectors_of(theta, self.history_, users),
            theta.item,
            theta.bias if theta.bias.size else None,
        )

    def score(self, users: Ints) -> Floats:
        """(n, n_items) every item's score for dense users."""
        return self.scores_of(self.need("theta_"), self.history_, users)

    def boundaries(self, users: Ints) -> Floats | None:
        """(n,) t_u, where the objective learns one."""
        theta: Parameters = self.need("theta_")
        objective = self.objective()
        return theta.boundary[users] if objective.learn_boundary and objective.alpha > 0 else None

    def log_odds_shift(self, users: Ints) -> Floats | None:
        """(n,) what to add to a score to get the log-odds of relevance; None where scores only rank."""
        theta: Parameters = self.need("theta_")
        history = self.history_
        return self.objective().log_odds_shift(
            theta.boundary[users], self.n_taken(history, users), history.n_items
        )

    # ------------------------------------------------------------------ saving
    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        theta: Parameters = self.need("theta_")
        notes = {
            "n_epochs": self.n_epochs_,
            "losses": self.losses_,
            "valid_scores": self.valid_scores_,
            "stopped": self.stopped_,
        }
        return theta._asdict(), notes

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        self.theta_ = frozen(Parameters(*(arrays[name] for name in Parameters._fields)))
        self.n_epochs_, self.losses_ = notes["n_epochs"], notes["losses"]
        self.valid_scores_, self.stopped_ = notes["valid_scores"], notes["stopped"]


@dataclass(kw_only=True, eq=False)
class DynamicK(JointModel):
    """What a joint model adds to its ranker: the share of examples, the boundary and its leash.

    `negatives` per positive is the strictness of the boundary: s > t_u means odds above `negatives` times the
    base rate; "uniform" draws examples uniformly over items, as the paper says.
    """

    alpha: float = 0.5
    t: float = 1.0
    lambda_t: float = 1.0
    negatives: float | str = 10.0
    loss: str = "logistic"
    penalty: str = "l2"

    def objective(self) -> Objective:
        """What is descended."""
        return Objective(
            alpha=self.alpha,
            t=self.t,
            lambda_t=self.lambda_t,
            negatives=self.negatives,
            loss=self.loss,
            penalty=self.penalty,
            learn_boundary=True,
        )


def _grown(start: Floats, known: Floats) -> Floats:
    """Freshly drawn rows, with what is known already written over the first of them."""
    start[: known.shape[0]] = known
    return start
