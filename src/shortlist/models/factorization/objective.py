"""The joint objective L = α·L_cf + (1 − α)·L_rk (paper eq. 1-6)."""

from dataclasses import dataclass

import numpy as np

from shortlist.errors import ConfigError
from shortlist.kernels.parameters import HINGE, L1, L2, LOGISTIC, SQUARED, TERMS, Hyperparameters, Parameters
from shortlist.kernels.rows import find_members
from shortlist.models.factorization.groups import Groups
from shortlist.types import Doubles, Floats, Ints, Longs

LOSSES = {"logistic": LOGISTIC, "hinge": HINGE, "squared": SQUARED}
PENALTIES = {"l2": L2, "l1": L1}


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The objective that training minimizes; the defaults give the pure ranking loss (BPR)."""

    alpha: float = 0.0  # share of classification steps
    t: float = 0.0  # initial value of every boundary, toward which it is regularized
    lambda_t: float = 0.0  # strength of that regularization
    lambda_t_per: str = "step"  # or "user": once per user and epoch, outside of the sum over examples
    negatives: float | str = 1.0  # negative examples per positive example, or "uniform"
    weight: float = 1.0  # of a positive example
    loss: str = "logistic"
    penalty: str = "l2"
    learn_boundary: bool = False

    def __post_init__(self) -> None:
        if self.learn_boundary and self.loss == "squared":
            raise ConfigError(
                "loss must be logistic or hinge if a boundary is learned, got 'squared'; use CRRMF for it."
            )

    def hyperparameters(
        self, *, lr: float, reg_user: float, reg_item: float, reg_negative: float, negative_draws: int
    ) -> Hyperparameters[float]:
        """The arguments of the kernels: as they are for fold-in, in `single_precision` for SGD."""
        return Hyperparameters(
            lr=float(lr),
            reg_user=float(reg_user),
            reg_item=float(reg_item),
            reg_negative=float(reg_negative),
            alpha=float(self.alpha),
            positive_rate=0.0 if isinstance(self.negatives, str) else float(1 / (1 + self.negatives)),
            positive_weight=float(self.weight),
            t=float(self.t),
            lambda_t=float(self.lambda_t) if self.lambda_t_per == "step" else 0.0,
            loss=LOSSES[self.loss],
            penalty=PENALTIES[self.penalty],
            learn_boundary=self.learn_boundary,
            negative_draws=np.int32(negative_draws),
        )

    @property
    def has_boundary(self) -> bool:
        """Whether training learns a boundary."""
        return self.learn_boundary and self.alpha > 0

    @property
    def has_log_odds(self) -> bool:
        """Whether scores are log-odds up to a shift."""
        return self.alpha > 0 and self.loss == "logistic"

    @property
    def has_uniform_examples(self) -> bool:
        """Whether classification examples are drawn uniformly from all items."""
        return self.alpha > 0 and isinstance(self.negatives, str)

    def lambda_of_examples(self, n_rows: Doubles) -> Doubles:
        """(n,) λ_t of one classification example of users with so many training rows."""
        if self.lambda_t_per == "step":
            return np.full(n_rows.size, self.lambda_t)
        return self.lambda_t / np.maximum(self.alpha * n_rows, 1)

    def pull_boundaries(self, boundary: Floats, lr: float) -> None:
        """Make the step of an epoch on λ_t · R(t_u - t) in place, unless it is part of every other step."""
        if self.lambda_t_per == "step" or not self.has_boundary:
            return
        distance = boundary - np.float32(self.t)
        if self.penalty == "l1":
            distance -= np.clip(distance, -lr * self.lambda_t, lr * self.lambda_t)
        else:
            distance /= np.float32(1 + 2 * lr * self.lambda_t)
        boundary[:] = np.float32(self.t) + distance

    def value(
        self, liked: Floats, other: Floats, boundary: Floats, density: Doubles, lambda_t: Doubles
    ) -> float:
        """The mean loss over samples, from the scores of a liked and an unseen item, t_u, density and λ_t."""
        total = 0.0
        if self.alpha < 1:
            total += (1 - self.alpha) * float(np.logaddexp(0, other - liked).mean())
        if self.alpha > 0:
            rate = density if isinstance(self.negatives, str) else 1 / (1 + self.negatives)
            up, down = self._class_losses(liked - boundary, other - boundary, liked, other)
            total += self.alpha * float(np.mean(rate * self.weight * up + (1 - rate) * down))
            if self.learn_boundary:
                distance = boundary - self.t
                penalty = np.abs(distance) if self.penalty == "l1" else distance**2
                total += self.alpha * float(np.mean(lambda_t * penalty))
        return total

    def _class_losses(self, up: Floats, down: Floats, liked: Floats, other: Floats) -> tuple[Floats, Floats]:
        if self.loss == "squared":
            return 0.5 * (1 - liked) ** 2, 0.5 * other**2
        if self.loss == "hinge":
            return np.maximum(1 - up, 0), np.maximum(1 + down, 0)
        return np.logaddexp(0, -up), np.logaddexp(0, down)

    def log_odds_shift(self, boundary: Floats, n_liked: Doubles, n_items: int) -> Floats | None:
        """(n,) what to add to scores to get log-odds: -t_u, corrected for the sampling of the examples."""
        if not self.has_log_odds:
            return None
        shift = -boundary.astype(np.float64) - np.log(self.weight)
        if not isinstance(self.negatives, str):
            shift += np.log(self.negatives) + np.log(positive_rates(n_liked) / n_items)
        return np.asarray(shift, np.float32)


def positive_rates(n_liked: Doubles) -> Doubles:
    """(n,) items per group, at least one half for users without any."""
    return np.maximum(n_liked, 0.5)


def single_precision(hyper: Hyperparameters[float]) -> Hyperparameters[np.float32]:
    """Round the numbers to float32, which keeps the arithmetic of SGD in single precision."""
    return Hyperparameters(*(np.float32(value) if isinstance(value, float) else value for value in hyper))  # type: ignore[arg-type]


LOSS_ROWS = 20_000
LOSS = 3  # id of a random stream

Signals = tuple[Floats | None, ...]  # for each of TERMS; None if the term is not used


def draw_rows(n_rows: int, n_items: int, seed: int) -> tuple[Longs, Ints]:
    """(rows, other): ascending numbers of training rows, and an item for each that may be unseen."""
    rng = np.random.Generator(np.random.PCG64([seed, LOSS]))
    rows = np.sort(rng.choice(n_rows, min(LOSS_ROWS, n_rows), replace=False))
    return rows, rng.integers(n_items, size=rows.size, dtype=np.int32)


class LossSample:
    """The mean joint loss over a fixed sample of the training rows, each with an item that is not liked."""

    def __init__(
        self,
        groups: Groups,
        indptr: Longs,  # (n_groups + 1,) rows of each group
        item: Ints,  # (n_rows,)
        n_items: int,
        objective: Objective,
        seed: int,
    ) -> None:
        rows, other = draw_rows(item.size, n_items, seed)
        group: Ints = (np.searchsorted(indptr, rows, side="right") - 1).astype(np.int32)
        seen = np.empty(rows.size, np.bool_)
        find_members(indptr, item, group, other, seen)
        kept = np.flatnonzero(seen if seen.all() else ~seen)  # without unseen items, use seen ones
        self.groups, self.objective = groups, objective
        self.group, self.liked, self.other = group[kept], item[rows[kept]], other[kept]
        self.users: Ints = groups.users[self.group]
        self.liked_signals: Signals = groups.signals(self.group, self.liked)
        self.other_signals: Signals = groups.signals(self.group, self.other)
        self.density = (indptr[self.group + 1] - indptr[self.group]) / n_items
        user_rows = np.diff(indptr[groups.starts])[self.users]
        self.lambda_t = objective.lambda_of_examples(user_rows.astype(np.float64))

    def loss(self, theta: Parameters, label: Ints) -> float:
        """The loss; the items of `theta` are in the order of `label`."""
        vectors = self.groups.vectors(theta, self.group)
        with np.errstate(over="ignore", invalid="ignore"):  # `StepSize` handles a loss that is not finite
            liked = self._score(vectors, theta, label[self.liked], self.liked_signals)
            other = self._score(vectors, theta, label[self.other], self.other_signals)
            boundary = theta.boundary[self.users]
            return self.objective.value(liked, other, boundary, self.density, self.lambda_t)

    def _score(self, vectors: Floats, theta: Parameters, items: Ints, signals: Signals) -> Floats:
        score: Floats = np.einsum("nf,nf->n", vectors, theta.item[items])
        if theta.bias.size:
            score += theta.bias[items]
        weights = theta._asdict()
        for (by_user, by_item), signal in zip(TERMS, signals, strict=True):
            if weights[by_user].size and signal is not None:
                score += (weights[by_user][self.users] + weights[by_item][items]) * signal
        return score
