"""The joint objective L = α·L_cf + (1 − α)·L_rk (paper eq. 1-6)."""

from dataclasses import dataclass

import numpy as np

from shortlist.core.estimator import check_choice, is_finite, short_repr
from shortlist.errors import ConfigError
from shortlist.kernels.losses import HINGE, L1, L2, LOGISTIC, SQUARED
from shortlist.kernels.mf import Hyperparameters
from shortlist.types import Doubles, Floats

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
        if not is_finite(self.alpha) or not 0 <= self.alpha <= 1:
            raise ConfigError(
                "alpha must be between 0 (only ranking) and 1 (only classification), "
                f"got {short_repr(self.alpha)}."
            )
        if isinstance(self.negatives, str):
            valid = self.negatives == "uniform"
        else:
            valid = is_finite(self.negatives) and self.negatives > 0
        if not valid:
            raise ConfigError(
                f'negatives must be a number above 0 or "uniform", got {short_repr(self.negatives)}; '
                "4 means four negative examples per positive example."
            )
        for name, value, allowed in (("loss", self.loss, LOSSES), ("penalty", self.penalty, PENALTIES)):
            check_choice(name, value, allowed)
        if self.learn_boundary and self.loss == "squared":
            raise ConfigError(
                "loss must be logistic or hinge if a boundary is learned, got 'squared'; use CRRMF for it."
            )
        if not is_finite(self.lambda_t) or self.lambda_t < 0:
            raise ConfigError(
                f"lambda_t must be at least 0, got {short_repr(self.lambda_t)}; 0 does not regularize."
            )
        if not is_finite(self.weight) or self.weight <= 0:
            raise ConfigError(
                f"c, the weight of positive examples, must be above 0, got {short_repr(self.weight)}; try 1."
            )
        if not is_finite(self.t):
            raise ConfigError(f"t must be a finite number, got {short_repr(self.t)}; try 1.")

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
