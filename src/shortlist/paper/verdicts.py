"""From runs to findings: tables and figures, one verdict per claim, and cells at or above the paper."""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from shortlist.evaluation import holm, paired_test
from shortlist.paper import protocol
from shortlist.paper.experiment import Pair, bootstrap, covered_means, harmonic_mean, unpack_values
from shortlist.paper.protocol import (
    BIASES,
    BOUNDARY,
    CALIBRATED,
    CAPS,
    COVERED,
    EXPECTED_F1,
    EXTENSIONS,
    FAILS,
    FIXED,
    HARMONIC,
    HOLDS,
    LENGTHS,
    METRICS,
    OPTIMAL,
    ORACLE,
    ORIGINAL,
    P_LEVEL,
    SELECTED_BY_F1,
    SELECTED_BY_HARMONIC,
    SELECTED_BY_NDCG,
)
from shortlist.types import Doubles

FLAT = 0.02  # a curve whose range is below this share of its maximum counts as flat
STEADY = 0.9  # share of its maximum that a steady curve keeps
FIGURES = {
    "f1_covered": "F1 of covered users",
    "f1": "F1 of all users",
    "ndcg_covered": "NDCG of covered users",
    "cover_ratio": "Cover-Ratio",
}
FIGURE_NAMES = ("f1", "ndcg", "cover_ratio", "length", "f1_covered", "ndcg_covered", "precision")
RESAMPLES = 5000  # of paired tests
TABLE_RESAMPLES, TABLE_SEED = 2000, 5000  # of the test between two columns of Table 1
VARIANT_RESAMPLES, VARIANT_SEED = 4000, 7000  # of tests between variants
PAIRS = (
    ("LogMF", "BPRMF"),
    ("CRRMF", "BPRMF"),
    ("CRRMF", "LogMF"),
    ("HRM", "BPRMF"),
    ("HRM", "LogMF"),
    ("HRM", "CRRMF"),
)
Run = dict[str, Any]  # the result of one seed
Runs = dict[str, list[Run]]  # by model, one run per seed
Row = dict[str, Any]


# ---------------------------------------------------------------------- verdicts
def verdicts(dataset: str, results: dict[str, Any]) -> list[dict[str, str]]:
    """All claims in the paper's order."""
    rows = [*_sweep_claims(results["figure1"]), _rise_and_stay(results["figure2"])]
    rows += _ranking_claims(results["pairs"])
    rows += [_dynamic_claim(results, model, metric) for model in ORIGINAL for metric in METRICS]
    if dataset == "ta-feng":
        rows += [_improvement(results, "f1", 0.331), _improvement(results, "ndcg", 0.5)]
    return rows


def verdict(all_users: bool, covered_users: bool = False) -> str:
    """The verdict, given whether a claim holds over all users, and over covered users as in the paper."""
    return HOLDS if all_users else COVERED if covered_users else FAILS


def _claim(claim: str, result: str, numbers: str) -> dict[str, str]:
    return {"claim": claim, "verdict": result, "numbers": f"{numbers}."}


def _dynamic_claim(results: dict[str, Any], model: str, metric: str) -> dict[str, str]:
    """The central claim: K beats N."""
    original, row = ORIGINAL[model], results["table1"][model]
    rows = {(each["model"], each["lists"]): each for each in results["all_users"]}
    dynamic, baseline = rows[model, BOUNDARY], rows[original, FIXED]
    numbers = (
        f"Covered users: {row[metric]:.4f} versus {results['table1'][original][metric]:.4f} over all users "
        f"({_p(row[f'{metric}_p'])}, {row['cover_ratio']:.0%} covered), but {protocol.title(original)} has "
        f"{row[f'{metric}_same_users']:.4f} on these users. All users: {dynamic[metric]:.4f} versus "
        f"{baseline[metric]:.4f}, {_interval(dynamic, metric)}"
    )
    claim = f"{protocol.title(model)} beats {protocol.title(original)} in {METRICS[metric]}."
    return _claim(claim, verdict(above(dynamic, metric), row[f"{metric}_mark"] == "+"), numbers)


