"""Slices and risk against coverage: by hand, against all orders of ties, and their bounds."""

from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import evaluate, risk_coverage, slice_metrics
from tests.evaluation import cases
from tests.evaluation.cases import LISTS, TRUTH, interactions

HISTORY = {"ann": list("abcde"), "bob": ["a"], "eve": ["a", "b"]}
# F1 of a: 1, b: 0, c: 2/3, d: empty
REPORT = evaluate(
    {"a": ["x"], "b": ["y"], "c": ["x", "y"], "d": []}, interactions({user: ["x"] for user in "abcd"})
)
SHOWN, RELEVANT = cases.random_case(0)


def test_slices_by_basket_size():
    table = slice_metrics(evaluate(LISTS, interactions(TRUTH)), "basket_size")
    assert table.select("slice", "users", "cover_ratio").rows() == [("1", 1, 1), ("2", 2, 0), ("3–5", 1, 1)]
    assert table["f1"].to_list() == pytest.approx([1, 0, 4 / 7])
    assert table["length"].to_list() == [1, 0, 4]


def test_slices_by_history_length():
    table = slice_metrics(
        evaluate(LISTS, interactions(TRUTH), history=interactions(HISTORY)), "history_length"
    )
    assert table.select("slice", "users").rows() == [("0", 2), ("1–4", 1), ("5–9", 1)]
    assert table["hits"].to_list() == [0, 1, 2]


def test_slices_by_popularity():
    table = slice_metrics(evaluate(LISTS, interactions(TRUTH), history=interactions(HISTORY)), "popularity")
    # a 3, b 2, c d e 1 each, of 8; shares start at a 0, b 3/8, c 5/8, d 6/8, e 7/8
    assert table.select("slice", "items", "shown", "hits", "relevant").rows() == [
        ("0–20% of history", 1, 2, 2, 3),
        ("20–40% of history", 1, 1, 1, 2),
        ("60–80% of history", 2, 0, 0, 2),
        ("80–100% of history", 1, 0, 0, 1),
    ]
    assert table["items_shown"].to_list() == [1, 1, 0, 0]
    assert table["recall"].to_list() == pytest.approx([2 / 3, 1 / 2, 0, 0])


@given(cases.shown, cases.truths, cases.truths)
def test_slices_add_up(shown, relevant, before):
    assume(not shown or shown.keys() & relevant.keys())
    report = evaluate(shown, interactions(relevant), history=interactions(before))
    for by in ("basket_size", "history_length"):
        table = slice_metrics(report, by)
        assert table["users"].sum() == report.n_users
        for name in ("f1", "ndcg", "hits"):
            assert np.dot(table["users"], table[name]) == pytest.approx(report.values(name).sum())
    table = slice_metrics(report, "popularity")
    assert table["items"].sum() == len(report.items.ids)
    assert table["hits"].sum() == report.hits.sum()
    assert table["relevant"].sum() == report.n_relevant.sum()


def test_slices_refuse_missing_history_and_unknown_names():
    report = evaluate(LISTS, interactions(TRUTH))
    for by in ("history_length", "popularity"):
        with pytest.raises(DataError, match="history="):
            slice_metrics(report, by)
    with pytest.raises(ConfigError, match="'age'"):
        slice_metrics(report, "age")


def test_risk_by_hand():
    found = risk_coverage(REPORT, confidence=np.array([0.9, 0.5, 0.7, 0.99]))
    # order a, c, b, and d last despite its confidence, because its list is empty
    means = [1, (1 + 2 / 3) / 2, (1 + 2 / 3) / 3, (1 + 2 / 3) / 4]
    assert found.risk == pytest.approx(1 - np.array(means))
    assert found.area == pytest.approx(1 - np.mean(means))
    assert found.area == found.area_ideal  # no order is better
    assert found.area_random == pytest.approx(1 - REPORT.f1)


def test_equal_confidence_is_the_mean_over_all_orders():
    found = risk_coverage(REPORT, confidence=np.zeros(4))
    f1 = REPORT.values("f1")
    orders = [[*order, 3] for order in permutations(range(3))]
    tried = np.mean([np.cumsum(f1[order]) / np.arange(1, 5) for order in orders], axis=0)
    assert found.risk == pytest.approx(1 - tried)


def test_default_confidence_is_the_first_score():
    assert risk_coverage(REPORT).risk == pytest.approx(risk_coverage(REPORT, confidence=np.zeros(4)).risk)


def test_curve_has_few_points_and_ends_with_all_users():
    report = evaluate(SHOWN, interactions(RELEVANT))
    table = risk_coverage(report).curve(10)
    assert table["coverage"].to_list() == pytest.approx(np.arange(1, 11) / 10)
    assert table["f1"][-1] == pytest.approx(report.f1)
    assert table["risk"][-1] == pytest.approx(1 - report.f1)


@given(cases.shown, cases.truths, st.randoms(use_true_random=False))
def test_no_confidence_beats_the_metric_itself(shown, relevant, random):
    assume(not shown or shown.keys() & relevant.keys())
    report = evaluate(shown, interactions(relevant))
    confidence = np.array([random.random() for _ in range(report.n_users)])
    for metric in ("f1", "ndcg"):
        found = risk_coverage(report, metric, confidence)
        assert found.area_ideal - 1e-12 <= found.area <= 1 + 1e-12
        assert found.risk[-1] == pytest.approx(found.area_random)
        assert risk_coverage(report, metric, report.values(metric)).area == pytest.approx(found.area_ideal)


def test_risk_refuses_other_shapes_and_metrics():
    with pytest.raises(DataError, match="one value per user"):
        risk_coverage(REPORT, confidence=np.zeros(3))
    with pytest.raises(ConfigError, match="'length'"):
        risk_coverage(REPORT, "length")


def test_risk_in_a_notebook():
    found = risk_coverage(evaluate(SHOWN, interactions(RELEVANT)))
    areas = f"area {found.area:.4f}, random {found.area_random:.4f}, ideal {found.area_ideal:.4f}"
    assert repr(found) == f"RiskCoverage(f1: {areas})"
    assert found._repr_html_().count("<tr>") == 11


def test_the_curve_of_few_users_starts_with_the_first():
    truth = interactions({"a": ["x"], "b": ["x"], "c": ["z"]})
    report = evaluate({"a": ["x"], "b": ["y"], "c": ["z"]}, truth)
    curve = risk_coverage(report, confidence=np.array([0.9, 0.5, 0.7])).curve()
    assert curve["coverage"].to_list() == pytest.approx([1 / 3, 2 / 3, 1])
    assert curve["risk"].to_list() == pytest.approx([0, 0, 1 / 3])


def test_the_confidence_of_a_list_of_one_item_is_its_score():
    shown = {"user_id": ["a", "b", "c"], "item_id": ["x", "y", "z"], "rank": 1, "score": [1.0, 3.0, 2.0]}
    truth = interactions({"a": ["x"], "b": ["x"], "c": ["z"]})
    report = evaluate(RankedLists.from_frame(pl.DataFrame(shown)), truth)
    assert risk_coverage(report).risk.tolist() == pytest.approx([1, 1 / 2, 1 / 3])
