"""The model report as one HTML page: tables, figures and example users for the template."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import shortlist as sl
from shortlist.core.charts import (
    Mark,
    Series,
    Span,
    histogram_chart,
    legend,
    length_chart,
    line_chart,
    span_chart,
)
from shortlist.core.files import atomic_write
from shortlist.core.metrics import Metric
from shortlist.data.lists import REASON_TEXT, RankedList
from shortlist.evaluation.report import Report
from shortlist.models.base import Recommender
from shortlist.reports.model_report import MIN_USERS, P_LEVEL, ModelReport, item_namer, items_of
from shortlist.reports.page import render
from shortlist.types import Doubles, Floats

BINS = 24  # of a histogram
MAX_ROWS = 8  # items shown of an example user's list
WITHHELD = 3  # candidates shown below the end of the list
NAMED = 3  # items named of the history and of the test basket
LEFT_OUT = ("n_threads",)  # parameters that change no list
REASONS = {  # shorter than in other places, because every card has one
    "utility": "Stops here: one more item would probably hurt more than help",
    "value": "Stops here: one more item would cost more than it brings",
    "below_floor": "No list: even the best one is too uncertain",
}
STYLES = {"helps": 2, "hurts": 1, "no clear difference": 7}


def render_model_report(report: ModelReport) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    params = {} if report.model is None else report.model.get_params()
    selected, fixed = report.selective_f1(report.selected), report.selective_f1(report.fixed)
    namer = item_namer(report.history)
    lists = report.lists[report.main]
    return render(
        "model_report.html.j2",
        report=report,
        cards=_cards(report),
        effects=_effects(report),
        today=datetime.now(UTC).date().isoformat(),
        version=sl.__version__,
        model_name=None if report.model is None else type(report.model).__name__,
        held_out=None if report.model is None else _held_out(report.model),
        params=", ".join(
            f"{name} {value}"
            for name, value in params.items()
            if value is not None and value != () and name not in LEFT_OUT
        ),
        rows=[_row(name, one, report) for name, one in (*report.reports.items(), ("oracle", report.oracle))],
        summary={
            text: [f"{one.group}: {one.label}" for one in report.slices if one.verdict == verdict]
            for verdict, text in (("helps", "improves F1"), ("hurts", "lowers F1"))
        },
        figures={
            "fixed": _fixed_figure(report),
            "slices": _slice_figure(report),
            "distributions": _distribution_figures(report),
            "selective": _selective_figure(report, selected, fixed),
            "calibration": _calibration_figure(report.selected),
        },
        selective_f1={"selected": selected[2], "fixed": fixed[2]},
        users=[_user(report, lists.at(int(row)), namer) for row in report.example_rows],
        p_level=P_LEVEL,
        min_users=MIN_USERS,
    )


def _held_out(model: Recommender) -> dict[str, Any] | None:
    """What the model's selection scored on users that took no part in it, if that was measured."""
    found = model.selection_
    if found is None or found.held_out is None:
        return None
    metric = Metric.registry.get(found.metric, Metric)
    score, error = metric.text(found.held_out["score"]), metric.text(found.held_out["standard_error"])
    return found.held_out | {"metric": metric.title, "score": score, "standard_error": error}


def write_model_report(report: ModelReport, path: Path) -> None:
    """Write the page to a file."""
    page = render_model_report(report)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _cards(report: ModelReport) -> list[dict[str, str]]:
    """The five figures at the top of the page."""

    def precision(one: Report) -> str:
        return f"{100 * one.hits.sum() / max(one.lengths.sum(), 1):.1f}"

    def recall(one: Report) -> str:
        return f"{100 * one.hits.sum() / max(one.n_relevant.sum(), 1):.1f}"

    figures: list[tuple[str, str, Callable[[Report], str]]] = [
        (
            "F1",
            "1: exactly the next basket; 0: no hit, or an empty list",
            lambda one: f"{one.f1:.4f}",
        ),
        ("Of 100 items shown", "were in the next basket (precision over all items)", precision),
        ("Of 100 items in the next baskets", "had been shown (recall over all items)", recall),
        ("Mean list length", "items per user", lambda one: f"{one.mean('length'):.1f}"),
        ("Users with a list", "share of users reached (coverage)", lambda one: f"{one.cover_ratio:.0%}"),
    ]
    return [
        {"name": name, "meaning": meaning, "value": show(report.selected), "baseline": show(report.fixed)}
        for name, meaning, show in figures
    ]


def _effects(report: ModelReport) -> list[dict[str, str]]:
    """What both kinds of lists mean for 1,000 users."""
    n = max(report.selected.n_users, 1) / 1_000
    counts: list[tuple[str, Callable[[Report], float]]] = [
        ("items shown", lambda one: one.lengths.sum()),
        ("items shown that were in the next basket", lambda one: one.hits.sum()),
        ("users who got a list", lambda one: (one.lengths > 0).sum()),
        ("users who found at least one item of their next basket", lambda one: (one.hits > 0).sum()),
        ("users who got a list without any", lambda one: ((one.lengths > 0) & (one.hits == 0)).sum()),
    ]
    rows = []
    for name, count in counts:
        selected, fixed = (float(count(one)) / n for one in (report.selected, report.fixed))
        change = f"{selected / fixed - 1:+.0%}" if fixed else ""
        row = {"name": name, "value": f"{selected:,.0f}", "baseline": f"{fixed:,.0f}", "change": change}
        rows.append(row)
    return rows


