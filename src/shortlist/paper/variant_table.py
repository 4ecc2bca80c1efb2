"""The table of protocol variants: means and deviations over seeds, tests, and cells beside the paper's."""

from typing import Any

import numpy as np

from shortlist.evaluation import holm
from shortlist.paper import protocol
from shortlist.paper.protocol import METRICS
from shortlist.paper.readings import CAPS, Reading
from shortlist.paper.result_cache import unpack
from shortlist.paper.runs import Experiment
from shortlist.paper.search import TOLERANCE
from shortlist.types import Doubles

RESAMPLES = 4000
BLOCK = 200  # resamples at a time
TEST_SEED = 7000
P_LEVEL = 0.05
BIAS_NAMES = {True: "with item biases", False: "without item biases"}
N_NAMES = {True: "each metric's own N or setting", False: "one N or setting"}
SELECTED_BY_F1 = ""
SELECTED_BY_NDCG = "selected by NDCG"  # only dynamic models; the others have an N of its own for NDCG
UNIFORM = "uniform sampling"  # the literal reading of the paper's sampling
Row = dict[str, Any]


def summarize_variants(experiment: Experiment, readings: tuple[Reading, ...], rows: list[Row]) -> Row:
    """Rows with means, deviations and tests, and the number of cells at or above the paper by variant."""
    printed = protocol.TABLE.get(experiment.name, {})
    values = [stack_runs(row) for row in rows]
    table = [summarize_row(row, one) for row, one in zip(rows, values, strict=True)]
    for row, one in zip(table, values, strict=True):
        if row["model"] in protocol.ORIGINAL:
            baseline = next(
                others
                for other, others in zip(table, values, strict=True)
                if other["model"] == protocol.ORIGINAL[row["model"]]
                and (other["bias"], other["reading"]) == (row["bias"], row["reading"])
            )
            row["tests"] = compare_with_original(one, baseline)
    finish_rows(table, experiment.name)
    return {
        "data": experiment.describe(),
        "readings": [reading.name for reading in readings],
        "rows": table,
        "cells": count_cells(table, [reading.name for reading in readings]) if printed else [],
    }


def finish_rows(table: list[Row], dataset: str) -> None:
    """Add Holm's correction over all tests of the table, and the paper's figures."""
    printed = protocol.TABLE.get(dataset, {})
    tests = [test for row in table for test in row.get("tests", {}).values()]
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = float(p)
    for row in table:
        row["paper"] = printed[row["model"]]._asdict() if row["model"] in printed else None


def summarize_row(row: Row, values: dict[str, Doubles]) -> Row:
    """The row without its runs, with mean and standard deviation of every figure."""
    found = {name: value for name, value in row.items() if name != "runs"}
    by_seed = {name: one.mean(axis=1) for name, one in values.items()}
    if "covered" in values:
        covered = values["covered"]
        by_seed = {"cover_ratio": covered.mean(axis=1), "long": values["long"].mean(axis=1)}
        for cap in CAPS:
            by_seed[f"f1_all_{cap}"] = values[f"f1_{cap}"].mean(axis=1)
            for metric in METRICS:
                by_seed[f"{metric}_{cap}"] = _covered_means(
                    values[f"{metric}_{cap}"], covered, np.ones((covered.shape[1], 1))
                )[:, 0]
    found["figures"] = {
        name: {
            "mean": float(one.mean()),
            "sd": float(one.std(ddof=1)) if one.size > 1 else None,
        }
        for name, one in by_seed.items()
    }
    return found | {"n_users": int(next(iter(values.values())).shape[1])}


def stack_runs(row: Row) -> dict[str, Doubles]:
    """By name, (n_seeds, n_users) values."""
    return {name: np.stack([unpack(run[name]) for run in row["runs"]]) for name in row["runs"][0]}


def _covered_means(values: Doubles, covered: Doubles, weights: Doubles) -> Doubles:
    """(n_seeds, n_resamples) mean over covered users; weights: (n_users, n_resamples)."""
    total = covered @ weights
    return np.divide(values @ weights, total, out=np.zeros_like(total), where=total > 0)


