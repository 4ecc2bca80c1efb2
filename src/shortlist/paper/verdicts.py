"""One verdict per claim of the paper, with the numbers behind it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from shortlist.evaluation import holm, paired_test
from shortlist.paper import protocol
from shortlist.paper.protocol import BOUNDARY, EXPECTED_F1, FIXED, LENGTHS, METRICS, ORACLE
from shortlist.paper.runs import unpack
from shortlist.types import Doubles

HOLDS, COVERED, FAILS = "holds", "holds only for covered users", "does not hold"
P_LEVEL = 0.05
FLAT = 0.02  # a curve whose range is below this share of its maximum counts as flat
STEADY = 0.9  # share of its maximum that a steady curve keeps
FIGURES = {
    "f1_covered": "F1 of covered users",
    "f1": "F1 of all users",
    "ndcg_covered": "NDCG of covered users",
    "cover_ratio": "Cover-Ratio",
}


def verdicts(dataset: str, results: dict[str, Any]) -> list[dict[str, str]]:
    """All claims in the paper's order."""
    sweeps = results["figure1"]
    rows = [
        _t_sweep(sweeps["t"], sweeps[protocol.BIASED_SWEEP]),
        _lambda_sweep(sweeps["lambda_t"]),
        _alpha_sweep(sweeps["alpha"]),
        _rise_and_stay(results["figure2"]),
        *_rankings(results["pairs"]),
    ]
    for model in protocol.ORIGINAL:
        rows += [_dynamic(results, model, metric) for metric in METRICS]
    if dataset == "ta-feng":
        rows += [_improvement(results, "f1", 0.331), _improvement(results, "ndcg", 0.5)]
    return rows


def verdict(all_users: bool, covered_users: bool) -> str:
    """The verdict, given whether a claim holds over all users, and over covered users as in the paper."""
    return HOLDS if all_users else COVERED if covered_users else FAILS


# ---------------------------------------------------------------------- Table 1
def _dynamic(results: dict[str, Any], model: str, metric: str) -> dict[str, str]:
    """The central claim: K beats N."""
    original, row = protocol.ORIGINAL[model], results["table1"][model]
    printed = results["table1"][original]
    rows = {(one["model"], one["lists"]): one for one in results["all_users"]}
    own, baseline = rows[model, BOUNDARY], rows[original, FIXED]
    numbers = (
        f"Covered users: {row[metric]:.4f} versus {printed[metric]:.4f} over all users "
        f"({_p(row[f'{metric}_p'])}, {row['cover_ratio']:.0%} covered), but {protocol.title(original)} has "
        f"{row[f'{metric}_same_users']:.4f} on these users. All users: {own[metric]:.4f} versus "
        f"{baseline[metric]:.4f}, {_interval(own, metric)}."
    )
    claim = f"{protocol.title(model)} beats {protocol.title(original)} in {METRICS[metric]}."
    return _row(claim, verdict(above(own, metric), row[f"{metric}_mark"] == "+"), numbers)


def _improvement(results: dict[str, Any], metric: str, claimed: float) -> dict[str, str]:
    table = results["table1"]
    covered = table["DKHRM"][metric] / table["HRM"][metric] - 1
    rows = {(one["model"], one["lists"]): one for one in results["all_users"]}
    all_users = rows["DKHRM", BOUNDARY][metric] / rows["HRM", FIXED][metric] - 1
    numbers = f"Covered users: {covered:+.1%}. All users: {all_users:+.1%}."
    if metric == "f1":
        numbers += " The paper's own table gives 15.4%."
    claim = f"DK-HRM improves on HRM by {claimed:.1%} in {METRICS[metric]}."
    return _row(claim, verdict(all_users >= claimed, covered >= claimed), numbers)


