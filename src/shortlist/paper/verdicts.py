"""From runs to findings: Table 1 under every reading, cells at or above the paper, one verdict per claim."""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from shortlist.evaluation.significance import bootstrap_means, holm
from shortlist.paper import protocol
from shortlist.paper.experiment import harmonic_mean, unpack_values
from shortlist.paper.protocol import (
    BIASED_SWEEP,
    BIASES,
    CAPS,
    COVERED,
    FAILS,
    FAIR,
    HARMONIC,
    HOLDS,
    LENGTHS,
    LOSSES,
    MAX_ITEMS,
    METRICS,
    ORIGINAL,
    P_LEVEL,
    PAIRWISE,
)
from shortlist.types import Doubles

FLAT = 0.02  # a curve whose range is below this share of its maximum counts as flat
STEADY = 0.9  # share of its maximum that a steady curve keeps
SWEEP_FIGURES = {
    "f1_covered": "F1 of covered users",
    "f1": "F1 of all users",
    "ndcg_covered": "NDCG of covered users",
    "cover_ratio": "Cover-Ratio",
}
RESAMPLES, SEED, SEED_STREAM = 2000, 7000, 13
PAIRS = (
    ("LogMF", "BPRMF"),
    ("CRRMF", "BPRMF"),
    ("CRRMF", "LogMF"),
    ("HRM", "BPRMF"),
    ("HRM", "LogMF"),
    ("HRM", "CRRMF"),
)
ONE_READING = ("f1", "loss", "bias", "own_N", "cap")  # what both datasets must share
Row = dict[str, Any]
Values = Doubles | tuple[Doubles, Doubles]  # per seed and user; or precision and recall, to be combined
Pair = tuple[Values, Doubles | None, Values]  # values, who is covered (None: all users), baseline


# ---------------------------------------------------------------------- tests
def bootstrap(pairs: dict[str, Pair], resamples: int = RESAMPLES, seed: int = SEED) -> dict[str, Row]:
    """Difference, 95% interval and p-value of each pair, all arrays (n_seeds, n_users).

    Means are over covered users. A resample draws users, the same for both models, and seeds, independently
    for each model.
    """
    rng = np.random.Generator(np.random.PCG64([seed, SEED_STREAM]))
    shares: dict[tuple[int, bool], Doubles] = {}
    tests = {}
    for name, (values, covered, baseline) in pairs.items():
        observed, differences = 0.0, np.zeros(resamples)
        for sign, each, who in ((1, values, covered), (-1, baseline, None)):
            means = covered_means(each, who, resamples, seed)
            n_seeds = len(means)
            key = n_seeds, sign > 0
            if key not in shares:
                shares[key] = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), resamples).T / n_seeds
            observed += sign * float(covered_means(each, who).mean())
            differences += sign * (means * shares[key]).sum(axis=0)
        extreme = int((np.abs(differences - observed) >= abs(observed) * (1 - 1e-12)).sum())
        low, high = np.quantile(differences, [0.025, 0.975])
        p = (1 + extreme) / (1 + resamples)
        tests[name] = {"difference": observed, "low": float(low), "high": float(high), "p": p}
    return tests


def covered_means(values: Values, covered: Doubles | None, resamples: int = 0, seed: int = 0) -> Doubles:
    """(n_seeds, resamples) means over covered users in resamples of all users; (n_seeds, 1) without."""
    if isinstance(values, tuple):
        return harmonic_mean(*(covered_means(each, covered, resamples, seed) for each in values))

    def means(rows: Doubles) -> Doubles:
        if not resamples:
            return np.asarray(rows.mean(axis=1, keepdims=True))
        return np.stack([bootstrap_means(np.ascontiguousarray(row), resamples, seed) for row in rows])

    if covered is None:
        return means(values)
    total = means(covered)
    return np.divide(means(values * covered), total, out=np.zeros_like(total), where=total > 0)


def correct(tests: Sequence[Row]) -> None:
    """Add Holm's correction over all of these tests."""
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = p


# ---------------------------------------------------------------------- Table 1 under every reading
def summarize_rows(dataset: str, rows: list[Row]) -> list[Row]:
    """The rows without their runs, but with figures, the paper's figures, and tests of dynamic models.

    Holm's correction is over all tests of the table.
    """
    table, tests = [], []
    for row in rows:
        values = stack_runs(row)
        summary = {name: value for name, value in row.items() if name != "runs"}
        summary |= {"figures": _figures(row, values), "n_users": int(next(iter(values.values())).shape[1])}
        if row["model"] in ORIGINAL and row["selected_by"] != "ndcg":
            summary["tests"] = compare_with_original(row, values, rows)
            tests += summary["tests"].values()
        summary["paper"] = protocol.printed_cells(dataset, row["model"])
        table.append(summary)
    correct(tests)
    return table


