"""Risk against coverage: by hand, against trying every order of equals, and its bounds."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import evaluate, risk_coverage
from tests.evaluation import cases
from tests.evaluation.cases import interactions

# F1 of a: 1, b: 0, c: 2/3, d: empty
TRUTH = interactions({"a": ["x"], "b": ["x"], "c": ["x"], "d": ["x"]})
REPORT = evaluate({"a": ["x"], "b": ["y"], "c": ["x", "y"], "d": []}, TRUTH)


def test_by_hand():
    found = risk_coverage(REPORT, confidence=np.array([0.9, 0.5, 0.7, 0.99]))
    # a, c, b, and d last although it claims to be sure: an empty list serves nobody
    served = [1, (1 + 2 / 3) / 2, (1 + 2 / 3) / 3, (1 + 2 / 3) / 4]
    assert found.risk == pytest.approx(1 - np.array(served))
    assert found.area == pytest.approx(1 - np.mean(served))
    assert found.area == found.area_ideal  # nobody could have ordered them better
    assert found.area_random == pytest.approx(1 - REPORT.f1)


def test_equal_confidence_is_every_order_at_once():
    found = risk_coverage(REPORT, confidence=np.zeros(4))
    f1 = REPORT.values("f1")
    orders = [[*order, 3] for order in permutations(range(3))]
    tried = np.mean([np.cumsum(f1[order]) / np.arange(1, 5) for order in orders], axis=0)
    assert found.risk == pytest.approx(1 - tried)


def test_the_default_is_the_first_score():
    assert risk_coverage(REPORT).risk == pytest.approx(risk_coverage(REPORT, confidence=np.zeros(4)).risk)


def test_curve_has_few_points_and_ends_with_everybody():
    report = evaluate(*map(lambda f, x: f(x), (dict, interactions), cases.random_case(0)))
    table = risk_coverage(report).curve(10)
    assert table["coverage"].to_list() == pytest.approx(np.arange(1, 11) / 10)
    assert table["f1"][-1] == pytest.approx(report.f1)
    assert table["risk"][-1] == pytest.approx(1 - report.f1)


@given(cases.shown, cases.truths, st.randoms(use_true_random=False))
def test_no_confidence_beats_knowing_the_metric(shown, taken, random):
    assume(not shown or shown.keys() & taken.keys())
    report = evaluate(shown, interactions(taken))
    sure = np.array([random.random() for _ in range(report.n_users)])
    for metric in ("f1", "ndcg"):
        found = risk_coverage(report, metric, sure)
        assert found.area_ideal - 1e-12 <= found.area <= 1 + 1e-12
        assert found.risk[-1] == pytest.approx(found.area_random)
        assert risk_coverage(report, metric, report.values(metric)).area == pytest.approx(found.area_ideal)


def test_refusals():
    with pytest.raises(DataError, match="one value per user"):
        risk_coverage(REPORT, confidence=np.zeros(3))
    with pytest.raises(ConfigError, match="'length'"):
        risk_coverage(REPORT, "length")
