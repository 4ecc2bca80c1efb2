"""Report: what people and files get to see."""

import json

import numpy as np
import pytest

from shortlist.evaluation import METRICS, evaluate
from tests.evaluation import cases
from tests.evaluation.cases import LISTS, TRUTH, interactions


@pytest.fixture(scope="module")
def report():
    return evaluate(LISTS, interactions(TRUTH), history=interactions({"ann": ["a"], "bob": ["x"]}))


def test_what_it_prints(report):
    lines = str(report).splitlines()
    assert lines[0].split() == ["metric", "all", "users", "covered", "users"]
    assert lines[2].split() == ["f1", "0.3929", "0.7857"]
    assert "4 users, 50.0% covered; 1 had no list (judged as empty), 1 lists of users without truth" in str(
        report
    )
    assert "mean 1.25" in str(report)
    assert "hits: 33.3% repeats, 66.7% new to the user" in str(report)
    assert repr(report) == f"Report(4 users, F1 0.3929, NDCG {report.ndcg:.4f}, 50% covered)"


def test_summary_has_both_views(report):
    assert report.summary["metric"].to_list() == list(METRICS)
    for metric, everybody, covered in report.summary.rows():
        assert everybody == report.mean(metric)
        assert covered == pytest.approx(everybody / report.cover_ratio)


def test_quantiles_of_length_include_the_empty(report):
    assert report.length_quantiles[0.5] == 0.5  # 0, 0, 1, 4
    assert report.length_quantiles[0.95] == pytest.approx(np.quantile([0, 0, 1, 4], 0.95))


def test_json_holds_everything_but_the_users(report):
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["all"]["f1"] == report.f1
    assert found["covered"]["f1"] == report.mean("f1", "covered")
    assert (found["users_without_list"], found["lists_ignored"]) == (1, 1)
    assert found["length_quantiles"]["0.5"] == 0.5
    assert found["repeat_explore"][0]["kind"] == "repeat"
    assert found["calibration_error"] is None


def test_the_order_of_users_is_that_of_the_truth():
    shown, taken = cases.random_case(4)
    report = evaluate(shown, interactions(taken))
    assert report.user_ids.to_list() == sorted(taken)
    assert report.users["user_id"].to_list() == sorted(taken)
