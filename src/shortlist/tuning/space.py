"""Where hyper-parameters are looked for, one row per model, and how one set of them is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

DIGITS = 4  # significant; nobody needs more, and files stay readable


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, evenly on a logarithmic scale unless said otherwise."""

    low: float
    high: float
    log: bool = True

    def at(self, share: float) -> float:
        """The number at a share of the way from low to high."""
        if self.log:
            return tidy(float(np.exp(np.log(self.low) + share * (np.log(self.high) - np.log(self.low)))))
        return tidy(self.low + share * (self.high - self.low))


Space = Mapping[str, "Range | tuple[Any, ...]"]  # a tuple lists the values to choose from

_DESCENT: dict[str, Range | tuple[Any, ...]] = {
    "lr": Range(0.02, 0.2),
    "reg": Range(1e-3, 0.05),
    "init": (0.1, 1.0),
}
_RANKING = {**_DESCENT, "negative_draws": (1, 5, 20)}
# The paper fixes t, alpha and lambda_t of its own models, so only their descent is looked for here.
SPACES: dict[str, Space] = {
    "BPRMF": _RANKING,
    "LogMF": {**_DESCENT, "c": Range(0.5, 8), "negatives": Range(1, 16)},
    "CRRMF": {**_RANKING, "alpha": Range(0.1, 0.9, log=False)},
    "HRM": _RANKING,
    "DKBPRMF": _RANKING,
    "DKHRM": _RANKING,
    "Popularity": {"half_life": (None, 3.0, 7.0, 14.0, 30.0, 90.0)},
    "PersonalFrequency": {
        "decay": Range(0.7, 1.0, log=False),
        "popularity": Range(1, 100),
        "half_life": (None, 7.0, 30.0, 90.0),
    },
    "TIFUKNN": {
        "n_neighbors": (50, 100, 300, 900),
        "group_size": (1, 3, 7, 15),
        "basket_decay": Range(0.6, 1.0, log=False),
        "group_decay": Range(0.5, 1.0, log=False),
        "own": Range(0.2, 0.95, log=False),
    },
    "EASE": {"reg": Range(20, 2000), "decay": Range(0.6, 1.0, log=False)},
    "TwoStage": {
        "candidates_per_source": (25, 40, 60),
        "transition_window": (1, 3, 5, 8),
        "decay": Range(0.4, 1.0, log=False),
        "n_rounds": (80, 120, 200),
        "lr": Range(0.03, 0.12),
        "n_leaves": (15, 31, 63),
        "min_leaf": (30, 100, 300),
    },
}
TREND: dict[str, Range | tuple[Any, ...]] = {"trend_half_life": (None, 1.0, 3.0, 7.0, 30.0)}
TIMED = ("half_life", "trend_half_life")  # what means nothing without timestamps


def usual_space(model: str, *, timed: bool) -> Space:
    """Where to look unless somebody says: as SPACES has it, and a trend, which the paper's HRM has not."""
    also = TREND if model in ("HRM", "DKHRM") else {}
    return {name: values for name, values in {**SPACES[model], **also}.items() if timed or name not in TIMED}


def draw(space: Space, seed: int, number: int) -> dict[str, Any]:
    """The parameters of trial `number`: they depend on the seed and the number, on nothing else."""
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    drawn: dict[str, Any] = {}
    for name, values in space.items():
        share = float(rng.random())
        drawn[name] = values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
    return drawn


def tidy(value: float) -> float:
    """Rounded to a few significant digits."""
    return float(f"{value:.{DIGITS}g}")
