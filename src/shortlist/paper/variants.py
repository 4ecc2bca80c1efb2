"""The runs of the paper's models: settings by random search, under every reading of the protocol."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from shortlist.auto.validation import count_strata, draw_strata
from shortlist.core.metrics import discounts, ideal_dcg
from shortlist.core.params import draw
from shortlist.cutoff.base import label_lists
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.paper import protocol
from shortlist.paper.experiment import Experiment, Runner, harmonic_mean, pack_values
from shortlist.paper.protocol import (
    BIASED_SWEEP,
    BIASES,
    CAPS,
    FAIR,
    HARMONIC,
    LENGTHS,
    MAX_ITEMS,
    MAX_LENGTH,
    METRICS,
    NEGATIVE_SAMPLING,
    READINGS,
    SAMPLED_EPOCHS,
    SPACES,
    SWEEPS,
    ProtocolReading,
)
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

TOLERANCE = 0.02  # distance from the paper's Cover-Ratio that Figure 1 starts from
NEGATIVES = (1 / 8, 4096.0)  # smallest and largest number that the search for the Cover-Ratio tries
KEEP_ONE_IN = 3  # trials that train for longer
FINALISTS, FINAL_SEEDS = 3, 3  # settings trained with several seeds, whose mean decides
DRAW_STREAM = 12  # second seed of the drawn validation users

MEASURES = (*METRICS, HARMONIC, FAIR)
Readings = tuple[ProtocolReading, ...] | list[ProtocolReading]
Row = dict[str, Any]  # one model, its settings and its lists under one reading
Params = dict[str, Any]
Trial = dict[str, Any]  # `params`, and `figures` by name of the reading


@dataclass(frozen=True)
class Workload:
    """The amount of work; what a stored result depends on is part of its settings."""

    n_trials: int = 36  # per model, with and without item biases each
    epochs: tuple[int, ...] = (4, 12, 36)  # of the rounds of successive halving
    cover_steps: int = 5  # fits to reach the Cover-Ratio that Figure 1 starts from
    valid_users: int = 4000  # at most
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50
    sweep_seeds: int = 2  # of each point of Figure 1


FULL = Workload()
QUICK = Workload(n_trials=6, epochs=(3, 9), cover_steps=2, valid_users=1000, users=2000, sweep_seeds=1)


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
        labels = label_lists(lists, truth)
        relevant = np.zeros((users.size, MAX_LENGTH))
        relevant[row, position] = labels.relevant[at]
        margins = None
        if lists.boundary is not None:
            margins = np.full((users.size, MAX_LENGTH), -np.inf, np.float32)
            margins[row, position] = lists.scores[at] - lists.boundary[row]
        none = np.zeros((users.size, 1))
        return cls(
            lists,
            np.hstack([none, relevant.cumsum(axis=1)]).astype(np.int64),
            np.hstack([none, (relevant * discounts(MAX_LENGTH)).cumsum(axis=1)]),
            labels.n_relevant.astype(np.int64),
            np.minimum(np.diff(lists.indptr), MAX_LENGTH).astype(np.int64),
            margins,
        )

    def measure(self, lengths: Longs | int) -> dict[str, Doubles]:
        """(n,) values of lists of these lengths, 0 for an empty list, by name.

        "ndcg" is against the ideal list of the same length, as in the paper, FAIR against that of 20 items.
        """
        k, n_true = np.minimum(lengths, self.n_candidates), self.n_true
        at, ideal = (np.arange(k.size), k), ideal_dcg(MAX_LENGTH)
        hits, dcg = self.hits[at], self.dcg[at]
        return {
            "f1": 2 * hits / (k + n_true),
            "ndcg": dcg / ideal[np.clip(np.minimum(k, n_true), 1, MAX_LENGTH)],
            FAIR: dcg / ideal[np.clip(n_true, 1, MAX_ITEMS)],
            "precision": hits / np.maximum(k, 1),
            "recall": hits / np.maximum(n_true, 1),
        }

    @cached_property
    def curves(self) -> dict[str, list[float]]:
        """Every measure at every N of the paper's Figure 2."""
        curves = [self.covered(np.full(self.n_true.size, N)) for N in LENGTHS]
        return {name: [each[name] for each in curves] for name in MEASURES}

    def covered(self, lengths: Longs) -> dict[str, float]:
        """Every measure over users with a list; 0 if there is none."""
        covered: Bools = lengths > 0
        if not covered.any():
            return dict.fromkeys(MEASURES, 0.0)
        means = {name: float(each[covered].mean()) for name, each in self.measure(lengths).items()}
        precision, recall = means.pop("precision"), means.pop("recall")
        return means | {HARMONIC: float(harmonic_mean(precision, recall))}

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

    def fixed_values(self, lengths: dict[str, int]) -> dict[str, Doubles]:
        """The values of users at the N of F1, and of the other measures at their own N."""
        values = {name: self.measure(lengths["f1"])[name] for name in METRICS}
        values["ndcg_own"] = self.measure(lengths["ndcg"])["ndcg"]
        values |= {name: self.measure(lengths[HARMONIC])[name] for name in ("precision", "recall")}
        return values | {FAIR: self.measure(lengths[FAIR])[FAIR]}

    def values(self, lengths: Longs) -> dict[str, Doubles]:
        """The values of users with lists of these lengths, and who is covered."""
        values = {"covered": (lengths > 0).astype(np.float64)}
        for cap in CAPS:
            measured = self.measure(np.minimum(lengths, cap))
            values |= {f"{name}_{cap}": measured[name] for name in ("f1", "ndcg", "precision", "recall")}
        values[FAIR] = self.measure(np.minimum(lengths, MAX_ITEMS))[FAIR]
        return values | {"long": (lengths > MAX_ITEMS).astype(np.float64)}


