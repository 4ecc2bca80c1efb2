"""From runs to findings: Table 1 under every reading, cells at or above the paper, models compared."""

from itertools import product
from typing import Any

import numpy as np

from reproduction import protocol
from reproduction.protocol import CAPS, FAIR, HARMONIC, MAX_ITEMS, METRICS, MODELS, ORIGINAL, PAIRWISE
from reproduction.runs import Row, harmonic_mean, quality
from shortlist.evaluation.significance import bootstrap_means, holm
from shortlist.types import Doubles

CAP = f"_{MAX_ITEMS}"
RESAMPLES, SEED, SEED_STREAM = 2000, 7000, 13
ONE_READING = ("f1", "loss", "bias", "own_N", "cap")  # what both datasets must share
Values = Doubles | tuple[Doubles, Doubles]  # per seed and user; or precision and recall, to be combined
Pair = tuple[Values, Doubles | None, Values]  # values, who is covered (None: all users), baseline


# ---------------------------------------------------------------------- tests
def bootstrap(pairs: dict[str, Pair], resamples: int = RESAMPLES, seed: int = SEED) -> dict[str, Row]:
    """Difference, 95% interval and p-value of each pair, all arrays (n_seeds, n_users).

    Means are over covered users. A resample draws users, the same for both models, and seeds, independently
    for each model.
    """
    rng = np.random.Generator(np.random.PCG64([seed, SEED_STREAM]))
    shares: dict[tuple[int, int], Doubles] = {}
    tests = {}
    for name, (values, covered, baseline) in pairs.items():
        observed, differences = 0.0, np.zeros(resamples)
        for sign, each, who in ((1, values, covered), (-1, baseline, None)):
            means = covered_means(each, who, resamples, seed)
            n_seeds = len(means)
            if (n_seeds, sign) not in shares:
                drawn = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), resamples)
                shares[n_seeds, sign] = drawn.T / n_seeds
            observed += sign * float(covered_means(each, who).mean())
            differences += sign * (means * shares[n_seeds, sign]).sum(axis=0)
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


def correct(tests: list[Row]) -> None:
    """Add Holm's correction over all of these tests."""
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = p


# ---------------------------------------------------------------------- Table 1 under every reading
def summarize(dataset: str, rows: list[Row]) -> list[Row]:
    """The rows with their figures, the paper's, and tests of dynamic models instead of their runs.

    Covered users of a dynamic model against all users of the original, as the paper compares: `f1_20`,
    `ndcg_20`, `harmonic_20`. `f1_all_20`: all users, an empty list counting 0.
    """
    table = []
    for row in rows:
        values, model, metric = stack_runs(row), row["model"], row["selected_by"]
        summary = {name: value for name, value in row.items() if name != "runs"}
        summary["figures"] = _figures(model, values)
        if model in ORIGINAL and metric != "ndcg":
            same = {name: row[name] for name in ("reading", "bias", "selected_by")}
            original = stack_runs(find_row(rows, {"model": ORIGINAL[model], "loss": PAIRWISE, **same}))
            pairs: dict[str, Pair] = {
                name + CAP: (_measure(values, name, CAP), values["covered"], _measure(original, name))
                for name in ((HARMONIC,) if metric == HARMONIC else METRICS)
            }
            if metric == "f1":
                pairs[f"f1_all{CAP}"] = values[f"f1{CAP}"], None, original["f1"]
            summary["tests"] = bootstrap(pairs)
        table.append(summary | {"paper": protocol.printed_cells(dataset, model)})
    correct([test for row in table for test in row.get("tests", {}).values()])
    return table


def stack_runs(row: Row) -> dict[str, Doubles]:
    """By name, (n_seeds, n_users) values, and the curve of a top-N model."""
    return {name: np.stack([run[name] for run in row["runs"]]) for name in row["runs"][0]}


