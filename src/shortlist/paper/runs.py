"""What one model with one seed shows: every decider on its ranking, judged once on the test."""

from typing import Any

import numpy as np

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
from shortlist.data.ranked_lists import RankedLists
from shortlist.evaluation import Report, best_fixed_n, evaluate, fixed_n_curve, matched, oracle, risk_coverage
from shortlist.models.base import Recommender
from shortlist.paper.bench import Bench
from shortlist.paper.paper import LONGEST
from shortlist.paper.result_cache import packed
from shortlist.types import Floats

FIXED, OWN, ORACLE = "fixed N", "own boundary", "oracle K"
LENGTHS = range(1, LONGEST + 1)
CHOSEN = ("f1", "ndcg", "ndcg_paper")  # metrics for which a fixed length is chosen on validation
POINTS = 50  # of a risk-coverage curve
BINS = 30  # of the histogram of boundaries


def deciders(depth: int) -> dict[str, Cutoff]:
    """Everything that can decide a length, unfitted, for heads that carry probabilities."""
    carried: dict[str, Any] = {"calibration": "none", "n_candidates": depth}
    return {
        "score threshold": Threshold(n_candidates=depth),
        "probability threshold": Threshold(on="probability", **carried),
        "fitted boundary": Boundary(n_candidates=depth),
        "expected F1": ExpectedF1(**carried),
        "expected NDCG": ExpectedNDCG(**carried),
        "value 20:1": ExpectedValue(gain=1.0, cost=0.05, **carried),
        "precision ≥ 3%, sure": Guarantee(min_precision=0.03, fallback="empty", n_candidates=depth),
    }


def run(bench: Bench, model: str, params: dict[str, Any], depth: int) -> dict[str, Any]:
    """Choose on validation, retrain on everything before the test, judge every list on the test."""
    split = bench.split
    before = bench.heads(bench.fitted(model, params, split.train), split.valid)
    rehearsal = fixed_n_curve(before, split.valid, LENGTHS)
    best = {metric: best_fixed_n(rehearsal, metric) for metric in CHOSEN}
    final = bench.fitted(model, params, split.train_valid)
    heads = bench.heads(final, split.test)
    lists = {FIXED: FixedN(N=best["f1"]).apply(heads)}
    if heads.boundary is not None:
        lists[OWN] = Boundary().apply(heads)
    lists |= _decided(bench, before, heads, depth)
    curve = fixed_n_curve(heads, split.test, LENGTHS)
    reports = {name: evaluate(each, split.test, max_items=LONGEST) for name, each in lists.items()}
    reports[ORACLE] = oracle(heads, split.test, max_items=LONGEST)
    found = {name: judged(report) for name, report in reports.items()}
    found[FIXED] = _at_its_best(bench, found[FIXED], heads, best)
    return {
        "N": best,
        "curve": {name: curve[name].to_list() for name in CHOSEN},
        "lists": found,
        "matched": {
            name: _rivals(bench, lists[name], heads, best["f1"])
            for name in (OWN, "expected F1")
            if name in lists
        },
        "risk": {name: _risk(report) for name, report in reports.items() if name != ORACLE},
        "boundaries": _boundaries(final, bench),
    }


def _decided(bench: Bench, before: RankedLists, heads: RankedLists, depth: int) -> dict[str, RankedLists]:
    """Every decider's lists; one calibration, fitted on validation, serves all that need probabilities."""
    split = bench.split
    calibration = Calibration(n_candidates=depth).fit(before, split.valid, history=split.train)
    before = calibration.apply(before, history=split.train)
    heads = calibration.apply(heads, history=split.train_valid)
    return {
        name: cutoff.fit(before, split.valid, history=split.train).apply(heads, history=split.train_valid)
        for name, cutoff in deciders(depth).items()
    }


