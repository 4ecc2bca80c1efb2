"""The reproduction report as one HTML page, and Table 1 as Markdown."""

from collections.abc import Sequence
from typing import Any

from shortlist.core.charts import Series, histogram_chart, legend, length_chart, line_chart
from shortlist.paper import protocol
from shortlist.paper.protocol import BOUNDARY, EXPECTED_F1, FIXED, METRICS, ORACLE
from shortlist.paper.verdicts import COVERED, FAILS, HOLDS
from shortlist.reports.page import render

NAMES = {"ml-100k": "MovieLens 100K", "ta-feng": "Ta-Feng", "sample": "Generated sample"}
CLASSES = {HOLDS: "good", COVERED: "part", FAILS: "bad"}
MATCHED_MODELS = ("DKBPRMF", "DKHRM", "HRM", "PersonalFrequency")
RISK_LISTS = (
    ("HRM", FIXED),
    ("DKHRM", BOUNDARY),
    ("DKHRM", EXPECTED_F1),
    ("PersonalFrequency", FIXED),
    ("PersonalFrequency", EXPECTED_F1),
)
SYMBOLS = {"t": "t", "lambda_t": "λ_t", "alpha": "α", protocol.BIASED_SWEEP: "t, with item biases"}


def render_reproduction(results: dict[str, Any], machine: dict[str, Any]) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    return render(
        "reproduction.html.j2",
        settings=results["settings"],
        machine=machine,
        datasets=[_dataset(NAMES.get(name, name), found) for name, found in results["datasets"].items()],
        classes=CLASSES,
    )


def markdown_table(results: dict[str, Any]) -> str:
    """Table 1 with the paper's numbers in brackets, and F1 of the same lists over all users."""
    names = list(results["datasets"])
    columns = ("F1", "Cover-Ratio", "NDCG", "F1, all users")
    header = [f"{NAMES[name]} {column}" for name in names for column in columns]
    lines = [
        "| model (paper's numbers in brackets) | " + " | ".join(header) + " |",
        "|---|" + "---:|" * len(header),
    ]
    for model in protocol.MODELS:
        cells = []
        for name in names:
            found = results["datasets"][name]
            f1 = found["cutoffs"][model][protocol.headline(model)]["f1"]
            cells += [*table1_cells(found["table1"][model]), f"{f1:.4f}"]
        lines.append(f"| {protocol.title(model)} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "F1, Cover-Ratio, NDCG: covered users only, as in the paper; + better, - worse than the model it "
        "extends (bootstrap over users, p ≤ 0.05). Last column: all users, an empty list counts as 0.",
    ]
    return "\n".join(lines) + "\n"


def table1_cells(row: dict[str, Any]) -> list[str]:
    """F1, Cover-Ratio and NDCG, each with the paper's number if there is one."""
    cells = []
    for column, digits in (("f1", 4), ("cover_ratio", 2), ("ndcg", 3)):
        printed = "" if row["paper"] is None else f" ({row['paper'][column]:g})"
        cells.append(f"{row[column]:.{digits}f}{row.get(f'{column}_mark', '')}{printed}")
    return cells


