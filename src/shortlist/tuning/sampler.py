"""Who proposes the next trial: chance, or a model of what went well (TPE, by optuna)."""

from typing import Any, Protocol

from shortlist.errors import ConfigError
from shortlist.tuning.space import Range, Space, draw, tidy

ROUND = 4  # trials that a sampler which learns proposes at once, however many run in parallel


class Sampler(Protocol):
    """Asked for trials in order of their numbers, told their scores in the same order."""

    batch: int | None  # how many to ask for before telling; None: all of them

    def ask(self, number: int) -> dict[str, Any]:
        """The parameters of a trial."""

    def tell(self, number: int, score: float) -> None:
        """What came of it."""


class RandomSampler:
    """Trial k from the seed and k alone."""

    batch: int | None = None

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.seed = space, seed

    def ask(self, number: int) -> dict[str, Any]:
        return draw(self.space, self.seed, number)

    def tell(self, number: int, score: float) -> None:
        """Chance does not listen."""


class TPESampler:
    """Tree-structured Parzen estimator; a continued search replays what it was told."""

    batch: int | None = ROUND

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise ConfigError("sampler tpe needs optuna; install shortlist[tune], or use random.") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        self.study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=2 * ROUND)
        )
        self.asked: dict[int, Any] = {}

    def ask(self, number: int) -> dict[str, Any]:
        trial = self.asked[number] = self.study.ask()
        return {
            name: tidy(trial.suggest_float(name, values.low, values.high, log=values.log))
            if isinstance(values, Range)
            else values[trial.suggest_int(name, 0, len(values) - 1)]
            for name, values in self.space.items()
        }

    def tell(self, number: int, score: float) -> None:
        self.study.tell(self.asked.pop(number), score)


SAMPLERS: dict[str, type[RandomSampler] | type[TPESampler]] = {"random": RandomSampler, "tpe": TPESampler}
