"""Table 1 under every reading of the protocol, with and without item biases, and beyond the paper."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.auto.space import Space, draw
from shortlist.auto.validation import count_strata, draw_strata
from shortlist.core.metrics import discounts, ideal_dcg
from shortlist.cutoff import ExpectedF1, ExpectedNDCG
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.kernels.lists import compute_independent_utilities
from shortlist.paper import protocol
from shortlist.paper.experiment import Experiment, Runner, harmonic_mean, pack_values
from shortlist.paper.protocol import (
    BIASES,
    CALIBRATED,
    CAPS,
    EXTENSIONS,
    HARMONIC,
    KINDS,
    LEARNED,
    LENGTHS,
    MAX_ITEMS,
    MAX_LENGTH,
    METRICS,
    OPTIMAL,
    READINGS,
    SPACES,
    TOLERANCE,
    UNIFORM,
    Extension,
    ProtocolReading,
)
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

MEAN_TOLERANCE = 0.04  # mean distance over the seeds
NEGATIVES = (1 / 8, 4096.0)  # smallest and largest number that the search for the Cover-Ratio tries
KEEP_ONE_IN = 3  # trials that train for longer
FINALISTS, FINAL_SEEDS = 3, 3  # settings trained with several seeds, whose mean decides
DRAW_STREAM = 12  # second seed of the drawn validation users

CUTOFFS = {"f1": ExpectedF1, "ndcg": ExpectedNDCG}

Readings = tuple[ProtocolReading, ...] | list[ProtocolReading]
Row = dict[str, Any]  # one model, its settings and its lists under one reading
Params = dict[str, Any]
Trial = dict[str, Any]  # `params`, and `figures` by name of the reading


@dataclass(frozen=True)
class VariantBudget:
    """The amount of work for the variants; what a stored result depends on is part of its settings."""

    n_trials: int = 50  # per model, with and without item biases each
    epochs: tuple[int, ...] = (4, 12, 36)  # of the rounds of successive halving
    cover_steps: int = 5  # fits per reading to reach the Cover-Ratio
    valid_users: int = 4000  # at most
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50
    n_extended: int = 24  # trials of each model beyond the paper


FULL_VARIANTS = VariantBudget()
QUICK_VARIANTS = VariantBudget(
    n_trials=6, epochs=(3, 9), cover_steps=2, valid_users=1000, users=2000, n_extended=3
)


# ---------------------------------------------------------------------- lists and what happened to them
@dataclass(frozen=True, eq=False)
class Outcomes:
    """Candidates of n users and what happened to them; lists of any length are scored from it."""

    lists: RankedLists
    hits: Longs  # (n, MAX_LENGTH + 1) relevant items among the first k candidates
    dcg: Doubles  # (n, MAX_LENGTH + 1) of the first k candidates
    n_true: Longs  # (n,)
    n_candidates: Longs  # (n,)
    margins: Floats | None  # (n, MAX_LENGTH) score minus boundary, descending; -inf without a candidate

    @classmethod
    def of(cls, lists: RankedLists, truth: Interactions, users: Ints) -> "Outcomes":
        """The outcomes of these users; `lists` has one list for each user of a superset, ascending."""
        lists = take_lists(lists, truth, users)
        at = lists.positions < MAX_LENGTH
        row, position = np.repeat(np.arange(users.size), np.diff(lists.indptr))[at], lists.positions[at]
        pairs = np.unique(truth.user.astype(np.int64) * truth.n_items + truth.item)
        relevant = np.zeros((users.size, MAX_LENGTH))
        relevant[row, position] = np.isin(
            users[row].astype(np.int64) * truth.n_items + lists.items[at], pairs
        )
        margins = None
        if lists.boundary is not None:
            margins = np.full((users.size, MAX_LENGTH), -np.inf, np.float32)
            margins[row, position] = lists.scores[at] - lists.boundary[row]
        none = np.zeros((users.size, 1))
        return cls(
            lists,
            np.hstack([none, relevant.cumsum(axis=1)]).astype(np.int64),
            np.hstack([none, (relevant * discounts(MAX_LENGTH)).cumsum(axis=1)]),
            np.bincount(pairs // truth.n_items, minlength=truth.n_users)[users],
            np.minimum(np.diff(lists.indptr), MAX_LENGTH).astype(np.int64),
            margins,
        )

    def f1(self, lengths: Longs | int) -> Doubles:
        """(n,) F1 of lists of these lengths; 0 for an empty list."""
        k = np.minimum(lengths, self.n_candidates)
        return np.asarray(2 * self.hits[np.arange(k.size), k] / (k + self.n_true))

    def ndcg(self, lengths: Longs | int) -> Doubles:
        """(n,) NDCG against the ideal list of the same length, as in the paper; 0 for an empty list."""
        k = np.minimum(lengths, self.n_candidates)
        ideal = ideal_dcg(MAX_LENGTH)[np.clip(np.minimum(k, self.n_true), 1, MAX_LENGTH)]
        return np.asarray(self.dcg[np.arange(k.size), k] / ideal)

    def precision_and_recall(self, lengths: Longs | int) -> tuple[Doubles, Doubles]:
        """(n,) precision and (n,) recall of lists of these lengths; 0 for an empty list."""
        k = np.minimum(lengths, self.n_candidates)
        hits = self.hits[np.arange(k.size), k]
        return hits / np.maximum(k, 1), hits / np.maximum(self.n_true, 1)

    @cached_property
    def curves(self) -> dict[str, list[float]]:
        """Mean F1 and NDCG at every N of the paper's Figure 2, and the harmonic F1."""
        curves = [self.covered(np.full(self.n_true.size, N)) for N in LENGTHS]
        return {name: [each[name] for each in curves] for name in (*METRICS, HARMONIC)}

    def covered(self, lengths: Longs) -> dict[str, float]:
        """Mean F1 and NDCG over users with a list, and their harmonic F1; 0 if there is none."""
        covered: Bools = lengths > 0
        if not covered.any():
            return dict.fromkeys((*METRICS, HARMONIC), 0.0)
        means = [float(each[covered].mean()) for each in self.precision_and_recall(lengths)]
        values = {"f1": self.f1(lengths), "ndcg": self.ndcg(lengths)}
        figures = {name: float(each[covered].mean()) for name, each in values.items()}
        return figures | {HARMONIC: float(harmonic_mean(*means))}

    def above(self, shift: float = 0.0, cap: int = MAX_LENGTH) -> Longs:
        """(n,) candidates above the boundary, which is moved up by `shift`."""
        assert self.margins is not None
        return np.asarray(np.minimum((self.margins > shift).sum(axis=1), cap), np.int64)

    def shift_for(self, cover_ratio: float) -> float:
        """How far to move all boundaries so that this share of the users is covered."""
        assert self.margins is not None
        best = np.sort(self.margins[:, 0])[::-1]
        n = int(np.clip(round(cover_ratio * best.size), 1, best.size))
        lower = best[n] if n < best.size else best[n - 1] - 1.0
        return float((best[n - 1] + lower) / 2)

    def optimal_lengths(self, metric: str, cover_ratio: float) -> Longs:
        """(n,) lengths with the highest expected metric, for the users who can expect most of it.

        The candidates need probabilities, predicted sizes and the boundaries of `boundary="expected_f1"`.
        """
        lists = self.lists
        assert lists.probabilities is not None
        assert lists.expected_sizes is not None
        if metric == "f1":
            lengths = self.above()
            total = np.concatenate([[0.0], np.cumsum(lists.probabilities)])
            first = lists.indptr[:-1]
            expected = 2 * (total[first + lengths] - total[first]) / (lengths + lists.expected_sizes)
        else:  # the size of the next basket, at least one, is Poisson distributed
            more = np.maximum(lists.expected_sizes - 1, 0.0)
            curve, found = np.empty(lists.items.size), np.zeros(len(lists), np.int32)
            probabilities, ideal = np.asarray(lists.probabilities, np.float64), ideal_dcg(MAX_LENGTH)
            compute_independent_utilities(lists.indptr, probabilities, more, 0.0, True, ideal, curve, found)
            lengths, expected = found.astype(np.int64), np.zeros(len(lists))
            expected[lengths > 0] = curve[(lists.indptr[:-1] + lengths - 1)[lengths > 0]]
        return cover_best(lengths, expected, cover_ratio)

    def fixed_values(self, lengths: dict[str, int]) -> dict[str, Doubles]:
        """The values of users at the N of F1, and NDCG at its own N."""
        f1, ndcg = lengths["f1"], lengths["ndcg"]
        values = {"f1": self.f1(f1), "ndcg": self.ndcg(f1), "ndcg_own": self.ndcg(ndcg)}
        precision, recall = self.precision_and_recall(lengths[HARMONIC])
        return values | {"precision": precision, "recall": recall}

    def values(self, lengths: Longs) -> dict[str, Doubles]:
        """The values of users with lists of these lengths, and who is covered."""
        values = {"covered": (lengths > 0).astype(np.float64)}
        for cap in CAPS:
            values[f"f1_{cap}"] = self.f1(np.minimum(lengths, cap))
            values[f"ndcg_{cap}"] = self.ndcg(np.minimum(lengths, cap))
            precision, recall = self.precision_and_recall(np.minimum(lengths, cap))
            values |= {f"precision_{cap}": precision, f"recall_{cap}": recall}
        return values | {"long": (lengths > MAX_ITEMS).astype(np.float64)}