def _figures(model: str, values: dict[str, Doubles]) -> Row:
    """Mean and standard deviation over seeds; F1 and NDCG of a dynamic model are those of covered users."""
    by_seed = {FAIR: values[FAIR].mean(axis=1)}
    if model in ORIGINAL:
        by_seed["cover_ratio"] = values["covered"].mean(axis=1)
        for cap, name in product(CAPS, (*METRICS, HARMONIC)):
            means = covered_means(_measure(values, name, f"_{cap}"), values["covered"])
            by_seed |= {f"{name}_{cap}": means[:, 0], f"f1_all_{cap}": values[f"f1_{cap}"].mean(axis=1)}
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


def find_row(table: list[Row], names: Row) -> Row:
    """The row with these names; `bias` None: with or without item biases, as it is better on validation."""
    wanted = {name: value for name, value in names.items() if value is not None}
    rows = [row for row in table if all(row[name] == value for name, value in wanted.items())]
    return max(rows, key=lambda row: quality(row, row["selected_by"]))


# ---------------------------------------------------------------------- readings that come closest
def cell(row: Row, metric: str, own_N: bool, cap: int) -> float:
    """The figure that stands beside the paper's."""
    own = "ndcg_own" if own_N and metric == "ndcg" else metric
    return float(row["figures"][f"{metric}_{cap}" if row["model"] in ORIGINAL else own]["mean"])


def count_cells(table: list[Row], readings: list[str]) -> list[Row]:
    """F1 and NDCG cells at or above the paper's, and their mean relative distance, for every named variant.

    `f1` of a variant: "f1", the mean of the users' F1, or "harmonic", each in models selected by it. `bias`:
    with item biases, without them, or None: each model as it is better on validation.
    """
    losses, biases, counts = (PAIRWISE, protocol.NEGATIVE_SAMPLING), (True, False, None), []
    for variant in product(("f1", HARMONIC), losses, readings, biases, (False, True), CAPS):
        measure, loss, reading, bias, own_N, cap = variant
        below, distances = [], []
        for model, metric in product(MODELS, METRICS):
            by_ndcg = own_N and metric == "ndcg" and model in ORIGINAL
            wanted = {"model": model, "loss": loss if model == "HRM" else PAIRWISE, "reading": reading}
            row = find_row(table, wanted | {"selected_by": "ndcg" if by_ndcg else measure, "bias": bias})
            figure = cell(row, measure if metric == "f1" else metric, own_N, cap)
            distances.append(float(np.log(max(figure, 1e-9) / row["paper"][metric])))
            if round(figure, 3) < row["paper"][metric]:
                below.append(f"{protocol.TITLES[model]} {METRICS[metric]}")
        count: Row = dict(zip(("f1", "loss", "reading", "bias", "own_N", "cap"), variant, strict=True))
        count |= {"cells": len(distances), "reached": len(distances) - len(below), "below": below}
        counts.append(count | {"distance": float(np.expm1(np.mean(np.abs(distances))))})
    return counts


def closeness(row: Row) -> tuple[int, float]:
    """To compare readings by their number of cells, then by their distance."""
    return row["reached"], -row["distance"]


def best_variants(counts: dict[str, list[Row]]) -> dict[str, Row]:
    """The single reading with the most cells and that with the smallest distance, for each F1.

    Datasets share everything but whom they test, which is read for each dataset.
    """
    shared: dict[tuple[Any, ...], dict[str, Row]] = {}
    for dataset, cells in counts.items():
        for row in cells:
            best = shared.setdefault(tuple(row[name] for name in ONE_READING), {})
            best[dataset] = max(best.get(dataset, row), row, key=closeness)
    totals = []
    for key, rows in shared.items():
        total = {name: sum(row[name] for row in rows.values()) for name in ("cells", "reached")}
        total["distance"] = float(np.expm1(np.mean([np.log1p(row["distance"]) for row in rows.values()])))
        parts = {
            dataset: {name: row[name] for name in ("reading", "reached", "distance", "below")}
            for dataset, row in rows.items()
        }
        totals.append(dict(zip(ONE_READING, key, strict=True)) | total | {"datasets": parts})
    found: dict[str, Row] = {}
    for measure in ("f1", HARMONIC):
        of_measure = [row for row in totals if row["f1"] == measure]
        found[f"{measure}, most cells"] = max(of_measure, key=closeness)
        found[f"{measure}, smallest distance"] = min(of_measure, key=lambda row: row["distance"])
    return found


