"""Search for settings: every trial is scored under every reading, and the better ones train for longer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.auto.space import Range, Space, draw
from shortlist.core.metrics import ideal_dcg
from shortlist.cutoff import ExpectedF1, ExpectedNDCG
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.kernels.lists import compute_independent_utilities
from shortlist.paper import protocol
from shortlist.paper.protocol import (
    CAPS,
    MAX_ITEMS,
    MAX_LENGTH,
    READINGS,
    Outcomes,
    Reading,
    covered_mean,
    draw_like,
    read_truth,
    users_to_test,
)
from shortlist.paper.runs import Calls, Experiment, ResultCache
from shortlist.types import Doubles, Ints, Longs

CUTOFFS = {"f1": ExpectedF1, "ndcg": ExpectedNDCG}


@dataclass(frozen=True, eq=False)
class OwnLists:
    """Candidates of a model with `boundary="expected_f1"`, and what happened to them."""

    lists: RankedLists  # with probabilities, boundaries and predicted sizes
    outcomes: Outcomes

    @classmethod
    def of(cls, lists: RankedLists, truth: Interactions, users: Ints) -> "OwnLists":
        """The lists of these users, out of those of a superset."""
        return cls(take_users(lists, truth, users), Outcomes.of(lists, truth, users))

    def lengths(self, metric: str, cover_ratio: float) -> Longs:
        """(n,) lengths with the highest expected metric, for the users who can expect most of it."""
        return self.f1_lengths(cover_ratio) if metric == "f1" else self.ndcg_lengths(cover_ratio)

    def f1_lengths(self, cover_ratio: float) -> Longs:
        """(n,) candidates above the F1-optimal boundary, for the users with the highest expected F1."""
        lists, lengths = self.lists, self.outcomes.above()
        assert lists.probabilities is not None
        assert lists.expected_sizes is not None
        total = np.concatenate([[0.0], np.cumsum(lists.probabilities)])
        first = lists.indptr[:-1]
        expected = 2 * (total[first + lengths] - total[first]) / (lengths + lists.expected_sizes)
        return cover_best(lengths, expected, cover_ratio)

    def ndcg_lengths(self, cover_ratio: float) -> Longs:
        """(n,) lengths with the highest expected NDCG; the size of the next basket is Poisson distributed.

        The ideal list is as long as the shown one, as in the paper's NDCG.
        """
        lists = self.lists
        assert lists.probabilities is not None
        assert lists.expected_sizes is not None
        more = np.maximum(lists.expected_sizes - 1, 0.0)  # a basket has at least one item
        curve, lengths = np.empty(lists.items.size), np.zeros(len(lists), np.int32)
        ideal = ideal_dcg(MAX_LENGTH)
        compute_independent_utilities(
            lists.indptr, np.asarray(lists.probabilities, np.float64), more, 0.0, True, ideal, curve, lengths
        )
        best = np.zeros(len(lists))
        best[lengths > 0] = curve[(lists.indptr[:-1] + lengths - 1)[lengths > 0]]
        return cover_best(lengths.astype(np.int64), best, cover_ratio)


def cover_best(lengths: Longs, expected: Doubles, cover_ratio: float) -> Longs:
    """(n,) these lengths for the share of users with the highest expected metric, 0 for the others."""
    expected = np.where(lengths > 0, expected, -np.inf)
    kept = np.argsort(-expected, kind="stable")[: round(cover_ratio * lengths.size)]
    found = np.zeros_like(lengths)
    found[kept] = lengths[kept]
    return found


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What cutoffs with calibrated probabilities learn from: the candidates of validation users."""

    candidates: RankedLists
    truth: Interactions
    history: Interactions
    users: Ints

    def cut(self, metric: str, cover_ratio: float, lists: RankedLists, history: Interactions) -> RankedLists:
        """Lists with the highest expected metric; the threshold has this Cover-Ratio on validation users."""
        kept = np.zeros(self.truth.n_users, np.bool_)
        kept[self.users] = True
        fitted = CUTOFFS[metric](calibration="features", n_candidates=MAX_LENGTH).fit(
            take_users(self.candidates, self.truth, self.users),
            self.truth.where(kept[self.truth.user]),
            history=self.history,
        )
        found: RankedLists = fitted.with_coverage(cover_ratio).apply(lists, history=history)
        return found