def _improvement(results: dict[str, Any], metric: str, claimed: float) -> dict[str, str]:
    table = results["table1"]
    covered = table["DKHRM"][metric] / table["HRM"][metric] - 1
    rows = {(each["model"], each["lists"]): each for each in results["all_users"]}
    all_users = rows["DKHRM", BOUNDARY][metric] / rows["HRM", FIXED][metric] - 1
    numbers = f"Covered users: {covered:+.1%}. All users: {all_users:+.1%}"
    if metric == "f1":
        numbers += ". The paper's own table gives 15.4%"
    claim = f"DK-HRM improves on HRM by {claimed:.1%} in {METRICS[metric]}."
    return _claim(claim, verdict(all_users >= claimed, covered >= claimed), numbers)


def _ranking_claims(pairs: list[Row]) -> list[dict[str, str]]:
    """The top-N models against each other; they cover all users, so one comparison is enough."""
    by = {(row["model"], row["baseline"]): row for row in pairs}

    def describe(model: str, other: str, *metrics: str) -> str:
        row = by[model, other]
        return "; ".join(
            f"{model} minus {other}, {METRICS[metric]}: {_interval(row, metric)}" for metric in metrics
        )

    log, crr_bpr, crr_log = by["LogMF", "BPRMF"], by["CRRMF", "BPRMF"], by["CRRMF", "LogMF"]
    others = ("BPRMF", "LogMF", "CRRMF")
    return [
        _claim(
            "LogMF is better in F1, BPRMF in NDCG.",
            verdict(above(log, "f1") and below(log, "ndcg")),
            f"LogMF minus BPRMF, F1: {_interval(log, 'f1')}; NDCG: {_interval(log, 'ndcg')}",
        ),
        _claim(
            "CRRMF is good at both: F1 above BPRMF's, NDCG above LogMF's.",
            verdict(crr_bpr["f1_difference"] > 0 and crr_log["ndcg_difference"] > 0),
            f"{describe('CRRMF', 'BPRMF', 'f1')}; {describe('CRRMF', 'LogMF', 'ndcg')}",
        ),
        _claim(
            "HRM beats BPRMF, LogMF and CRRMF in all metrics.",
            verdict(all(above(by["HRM", other], metric) for other in others for metric in METRICS)),
            "; ".join(describe("HRM", other, *METRICS) for other in others),
        ),
    ]


def above(row: Row, metric: str) -> bool:
    """Whether the difference is positive and significant."""
    return bool(row[f"{metric}_difference"] > 0 and row[f"{metric}_p_holm"] <= P_LEVEL)


def below(row: Row, metric: str) -> bool:
    """Whether the difference is negative and significant."""
    return bool(row[f"{metric}_difference"] < 0 and row[f"{metric}_p_holm"] <= P_LEVEL)


