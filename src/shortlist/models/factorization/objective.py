"""The joint objective L = α·L_cf + (1 − α)·L_rk (paper eq. 1-6)."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from shortlist.core.params import POSITIVE, check_choice, check_number, is_finite, short_repr
from shortlist.errors import ConfigError
from shortlist.kernels.rows import find_members
from shortlist.kernels.sgd import HINGE, L1, L2, LOGISTIC, SQUARED, TERMS, Hyperparameters, Parameters
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

LOSSES = {"logistic": LOGISTIC, "hinge": HINGE, "squared": SQUARED}
PENALTIES = {"l2": L2, "l1": L1}


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The objective that training minimizes; the defaults give the pure ranking loss (BPR)."""

    alpha: float = 0.0  # share of classification steps
    t: float = 0.0  # initial value of every boundary, toward which it is regularized
    lambda_t: float = 0.0  # strength of that regularization
    negatives: float | str = 1.0  # negative examples per positive example, or "uniform"
    weight: float = 1.0  # of a positive example
    loss: str = "logistic"
    penalty: str = "l2"
    learn_boundary: bool = False

    def __post_init__(self) -> None:
        check_number(0, 1, alpha=self.alpha)
        check_number(0, lambda_t=self.lambda_t)
        check_number(-1e12, 1e12, t=self.t)
        check_number(POSITIVE, c=self.weight)
        is_uniform = isinstance(self.negatives, str) and self.negatives == "uniform"
        if not is_uniform and not (is_finite(self.negatives) and float(self.negatives) > 0):
            raise ConfigError(
                f'negatives must be a number above 0 or "uniform", got {short_repr(self.negatives)}; '
                "4 means four negative examples per positive example."
            )
        check_choice("loss", self.loss, LOSSES)
        check_choice("penalty", self.penalty, PENALTIES)
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
            lambda_t=float(self.lambda_t),
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

    def value(self, liked: Floats, other: Floats, boundary: Floats, density: Doubles) -> float:
        """The mean loss over samples, from the scores of a liked and an unseen item, t_u and the density."""
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
                total += self.alpha * self.lambda_t * float(penalty.mean())
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


class LossRows(NamedTuple):
    """What is fixed about the sampled rows."""

    groups: Ints  # (n,)
    users: Ints  # (n,) of the groups
    liked: Ints  # (n,) items
    other: Ints  # (n,) items
    seen: Bools  # (n,) whether the group has `other`
    liked_signals: Signals
    other_signals: Signals
    density: Doubles  # (n,) share of the items that the group has

    @classmethod
    def of(
        cls, indptr: Longs, item: Ints, n_items: int, representation: Any, rows: Longs, other: Ints
    ) -> Self:
        """The rows of these numbers, among the rows `item` of the groups that `indptr` divides."""
        groups: Ints = (np.searchsorted(indptr, rows, side="right") - 1).astype(np.int32)
        seen, liked = np.empty(rows.size, np.bool_), item[rows]
        find_members(indptr, item, groups, other, seen)
        n_liked = indptr[groups + 1] - indptr[groups]
        return cls(
            groups,
            representation.group_users(groups),
            liked,
            other,
            seen,
            representation.signals(groups, liked),
            representation.signals(groups, other),
            n_liked / n_items,
        )

    def user_values(self, representation: Any, theta: Parameters) -> "UserValues":
        """What the loss needs of the users; items are in the order of the labels."""
        weights = theta._asdict()
        return UserValues(
            representation.group_vectors(theta, self.groups),
            theta.boundary[self.users],
            tuple(weights[by_user][self.users] if weights[by_user].size else None for by_user, _ in TERMS),
        )


class UserValues(NamedTuple):
    """The user side of the scores of the sampled rows."""

    vectors: Floats  # (n, n_factors)
    boundary: Floats  # (n,)
    weights: Signals  # (n,) the user's weight of each term


Sampled = TypeVar("Sampled", LossRows, UserValues)


def join_samples(pieces: list[Sampled]) -> Sampled:
    """All rows of some samples, in their order."""

    def stack(values: tuple[Any, ...]) -> Any:
        if isinstance(values[0], tuple):
            return tuple(map(stack, zip(*values, strict=True)))
        return None if values[0] is None else np.concatenate(values)

    return type(pieces[0])(*map(stack, zip(*pieces, strict=True)))


class LossTracker:
    """The mean joint loss over the sampled rows."""

    def __init__(self, rows: LossRows, objective: Objective) -> None:
        seen = rows.seen
        self.kept = np.flatnonzero(seen if seen.all() else ~seen)  # without unseen items, use seen ones
        self.rows, self.objective = rows, objective

    def loss(self, users: UserValues, theta: Parameters, label: Ints) -> float:
        """The loss; the items of `theta` are in the order of `label`."""
        rows, kept = self.rows, self.kept
        with np.errstate(over="ignore", invalid="ignore"):  # `StepSize` handles a loss that is not finite
            scores = [
                self._score(users, theta, label[items[kept]], signals)
                for items, signals in ((rows.liked, rows.liked_signals), (rows.other, rows.other_signals))
            ]
            return self.objective.value(scores[0], scores[1], users.boundary[kept], rows.density[kept])

    def _score(self, users: UserValues, theta: Parameters, items: Ints, signals: Signals) -> Floats:
        score: Floats = np.einsum("nf,nf->n", users.vectors[self.kept], theta.item[items])
        if theta.bias.size:
            score += theta.bias[items]
        by_name = theta._asdict()
        for (_, by_item), weight, signal in zip(TERMS, users.weights, signals, strict=True):
            if weight is not None and signal is not None:
                score += (weight[self.kept] + by_name[by_item][items]) * signal[self.kept]
        return score