# ---------------------------------------------------------------------- tests
def compare_with_original(dynamic: dict[str, Doubles], baseline: dict[str, Doubles]) -> dict[str, Row]:
    """The dynamic model against the top-N model it extends, by a bootstrap over seeds and users.

    `f1_20` and the like: covered users against all users, as the paper compares, N chosen by F1.
    `f1_all_20`: all users, an empty list counting 0.
    """
    pairs: dict[str, tuple[Doubles, Doubles | None, Doubles]] = {}
    for cap in CAPS:
        for metric in METRICS:
            pairs[f"{metric}_{cap}"] = dynamic[f"{metric}_{cap}"], dynamic["covered"], baseline[metric]
        pairs[f"f1_all_{cap}"] = dynamic[f"f1_{cap}"], None, baseline["f1"]
    return bootstrap(pairs, RESAMPLES, TEST_SEED)


def bootstrap(
    pairs: dict[str, tuple[Doubles, Doubles | None, Doubles]], resamples: int, seed: int
) -> dict[str, Row]:
    """Difference, 95% interval and p-value of each pair (values, covered, baseline), all (n_seeds, n_users).

    A resample draws users, the same for both models, and seeds, independently for each model.
    """
    first = next(iter(pairs.values()))
    n_users = first[0].shape[1]
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn: dict[str, list[Doubles]] = {name: [] for name in pairs}
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        weights = np.column_stack(
            [np.bincount(rng.integers(n_users, size=n_users), minlength=n_users) for _ in range(size)]
        ).astype(np.float64)
        picks = [
            rng.multinomial(len(one), np.full(len(one), 1 / len(one)), size=size).T / len(one)
            for one in (first[0], first[2])
        ]
        for name, (values, covered, base) in pairs.items():
            means = _means(values, covered, weights)
            drawn[name].append(
                (means * picks[0]).sum(axis=0) - (_means(base, None, weights) * picks[1]).sum(0)
            )
    found = {}
    ones = np.ones((n_users, 1))
    for name, (values, covered, base) in pairs.items():
        observed = float(_means(values, covered, ones).mean() - _means(base, None, ones).mean())
        differences = np.concatenate(drawn[name])
        extreme = int((np.abs(differences - observed) >= abs(observed) * (1 - 1e-12)).sum())
        low, high = np.quantile(differences, [0.025, 0.975])
        found[name] = {
            "difference": observed,
            "low": float(low),
            "high": float(high),
            "p": (1 + extreme) / (1 + resamples),
        }
    return found


def _means(values: Doubles, covered: Doubles | None, weights: Doubles) -> Doubles:
    """(n_seeds, n_resamples) weighted means."""
    if covered is None:
        return np.asarray(values @ weights / weights.sum(axis=0))
    return _covered_means(values, covered, weights)


# ---------------------------------------------------------------------- cells
def count_cells(table: list[Row], readings: list[str]) -> list[Row]:
    """F1 and NDCG cells at or above the paper's, for every named variant."""
    found = []
    for reading in readings:
        for bias in BIAS_NAMES:
            rows = [row for row in table if (row["reading"], row["bias"]) == (reading, bias)]
            for own in (False, True):
                for cap in CAPS:
                    cells = [
                        (row["model"], metric, cell(row, metric, own, cap), row["paper"][metric])
                        for metric in METRICS
                        for row in rows
                        if row["kind"] == _kind_for(row["model"], metric, own)
                    ]
                    below = [
                        f"{protocol.title(model)} {METRICS[metric]}"
                        for model, metric, ours, theirs in cells
                        if round(ours, 3) < theirs
                    ]
                    found.append(
                        {
                            "reading": reading,
                            "bias": bias,
                            "own_N": own,
                            "cap": cap,
                            "cells": len(cells),
                            "reached": len(cells) - len(below),
                            "below": below,
                        }
                    )
    return found


def _kind_for(model: str, metric: str, own: bool) -> str:
    """The row that stands for a model: a dynamic one may have a setting of its own for NDCG."""
    return SELECTED_BY_NDCG if own and metric == "ndcg" and model in protocol.ORIGINAL else SELECTED_BY_F1