def _rankings(pairs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The top-N models against each other; they cover all users, so one comparison is enough."""
    by = {(one["model"], one["baseline"]): one for one in pairs}
    log, crr_bpr, crr_log = by["LogMF", "BPRMF"], by["CRRMF", "BPRMF"], by["CRRMF", "LogMF"]
    hrm = [(other, by["HRM", other]) for other in ("BPRMF", "LogMF", "CRRMF")]
    split = above(log, "f1") and below(log, "ndcg")
    both = crr_bpr["f1_difference"] > 0 and crr_log["ndcg_difference"] > 0
    best = all(above(row, metric) for _, row in hrm for metric in METRICS)
    differences = "; ".join(
        f"HRM minus {other}, {name}: {_interval(row, metric)}"
        for other, row in hrm
        for metric, name in METRICS.items()
    )
    return [
        _row(
            "LogMF is better in F1, BPRMF in NDCG.",
            verdict(split, False),
            f"LogMF minus BPRMF, F1: {_interval(log, 'f1')}; NDCG: {_interval(log, 'ndcg')}.",
        ),
        _row(
            "CRRMF is good at both: F1 above BPRMF's, NDCG above LogMF's.",
            verdict(both, False),
            f"CRRMF minus BPRMF, F1: {_interval(crr_bpr, 'f1')}; "
            f"CRRMF minus LogMF, NDCG: {_interval(crr_log, 'ndcg')}.",
        ),
        _row("HRM beats BPRMF, LogMF and CRRMF in all metrics.", verdict(best, False), f"{differences}."),
    ]


def above(row: dict[str, Any], metric: str) -> bool:
    """Whether the difference is positive and significant."""
    return bool(row[f"{metric}_difference"] > 0 and row[f"{metric}_p_holm"] <= P_LEVEL)


def below(row: dict[str, Any], metric: str) -> bool:
    """Whether the difference is negative and significant."""
    return bool(row[f"{metric}_difference"] < 0 and row[f"{metric}_p_holm"] <= P_LEVEL)


# ---------------------------------------------------------------------- Figures 1 and 2
def _t_sweep(sweep: dict[str, Any], biased: dict[str, Any]) -> dict[str, str]:
    falls = rises([-value for value in sweep["cover_ratio"]])
    numbers = "; ".join(_series(sweep, figure) for figure in ("f1_covered", "f1", "cover_ratio"))
    numbers += f"; with item biases {_series(biased, 'cover_ratio')}"
    result = verdict(falls and rises(sweep["f1"]), falls and rises(sweep["f1_covered"]))
    return _row("As t rises, F1 rises and Cover-Ratio falls (DK-HRM).", result, f"{numbers}.")


def _lambda_sweep(sweep: dict[str, Any]) -> dict[str, str]:
    numbers = "; ".join(_series(sweep, figure) for figure in ("f1_covered", "f1"))
    result = verdict(peaks_inside(sweep["f1"]), peaks_inside(sweep["f1_covered"]))
    return _row("F1 peaks at an inner λ_t (the paper: at 1; DK-HRM).", result, f"{numbers}.")


def _alpha_sweep(sweep: dict[str, Any]) -> dict[str, str]:
    numbers = "; ".join(_series(sweep, figure) for figure in ("f1_covered", "ndcg_covered", "f1"))
    covered = peaks_inside(sweep["f1_covered"]) and peaks_inside(sweep["ndcg_covered"])
    result = verdict(covered and peaks_inside(sweep["f1"]), covered)
    return _row("F1 and NDCG peak at an inner α (DK-HRM).", result, f"{numbers}.")


def _rise_and_stay(curves: dict[str, Any]) -> dict[str, str]:
    models = [model for model in protocol.MODELS if model not in protocol.ORIGINAL]
    holds = all(steady(curves[model]["f1"]) for model in models)
    numbers = "; ".join(
        f"{model}: peak {max(f1):.4f} at N = {f1.index(max(f1)) + 1}, {f1[-1]:.4f} at N = {len(f1)}"
        for model in models
        for f1 in (curves[model]["f1"],)
    )
    return _row("F1 rises with N, then stays steady.", verdict(holds, False), f"{numbers}.")


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


# ---------------------------------------------------------------------- text
def _series(sweep: dict[str, Any], figure: str) -> str:
    digits = 2 if figure == "cover_ratio" else 4
    return f"{FIGURES[figure]}: {', '.join(f'{value:.{digits}f}' for value in sweep[figure])}"


def _interval(row: dict[str, Any], metric: str) -> str:
    low, high, p = (row[f"{metric}_{part}"] for part in ("low", "high", "p_holm"))
    return f"{row[f'{metric}_difference']:+.4f} [{low:+.4f}, {high:+.4f}], {_p(p)}"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _row(claim: str, result: str, numbers: str) -> dict[str, str]:
    return {"claim": claim, "verdict": result, "numbers": numbers}


Run = dict[str, Any]  # the result of one seed
Runs = dict[str, list[Run]]  # by model, one run per seed
FIGURE_NAMES = ("f1", "ndcg", "cover_ratio", "length", "f1_covered", "ndcg_covered", "precision")
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
    return {figure: mean(runs, name, figure) for figure in FIGURE_NAMES} | {"f1_sd": _sd(runs, name, "f1")}


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
