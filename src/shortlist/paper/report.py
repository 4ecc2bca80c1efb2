"""The report: one HTML file with its figures inside, and the Markdown table for a README."""

from collections.abc import Sequence
from html import escape
from typing import Any

from shortlist.core import charts
from shortlist.paper import paper
from shortlist.paper.figures import figure1, figure2, risk_figure, spread_figure
from shortlist.paper.runs import FIXED, ORACLE, OWN
from shortlist.paper.verdicts import COVERED, FAILS, HOLDS, METRIC
from shortlist.reports.page import difference, html_table, mark, or_dash, page, share

TITLE = "Dynamic-K recommendation with personalised decision boundary, reproduced"
NAMES = {"ml-100k": "MovieLens 100K", "ta-feng": "Ta-Feng", "sample": "The generated sample"}
VARIANTS = {"plain": "without", "biased": "with"}
CLASS = {HOLDS: "holds", COVERED: "part", FAILS: "fails"}


def html_report(results: dict[str, Any], machine: dict[str, Any]) -> str:
    """One page that needs nothing else."""
    settings = results["settings"]
    users = f", {settings['users']:,} users at most" if settings["users"] else ""
    head = (
        "<p>Everything is chosen on each user's last basket before the test, and the test is looked at once. "
        "<em>Covered users</em> leaves out users with an empty list, as the paper does; <em>all users</em> "
        "counts an empty list as 0.</p>"
        f"<p class='quiet'>shortlist {machine['shortlist']}; {settings['seeds']} seeds from "
        f"{settings['seed']}; {settings['n_trials']} trials per model, at most {settings['n_epochs']} epochs"
        f"{users}; Python {machine['python']}, "
        + ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
        + f"; {machine['system']}, {machine['cores']} cores.</p>"
    )
    body = head + "".join(_dataset(name, found) for name, found in results["datasets"].items())
    return page(TITLE, charts.STYLE, body)


def markdown_table(results: dict[str, Any]) -> str:
    """Table 1 with the paper's numbers in brackets, and the same lists judged over all users."""
    names = list(results["datasets"])
    heads = [
        f"{NAMES[n]} {column}" for n in names for column in ("F1", "Cover-Ratio", "NDCG", "F1, all users")
    ]
    lines = [
        "| model (paper's numbers in brackets) | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(heads),
    ]
    for model in paper.MODELS:
        cells = []
        for name in names:
            found = results["datasets"][name]
            cells += [*_cells(found["table1"][model]), f"{_all_users(found, model):.4f}"]
        lines.append(f"| {paper.title(model)} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "F1, Cover-Ratio, NDCG: covered users only, as the paper counts; + better, - worse than the model it "
        "extends (bootstrap over users, p ≤ 0.05). Last column: all users, an empty list counts 0.",
    ]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    """F1, Cover-Ratio and NDCG, each with the paper's number where there is one."""
    cells = []
    for column, digits in (("f1", 4), ("cover", 2), ("ndcg", 3)):
        said = "" if row["paper"] is None else f" ({row['paper'][column]:g})"
        cells.append(f"{row[column]:.{digits}f}{row.get(f'{column}_mark', '')}{said}")
    return cells


def _all_users(found: dict[str, Any], model: str) -> float:
    name = OWN if model in paper.ORIGINAL else FIXED
    figure: float = found["deciders"][model][name]["f1"]
    return figure


# ---------------------------------------------------------------------- one dataset
def _dataset(name: str, found: dict[str, Any]) -> str:
    about = found["about"]
    parts = [
        f"<h2>{escape(NAMES.get(name, name))}</h2>",
        f"<p class='quiet'>{about['rows']:,} rows, {about['users']:,} users, {about['items']:,} items; "
        f"tested on {about['test_users']:,} users and {about['test_rows']:,} rows; "
        f"seen items {about['seen_items']}.</p>",
        "<h3>What of the paper holds</h3>",
        _verdicts(found["verdicts"]),
        "<h3>Table 1: the paper's columns (covered users)</h3>",
        _table1(found["table1"]),
        "<h3>Figure 1: DK-HRM with one parameter moved at a time</h3>",
        figure1(found["figure1"]),
        "<h3>Figure 2: F1 of the top N</h3>",
        figure2(found["figure2"]),
        "<h3>The fair table: all users</h3>",
        _fair(found["fair"]),
        "<h3>Matched comparisons: the same ranking at fixed length, on equal terms</h3>",
        _matched(found["matched"]),
        "<h3>Every decider on every ranking (F1, all users)</h3>",
        _deciders(found["deciders"]),
        "<h3>Serving only the users one is sure about</h3>",
        risk_figure(found["risk"]),
        "<h3>How far boundaries and lengths scatter</h3>",
        spread_figure(found["spread"]),
        "<h3>Parameters</h3>",
        _parameters(found),
    ]
    return "".join(parts)


def _verdicts(rows: Sequence[dict[str, str]]) -> str:
    body = [
        [
            escape(row["claim"]),
            f"<span class='{CLASS[row['verdict']]}'>{row['verdict']}</span>",
            escape(row["numbers"]),
        ]
        for row in rows
    ]
    return html_table(["claim of the paper", "verdict", "numbers"], body, text=(1, 2))


