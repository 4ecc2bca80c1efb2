"""The reproduction report: the pages in results/ follow from the results beside them."""

import json
from pathlib import Path

import pytest

from shortlist.paper.report import (
    format_difference,
    markdown_table,
    render_reproduction,
    significance_mark,
    variants_markdown,
)
from shortlist.paper.verdicts import verdicts

RESULTS = Path(__file__).parents[2] / "results"


def row(difference, p):
    return {"f1_difference": difference, "f1_low": -0.01, "f1_high": 0.03, "f1_p_holm": p}


@pytest.mark.parametrize("name", ["ml-100k", "ta-feng"])
def test_stored_pages_match_stored_results(name):
    results, machine = (
        json.loads((RESULTS / name / file).read_text(encoding="utf-8"))
        for file in ("results.json", "machine.json")
    )
    assert verdicts(name, results["datasets"][name]) == results["datasets"][name]["verdicts"]
    page = (RESULTS / name / "report.html").read_text(encoding="utf-8")
    assert render_reproduction(results, machine) == page
    assert markdown_table(results) == (RESULTS / name / "table.md").read_text(encoding="utf-8")
    stored = json.loads((RESULTS / name / "variants.json").read_text(encoding="utf-8"))
    assert variants_markdown(stored) == (RESULTS / name / "variants.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("difference", "p", "mark"), [(0.01, 0.05, "+"), (-0.01, 0.05, "-"), (0.01, 0.06, "")]
)
def test_only_significant_differences_are_marked(difference, p, mark):
    assert significance_mark(row(difference, p), "f1") == mark


def test_rows_without_baseline_have_no_difference():
    assert format_difference({}, "f1") == ""
    assert significance_mark({}, "f1") == ""
    assert format_difference(row(0.01, 0.04), "f1") == "+0.0100 [-0.0100, +0.0300], 0.040"
