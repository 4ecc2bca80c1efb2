"""The table beyond the paper, and all tables of the variants as Markdown."""

from typing import NamedTuple

from shortlist.paper import protocol
from shortlist.paper.extensions import CALIBRATED, EXTENSIONS, FIXED_N, OWN
from shortlist.paper.protocol import METRICS
from shortlist.paper.readings import CAPS
from shortlist.paper.variant_table import (
    BIAS_NAMES,
    SELECTED_BY_F1,
    Row,
    cell,
    cell_text,
    compare_with_original,
    figures_of,
    finish_rows,
    paper_markdown,
    stack_runs,
    summarize_row,
)

EXTENDED_MODELS = {extension.model for extension in EXTENSIONS}


class Combination(NamedTuple):
    """Which rows stand for HRM, DK-BPRMF and DK-HRM; the other models are the paper's."""

    name: str
    lists: dict[str, str]  # kinds of lists of the dynamic models, and the metric each maximizes


COMBINATIONS = (Combination("F1-optimal boundary", OWN), Combination("calibrated length", CALIBRATED))


def summarize_extensions(paper: Row, paper_runs: list[Row], rows: list[Row], dataset: str) -> Row:
    """Rows with means, deviations and tests, and the cells reached if they stand for the paper's models.

    `paper` is the summary of the paper's models, `paper_runs` are its rows with all runs.
    """
    table = [summarize_row(row, stack_runs(row)) for row in rows]
    for row, summary in zip(rows, table, strict=True):
        if row["model"] in protocol.ORIGINAL:
            baseline = _find_original(row, [*rows, *paper_runs])
            summary["tests"] = compare_with_original(stack_runs(row), stack_runs(baseline))
    finish_rows(table, dataset)
    has_paper = dataset in protocol.TABLE
    return {
        "readings": paper["readings"],
        "rows": table,
        "cells": count_extended_cells(paper["rows"], table, paper["readings"]) if has_paper else [],
    }


def _find_original(row: Row, candidates: list[Row]) -> Row:
    """The top-N model that a dynamic one extends: with the same terms, or with the same item biases."""
    has_terms = "trend_half_life" in row["params"]
    return next(
        one
        for one in candidates
        if (one["model"], one["reading"]) == (protocol.ORIGINAL[row["model"]], row["reading"])
        and ("trend_half_life" in one["params"]) == has_terms
        and (has_terms or one["bias"] == row["bias"])
    )


# ---------------------------------------------------------------------- cells
def count_extended_cells(paper: list[Row], extended: list[Row], readings: list[str]) -> list[Row]:
    """F1 and NDCG cells at or above the paper's if the rows of a combination stand for their models."""
    found = []
    for combination in COMBINATIONS:
        for reading in readings:
            for bias in BIAS_NAMES:
                plain = [
                    row
                    for row in paper
                    if (row["reading"], row["bias"], row["kind"]) == (reading, bias, SELECTED_BY_F1)
                ]
                own = [row for row in extended if row["reading"] == reading]
                for own_setting in (False, True):
                    for cap in CAPS:
                        below, n_cells = _below(plain, own, combination, own_setting, cap)
                        found.append(
                            {
                                "combination": combination.name,
                                "reading": reading,
                                "bias": bias,
                                "own_N": own_setting,
                                "cap": cap,
                                "cells": n_cells,
                                "reached": n_cells - len(below),
                                "below": below,
                            }
                        )
    return found


def _below(
    plain: list[Row], extended: list[Row], combination: Combination, own: bool, cap: int
) -> tuple[list[str], int]:
    """(cells below the paper, number of cells)."""
    below = []
    for metric in METRICS:
        for row in plain:
            stands = find_standing(row, extended, combination, metric, own)
            if round(cell(stands, metric, own, cap), 3) < row["paper"][metric]:
                below.append(f"{protocol.title(row['model'])} {METRICS[metric]}")
    return below, len(METRICS) * len(plain)


def find_standing(row: Row, extended: list[Row], combination: Combination, metric: str, own: bool) -> Row:
    """The row that stands for a model: the paper's, or an extended one.

    With a setting of its own for NDCG, the lists that maximize NDCG stand for a dynamic model.
    """
    model = row["model"]
    if model not in EXTENDED_MODELS:
        return row
    maximized = metric if own else "f1"
    lists = next(name for name, one in combination.lists.items() if one == maximized)
    return next(
        one
        for one in extended
        if (one["model"], one["lists"]) == (model, lists if model in protocol.ORIGINAL else FIXED_N)
        and (model == "DKBPRMF" or "trend_half_life" in one["params"])
    )