def _sweep_claims(sweeps: dict[str, Any]) -> list[dict[str, str]]:
    """What the paper says about Figure 1."""

    def describe(name: str, *figures: str) -> str:
        return "; ".join(
            f"{FIGURES[figure]}: "
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
            f"{describe(protocol.BIASED_SWEEP, 'cover_ratio')}",
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


def _rise_and_stay(curves: dict[str, Any]) -> dict[str, str]:
    f1 = {model: curves[model]["f1"] for model in protocol.MODELS if model not in ORIGINAL}
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


def _interval(row: Row, metric: str) -> str:
    low, high, p = (row[f"{metric}_{name}"] for name in ("low", "high", "p_holm"))
    return f"{row[f'{metric}_difference']:+.4f} [{low:+.4f}, {high:+.4f}], {_p(p)}"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


# ---------------------------------------------------------------------- tables and figures of the claims
def findings(dataset: str, by_model: Runs) -> dict[str, Any]:
    """All tables and figures except the parameter sweeps."""
    return {
        "table1": table1(dataset, by_model),
        "figure2": {
            model: {
                "N": list(LENGTHS),
                "f1": np.mean([run["curve"]["f1"] for run in runs], axis=0).tolist(),
                "best_N": round(float(np.median([run["N"]["f1"] for run in runs]))),
            }
            for model, runs in by_model.items()
        },
        "all_users": all_users(by_model),
        "pairs": correct(
            [
                {"model": model, "baseline": other, **paired(by_model[model], FIXED, by_model[other], FIXED)}
                for model, other in PAIRS
            ]
        ),
        "matched": matched_baselines(by_model),
        "cutoffs": compare_cutoffs(by_model),
        "risk": {model: risk_curves(runs) for model, runs in by_model.items()},
        "distributions": {  # boundaries t_u and list lengths K over users, for the first seed
            model: {
                "boundaries": runs[0]["boundaries"],
                "K": {name: each["lengths"] for name, each in runs[0]["lists"].items() if name != FIXED},
            }
            for model, runs in by_model.items()
        },
    }


def table1(dataset: str, by_model: Runs) -> dict[str, Any]:
    """The paper's columns: covered users only, NDCG normalized by min(K, basket size)."""
    table: dict[str, Any] = {}
    for model in protocol.MODELS:
        runs, name = by_model[model], protocol.headline(model)
        table[model] = {
            "f1": mean(runs, name, "f1_covered"),
            "cover_ratio": mean(runs, name, "cover_ratio"),
            "ndcg": mean(runs, name, "ndcg_covered"),
            "f1_sd": _sd(runs, name, "f1_covered"),
            "ndcg_sd": _sd(runs, name, "ndcg_covered"),
            "length": mean(runs, name, "length"),
            "N": None if name == BOUNDARY else [run["N"]["f1"] for run in runs],
            "N_ndcg": None if name == BOUNDARY else [run["N"]["ndcg_paper"] for run in runs],
            "paper": protocol.printed_cells(dataset, model),
        }
    for model, original in ORIGINAL.items():
        for metric, column in (("f1", "f1"), ("ndcg", "ndcg_paper")):
            p = covered_test(by_model[model], by_model[original], column)
            better = table[model][metric] > table[original][metric]
            table[model][f"{metric}_p"] = p
            table[model][f"{metric}_mark"] = ("+" if better else "-") if p <= P_LEVEL else ""
            table[model][f"{metric}_same_users"] = same_users(by_model[model], by_model[original], column)
    return table


def same_users(dynamic: list[Run], original: list[Run], metric: str) -> float:
    """The original model at its fixed N, on the users that the dynamic model covers."""
    covered = user_covered(dynamic, BOUNDARY)
    values = user_values(original, FIXED, metric).mean(axis=0)
    return float((covered * values).sum() / max(covered.sum(), 1))


def covered_test(dynamic: list[Run], original: list[Run], metric: str) -> float:
    """p-value of the difference between covered users of the dynamic model and all users of the original.

    A resampled user keeps, for each seed, whether the seed covers it; means are computed as in the table.
    """
    pair = (
        user_values(dynamic, BOUNDARY, metric),
        user_covered(dynamic, BOUNDARY),
        user_values(original, FIXED, metric),
    )
    return bootstrap({metric: pair}, TABLE_RESAMPLES, TABLE_SEED, draw_seeds=False)[metric]["p"]


def all_users(by_model: Runs) -> list[Row]:
    """Means over all users, an empty list counting 0; each model against the model it extends.

    Other lists are compared with the same ranking at its fixed N.
    """
    rows = []
    for model, runs in by_model.items():
        for name in (FIXED, BOUNDARY, EXPECTED_F1):
            if name not in runs[0]["lists"]:
                continue
            row = {"model": model, "lists": name, **figures(runs, name), "gap": gap(runs, name)}
            baseline = ORIGINAL.get(model, model) if name != EXPECTED_F1 else model
            if (model, name) != (baseline, FIXED):
                row |= {"baseline": [baseline, FIXED]} | paired(runs, name, by_model[baseline], FIXED)
            rows.append(row)
    return correct(rows)


def matched_baselines(by_model: Runs) -> dict[str, Any]:
    """The same ranking at fixed lengths with the same users, the same abstention, or as many items."""
    tables: dict[str, Any] = {}
    for model, runs in by_model.items():
        for name in runs[0]["matched"]:
            rows = []
            for baseline in runs[0]["matched"][name]:
                others = [{"lists": {baseline: run["matched"][name][baseline]}} for run in runs]
                row = {"baseline": baseline, **figures(others, baseline)}
                if baseline == "same users":  # the other users have empty lists on both sides
                    row["f1"] = row["f1_covered"]
                    row["own_f1"] = mean(runs, name, "f1_covered")
                else:
                    row["own_f1"] = mean(runs, name, "f1")
                rows.append(row | paired(runs, name, others, baseline, ("f1",)))
            tables.setdefault(model, {})[name] = correct(rows)
    return tables


def compare_cutoffs(by_model: Runs) -> dict[str, Any]:
    """Every cutoff on every ranking, against the best fixed N of the same ranking."""
    table: dict[str, Any] = {}
    rows = []
    for model, runs in by_model.items():
        table[model] = {}
        for name in runs[0]["lists"]:
            row = table[model][name] = figures(runs, name) | {"gap": gap(runs, name)}
            if name not in (FIXED, ORACLE):
                row |= paired(runs, name, runs, FIXED, ("f1",))
                rows.append(row)
    correct(rows)
    return table


def risk_curves(runs: list[Run]) -> dict[str, Any]:
    """F1 by coverage, most certain users first: the curve of the first seed, the mean area of all seeds."""
    return {
        name: curve
        | {
            area: float(np.mean([run["risk"][name][area] for run in runs]))
            for area in ("area", "area_random")
        }
        for name, curve in runs[0]["risk"].items()
    }


def figures(runs: list[Run], name: str) -> dict[str, Any]:
    """Means over seeds."""
    return {figure: mean(runs, name, figure) for figure in FIGURE_NAMES} | {"f1_sd": _sd(runs, name, "f1")}


def gap(runs: list[Run], name: str) -> float | None:
    """How far the F1 of the lists gets from the best fixed N (0) to the oracle (1)."""
    low, high, value = (mean(runs, lists, "f1") for lists in (FIXED, ORACLE, name))
    return (value - low) / (high - low) if high > low else None


def paired(
    runs: list[Run], name: str, others: list[Run], baseline: str, metrics: Sequence[str] = tuple(METRICS)
) -> Row:
    """The difference over all users, pairing each user's means over seeds."""
    columns: Row = {}
    for metric in metrics:
        test = paired_test(
            user_values(runs, name, metric).mean(axis=0),
            user_values(others, baseline, metric).mean(axis=0),
            resamples=RESAMPLES,
        )
        columns |= {
            f"{metric}_difference": test.difference,
            f"{metric}_low": test.low,
            f"{metric}_high": test.high,
            f"{metric}_p": test.p_bootstrap,
            f"{metric}_p_t": test.p_t,
        }
    return columns


def correct(rows: list[Row]) -> list[Row]:
    """Add Holm's correction over a whole table, per metric."""
    for metric in METRICS:
        tested = [row for row in rows if f"{metric}_p" in row]
        for row, p in zip(tested, holm([row[f"{metric}_p"] for row in tested]), strict=True):
            row[f"{metric}_p_holm"] = p
    return rows


def mean(runs: list[Run], name: str, figure: str) -> float:
    """Mean over seeds; a seed without covered users counts as 0."""
    return float(np.mean([run["lists"][name][figure] or 0.0 for run in runs]))


def _sd(runs: list[Run], name: str, figure: str) -> float | None:
    values = [run["lists"][name][figure] or 0.0 for run in runs]
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def user_values(runs: list[Run], name: str, metric: str) -> Doubles:
    """(n_seeds, n_users) the metric of each user."""
    return np.stack([unpack_values(run["lists"][name]["users"][metric]) for run in runs])


def user_covered(runs: list[Run], name: str) -> Doubles:
    """(n_seeds, n_users) 1 where a user's list is not empty."""
    return (user_values(runs, name, "length") > 0).astype(np.float64)


# ---------------------------------------------------------------------- tables of the variants
class Combination(NamedTuple):
    """Which rows stand for HRM, DK-BPRMF and DK-HRM; the other models are the paper's."""

    name: str
    lists: dict[str, str]  # kinds of lists of the dynamic models, and the metric each maximizes


COMBINATIONS = (Combination("F1-optimal boundary", OPTIMAL), Combination("calibrated length", CALIBRATED))
EXTENDED_MODELS = {extension.model for extension in EXTENSIONS}


def summarize_variants(dataset: str, readings: list[str], rows: list[Row], extended: list[Row]) -> Row:
    """The paper's models and those beyond it: means, deviations, tests, and the number of cells reached."""
    table, beyond = (summarize_rows(dataset, each, [*extended, *rows]) for each in (rows, extended))
    cells, extended_cells = [], []
    if dataset in protocol.TABLE:
        cells = count_cells(table, readings)
        for combination in COMBINATIONS:
            extended_cells += count_cells(table, readings, beyond, combination)
    return {
        "readings": readings,
        "rows": table,
        "cells": cells,
        "extended": {"readings": readings, "rows": beyond, "cells": extended_cells},
    }


def summarize_rows(dataset: str, rows: list[Row], originals: list[Row]) -> list[Row]:
    """The rows without their runs, but with figures, the paper's figures, and tests of dynamic models.

    Holm's correction is over all tests of the table.
    """
    table, tests = [], []
    for row in rows:
        values = stack_runs(row)
        summary = {name: value for name, value in row.items() if name != "runs"}
        summary |= {"figures": _figures(values), "n_users": int(next(iter(values.values())).shape[1])}
        if row["model"] in ORIGINAL:
            summary["tests"] = compare_with_original(values, stack_runs(_find_original(row, originals)))
            tests += summary["tests"].values()
        summary["paper"] = protocol.printed_cells(dataset, row["model"])
        table.append(summary)
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = p
    return table


def stack_runs(row: Row) -> dict[str, Doubles]:
    """By name, (n_seeds, n_users) values."""
    return {name: np.stack([unpack_values(run[name]) for run in row["runs"]]) for name in row["runs"][0]}


def _figures(values: dict[str, Doubles]) -> Row:
    """Mean and standard deviation over seeds; F1 and NDCG of a dynamic model are those of covered users."""
    by_seed = {name: each.mean(axis=1) for name, each in values.items()}
    if "precision" in values:
        by_seed[HARMONIC] = harmonic_mean(by_seed.pop("precision"), by_seed.pop("recall"))
    if "covered" in values:
        covered = values["covered"]
        everyone = np.ones((covered.shape[1], 1))
        by_seed = {"cover_ratio": by_seed["covered"], "long": by_seed["long"]}
        for cap in CAPS:
            by_seed[f"f1_all_{cap}"] = values[f"f1_{cap}"].mean(axis=1)
            for metric in METRICS:
                means = covered_means(values[f"{metric}_{cap}"], covered, everyone)
                by_seed[f"{metric}_{cap}"] = means[:, 0]
            both = values[f"precision_{cap}"], values[f"recall_{cap}"]
            by_seed[f"{HARMONIC}_{cap}"] = covered_means(both, covered, everyone)[:, 0]
    return {
        name: {"mean": float(each.mean()), "sd": float(each.std(ddof=1)) if each.size > 1 else None}
        for name, each in by_seed.items()
    }


def _find_original(row: Row, candidates: list[Row]) -> Row:
    """The top-N model that a dynamic one extends: with the same terms, or with the same item biases."""
    has_terms = "trend_half_life" in row["params"]
    return next(
        other
        for other in candidates
        if (other["model"], other["reading"]) == (ORIGINAL[row["model"]], row["reading"])
        and ("trend_half_life" in other["params"]) == has_terms
        and (has_terms or other["bias"] == row["bias"])
    )


def compare_with_original(dynamic: dict[str, Doubles], baseline: dict[str, Doubles]) -> dict[str, Row]:
    """The dynamic model against the top-N model it extends, by a bootstrap over seeds and users.

    `f1_20` and the like: covered users against all users, as the paper compares, N chosen by F1.
    `harmonic_20`: likewise, the harmonic mean of the mean precision and the mean recall. `f1_all_20`: all
    users, an empty list counting 0.
    """
    pairs: dict[str, Pair] = {}
    for cap in CAPS:
        for metric in METRICS:
            pairs[f"{metric}_{cap}"] = dynamic[f"{metric}_{cap}"], dynamic["covered"], baseline[metric]
        both = dynamic[f"precision_{cap}"], dynamic[f"recall_{cap}"]
        pairs[f"{HARMONIC}_{cap}"] = both, dynamic["covered"], (baseline["precision"], baseline["recall"])
        pairs[f"f1_all_{cap}"] = dynamic[f"f1_{cap}"], None, baseline["f1"]
    return bootstrap(pairs, VARIANT_RESAMPLES, VARIANT_SEED)


def count_cells(
    table: list[Row],
    readings: list[str],
    extended: Sequence[Row] = (),
    combination: Combination | None = None,
) -> list[Row]:
    """F1 and NDCG cells at or above the paper's, and their mean relative distance, for every named variant.

    `f1` of a variant: "f1", the mean of the users' F1, or "harmonic", in models selected by it.

    With a combination, its extended rows stand for their models.
    """
    counts = []
    measures = {"f1": SELECTED_BY_F1}
    if combination is None and any(row["kind"] == SELECTED_BY_HARMONIC for row in table):
        measures[HARMONIC] = SELECTED_BY_HARMONIC
    for measure, reading, bias, own_N, cap in product(measures, readings, BIASES, (False, True), CAPS):
        paper = [row for row in table if (row["reading"], row["bias"]) == (reading, bias)]
        others = [row for row in extended if row["reading"] == reading]
        below, distances = [], []
        for metric in METRICS:
            for row in _standing(paper, others, combination, metric, own_N, measures[measure]):
                figure = cell(row, measure if metric == "f1" else metric, own_N, cap)
                distances.append(abs(np.log(max(figure, 1e-9) / row["paper"][metric])))
                if round(figure, 3) < row["paper"][metric]:
                    below.append(f"{protocol.title(row['model'])} {METRICS[metric]}")
        counts.append(
            {
                **({} if combination is None else {"combination": combination.name}),
                "f1": measure,
                "reading": reading,
                "bias": bias,
                "own_N": own_N,
                "cap": cap,
                "cells": len(distances),
                "reached": len(distances) - len(below),
                "distance": float(np.expm1(np.mean(distances))) if distances else None,
                "below": below,
            }
        )
    return counts


def _standing(
    paper: list[Row],
    extended: list[Row],
    combination: Combination | None,
    metric: str,
    own_N: bool,
    kind: str = SELECTED_BY_F1,
) -> list[Row]:
    """The rows that stand for the models: of the paper, or extended ones.

    With a setting of its own for NDCG, a dynamic model has the one selected by NDCG, or the lists that
    maximize NDCG.
    """
    if combination is None:
        by_ndcg = own_N and metric == "ndcg"
        return [
            row
            for row in paper
            if row["kind"] == (SELECTED_BY_NDCG if by_ndcg and row["model"] in ORIGINAL else kind)
        ]
    maximized = metric if own_N else "f1"
    dynamic_lists = next(name for name, each in combination.lists.items() if each == maximized)
    rows = []
    for row in paper:
        model = row["model"]
        if row["kind"] != SELECTED_BY_F1:
            continue
        if model in EXTENDED_MODELS:
            lists = dynamic_lists if model in ORIGINAL else ""
            row = next(
                other
                for other in extended
                if (other["model"], other["lists"]) == (model, lists)
                and (model == "DKBPRMF" or "trend_half_life" in other["params"])
            )
        rows.append(row)
    return rows


def cell(row: Row, metric: str, own_N: bool, cap: int) -> float:
    """The figure that stands beside the paper's."""
    if row["model"] in ORIGINAL:
        return float(row["figures"][f"{metric}_{cap}"]["mean"])
    name = "ndcg_own" if own_N and metric == "ndcg" else metric
    return float(row["figures"][name]["mean"])
