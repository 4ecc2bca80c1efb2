"""The choice of `sl.fit`: model, settings and cutoff together, on users whose later items are held out.

In order:

1. `StagedSearch.run` fits every suitable model with its default settings on a sample of the users.
2. Models close to the best are fitted with random settings, too.
3. The best few are fitted on up to a million rows, unless the sample has all users.
4. `choose_jointly` chooses a cutoff for each of the best few by cross-validation. The model with the best
   score with its cutoff is selected; among models within the noise, the one that is best over three metrics.
5. `score_held_out` repeats step 4 on each half of the users and scores it on the other half.
6. `confirm_jointly` keeps the best fixed N unless the choice beats it there.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from shortlist.auto.cutoff_choice import (
    BOUNDARY,
    FIXED,
    SelectedCutoff,
    confirm,
    cross_validate_all,
    default_cutoffs,
    select_cutoff,
)
from shortlist.auto.progress import ProgressDisplay
from shortlist.auto.validation import Holdout, Validation, build_model
from shortlist.core.metrics import Metric
from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.guarantee import Guarantee
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError, TrainingError
from shortlist.evaluation import paired_test
from shortlist.evaluation.baselines import USUAL_LENGTH
from shortlist.models.base import Recommender, find_model_class
from shortlist.models.counting import MOST_OFTEN, most_often
from shortlist.models.search_space import Space, draw
from shortlist.types import Doubles, Longs

SAMPLES = (100_000, 1_000_000)  # rows of the users on whom all models and the best ones are validated
MIN_ROWS = 300  # from which models are tried that take several times as long as others
CLOSE = 0.95  # share of the best score from which a model is also tried with random settings
REACH = 0.9  # the same, from which it takes part in the last stage and is compared with its cutoffs
FINALISTS = 3  # models that do
N_STAGES = 4  # two samples, other settings in between, and the last fit on all data
NOISE = 2.0  # standard errors of a difference that are within the noise of validation
SHOWN = 20  # items per list for the other metrics that are compared
RESAMPLES = 2_000  # of the test against the same length for everyone
MIN_USERS = 4  # two in each half, because choosing a cutoff halves them again

CutoffArgument = Cutoff | Literal["auto"] | None


# ------------------------------------------------------------------ stages
class ModelTrial(NamedTuple):
    """A model with settings that takes part, and what it reached on the latest sample."""

    number: int  # of the candidate
    name: str
    trial: int  # 0: the default settings, or those of an unfitted model
    params: dict[str, Any]  # that are not the defaults
    model: Recommender  # unfitted, as it is tried
    result: Validation  # on the latest sample, with an unfitted model that has the best number of epochs

    @property
    def score(self) -> float:
        """The metric at the best fixed N."""
        return self.result.score


def default_space(model: str, *, timed: bool) -> Space:
    """Return the search space of a model; without timestamps, parameters that need them are left out."""
    kind = find_model_class(model)
    left_out = kind.not_searched if timed else (*kind.not_searched, *kind.timed_params)
    return {name: values for name, values in kind.search_space.items() if name not in left_out}


@dataclass(eq=False)
class StagedSearch:
    """Validates all candidates on few users and the better ones on more, and says why others are dropped."""

    case: Validation  # what every model is validated on; its model is replaced
    candidates: Sequence[str | Recommender]
    optional: bool  # whether models that do not suit the data are skipped
    n_trials: int
    seed: int
    display: ProgressDisplay
    minutes: float | None = None  # no further model is fitted after so many

    def __post_init__(self) -> None:
        self.skipped: dict[str, str] = {}
        self.start = time.monotonic()
        holdout = self.case.holdout
        self.small, self.large = (holdout.sample(n_rows, self.seed) for n_rows in SAMPLES)

    def run(self) -> list[ModelTrial]:
        """The arms of the last stage, in the order of the candidates."""
        arms = self._validate(self._default_arms(), self.small, 0)
        if not arms:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())
            raise DataError(
                f"no candidate model can be fitted on this data ({reasons[:200]}); pass other models."
            )
        arms += self._validate(self._other_settings(arms), self.small, 1)
        for arm in best_settings(arms):
            if arm.trial:
                self._show(arm)
        if self.large is not self.small and not self._is_late():
            arms = self._validate(self._leading(best_settings(arms)), self.large, 2) or arms
        return sorted(arms, key=lambda arm: (arm.number, arm.trial))

    def fresh_users(self, last: Holdout) -> Longs:
        """Positions of the users of the last sample who took no part in a smaller one."""
        seen = np.zeros(last.truth.n_users, np.bool_)
        if self.small.history.n_rows < last.history.n_rows:
            seen[self.small.users] = True
        return np.flatnonzero(~seen[last.users])

    def _default_arms(self) -> list[ModelTrial]:
        """The candidates that suit the data; models given by name with their default settings."""
        arms = []
        for number, candidate in enumerate(self.candidates):
            name = candidate if isinstance(candidate, str) else type(candidate).__name__
            reason = self._why_unsuitable(name) if self.optional else None
            if reason is not None:
                self._skip(name, reason)
            elif isinstance(candidate, str):
                arms.append(self._named(number, name, 0, {}))
            else:
                defaults = {field.name: field.default for field in fields(candidate)}
                params = candidate.get_params().items()
                changed = {param: value for param, value in params if value is not defaults[param]}
                arms.append(ModelTrial(number, name, 0, changed, candidate, self.case))
        return arms

    def _why_unsuitable(self, name: str) -> str | None:
        """Why a model is not tried on this data; a few rows do not repay the models that take long."""
        kind, history = find_model_class(name), self.case.holdout.history
        if kind.trial_cost > 1 and history.n_rows < MIN_ROWS:
            return f"it needs {MIN_ROWS} rows besides those held out, got {history.n_rows}"
        return kind.why_unsuitable(history)

    def _other_settings(self, arms: list[ModelTrial]) -> list[ModelTrial]:
        """Random settings of the models given by name that are close to the best one."""
        timed, leader = self.case.holdout.history.time is not None, max(arm.score for arm in arms)
        others = []
        for number, name, *_ in (arm for arm in arms if arm.score >= CLOSE * leader):
            space = default_space(name, timed=timed) if isinstance(self.candidates[number], str) else {}
            n = self.n_trials // find_model_class(name).trial_cost if space else 0
            trials = ((trial, draw(space, self.seed, trial)) for trial in range(1, n))
            others += [self._named(number, name, trial, params) for trial, params in trials]
        return others

    def _named(self, number: int, name: str, trial: int, params: dict[str, Any]) -> ModelTrial:
        """A model given by name, with the seed of the search."""
        model = build_model(name, params)
        if "seed" in model.get_params():
            model.set_params(seed=self.seed)
        return ModelTrial(number, name, trial, params, model, self.case)

    def _leading(self, arms: list[ModelTrial]) -> list[ModelTrial]:
        """The arms of the last stage, the best first."""
        leading = find_finalists([arm.result for arm in arms])
        best, text = max(arms, key=lambda arm: arm.result.rank), Metric.registry[self.case.metric].text
        for number, arm in enumerate(arms):
            if number not in leading:
                users = f"{arm.result.holdout.users.size:,} users"
                self._skip(
                    arm.name, f"{text(arm.score)} for {users}, where {best.name} has {text(best.score)}"
                )
        return sorted((arms[number] for number in leading), key=lambda arm: arm.result.rank, reverse=True)

    def _validate(self, arms: list[ModelTrial], holdout: Holdout, stage: int) -> list[ModelTrial]:
        """The arms with their results on this sample, without those that cannot be fitted, or not in time."""
        validated: list[ModelTrial] = []
        for position, arm in enumerate(arms):
            try:
                if (validated or stage) and self._is_late():
                    raise TrainingError(f"no time was left of {self.minutes:g} minutes")
                validated.append(self._fit(arm, holdout, stage, position / len(arms), 1 / len(arms)))
            except (DataError, TrainingError) as error:
                if len(self.candidates) == 1 and not arm.trial:
                    raise
                if not arm.trial:  # a setting that diverges is no reason to leave the model out
                    self._skip(arm.name, str(error))
        return validated

    def _fit(self, arm: ModelTrial, holdout: Holdout, stage: int, done: float, step: float) -> ModelTrial:
        """The arm, validated on this sample; of the fitted model, only settings and candidates are kept."""
        setting = f" (setting {arm.trial + 1})" if arm.trial else ""
        label = f"validating {arm.name}{setting} on {holdout.users.size:,} users"
        self.display.update(label, stage + done, N_STAGES)
        epochs = self.display.epochs(label, stage + done, step, N_STAGES)
        fitted = replace(self.case, model=arm.model, holdout=holdout).fit(progress=epochs)
        model, params = arm.model.clone(), arm.params
        if fitted.n_epochs:  # 0: it diverged
            params = {**params, "n_epochs": fitted.n_epochs}
            model.set_params(n_epochs=fitted.n_epochs)
        validated = arm._replace(params=params, result=replace(fitted, model=model, given=fitted.candidates))
        if not arm.trial:
            self._show(validated)
        return validated

    def _is_late(self) -> bool:
        return self.minutes is not None and time.monotonic() - self.start > 60 * self.minutes

    def _skip(self, name: str, reason: str) -> None:
        self.skipped[name] = reason
        self.display.line(f"left out: {name} ({reason})")

    def _show(self, arm: ModelTrial) -> None:
        metric = Metric.registry[self.case.metric]
        self.display.line(f"{arm.name}: {metric.title} {metric.text(arm.score)} at N = {arm.result.N}")


def best_settings(arms: Iterable[ModelTrial]) -> list[ModelTrial]:
    """The best arm of each candidate, the first of equals."""
    best: dict[int, ModelTrial] = {}
    for arm in arms:
        if arm.number not in best or arm.result.rank > best[arm.number].result.rank:
            best[arm.number] = arm
    return list(best.values())


# ------------------------------------------------------------------ model and cutoff together
class ModelWithCutoff(NamedTuple):
    """A model and how its lists end, with the scores of both."""

    validation: Validation
    cutoff: SelectedCutoff | None  # None: lists end at the model's boundary, or the request says N
    values: Doubles  # (n_users,) the metric; under a cutoff that was chosen, on users it was not fitted on

    @property
    def score(self) -> float:
        """The mean metric."""
        return float(self.values.mean())

    @property
    def cutoff_name(self) -> str:
        """Name of the cutoff, or what stands for it."""
        if self.cutoff is not None:
            return self.cutoff.name
        return BOUNDARY if self.validation.model.has_boundary else FIXED

    @property
    def name(self) -> str:
        """Name of the model."""
        return type(self.validation.model).__name__

    def lists(self, users: Validation) -> RankedLists:
        """The lists that would be shown to these users."""
        if self.cutoff is not None:
            return self.cutoff.cutoff.apply(users.candidates, history=users.holdout.history)
        if users.boundary is not None:
            return users.boundary.apply(users.candidates, history=users.holdout.history)
        return users.candidates.head(self.validation.N)


class JointChoice(NamedTuple):
    """The selected model and cutoff, and the models it was compared with."""

    served: ModelWithCutoff
    compared: dict[int, dict[str, float]]  # by position of the model: with its cutoff, and at 20 items
    reason: str  # why this model
    arms: Sequence[ModelTrial] = ()  # the best settings of each model of the last stage
    held_out: dict[str, Any] | None = None  # the score on users that took no part in choosing


def choose(search: StagedSearch, cutoff: CutoffArgument) -> JointChoice:
    """The whole choice; for a Guarantee, which is tested later, only the model."""
    arms = search.run()
    best = best_settings(arms)
    validated = [arm.result for arm in best]
    if isinstance(cutoff, Guarantee):
        winner = max(validated, key=lambda validation: validation.rank)
        return JointChoice(ModelWithCutoff(winner, None, np.empty(0)), {}, "", best)
    scores = score_held_out(arms, search.fresh_users(validated[0].holdout), cutoff)
    choice = confirm_jointly(choose_jointly(validated, cutoff), cutoff, validated, scores)
    held_out = None if scores is None else scores.report(choice.served.cutoff_name)
    return choice._replace(arms=best, held_out=held_out)


def find_finalists(validated: Sequence[Validation]) -> list[int]:
    """Positions of the models that are compared with their cutoffs, in the given order."""
    best = sorted(range(len(validated)), key=lambda number: validated[number].rank, reverse=True)[:FINALISTS]
    return sorted(number for number in best if validated[number].score >= REACH * validated[best[0]].score)


def choose_jointly(validated: Sequence[Validation], cutoff: CutoffArgument) -> JointChoice:
    """The model and cutoff with the highest score; within the noise, over three metrics."""
    numbers = find_finalists(validated)
    finalists = [_end_lists(validated[number], cutoff) for number in numbers]
    others = [_other_metrics(finalist.validation) for finalist in finalists]
    compared = {
        number: {"served_score": finalist.score, **other}
        for number, finalist, other in zip(numbers, finalists, others, strict=True)
    }
    selected, reason = _prefer(finalists, [list(scores.values()) for scores in compared.values()])
    if selected.cutoff is not None and cutoff == "auto" and selected.cutoff.name != BOUNDARY:
        fitted = selected.validation.fit_cutoff(selected.cutoff.cutoff)
        selected = selected._replace(cutoff=replace(selected.cutoff, cutoff=fitted))
    return JointChoice(selected, compared, reason)


def _prefer(finalists: list[ModelWithCutoff], scores: list[list[float]]) -> tuple[ModelWithCutoff, str]:
    """The best model with its cutoff, or of those within its noise the best over all metrics; and why."""
    best = max(finalists, key=lambda finalist: finalist.score)
    close = [number for number, finalist in enumerate(finalists) if _is_noise(best.values - finalist.values)]
    if len(close) == 1:
        return best, ""
    table = np.array([scores[number] for number in close])
    leading = table.max(axis=0)
    counted = leading > 0  # where all earn nothing, what users take of as many items decides
    shares = (table[:, counted] / leading[counted]).mean(axis=1) if counted.any() else np.ones(len(close))
    selected = finalists[close[int(np.argmax(shares))]]
    names = " and ".join(", ".join(finalists[number].name for number in close).rsplit(", ", 1))
    return selected, (
        f"the scores of {names}, each with its cutoff, differ by less than {NOISE:g} standard errors; "
        f"{selected.name} is the best over these, and recall and NDCG of {SHOWN} items for everyone"
    )


def _is_noise(differences: Doubles) -> bool:
    """Whether a mean difference of users is within the noise."""
    error = float(differences.std(ddof=1)) / np.sqrt(differences.size) if differences.size > 1 else 0.0
    return float(differences.mean()) <= NOISE * error


def _other_metrics(validation: Validation) -> dict[str, float]:
    """Recall and NDCG of the same number of items for everyone."""
    report = validation.evaluate(validation.candidates.head(SHOWN))
    return {name: report.mean(name) for name in ("recall", "ndcg")}


def _end_lists(validation: Validation, cutoff: CutoffArgument) -> ModelWithCutoff:
    """How the lists of one model end; a cutoff that was chosen is not fitted yet."""
    metric, history = validation.metric, validation.holdout.history
    if cutoff is None:
        served = ModelWithCutoff(validation, None, np.empty(0))
        return served._replace(values=validation.evaluate(served.lists(validation)).values(metric))
    if cutoff != "auto":
        fitted, name = validation.fit_cutoff(cutoff), type(cutoff).__name__
        values = validation.evaluate(fitted.apply(validation.candidates, history=history)).values(metric)
        reason = "not compared with other cutoffs; its score is measured on the users it was fitted on"
        choice = SelectedCutoff(name, fitted, {name: float(values.mean())}, reason, metric)
        return ModelWithCutoff(validation, choice, values)
    cutoffs = _default_cutoffs(validation)
    if validation.boundary is not None:
        cutoffs[BOUNDARY] = validation.boundary
    by_user = cross_validate_all(cutoffs, validation.selection_data)
    choice = select_cutoff(by_user, cutoffs, metric)
    return ModelWithCutoff(validation, choice, by_user[choice.name])


def _default_cutoffs(validation: Validation) -> dict[str, Cutoff]:
    """The cutoffs that are compared for one model."""
    gain, cost = (None, None) if validation.money is None else (validation.money.gain, validation.money.cost)
    return default_cutoffs(
        validation.n_candidates,
        probabilities=validation.candidates.probabilities is not None,
        metric=validation.metric,
        gain=gain,
        cost=cost,
    )


# ------------------------------------------------------------------ users who took no part
class HeldOutScores(NamedTuple):
    """The metric of users whose lists were chosen by the other half of the users; arrays are (n_users,)."""

    chosen: Doubles  # under the model and cutoff with the best score
    fixed: Doubles  # under the best fixed N of that model
    usual: Doubles | None  # under a common N; None if the volume is limited
    often: Doubles | None  # under what each user took most often, at its best N; None without repeats
    fixed_lengths: tuple[int, ...]  # of the halves
    choices: tuple[str, ...]  # names of model and cutoff
    volume: float | None = None  # items per list, also of the baselines

    def report(self, cutoff: str) -> dict[str, Any]:
        """What is reported if this cutoff, by name, is served."""
        scores, choices = self.chosen, list(self.choices)
        if cutoff == FIXED:
            scores, choices = self.fixed, [f"{choice.split(',')[0]}, {FIXED}" for choice in choices]
        named = " or ".join(dict.fromkeys(map(str, self.fixed_lengths)))
        baselines: dict[str, Doubles] = {}
        if self.usual is not None:
            baselines[f"{USUAL_LENGTH} for everyone"] = self.usual
        same = f"best N ({named})" if self.volume is None else f"the same volume, {self.volume:.3g} per list,"
        baselines[f"{same} for everyone"] = self.fixed
        if self.often is not None:
            baselines[MOST_OFTEN] = self.often
        return {
            "score": float(scores.mean()),
            "standard_error": float(scores.std(ddof=1) / np.sqrt(scores.size)),
            "n_users": int(scores.size),
            "choices": choices,
            "baselines": [
                {"name": name, "score": float(baseline.mean())} | _difference(scores, baseline)
                for name, baseline in baselines.items()
            ],
        }


def score_held_out(arms: list[ModelTrial], users: Longs, cutoff: CutoffArgument) -> HeldOutScores | None:
    """Score what each half of these users chooses on the other half; None if there are too few users.

    users: (n,) positions of validation users.
    """
    if (
        arms[0].result.holdout.truth.user_counts[arms[0].result.holdout.users[users]].astype(bool).sum()
        < MIN_USERS
    ):
        return None
    halves = users[::2], users[1::2]
    often = _most_often(arms[0].result)
    values: list[list[Doubles]] = []
    choices, best_lengths, oftens = [], [], []
    for half, other in (halves, halves[::-1]):
        restricted = [arm._replace(result=arm.result.restrict(half)) for arm in arms]
        best = best_settings(restricted)
        choice = choose_jointly([arm.result for arm in best], cutoff).served
        winner = next(arm.result for arm in arms if arm.result.model is choice.validation.model)
        tested = winner.restrict(other)
        best_lengths.append(choice.validation.N)
        shown = tested.evaluate(choice.lists(tested)).values(winner.metric)
        values.append([shown, *(tested.values_at(N) for N in (best_lengths[-1], USUAL_LENGTH))])
        choices.append(f"{choice.name}, {choice.cutoff_name}")
        if often is not None:
            N, simple = often.restrict(half).N, often.restrict(other)
            oftens.append(simple.values_at(N) if simple.volume is None else simple.values_of_best())
    chosen, fixed, usual = (np.concatenate(columns) for columns in zip(*values, strict=True))
    volume = arms[0].result.volume
    return HeldOutScores(
        chosen,
        fixed,
        usual if volume is None else None,
        np.concatenate(oftens) if oftens else None,
        tuple(best_lengths),
        tuple(choices),
        volume,
    )


def _most_often(case: Validation) -> Validation | None:
    """What each user took most often, the latest first of equals; None if no user takes an item twice."""
    if not case.holdout.history.has_repeats:
        return None
    return replace(case, model=most_often(), given=None, items=None, filter_seen=False).fit()


def _difference(scores: Doubles, baseline: Doubles) -> dict[str, float]:
    """The mean difference with its interval and p-value."""
    test = paired_test(scores, baseline, resamples=RESAMPLES)
    return {"difference": test.difference, "low": test.low, "high": test.high, "p": test.p_bootstrap}


def confirm_jointly(
    choice: JointChoice, cutoff: CutoffArgument, validated: Sequence[Validation], scores: HeldOutScores | None
) -> JointChoice:
    """The choice if it beats the best fixed N on users who took no part in it, else that fixed N."""
    served = choice.served
    if cutoff != "auto" or served.cutoff is None or served.cutoff.name == FIXED:
        return choice
    best = max(validated, key=lambda validation: validation.score)
    fixed = _default_cutoffs(best)[FIXED]
    confirmed = confirm(served.cutoff, fixed, *(() if scores is None else (scores.chosen, scores.fixed)))
    if confirmed.name != FIXED:
        return choice._replace(served=served._replace(cutoff=confirmed))
    compared = {
        number: scores | {"served_score": validated[number].score}
        for number, scores in choice.compared.items()
    }
    tried = confirmed.scores if best is served.validation else {FIXED: best.score}
    fitted = best.fit_cutoff(fixed)
    values = best.evaluate(fitted.apply(best.candidates, history=best.holdout.history)).values(best.metric)
    confirmed = replace(confirmed, cutoff=fitted, scores=tried)
    return JointChoice(ModelWithCutoff(best, confirmed, values), compared, "")
