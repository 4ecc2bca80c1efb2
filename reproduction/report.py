"""The reproduction's pages: one HTML page that loads nothing, and Table 1 under every reading as Markdown."""

from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader

from reproduction import protocol
from reproduction.findings import added_readings, closeness, find_row
from reproduction.protocol import CAPS, HARMONIC, METRICS
from reproduction.runs import Row
from shortlist.core.charts import Series, legend, line_chart
from shortlist.reports import page as pages

P_LEVEL = 0.05
NAMES = {"ml-100k": "MovieLens 100K", "ta-feng": "Ta-Feng", "sample": "Generated sample"}
BIASES = {True: "with item biases", False: "without item biases", None: "biases chosen on validation"}
PANELS = {  # of Figure 1: label of the y axis, its end, and the curves with their styles
    "F1": ("F1 (mean over users)", None, {"f1_covered": 0, "f1": 1}),
    "NDCG": ("NDCG (as in the paper)", None, {"ndcg_covered": 0}),
    "Cover-Ratio": ("share of users", 1.0, {"cover_ratio": 2}),
}


def render(template: str, results: Row, **context: Any) -> str:
    """Fill "report.html.j2" or "table.md.j2", which know the names of this file."""
    folders = [Path(__file__).parent, Path(pages.__file__).parent / "templates"]
    page = pages.ENVIRONMENT.overlay(loader=FileSystemLoader(folders)).get_template(template)
    return page.render(
        globals() | context, results=results, find_row=find_row, added=added_readings(results["datasets"])
    )


def name_variant(row: Row) -> str:
    """A reading without its F1 and test set, in words: loss of HRM, biases, N, longest list."""
    loss = ["HRM by negative sampling"] if row["loss"] == protocol.NEGATIVE_SAMPLING else []
    own_N = "each metric's own N or setting" if row["own_N"] else "one N or setting"
    return ", ".join([*loss, BIASES[row["bias"]], own_N, f"at most {row['cap']}"])


def figure_cell(row: Row, name: str, metric: str | None) -> str:
    """A figure with its deviation and marks."""
    figure, printed = row["figures"][name], row["paper"]
    digits = 2 if name == "cover_ratio" else 4 if name.startswith(("f1", HARMONIC)) else 3
    text = f"{figure['mean']:.{digits}f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.{digits}f}")
    if metric in METRICS and printed is not None and round(figure["mean"], 3) >= printed[metric]:
        text += " *"
    return text + mark(row.get("tests", {}).get(name))


def mark(test: Row | None) -> str:
    """Whether a difference is significant."""
    if test is None or test["p_holm"] > P_LEVEL:
        return ""
    return " ▲" if test["difference"] > 0 else " ▼"


def best_cells(cells: list[Row], readings: list[str]) -> list[tuple[str, Row]]:
    """For each F1, reading and longest list, the variant with the most cells and the closest one."""
    best = []
    for group in product(("f1", HARMONIC), readings, CAPS):
        rows = [row for row in cells if (row["f1"], row["reading"], row["cap"]) == group]
        best += [("most cells", max(rows, key=closeness))]
        best += [("closest", min(rows, key=lambda row: row["distance"]))]
    return best


def sweep_charts(sweeps: Row) -> list[str]:
    """Figure 1."""
    labels = {"t": "t", "lambda_t": "λ_t", "alpha": "α", protocol.BIASED_SWEEP: "t, with item biases"}
    charts = []
    for (name, sweep), (title, (y, top, curves)) in product(sweeps.items(), PANELS.items()):
        series = [Series(each, sweep["values"], sweep[each], style) for each, style in curves.items()]
        chart = f"{title} by {labels[name]}", labels[name], y, series
        charts.append(line_chart(*chart, even=name == "lambda_t", top=top))
    return charts


def top_n_chart(curves: Row) -> str:
    """Figure 2."""
    series = [Series(name, curve["N"], curve["f1"], k) for k, (name, curve) in enumerate(curves.items())]
    names = [f"{name} (validation: N = {curve['best_N']})" for name, curve in curves.items()]
    chart = line_chart("F1 at N = 1 … 20", "N (list length of all users)", "F1 (mean over all users)", series)
    return chart + legend(list(zip(names, range(len(names)), strict=True)))
