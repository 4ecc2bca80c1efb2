"""One verdict per claim of the paper, with the numbers behind it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from shortlist.paper import protocol
from shortlist.paper.protocol import BOUNDARY, FIXED, METRICS

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
