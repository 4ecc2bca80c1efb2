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
from shortlist.core.files import write_text
from shortlist.core.metrics import PER_USERS, ListValue, Metric
from shortlist.data.lists import REASON_TEXT, RankedList
from shortlist.data.profile import check_data
from shortlist.evaluation.report import Report
from shortlist.models.base import Recommender
from shortlist.models.selection import explain_error
from shortlist.reports.model_report import (
    MIN_USERS,
    P_LEVEL,
    ModelReport,
    UserGroup,
    item_namer,
    items_of,
)
from shortlist.reports.page import format_test, render
from shortlist.types import Doubles, Floats

BINS = 24  # of a histogram
MAX_ROWS = 8  # items shown of an example user's list
WITHHELD = 3  # candidates shown below the end of the list
NAMED = 3  # items named of the history and of the test basket
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
    namer, measure = item_namer(report.history), "F1" if report.money is None else "the money"
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
            f"{name} {value}" for name, value in params.items() if value is not None and value != ()
        ),
        rows=[_row(*row, report) for row in (*report.reports.items(), ("oracle", report.oracle))],
        summary={
            text: [f"{users.group}: {users.label}" for users in report.slices if users.verdict == verdict]
            for verdict, text in (("helps", f"improves {measure}"), ("hurts", f"lowers {measure}"))
        },
        slices=[_slice(users, report.metric) for users in report.slices],
        measure=measure,
        f1=report.describe_f1(),
        figures={
            "hits": _hits_figure(report),
            "fixed": _fixed_figure(report),
            "slices": _slice_figure(report),
            "distributions": _distribution_figures(report),
            "selective": _selective_figure(report, selected, fixed),
            "calibration": _calibration_figure(report.selected),
        },
        selective_f1={"selected": selected[2], "fixed": fixed[2]},
        users=[_user(report, lists.at(int(row)), namer) for row in report.example_rows],
        data_section="" if report.history is None else check_data(report.history).to_html(),
        p_level=P_LEVEL,
        min_users=MIN_USERS,
    )


def _slice(group: UserGroup, name: str) -> dict[str, Any]:
    """One row of the table of groups."""
    text = Metric.registry[name].text
    figures = {
        "selected": text(group.selected),
        "fixed": text(group.fixed),
        "test": format_test(group.test, name),
    }
    return group._asdict() | figures


def _held_out(model: Recommender) -> dict[str, Any] | None:
    """What the model's selection scored on users that took no part in it, if that was measured."""
    selection = model.selection_
    if selection is None or selection.held_out is None:
        return None
    metric = Metric.registry.get(selection.metric, Metric)
    score, error = metric.text(selection.held_out["score"]), explain_error(metric, selection.held_out)
    return selection.held_out | {"metric": metric.title, "score": score, "error": error}


def write_model_report(report: ModelReport, path: Path) -> None:
    """Write the page to a file."""
    write_text(path, render_model_report(report))


def _cards(report: ModelReport) -> list[dict[str, Any]]:
    """The figures at the top of the page: money if it is known, then volume and hits."""
    main, volume, fixed = report.selected, report.same_volume, report.fixed
    same = report.same

    def recall(evaluated: Report) -> str:
        return f"{100 * evaluated.hits.sum() / max(evaluated.n_relevant.sum(), 1):.1f}"

    def card(name: str, value: str, meaning: str, *lines: str) -> dict[str, Any]:
        return {"name": name, "value": value, "meaning": meaning, "lines": lines}

    cards = [
        card(
            "Hits per 100 items shown",
            f"{main.hits_per_100:.1f}",
            f"items of the {report.outcome}",
            f"{volume.hits_per_100:.1f} with the same number of items, one length",
        ),
        card(
            "Items shown per user",
            f"{main.mean('length'):.{1 if main.mean('length') >= 1 else 2}f}",
            "mean list length, empty lists included",
            f"{fixed.mean('length'):.1f} with {same}",
        ),
        card(
            f"Of 100 items in the {report.outcome}",
            recall(main),
            "had been shown",
            f"{recall(volume)} with the same number of items, one length",
        ),
        card(
            "Empty lists", f"{1 - main.cover_ratio:.0%}", "users to whom no item was worth showing",
            f"{1 - fixed.cover_ratio:.0%} with {same}",
        ),
    ]  # fmt: skip
    if report.money is not None:
        others = [name for name in report.reports if name != report.main]
        lines = [f"{ListValue.text(report.reports[name].mean('value'))} with {name}" for name in others]
        value = ListValue.text(main.mean("value"))
        cards.insert(0, card("Earned per 1,000 users", value, str(report.money), *lines))
    return cards


def _effects(report: ModelReport) -> list[dict[str, str]]:
    """What the lists mean for 1,000 users, against one length with as many items, and the fixed N."""
    n = max(report.selected.n_users, 1) / PER_USERS
    counts: list[tuple[str, Callable[[Report], float]]] = [
        ("items shown", lambda rule: rule.lengths.sum()),
        (f"items shown that were in the {report.outcome}", lambda rule: rule.hits.sum()),
        ("users who got a list", lambda rule: (rule.lengths > 0).sum()),
        (f"users who found at least one item of their {report.outcome}", lambda rule: (rule.hits > 0).sum()),
        ("users who got a list without any", lambda rule: ((rule.lengths > 0) & (rule.hits == 0)).sum()),
    ]
    if report.money is not None:
        counts.insert(0, ("earned", lambda rule: rule.values("value").sum()))
    rows = []
    for name, count in counts:
        reports = report.selected, report.same_volume, report.fixed
        selected, volume, fixed = (float(count(rule)) / n for rule in reports)
        change = f"{selected / volume - 1:+.0%}" if volume > 0 else ""
        texts = {"value": selected, "volume": volume, "fixed": fixed}
        rows.append({"name": name, "change": change} | {key: f"{text:,.0f}" for key, text in texts.items()})
    return rows


