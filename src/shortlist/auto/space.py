"""The search spaces that the models declare, and samplers that propose parameters from them."""

from typing import Any, Protocol

import numpy as np

from shortlist.core.params import Range as Range
from shortlist.core.params import Space as Space
from shortlist.core.params import round_digits
from shortlist.errors import ConfigError
from shortlist.models.base import MODEL_MODULES, find_model_class

BATCH = 4  # trials that a learning sampler proposes at once, however many run in parallel

# of the built-in models that have one; that of any model is `find_model_class(name).search_space`
SPACES: dict[str, Space] = {
    name: space for name in MODEL_MODULES if (space := find_model_class(name).search_space)
}


def default_space(model: str, *, timed: bool) -> Space:
    """Return the search space of a model; without timestamps, parameters that need them are left out."""
    kind = find_model_class(model)
    left_out = kind.not_searched if timed else (*kind.not_searched, *kind.timed_params)
    space = {**kind.search_space, **kind.extended_space}
    return {name: values for name, values in space.items() if name not in left_out}


def draw(space: Space, seed: int, number: int) -> dict[str, Any]:
    """Draw the parameters of trial `number`, which depend only on the seed and the number."""
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    drawn: dict[str, Any] = {}
    for name, values in space.items():
        share = float(rng.random())
        drawn[name] = values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
    return drawn


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
                "sampler 'tpe' needs optuna; run pip install optuna, or use 'random'."
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