# ---------------------------------------------------------------------- Markdown
def variants_markdown(results: Row) -> str:
    """Per dataset, the paper's models under every reading and the models beyond it, with cells reached."""
    settings, parts = results["settings"], []
    for name, found in results["datasets"].items():
        parts += [f"## {name}", "", *paper_markdown(found), ""]
        parts += [f"### {name}, beyond the paper", "", *extension_markdown(found["extended"]), ""]
        parts += _counts(found)
    users = "all users" if settings["users"] is None else f"a sample of {settings['users']:,} users"
    parts += [
        f"{settings['n_trials']} trials per model, with and without item biases each; "
        f"{settings['n_seeds']} seeds; {users}; rounds of {', '.join(map(str, settings['epochs']))} epochs. "
        f"Beyond the paper: {settings['n_extended']} trials per model, item biases are part of the search.",
        "",
        "Mean ± standard deviation over seeds; the paper's columns: covered users, NDCG against the ideal "
        "list of the same length. *: at or above the paper (three digits). ▲ better, ▼ worse than the "
        "model it extends at the N of F1 (bootstrap over seeds and users, Holm's correction over each "
        "table, p ≤ .05).",
    ]
    return "\n".join(parts) + "\n"


def _counts(found: Row) -> list[str]:
    """The cells of the best variant, for the paper's models and beyond."""
    if not found["cells"]:
        return []
    texts = [
        f"{name} {best_count(cells, CAPS[0])} cells with at most {CAPS[0]} items, "
        f"{best_count(cells, CAPS[1])} with at most {CAPS[1]}"
        for name, cells in (
            ("the paper's models", found["cells"]),
            ("with the rows beyond the paper", found["extended"]["cells"]),
        )
    ]
    return [f"At or above the paper in the best variant: {'; '.join(texts)}.", ""]


def extension_markdown(found: Row) -> list[str]:
    """The rows of all extensions, the readings side by side, and the cells."""
    readings = found["readings"]
    lines = [
        "| model | figure | paper | " + " | ".join(readings) + " |",
        "|---|---|---:|" + "---:|" * len(readings),
    ]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in found["rows"]:
        groups.setdefault((row["model"], row["extension"], row["lists"]), []).append(row)
    for (model, extension, lists), rows in groups.items():
        title = ", ".join(filter(None, (protocol.title(model), extension, lists)))
        for label, name, metric in figures_of(model):
            printed = rows[0]["paper"]
            paper = f"{printed[metric]:g}" if printed and metric is not None else ""
            cells = [cell_text(row, name, metric) for row in rows]
            lines.append("| " + " | ".join([title, label, paper, *cells]) + " |")
    return [*lines, "", *_cells_lines(found)] if found["cells"] else lines


def _cells_lines(found: Row) -> list[str]:
    """One line per combination, reading and bias of the other models."""
    lines = [
        "| rows of HRM, DK-BPRMF and DK-HRM | the other models | one N, at most 20 | one N, at most 100 "
        "| its own, at most 20 | its own, at most 100 | below, its own |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    by: dict[tuple[str, str, bool], list[Row]] = {}
    for one in found["cells"]:
        by.setdefault((one["combination"], one["reading"], one["bias"]), []).append(one)
    for (combination, reading, bias), ones in by.items():
        counts = " | ".join(f"{one['reached']} of {one['cells']}" for one in ones)
        below = "; ".join(
            f"at most {one['cap']}: {', '.join(one['below']) or '–'}" for one in ones if one["own_N"]
        )
        lines.append(f"| {combination} | {reading}, {BIAS_NAMES[bias]} | {counts} | {below} |")
    return lines


def list_extended_cells(found: Row) -> list[tuple[str, str]]:
    """(name, cells at or above the paper) with a setting of its own for NDCG and lists of any length."""
    return [
        (
            f"{one['combination']}; {one['reading']}, {BIAS_NAMES[one['bias']]}, at most {one['cap']}",
            f"{one['reached']} of {one['cells']}",
        )
        for one in found["cells"]
        if one["own_N"]
    ]


def best_count(cells: list[Row], cap: int) -> str:
    """The most cells that one variant reaches with lists of at most this length."""
    best = max((one for one in cells if one["cap"] == cap), key=lambda one: one["reached"])
    return f"{best['reached']} of {best['cells']}"
