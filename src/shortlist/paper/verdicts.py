"""What of the paper holds: one verdict per claim, with the numbers it rests on."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from shortlist.paper import paper
from shortlist.paper.runs import FIXED, OWN

HOLDS, COVERED, FAILS = "holds", "holds only on covered users", "does not hold"
SURE = 0.05
FLAT = 0.02  # a curve whose range is below this share of its top says nothing
STEADY = 0.9  # of the peak, where a curve is said to keep steady


def verdicts(dataset: str, found: dict[str, Any]) -> list[dict[str, str]]:
    """In the paper's order."""
    made = [
        _t_sweep(found["figure1"]["t"], found["figure1"][paper.BIASED]),
        _lambda_sweep(found["figure1"]["lambda_t"]),
        _alpha_sweep(found["figure1"]["alpha"]),
        _rise_and_stay(found["figure2"]),
        *_rankers(found["pairs"]),
    ]
    for model in paper.ORIGINAL:
        made += [_dynamic(found, model, metric) for metric in ("f1", "ndcg")]
    if dataset == "ta-feng":
        made += [_improvement(found, "f1", 0.331), _improvement(found, "ndcg", 0.5)]
    return made


def verdict(everybody: bool, covered: bool) -> str:
    """Over all users an empty list counts 0; over covered users it is left out, as the paper does."""
    return HOLDS if everybody else COVERED if covered else FAILS


# ---------------------------------------------------------------------- Table 1
def _dynamic(found: dict[str, Any], model: str, metric: str) -> dict[str, str]:
    """The central claim: K beats N."""
    original, row = paper.ORIGINAL[model], found["table1"][model]
    theirs = found["table1"][original]
    fair = next(one for one in found["fair"] if (one["model"], one["lists"]) == (model, OWN))
    rival = next(one for one in found["fair"] if (one["model"], one["lists"]) == (original, FIXED))
    name = METRIC[metric]
    everybody = fair[f"{metric}_difference"] > 0 and fair[f"{metric}_p_holm"] <= SURE
    numbers = (
        f"Covered users: {row[metric]:.4f} against {theirs[metric]:.4f} over all users "
        f"(p {_p(row[f'{metric}_p'])}, {row['cover']:.0%} covered); but {paper.title(original)} has "
        f"{row[f'{metric}_same_users']:.4f} on those same users. All users: {fair[metric]:.4f} against "
        f"{rival[metric]:.4f}, {_interval(fair, metric)}."
    )
    claim = f"{paper.title(model)} beats {paper.title(original)} in {name}."
    return _said(claim, verdict(everybody, row[f"{metric}_mark"] == "+"), numbers)


def _improvement(found: dict[str, Any], metric: str, promised: float) -> dict[str, str]:
    ours, theirs = found["table1"]["DKHRM"], found["table1"]["HRM"]
    covered = ours[metric] / theirs[metric] - 1
    rows = {(one["model"], one["lists"]): one for one in found["fair"]}
    everybody = rows["DKHRM", OWN][metric] / rows["HRM", FIXED][metric] - 1
    numbers = f"Covered users: {covered:+.1%}. All users: {everybody:+.1%}."
    if metric == "f1":
        numbers += " The paper's own table gives 15.4%."
    claim = f"DK-HRM improves on HRM by {promised:.1%} in {METRIC[metric]}."
    return _said(claim, verdict(everybody >= promised, covered >= promised), numbers)


