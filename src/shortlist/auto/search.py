"""The settings search: draw settings, validate candidate models with them, and remember the best."""

from dataclasses import dataclass, fields
from math import log2
from typing import TYPE_CHECKING, Any

from shortlist.auto.joint_selection import HalfSelections
from shortlist.auto.progress import ProgressDisplay
from shortlist.auto.validation import Holdout, Validation, build_model
from shortlist.core.metrics import Metric, Money
from shortlist.data.items import Items
from shortlist.errors import DataError, TrainingError
from shortlist.models.base import Recommender, find_model_class
from shortlist.models.search_space import Space, draw

if TYPE_CHECKING:
    from shortlist.models.factorization.training import Progress

CLOSE = 0.95  # share of the best first setting's score that further settings of a model are worth
FAR = 0.85  # share of the best model's F1 that a model must be able to reach
EPOCH_LENGTHS = 20  # longest list with which training scores an epoch: MAX_ITEMS of its evaluator
MIN_EPOCHS = 20  # that every model is trained: factors may first take ten to become better than popularity

Tried = tuple[Validation, dict[str, Any]]  # and the settings


def default_space(model: str, *, timed: bool) -> Space:
    """Return the search space of a model; without timestamps, parameters that need them are left out."""
    kind = find_model_class(model)
    left_out = kind.not_searched if timed else (*kind.not_searched, *kind.timed_params)
    return {name: values for name, values in kind.search_space.items() if name not in left_out}