def stack_runs(row: Row) -> dict[str, Doubles]:
    """By name, (n_seeds, n_users) values."""
    users = [run["users"] for run in row["runs"]]
    return {name: np.stack([unpack_values(each[name]) for each in users]) for name in users[0]}


def _figures(row: Row, values: dict[str, Doubles]) -> Row:
    """Mean and standard deviation over seeds; F1 and NDCG of a dynamic model are those of covered users."""
    by_seed = {FAIR: values[FAIR].mean(axis=1)}
    if "covered" in values:
        covered = values["covered"]
        by_seed |= {"cover_ratio": covered.mean(axis=1), "long": values["long"].mean(axis=1)}
        by_seed["boundary_sd"] = np.array([run["boundary_sd"] for run in row["runs"]])
        for cap in CAPS:
            by_seed[f"f1_all_{cap}"] = values[f"f1_{cap}"].mean(axis=1)
            for name in (*METRICS, HARMONIC):
                by_seed[f"{name}_{cap}"] = covered_means(_measure(values, name, f"_{cap}"), covered)[:, 0]
    else:
        for name in (*METRICS, "ndcg_own", HARMONIC):
            by_seed[name] = covered_means(_measure(values, name), None)[:, 0]
    return {
        name: {"mean": float(each.mean()), "sd": float(each.std(ddof=1)) if each.size > 1 else None}
        for name, each in by_seed.items()
    }


def _measure(values: dict[str, Doubles], name: str, suffix: str = "") -> Values:
    if name == HARMONIC:
        return values[f"precision{suffix}"], values[f"recall{suffix}"]
    return values[name + suffix]


def compare_with_original(row: Row, values: dict[str, Doubles], rows: list[Row]) -> dict[str, Row]:
    """The dynamic model against the top-N model it extends, by a bootstrap over seeds and users.

    Covered users against all users, as the paper compares: `f1_20`, `ndcg_20`, `harmonic_20`. `f1_all_20`:
    all users, an empty list counting 0.
    """
    wanted = (ORIGINAL[row["model"]], PAIRWISE, row["reading"], row["bias"], row["selected_by"])
    original = stack_runs(
        next(
            other
            for other in rows
            if tuple(other[name] for name in ("model", "loss", "reading", "bias", "selected_by")) == wanted
        )
    )
    measures = (HARMONIC,) if row["selected_by"] == HARMONIC else tuple(METRICS)
    pairs: dict[str, Pair] = {
        f"{name}_{MAX_ITEMS}": (
            _measure(values, name, f"_{MAX_ITEMS}"),
            values["covered"],
            _measure(original, name),
        )
        for name in measures
    }
    if "f1" in measures:
        pairs[f"f1_all_{MAX_ITEMS}"] = values[f"f1_{MAX_ITEMS}"], None, original["f1"]
    return bootstrap(pairs)


def count_cells(table: list[Row], readings: list[str]) -> list[Row]:
    """F1 and NDCG cells at or above the paper's, and their mean relative distance, for every named variant.

    `f1` of a variant: "f1", the mean of the users' F1, or "harmonic", each in models selected by it. `bias`:
    with item biases, without them, or None: each model as it is better on validation.
    """
    counts = []
    dimensions = (("f1", HARMONIC), LOSSES, readings, (*BIASES, None), (False, True), CAPS)
    for measure, loss, reading, bias, own_N, cap in product(*dimensions):
        below, distances = [], []
        for model, metric in product(protocol.MODELS, METRICS):
            selected_by = "ndcg" if own_N and metric == "ndcg" and model in ORIGINAL else measure
            names = {
                "model": model,
                "loss": loss if model == "HRM" else PAIRWISE,
                "reading": reading,
                "selected_by": selected_by,
            }
            row = select_row(table, names, bias)
            figure = cell(row, measure if metric == "f1" else metric, own_N, cap)
            distances.append(float(np.log(max(figure, 1e-9) / row["paper"][metric])))
            if round(figure, 3) < row["paper"][metric]:
                below.append(f"{protocol.title(model)} {METRICS[metric]}")
        counts.append(
            {
                "f1": measure,
                "loss": loss,
                "reading": reading,
                "bias": bias,
                "own_N": own_N,
                "cap": cap,
                "cells": len(distances),
                "reached": len(distances) - len(below),
                "distance": float(np.expm1(np.mean(np.abs(distances)))),
                "below": below,
            }
        )
    return counts