def take_users(lists: RankedLists, truth: Interactions, users: Ints) -> RankedLists:
    """The lists of these users; `lists` has one list for each user of a superset, ascending."""
    return lists.take(np.searchsorted(truth.users.lookup(lists.users.values), users))


TOLERANCE = 0.02  # distance from the paper's Cover-Ratio that a setting may have on validation
NEGATIVES = (1 / 8, 4096.0)  # smallest and largest number that the search for the Cover-Ratio tries
KEEP_ONE_IN = 3  # trials that train for longer
FINALISTS, FINAL_SEEDS = 3, 3  # settings trained with several seeds, whose mean decides
MEAN_TOLERANCE = 0.04  # mean distance over the seeds

_SGD: dict[str, Range | tuple[Any, ...]] = {
    "lr": Range(0.01, 1.0),
    "reg": Range(1e-4, 0.1),
    "init": (0.01, 0.1, 1.0),
}
_DRAWS: dict[str, Range | tuple[Any, ...]] = {"negative_draws": (1, 5, 20)}
SPACES: dict[str, Space] = {
    "BPRMF": {**_SGD, **_DRAWS},
    "LogMF": {**_SGD, "c": Range(0.5, 32), "negatives": Range(1, 32)},
    "CRRMF": {**_SGD, **_DRAWS, "alpha": Range(0.1, 0.9, log=False)},
    "HRM": {**_SGD, **_DRAWS},
    "DKBPRMF": {**_SGD, **_DRAWS, "negatives": Range(1, 256)},
    "DKHRM": {**_SGD, **_DRAWS, "negatives": Range(1, 256)},
}
Entry = dict[str, Any]  # `params`, and `figures` by name of the reading


class ValidationUsers:
    """The validation users of every reading, drawn so that their histories are as long as the test users'."""

    def __init__(self, experiment: Experiment, seed: int, limit: int) -> None:
        split = experiment.split
        self.readings = READINGS[experiment.name]
        self.users: dict[str, Ints] = {}
        for reading in self.readings:
            tested = users_to_test(split.train_valid, split.test, reading)
            available = users_to_test(split.train, split.valid, reading)
            wanted = np.diff(split.train_valid.user_baskets)[tested]
            found = draw_like(wanted, np.diff(split.train.user_baskets)[available], seed, limit)
            self.users[reading.name] = available[found]
        kept = np.zeros(split.valid.n_users, np.bool_)
        kept[np.concatenate(list(self.users.values()))] = True
        self.truth: Interactions = split.valid.where(kept[split.valid.user])


def evaluate_trial(
    experiment: Experiment, users: ValidationUsers, model: str, params: dict[str, Any]
) -> dict[str, Any]:
    """Fit on the training part; return the figures of every reading."""
    lists = experiment.validate(model, params, experiment.split.train, users.truth).candidates
    target = protocol.target_cover_ratio(experiment.name, model)
    figures = {}
    for reading in users.readings:
        truth, own = read_truth(users.truth, reading), users.users[reading.name]
        if params.get("boundary") == "expected_f1":
            figures[reading.name] = _optimal_figures(OwnLists.of(lists, truth, own), target)
        else:
            figures[reading.name] = _figures(Outcomes.of(lists, truth, own), target)
    return figures


def _optimal_figures(found: OwnLists, target: float) -> dict[str, Any]:
    """Curves over N; covered users' means of the lists that the model's own probabilities end."""
    figures: dict[str, Any] = {metric: values.tolist() for metric, values in found.outcomes.curves.items()}
    lengths = np.minimum(found.f1_lengths(target), MAX_ITEMS)
    return figures | {
        "cover_ratio": float((lengths > 0).mean()),
        "f1_at_target": covered_mean(found.outcomes.f1(lengths), lengths),
        "ndcg_at_target": covered_mean(found.outcomes.ndcg(lengths), lengths),
    }