def expected_f1(best: list[float], n_epochs: int) -> float:
    """What the highest F1 `best` (until each epoch so far) may become after all `n_epochs`.

    Each further doubling of the epochs is expected to add what the last one added. Learning curves flatten,
    so this is generous.
    """
    now = len(best)
    return best[-1] + (best[-1] - best[now // 2 - 1]) * log2(n_epochs / now)


class EpochWatch:
    """Raises TrainingError where the validation F1 is expected to stay far below the best model's.

    The F1 of an epoch is that of a sample of the validation users at N up to 20, hence the distance.
    """

    def __init__(self, leader_f1: float) -> None:
        self.leader_f1 = leader_f1
        self.best: list[float] = []  # highest F1 until each epoch

    def __call__(self, epoch: "Progress") -> None:
        """Look at the F1 after an epoch."""
        if epoch.score is None:
            return
        self.best.append(max(epoch.score, self.best[-1] if self.best else 0.0))
        if len(self.best) < MIN_EPOCHS:
            return
        if expected_f1(self.best, epoch.n_epochs) < FAR * self.leader_f1:
            raise TrainingError(
                f"training ended after epoch {epoch.epoch}: F1 {self.best[-1]:.4f}, far below the best "
                f"model so far, {self.leader_f1:.4f}"
            )


@dataclass(eq=False)
class SettingsSearch:
    """Validates the first settings of all candidates, then further settings of those that may win."""

    holdout: Holdout
    n_candidates: int
    metric: str
    filter_seen: bool | None
    n_trials: int
    seed: int
    display: ProgressDisplay
    items: Items | None
    money: Money | None = None

    def __post_init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.skipped: dict[str, str] = {}
        self.halves = HalfSelections()
        self.leader_f1 = 0.0  # of the models validated so far

    def run(self, candidates: list[str | Recommender], *, optional: bool) -> list[Validation]:
        """Return each model with its best settings; `optional` skips models that do not suit the data."""
        tried: dict[int, Tried] = {}
        # models with epochs come last, because their training ends early where others are far better
        order = sorted(range(len(candidates)), key=lambda number: _uses_epochs(candidates[number]))
        for done, number in enumerate(order):
            candidate = candidates[number]
            name = candidate if isinstance(candidate, str) else type(candidate).__name__
            reason = find_model_class(name).why_unsuitable(self.holdout.history) if optional else None
            self.display.update(f"validating {name}", done, len(candidates))
            if reason is None:
                try:
                    tried[number] = self._validate_first(candidate)
                    self.halves.add(number, tried[number][0])
                except (DataError, TrainingError) as error:
                    if len(candidates) == 1:
                        raise
                    reason = str(error)
            if reason is not None:
                self.skipped[name] = reason
                self.display.line(f"left out: {name} ({reason})")
                continue
            self._show(name, tried[number][0])
        if not tried:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())
            raise DataError(
                f"no candidate model can be fitted on this data ({reasons[:200]}); pass other models."
            )
        tried = dict(sorted(tried.items()))
        for number in tried:
            self._try_settings(candidates[number], number, tried)
        for best, params in tried.values():
            name = type(best.model).__name__
            self.rows.append({"model": name, "params": params, "N": best.N, "score": best.score})
        return [best for best, _ in tried.values()]

    def _show(self, name: str, validation: Validation) -> None:
        metric = Metric.registry[self.metric]
        self.display.line(f"{name}: {metric.title} {metric.text(validation.score)} at N = {validation.N}")

    def _validate_first(self, candidate: str | Recommender) -> Tried:
        return (
            self._validate_named(candidate, {})
            if isinstance(candidate, str)
            else self._validate_configured(candidate)
        )

    def _validate_configured(self, model: Recommender) -> Tried:
        """Validate a model as it was configured."""
        validation = self._validate(model)
        defaults = {field.name: field.default for field in fields(model)}
        params = {name: value for name, value in model.get_params().items() if value is not defaults[name]}
        return validation, self._with_epochs(params, validation)

    def _try_settings(self, candidate: str | Recommender, number: int, tried: dict[int, Tried]) -> None:
        """Try random settings of a model given by name unless it is far behind; of equals, the first wins."""
        if not isinstance(candidate, str):
            return
        space = default_space(candidate, timed=self.holdout.history.time is not None)
        if not space:
            return
        leader = max(each.score for each, _ in tried.values())
        if tried[number][0].score < CLOSE * leader:
            return
        n, before = max(1, self.n_trials // find_model_class(candidate).trial_cost), tried[number][0].score
        for trial in range(1, n):
            self.display.update(f"validating {candidate}, setting {trial + 1} of {n}", number, len(tried))
            try:
                other = self._validate_named(candidate, draw(space, self.seed, trial))
            except TrainingError:
                continue
            self.halves.add(number, other[0])
            if other[0].score > tried[number][0].score:
                tried[number] = other
        if tried[number][0].score > before:
            self._show(candidate, tried[number][0])

    def _validate_named(self, name: str, params: dict[str, Any]) -> Tried:
        """Validate a model with these settings and the seed and threads of the search."""
        model = build_model(name, params)
        shared = {"seed": self.seed}
        params_of_model = model.get_params()
        model.set_params(**{name: value for name, value in shared.items() if name in params_of_model})
        # an epoch is scored by F1, with the default filter, without the events after the history
        plain = self.holdout.later is None and self.holdout.at is None
        comparable = self.metric == "f1" and self.filter_seen is None and plain
        validation = self._validate(model, EpochWatch(self.leader_f1 if comparable else 0.0))
        return validation, self._with_epochs(params, validation)

    def _validate(self, model: Recommender, watch: EpochWatch | None = None) -> Validation:
        show = self.display.epochs(f"validating {type(model).__name__}")

        def follow(epoch: "Progress") -> None:
            show(epoch)
            if watch is not None:
                watch(epoch)

        validation = Validation(
            model,
            self.holdout,
            self.n_candidates,
            self.metric,
            self.filter_seen,
            items=self.items,
            money=self.money,
        ).fit(progress=follow)
        comparable = validation.curve["f1"][:EPOCH_LENGTHS]
        self.leader_f1 = max(self.leader_f1, *comparable)
        return validation

    @staticmethod
    def _with_epochs(params: dict[str, Any], validation: Validation) -> dict[str, Any]:
        return params if validation.n_epochs is None else {**params, "n_epochs": validation.n_epochs}


def _uses_epochs(candidate: str | Recommender) -> bool:
    return (find_model_class(candidate) if isinstance(candidate, str) else candidate).uses_epochs