def select_row(table: list[Row], names: dict[str, str], bias: bool | None) -> Row:
    """The row with these names, and with or without item biases; None: as it is better on validation."""
    rows = [row for row in table if all(row[name] == value for name, value in names.items())]
    if bias is not None:
        return next(row for row in rows if row["bias"] == bias)

    def quality(row: Row) -> float:
        suffix = "_at_target" if row["model"] in ORIGINAL else ""
        return float(row["valid"][row["selected_by"] + suffix])

    return max(rows, key=quality)


def cell(row: Row, metric: str, own_N: bool, cap: int) -> float:
    """The figure that stands beside the paper's."""
    if row["model"] in ORIGINAL:
        return float(row["figures"][f"{metric}_{cap}"]["mean"])
    name = "ndcg_own" if own_N and metric == "ndcg" else metric
    return float(row["figures"][name]["mean"])


def best_variants(counts: dict[str, list[Row]]) -> dict[str, Row]:
    """The single reading with the most cells and that with the smallest distance, for each F1.

    Datasets share everything but whom they test, which is read for each dataset.
    """
    shared: dict[tuple[Any, ...], dict[str, Row]] = {}
    for dataset, cells in counts.items():
        for row in cells:
            by_dataset = shared.setdefault(tuple(row[name] for name in ONE_READING), {})
            if dataset not in by_dataset or _rank(row) > _rank(by_dataset[dataset]):
                by_dataset[dataset] = row
    totals = [
        dict(zip(ONE_READING, key, strict=True))
        | {
            "cells": sum(row["cells"] for row in rows.values()),
            "reached": sum(row["reached"] for row in rows.values()),
            "distance": float(np.expm1(np.mean([np.log1p(row["distance"]) for row in rows.values()]))),
            "datasets": {
                name: {key: row[key] for key in ("reading", "reached", "distance", "below")}
                for name, row in rows.items()
            },
        }
        for key, rows in shared.items()
    ]
    best: dict[str, Row] = {}
    for measure in ("f1", HARMONIC):
        of_measure = [row for row in totals if row["f1"] == measure]
        best[f"{measure}, most cells"] = max(of_measure, key=_rank)
        best[f"{measure}, smallest distance"] = min(of_measure, key=lambda row: row["distance"])
    return best


def _rank(row: Row) -> tuple[int, float]:
    return row["reached"], -row["distance"]


# ---------------------------------------------------------------------- claims
def find_claims(dataset: str, rows: list[Row], table: list[Row], figure1: Row) -> Row:
    """Table 1 under the first reading, Figure 2, comparisons over all users, and the verdicts.

    Models are selected by F1, with or without item biases as it is better on validation.
    """
    chosen: dict[str, Row] = {}
    for model in protocol.MODELS:
        names = {"model": model, "loss": PAIRWISE, "selected_by": "f1", "reading": table[0]["reading"]}
        chosen[model] = select_row(table, names, None)
    runs = {model: rows[table.index(row)] for model, row in chosen.items()}
    values = {model: stack_runs(row) for model, row in runs.items()}
    tests: dict[str, dict[str, Row]] = {}
    for model, other in PAIRS:
        both = values[model], values[other]
        pairs: dict[str, Pair] = {
            metric: (both[0][name], None, both[1][name]) for metric, name in (("f1", "f1"), ("ndcg", FAIR))
        }
        tests[f"{model} – {other}"] = bootstrap(pairs)
    same_users = {}
    for model, other in ORIGINAL.items():
        dynamic, original = values[model], values[other]
        covered, cap = dynamic["covered"], f"_{MAX_ITEMS}"
        tests[f"{model} – {other}"] = bootstrap(
            {
                "f1_covered": (dynamic[f"f1{cap}"], covered, original["f1"]),
                "ndcg_covered": (dynamic[f"ndcg{cap}"], covered, original["ndcg_own"]),
                "harmonic_covered": (
                    _measure(dynamic, HARMONIC, cap),
                    covered,
                    _measure(original, HARMONIC),
                ),
                "f1": (dynamic[f"f1{cap}"], None, original["f1"]),
                "ndcg": (dynamic[FAIR], None, original[FAIR]),
            }
        )
        who = covered.mean(axis=0)
        same_users[model] = {
            metric: float((who * original[name].mean(axis=0)).sum() / max(who.sum(), 1e-9))
            for metric, name in (("f1", "f1"), ("ndcg", "ndcg_own"))
        }
    correct([test for each in tests.values() for test in each.values()])
    evidence = {
        "chosen": {model: table.index(row) for model, row in chosen.items()},
        "figure1": figure1,
        "figure2": {
            model: {
                "N": list(LENGTHS),
                "f1": np.mean([run["curve"] for run in runs[model]["runs"]], axis=0).tolist(),
                "best_N": row["N"]["f1"],
            }
            for model, row in chosen.items()
            if model not in ORIGINAL
        },
        "tests": tests,
        "same_users": same_users,
    }
    return evidence | {"verdicts": verdicts(dataset, chosen, evidence)}


