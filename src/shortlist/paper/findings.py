"""Tables and figures from runs: means over seeds; tests pair users by their mean over seeds."""

from typing import Any

import numpy as np

from shortlist.evaluation import holm, paired_test
from shortlist.paper import protocol
from shortlist.paper.protocol import BOUNDARY, EXPECTED_F1, FIXED, LENGTHS, METRICS, ORACLE
from shortlist.paper.result_cache import unpack
from shortlist.types import Doubles

Run = dict[str, Any]  # the result of one seed
Runs = dict[str, list[Run]]  # by model, one run per seed
FIGURES = ("f1", "ndcg", "cover_ratio", "length", "f1_covered", "ndcg_covered", "precision")
RESAMPLES = 5000  # of paired tests
TABLE_RESAMPLES = 2000  # of the test between two columns of Table 1
TABLE_SEED = 5000  # of the same test
PAIRS = (
    ("LogMF", "BPRMF"),
    ("CRRMF", "BPRMF"),
    ("CRRMF", "LogMF"),
    ("HRM", "BPRMF"),
    ("HRM", "LogMF"),
    ("HRM", "CRRMF"),
)


def findings(dataset: str, by_model: Runs) -> dict[str, Any]:
    """All tables and figures except the parameter sweeps."""
    return {
        "table1": table1(dataset, by_model),
        "figure2": {model: _fixed_n_curve(runs) for model, runs in by_model.items()},
        "all_users": all_users(by_model),
        "pairs": compare_rankings(by_model),
        "matched": matched_baselines(by_model),
        "cutoffs": compare_cutoffs(by_model),
        "risk": {model: risk_curves(runs) for model, runs in by_model.items()},
        "distributions": {model: distributions(runs) for model, runs in by_model.items()},
    }


# ---------------------------------------------------------------------- Table 1
def table1(dataset: str, by_model: Runs) -> dict[str, Any]:
    """The paper's columns: covered users only, NDCG normalized by min(K, basket size)."""
    printed = protocol.TABLE.get(dataset, {})
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
            "paper": printed[model]._asdict() if model in printed else None,
        }
    for model, original in protocol.ORIGINAL.items():
        for metric, column in (("f1", "f1"), ("ndcg", "ndcg_paper")):
            p = covered_test(by_model[model], by_model[original], column)
            better = table[model][metric] > table[original][metric]
            table[model][f"{metric}_p"] = p
            table[model][f"{metric}_mark"] = ("+" if better else "-") if p <= 0.05 else ""
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
    values, covered = user_values(dynamic, BOUNDARY, metric), user_covered(dynamic, BOUNDARY)
    baseline = user_values(original, FIXED, metric).mean(axis=0)

    def difference(weights: Doubles) -> float:
        n_covered = covered @ weights
        means = np.divide(values @ weights, n_covered, out=np.zeros(len(values)), where=n_covered > 0)
        return float(means.mean() - baseline @ weights / weights.sum())

    observed = difference(np.ones(baseline.size))
    rng = np.random.Generator(np.random.PCG64(TABLE_SEED))
    resampled = []
    for _ in range(TABLE_RESAMPLES):
        sample = rng.integers(baseline.size, size=baseline.size)
        resampled.append(difference(np.bincount(sample, minlength=baseline.size).astype(np.float64)))
    extreme = int((np.abs(np.array(resampled) - observed) >= abs(observed) * (1 - 1e-12)).sum())
    return (1 + extreme) / (1 + TABLE_RESAMPLES)


# ---------------------------------------------------------------------- all users
def all_users(by_model: Runs) -> list[dict[str, Any]]:
    """Means over all users, an empty list counting 0; each model against the model it extends."""
    rows = []
    for model, runs in by_model.items():
        for name in (FIXED, BOUNDARY, EXPECTED_F1):
            if name in runs[0]["lists"]:
                rows.append({"model": model, "lists": name, **figures(runs, name)})
                rows[-1]["gap"] = gap(runs, name)
    for row in rows:
        baseline = _baseline(row["model"], row["lists"])
        if baseline is not None:
            row["baseline"] = list(baseline)
            row |= paired(
                by_model[row["model"]], row["lists"], by_model[baseline[0]], baseline[1], tuple(METRICS)
            )
    return correct(rows)