def _figures(found: Outcomes, target: float) -> dict[str, Any]:
    """Curves over N; for a boundary also its Cover-Ratio and covered users' means, as learned and shifted."""
    figures: dict[str, Any] = {metric: values.tolist() for metric, values in found.curves.items()}
    if found.margins is None:
        return figures
    shift = found.shift_for(target)
    at_target = found.above(shift, MAX_ITEMS)
    figures |= {
        "cover_ratio": float((found.above() > 0).mean()),
        "shift": shift,
        "f1_at_target": covered_mean(found.f1(at_target), at_target),
        "ndcg_at_target": covered_mean(found.ndcg(at_target), at_target),
    }
    for cap in CAPS:
        lengths = found.above(cap=cap)
        figures[f"f1_{cap}"] = covered_mean(found.f1(lengths), lengths)
        figures[f"ndcg_{cap}"] = covered_mean(found.ndcg(lengths), lengths)
    return figures


@dataclass(frozen=True, eq=False)
class Search:
    """Successive halving over random settings, then a search for the paper's Cover-Ratio."""

    calls: Calls
    users: ValidationUsers
    cache: ResultCache
    settings: dict[str, Any]  # what cached trials depend on beside model and parameters
    n_trials: int
    epochs: tuple[int, ...]  # of each round; a third of the trials reaches the next one
    n_factors: int
    cover_steps: int  # fits per reading to reach the Cover-Ratio
    seed: int

    @property
    def experiment(self) -> Experiment:
        """The data and its split."""
        return self.calls.experiment

    def run(self, model: str, bias: bool) -> list[Entry]:
        """Every trial of every round for one of the paper's models."""
        return self.halve(model, {"bias": bias}, SPACES[model])

    def halve(self, model: str, fixed: dict[str, Any], space: Space) -> list[Entry]:
        """Every trial of every round; `fixed` parameters are not searched."""
        fixed = dict(protocol.SETTINGS.get(model, {})) | {"n_factors": self.n_factors} | fixed
        proposed = [fixed | draw(space, self.seed, number) for number in range(self.n_trials)]
        tried: list[Entry] = []
        for n_epochs in self.epochs:
            best = self.calls.map(lambda params: self.trial(model, params), [
                params | {"n_epochs": n_epochs, "seed": self.seed} for params in proposed
            ])  # fmt: skip
            tried += best
            kept = self._best(model, best)[: -(-len(best) // KEEP_ONE_IN)]
            proposed = [self._adjusted(one) for one in kept]
        return tried

    def trial(self, model: str, params: dict[str, Any]) -> Entry:
        """One setting, from the cache if it is known."""
        figures = self.cache.get(
            "trial",
            self.settings | {"model": model, "params": params},
            lambda: self.calls.compute(evaluate_trial, self.users, model, params),
            f"{self.experiment.name}, {protocol.title(model)}, {params['n_epochs']} epochs",
        )
        return {"params": params, "figures": figures}

    def select(self, model: str, tried: list[Entry], reading: Reading, metric: str = "f1") -> Entry:
        """The best setting under a reading; for a dynamic model, among those with the paper's Cover-Ratio.

        One seed may be lucky, so the means over several seeds decide between the best three settings.
        """
        if model not in protocol.ORIGINAL:
            return self.select_by_mean(model, tried, lambda one: self._score(model, one, reading))
        best = max(tried, key=lambda one: self._score(model, one, reading, metric))
        target = protocol.target_cover_ratio(self.experiment.name, model)
        near = self.approach_cover_ratio(model, best, reading)

        def quality(runs: list[Entry]) -> tuple[bool, float]:
            """The metric of a setting that is close to the Cover-Ratio; of others, the closest is best."""
            figures = [run["figures"][reading.name] for run in runs]
            distance = float(np.mean([abs(one["cover_ratio"] - target) for one in figures]))
            reached = float(np.mean([one[f"{metric}_{MAX_ITEMS}"] for one in figures]))
            is_close = distance <= (TOLERANCE if len(runs) == 1 else MEAN_TOLERANCE)
            return is_close, reached if is_close else -distance

        near = [one for one in near if one not in tried]
        ranked = sorted((*tried, *near), key=lambda one: quality([one]), reverse=True)
        qualities = [quality(runs) for runs in self._more_seeds(model, ranked)]
        return ranked[max(range(len(qualities)), key=qualities.__getitem__)]

    def approach_cover_ratio(self, model: str, one: Entry, reading: Reading | None = None) -> list[Entry]:
        """Trials with changed `negatives`, until the paper's Cover-Ratio is reached or the steps are used.

        Without a reading, the mean over all readings counts.
        """
        near = []
        for _ in range(self.cover_steps):
            one = self.trial(model, self._adjusted(one, reading))
            near.append(one)
            if self.cover_distance(model, one, reading) <= TOLERANCE:
                break
        return near

    def cover_distance(self, model: str, one: Entry, reading: Reading | None = None) -> float:
        """Distance from the paper's Cover-Ratio; without a reading, of the mean over all readings."""
        target = protocol.target_cover_ratio(self.experiment.name, model)
        readings = self.users.readings if reading is None else (reading,)
        covers = [one["figures"][each.name]["cover_ratio"] for each in readings]
        return abs(float(np.mean(covers)) - target)

    def select_by_mean(self, model: str, tried: list[Entry], score: Callable[[Entry], float]) -> Entry:
        """The best setting by the mean of a score over several seeds, out of the best three by one seed."""
        ranked = sorted(tried, key=lambda one: -score(one))
        means = [np.mean([score(run) for run in runs]) for runs in self._more_seeds(model, ranked)]
        return ranked[int(np.argmax(means))]

    def _more_seeds(self, model: str, ranked: list[Entry]) -> list[list[Entry]]:
        """The first settings, each trained with all seeds that decide between them."""
        finalists, seeds = ranked[:FINALISTS], range(self.seed, self.seed + FINAL_SEEDS)
        points = [one["params"] | {"seed": seed} for one in finalists for seed in seeds]
        runs = self.calls.map(lambda params: self.trial(model, params), points)
        return [runs[k * FINAL_SEEDS : (k + 1) * FINAL_SEEDS] for k in range(len(finalists))]

    def _best(self, model: str, tried: list[Entry]) -> list[Entry]:
        """The trials in order of their ranks, summed over the readings."""
        ranks = np.zeros(len(tried))
        for reading in self.users.readings:
            scores = np.array([self._score(model, one, reading) for one in tried])
            ranks += np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        return [tried[at] for at in np.argsort(ranks, kind="stable")]

    @staticmethod
    def _score(model: str, one: Entry, reading: Reading, metric: str = "f1") -> float:
        """The metric at the best N; for a dynamic model, of covered users at the paper's Cover-Ratio."""
        figures = one["figures"][reading.name]
        return float(figures[f"{metric}_at_target"] if model in protocol.ORIGINAL else max(figures[metric]))

    def _adjusted(self, one: Entry, reading: Reading | None = None) -> dict[str, Any]:
        """The same setting with the strictness that should give the paper's Cover-Ratio.

        s - t_u approaches log odds against the sampled negatives, so a shift of the boundary by x acts like
        e^x times as many negatives.
        """
        params: dict[str, Any] = dict(one["params"])
        names = [each.name for each in self.users.readings] if reading is None else [reading.name]
        shifts = [one["figures"][name]["shift"] for name in names if "shift" in one["figures"][name]]
        if shifts:
            wanted = params["negatives"] * float(np.exp(np.clip(np.mean(shifts), -5.0, 5.0)))
            params["negatives"] = float(f"{np.clip(wanted, *NEGATIVES):.4g}")
        return params