def _table1(table: dict[str, Any]) -> str:
    rows = []
    above = cells = 0
    for model, row in table.items():
        N = "K" if row["N"] is None else f"N = {_few(row['N'])}; for NDCG {_few(row['N_ndcg'])}"
        rows.append([paper.title(model), N, *_cells(row), f"{row['length']:.1f}", or_dash(row["f1_sd"], 4)])
        if row["paper"] is not None:
            cells += 2
            above += sum(round(row[each], 3) >= row["paper"][each] for each in METRIC)
    heads = [
        "model",
        "length",
        "F1 (paper)",
        "Cover-Ratio (paper)",
        "NDCG (paper)",
        "items shown",
        "sd of F1",
    ]
    count = f" At or above the paper: {above} of {cells} F1 and NDCG cells." if cells else ""
    note = (
        "+ better, - worse than the model it extends: covered users against all users of the original, "
        "bootstrap over users, p ≤ 0.05. sd: over seeds. N is chosen on validation, for each metric its "
        f"own.{count}"
    )
    return html_table(heads, rows) + f"<p class='quiet'>{note}</p>"


def _few(values: Sequence[int]) -> str:
    """The lengths that seeds chose."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _fair(rows: Sequence[dict[str, Any]]) -> str:
    body = []
    for row in rows:
        against = "" if "against" not in row else f"{paper.title(row['against'][0])}, {row['against'][1]}"
        body.append(
            [
                f"{paper.title(row['model'])}, {row['lists']}",
                f"{row['f1']:.4f}{mark(row, 'f1')}",
                f"{row['ndcg']:.4f}{mark(row, 'ndcg')}",
                f"{row['f1_covered']:.4f}",
                f"{row['cover']:.2f}",
                f"{row['length']:.1f}",
                share(row["gap"]),
                escape(against),
                difference(row, "f1"),
            ]
        )
    heads = ["lists", "F1", "NDCG", "F1 covered", "Cover-Ratio", "items shown", "gap to oracle"]
    note = (
        "Means over all users; NDCG with a normaliser fixed per user. + better, - worse than the lists named "
        "under “against”: paired bootstrap over users, Holm's p ≤ 0.05. Gap: share of the way from the same "
        "ranking's fixed N to the best length in hindsight."
    )
    made = html_table([*heads, "against", "difference in F1 [95%], p"], body)
    return f"{made}<p class='quiet'>{note}</p>"


def _matched(found: dict[str, Any]) -> str:
    body = [
        [
            f"{paper.title(model)}, {name}",
            escape(row["rival"]),
            f"{row['ours']:.4f}",
            f"{row['f1']:.4f}",
            f"{row['cover']:.2f}",
            f"{row['length']:.1f}",
            difference(row, "f1"),
        ]
        for model in ("DKBPRMF", "DKHRM", "HRM", "PersonalFrequency")
        for name, rows in found[model].items()
        for row in rows
    ]
    heads = [
        "lists",
        "fixed-N rival",
        "F1",
        "rival's F1",
        "rival's cover",
        "rival's items",
        "difference [95%], p",
    ]
    note = (
        "For “same users” both F1 are means over those users; differences are over all users. "
        "The other rankings are in results.json."
    )
    return html_table(heads, body, text=(1,)) + f"<p class='quiet'>{note}</p>"


def _deciders(found: dict[str, Any]) -> str:
    others = dict.fromkeys(name for lists in found.values() for name in lists)
    names = [FIXED, OWN, *(name for name in others if name not in (FIXED, OWN, ORACLE)), ORACLE]
    body = []
    for model, lists in found.items():
        best = max(row["f1"] for name, row in lists.items() if name != ORACLE)
        cells = []
        for name in names:
            if name not in lists:
                cells.append("–")
                continue
            row = lists[name]
            text = f"{row['f1']:.4f}{mark(row, 'f1')}"
            cells.append(f"<strong>{text}</strong>" if row["f1"] == best and name != ORACLE else text)
        body.append([paper.title(model), *cells])
    note = (
        "+ better, - worse than the same ranking's fixed N (paired bootstrap over users, Holm over this "
        "table). Bold: best of a row. The oracle knows the answer."
    )
    return html_table(["ranking", *map(escape, names)], body) + f"<p class='quiet'>{note}</p>"


def _parameters(found: dict[str, Any]) -> str:
    rows = [
        [paper.title(model), escape(", ".join(f"{name} {value}" for name, value in params.items()))]
        for model, params in found["params"].items()
    ]
    strict = "; ".join(
        f"{paper.title(model)} {VARIANTS[name]} item biases: negatives {one['negatives']:g} covers "
        f"{one['cover']:.2f} of validation users (the paper: {one['target']:.2f} of test users)"
        for model, tried in found["strictness"].items()
        for name, one in tried.items()
    )
    note = f"Strictness of the boundary, chosen on validation. {strict}."
    return html_table(["model", "parameters"], rows, text=(1,)) + f"<p class='quiet'>{note}</p>"
