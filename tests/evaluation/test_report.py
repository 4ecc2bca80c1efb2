"""Report: text, HTML, figures and dictionaries."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest

from shortlist.core.metrics import Metric
from shortlist.core.tables import html
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.evaluation import evaluate
from tests.evaluation import cases
from tests.evaluation.cases import LISTS, TRUTH, interactions


@pytest.fixture(scope="module")
def report():
    return evaluate(LISTS, interactions(TRUTH), history=interactions({"ann": ["a"], "bob": ["x"]}))


def test_text(report):
    lines = str(report).splitlines()
    assert lines[0].split() == ["metric", "all", "users", "covered", "users"]
    assert lines[2].split() == ["f1", "0.3929", "0.7857"]
    assert "4 users, 50.0% covered; 1 without a list (counted as empty); 1 lists of other users" in str(
        report
    )
    assert "mean 1.25" in str(report)
    assert "hits: 33.3% repeats, 66.7% new to the user" in str(report)
    assert repr(report) == f"Report(4 users, F1 0.3929, NDCG {report.ndcg:.4f}, 50% covered)"


def metrics():
    """The metrics that need no money, also those of other packages."""
    return [name for name, metric in Metric.registry.items() if not metric.needs_money]


def test_html_has_the_means_and_the_notes(report):
    page = ET.fromstring(f"<div>{report._repr_html_()}</div>")
    cells = [[cell.text for cell in row] for row in page.iter("tr")]
    assert cells[0] == ["metric", "all users", "covered users"]
    assert cells[1] == ["f1", "0.3929", "0.7857"]
    assert len(cells) == 1 + len(metrics())
    assert [note.text for note in page.iter("li")] == report._notes()


def test_html_tables_are_escaped_and_bounded():
    table = pl.DataFrame({"<b>": ["<i>&", *["x" * 500] * 99], "n": np.arange(100)})
    text = html(table, "a < b")
    page = ET.fromstring(f"<div>{text}</div>")
    rows = [[cell.text for cell in row] for row in page.iter("tr")]
    assert rows[0] == ["<b>", "n"]
    assert rows[1] == ["<i>&", "0"]
    assert max(len(cell) for row in rows for cell in row) == 80
    assert len(rows) == 61
    assert page.find("p").text == "… and 40 more rows"
    assert page.find("table/caption").text == "a < b"
    assert "more rows" not in html(table.head(60))
    assert "… and 1 more rows" in html(table.head(61))


def test_figure_shows_every_length(report):
    figure = evaluate(LISTS, interactions(TRUTH), max_items=3).plot()
    root = ET.fromstring(figure._repr_svg_())
    heights = [float(bar.get("height")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert [height > 0 for height in heights] == [True, True, False, False, True]  # 0, 0, 1, and 4 > 3
    assert heights[0] == pytest.approx(2 * heights[1])
    assert repr(figure) == "Figure('List lengths of 4 users')"


def test_table_of_users(report):
    assert report.users["user_id"].to_list() == ["ann", "bob", "cat", "dan"]
    assert report.users["f1"].to_list() == report.values("f1").tolist()


def test_summary_has_both_views(report):
    assert report.summary["metric"].to_list() == metrics()
    for metric, over_all, covered in report.summary.rows():
        assert over_all == report.mean(metric)
        assert covered == pytest.approx(over_all / report.cover_ratio)


def test_unknown_view_is_refused(report):
    with pytest.raises(ConfigError, match="all or covered, got 'some'"):
        report.mean("f1", "some")


def test_length_quantiles_include_empty_lists(report):
    assert report.length_quantiles[0.5] == 0.5  # 0, 0, 1, 4
    assert report.length_quantiles[0.95] == pytest.approx(np.quantile([0, 0, 1, 4], 0.95))


def test_dictionary_is_valid_json(report):
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["all"]["f1"] == report.f1
    assert found["covered"]["f1"] == report.mean("f1", "covered")
    assert (found["users_without_list"], found["lists_ignored"]) == (1, 1)
    assert found["length_quantiles"]["0.5"] == 0.5
    assert found["repeat_explore"][0]["kind"] == "repeat"
    assert found["calibration_error"] is None


def test_users_have_the_order_of_the_truth():
    shown, relevant = cases.random_case(4)
    report = evaluate(shown, interactions(relevant))
    assert report.user_ids.to_list() == sorted(relevant)
    assert report.users["user_id"].to_list() == sorted(relevant)


def test_calibration_error_of_lists_without_hits_is_the_mean_probability():
    table = pl.DataFrame(
        {"user_id": ["a", "b"], "item_id": ["x", "y"], "rank": 1, "score": 1.0, "probability": [0.2, 0.4]}
    )
    report = evaluate(RankedLists.from_frame(table), interactions({"a": ["z"], "b": ["z"]}))
    assert report.calibration_error == pytest.approx(0.3)
    assert evaluate(LISTS, interactions(TRUTH)).calibration_error is None


def test_calibration_has_ten_bins_of_equal_size():
    n = 40
    shown = {"user_id": range(n), "item_id": 0, "rank": 1, "score": 1.0, "probability": np.arange(n) / n}
    lists = RankedLists.from_frame(pl.DataFrame(shown))
    report = evaluate(lists, Interactions.from_tuples([(u, u % 2) for u in range(n)]))
    assert report.calibration["shown"].to_list() == [4] * 10


def test_harmonic_f1_and_its_interval():
    """Precision 1/2 and 1, recall 1 and 1/2: both means are 3/4; the users' F1 is 2/3 each."""
    truth = Interactions.from_tuples([("ann", "tea"), ("bob", "jam"), ("bob", "rice"), ("cat", "oil")])
    report = evaluate({"ann": ["tea", "rice"], "bob": ["jam"]}, truth)
    assert report.harmonic_f1("covered")[0] == pytest.approx(0.75)
    assert report.mean("f1", "covered") == pytest.approx(2 / 3)
    assert report.harmonic_f1()[0] == pytest.approx(0.5)  # 1.5 / 3 each
    value, low, high = report.harmonic_f1("covered", resamples=500)
    assert low <= value <= high
    assert low == pytest.approx(2 / 3)  # twice the same user
    assert np.isnan(evaluate({}, truth).harmonic_f1("covered")[0])
    with pytest.raises(ConfigError, match="view must be all or covered"):
        report.harmonic_f1("some")