def _hits_figure(report: ModelReport) -> str:
    """Hits per 100 items shown for every length for everyone, and of the lists at their mean length."""
    length, hits = report.selected.mean("length"), report.selected.hits_per_100
    curve = report.hits_curve[: max(20, int(3 * length))]
    N = [float(k) for k in range(1, curve.size + 1)]
    names = "individual length", "one length for everyone"
    chart = line_chart(
        "Of 100 items shown, how many are wanted",
        "items per user",
        "hits per 100 items shown",
        [Series(names[1], N, curve.tolist(), 1, dotted=False), Series(names[0], [length], [hits], 0)],
        marks=[Mark(length, hits, f"{hits:.1f}")],
    )
    return chart + legend([(names[0], 0), (names[1], 1)])


def _fixed_figure(report: ModelReport) -> str:
    """The metric of every fixed N, and of K at its mean length."""
    measure = "F1" if report.money is None else "earned per user"
    curve, length = report.fixed_curve, report.selected.mean("length")
    N, mean = [float(k) for k in range(1, curve.size + 1)], report.selected.mean(report.metric)
    best = int(curve.argmax())
    chart = line_chart(
        f"{measure[0].upper()}{measure[1:]}, for every list length",
        "items per list (for K: the mean)",
        f"{measure} (all users)",
        [
            Series("fixed N", N, curve.tolist(), 1, dotted=False),
            Series("K", [length], [mean], 0),
        ],
        marks=[Mark(length, mean, f"K: {mean:.4f}")],
    )
    best_here = f"fixed N (best here: {best + 1}, {curve[best]:.4f})"
    return chart + legend([("K, a length for each user", 0), (best_here, 1)])


def _row(name: str, evaluated: Report, report: ModelReport) -> dict[str, Any]:
    """One row of the table "Quality of the lists"."""
    fixed = report.fixed.values("f1")[evaluated.covered]
    return {
        "name": name,
        "selected": name == report.main,
        "report": evaluated,
        "earned": "" if report.money is None else ListValue.text(evaluated.mean("value")),
        "test": format_test(report.comparison.results.get((name, report.metric)), report.metric),
        "covered_f1": evaluated.mean("f1", "covered") if fixed.size else None,
        "fixed_f1": fixed.mean() if fixed.size else None,
    }


def _slice_figure(report: ModelReport) -> dict[str, str]:
    measure = "F1" if report.money is None else "money earned per user"
    spans = [
        Span(
            group.group,
            f"{group.label}  ({group.users:,} users)",
            group.test.difference,
            group.test.low,
            group.test.high,
            STYLES[group.verdict],
        )
        for group in report.slices
        if group.test is not None
    ]
    if not spans:
        return {"chart": "", "legend": ""}
    title = f"{measure[0].upper()}{measure[1:]} with K minus the same with fixed N"
    chart = span_chart(title, f"difference in {measure}, 95% interval", spans)
    names = [("K helps", 2), ("K hurts", 1), ("no clear difference", 7)]
    return {"chart": chart, "legend": legend(names)}


def _distribution_figures(report: ModelReport) -> list[str]:
    """Histograms of list lengths, and of boundaries and confidence if the model has them."""
    longest = min(report.max_items, max(int(report.selected.lengths.max(initial=0)), report.N))
    counts = np.bincount(np.minimum(report.selected.lengths, longest + 1), minlength=longest + 2)
    mark = (float(min(report.N, longest + 1)), f"fixed N = {report.fixed_text}")
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
    return chart + legend([("K", 0), (f"fixed N = {report.fixed_text}", 1)])


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
        "share of items that were chosen",
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


def _user(report: ModelReport, cut_list: RankedList, name: Callable[[Any], str]) -> dict[str, Any]:
    """One example user: history, test basket, list, and the items below its end."""
    ranked, basket = report.top_candidates[cut_list.user_id], items_of(cut_list.user_id, report.truth)
    probabilities = (
        {} if ranked.probabilities is None else dict(zip(ranked.items, ranked.probabilities, strict=True))
    )

    def describe(items: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": name(item),
                "hit": item in basket,
                "probability": "" if np.isnan(p := probabilities.get(item, np.nan)) else f"{p:.1%}",
            }
            for item in items
        ]

    shown = set(cut_list.items)
    return {
        "user_id": cut_list.user_id,
        "length": len(cut_list),
        "history": [name(item) for item in items_of(cut_list.user_id, report.history)[-NAMED:]],
        "basket": [name(item) for item in basket[:NAMED]],
        "more_basket": max(len(basket) - NAMED, 0),
        "shown": describe(cut_list.items[:MAX_ROWS]),
        "more_shown": max(len(cut_list) - MAX_ROWS, 0),
        "reason": _reason(cut_list.reason or ""),
        "withheld": describe([item for item in ranked.items if item not in shown][:WITHHELD]),
    }
