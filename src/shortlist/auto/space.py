"""Search spaces, one per model, and samplers that propose parameters from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shortlist.errors import ConfigError

DIGITS = 4  # significant digits of a sampled number; keeps parameter files readable
BATCH = 4  # trials that a learning sampler proposes at once, however many run in parallel


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
        """Return the number at a share of the way from low to high."""
        if self.log:
            return round_digits(
                float(np.exp(np.log(self.low) + share * (np.log(self.high) - np.log(self.low))))
            )
        return round_digits(self.low + share * (self.high - self.low))


Space = Mapping[str, "Range | tuple[Any, ...]"]  # a tuple lists the values to choose from

_SGD: dict[str, Range | tuple[Any, ...]] = {
    "lr": Range(0.02, 0.2),
    "reg": Range(1e-3, 0.05),
    "init": (0.1, 1.0),
}
_RANKING = {**_SGD, "negative_draws": (1, 5, 20)}
# The paper fixes t, alpha and lambda_t of its own models, so only the optimizer is searched here.
SPACES: dict[str, Space] = {
    "BPRMF": _RANKING,
    "LogMF": {**_SGD, "c": Range(0.5, 8), "negatives": Range(1, 16)},
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
    "UPCF": {
        "window": (1, 5, 25, 100, None),
        "n_neighbors": (10, 100, 300, 900),
        "alpha": (0.0, 0.25, 0.5, 0.75, 1.0),
        "locality": (1.0, 5.0, 10.0, 50.0),
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
TIMED = ("half_life", "trend_half_life")  # parameters that have no effect without timestamps


def default_space(model: str, *, timed: bool) -> Space:
    """Return the search space of a model; HRM also gets a trend, which the paper's HRM does not have.

    Joint models keep one negative draw: more draws would distort their probabilities.
    """
    extra = TREND if model in ("HRM", "DKHRM") else {}
    left_out: tuple[str, ...] = () if timed else TIMED
    left_out += ("negative_draws",) if model in ("DKBPRMF", "DKHRM") else ()
    return {name: values for name, values in {**SPACES[model], **extra}.items() if name not in left_out}


def draw(space: Space, seed: int, number: int) -> dict[str, Any]:
    """Draw the parameters of trial `number`, which depend only on the seed and the number."""
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    drawn: dict[str, Any] = {}
    for name, values in space.items():
        share = float(rng.random())
        drawn[name] = values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
    return drawn


def round_digits(value: float) -> float:
    """Round to a few significant digits."""
    return float(f"{value:.{DIGITS}g}")


class Sampler(Protocol):
    """Proposes trials in order of their numbers and observes their scores in the same order."""

    batch: int | None  # trials to propose before their scores are observed; None: all

    def propose(self, number: int) -> dict[str, Any]:
        """Return the parameters of a trial."""

    def observe(self, number: int, score: float) -> None:
        """Record the score of a trial."""


class RandomSampler:
    """Draws every trial independently."""

    batch: int | None = None

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.seed = space, seed

    def propose(self, number: int) -> dict[str, Any]:
        return draw(self.space, self.seed, number)

    def observe(self, number: int, score: float) -> None:
        """Ignore the score."""


class TPESampler:
    """Tree-structured Parzen estimator of optuna; a continued search replays the earlier scores."""

    batch: int | None = BATCH

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise ConfigError(
                "sampler 'tpe' needs optuna; install shortlist[tune] or use 'random'."
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        self.study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=2 * BATCH)
        )
        self.pending: dict[int, Any] = {}  # optuna's trials whose scores are not known yet, by number

    def propose(self, number: int) -> dict[str, Any]:
        trial = self.pending[number] = self.study.ask()
        return {
            name: round_digits(trial.suggest_float(name, values.low, values.high, log=values.log))
            if isinstance(values, Range)
            else values[trial.suggest_int(name, 0, len(values) - 1)]
            for name, values in self.space.items()
        }

    def observe(self, number: int, score: float) -> None:
        self.study.tell(self.pending.pop(number), score)


SAMPLERS: dict[str, type[RandomSampler] | type[TPESampler]] = {"random": RandomSampler, "tpe": TPESampler}