def _baseline(model: str, name: str) -> tuple[str, str] | None:
    """The lists to compare with: the original at its fixed N, else the same ranking at its fixed N."""
    if model in protocol.ORIGINAL and name != EXPECTED_F1:
        return protocol.ORIGINAL[model], FIXED
    return None if name == FIXED else (model, FIXED)


def compare_rankings(by_model: Runs) -> list[dict[str, Any]]:
    """The top-N models against each other at their fixed N, over all users."""
    rows = [
        {
            "model": model,
            "baseline": other,
            **paired(by_model[model], FIXED, by_model[other], FIXED, tuple(METRICS)),
        }
        for model, other in PAIRS
    ]
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
                rows.append(row | paired(runs, name, others, baseline))
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
                row |= paired(runs, name, runs, FIXED)
                rows.append(row)
    correct(rows)
    return table


def figures(runs: list[Run], name: str) -> dict[str, Any]:
    """Means over seeds."""
    return {figure: mean(runs, name, figure) for figure in FIGURES} | {"f1_sd": _sd(runs, name, "f1")}


def gap(runs: list[Run], name: str) -> float | None:
    """How far the F1 of the lists gets from the best fixed N (0) to the oracle (1)."""
    low, high = mean(runs, FIXED, "f1"), mean(runs, ORACLE, "f1")
    value = mean(runs, name, "f1")
    return (value - low) / (high - low) if high > low else None


def paired(
    runs: list[Run], name: str, others: list[Run], baseline: str, metrics: tuple[str, ...] = ("f1",)
) -> dict[str, Any]:
    """The difference over all users, pairing each user's means over seeds."""
    columns: dict[str, Any] = {}
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


def correct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add Holm's correction over a whole table, per metric."""
    for metric in METRICS:
        tested = [row for row in rows if f"{metric}_p" in row]
        for row, p in zip(tested, holm([row[f"{metric}_p"] for row in tested]), strict=True):
            row[f"{metric}_p_holm"] = p
    return rows


# ---------------------------------------------------------------------- curves
def risk_curves(runs: list[Run]) -> dict[str, Any]:
    """F1 by coverage, most certain users first: the curve of the first seed, the mean area of all seeds."""
    return {
        name: {
            "coverage": one["coverage"],
            "f1": one["f1"],
            "area": float(np.mean([run["risk"][name]["area"] for run in runs])),
            "area_random": float(np.mean([run["risk"][name]["area_random"] for run in runs])),
        }
        for name, one in runs[0]["risk"].items()
    }


def distributions(runs: list[Run]) -> dict[str, Any]:
    """Boundaries t_u and list lengths K over users, for the first seed."""
    return {
        "boundaries": runs[0]["boundaries"],
        "K": {name: one["lengths"] for name, one in runs[0]["lists"].items() if name != FIXED},
    }


def _fixed_n_curve(runs: list[Run]) -> dict[str, Any]:
    return {
        "N": list(LENGTHS),
        "f1": np.mean([run["curve"]["f1"] for run in runs], axis=0).tolist(),
        "best_N": round(float(np.median([run["N"]["f1"] for run in runs]))),
    }


# ---------------------------------------------------------------------- over seeds
def mean(runs: list[Run], name: str, figure: str) -> float:
    """Mean over seeds; a seed without covered users counts as 0."""
    return float(np.mean([run["lists"][name][figure] or 0.0 for run in runs]))


def _sd(runs: list[Run], name: str, figure: str) -> float | None:
    values = [run["lists"][name][figure] or 0.0 for run in runs]
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def user_values(runs: list[Run], name: str, metric: str) -> Doubles:
    """(n_seeds, n_users) the metric of each user."""
    return np.stack([unpack(run["lists"][name]["users"][metric]) for run in runs])


def user_covered(runs: list[Run], name: str) -> Doubles:
    """(n_seeds, n_users) 1 where a user's list is not empty."""
    return (user_values(runs, name, "length") > 0).astype(np.float64)
