"""The reproduction's files: one HTML page, and Table 1 under every reading as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from shortlist.core.charts import Series, legend, line_chart
from shortlist.core.tables import markdown
from shortlist.paper import protocol
from shortlist.paper.protocol import (
    BIASED_SWEEP,
    BIASES,
    CAPS,
    COVERED,
    FAILS,
    HARMONIC,
    HOLDS,
    MAX_ITEMS,
    METRICS,
    NEGATIVE_SAMPLING,
    ORIGINAL,
    P_LEVEL,
)
from shortlist.reports.page import render

NAMES = {"ml-100k": "MovieLens 100K", "ta-feng": "Ta-Feng", "sample": "Generated sample"}
CLASSES = {HOLDS: "good", COVERED: "part", FAILS: "bad"}
SYMBOLS = {"t": "t", "lambda_t": "λ_t", "alpha": "α", BIASED_SWEEP: "t, with item biases"}
BIAS_NAMES = {True: "with item biases", False: "without item biases", None: "biases chosen on validation"}
F1_NAMES = {"f1": "mean of the users' F1", HARMONIC: "harmonic F1"}
N_NAMES = {True: "each metric's own N or setting", False: "one N or setting"}
BEST_COLUMNS = ("reading of F1", "the rest of the reading", "cells at or above the paper", "distance")
Row = dict[str, Any]
Line = tuple[str, str, str, str | None]  # label, figure, what selects the settings, the paper's figure


# ---------------------------------------------------------------------- Markdown
def pipe_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table of texts, as lines."""
    return markdown(pl.DataFrame(list(rows), schema=list(columns), orient="row")).splitlines()


def render_tables(results: Row) -> str:
    """The best readings, and per dataset the models under every reading."""
    settings, lines = results["settings"], []
    if results["best"]:
        lines += ["## Readings that come closest to the paper", "", *best_table(results["best"]), ""]
    for name, tables in results["datasets"].items():
        lines += [f"## {NAMES[name]}", "", *_paper_table(tables), ""]
        if tables["cells"]:
            lines += [*_cells_table(tables["cells"]), ""]
    users = "all users" if settings["users"] is None else f"a sample of {settings['users']:,} users"
    lines += [
        f"{settings['n_trials']} trials per model, with and without item biases each; "
        f"{settings['n_seeds']} seeds; {users}; rounds of {', '.join(map(str, settings['epochs']))} epochs.",
        "",
        "Mean ± standard deviation over seeds; the paper's columns: covered users, NDCG against the ideal "
        "list of the same length. Harmonic F1: the harmonic mean of the mean precision and the mean recall. "
        "*: at or above the paper (three digits). ▲ better, ▼ worse than the model it extends (bootstrap "
        "over seeds and users, Holm's correction over the table, p ≤ .05). Distance: geometric mean of the "
        "ratio to the paper's figure, above or below, minus 1.",
    ]
    return "\n".join(lines) + "\n"


def best_rows(best: Row) -> list[list[str]]:
    """For each F1, the single reading of all datasets with the most cells, and the closest one, in words."""
    return [
        [
            F1_NAMES[row["f1"]] + name[name.index(",") :],
            name_variant(row),
            f"{row['reached']} of {row['cells']}",
            f"{row['distance']:.0%}",
        ]
        for name, row in best.items()
    ]


def best_table(best: Row) -> list[str]:
    """The same as Markdown, with the figures of each dataset."""
    each = [
        "; ".join(
            f"{NAMES[dataset]} ({part['reading']}): {part['reached']}, {part['distance']:.0%}"
            for dataset, part in row["datasets"].items()
        )
        for row in best.values()
    ]
    rows = [[*cells, text] for cells, text in zip(best_rows(best), each, strict=True)]
    return pipe_table([*BEST_COLUMNS, "each"], rows)


def name_variant(row: Row) -> str:
    """The rest of a reading in words: loss of HRM, biases, N, longest list."""
    loss = ["HRM by negative sampling"] if row["loss"] == NEGATIVE_SAMPLING else []
    return ", ".join([*loss, BIAS_NAMES[row["bias"]], N_NAMES[row["own_N"]], f"at most {row['cap']}"])


def _paper_table(tables: Row) -> list[str]:
    """The paper's models, the variants side by side."""
    variants = [(reading, bias) for reading in tables["readings"] for bias in BIASES]
    names = ("model", "loss", "selected_by", "reading", "bias")
    by = {tuple(row[name] for name in names): row for row in tables["rows"]}
    rows = []
    for model, loss in protocol.SPACES:
        title = protocol.title(model) + (f", {loss}" if loss == NEGATIVE_SAMPLING else "")
        for label, name, metric, printed in figures_of(model):
            columns = [by[model, loss, metric, *variant] for variant in variants]
            paper = columns[0]["paper"]
            text = f"{paper[printed]:g}" if paper and printed is not None else ""
            rows.append([title, label, text, *(variant_cell(row, name, printed) for row in columns)])
    columns = [f"{reading}, {BIAS_NAMES[bias]}" for reading, bias in variants]
    return pipe_table(["model", "figure", "paper", *columns], rows)