def take_lists(lists: RankedLists, truth: Interactions, users: Ints) -> RankedLists:
    """The lists of these users; `lists` has one list for each user of a superset, ascending."""
    return lists.take(np.searchsorted(truth.users.lookup(lists.users.values), users))


def cover_best(lengths: Longs, expected: Doubles, cover_ratio: float) -> Longs:
    """(n,) these lengths for the share of users with the highest expected metric, 0 for the others."""
    expected = np.where(lengths > 0, expected, -np.inf)
    kept = np.argsort(-expected, kind="stable")[: round(cover_ratio * lengths.size)]
    covered = np.zeros_like(lengths)
    covered[kept] = lengths[kept]
    return covered


# ---------------------------------------------------------------------- validation
class ValidationUsers:
    """The validation users of every reading, drawn so that their histories are as long as the test users'."""

    def __init__(self, experiment: Experiment, seed: int, limit: int) -> None:
        split = experiment.split
        self.identity = [seed, limit]  # in the settings of stored results
        self.readings = READINGS[experiment.name]
        self.users: dict[str, Ints] = {}
        for reading in self.readings:
            tested = reading.users(split.train_valid, split.test)
            available = reading.users(split.train, split.valid)
            wanted = np.diff(split.train_valid.user_baskets)[tested]
            drawn = draw_like(wanted, np.diff(split.train.user_baskets)[available], seed, limit)
            self.users[reading.name] = available[drawn]
        kept = np.zeros(split.valid.n_users, np.bool_)
        kept[np.concatenate(list(self.users.values()))] = True
        self.truth: Interactions = split.valid.where(kept[split.valid.user])


