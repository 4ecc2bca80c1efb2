"""Step size: when an epoch makes the loss explode, it is undone and repeated with half the step."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shortlist.errors import TrainingError

MAX_NORM = 1e6  # a longer parameter vector means divergence
# so does a loss that exceeds the lowest one so far, or the one of the initial parameters, by these factors
GROWTH, START_GROWTH = 2.0, 1.1
MAX_HALVINGS = 20


@dataclass
class StepSize:
    """How often the step size was halved, and the losses that decide about the next time."""

    halvings: int = 0
    start_loss: float = np.inf  # of the initial parameters
    lowest: float = np.inf  # after any epoch

    @property
    def factor(self) -> float:
        """What the step size is multiplied by."""
        return float(0.5**self.halvings)

    @property
    def is_exhausted(self) -> bool:
        """Whether the step size has been halved as often as is allowed."""
        return self.halvings >= MAX_HALVINGS

    def start(self, norms: Mapping[str, float], loss: float) -> None:
        """Record the loss of the initial parameters."""
        if not self.is_sound(norms, loss):
            raise TrainingError(
                f"training cannot start: the loss of the initial parameters is {loss:.3g}; try init=0.1."
            )
        self.start_loss = self.lowest = loss

    def accept(self, norms: Mapping[str, float], loss: float) -> bool:
        """Whether an epoch stays; if not, the next steps are half as long."""
        if self.is_sound(norms, loss):
            self.lowest = min(self.lowest, loss)
            return True
        self.halvings += 1
        return False

    def is_sound(self, norms: Mapping[str, float], loss: float) -> bool:
        """Whether the parameters are of moderate size, and the loss has not exploded."""
        limit = min(START_GROWTH * self.start_loss, GROWTH * self.lowest)
        return bool(np.isfinite(loss)) and loss <= limit and has_moderate_norms(norms)


def has_moderate_norms(norms: Mapping[str, float]) -> bool:
    """Whether no parameter vector is longer than MAX_NORM or contains NaN."""
    return all(norm < MAX_NORM for norm in norms.values())
