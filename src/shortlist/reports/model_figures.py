"""The report's figures: lengths and boundaries, whom to serve, and whether probabilities come true."""

from itertools import pairwise

import numpy as np

from shortlist.core.charts import (
    Mark,
    Series,
    bar_chart,
    legend,
    length_chart,
    line_chart,
    thinned,
)
from shortlist.reports.model_report import ModelReport
from shortlist.reports.page import share
from shortlist.types import Doubles, Floats

BINS = 24


def spread_figures(brief: ModelReport) -> str:
    longest = brief.max_items
    counts = np.bincount(np.minimum(brief.ours.lengths, longest + 1), minlength=longest + 2)
    mark = (float(min(brief.N, longest + 1)), f"fixed N = {brief.N}")
    panels = [length_chart("Length of the lists", counts.tolist(), 0, mark=mark)]
    users = brief.history.users.lookup(brief.ours.user_ids)
    bounds = brief.model.boundaries(users[users >= 0])
    if bounds is not None:
        panels.append(
            _histogram("Personal boundary", "boundary t_u (score an item must exceed)", bounds, 1, 2)
        )
    if brief.heads.probabilities is not None:
        sure = brief.confidence[np.isfinite(brief.confidence)]
        panels.append(_histogram("Best item of each user", "probability that it is taken next", sure, 2, 3))
    return f"<figure><div class='grid3'>{''.join(panels)}</div></figure>"


def _histogram(title: str, x_label: str, values: Doubles | Floats, style: int, digits: int) -> str:
    counts, edges = np.histogram(values, BINS)
    labels = [f"{(low + high) / 2:.{digits}f}" for low, high in pairwise(edges)]
    return bar_chart(title, x_label, "users", thinned(labels), counts.tolist(), style)


def served_figure(brief: ModelReport) -> str:
    (x, ours, at), (_, fixed, other) = brief.served(brief.ours), brief.served(brief.fixed)
    chart = line_chart(
        "F1 of the users served, the surest first",
        "share of users served",
        "F1 (mean over the served)",
        [Series("K", x, ours, 0), Series("fixed N", x, fixed, 1)],
        marks=[Mark(brief.coverage, at, f"{brief.coverage:.0%} of users: {at:.4f}")],
    )
    words = (
        f"Whoever sends nothing to the least sure {1 - brief.coverage:.0%} of users has an F1 of {at:.4f} on "
        f"the others (the fixed N: {other:.4f}), against {brief.ours.f1:.4f} on everybody. Sure is who has a "
        "best item of high probability."
    )
    key = legend([("K", 0), (f"fixed N = {brief.N}", 1)])
    return f"<p>{words}</p><figure>{chart}{key}</figure>"


def reliability_figure(brief: ModelReport) -> str:
    if brief.ours.calibration_error is None:
        return "<p>These lists carry no probabilities.</p>"
    table = brief.ours.calibration
    p, n = table["observed"].to_numpy(), table["shown"].to_numpy()
    error = 1.96 * np.sqrt(p * (1 - p) / n)
    around = list(zip(np.maximum(p - error, 0).tolist(), (p + error).tolist(), strict=True))
    top = max(float(table["predicted"].max() or 0), float((p + error).max()))  # type: ignore[arg-type]
    chart = line_chart(
        "Promised and observed",
        "probability promised",
        "share of shown items taken next",
        [
            Series("as promised", [0.0, top], [0.0, top], 7, dotted=False),
            Series("observed", table["predicted"].to_list(), p.tolist(), 0, around=around),
        ],
        top=top,
    )
    words = (
        f"Shown items in {table.height} groups of about as many each, by promised probability, with 95% "
        "intervals. On the dashed line promises are kept; above it items do better than promised, below it "
        f"worse. The mean distance is {share(brief.ours.calibration_error)}."
    )
    key = legend([("observed", 0), ("as promised", 7)])
    return f"<p>{words}</p><figure>{chart}{key}</figure>"