def _fixed_figure(report: ModelReport) -> str:
    """F1 of every fixed N, and of K at its mean length."""
    curve, length = report.fixed_curve, report.selected.mean("length")
    N = [float(k) for k in range(1, curve.size + 1)]
    best = int(curve.argmax())
    chart = line_chart(
        "F1 of every list length",
        "items per list (for K: the mean)",
        "F1 (all users)",
        [
            Series("fixed N", N, curve.tolist(), 1, dotted=False),
            Series("K", [length], [report.selected.f1], 0),
        ],
        marks=[Mark(length, report.selected.f1, f"K: {report.selected.f1:.4f}")],
    )
    names = [("K, a length for each user", 0), (f"fixed N (best here: {best + 1}, {curve[best]:.4f})", 1)]
    return chart + legend(names)


def _row(name: str, one: Report, report: ModelReport) -> dict[str, Any]:
    """One row of the table "Quality of the lists"."""
    fixed = report.fixed.values("f1")[one.covered]
    return {
        "name": name,
        "selected": name == report.main,
        "report": one,
        "test": report.comparison.results.get((name, "f1")),
        "covered_f1": one.mean("f1", "covered") if fixed.size else None,
        "fixed_f1": fixed.mean() if fixed.size else None,
    }


def _slice_figure(report: ModelReport) -> dict[str, str]:
    spans = [
        Span(
            one.group,
            f"{one.label}  ({one.users:,} users)",
            one.test.difference,
            one.test.low,
            one.test.high,
            STYLES[one.verdict],
        )
        for one in report.slices
        if one.test is not None
    ]
    if not spans:
        return {"chart": "", "legend": ""}
    chart = span_chart("F1 with K minus F1 with fixed N", "difference in F1, 95% interval", spans)
    names = [("K helps", 2), ("K hurts", 1), ("no clear difference", 7)]
    return {"chart": chart, "legend": legend(names)}


def _distribution_figures(report: ModelReport) -> list[str]:
    """Histograms of list lengths, and of boundaries and confidence if the model has them."""
    longest = min(report.max_items, max(int(report.selected.lengths.max(initial=0)), report.N))
    counts = np.bincount(np.minimum(report.selected.lengths, longest + 1), minlength=longest + 2)
    mark = (float(min(report.N, longest + 1)), f"fixed N = {report.N}")
    figures = [length_chart("List length", counts.tolist(), 0, mark=mark)]
    boundaries = None if report.model is None else report.model.boundaries(report.selected.user_ids)
    if boundaries is not None:
        figures.append(_histogram("Boundary of each user", "boundary (lowest score shown)", boundaries, 1))
    if report.top_candidates.probabilities is not None:
        finite = report.confidence[np.isfinite(report.confidence)]
        figures.append(_histogram("Confidence", "probability of the user's top item", finite, 2))
    return figures


def _histogram(title: str, x_label: str, values: Doubles | Floats, style: int) -> str:
    counts, edges = np.histogram(values, BINS)
    return histogram_chart(title, x_label, "users", edges.tolist(), counts.tolist(), style)


def _selective_figure(
    report: ModelReport,
    selected: tuple[list[float], list[float], float],
    fixed: tuple[list[float], list[float], float],
) -> str:
    (x, y, marked), (_, fixed_y, _) = selected, fixed
    chart = line_chart(
        "F1 when only the most certain users get a list",
        "share of users with a list",
        "F1 (mean over these users)",
        [Series("K", x, y, 0), Series("fixed N", x, fixed_y, 1)],
        marks=[Mark(report.coverage, marked, f"{report.coverage:.0%} of users: {marked:.4f}")],
    )
    return chart + legend([("K", 0), (f"fixed N = {report.N}", 1)])


def _calibration_figure(report: Report) -> str | None:
    """Observed against predicted probabilities; None for lists without probabilities."""
    if report.calibration_error is None:
        return None
    table = report.calibration
    p, n = table["observed"].to_numpy(), table["shown"].to_numpy()
    error = 1.96 * np.sqrt(p * (1 - p) / n)
    around = list(zip(np.maximum(p - error, 0).tolist(), (p + error).tolist(), strict=True))
    top = max(float(table["predicted"].max() or 0), float((p + error).max()))  # type: ignore[arg-type]
    chart = line_chart(
        "Predicted and observed probability",
        "predicted probability",
        "share of items in the test basket",
        [
            Series("exact prediction", [0.0, top], [0.0, top], 7, dotted=False),
            Series("observed", table["predicted"].to_list(), p.tolist(), 0, around=around),
        ],
        top=top,
    )
    return chart + legend([("observed", 0), ("exact prediction", 7)])


def _reason(reason: str) -> str:
    """Why a list ends, as the line at its end."""
    text = REASONS.get(reason) or REASON_TEXT.get(reason, "end of the list")
    return text[0].upper() + text[1:]


def _user(report: ModelReport, one: RankedList, name: Callable[[Any], str]) -> dict[str, Any]:
    """One example user: history, test basket, list, and the items below its end."""
    ranked, basket = report.top_candidates[one.user_id], items_of(one.user_id, report.truth)
    probabilities = (
        {} if ranked.probabilities is None else dict(zip(ranked.items, ranked.probabilities, strict=True))
    )

    def describe(items: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": name(item),
                "hit": item in basket,
                "probability": f"{probabilities[item]:.1%}" if item in probabilities else "",
            }
            for item in items
        ]

    shown = set(one.items)
    return {
        "user_id": one.user_id,
        "length": len(one),
        "history": [name(item) for item in items_of(one.user_id, report.history)[-NAMED:]],
        "basket": [name(item) for item in basket[:NAMED]],
        "more_basket": max(len(basket) - NAMED, 0),
        "shown": describe(one.items[:MAX_ROWS]),
        "more_shown": max(len(one) - MAX_ROWS, 0),
        "reason": _reason(one.reason or ""),
        "withheld": describe([item for item in ranked.items if item not in shown][:WITHHELD]),
    }