def judged(report: Report) -> dict[str, Any]:
    """Figures over all and over covered users, and what tests need of every user."""
    return {
        "f1": report.f1,
        "ndcg": report.ndcg,
        "precision": report.mean("precision"),
        "recall": report.mean("recall"),
        "cover": report.cover_ratio,
        "length": report.mean("length"),
        "f1_covered": _number(report.mean("f1", "covered")),
        "ndcg_covered": _number(report.mean("ndcg_paper", "covered")),
        "precision_covered": _number(report.mean("precision", "covered")),
        "lengths": np.bincount(np.minimum(report.lengths, LONGEST + 1), minlength=LONGEST + 2).tolist(),
        "users": {
            "f1": packed(report.values("f1")),
            "ndcg": packed(report.values("ndcg")),
            "ndcg_paper": packed(report.values("ndcg_paper")),
            "length": packed(report.values("length")),
        },
    }


def _at_its_best(
    bench: Bench, for_f1: dict[str, Any], heads: RankedLists, best: dict[str, int]
) -> dict[str, Any]:
    """A fixed length is given, for each metric, the N that suited it on validation."""
    found = for_f1 | {"users": dict(for_f1["users"])}
    for metric, figure in (("ndcg", "ndcg"), ("ndcg_paper", "ndcg_covered")):
        lists = FixedN(N=best[metric]).apply(heads)
        other = judged(evaluate(lists, bench.split.test, max_items=LONGEST))
        found[figure] = other[figure]
        found["users"][metric] = other["users"][metric]
    return found


def sweep(bench: Bench, model: str, params: dict[str, Any]) -> dict[str, Any]:
    """One point of Figure 1: what lies above the boundaries, judged on the test."""
    fitted = bench.fitted(model, params, bench.split.train_valid)
    heads = bench.heads(fitted, bench.split.test)
    # with alpha = 0 no boundary is learned, and every t_u stays where it starts
    report = evaluate(Boundary(t=params["t"]).apply(heads), bench.split.test, max_items=LONGEST)
    found = judged(report)
    del found["users"]
    return found | {"boundaries": _boundaries(fitted, bench)}


def strictness(bench: Bench, model: str, params: dict[str, Any], target: float, steps: int) -> dict[str, Any]:
    """The `negatives` at which validation users are covered as in the paper: more of them, stricter lists."""
    low, high = -3.0, 11.0  # powers of two
    tried = []
    for _ in range(steps):
        middle = (low + high) / 2
        fitted = bench.fitted(model, params | {"negatives": 2.0**middle}, bench.split.train)
        lists = Boundary().apply(bench.heads(fitted, bench.split.valid))
        report = evaluate(lists, bench.split.valid, max_items=LONGEST)
        tried.append({"negatives": round(2.0**middle, 4), **_validated(report)})
        low, high = (middle, high) if report.cover_ratio > target else (low, middle)
    best = min(tried, key=lambda one: abs(one["cover"] - target))
    return best | {"target": target, "tried": tried}


def _validated(report: Report) -> dict[str, float]:
    covered = _number(report.mean("f1", "covered")) or 0.0
    return {"cover": report.cover_ratio, "f1_covered": covered, "length": report.mean("length")}


def _rivals(bench: Bench, lists: RankedLists, heads: RankedLists, N: int) -> dict[str, Any]:
    """The same ranking at fixed length, given the users, the silence or the item_stats space `lists` took."""
    names = ("top N", "same users", "same abstention", "same items")
    found = matched(lists, heads, bench.split.test, N).values()
    return {
        name: judged(evaluate(each, bench.split.test, max_items=LONGEST))
        for name, each in zip(names, found, strict=True)
    }


def _risk(report: Report) -> dict[str, Any]:
    found = risk_coverage(report)
    curve = found.curve(POINTS)
    return {
        "coverage": curve["coverage"].to_list(),
        "f1": curve["f1"].to_list(),
        "area": found.area,
        "area_random": found.area_random,
    }


def _boundaries(model: Recommender, bench: Bench) -> dict[str, Any] | None:
    """How far the users' boundaries lie apart."""
    found: Floats | None = model.boundaries(bench.split.test.active_users)
    if found is None:
        return None
    counts, edges = np.histogram(found, BINS)
    levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    return {
        "sd": float(found.std()),
        "quantiles": {f"{q:g}": float(v) for q, v in zip(levels, np.quantile(found, levels), strict=True)},
        "counts": counts.tolist(),
        "edges": edges.tolist(),
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value