def draw_like(wanted: Longs, available: Longs, seed: int, limit: int) -> Longs:
    """Positions in `available`, drawn so that histories are as long as those in `wanted`, ascending.

    Both arrays hold numbers of baskets. Strata without available users are left out.
    """
    return draw_strata(count_strata(wanted), available, [seed, DRAW_STREAM], limit, round_down=True)


def evaluate_trial(
    experiment: Experiment, users: ValidationUsers, model: str, params: Params
) -> dict[str, dict[str, Any]]:
    """Fit on the training part; return the figures of every reading."""
    lists = experiment.validate(model, params, experiment.split.train, users.truth).candidates
    target = protocol.target_cover_ratio(experiment.name, model)
    is_optimal = params.get("boundary") == "expected_f1"
    return {
        reading.name: _figures(
            Outcomes.of(lists, reading.truth(users.truth), users.users[reading.name]), target, is_optimal
        )
        for reading in users.readings
    }


def _figures(outcomes: Outcomes, target: float, is_optimal: bool) -> dict[str, Any]:
    """Curves over N; for a boundary also its Cover-Ratio and covered users' means, as learned and shifted."""
    figures: dict[str, Any] = dict(outcomes.curves)
    if outcomes.margins is None:
        return figures
    if is_optimal:
        at_target = shown = np.minimum(outcomes.optimal_lengths("f1", target), MAX_ITEMS)
    else:
        figures["shift"] = outcomes.shift_for(target)
        at_target, shown = outcomes.above(figures["shift"], MAX_ITEMS), outcomes.above()
    figures["cover_ratio"] = float((shown > 0).mean())
    figures |= {f"{name}_at_target": value for name, value in outcomes.covered(at_target).items()}
    for cap in () if is_optimal else CAPS:
        means = outcomes.covered(outcomes.above(cap=cap))
        figures |= {f"{name}_{cap}": value for name, value in means.items()}
    return figures