def take_lists(lists: RankedLists, truth: Interactions, users: Ints) -> RankedLists:
    """The lists of these users; `lists` has one list for each user of a superset, ascending."""
    return lists.take(np.searchsorted(truth.users.lookup(lists.users.values), users))


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
    return {
        reading.name: _figures(
            Outcomes.of(lists, reading.truth(users.truth), users.users[reading.name]), target
        )
        for reading in users.readings
    }


def _figures(outcomes: Outcomes, target: float) -> dict[str, Any]:
    """Curves over N; for a boundary also its Cover-Ratio, and means at that of the paper."""
    figures: dict[str, Any] = dict(outcomes.curves)
    if outcomes.margins is None:
        return figures
    figures["shift"] = outcomes.shift_for(target)
    at_target = outcomes.covered(outcomes.above(figures["shift"], MAX_ITEMS))
    figures["cover_ratio"] = float((outcomes.above() > 0).mean())
    return figures | {f"{name}_at_target": value for name, value in at_target.items()}


# ---------------------------------------------------------------------- search
@dataclass(frozen=True, eq=False)
class VariantSearch:
    """Successive halving over random settings."""

    runner: Runner
    users: ValidationUsers
    budget: Workload
    seed: int

    def halve(self, model: str, loss: str, bias: bool) -> list[Trial]:
        """Every trial of every round; a third of the trials reaches the next round."""
        fixed = protocol.SETTINGS.get(model, {}) | {"n_factors": self.budget.n_factors, "bias": bias}
        space = SPACES[model, loss]
        proposed = [fixed | draw(space, self.seed, number) for number in range(self.budget.n_trials)]
        longer = SAMPLED_EPOCHS if loss == NEGATIVE_SAMPLING else 1
        tried: list[Trial] = []
        for n_epochs in self.budget.epochs:
            rounds = {"n_epochs": n_epochs * longer, "seed": self.seed}
            trials = self.runner.map(self.trial, [(model, params | rounds) for params in proposed])
            tried += trials
            ranks = np.zeros(len(trials))  # summed over the readings
            for reading in self.users.readings:
                scores = np.array([self.score(trial, [reading]) for trial in trials])
                ranks += np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
            kept = np.argsort(ranks, kind="stable")[: -(-len(trials) // KEEP_ONE_IN)]
            proposed = [trials[at]["params"] for at in kept]
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

    def select(self, tried: list[Trial], reading: ProtocolReading, metric: str) -> Trial:
        """The best setting under a reading; one seed may be lucky, so several decide between the best."""
        finalists = sorted(tried, key=lambda trial: -self.score(trial, [reading], metric))[:FINALISTS]
        seeds = range(self.seed, self.seed + FINAL_SEEDS)
        points = [(each["model"], each["params"] | {"seed": seed}) for each in finalists for seed in seeds]
        scores = [self.score(trial, [reading], metric) for trial in self.runner.map(self.trial, points)]
        return finalists[int(np.reshape(scores, (-1, FINAL_SEEDS)).mean(axis=1).argmax())]

    def reach_cover_ratio(self, trial: Trial, reading: str) -> Params:
        """The same setting with `negatives` that give the paper's Cover-Ratio, or come closest to it.

        s - t_u approaches log odds against the sampled negatives, so a shift of the boundary by x acts like
        e^x times as many negatives.
        """
        target = protocol.target_cover_ratio(self.runner.experiment.name, trial["model"])
        tried = [trial]
        for _ in range(self.budget.cover_steps):
            if abs(tried[-1]["figures"][reading]["cover_ratio"] - target) <= TOLERANCE:
                break
            params, shift = tried[-1]["params"], tried[-1]["figures"][reading]["shift"]
            wanted = np.clip(params["negatives"] * np.exp(np.clip(shift, -5.0, 5.0)), *NEGATIVES)
            tried.append(self.trial(trial["model"], params | {"negatives": float(f"{wanted:.4g}")}))
        best = min(tried, key=lambda each: abs(each["figures"][reading]["cover_ratio"] - target))
        return dict(best["params"])


# ---------------------------------------------------------------------- rows
@dataclass(frozen=True)
class Variants:
    """The rows of all variants of one dataset and the points of Figure 1, with the runs of all seeds."""

    runner: Runner
    budget: Workload
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

    def rows(self) -> list[Row]:
        """Search, then train the selected settings with every seed."""
        rows = []
        for model, loss in SPACES:
            for bias in BIASES:
                tried = self.search.halve(model, loss, bias)
                for metric, reading in product(protocol.measures_of(model), self.users.readings):
                    best = self.search.select(tried, reading, metric)
                    rows.append(_row(best, reading, {"loss": loss, "selected_by": metric}))
        self._add_runs(rows)
        return rows

    def _add_runs(self, rows: list[Row]) -> None:
        """Add the runs of all seeds; rows with the same settings share the training."""
        groups: dict[str, list[Row]] = {}
        for row in rows:
            row["runs"] = []
            groups.setdefault(json.dumps([row["model"], row["params"]], sort_keys=True), []).append(row)
        seeds = range(self.seed, self.seed + self.n_seeds)
        points = [(group, seed) for group in groups.values() for seed in seeds]
        for (group, _), runs in zip(points, self.runner.map(self._run, points), strict=True):
            for row, run in zip(group, runs, strict=True):
                row["runs"].append(run)

    def _run(self, group: list[Row], seed: int) -> Any:
        model, params = group[0]["model"], group[0]["params"] | {"seed": seed}
        wanted = [(row["reading"], row["N"]) for row in group]
        label = f"{protocol.title(model)}, seed {seed}"
        return self.runner.compute("variant", label, evaluate_rows, model, params, wanted)

    def sweeps(self, rows: list[Row]) -> dict[str, Any]:
        """Figure 1: one parameter of DK-HRM varies at a time; means over seeds, under the first reading."""
        seeds = range(self.seed, self.seed + min(self.budget.sweep_seeds, self.n_seeds))
        reading = self.users.readings[0].name
        params = {
            row["bias"]: self.search.reach_cover_ratio(self.search.trial("DKHRM", row["params"]), reading)
            for row in rows
            if (row["model"], row["reading"], row["selected_by"]) == ("DKHRM", reading, "f1")
        }
        varied = {name: (name, values, params[False]) for name, values in SWEEPS.items()}
        varied[BIASED_SWEEP] = ("t", SWEEPS["t"], params[True])
        points = {
            name: [{**fixed, parameter: value, "seed": seed} for value in values for seed in seeds]
            for name, (parameter, values, fixed) in varied.items()
        }
        every = [(each, reading) for settings in points.values() for each in settings]
        finished = iter(self.runner.map(self._sweep, every))
        sweeps = {}
        for name, settings in points.items():
            figures = [next(finished) for _ in settings]
            sweeps[name] = {"values": list(varied[name][1])} | {
                figure: np.reshape([each[figure] for each in figures], (-1, len(seeds))).mean(axis=1).tolist()
                for figure in figures[0]
            }
        return sweeps

    def _sweep(self, params: Params, reading: str) -> Any:
        label = f"DK-HRM, t {params['t']:g}, λ_t {params['lambda_t']:g}, α {params['alpha']:g}"
        return self.runner.compute("sweep", label, evaluate_sweep, params, reading)


def _row(trial: Trial, reading: ProtocolReading, names: dict[str, str]) -> Row:
    """One model in one variant: the selected settings, and what they reached on validation."""
    model, figures, params = trial["model"], trial["figures"][reading.name], trial["params"]
    is_dynamic = model in protocol.ORIGINAL
    best_N = {name: int(np.argmax(figures[name])) + LENGTHS[0] for name in MEASURES}
    best = {name: max(figures[name]) for name in MEASURES}
    boundary = {name: each for name, each in figures.items() if name not in (*MEASURES, "shift")}
    return {
        "model": model,
        "bias": params["bias"],
        "reading": reading.name,
        **names,
        "params": params,
        "N": None if is_dynamic else best_N,
        "valid": boundary if is_dynamic else best,
    }


Wanted = tuple[str, dict[str, int] | None]  # reading, and N of each measure


def evaluate_rows(
    experiment: Experiment, model: str, params: Params, wanted: list[Wanted]
) -> list[dict[str, Any]]:
    """Train on all data before the test set; for each row, the packed values of every test user.

    A top-N model has F1 and NDCG at the N of F1, other measures at their own N, and F1 at every N; a dynamic
    one has F1 and NDCG for each longest length, which users are covered, and how much boundaries differ.
    """
    split = experiment.split
    test = experiment.validate(model, params, split.train_valid, split.test).candidates
    rows = []
    for name, lengths in wanted:
        outcomes = _test_outcomes(experiment, test, name)
        if lengths is None:
            assert outcomes.lists.boundary is not None
            target = protocol.target_cover_ratio(experiment.name, model)
            values = outcomes.values(outcomes.above(outcomes.shift_for(target)))
            others: Row = {"boundary_sd": float(outcomes.lists.boundary.std())}
        else:
            values, others = outcomes.fixed_values(lengths), {"curve": outcomes.curves["f1"]}
        rows.append({"users": {each: pack_values(values[each]) for each in values}, **others})
    return rows


def evaluate_sweep(experiment: Experiment, params: Params, reading: str) -> dict[str, float]:
    """One point of Figure 1: the lists of DK-HRM above the boundaries, on the test set."""
    split = experiment.split
    test = experiment.validate("DKHRM", params, split.train_valid, split.test).candidates
    if test.boundary is None:  # alpha = 0 learns no boundary, and every t_u keeps its initial value
        test = replace(test, boundary=np.full(len(test), params["t"], np.float32))
    outcomes = _test_outcomes(experiment, test, reading)
    lengths = outcomes.above(cap=MAX_ITEMS)
    means = outcomes.covered(lengths)
    return {
        "f1_covered": means["f1"],
        "harmonic_covered": means[HARMONIC],
        "ndcg_covered": means["ndcg"],
        "cover_ratio": float((lengths > 0).mean()),
        "f1": float(outcomes.measure(lengths)["f1"].mean()),
    }


def _test_outcomes(experiment: Experiment, lists: RankedLists, name: str) -> Outcomes:
    """The outcomes of the test users of a reading."""
    reading = next(each for each in READINGS[experiment.name] if each.name == name)
    split = experiment.split
    return Outcomes.of(lists, reading.truth(split.test), reading.users(split.train_valid, split.test))