def verdicts(dataset: str, chosen: dict[str, Row], evidence: Row) -> list[dict[str, str]]:
    """All claims in the paper's order."""
    rows = [*_sweep_claims(evidence["figure1"]), _rise_and_stay(evidence["figure2"])]
    rows += _ranking_claims(evidence["tests"])
    rows += [_dynamic_claim(chosen, evidence, model, metric) for model in ORIGINAL for metric in METRICS]
    if dataset == "ta-feng":
        rows += [_improvement(chosen, "f1", 0.331), _improvement(chosen, "ndcg", 0.5)]
    return rows


def verdict(all_users: bool, covered_users: bool = False) -> str:
    """The verdict, given whether a claim holds over all users, and over covered users as in the paper."""
    return HOLDS if all_users else COVERED if covered_users else FAILS


def _claim(claim: str, result: str, numbers: str) -> dict[str, str]:
    return {"claim": claim, "verdict": result, "numbers": f"{numbers}."}


def _mean(row: Row, name: str) -> float:
    return float(row["figures"][name]["mean"])


def _dynamic_claim(chosen: dict[str, Row], evidence: Row, model: str, metric: str) -> dict[str, str]:
    """The central claim: K beats N."""
    original = ORIGINAL[model]
    title, tests = protocol.title(original), evidence["tests"][f"{model} – {original}"]
    covered, baseline = (cell(chosen[each], metric, True, MAX_ITEMS) for each in (model, original))
    numbers = (
        f"Covered users: {covered:.4f} versus {baseline:.4f} over all users "
        f"({_p(tests[f'{metric}_covered'])}, {_mean(chosen[model], 'cover_ratio'):.0%} covered), "
        f"but {title} has {evidence['same_users'][model][metric]:.4f} on these users. "
        f"All users: {_interval(tests[metric])}"
    )
    wins_covered = above(tests[f"{metric}_covered"])
    if metric == "f1":
        harmonic = tests["harmonic_covered"]
        numbers += f". Harmonic F1 of covered users: {_interval(harmonic)}"
        wins_covered = wins_covered or above(harmonic)
    claim = f"{protocol.title(model)} beats {title} in {METRICS[metric]}."
    return _claim(claim, verdict(above(tests[metric]), wins_covered), numbers)


def _improvement(chosen: dict[str, Row], metric: str, claimed: float) -> dict[str, str]:
    dynamic, original = chosen["DKHRM"], chosen["HRM"]
    covered = cell(dynamic, metric, True, MAX_ITEMS) / cell(original, metric, True, MAX_ITEMS) - 1
    names = (f"f1_all_{MAX_ITEMS}", "f1") if metric == "f1" else (FAIR, FAIR)
    all_users = _mean(dynamic, names[0]) / _mean(original, names[1]) - 1
    numbers = f"Covered users: {covered:+.1%}. All users: {all_users:+.1%}"
    if metric == "f1":
        numbers += ". The paper's own table gives 15.4%"
    claim = f"DK-HRM improves on HRM by {claimed:.1%} in {METRICS[metric]}."
    return _claim(claim, verdict(all_users >= claimed, covered >= claimed), numbers)


