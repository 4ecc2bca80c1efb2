"""The joint objective L = α·L_cf + (1 − α)·L_rk, in the forms kernels and people need (paper eq. 1-6)."""

from dataclasses import dataclass

import numpy as np

from shortlist.errors import ConfigError
from shortlist.kernels.fold import FoldInObjective
from shortlist.kernels.losses import HINGE, L1, L2, LOGISTIC, SQUARED
from shortlist.kernels.mf import Rates
from shortlist.types import Doubles, Floats

LOSSES = {"logistic": LOGISTIC, "hinge": HINGE, "squared": SQUARED}
PENALTIES = {"l2": L2, "l1": L1}


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a step descends; the defaults are the pure ranker (BPR)."""

    alpha: float = 0.0  # share of steps that are classification examples
    t: float = 0.0  # where every boundary starts, and what it is drawn back to
    lambda_t: float = 0.0
    negatives: float | str = 1.0  # per positive among the examples, or "uniform"
    weight: float = 1.0  # of a positive example
    loss: str = "logistic"
    penalty: str = "l2"
    learn_boundary: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(
                f"alpha must lie between 0 (rank only) and 1 (classify only), got {self.alpha}."
            )
        if self.negatives != "uniform" and not (
            isinstance(self.negatives, (int, float)) and self.negatives > 0
        ):
            raise ConfigError(
                f'negatives must be a number above 0 or "uniform", got {self.negatives!r}; '
                "4 means four negatives for every positive."
            )
        for name, allowed in (("loss", LOSSES), ("penalty", PENALTIES)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if self.learn_boundary and self.loss == "squared":
            raise ConfigError(
                "loss must be logistic or hinge where a boundary is learned, got 'squared'; see CRRMF."
            )
        if not self.lambda_t >= 0:
            raise ConfigError(f"lambda_t must be at least 0, got {self.lambda_t}; 0 leaves boundaries free.")
        if not self.weight > 0:
            raise ConfigError(
                f"c, the weight of positives, must be above 0, got {self.weight}; 1 weighs all alike."
            )
        if not np.isfinite(self.t):
            raise ConfigError(f"t must be a finite number, got {self.t}.")

    def rates(
        self, lr: float, reg_user: float, reg_item: float, reg_negative: float, negative_draws: int
    ) -> Rates:
        """The same, as kernels take it."""
        share = 0.0 if isinstance(self.negatives, str) else 1 / (1 + self.negatives)
        return Rates(
            lr=np.float32(lr),
            reg_user=np.float32(reg_user),
            reg_item=np.float32(reg_item),
            reg_negative=np.float32(reg_negative),
            alpha=np.float32(self.alpha),
            share=np.float32(share),
            weight=np.float32(self.weight),
            t=np.float32(self.t),
            lambda_t=np.float32(self.lambda_t),
            loss=LOSSES[self.loss],
            penalty=PENALTIES[self.penalty],
            learn_boundary=self.learn_boundary,
            negative_draws=np.int32(negative_draws),
        )

    def goal(self, reg_user: float, pool: int) -> FoldInObjective:
        """The same, as `kernels.fold` takes it."""
        share = 0.0 if isinstance(self.negatives, str) else 1 / (1 + self.negatives)
        return FoldInObjective(
            reg_user=float(reg_user),
            alpha=float(self.alpha),
            share=float(share),
            weight=float(self.weight),
            t=float(self.t),
            lambda_t=float(self.lambda_t),
            loss=int(LOSSES[self.loss]),
            penalty=int(PENALTIES[self.penalty]),
            learn_boundary=self.learn_boundary,
            pool=pool,
        )

    @property
    def has_boundary(self) -> bool:
        """Whether training learns a boundary."""
        return self.learn_boundary and self.alpha > 0

    def value(self, liked: Floats, other: Floats, boundary: Floats, density: Doubles) -> float:
        """The mean loss over sampled triples: scores of a liked and an unseen item, t_u, density."""
        total = 0.0
        if self.alpha < 1:
            total += (1 - self.alpha) * float(np.logaddexp(0, other - liked).mean())
        if self.alpha > 0:
            share = density if isinstance(self.negatives, str) else 1 / (1 + self.negatives)
            up, down = self._class_losses(liked - boundary, other - boundary, liked, other)
            total += self.alpha * float(np.mean(share * self.weight * up + (1 - share) * down))
            if self.learn_boundary:
                away = boundary - self.t
                spread = np.abs(away) if self.penalty == "l1" else away**2
                total += self.alpha * self.lambda_t * float(spread.mean())
        return total

    def _class_losses(self, up: Floats, down: Floats, liked: Floats, other: Floats) -> tuple[Floats, Floats]:
        if self.loss == "squared":
            return 0.5 * (1 - liked) ** 2, 0.5 * other**2
        if self.loss == "hinge":
            return np.maximum(1 - up, 0), np.maximum(1 + down, 0)
        return np.logaddexp(0, -up), np.logaddexp(0, down)

    def log_odds_shift(self, boundary: Floats, n_liked: Doubles, n_items: int) -> Floats | None:
        """What turns a score into the log-odds of being liked: minus t_u, corrected for how D was sampled."""
        if self.alpha == 0 or self.loss != "logistic":
            return None
        shift = -boundary.astype(np.float64) - np.log(self.weight)
        if not isinstance(self.negatives, str):
            shift += np.log(self.negatives) + np.log(np.maximum(n_liked, 0.5) / n_items)
        return np.asarray(shift, np.float32)
