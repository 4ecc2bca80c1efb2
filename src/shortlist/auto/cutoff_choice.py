"""Cutoff selection on validation lists, with each user scored by a cutoff fitted on other users."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.metrics import MAX_ITEMS, Metric, Money, check_money, metrics_to_optimize
from shortlist.core.options import Several, check_value, explain_keywords
from shortlist.cutoff import ExpectedF1, ExpectedNDCG, ExpectedValue, FixedN, UtilityRegression
from shortlist.cutoff.base import Cutoff, fit_cutoffs
from shortlist.cutoff.calibration import Method
from shortlist.cutoff.candidates import top_candidates
from shortlist.cutoff.threshold import choose_by_standard_error
from shortlist.data.ids import IdMap, id_series
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import Report, evaluate, paired_test
from shortlist.types import Doubles

FIXED = "fixed N"
BOUNDARY = "the model's boundary"  # learned with the model, so it is not fitted
PROBABILITIES = {  # by calibration
    "none": "model's probabilities",
    "platt": "Platt calibration",
    "features": "calibration by features",
}
SHAPE = "utility regression (shape of the scores)"
SOURCES = {"both": "history and candidates", "history": "history", "probabilities": "candidates"}
RESAMPLES = 2_000  # of the interval of the gain
EXPECTED = {"f1": ExpectedF1, "ndcg": ExpectedNDCG}


@explain_keywords
def default_cutoffs(
    n_candidates: int = 100,
    *,
    probabilities: bool = True,
    metric: str | None = None,
    gain: float | None = None,
    cost: float | None = None,
    history: bool = True,
    shape: bool = False,
) -> dict[str, Cutoff]:
    """Return the unfitted cutoffs that `choose_cutoff` compares, by name.

    They are a fixed N, and the expected metric with calibrations from the simplest to the most flexible. The
    first one that is not a fixed N is the default choice.

    Parameters
    ----------
    n_candidates
        Number of candidates per user that each cutoff considers.
    probabilities
        Whether the lists carry probabilities. If not, cutoffs without calibration are left out.
    metric
        Metric to maximize: `"f1"`, `"ndcg"` or `"value"`. By default `"value"` if gain and cost are given,
        else `"f1"`.
    gain, cost
        What a shown item earns if the user takes it, and costs if not.
    history
        Whether a history is known. If not, the number of relevant items comes from the candidates alone, and
        the shape of the scores is the default choice.
    shape
        Whether to compare `UtilityRegression`, the shape of the scores, although there is a history.

    Returns
    -------
    dict
        Unfitted cutoffs by name; the first is `"fixed N"`.

    Raises
    ------
    ConfigError
        If the metric is unknown, or gain and cost are missing or invalid.

    Examples
    --------
    >>> list(sl.default_cutoffs(probabilities=False))[:2]
    ['fixed N', 'expected F1 (Platt calibration; basket size from history and candidates)']
    """
    metric, money = resolve_metric(metric, gain, cost)
    calibrations: tuple[Method, ...] = (
        ("none", "platt", "features") if probabilities else ("platt", "features")
    )
    if metric == "value" and money is not None:
        gain, cost = money.gain, money.cost
        fixed = FixedN(n_candidates=n_candidates, target=metric, gain=gain, cost=cost)
        return {FIXED: fixed} | {
            f"expected value ({PROBABILITIES[calibration]})": ExpectedValue(
                n_candidates=n_candidates, calibration=calibration, gain=gain, cost=cost
            )
            for calibration in calibrations
        }
    cutoffs: dict[str, Cutoff] = {FIXED: FixedN(n_candidates=n_candidates, target=metric)}
    regression = UtilityRegression(n_candidates=n_candidates, target=metric)
    if not history:
        cutoffs[SHAPE] = regression
    expected = EXPECTED.get(metric)
    if expected is None:  # of another package: no formula gives its expectation
        return cutoffs | {SHAPE: regression}
    for calibration in calibrations:
        for size in ("both", "history") if history else ("probabilities",):
            how = f"{PROBABILITIES[calibration]}; basket size from {SOURCES[size]}"
            name = f"expected {Metric.registry[metric].title} ({how})"
            cutoffs[name] = expected(n_candidates=n_candidates, calibration=calibration, size=size)
    if shape:
        cutoffs.setdefault(SHAPE, regression)
    return cutoffs


def resolve_metric(
    metric: str | None, gain: float | None = None, cost: float | None = None
) -> tuple[str, Money | None]:
    """The metric and the money; by default money decides if it is given. ConfigError if invalid."""
    names = metrics_to_optimize()
    given: object = metric
    if given is not None and (not isinstance(given, str) or given not in names):
        raise ConfigError(f"metric must be one of {', '.join(names)}, got {metric!r:.60}; choose one.")
    if metric is None:
        metric = "f1" if gain is None and cost is None else "value"
    return metric, check_money(metric, gain, cost)


@dataclass(frozen=True, eq=False)
class SelectedCutoff:
    """The selected cutoff, fitted on all users, and the scores of every cutoff that was tried.

    Parameters
    ----------
    name
        Name of the selected cutoff.
    cutoff
        The selected cutoff, fitted on all users.
    scores
        Mean metric of each cutoff over all users in the truth. Each user is scored by a cutoff fitted on
        others.
    reason
        Why this cutoff was selected.
    metric
        Metric of the scores.
    """

    name: str
    cutoff: Cutoff
    scores: dict[str, float]
    reason: str = ""
    metric: str = "f1"

    def __str__(self) -> str:
        metric = Metric.registry[self.metric]
        score = f"{metric.title} {metric.text(self.scores[self.name])} on validation"
        return f"{self.name}: {score}; {self.reason}" if self.reason else f"{self.name}: {score}"


@explain_keywords
def choose_cutoff(
    lists: RankedLists,
    truth: Interactions,
    history: Interactions | None = None,
    cutoffs: Mapping[str, Cutoff] | None = None,
    *,
    metric: str | None = None,
    gain: float | None = None,
    cost: float | None = None,
    users: Iterable[Any] | None = None,
    n_folds: int = 2,
    default: str | None = None,
) -> SelectedCutoff:
    """Select a cutoff for ranked lists on validation data.

    Each cutoff is scored on users it was not fitted on, by cross-validation. The first cutoff that is not
    a fixed N is selected, unless another one is better by more than one standard error of the difference.
    Then the whole selection is repeated without each fold of users and scored on that fold. The fixed N is
    kept unless the selection beats it there, on users who took no part in it.

    Parameters
    ----------
    lists
        Validation candidates of at least two users, such as `model.recommend(users, N=100, at=truth)`.
    truth
        What the users interacted with after the lists were computed.
    history
        Interactions that were known when the lists were computed.
    cutoffs
        Unfitted cutoffs by name; `default_cutoffs` if left out. A fixed N must be named `"fixed N"`.
    metric
        Metric to maximize: `"f1"`, `"ndcg"` or `"value"`. By default `"value"` if gain and cost are given,
        else `"f1"`.
    gain, cost
        What a shown item earns if the user takes it, and costs if not.
    users
        Ids of users who count even if they have no truth, such as all users who would get a message.
    n_folds
        Number of folds of users. More folds are slower and choose better if there are few users.
    default
        Name of the cutoff that is kept unless another one is clearly better; by default the first one that is
        not a fixed N.

    Returns
    -------
    SelectedCutoff
        The selected cutoff, fitted on all users, and the scores of all cutoffs.

    Raises
    ------
    ConfigError
        If there are no cutoffs, the metric is unknown, or gain and cost are missing or invalid.
    DataError
        If there are lists of fewer than two users.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> model = sl.PersonalFrequency().fit(split.train)
    >>> lists = model.recommend(N=20)
    >>> cutoffs = sl.default_cutoffs(20, probabilities=False)
    >>> choice = sl.choose_cutoff(lists, split.valid, split.train, cutoffs)
    >>> choice.scores[choice.name] >= choice.scores["fixed N"]
    True
    """
    metric, money = resolve_metric(metric, gain, cost)
    if not isinstance(lists, RankedLists):
        raise DataError(
            f"lists must be RankedLists, got {type(lists).__name__}; use model.recommend(N=100), or wrap "
            "the scores in PrecomputedScores."
        )
    if cutoffs is None:
        cutoffs = default_cutoffs(
            probabilities=lists.probabilities is not None,
            metric=metric,
            gain=gain,
            cost=cost,
            history=history is not None,
        )
    given: object = cutoffs
    if not isinstance(given, Mapping) or not all(isinstance(cutoff, Cutoff) for cutoff in given.values()):
        raise ConfigError(
            f"cutoffs must be a dictionary from names to unfitted cutoffs, got a {type(cutoffs).__name__}; "
            "pass {'expected F1': sl.cutoff.ExpectedF1()}."
        )
    if not cutoffs:
        raise ConfigError(
            "cutoffs must contain at least one cutoff, got none; leave it out for the defaults."
        )
    if len(lists) < 2:
        raise DataError(
            f"choosing a cutoff needs lists of at least two users, got {len(lists)}; add validation users."
        )
    check_value(Several, n_folds=n_folds)
    users = None if users is None else id_series(users)
    data = SelectionData(lists, truth, history, metric, money, users)
    choice = compare_cutoffs(data, cutoffs, n_folds, default)
    if choice.name != FIXED and FIXED in cutoffs:
        try:
            held_out = choose_without_each_fold(data, cutoffs, n_folds, n_folds, default)
        except DataError:  # some of the smaller parts of the users have no truth
            choice = confirm(choice, cutoffs[FIXED])
        else:
            choice = confirm(
                choice, cutoffs[FIXED], data.values(held_out.chosen), data.values(held_out.fixed)
            )
    return replace(choice, cutoff=choice.cutoff.fit(lists, truth, history=history, users=users))


class SelectionData(NamedTuple):
    """What cutoffs are compared on."""

    lists: RankedLists
    truth: Interactions
    history: Interactions | None
    metric: str = "f1"
    money: Money | None = None
    users: pl.Series | None = None  # ids of users who count even without truth

    def take(self, numbers: npt.ArrayLike) -> Self:
        """The same with some of the lists."""
        return self._replace(lists=self.lists.take(numbers))

    def fit(self, cutoff: Cutoff) -> Cutoff:
        """A fitted copy of the cutoff."""
        return cutoff.clone().fit(self.lists, self.truth, history=self.history, users=self.users)

    def evaluate(self, lists: RankedLists, max_items: int = MAX_ITEMS) -> Report:
        """The report on lists of these users."""
        report = evaluate(lists, self.truth, users=self.users, max_items=max_items)
        return replace(report, money=self.money)

    def values(self, lists: RankedLists, max_items: int = MAX_ITEMS) -> Doubles:
        """(n_users,) the metric of lists of these users."""
        return self.evaluate(lists, max_items).values(self.metric)


def compare_cutoffs(
    data: SelectionData, cutoffs: Mapping[str, Cutoff], n_folds: int = 2, default: str | None = None
) -> SelectedCutoff:
    """The cutoff with the best scores in cross-validation, not fitted."""
    by_user = cross_validate_all(cutoffs, data, min(n_folds, len(data.lists)))
    return select_cutoff(by_user, cutoffs, data.metric, default)


def select_cutoff(
    by_user: Mapping[str, Doubles], cutoffs: Mapping[str, Cutoff], metric: str, default: str | None = None
) -> SelectedCutoff:
    """The best cutoff by its scores of each user, not fitted."""
    scores = {name: float(values.mean()) for name, values in by_user.items()}
    if default is not None and default not in by_user:
        raise ConfigError(f"default must be the name of a cutoff, got {default!r:.60}; use one of the keys.")
    names = sorted(by_user, key=lambda name: (name != default, name == FIXED))
    name = names[choose_by_standard_error([by_user[name] for name in names])]
    if scores[name] <= scores.get(FIXED, -np.inf):
        name = max(scores, key=lambda name: (scores[name], name == FIXED))
    reason = explain_choice(name, scores, names[0], metric)
    selected = cutoffs[name] if name == BOUNDARY else cutoffs[name].clone()
    return SelectedCutoff(name, selected, scores, reason, metric)


class HeldOutLists(NamedTuple):
    """Lists of users who took no part in choosing where they end."""

    candidates: RankedLists  # with the probabilities that the chosen cutoffs gave them
    chosen: RankedLists  # ended by the cutoff that was chosen and fitted on the other folds
    fixed: RankedLists  # ended at the fixed N that was best on the other folds
    fixed_lengths: tuple[int, ...]  # these N, ascending


def choose_without_each_fold(
    data: SelectionData, cutoffs: Mapping[str, Cutoff], n_folds: int, n_inner: int, default: str | None
) -> HeldOutLists:
    """Repeat the choice without the users of each fold (nested cross-validation), and apply it to them."""
    n = max(cutoff.candidates_needed() for cutoff in cutoffs.values())
    data = data._replace(lists=top_candidates(data.lists, n_candidates=n))
    lists = data.lists
    gain, cost = (None, None) if data.money is None else (data.money.gain, data.money.cost)
    best_n = cutoffs.get(FIXED, FixedN(n_candidates=n, target=data.metric, gain=gain, cost=cost))
    fold = np.arange(len(lists)) % n_folds
    probabilities = np.full(lists.items.size, np.nan)
    chosen, fixed, fixed_lengths = list[RankedLists](), list[RankedLists](), set[int]()
    for f in range(n_folds):
        held_out, others = np.flatnonzero(fold == f), data.take(np.flatnonzero(fold != f))
        rows, candidates = np.flatnonzero(fold[lists.owner] == f), lists.take(held_out)
        cutoff = others.fit(compare_cutoffs(others, cutoffs, n_inner, default).cutoff)
        fitted = others.fit(best_n)
        chosen.append(cutoff.apply(candidates, history=data.history))
        fixed.append(fitted.apply(candidates, history=data.history))
        fixed_lengths.add(_fixed_length(fitted, fixed[-1]))
        ranked = cutoff.with_probabilities(candidates, history=data.history)
        if ranked.probabilities is not None:
            by_item, as_ranked = (np.lexsort((part.items, part.owner)) for part in (candidates, ranked))
            probabilities[rows[by_item]] = ranked.probabilities[as_ranked]
    if not np.isnan(probabilities).all():
        lists = replace(lists, probabilities=probabilities)
    order = np.argsort(np.argsort(fold, kind="stable"), kind="stable")
    ended, same = (RankedLists.concat(parts).take(order) for parts in (chosen, fixed))
    return HeldOutLists(lists, ended, same, tuple(sorted(fixed_lengths)))


def _fixed_length(cutoff: Cutoff, lists: RankedLists) -> int:
    """The length that a fitted fixed N has learned, also within another cutoff."""
    inner = vars(cutoff).get("cutoff_", cutoff)
    return int(vars(inner).get("N_", lists.lengths.max(initial=0)))


def confirm(
    choice: SelectedCutoff,
    fixed: Cutoff,
    chosen_values: Doubles | None = None,
    fixed_values: Doubles | None = None,
) -> SelectedCutoff:
    """The choice if it beats the fixed N on users who took no part in choosing it, else the fixed N.

    chosen_values, fixed_values: (n_users,) the metric of these users under both; None: too few to tell.
    """
    if chosen_values is None or fixed_values is None:
        reason = f"too few users to test {choice.name!r} on others than those who chose it"
        return replace(choice, name=FIXED, cutoff=fixed.clone(), reason=reason)
    test = paired_test(chosen_values, fixed_values, resamples=RESAMPLES)
    metric, baseline = Metric.registry[choice.metric], float(fixed_values.mean())
    if metric.needs_money or not baseline:
        low, gain, high = (metric.text(value, "+") for value in (test.low, test.difference, test.high))
        gain += f" {metric.title}"
    else:
        low, gain, high = (f"{value / baseline:+.1%}" for value in (test.low, test.difference, test.high))
    measured = f"{gain} over the best fixed N (95% interval {low} to {high})"
    if test.difference > 0:
        rest = choice.reason.partition(";")
        reason = f"{measured}, on users who took no part in choosing it{rest[1]}{rest[2]}"
        return replace(choice, reason=reason)
    reason = (
        f"no other cutoff beats the best fixed N on users who took no part in choosing it: {choice.name!r} "
        f"has {measured}"
    )
    return replace(choice, name=FIXED, cutoff=fixed.clone(), reason=reason)


def explain_choice(name: str, scores: Mapping[str, float], default: str, metric: str = "f1") -> str:
    """Say why a cutoff was selected, also where another one has a higher score."""
    if name == FIXED:
        clearly = " by more than one standard error" if max(scores.values()) > scores[FIXED] else ""
        return f"no other cutoff beats the best fixed N{clearly} on users it was not fitted on"
    reason = "the only cutoff that was tried" if len(scores) == 1 else "best on users it was not fitted on"
    fixed = scores.get(FIXED)
    if fixed is not None:
        kind = Metric.registry[metric]
        if kind.needs_money:
            gain = f"{kind.text(scores[name] - fixed, '+')} {kind.title} over"
        else:
            gain = f"{scores[name] / fixed - 1:+.1%} over" if fixed else "the score is 0 for"
        reason = f"{gain} the best fixed N, on users it was not fitted on"
    best = max(scores, key=lambda name: scores[name])
    if scores[best] > scores[name]:
        reason += (
            f"; {best!r} scores {Metric.registry[metric].text(scores[best])}, but its lead over the default, "
            f"{default!r}, is within one standard error"
        )
    return reason


def cross_validate(
    cutoff: Cutoff,
    lists: RankedLists,
    truth: Interactions,
    history: Interactions | None,
    metric: str = "f1",
) -> Doubles:
    """(n_users with truth,) each user's metric under a cutoff fitted on the other half of the users."""
    return cross_validate_all({"": cutoff}, SelectionData(lists, truth, history, metric))[""]


def cross_validate_all(
    cutoffs: Mapping[str, Cutoff], data: SelectionData, n_folds: int = 2
) -> dict[str, Doubles]:
    """The same for several cutoffs, fitted on all folds but the user's."""
    fold = np.arange(len(data.lists)) % n_folds
    scores: dict[str, Doubles] = {}
    for f in range(n_folds):
        to_fit = {name: cutoff for name, cutoff in cutoffs.items() if name != BOUNDARY}
        training = data.take(np.flatnonzero(fold != f)).lists
        fitted = fit_cutoffs(to_fit.values(), training, data.truth, data.history, data.users)
        others = data.lists.take(np.flatnonzero(fold == f))
        for name, cutoff in {**cutoffs, **dict(zip(to_fit, fitted, strict=True))}.items():
            report = data.evaluate(cutoff.apply(others, history=data.history))
            row = IdMap(report.user_ids).lookup(others.users.values)
            row = row[row >= 0]
            scores.setdefault(name, np.zeros(report.n_users))[row] = report.values(data.metric)[row]
    return scores
