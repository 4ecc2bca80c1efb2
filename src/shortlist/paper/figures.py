"""The report's figures: sweeps, fixed lengths, risk and coverage, and how t_u and K scatter."""

from itertools import pairwise
from typing import Any

from shortlist.core.charts import Series, bar_chart, legend, length_chart, line_chart, thinned
from shortlist.paper import paper
from shortlist.paper.paper import BIASED
from shortlist.paper.runs import FIXED, OWN


def figure1(sweeps: dict[str, Any]) -> str:
    symbols = {"t": "t", "lambda_t": "λ_t", "alpha": "α", BIASED: "t, with item biases"}
    panels = []
    for name, sweep in sweeps.items():
        x, even = sweep["values"], name == "lambda_t"
        both = [Series("covered users", x, sweep["f1_covered"], 0), Series("all users", x, sweep["f1"], 1)]
        label = symbols[name]
        panels.append(line_chart(f"F1 by {label}", label, "F1 (mean over users)", both, even=even))
        ndcg = [Series("covered users", x, sweep["ndcg_covered"], 0)]
        panels.append(line_chart(f"NDCG by {label}", label, "NDCG (paper's)", ndcg, even=even))
        cover = [Series("covered users", x, sweep["cover"], 2)]
        panels.append(
            line_chart(f"Cover-Ratio by {label}", label, "share of users", cover, even=even, top=1.0)
        )
    names = [("covered users", 0), ("all users, empty list = 0", 1), ("share of users with a list", 2)]
    note = (
        "Scores are inner products without item biases, as the paper writes them. With biases (last row) "
        "every score can move along with t, and t decides less."
    )
    return (
        f"<figure><div class='grid3'>{''.join(panels)}</div>{legend(names)}</figure>"
        f"<p class='quiet'>{note}</p>"
    )


def figure2(curves: dict[str, Any]) -> str:
    shown = [model for model in curves if model not in paper.ORIGINAL]
    series = [Series(paper.title(m), curves[m]["N"], curves[m]["f1"], k) for k, m in enumerate(shown)]
    chart = line_chart("F1 at N = 1 … 20", "N (items shown to everybody)", "F1 (mean over all users)", series)
    names = [(f"{paper.title(m)} (N = {curves[m]['chosen']} on validation)", k) for k, m in enumerate(shown)]
    return f"<figure style='max-width:36rem'>{chart}{legend(names)}</figure>"


def risk_figure(found: dict[str, Any]) -> str:
    shown = [
        ("HRM", FIXED), ("DKHRM", OWN), ("DKHRM", "expected F1"), ("PersonalFrequency", FIXED),
        ("PersonalFrequency", "expected F1"),
    ]  # fmt: skip
    series, names = [], []
    for k, (model, lists) in enumerate(shown):
        one = found[model][lists]
        label = f"{paper.title(model)}, {lists}"
        series.append(Series(label, one["coverage"], one["f1"], k))
        names.append((f"{label} (area {one['area']:.4f})", k))
    chart = line_chart(
        "F1 of those served, the surest first",
        "coverage (share of users served)",
        "F1 (mean over the served)",
        series,
    )
    note = "Area: mean of 1 − F1 over all coverages, mean over seeds; lower is better. Curves: first seed."
    return f"<figure style='max-width:36rem'>{chart}{legend(names)}</figure><p class='quiet'>{note}</p>"


def spread_figure(found: dict[str, Any]) -> str:
    panels = []
    for model in paper.ORIGINAL:
        bounds, lengths = found[model]["boundaries"], found[model]["K"][OWN]
        middles = [(a + b) / 2 for a, b in pairwise(bounds["edges"])]
        name = paper.title(model)
        labels = [f"{middle:.3f}" for middle in middles]
        panels.append(
            bar_chart(
                f"{name}: t_u, sd {bounds['sd']:.3f}",
                "boundary t_u",
                "users",
                thinned(labels),
                bounds["counts"],
            )
        )
        panels.append(length_chart(f"{name}: K", lengths, 1))
    panels += [
        length_chart(f"{paper.title(model)}: K by expected F1", found[model]["K"]["expected F1"], 2)
        for model in ("DKHRM", "PersonalFrequency")
    ]
    return f"<figure><div class='grid3'>{''.join(panels)}</div></figure>"
