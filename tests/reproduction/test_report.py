"""The stored reproduction: its pages follow from its results, and the documentation states its findings."""

import json
import re
from pathlib import Path

import pytest

from reproduction.findings import added_readings, best_variants, count_cells
from reproduction.protocol import PAPER
from reproduction.report import figure_cell, name_variant, render

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stored():
    return json.loads((ROOT / "results" / "results.json").read_text(encoding="utf-8"))


def test_the_stored_table_follows_from_the_stored_results(stored):
    table = (ROOT / "results" / "table.md").read_text(encoding="utf-8")
    assert render("table.md.j2", stored) == table


def test_the_stored_page_has_the_table_and_the_figures_of_the_stored_results(stored):
    """It was written by release 0.2, with a verdict on every claim; the cells and charts are the same."""
    machine = json.loads((ROOT / "results" / "machine.json").read_text(encoding="utf-8"))
    old = (ROOT / "results" / "report.html").read_text(encoding="utf-8")
    new = render("report.html.j2", stored, machine=machine)
    for pattern in (
        "<figure.*?</figure>",
        "<h3>Table 1.*?</table>",
        "<h3>Parameters.*?</table>",
        "<h2>.*?</p>",
    ):
        expected, found = (
            [part.replace("\n", "") for part in re.findall(pattern, page, re.DOTALL)] for page in (old, new)
        )
        assert found == expected
        assert len(found) >= 2


def test_stored_counts_follow_from_the_stored_rows(stored):
    for found in stored["datasets"].values():
        counted = count_cells(found["rows"], found["readings"])
        assert counted == found["cells"]
    cells = {name: found["cells"] for name, found in stored["datasets"].items()}
    assert best_variants(cells) == stored["best"]
    assert set(cells) == set(PAPER)


def test_the_page_has_the_stored_verdicts(stored):
    page = (ROOT / "reproduction" / "README.md").read_text(encoding="utf-8")
    verdicts = [
        {row["claim"].rstrip("."): row["verdict"] for row in stored["datasets"][name]["claims"]["verdicts"]}
        for name in PAPER
    ]
    assert len(verdicts[1]) == 13
    for claim, verdict in verdicts[1].items():
        assert f"| {claim} | {verdicts[0].get(claim, '–')} | {verdict} |" in page


def test_the_page_states_the_stored_count(stored):
    page = " ".join((ROOT / "reproduction" / "README.md").read_text(encoding="utf-8").split())
    most = max(row["reached"] for name, row in stored["best"].items() if name.endswith("most cells"))
    cells = stored["best"]["f1, most cells"]["cells"]
    assert f"{most} of {cells} cells are at or above the paper" in page


def test_the_page_starts_with_the_plain_reading(stored):
    """Its counts and those of each change alone are the stored ones."""
    page = " ".join((ROOT / "reproduction" / "README.md").read_text(encoding="utf-8").split())
    added = added_readings(stored["datasets"])
    for name, parts in added.items():
        reached, cells = (sum(part[key] for part in parts.values()) for key in ("reached", "cells"))
        counts = " | ".join(f"{part['reached']}, {part['distance']:.0%}" for part in parts.values())
        assert f"| {name} | {reached} of {cells} | {counts} |" in page
    plain = sum(part["reached"] for part in added["plain"].values())
    most = stored["best"]["harmonic, most cells"]["reached"]
    assert page.index(f"{plain} of 24 cells") < page.index(f"{most} of 24 cells")


def test_a_reading_has_a_name():
    row = {"loss": "negative sampling", "bias": None, "own_N": True, "cap": 20}
    assert name_variant(row) == (
        "HRM by negative sampling, biases chosen on validation, each metric's own N or setting, at most 20"
    )


@pytest.mark.parametrize(
    ("difference", "p", "mark"), [(0.1, 0.05, " ▲"), (-0.1, 0.05, " ▼"), (0.1, 0.06, "")]
)
def test_only_significant_differences_are_marked(difference, p, mark):
    row = {
        "figures": {"f1_20": {"mean": 0.0496, "sd": 0.001}},
        "paper": {"f1": 0.05},
        "tests": {"f1_20": {"difference": difference, "p_holm": p}},
    }
    assert figure_cell(row, "f1_20", "f1") == f"0.0496 ± 0.0010 *{mark}"  # .050 with three digits
