"""The reproduction's files: one HTML page, Table 1 and the variants as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from shortlist.core.charts import Series, histogram_chart, legend, length_chart, line_chart
from shortlist.core.tables import markdown
from shortlist.paper import protocol
from shortlist.paper.protocol import (
    BIASES,
    BOUNDARY,
    CAPS,
    COVERED,
    EXPECTED_F1,
    FAILS,
    FIXED,
    HARMONIC,
    HOLDS,
    METRICS,
    ORACLE,
    P_LEVEL,
    TOLERANCE,
    UNIFORM,
)
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
BIAS_NAMES = {True: "with item biases", False: "without item biases"}
N_NAMES = {True: "each metric's own N or setting", False: "one N or setting"}
Row = dict[str, Any]


# ---------------------------------------------------------------------- Markdown
def pipe_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table of texts, as lines."""
    return markdown(pl.DataFrame(list(rows), schema=list(columns), orient="row")).splitlines()


def markdown_table(results: Row) -> str:
    """Table 1 with the paper's numbers in brackets, and F1 of the same lists over all users."""
    datasets = results["datasets"]
    columns = ["model (paper's numbers in brackets)"]
    columns += [
        f"{NAMES[name]} {text}"
        for name in datasets
        for text in ("F1", "Cover-Ratio", "NDCG", "F1, all users")
    ]
    rows = []
    for model in protocol.MODELS:
        cells = [protocol.title(model)]
        for found in datasets.values():
            f1 = found["cutoffs"][model][protocol.headline(model)]["f1"]
            cells += [*table1_cells(found["table1"][model]), f"{f1:.4f}"]
        rows.append(cells)
    note = (
        "F1, Cover-Ratio, NDCG: covered users only, as in the paper; + better, - worse than the model it "
        "extends (bootstrap over users, p ≤ 0.05). Last column: all users, an empty list counts as 0."
    )
    return "\n".join([*pipe_table(columns, rows), "", note]) + "\n"


def variants_markdown(results: Row) -> str:
    """Per dataset, the paper's models under every reading and the models beyond it, with cells reached."""
    settings, lines = results["settings"], []
    for name, found in results["datasets"].items():
        extended = found["extended"]
        lines += [f"## {name}", "", *_paper_table(found), "", *_cells_table(found["cells"]), ""]
        lines += [f"### {name}, beyond the paper", "", *_extension_table(extended), ""]
        if found["cells"]:
            lines += [*_extended_cells_table(extended["cells"]), ""]
            texts = [
                f"{text} {best_count(cells, CAPS[0])} cells with at most {CAPS[0]} items, "
                f"{best_count(cells, CAPS[1])} with at most {CAPS[1]}"
                for text, cells in (
                    ("the paper's models", found["cells"]),
                    ("with the rows beyond the paper", extended["cells"]),
                )
            ]
            lines += [f"At or above the paper in the best variant: {'; '.join(texts)}.", ""]
    users = "all users" if settings["users"] is None else f"a sample of {settings['users']:,} users"
    lines += [
        f"{settings['n_trials']} trials per model, with and without item biases each; "
        f"{settings['n_seeds']} seeds; {users}; rounds of {', '.join(map(str, settings['epochs']))} epochs. "
        f"Beyond the paper: {settings['n_extended']} trials per model, item biases are part of the search.",
        "",
        "Mean ± standard deviation over seeds; the paper's columns: covered users, NDCG against the ideal "
        "list of the same length. Harmonic F1: the harmonic mean of the mean precision and the mean recall. "
        "*: at or above the paper (three digits). ▲ better, ▼ worse than the "
        "model it extends at the N of F1 (bootstrap over seeds and users, Holm's correction over each "
        "table, p ≤ .05).",
    ]
    return "\n".join(lines) + "\n"


def _paper_table(found: Row) -> list[str]:
    """The paper's models, the variants side by side."""
    variants = [(reading, bias) for reading in found["readings"] for bias in BIASES]
    by = {(row["model"], row["kind"], row["reading"], row["bias"]): row for row in found["rows"]}
    rows = []
    for model in protocol.MODELS:
        for kind in protocol.kinds_of(model):
            if (model, kind, *variants[0]) in by:  # results of 0.2 have no rows selected by harmonic F1
                rows += _figure_rows([by[model, kind, *variant] for variant in variants], kind)
    columns = [f"{reading}, {BIAS_NAMES[bias]}" for reading, bias in variants]
    return pipe_table(["model", "figure", "paper", *columns], rows)


