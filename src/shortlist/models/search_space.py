"""Search spaces: the values of parameters that `shortlist.fit` tries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, uniform on a logarithmic scale unless `log=False`.

    Parameters
    ----------
    low, high
        The bounds.
    log
        Whether to sample on a logarithmic scale.
    """

    low: float
    high: float
    log: bool = True

    def at(self, share: float) -> float:
        """Return the number at a share of the way from low to high, with four digits, which are readable."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        number = low + share * (high - low)
        return float(f"{np.exp(number) if self.log else number:.4g}")


Space = Mapping[str, Range | tuple[Any, ...]]  # a tuple lists the values to choose from


def draw(space: Space, seed: int, number: int) -> dict[str, Any]:
    """Draw the parameters of trial `number`, which depend only on the seed and the number."""
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    drawn: dict[str, Any] = {}
    for name, values in space.items():
        share = float(rng.random())
        drawn[name] = values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
    return drawn