def cell(row: Row, metric: str, own: bool, cap: int) -> float:
    """The figure that stands beside the paper's."""
    if row["model"] in protocol.ORIGINAL:
        return float(row["figures"][f"{metric}_{cap}"]["mean"])
    name = "ndcg_own" if own and metric == "ndcg" else metric
    return float(row["figures"][name]["mean"])


# ---------------------------------------------------------------------- Markdown
def paper_markdown(found: Row) -> list[str]:
    """The variants side by side, and the cells at or above the paper."""
    return [*_table(found), "", *_cells_table(found)]


def _table(found: Row) -> list[str]:
    variants = [(reading, bias) for reading in found["readings"] for bias in BIAS_NAMES]
    head = ["model", "figure", "paper", *(f"{reading}, {BIAS_NAMES[bias]}" for reading, bias in variants)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---:|" + "---:|" * len(variants)]
    by = {(row["model"], row["kind"], row["reading"], row["bias"]): row for row in found["rows"]}
    kinds = (SELECTED_BY_F1, SELECTED_BY_NDCG, UNIFORM)
    for model in protocol.MODELS:
        for kind in kinds if model in protocol.ORIGINAL else kinds[:1]:
            rows, uniform = [by[model, kind, *variant] for variant in variants], kind == UNIFORM
            for label, name, metric in figures_of(model):
                printed = rows[0]["paper"]
                paper = f"{printed[metric]:g}" if printed and metric is not None and not uniform else ""
                cells = [cell_text(row, name, None if uniform else metric) for row in rows]
                title = protocol.title(model) + (f", {kind}" if kind else "")
                lines.append("| " + " | ".join([title, label, paper, *cells]) + " |")
    return lines


def figures_of(model: str) -> list[tuple[str, str, str | None]]:
    """(label, name of the figure, the paper's figure beside it) of every row of a model."""
    if model not in protocol.ORIGINAL:
        return [
            ("F1", "f1", "f1"),
            ("NDCG, N of F1", "ndcg", "ndcg"),
            ("NDCG, its own N", "ndcg_own", "ndcg"),
        ]
    rows: list[tuple[str, str, str | None]] = [("Cover-Ratio", "cover_ratio", "cover_ratio")]
    for cap in CAPS:
        rows += [(f"F1, at most {cap}", f"f1_{cap}", "f1"), (f"NDCG, at most {cap}", f"ndcg_{cap}", "ndcg")]
    return [*rows, (f"F1 of all users, at most {CAPS[0]}", f"f1_all_{CAPS[0]}", None)]


def cell_text(row: Row, name: str, metric: str | None) -> str:
    """A figure with its deviation and marks."""
    one = row["figures"][name]
    digits = 2 if name == "cover_ratio" else 4 if name.startswith("f1") else 3
    text = f"{one['mean']:.{digits}f}" + ("" if one["sd"] is None else f" ± {one['sd']:.{digits}f}")
    if metric in METRICS and row["paper"] is not None and round(one["mean"], 3) >= row["paper"][metric]:
        text += " *"
    if name == "cover_ratio" and row["paper"] is not None and metric is not None:
        missed = abs(row["valid"]["cover_ratio"] - row["paper"]["cover_ratio"]) > TOLERANCE
        text += f" (validation {row['valid']['cover_ratio']:.2f})" if missed else ""
    test = row.get("tests", {}).get(name)
    if test is not None and test["p_holm"] <= P_LEVEL:
        text += " ▲" if test["difference"] > 0 else " ▼"
    return text


def _cells_table(found: Row) -> list[str]:
    if not found["cells"]:
        return []
    lines = ["| variant | cells at or above the paper | below |", "|---|---:|---|"]
    for (name, reached), one in zip(list_cells(found), found["cells"], strict=True):
        lines.append(f"| {name} | {reached} | {', '.join(one['below']) or '–'} |")
    return lines


def list_cells(found: Row) -> list[tuple[str, str]]:
    """(name of the variant, cells at or above the paper) of every variant."""
    return [
        (
            f"{one['reading']}, {BIAS_NAMES[one['bias']]}, {N_NAMES[one['own_N']]}, at most {one['cap']}",
            f"{one['reached']} of {one['cells']}",
        )
        for one in found["cells"]
    ]