def _ranking_claims(tests: dict[str, dict[str, Row]]) -> list[dict[str, str]]:
    """The top-N models against each other; they cover all users, so one comparison is enough."""

    def describe(model: str, other: str, *metrics: str) -> str:
        return "; ".join(
            f"{model} minus {other}, {METRICS[metric]}: {_interval(tests[f'{model} – {other}'][metric])}"
            for metric in metrics
        )

    log, crr_bpr, crr_log = (tests[f"{model} – {other}"] for model, other in PAIRS[:3])
    others = ("BPRMF", "LogMF", "CRRMF")
    return [
        _claim(
            "LogMF is better in F1, BPRMF in NDCG.",
            verdict(above(log["f1"]) and below(log["ndcg"])),
            describe("LogMF", "BPRMF", *METRICS),
        ),
        _claim(
            "CRRMF is good at both: F1 above BPRMF's, NDCG above LogMF's.",
            verdict(crr_bpr["f1"]["difference"] > 0 and crr_log["ndcg"]["difference"] > 0),
            f"{describe('CRRMF', 'BPRMF', 'f1')}; {describe('CRRMF', 'LogMF', 'ndcg')}",
        ),
        _claim(
            "HRM beats BPRMF, LogMF and CRRMF in all metrics.",
            verdict(all(above(tests[f"HRM – {other}"][metric]) for other in others for metric in METRICS)),
            "; ".join(describe("HRM", other, *METRICS) for other in others),
        ),
    ]


def above(test: Row) -> bool:
    """Whether the difference is positive and significant."""
    return bool(test["difference"] > 0 and test["p_holm"] <= P_LEVEL)


def below(test: Row) -> bool:
    """Whether the difference is negative and significant."""
    return bool(test["difference"] < 0 and test["p_holm"] <= P_LEVEL)


def _sweep_claims(sweeps: Row) -> list[dict[str, str]]:
    """What the paper says about Figure 1."""

    def describe(name: str, *figures: str) -> str:
        return "; ".join(
            f"{SWEEP_FIGURES[figure]}: "
            + ", ".join(f"{value:.{2 if figure == 'cover_ratio' else 4}f}" for value in sweeps[name][figure])
            for figure in figures
        )

    t, lambda_t, alpha = (sweeps[name] for name in protocol.SWEEPS)
    falls = rises([-value for value in t["cover_ratio"]])
    covered = peaks_inside(alpha["f1_covered"]) and peaks_inside(alpha["ndcg_covered"])
    return [
        _claim(
            "As t rises, F1 rises and Cover-Ratio falls (DK-HRM).",
            verdict(falls and rises(t["f1"]), falls and rises(t["f1_covered"])),
            f"{describe('t', 'f1_covered', 'f1', 'cover_ratio')}; with item biases "
            f"{describe(BIASED_SWEEP, 'cover_ratio')}",
        ),
        _claim(
            "F1 peaks at an inner λ_t (the paper: at 1; DK-HRM).",
            verdict(peaks_inside(lambda_t["f1"]), peaks_inside(lambda_t["f1_covered"])),
            describe("lambda_t", "f1_covered", "f1"),
        ),
        _claim(
            "F1 and NDCG peak at an inner α (DK-HRM).",
            verdict(covered and peaks_inside(alpha["f1"]), covered),
            describe("alpha", "f1_covered", "ndcg_covered", "f1"),
        ),
    ]


def _rise_and_stay(curves: Row) -> dict[str, str]:
    f1 = {model: curve["f1"] for model, curve in curves.items()}
    numbers = "; ".join(
        f"{model}: peak {max(values):.4f} at N = {values.index(max(values)) + 1}, {values[-1]:.4f} "
        f"at N = {len(values)}"
        for model, values in f1.items()
    )
    return _claim("F1 rises with N, then stays steady.", verdict(all(map(steady, f1.values()))), numbers)


def rises(values: Sequence[float]) -> bool:
    """Whether the end is clearly above the start, with at most one step down."""
    steps = [after - before for before, after in pairwise(values)]
    tolerance = FLAT * max(abs(value) for value in values)
    return values[-1] - values[0] > tolerance and sum(step < 0 for step in steps) <= 1


def peaks_inside(values: Sequence[float]) -> bool:
    """Whether the maximum is clearly above both ends."""
    top = max(values)
    return top - max(values[0], values[-1]) > FLAT * top


def steady(values: Sequence[float]) -> bool:
    """Whether the curve rises to a maximum and ends near it."""
    return max(values) > values[0] and values[-1] >= STEADY * max(values)


def _interval(test: Row) -> str:
    return f"{test['difference']:+.4f} [{test['low']:+.4f}, {test['high']:+.4f}], {_p(test)}"


def _p(test: Row) -> str:
    """The corrected p-value; with ≤ if no bootstrap sample was as far from 0."""
    is_bound = test["p"] * (1 + RESAMPLES) < 1.5
    return f"p {'≤' if is_bound else '='} {test['p_holm']:.3f}"