def _extension_table(found: Row) -> list[str]:
    """The models beyond the paper, the readings side by side."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in found["rows"]:
        groups.setdefault((row["model"], row["extension"], row["lists"]), []).append(row)
    rows = [cells for (_, *names), group in groups.items() for cells in _figure_rows(group, *names)]
    return pipe_table(["model", "figure", "paper", *found["readings"]], rows)


def _figure_rows(rows: list[Row], *names: str) -> list[list[str]]:
    """One line per figure of a model; `rows` are the columns. Uniform sampling is not the paper's setting."""
    model, printed = rows[0]["model"], rows[0]["paper"]
    title = ", ".join(filter(None, (protocol.title(model), *names)))
    lines = []
    for label, name, metric in figures_of(model):
        if name not in rows[0]["figures"]:  # results of 0.2 have no harmonic F1
            continue
        metric = None if UNIFORM in names else metric
        paper = f"{printed[metric]:g}" if printed and metric is not None else ""
        lines.append([title, label, paper, *(variant_cell(row, name, metric) for row in rows)])
    return lines


def figures_of(model: str) -> list[tuple[str, str, str | None]]:
    """(label, name of the figure, the paper's figure beside it) of every row of a model."""
    if model not in protocol.ORIGINAL:
        return [
            ("F1", "f1", "f1"),
            ("NDCG, N of F1", "ndcg", "ndcg"),
            ("NDCG, its own N", "ndcg_own", "ndcg"),
            ("harmonic F1, its own N", HARMONIC, "f1"),
        ]
    rows: list[tuple[str, str, str | None]] = [("Cover-Ratio", "cover_ratio", "cover_ratio")]
    for cap in CAPS:
        rows += [(f"F1, at most {cap}", f"f1_{cap}", "f1"), (f"NDCG, at most {cap}", f"ndcg_{cap}", "ndcg")]
        rows += [(f"harmonic F1, at most {cap}", f"{HARMONIC}_{cap}", "f1")]
    return [*rows, (f"F1 of all users, at most {CAPS[0]}", f"f1_all_{CAPS[0]}", None)]


def variant_cell(row: Row, name: str, metric: str | None) -> str:
    """A figure with its deviation and marks."""
    figure, printed = row["figures"][name], row["paper"]
    digits = 2 if name == "cover_ratio" else 4 if name.startswith(("f1", HARMONIC)) else 3
    text = f"{figure['mean']:.{digits}f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.{digits}f}")
    if metric in METRICS and printed is not None and round(figure["mean"], 3) >= printed[metric]:
        text += " *"
    if metric == "cover_ratio" and printed is not None:
        reached = row["valid"]["cover_ratio"]
        text += f" (validation {reached:.2f})" if abs(reached - printed["cover_ratio"]) > TOLERANCE else ""
    test = row.get("tests", {}).get(name)
    if test is not None and test["p_holm"] <= P_LEVEL:
        text += " ▲" if test["difference"] > 0 else " ▼"
    return text


def _cells_table(cells: list[Row]) -> list[str]:
    if not cells:
        return []
    rows = [
        (*texts, _distance(row), ", ".join(row["below"]) or "–")
        for texts, row in zip(list_cells(cells), cells, strict=True)
    ]
    return pipe_table(["variant", "cells at or above the paper", "mean distance", "below"], rows)


def _distance(row: Row) -> str:
    """How far the cells are from the paper's, above or below: the geometric mean ratio minus 1."""
    distance = row.get("distance")
    return "" if distance is None else f"{distance:.0%}"


def _extended_cells_table(cells: list[Row]) -> list[str]:
    """One line per combination, reading and bias of the other models."""
    by: dict[tuple[str, str, bool], list[Row]] = {}
    for row in cells:
        by.setdefault((row["combination"], row["reading"], row["bias"]), []).append(row)
    lines = []
    for (combination, reading, bias), rows in by.items():
        below = "; ".join(
            f"at most {row['cap']}: {', '.join(row['below']) or '–'}" for row in rows if row["own_N"]
        )
        counts = [f"{row['reached']} of {row['cells']}" for row in rows]
        lines.append([combination, f"{reading}, {BIAS_NAMES[bias]}", *counts, below])
    columns = [f"{text}, at most {cap}" for text in ("one N", "its own") for cap in CAPS]
    names = ["rows of HRM, DK-BPRMF and DK-HRM", "the other models"]
    return pipe_table([*names, *columns, "below, its own"], lines)