# ---------------------------------------------------------------------- search
@dataclass(frozen=True, eq=False)
class VariantSearch:
    """Successive halving over random settings, then a search for the paper's Cover-Ratio."""

    runner: Runner
    users: ValidationUsers
    budget: VariantBudget
    seed: int

    def halve(self, model: str, fixed: Params, space: Space, n_trials: int) -> list[Trial]:
        """Every trial of every round; `fixed` parameters are not searched, a third reaches the next round."""
        fixed = dict(protocol.SETTINGS.get(model, {})) | {"n_factors": self.budget.n_factors} | fixed
        proposed = [fixed | draw(space, self.seed, number) for number in range(n_trials)]
        tried: list[Trial] = []
        for n_epochs in self.budget.epochs:
            rounds = {"n_epochs": n_epochs, "seed": self.seed}
            trials = self.runner.map(self.trial, [(model, params | rounds) for params in proposed])
            tried += trials
            ranks = np.zeros(len(trials))  # summed over the readings
            for reading in self.users.readings:
                scores = np.array([self.score(trial, [reading]) for trial in trials])
                ranks += np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
            kept = np.argsort(ranks, kind="stable")[: -(-len(trials) // KEEP_ONE_IN)]
            proposed = [self._adjusted(trials[at], self.users.readings) for at in kept]
        return tried

    def trial(self, model: str, params: Params) -> Trial:
        """One setting and its figures under every reading."""
        label = f"{protocol.title(model)}, {params['n_epochs']} epochs"
        figures = self.runner.compute("trial", label, evaluate_trial, self.users, model, params)
        return {"model": model, "params": params, "figures": figures}

    @staticmethod
    def score(trial: Trial, readings: Readings, metric: str = "f1") -> float:
        """The metric at the best N; for a dynamic model, of covered users at the paper's Cover-Ratio."""
        figures = [trial["figures"][reading.name] for reading in readings]
        is_dynamic = trial["model"] in protocol.ORIGINAL
        return float(
            np.mean([each[f"{metric}_at_target"] if is_dynamic else max(each[metric]) for each in figures])
        )

    def select(self, tried: list[Trial], reading: ProtocolReading, metric: str = "f1") -> Trial:
        """The best setting under a reading; for a dynamic model, among those with the paper's Cover-Ratio."""
        if tried[0]["model"] not in protocol.ORIGINAL:
            return self.select_by_mean(tried, [reading], metric)
        target = self.target(tried[0])
        near = self.approach_cover_ratio(
            max(tried, key=lambda trial: self.score(trial, [reading], metric)), [reading]
        )

        def quality(trials: list[Trial]) -> tuple[bool, float]:
            """The metric of a setting that is close to the Cover-Ratio; of others, the closest is best."""
            figures = [trial["figures"][reading.name] for trial in trials]
            distance = float(np.mean([abs(each["cover_ratio"] - target) for each in figures]))
            reached = float(np.mean([each[f"{metric}_{MAX_ITEMS}"] for each in figures]))
            is_close = distance <= (TOLERANCE if len(trials) == 1 else MEAN_TOLERANCE)
            return is_close, reached if is_close else -distance

        return self._select([*tried, *(trial for trial in near if trial not in tried)], quality)

    def select_by_mean(self, tried: list[Trial], readings: Readings, metric: str = "f1") -> Trial:
        """The best setting by the mean score over the readings."""
        return self._select(
            tried, lambda trials: float(np.mean([self.score(trial, readings, metric) for trial in trials]))
        )

    def _select(self, tried: list[Trial], quality: Callable[[list[Trial]], Any]) -> Trial:
        """One seed may be lucky, so several seeds decide between the best three settings."""
        finalists = sorted(tried, key=lambda trial: quality([trial]), reverse=True)[:FINALISTS]
        seeds = range(self.seed, self.seed + FINAL_SEEDS)
        points = [(each["model"], each["params"] | {"seed": seed}) for each in finalists for seed in seeds]
        trials = self.runner.map(self.trial, points)
        qualities = [quality(trials[k : k + FINAL_SEEDS]) for k in range(0, len(trials), FINAL_SEEDS)]
        return finalists[max(range(len(qualities)), key=qualities.__getitem__)]

    def target(self, trial: Trial) -> float:
        """The Cover-Ratio that the paper reports for the model."""
        return protocol.target_cover_ratio(self.runner.experiment.name, trial["model"])

    def approach_cover_ratio(self, trial: Trial, readings: Readings) -> list[Trial]:
        """Trials with changed `negatives`, until the paper's Cover-Ratio is reached or the steps are used."""
        near: list[Trial] = []
        for _ in range(self.budget.cover_steps):
            trial = self.trial(trial["model"], self._adjusted(trial, readings))
            near.append(trial)
            if self.cover_distance(trial, readings) <= TOLERANCE:
                break
        return near

    def cover_distance(self, trial: Trial, readings: Readings) -> float:
        """Distance of the mean Cover-Ratio over the readings from the paper's."""
        covers = [trial["figures"][reading.name]["cover_ratio"] for reading in readings]
        return abs(float(np.mean(covers)) - self.target(trial))

    @staticmethod
    def _adjusted(trial: Trial, readings: Readings) -> Params:
        """The same setting with the strictness that should give the paper's Cover-Ratio.

        s - t_u approaches log odds against the sampled negatives, so a shift of the boundary by x acts like
        e^x times as many negatives.
        """
        params: Params = dict(trial["params"])
        figures = [trial["figures"][reading.name] for reading in readings]
        shifts = [each["shift"] for each in figures if "shift" in each]
        if shifts:
            wanted = params["negatives"] * float(np.exp(np.clip(np.mean(shifts), -5.0, 5.0)))
            params["negatives"] = float(f"{np.clip(wanted, *NEGATIVES):.4g}")
        return params


# ---------------------------------------------------------------------- rows
@dataclass(frozen=True)
class Variants:
    """The rows of all variants of one dataset, with the runs of all seeds."""

    runner: Runner
    budget: VariantBudget
    seed: int
    n_seeds: int

    @cached_property
    def users(self) -> ValidationUsers:
        """The users that select settings."""
        return ValidationUsers(self.runner.experiment, self.seed, self.budget.valid_users)

    @cached_property
    def search(self) -> VariantSearch:
        """The search for settings."""
        return VariantSearch(self.runner, self.users, self.budget, self.seed)

    def run(self) -> dict[str, Any]:
        """VariantSearch, then train the selected settings with every seed."""
        rows = self.paper_rows()
        extended = [row for extension in EXTENSIONS for row in self.extended_rows(extension)]
        self._add_runs([*rows, *extended])
        return {"rows": rows, "extended": extended}

    def paper_rows(self) -> list[Row]:
        """The rows of the paper's models, without their runs."""
        selected: dict[tuple[str, str, bool, ProtocolReading], Trial] = {}
        for model in protocol.MODELS:
            for bias in BIASES:
                tried = self.search.halve(model, {"bias": bias}, SPACES[model], self.budget.n_trials)
                for metric in dict.fromkeys(KINDS[kind] for kind in protocol.kinds_of(model)):
                    for reading in self.users.readings:
                        selected[metric, model, bias, reading] = self.search.select(tried, reading, metric)
        return [
            _row(selected[metric, model, bias, reading], reading, {"kind": kind})
            for kind, metric in KINDS.items()
            for model in protocol.MODELS
            if kind in protocol.kinds_of(model)
            for bias in BIASES
            for reading in self.users.readings
        ]

    def extended_rows(self, extension: Extension) -> list[Row]:
        """The rows of one extension; all readings and kinds of lists share one setting."""
        model, has_repeats = extension.model, not self.runner.experiment.filter_seen
        search, readings = self.search, self.users.readings
        fixed = {"boundary": "expected_f1"} if model in protocol.ORIGINAL else {}
        tried = search.halve(model, fixed, extension.space(has_repeats), self.budget.n_extended)
        best = search.select_by_mean(tried, readings)
        settings = dict.fromkeys(extension.lists, best)
        if LEARNED in settings:  # `negatives` is changed to reach the Cover-Ratio
            learned = search.trial(model, best["params"] | {"boundary": "learned"})
            near = [learned, *search.approach_cover_ratio(learned, readings)]
            settings[LEARNED] = min(near, key=lambda trial: search.cover_distance(trial, readings))
        name = extension.name(has_repeats)
        return [
            _row(trial, reading, {"extension": name, "lists": lists})
            for reading in readings
            for lists, trial in settings.items()
        ]

    def _add_runs(self, rows: list[Row]) -> None:
        """Add the runs of all seeds; rows with the same settings share the training."""
        groups: dict[str, list[Row]] = {}
        for row in rows:
            row["runs"] = []
            groups.setdefault(json.dumps([row["model"], row["params"]], sort_keys=True), []).append(row)
        seeds = range(self.seed, self.seed + self.n_seeds)
        points = [(group, seed) for group in groups.values() for seed in seeds]
        for (group, _), values in zip(points, self.runner.map(self._run, points), strict=True):
            for row, packed in zip(group, values, strict=True):
                row["runs"].append(packed)

    def _run(self, group: list[Row], seed: int) -> Any:
        model, params = group[0]["model"], group[0]["params"] | {"seed": seed}
        readings = {reading.name: reading for reading in self.users.readings}
        wanted = [(readings[row["reading"]], row.get("lists", ""), row["N"]) for row in group]
        label = f"{protocol.title(model)}, seed {seed}"
        return self.runner.compute("variant", label, evaluate_rows, self.users, model, params, wanted)


def _row(trial: Trial, reading: ProtocolReading, names: dict[str, str]) -> Row:
    """One model in one variant: the selected settings, and what they reached on validation."""
    figures, params = trial["figures"][reading.name], trial["params"]
    is_extended = "lists" in names
    measures = (*METRICS, HARMONIC)
    best_N = {name: int(np.argmax(figures[name])) + LENGTHS[0] for name in measures if name in figures}
    return {
        "model": trial["model"],
        "bias": params["bias"],
        "reading": reading.name,
        **names,
        "params": params | ({"negatives": "uniform"} if names.get("kind") == UNIFORM else {}),
        "N": None if trial["model"] in protocol.ORIGINAL else best_N,
        "valid": {
            name: value
            for name, value in figures.items()
            if (name.endswith(("target", "ratio")) if is_extended else name not in (*measures, "shift"))
        },
    }


Wanted = tuple[ProtocolReading, str, dict[str, int] | None]  # reading, kind of lists, N of each metric


def evaluate_rows(
    experiment: Experiment, users: ValidationUsers, model: str, params: Params, wanted: list[Wanted]
) -> list[dict[str, str]]:
    """Train on all data before the test set; for each row, the packed values of every test user.

    A top-N model has F1 and NDCG at the N of F1, and NDCG at its own N; a dynamic one F1 and NDCG for each
    longest length, and which users are covered.
    """
    split = experiment.split
    test = experiment.validate(model, params, split.train_valid, split.test).candidates
    valid = None
    if any(lists in CALIBRATED for _, lists, _ in wanted):
        valid = experiment.validate(model, params, split.train, users.truth).candidates
    target, rows = protocol.target_cover_ratio(experiment.name, model), []
    for reading, lists, lengths in wanted:
        truth, tested = reading.truth(split.test), reading.users(split.train_valid, split.test)
        outcomes = Outcomes.of(test, truth, tested)
        if lengths is not None:
            values = outcomes.fixed_values(lengths)
        elif lists in OPTIMAL:
            values = outcomes.values(outcomes.optimal_lengths(OPTIMAL[lists], target))
        elif valid is not None and lists in CALIBRATED:
            cutoff = fit_calibrated(CALIBRATED[lists], target, valid, users, reading, split.train)
            cut = cutoff.apply(outcomes.lists, history=split.train_valid)
            values = Outcomes.of(cut, truth, tested).values(cut.lengths.astype(np.int64))
        else:
            values = outcomes.values(outcomes.above())
        rows.append({name: pack_values(each) for name, each in values.items()})
    return rows


def fit_calibrated(
    metric: str,
    cover_ratio: float,
    candidates: RankedLists,
    users: ValidationUsers,
    reading: ProtocolReading,
    history: Interactions,
) -> ExpectedF1 | ExpectedNDCG:
    """A cutoff with calibrated probabilities that has this Cover-Ratio on the validation users."""
    truth, drawn = reading.truth(users.truth), users.users[reading.name]
    kept = np.zeros(truth.n_users, np.bool_)
    kept[drawn] = True
    cutoff: ExpectedF1 | ExpectedNDCG = CUTOFFS[metric](calibration="features", n_candidates=MAX_LENGTH)
    cutoff.fit(take_lists(candidates, truth, drawn), truth.where(kept[truth.user]), history=history)
    return cutoff.with_coverage(cover_ratio)