def _rankers(pairs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The top-N models among themselves; everybody is covered, so there is one view."""
    by = {(one["model"], one["against"]): one for one in pairs}
    log, crr_bpr, crr_log = by["LogMF", "BPRMF"], by["CRRMF", "BPRMF"], by["CRRMF", "LogMF"]
    hrm = [(other, by["HRM", other]) for other in ("BPRMF", "LogMF", "CRRMF")]
    split = above(log, "f1") and below(log, "ndcg")
    both = crr_bpr["f1_difference"] > 0 and crr_log["ndcg_difference"] > 0
    best = all(above(row, metric) for _, row in hrm for metric in METRIC)
    against = "; ".join(
        f"{METRIC[metric]} over {other}: {_interval(row, metric)}" for other, row in hrm for metric in METRIC
    )
    return [
        _said(
            "LogMF is better in F1, BPRMF in NDCG.",
            verdict(split, False),
            f"LogMF less BPRMF, F1: {_interval(log, 'f1')}; NDCG: {_interval(log, 'ndcg')}.",
        ),
        _said(
            "CRRMF is good at both: F1 above BPRMF's, NDCG above LogMF's.",
            verdict(both, False),
            f"F1 over BPRMF: {_interval(crr_bpr, 'f1')}; NDCG over LogMF: {_interval(crr_log, 'ndcg')}.",
        ),
        _said("HRM beats BPRMF, LogMF and CRRMF in all metrics.", verdict(best, False), f"{against}."),
    ]


METRIC = {"f1": "F1", "ndcg": "NDCG"}


def above(row: dict[str, Any], metric: str) -> bool:
    """Better, and by more than chance."""
    return bool(row[f"{metric}_difference"] > 0 and row[f"{metric}_p_holm"] <= SURE)


def below(row: dict[str, Any], metric: str) -> bool:
    """Worse, and by more than chance."""
    return bool(row[f"{metric}_difference"] < 0 and row[f"{metric}_p_holm"] <= SURE)


# ---------------------------------------------------------------------- figures
def _t_sweep(sweep: dict[str, Any], biased: dict[str, Any]) -> dict[str, str]:
    falls = rises([-value for value in sweep["cover"]])
    numbers = "; ".join(_series(sweep, figure) for figure in ("f1_covered", "f1", "cover"))
    numbers += f"; with item biases {_series(biased, 'cover')}"
    made = verdict(falls and rises(sweep["f1"]), falls and rises(sweep["f1_covered"]))
    return _said("As t rises, F1 rises and Cover-Ratio falls (DK-HRM).", made, f"{numbers}.")


def _lambda_sweep(sweep: dict[str, Any]) -> dict[str, str]:
    numbers = "; ".join(_series(sweep, figure) for figure in ("f1_covered", "f1"))
    made = verdict(peaks_inside(sweep["f1"]), peaks_inside(sweep["f1_covered"]))
    return _said("F1 peaks at an inner λ_t (the paper: at 1; DK-HRM).", made, f"{numbers}.")


def _alpha_sweep(sweep: dict[str, Any]) -> dict[str, str]:
    numbers = "; ".join(_series(sweep, figure) for figure in ("f1_covered", "ndcg_covered", "f1"))
    covered = peaks_inside(sweep["f1_covered"]) and peaks_inside(sweep["ndcg_covered"])
    made = verdict(covered and peaks_inside(sweep["f1"]), covered)
    return _said("F1 and NDCG peak at an inner α (DK-HRM).", made, f"{numbers}.")


def _rise_and_stay(curves: dict[str, Any]) -> dict[str, str]:
    shown = [model for model in paper.MODELS if model not in paper.ORIGINAL]
    made = all(steady(curves[model]["f1"]) for model in shown)
    numbers = "; ".join(
        f"{model}: peak {max(f1):.4f} at N = {f1.index(max(f1)) + 1}, {f1[-1]:.4f} at N = {len(f1)}"
        for model in shown
        for f1 in (curves[model]["f1"],)
    )
    return _said("F1 rises with N, then keeps steady.", verdict(made, False), f"{numbers}.")


def rises(values: Sequence[float]) -> bool:
    """Ends above its start by more than a trifle, and goes down in at most one step."""
    steps = [after - before for before, after in pairwise(values)]
    trifle = FLAT * max(abs(value) for value in values)
    return values[-1] - values[0] > trifle and sum(step < 0 for step in steps) <= 1


def peaks_inside(values: Sequence[float]) -> bool:
    """The top lies at neither end and stands out from both ends by more than a trifle."""
    top = max(values)
    return top - max(values[0], values[-1]) > FLAT * top


def steady(values: Sequence[float]) -> bool:
    """Rises from its start to a peak, of which most is left at the end."""
    return max(values) > values[0] and values[-1] >= STEADY * max(values)


# ---------------------------------------------------------------------- words
FIGURE = {
    "f1_covered": "F1 of covered users",
    "f1": "F1 of all users",
    "ndcg_covered": "NDCG of covered users",
    "cover": "Cover-Ratio",
}


def _series(sweep: dict[str, Any], figure: str) -> str:
    digits = 2 if figure == "cover" else 4
    return f"{FIGURE[figure]}: {', '.join(f'{value:.{digits}f}' for value in sweep[figure])}"


def _interval(row: dict[str, Any], metric: str) -> str:
    low, high, p = (row[f"{metric}_{part}"] for part in ("low", "high", "p_holm"))
    return f"{row[f'{metric}_difference']:+.4f} [{low:+.4f}, {high:+.4f}], p {_p(p)}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _said(claim: str, made: str, numbers: str) -> dict[str, str]:
    return {"claim": claim, "verdict": made, "numbers": numbers}