PLAIN: Row = {"f1": "f1", "loss": PAIRWISE, "reading": 0, "bias": False, "own_N": False, "cap": MAX_ITEMS}
ADDED: dict[str, Row] = {  # what may be read differently, one at a time
    "harmonic F1": {"f1": HARMONIC},
    "HRM by negative sampling": {"loss": protocol.NEGATIVE_SAMPLING},
    "the other test set of each dataset": {"reading": 1},
    "item biases": {"bias": True},
    "item biases where validation prefers them": {"bias": None},
    "NDCG with an N or setting of its own": {"own_N": True},
    "lists of at most 100 items": {"cap": max(CAPS)},
}


def added_readings(datasets: dict[str, Row]) -> dict[str, dict[str, Row]]:
    """The plain reading and each change of it alone: by name, then by dataset, the count of cells.

    The plain reading: the mean of the users' F1, the pairwise loss, all users with all their items, no item
    biases, one N for both metrics, at most 20 items.
    """

    def count(dataset: Row, variant: Row) -> Row:
        wanted = variant | {"reading": dataset["readings"][variant["reading"]]}
        return next(row for row in dataset["cells"] if all(row[name] == wanted[name] for name in wanted))

    variants = {"plain": PLAIN} | {name: PLAIN | change for name, change in ADDED.items()}
    tested = {name: dataset for name, dataset in datasets.items() if dataset["cells"]}
    return {
        name: {each: count(dataset, variant) for each, dataset in tested.items()}
        for name, variant in variants.items()
    }


# ---------------------------------------------------------------------- models against each other
def compare_models(rows: list[Row], table: list[Row]) -> Row:
    """Figure 2, every top-N model against those before it, and every dynamic model against its original.

    They are those of the first reading, selected by F1, with or without item biases as it is better on
    validation. "covered": covered users against all users; else all users, and NDCG is the fair one.
    """
    names = {"loss": PAIRWISE, "selected_by": "f1", "reading": table[0]["reading"]}
    chosen = {model: table.index(find_row(table, {"model": model, **names})) for model in MODELS}
    values = {model: stack_runs(rows[at]) for model, at in chosen.items()}
    evidence: Row = {"chosen": chosen, "figure2": {}, "tests": {}, "same_users": {}}
    for model, at in chosen.items():
        own = values[model]
        if model not in ORIGINAL:
            for other in evidence["figure2"]:
                pairs: dict[str, Pair] = {
                    name: (own[key], None, values[other][key]) for name, key in (("f1", "f1"), ("ndcg", FAIR))
                }
                evidence["tests"][f"{model} – {other}"] = bootstrap(pairs)
            curve = {"N": list(protocol.LENGTHS), "f1": own["curve"].mean(axis=0).tolist()}
            evidence["figure2"][model] = curve | {"best_N": rows[at]["N"]["f1"]}
    for model, other in ORIGINAL.items():
        dynamic, original = values[model], values[other]
        covered, who = dynamic["covered"], dynamic["covered"].mean(axis=0)
        harmonic = _measure(dynamic, HARMONIC, CAP), covered, _measure(original, HARMONIC)
        evidence["tests"][f"{model} – {other}"] = bootstrap(
            {
                "f1_covered": (dynamic[f"f1{CAP}"], covered, original["f1"]),
                "ndcg_covered": (dynamic[f"ndcg{CAP}"], covered, original["ndcg_own"]),
                "harmonic_covered": harmonic,
                "f1": (dynamic[f"f1{CAP}"], None, original["f1"]),
                "ndcg": (dynamic[FAIR], None, original[FAIR]),
            }
        )
        evidence["same_users"][model] = {
            name: float((who * original[key].mean(axis=0)).sum() / max(who.sum(), 1e-9))
            for name, key in (("f1", "f1"), ("ndcg", "ndcg_own"))
        }
    correct([test for each in evidence["tests"].values() for test in each.values()])
    return evidence