def _dataset(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """The context of one dataset's section."""
    return {
        "name": name,
        "data": found["data"],
        "verdicts": found["verdicts"],
        "table1": [_table1_row(model, row) for model, row in found["table1"].items()],
        "paper_cells": _count_cells(found["table1"]),
        "figure1": _sweep_figures(found["figure1"]),
        "figure1_legend": legend(
            [("covered users", 0), ("all users, empty list = 0", 1), ("share of covered users", 2)]
        ),
        "figure2": _fixed_n_figure(found["figure2"]),
        "all_users": [_all_users_row(row) for row in found["all_users"]],
        "matched": [
            {"lists": f"{protocol.title(model)}, {name}", "difference": format_difference(row, "f1"), **row}
            for model in MATCHED_MODELS
            for name, rows in found["matched"][model].items()
            for row in rows
        ],
        "cutoffs": _cutoff_table(found["cutoffs"]),
        "risk": _risk_figure(found["risk"]),
        "distributions": _distribution_figures(found["distributions"]),
        "params": {
            protocol.title(model): ", ".join(f"{name} {value}" for name, value in params.items())
            for model, params in found["params"].items()
        },
        "strictness": [
            {"model": protocol.title(model), "biases": variant == "biased", **one}
            for model, variants in found["strictness"].items()
            for variant, one in variants.items()
        ],
    }


# ---------------------------------------------------------------------- tables
def significance_mark(row: dict[str, Any], metric: str) -> str:
    """+ or - for a significant difference."""
    if row.get(f"{metric}_p_holm", 1.0) > 0.05:
        return ""
    return "+" if row[f"{metric}_difference"] > 0 else "-"


def format_difference(row: dict[str, Any], metric: str) -> str:
    """Difference, interval and p; nothing for rows that were not compared."""
    if f"{metric}_p_holm" not in row:
        return ""
    low, high, p = (row[f"{metric}_{part}"] for part in ("low", "high", "p_holm"))
    return f"{row[f'{metric}_difference']:+.4f} [{low:+.4f}, {high:+.4f}], {p:.3f}"


def _table1_row(model: str, row: dict[str, Any]) -> dict[str, Any]:
    N = "K" if row["N"] is None else f"N = {_range(row['N'])}; NDCG: N = {_range(row['N_ndcg'])}"
    return row | {"model": protocol.title(model), "list_length": N, "cells": table1_cells(row)}


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _count_cells(table: dict[str, Any]) -> tuple[int, int]:
    """(F1 and NDCG cells at or above the paper's, all cells that the paper has)."""
    cells = [
        round(row[metric], 3) >= row["paper"][metric]
        for row in table.values()
        if row["paper"] is not None
        for metric in METRICS
    ]
    return sum(cells), len(cells)


def _all_users_row(row: dict[str, Any]) -> dict[str, Any]:
    baseline = row.get("baseline")
    return row | {
        "name": f"{protocol.title(row['model'])}, {row['lists']}",
        "marks": {metric: significance_mark(row, metric) for metric in METRICS},
        "baseline": "" if baseline is None else f"{protocol.title(baseline[0])}, {baseline[1]}",
        "difference": format_difference(row, "f1"),
    }


def _cutoff_table(found: dict[str, Any]) -> dict[str, Any]:
    """Column names, and for each ranking the F1 of each cutoff (None: not available)."""
    others = dict.fromkeys(name for lists in found.values() for name in lists)
    names = [FIXED, BOUNDARY, *(name for name in others if name not in (FIXED, BOUNDARY, ORACLE)), ORACLE]
    rows = {}
    for model, lists in found.items():
        best = max(row["f1"] for name, row in lists.items() if name != ORACLE)
        rows[protocol.title(model)] = [
            {
                "text": f"{lists[name]['f1']:.4f}{significance_mark(lists[name], 'f1')}",
                "best": lists[name]["f1"] == best and name != ORACLE,
            }
            if name in lists
            else {"text": "–", "best": False}
            for name in names
        ]
    return {"names": names, "rows": rows}


# ---------------------------------------------------------------------- figures
def _sweep_figures(sweeps: dict[str, Any]) -> list[str]:
    figures = []
    for name, sweep in sweeps.items():
        x, even, label = sweep["values"], name == "lambda_t", SYMBOLS[name]
        f1 = [Series("covered users", x, sweep["f1_covered"], 0), Series("all users", x, sweep["f1"], 1)]
        ndcg = [Series("covered users", x, sweep["ndcg_covered"], 0)]
        cover_ratio = [Series("covered users", x, sweep["cover_ratio"], 2)]
        figures += [
            line_chart(f"F1 by {label}", label, "F1 (mean over users)", f1, even=even),
            line_chart(f"NDCG by {label}", label, "NDCG (as in the paper)", ndcg, even=even),
            line_chart(f"Cover-Ratio by {label}", label, "share of users", cover_ratio, even=even, top=1.0),
        ]
    return figures


def _fixed_n_figure(curves: dict[str, Any]) -> str:
    models = [model for model in curves if model not in protocol.ORIGINAL]
    series = [
        Series(protocol.title(model), curves[model]["N"], curves[model]["f1"], k)
        for k, model in enumerate(models)
    ]
    chart = line_chart("F1 at N = 1 … 20", "N (list length of all users)", "F1 (mean over all users)", series)
    names = [
        (f"{protocol.title(model)} (validation: N = {curves[model]['best_N']})", k)
        for k, model in enumerate(models)
    ]
    return chart + legend(names)


def _risk_figure(found: dict[str, Any]) -> str:
    series, names = [], []
    for k, (model, lists) in enumerate(RISK_LISTS):
        one = found[model][lists]
        label = f"{protocol.title(model)}, {lists}"
        series.append(Series(label, one["coverage"], one["f1"], k))
        names.append((f"{label} (area {one['area']:.4f})", k))
    chart = line_chart(
        "F1 when only the most certain users get a list",
        "coverage (share of users with a list)",
        "F1 (mean over these users)",
        series,
    )
    return chart + legend(names)


def _distribution_figures(found: dict[str, Any]) -> list[str]:
    figures = []
    for model in protocol.ORIGINAL:
        boundaries, name = found[model]["boundaries"], protocol.title(model)
        title = f"{name}: t_u, sd {boundaries['sd']:.3f}"
        figures += [
            histogram_chart(title, "boundary t_u", "users", boundaries["edges"], boundaries["counts"]),
            length_chart(f"{name}: K", found[model]["K"][BOUNDARY], 1),
        ]
    return figures + [
        length_chart(f"{protocol.title(model)}: K by {EXPECTED_F1}", found[model]["K"][EXPECTED_F1], 2)
        for model in ("DKHRM", "PersonalFrequency")
    ]
