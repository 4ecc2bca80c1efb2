"""The stored reproduction: its pages follow from its results, and the documentation states its counts."""

import json
from pathlib import Path

import pytest

from shortlist.paper import protocol
from shortlist.paper.report import name_variant, render_reproduction, render_tables, variant_cell
from shortlist.paper.verdicts import best_variants, count_cells, verdicts

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stored():
    return json.loads((ROOT / "results" / "results.json").read_text(encoding="utf-8"))


def test_stored_pages_match_stored_results(stored):
    machine = json.loads((ROOT / "results" / "machine.json").read_text(encoding="utf-8"))
    page = (ROOT / "results" / "report.html").read_text(encoding="utf-8")
    assert render_reproduction(stored, machine) == page
    assert render_tables(stored) == (ROOT / "results" / "table.md").read_text(encoding="utf-8")


def test_stored_counts_and_verdicts_follow_from_the_stored_rows(stored):
    for name, found in stored["datasets"].items():
        assert found["cells"] == count_cells(found["rows"], found["readings"])
        chosen = {model: found["rows"][at] for model, at in found["claims"]["chosen"].items()}
        assert verdicts(name, chosen, found["claims"]) == found["claims"]["verdicts"]
    cells = {name: found["cells"] for name, found in stored["datasets"].items()}
    assert best_variants(cells) == stored["best"]
    assert cells
    assert set(cells) <= set(protocol.DATASETS)


def test_the_page_states_the_stored_count(stored):
    page = " ".join((ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").split())
    most = max(row["reached"] for name, row in stored["best"].items() if name.endswith("most cells"))
    cells = stored["best"]["f1, most cells"]["cells"]
    assert f"{most} of {cells} cells are at or above the paper" in page


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
    assert variant_cell(row, "f1_20", "f1") == f"0.0496 ± 0.0010 *{mark}"  # .050 with three digits
