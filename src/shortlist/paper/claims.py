"""The paper's claims: tune its models, train them with every seed, and evaluate all lists on the test set."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shortlist.auto.space import SPACES
from shortlist.auto.tune import Tuned, tune
from shortlist.cutoff import (
    Boundary,
    Calibration,
    Cutoff,
    ExpectedF1,
    ExpectedNDCG,
    ExpectedValue,
    FixedN,
    Guarantee,
    Threshold,
)
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import (
    Report,
    best_fixed_n,
    evaluate,
    fixed_n_curve,
    match_baselines,
    oracle,
    risk_coverage,
)
from shortlist.models.base import Recommender
from shortlist.paper import protocol
from shortlist.paper.experiment import Experiment, Runner, pack_values
from shortlist.paper.protocol import BOUNDARY, EXPECTED_F1, FIXED, LENGTHS, MAX_ITEMS, ORACLE

COVER_RATIO_TOLERANCE = 0.05  # distance from the paper's Cover-Ratio that counts as equal
SWEEP_FIGURES = ("f1_covered", "ndcg_covered", "cover_ratio", "f1", "length")
TUNED_METRICS = ("f1", "ndcg", "ndcg_paper")  # metrics for which N is chosen on the validation set
MATCHED = ("top N", "same users", "same abstention", "same items")  # conditions of `match_baselines`
CURVE_POINTS = 50  # of a risk-coverage curve
BINS = 30  # of the histogram of boundaries
Params = dict[str, Any]


@dataclass(frozen=True)
class ClaimBudget:
    """The amount of work for the claims; what a stored result depends on is part of its settings."""

    n_trials: int = 12  # per model
    n_epochs: int = 60  # at most
    patience: int = 6
    sweep_seeds: int = 2
    strictness_steps: int = 8  # of the search for the paper's Cover-Ratio
    n_candidates: int = 50  # per user, for cutoffs
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50


FULL = ClaimBudget()
QUICK = ClaimBudget(
    n_trials=4, n_epochs=25, patience=4, sweep_seeds=1, strictness_steps=6, n_candidates=30, users=2000
)


@dataclass(frozen=True)
class Claims:
    """All experiments behind the claims, on one dataset."""

    runner: Runner
    budget: ClaimBudget
    seed: int
    n_seeds: int

    def run(self) -> dict[str, Any]:
        """Tune, train and evaluate every model; return the runs by model, the sweeps and the settings."""
        dynamic = {model: self._tune_dynamic(model) for model in protocol.ORIGINAL}
        params = {
            model: dynamic[model]["selected"] if model in dynamic else dict(self._tune(model).params)
            for model in (*protocol.MODELS, *protocol.BASELINES)
        }
        points = [(model, params[model], seed) for model in params for seed in self._seeds(model)]
        runs: dict[str, list[dict[str, Any]]] = {model: [] for model in params}
        for (model, *_), result in zip(points, self.runner.map(self._run, points), strict=True):
            runs[model].append(result)
        sweeps = self._sweeps(dynamic["DKHRM"]["plain"], protocol.SWEEPS)
        biased = self._sweeps(dynamic["DKHRM"]["biased"], {"t": protocol.SWEEPS["t"]})
        return {
            "params": params,
            "strictness": {model: variants["strictness"] for model, variants in dynamic.items()},
            "runs": runs,
            "figure1": sweeps | {protocol.BIASED_SWEEP: biased["t"]},
            "figure1_params": dynamic["DKHRM"]["plain"],
        }

    def _seeds(self, model: str) -> Iterable[int]:
        """The seeds of a model; counting models have none and run once."""
        return range(self.seed, self.seed + (self.n_seeds if model in protocol.MODELS else 1))

    def _tune_dynamic(self, model: str) -> dict[str, Any]:
        """Tune a dynamic model without item biases, as in the paper, and with them.

        The plain variant is selected if it can cover as many validation users as in the paper, else the one
        that comes closer.
        """
        settings: dict[str, Any] = {"strictness": {}}
        distance = {}
        for name, bias in (("plain", False), ("biased", True)):
            tuned = self._tune(model, bias=bias)
            reached = settings["strictness"][name] = self._strictness(model, tuned)
            settings[name] = tuned.params | {"negatives": reached["negatives"]}
            distance[name] = abs(reached["cover_ratio"] - reached["target"])
        near = distance["plain"] <= COVER_RATIO_TOLERANCE
        best = "plain" if near else min(distance, key=lambda name: distance[name])
        return settings | {"selected": settings[best]}

    def _tune(self, model: str, **params: Any) -> Tuned:
        budget, runner = self.budget, self.runner
        fixed: Params = protocol.PLAIN.get(model, {}) | protocol.SETTINGS.get(model, {}) | params
        if "lr" in SPACES[model]:
            fixed |= {"n_factors": budget.n_factors, "n_epochs": budget.n_epochs, "patience": budget.patience}
        tuned = tune(
            model,
            runner.experiment.split.train_valid,
            n_trials=budget.n_trials,
            space=SPACES[model],
            fixed=fixed,
            seed=self.seed,
            n_jobs=runner.n_jobs,
            engine=runner.engine,
            study=runner.path("tune", [model, fixed, self.seed, repr(SPACES[model])], "jsonl"),
        )
        variant = "" if params.get("bias", True) else ", no item biases"
        runner.report(f"{protocol.title(model)}{variant}: validation F1 {tuned.score:.4f}")
        return tuned

    def _strictness(self, model: str, tuned: Tuned) -> dict[str, Any]:
        target = protocol.target_cover_ratio(self.runner.experiment.name, model)
        params, steps = tuned.params | {"seed": self.seed}, self.budget.strictness_steps
        label = f"{protocol.title(model)}, strictness"
        reached: dict[str, Any] = self.runner.compute(
            "strictness", label, strictness, model, params, target, steps
        )
        return reached

    def _run(self, model: str, params: Params, seed: int) -> Any:
        seeded = params | ({"seed": seed} if model in protocol.MODELS else {})
        label = f"{protocol.title(model)}, seed {seed}"
        return self.runner.compute("run", label, run, model, seeded, self.budget.n_candidates)

    def _sweeps(self, params: Params, sweeps: dict[str, tuple[float, ...]]) -> dict[str, Any]:
        """Vary one parameter at a time; means over seeds."""
        seeds = range(self.seed, self.seed + min(self.budget.sweep_seeds, self.n_seeds))
        points = [
            (params, name, value, seed)
            for name, values in sweeps.items()
            for value in values
            for seed in seeds
        ]
        finished = self.runner.map(self._sweep, points)
        means: dict[str, Any] = {}
        for name, values in sweeps.items():
            means[name] = {"values": list(values)}
            for figure in SWEEP_FIGURES:
                totals = dict.fromkeys(values, 0.0)
                for (_, varied, value, _), figures in zip(points, finished, strict=True):
                    if varied == name:
                        totals[value] += (figures[figure] or 0.0) / len(seeds)
                means[name][figure] = list(totals.values())
        return means

    def _sweep(self, params: Params, name: str, value: float, seed: int) -> Any:
        label = f"DK-HRM with {name} = {value:g}, seed {seed}"
        return self.runner.compute("sweep", label, sweep, "DKHRM", params | {name: value, "seed": seed})


# ---------------------------------------------------------------------- single results
def cutoffs(n_candidates: int) -> dict[str, Cutoff]:
    """All cutoffs that are compared, unfitted, for candidates with probabilities."""
    shared: dict[str, Any] = {"calibration": "none", "n_candidates": n_candidates}
    return {
        "score threshold": Threshold(n_candidates=n_candidates),
        "probability threshold": Threshold(on="probability", **shared),
        "fitted boundary": Boundary(n_candidates=n_candidates),
        EXPECTED_F1: ExpectedF1(**shared),
        "expected NDCG": ExpectedNDCG(**shared),
        "expected value, gain 20 × cost": ExpectedValue(gain=1.0, cost=0.05, **shared),
        "precision ≥ 3% guaranteed": Guarantee(
            min_precision=0.03, fallback="empty", n_candidates=n_candidates
        ),
    }


def run(experiment: Experiment, model: str, params: Params, n_candidates: int) -> dict[str, Any]:
    """Choose on the validation set, refit on train and validation, evaluate every list on the test set."""
    split, truth = experiment.split, experiment.split.test
    valid = experiment.validate(model, params, split.train, split.valid).candidates
    valid_curve = fixed_n_curve(valid, split.valid, LENGTHS)
    best_N = {metric: best_fixed_n(valid_curve, metric) for metric in TUNED_METRICS}
    final = experiment.validate(model, params, split.train_valid, truth)
    test = final.candidates
    lists = {FIXED: FixedN(N=best_N["f1"]).apply(test)}
    if test.boundary is not None:
        lists[BOUNDARY] = Boundary().apply(test)
    lists |= _apply_cutoffs(experiment, valid, test, n_candidates)
    reports = {name: evaluate(each, truth, max_items=MAX_ITEMS) for name, each in lists.items()}
    best = oracle(test, truth, max_items=MAX_ITEMS)
    figures = {name: summarize(report) for name, report in (*reports.items(), (ORACLE, best))}
    for metric, figure in (("ndcg", "ndcg"), ("ndcg_paper", "ndcg_covered")):  # at the best N of its own
        other = _evaluate(FixedN(N=best_N[metric]).apply(test), truth)
        figures[FIXED][figure] = other[figure]
        figures[FIXED]["users"][metric] = other["users"][metric]
    curve = fixed_n_curve(test, truth, LENGTHS)
    return {
        "N": best_N,
        "curve": {name: curve[name].to_list() for name in TUNED_METRICS},
        "lists": figures,
        "matched": {
            name: {
                baseline: _evaluate(each, truth)
                for baseline, each in zip(
                    MATCHED, match_baselines(lists[name], test, truth, best_N["f1"]).values(), strict=True
                )
            }
            for name in (BOUNDARY, EXPECTED_F1)
            if name in lists
        },
        "risk": {name: _risk(report) for name, report in reports.items()},
        "boundaries": _boundaries(final.model, truth),
    }


def _apply_cutoffs(
    experiment: Experiment, valid: RankedLists, test: RankedLists, n_candidates: int
) -> dict[str, RankedLists]:
    """The test lists of every cutoff; all use one calibration, fitted on the validation set."""
    split = experiment.split
    calibration = Calibration(n_candidates=n_candidates).fit(valid, split.valid, history=split.train)
    valid = calibration.apply(valid, history=split.train)
    test = calibration.apply(test, history=split.train_valid)
    # the protocol refits the model between the two sets, so the guarantee is not kept: without fingerprints,
    # its threshold is compared like any other
    valid, test = (replace(lists, source=None) for lists in (valid, test))
    return {
        name: cutoff.fit(valid, split.valid, history=split.train).apply(test, history=split.train_valid)
        for name, cutoff in cutoffs(n_candidates).items()
    }


def _evaluate(lists: RankedLists, truth: Interactions) -> dict[str, Any]:
    return summarize(evaluate(lists, truth, max_items=MAX_ITEMS))


def summarize(report: Report) -> dict[str, Any]:
    """Means over all users and over covered users, and the per-user values that tests need."""
    return {
        "f1": report.f1,
        "ndcg": report.ndcg,
        "precision": report.mean("precision"),
        "recall": report.mean("recall"),
        "cover_ratio": report.cover_ratio,
        "length": report.mean("length"),
        "f1_covered": _none_if_nan(report.mean("f1", "covered")),
        "ndcg_covered": _none_if_nan(report.mean("ndcg_paper", "covered")),
        "precision_covered": _none_if_nan(report.mean("precision", "covered")),
        "lengths": np.bincount(np.minimum(report.lengths, MAX_ITEMS + 1), minlength=MAX_ITEMS + 2).tolist(),
        "users": {name: pack_values(report.values(name)) for name in (*TUNED_METRICS, "length")},
    }


def sweep(experiment: Experiment, model: str, params: Params) -> dict[str, Any]:
    """One point of Figure 1: the lists above the boundaries, evaluated on the test set."""
    split = experiment.split
    candidates = experiment.validate(model, params, split.train_valid, split.test).candidates
    # alpha = 0 learns no boundary, and every t_u keeps its initial value
    figures = _evaluate(Boundary(t=params["t"]).apply(candidates), split.test)
    return {name: figures[name] for name in SWEEP_FIGURES}


def strictness(
    experiment: Experiment, model: str, params: Params, target: float, steps: int
) -> dict[str, Any]:
    """Bisect `negatives` until the boundary covers the share `target` of validation users."""
    split = experiment.split
    low, high = -3.0, 11.0  # exponents of two; more negatives cover fewer users
    tried = []
    for _ in range(steps):
        middle = (low + high) / 2
        changed = params | {"negatives": 2.0**middle}
        candidates = experiment.validate(model, changed, split.train, split.valid).candidates
        report = evaluate(Boundary().apply(candidates), split.valid, max_items=MAX_ITEMS)
        tried.append(
            {
                "negatives": round(2.0**middle, 4),
                "cover_ratio": report.cover_ratio,
                "f1_covered": _none_if_nan(report.mean("f1", "covered")) or 0.0,
                "length": report.mean("length"),
            }
        )
        low, high = (middle, high) if report.cover_ratio > target else (low, middle)
    best = min(tried, key=lambda step: abs(step["cover_ratio"] - target))
    return best | {"target": target, "tried": tried}


def _risk(report: Report) -> dict[str, Any]:
    risk = risk_coverage(report)
    curve = risk.curve(CURVE_POINTS)
    return {
        "coverage": curve["coverage"].to_list(),
        "f1": curve["f1"].to_list(),
        "area": risk.area,
        "area_random": risk.area_random,
    }


def _boundaries(model: Recommender, truth: Interactions) -> dict[str, Any] | None:
    """The distribution of the boundaries of users in the truth."""
    boundaries = model.boundaries(truth.users.to_ids(truth.active_users))
    if boundaries is None:
        return None
    counts, edges = np.histogram(boundaries, BINS)
    levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    quantiles = np.quantile(boundaries, levels)
    return {
        "sd": float(boundaries.std()),
        "quantiles": {f"{q:g}": float(value) for q, value in zip(levels, quantiles, strict=True)},
        "counts": counts.tolist(),
        "edges": edges.tolist(),
    }


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
