"""Choose model and cutoff together by the score that will be served, and score that choice on other users."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from shortlist.auto.cutoff_choice import (
    BOUNDARY,
    FIXED,
    SelectedCutoff,
    SelectionData,
    compare_cutoffs,
    confirm,
    default_cutoffs,
)
from shortlist.auto.validation import Holdout, Validation, earlier_fold, fit_model, hold_out_items
from shortlist.core.metrics import Metric
from shortlist.cutoff import Boundary
from shortlist.cutoff.base import Cutoff
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError
from shortlist.evaluation import paired_test
from shortlist.evaluation.baselines import USUAL_LENGTH
from shortlist.models.base import Recommender
from shortlist.models.counting import PersonalFrequency, Popularity
from shortlist.types import Doubles, Longs

REACH = 0.9  # share of the highest score at a fixed N from which a model is compared with its cutoffs
FINALISTS = 3  # models that are
RESAMPLES = 2_000  # of the test against the same length for everyone
EARLIER_FOLDS = 3  # changes between consecutive ones, and to the validation, are the drift
MIN_COMMON = 20  # users in two folds, to measure a change
MIN_USERS = 4  # two in each half, because choosing a cutoff halves them again

CutoffArgument = Cutoff | Literal["auto"] | None


class JointChoice(NamedTuple):
    """A model, how its lists end, and the score of both."""

    validation: Validation
    cutoff: SelectedCutoff | None  # None: lists end at the model's boundary, or the request says N
    score: float
    compared: dict[int, float]  # the score that each compared model would be served with, by position

    @property
    def cutoff_name(self) -> str:
        """Name of the cutoff, or what stands for it."""
        if self.cutoff is not None:
            return self.cutoff.name
        return BOUNDARY if self.validation.model.has_boundary else FIXED

    def lists(self, users: Validation) -> RankedLists:
        """The lists that this choice would show to these users."""
        if self.cutoff is not None:
            return self.cutoff.cutoff.apply(users.candidates, history=users.holdout.history)
        if users.model.has_boundary:
            return Boundary().apply(users.candidates)
        return users.candidates.head(self.validation.N)


def find_finalists(validated: Iterable[Validation]) -> list[int]:
    """Positions of the models that are compared with their cutoffs, in the given order."""
    scores = [each.score for each in validated]
    best = sorted(range(len(scores)), key=lambda number: -scores[number])[:FINALISTS]
    return sorted(number for number in best if scores[number] >= REACH * scores[best[0]])


def choose_jointly(validated: list[Validation], cutoff: CutoffArgument) -> JointChoice:
    """The model and cutoff with the highest score as served; the first of equals.

    A cutoff that is chosen is scored on users it was not fitted on. Models that are far behind at their best
    fixed N are not compared.
    """
    best, compared = None, {}
    for number in find_finalists(validated):
        choice = _choose_cutoff(validated[number], cutoff)
        compared[number] = choice.score
        if best is None or choice.score > best.score:
            best = choice
    assert best is not None
    if best.cutoff is not None and cutoff == "auto":
        best = best._replace(cutoff=_fit_choice(best.validation, best.cutoff))
    return best._replace(compared=compared)


def _choose_cutoff(validation: Validation, cutoff: CutoffArgument) -> JointChoice:
    """How the lists of one model end, and their score; a cutoff that was chosen is not fitted yet."""
    metric, truth, history = validation.metric, validation.holdout.truth, validation.holdout.history
    if cutoff is None:
        choice = JointChoice(validation, None, 0.0, {})
        return choice._replace(score=validation.evaluate(choice.lists(validation)).mean(metric))
    if cutoff != "auto":
        fitted, name = validation.fit_cutoff(cutoff), type(cutoff).__name__
        score = validation.evaluate(fitted.apply(validation.candidates, history=history)).mean(metric)
        reason = "not compared with other cutoffs; its score is measured on the users it was fitted on"
        return JointChoice(validation, SelectedCutoff(name, fitted, {name: score}, reason, metric), score, {})
    cutoffs = _default_cutoffs(validation)
    if validation.model.has_boundary:
        cutoffs[BOUNDARY] = Boundary()
    users = validation.holdout.user_ids
    data = SelectionData(validation.candidates, truth, history, metric, validation.money, users)
    chosen = compare_cutoffs(data, cutoffs)
    return JointChoice(validation, chosen, chosen.scores[chosen.name], {})


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


def _fit_choice(best: Validation, choice: SelectedCutoff) -> SelectedCutoff:
    """The cutoff fitted on all users, or a fixed N if that is better on all of them."""
    if choice.name == BOUNDARY:
        return choice
    fitted = replace(choice, cutoff=best.fit_cutoff(choice.cutoff))
    if choice.name == FIXED:
        return fitted
    lists = fitted.cutoff.apply(best.candidates, history=best.holdout.history)
    score = best.evaluate(lists).mean(best.metric)
    if score >= best.score:
        return fitted
    text = Metric.registry[best.metric].text
    reason = (
        f"fitted on all validation users, {choice.name!r} scores {text(score)} on them and a fixed N "
        f"{text(best.score)}; the scores in the table come from halves that are too small to rely on"
    )
    fixed = best.fit_cutoff(_default_cutoffs(best)[FIXED])
    return SelectedCutoff(FIXED, fixed, choice.scores, reason, best.metric)


def confirm_jointly(
    choice: JointChoice, cutoff: CutoffArgument, validated: list[Validation], scores: "HeldOutScores | None"
) -> JointChoice:
    """The choice if it beats the best fixed N on users who took no part in it, else that fixed N."""
    if cutoff != "auto" or choice.cutoff is None or choice.cutoff.name == FIXED:
        return choice
    best = max(validated, key=_score)
    fixed = _default_cutoffs(best)[FIXED]
    confirmed = confirm(choice.cutoff, fixed, *(() if scores is None else (scores.chosen, scores.fixed)))
    if confirmed.name != FIXED:
        return choice._replace(cutoff=confirmed)
    compared = {number: validated[number].score for number in choice.compared}
    tried = confirmed.scores if best is choice.validation else {FIXED: best.score}
    confirmed = replace(confirmed, cutoff=best.fit_cutoff(fixed), scores=tried)
    return JointChoice(best, confirmed, best.score, compared)


# ------------------------------------------------------------------ the score on users that did not choose
class HalfSelections:
    """The best settings of each model according to each half of the validation users alone."""

    def __init__(self) -> None:
        self.best: list[dict[int, tuple[float, Validation]]] = [{}, {}]  # by number of the model

    def add(self, number: int, candidate: Validation) -> None:
        """Take the settings for each half where they are the best of the model so far."""
        if candidate.holdout.truth.active_users.size < MIN_USERS:
            return
        for users, best in zip(halves(candidate), self.best, strict=True):
            score = candidate.restrict(users).score
            if number not in best or score > best[number][0]:
                best[number] = score, candidate
            leader = max(score for score, _ in best.values())
            for behind in [other for other in best if best[other][0] < REACH * leader]:
                del best[behind]  # it would not be compared


def halves(validation: Validation) -> tuple[Longs, Longs]:
    """Positions of the users of each half: every other user."""
    n = validation.holdout.users.size
    return np.arange(0, n, 2), np.arange(1, n, 2)


class HeldOutScores(NamedTuple):
    """The metric of users whose lists were chosen by the other half of the users; arrays are (n_users,)."""

    chosen: Doubles  # under the model and cutoff with the best score
    fixed: Doubles  # under the best fixed N of that model
    usual: Doubles  # under a common N
    fixed_lengths: tuple[int, int]  # of the halves
    choices: tuple[str, str]  # names of model and cutoff
    winner: Validation  # the model of the last half

    def report(self, cutoff: str) -> dict[str, Any]:
        """What is reported if this cutoff, by name, is served."""
        scores, choices = self.chosen, list(self.choices)
        if cutoff == FIXED:
            scores, choices = self.fixed, [f"{choice.split(',')[0]}, {FIXED}" for choice in choices]
        named = " or ".join(dict.fromkeys(map(str, self.fixed_lengths)))
        baselines = {
            f"{USUAL_LENGTH} for everyone": self.usual,
            f"best N ({named}) for everyone": self.fixed,
        }
        score, error = float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(scores.size))
        changes = measure_changes(self.winner)
        drift = abs(score) * float(np.sqrt(np.mean(np.square(changes)))) if changes else None
        return {
            "score": score,
            "standard_error": error,
            "drift": drift,
            "n_changes": len(changes),
            "error": error if drift is None else float(np.hypot(error, drift)),
            "n_users": int(scores.size),
            "choices": choices,
            "baselines": [
                {"name": name, "score": float(baseline.mean())} | _difference(scores, baseline)
                for name, baseline in baselines.items()
            ],
        }


def held_out_scores(selections: HalfSelections, cutoff: CutoffArgument) -> HeldOutScores | None:
    """Score what each half chooses, model and cutoff, on the other half; None if there are too few users."""
    values: list[list[Doubles]] = []
    choices, best_lengths = [], []
    for half, best in enumerate(selections.best):
        if not best:
            return None
        candidates = [best[number][1] for number in sorted(best)]
        choice = choose_jointly([model.restrict(halves(model)[half]) for model in candidates], cutoff)
        winner = next(model for model in candidates if model.model is choice.validation.model)
        if winner.model.uses_epochs:
            winner = _stop_on_half(winner, half)
            choice = choose_jointly([winner.restrict(halves(winner)[half])], cutoff)
        other = winner.restrict(halves(winner)[1 - half])
        best_lengths.append(choice.validation.N)
        lengths = best_lengths[-1], USUAL_LENGTH
        shown = choice.lists(other), *(other.candidates.head(N) for N in lengths)
        values.append([other.evaluate(lists).values(winner.metric) for lists in shown])
        choices.append(f"{type(winner.model).__name__}, {choice.cutoff_name}")
    chosen, fixed, usual = (np.concatenate(columns) for columns in zip(*values, strict=True))
    return HeldOutScores(
        chosen, fixed, usual, (best_lengths[0], best_lengths[1]), (choices[0], choices[1]), winner
    )


def _difference(scores: Doubles, baseline: Doubles) -> dict[str, float]:
    """The mean difference with its interval and p-value."""
    test = paired_test(scores, baseline, resamples=RESAMPLES)
    return {"difference": test.difference, "low": test.low, "high": test.high, "p": test.p_bootstrap}


def _stop_on_half(winner: Validation, half: int) -> Validation:
    """The same settings, with the number of epochs chosen on this half alone."""
    truth = winner.restrict(halves(winner)[half]).holdout.truth
    fitted = fit_model(winner.model, winner.holdout.history, valid=truth, items=winner.items)
    return replace(winner, model=fitted, given=None)


# ------------------------------------------------------------------ drift
def measure_changes(winner: Validation) -> list[float]:
    """Relative changes of a simple ranker's score from one fold to the next, the latest first.

    The folds are the hold-out and the same one, two and three baskets or periods earlier; a random hold-out
    is repeated on its history, which is a fifth shorter each time. The ranker counts: it is the better one of
    `PersonalFrequency` and `Popularity`, and its lists have the best N of the latest fold. Its score changes
    because the data changes; the chosen model would take too long to be fitted again.
    """

    filter_seen = winner.filter_seen
    if filter_seen is None:
        filter_seen = not winner.holdout.history.has_repeats  # as in the latest fold, also where none is left

    simple = replace(winner, items=None, filter_seen=filter_seen)

    def rank(model: Recommender, fold: Holdout) -> Validation:
        return replace(simple, model=model, holdout=fold).fit()

    latest = max((rank(kind(), winner.holdout) for kind in (PersonalFrequency, Popularity)), key=_score)
    by_basket = winner.holdout.later is None and winner.holdout.horizon is None
    changes: list[float] = []
    fold, later = winner.holdout, _values_by_user(latest, latest.N)
    while len(changes) < EARLIER_FOLDS:
        try:
            before = hold_out_items(fold.history) if fold.is_random else earlier_fold(fold)
            if before is None:
                break
            values = _values_by_user(rank(latest.model, before), latest.N)
        except DataError:
            break
        pair = [later, values]
        if by_basket:  # an earlier basket of fewer users: compare them with themselves
            both = ~np.isnan(later) & ~np.isnan(values)
            pair = [later[both], values[both]]
        if min((~np.isnan(each)).sum() for each in pair) < MIN_COMMON or not np.nanmean(pair[1]) > 0:
            break
        changes.append(float(np.nanmean(pair[0]) / np.nanmean(pair[1]) - 1))
        fold, later = before, values
    return changes


def _score(validation: Validation) -> float:
    return validation.score


def _values_by_user(validation: Validation, N: int) -> Doubles:
    """(n_users,) the metric of lists of N items; NaN for users who were not held out."""
    report = validation.evaluate(validation.candidates.head(N))
    truth = validation.holdout.truth
    values = np.full(truth.n_users, np.nan)
    values[truth.users.lookup(report.user_ids)] = report.values(validation.metric)
    return values