def figures_of(model: str) -> list[Line]:
    """The lines of a model, each from the row that its measure selects."""
    if model not in ORIGINAL:
        return [
            ("F1", "f1", "f1", "f1"),
            ("harmonic F1", HARMONIC, HARMONIC, "f1"),
            ("NDCG, N of F1", "ndcg", "f1", "ndcg"),
            ("NDCG, its own N", "ndcg_own", "f1", "ndcg"),
        ]
    lines: list[Line] = [("Cover-Ratio", "cover_ratio", "f1", "cover_ratio")]
    for cap in CAPS:
        lines += [
            (f"F1, at most {cap}", f"f1_{cap}", "f1", "f1"),
            (f"harmonic F1, at most {cap}", f"{HARMONIC}_{cap}", HARMONIC, "f1"),
            (f"NDCG, at most {cap}", f"ndcg_{cap}", "f1", "ndcg"),
            (f"NDCG, at most {cap}, setting of its own", f"ndcg_{cap}", "ndcg", "ndcg"),
        ]
    return [*lines, (f"F1 of all users, at most {MAX_ITEMS}", f"f1_all_{MAX_ITEMS}", "f1", None)]


def variant_cell(row: Row, name: str, metric: str | None) -> str:
    """A figure with its deviation and marks."""
    figure, printed = row["figures"][name], row["paper"]
    digits = 2 if name == "cover_ratio" else 4 if name.startswith(("f1", HARMONIC)) else 3
    text = f"{figure['mean']:.{digits}f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.{digits}f}")
    if metric in METRICS and printed is not None and round(figure["mean"], 3) >= printed[metric]:
        text += " *"
    return text + _mark(row.get("tests", {}).get(name))


def _mark(test: Row | None) -> str:
    if test is None or test["p_holm"] > P_LEVEL:
        return ""
    return " ▲" if test["difference"] > 0 else " ▼"


def _cells_table(cells: list[Row]) -> list[str]:
    """For each F1, reading and longest list, the variant with the most cells and the closest one."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in cells:
        groups.setdefault((row["f1"], row["reading"], row["cap"]), []).append(row)
    rows = []
    for (measure, reading, _), group in groups.items():
        most = max(group, key=lambda row: (row["reached"], -row["distance"]))
        closest = min(group, key=lambda row: row["distance"])
        for name, row in (("most cells", most), ("closest", closest)):
            rows.append(
                [
                    f"{F1_NAMES[measure]}; {reading}: {name}",
                    name_variant(row),
                    f"{row['reached']} of {row['cells']}",
                    f"{row['distance']:.0%}",
                    ", ".join(row["below"]) or "–",
                ]
            )
    columns = ["reading", "variant", "cells at or above the paper", "distance", "below"]
    return pipe_table(columns, rows)


# ---------------------------------------------------------------------- page
def render_reproduction(results: Row, machine: Row) -> str:
    """The page as text; it loads nothing and runs no scripts."""
    return render(
        "reproduction.html.j2",
        settings=results["settings"],
        machine=machine,
        best=best_rows(results["best"]),
        datasets=[_dataset(NAMES.get(name, name), tables) for name, tables in results["datasets"].items()],
        classes=CLASSES,
    )


def _dataset(name: str, tables: Row) -> Row:
    """The context of one dataset's section."""
    claims = tables["claims"]
    return {
        "name": name,
        "data": tables["data"],
        "reading": tables["readings"][0],
        "verdicts": claims["verdicts"],
        "table1": [_table1_row(claims, tables["rows"][at]) for at in claims["chosen"].values()],
        "figure1": _sweep_figures(claims["figure1"]),
        "figure1_legend": legend(
            [("covered users", 0), ("all users, empty list = 0", 1), ("share of covered users", 2)]
        ),
        "figure2": _fixed_n_figure(claims["figure2"]),
        "params": {
            protocol.title(model): ", ".join(
                f"{name} {value}" for name, value in tables["rows"][at]["params"].items()
            )
            for model, at in claims["chosen"].items()
        },
    }


def _table1_row(claims: Row, row: Row) -> Row:
    """F1, harmonic F1, Cover-Ratio and NDCG beside the paper's, and F1 over all users."""
    model, paper = row["model"], row["paper"]
    is_dynamic = model in ORIGINAL
    cap = f"_{MAX_ITEMS}" if is_dynamic else ""
    tests = claims["tests"][f"{model} – {ORIGINAL[model]}"] if is_dynamic else {}
    cells = []
    for name, column, digits in (
        ("f1", "f1", 4),
        (HARMONIC, "f1", 4),
        ("ndcg", "ndcg", 3),
    ):
        figure = row["figures"]["ndcg_own" if name == "ndcg" and not is_dynamic else f"{name}{cap}"]["mean"]
        printed = "" if paper is None else f" ({paper[column]:.3f})"
        cells.append(f"{figure:.{digits}f}{printed}{_mark(tests.get(f'{name}_covered'))}")
    everyone = row["figures"][f"f1_all{cap}" if is_dynamic else "f1"]["mean"]
    return {
        "model": protocol.title(model),
        "list_length": "K" if is_dynamic else f"N = {row['N']['f1']}; NDCG: N = {row['N']['ndcg']}",
        "cells": cells,
        "cover_ratio": row["figures"]["cover_ratio"]["mean"] if is_dynamic else 1.0,
        "all_users": f"{everyone:.4f}{_mark(tests.get('f1'))}",
    }


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
    series = [
        Series(protocol.title(model), curve["N"], curve["f1"], k)
        for k, (model, curve) in enumerate(curves.items())
    ]
    chart = line_chart("F1 at N = 1 … 20", "N (list length of all users)", "F1 (mean over all users)", series)
    names = [
        (f"{protocol.title(model)} (validation: N = {curve['best_N']})", k)
        for k, (model, curve) in enumerate(curves.items())
    ]
    return chart + legend(names)