def list_cells(cells: list[Row]) -> list[tuple[str, str]]:
    """(name of the variant, cells at or above the paper) of every variant.

    Of the rows beyond the paper, only those with a setting of its own for NDCG.
    """
    return [
        (
            (f"{row['combination']}; " if "combination" in row else "")
            + f"{row['reading']}, {BIAS_NAMES[row['bias']]}, "
            + ("" if "combination" in row else f"{N_NAMES[row['own_N']]}, ")
            + f"at most {row['cap']}"
            + (", harmonic F1" if row.get("f1") == HARMONIC else ""),
            f"{row['reached']} of {row['cells']}",
        )
        for row in cells
        if row["own_N"] or "combination" not in row
    ]


def best_count(cells: list[Row], cap: int) -> str:
    """The most cells that one variant reaches with lists of at most this length."""
    best = max((row for row in cells if row["cap"] == cap), key=lambda row: row["reached"])
    return f"{best['reached']} of {best['cells']}"


# ---------------------------------------------------------------------- page
def render_reproduction(results: Row, machine: Row) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    return render(
        "reproduction.html.j2",
        settings=results["settings"],
        machine=machine,
        datasets=[_dataset(NAMES.get(name, name), found) for name, found in results["datasets"].items()],
        classes=CLASSES,
    )


def table1_cells(row: Row) -> list[str]:
    """F1, Cover-Ratio and NDCG, each with the paper's number if there is one."""
    cells = []
    for column, digits in (("f1", 4), ("cover_ratio", 2), ("ndcg", 3)):
        printed = "" if row["paper"] is None else f" ({row['paper'][column]:g})"
        cells.append(f"{row[column]:.{digits}f}{row.get(f'{column}_mark', '')}{printed}")
    return cells


def _dataset(name: str, found: Row) -> Row:
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
            {"model": protocol.title(model), "biases": variant == "biased", **reached}
            for model, variants in found["strictness"].items()
            for variant, reached in variants.items()
        ],
    }


# ---------------------------------------------------------------------- tables
def significance_mark(row: Row, metric: str) -> str:
    """+ or - for a significant difference."""
    if row.get(f"{metric}_p_holm", 1.0) > P_LEVEL:
        return ""
    return "+" if row[f"{metric}_difference"] > 0 else "-"


def format_difference(row: Row, metric: str) -> str:
    """Difference, interval and p; nothing for rows that were not compared."""
    if f"{metric}_p_holm" not in row:
        return ""
    low, high, p = (row[f"{metric}_{name}"] for name in ("low", "high", "p_holm"))
    return f"{row[f'{metric}_difference']:+.4f} [{low:+.4f}, {high:+.4f}], {p:.3f}"


def _table1_row(model: str, row: Row) -> Row:
    N = "K" if row["N"] is None else f"N = {_range(row['N'])}; NDCG: N = {_range(row['N_ndcg'])}"
    return row | {"model": protocol.title(model), "list_length": N, "cells": table1_cells(row)}


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _count_cells(table: Row) -> tuple[int, int]:
    """(F1 and NDCG cells at or above the paper's, all cells that the paper has)."""
    cells = [
        round(row[metric], 3) >= row["paper"][metric]
        for row in table.values()
        if row["paper"] is not None
        for metric in METRICS
    ]
    return sum(cells), len(cells)


def _all_users_row(row: Row) -> Row:
    baseline = row.get("baseline")
    return row | {
        "name": f"{protocol.title(row['model'])}, {row['lists']}",
        "marks": {metric: significance_mark(row, metric) for metric in METRICS},
        "baseline": "" if baseline is None else f"{protocol.title(baseline[0])}, {baseline[1]}",
        "difference": format_difference(row, "f1"),
    }


def _cutoff_table(found: Row) -> Row:
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
def _sweep_figures(sweeps: Row) -> list[str]:
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


def _fixed_n_figure(curves: Row) -> str:
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


def _risk_figure(found: Row) -> str:
    series, names = [], []
    for k, (model, lists) in enumerate(RISK_LISTS):
        curve = found[model][lists]
        label = f"{protocol.title(model)}, {lists}"
        series.append(Series(label, curve["coverage"], curve["f1"], k))
        names.append((f"{label} (area {curve['area']:.4f})", k))
    chart = line_chart(
        "F1 when only the most certain users get a list",
        "coverage (share of users with a list)",
        "F1 (mean over these users)",
        series,
    )
    return chart + legend(names)


def _distribution_figures(found: Row) -> list[str]:
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
