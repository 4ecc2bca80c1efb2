"""Verdicts on small numbers that can be checked by hand."""

import pytest

from shortlist.paper.protocol import COVERED, FAILS, HOLDS
from shortlist.paper.verdicts import (
    above,
    below,
    peaks_inside,
    rises,
    steady,
    verdict,
    verdicts,
)


def difference(model, baseline, f1, ndcg, p=0.001):
    row = {"model": model, "baseline": baseline}
    for metric, value in (("f1", f1), ("ndcg", ndcg)):
        row |= {f"{metric}_difference": value, f"{metric}_low": value - 0.01, f"{metric}_high": value + 0.01}
        row |= {f"{metric}_p_holm": p}
    return row


def cells(f1, ndcg, cover_ratio=1.0, mark="", same=0.0):
    both = {
        f"{m}_{k}": v for m in ("f1", "ndcg") for k, v in (("mark", mark), ("p", 0.01), ("same_users", same))
    }
    return {"f1": f1, "ndcg": ndcg, "cover_ratio": cover_ratio} | both


def all_users(model, lists, f1, change, p):
    return {"model": model, "lists": lists, "f1": f1, "ndcg": f1} | {
        key: value for key, value in difference("", "", change, change, p).items() if "_" in key
    }


@pytest.fixture
def results():
    """Results for which every claim holds."""
    sweep = {"values": [1, 2, 3], "ndcg_covered": [0.1, 0.3, 0.2], "cover_ratio": [0.9, 0.8, 0.7]}
    peak = sweep | {"f1_covered": [0.1, 0.3, 0.2], "f1": [0.1, 0.3, 0.2]}
    rise = sweep | {"f1_covered": [0.1, 0.2, 0.3], "f1": [0.1, 0.2, 0.3]}
    pairs = [
        difference("LogMF", "BPRMF", 0.02, -0.02),
        difference("CRRMF", "BPRMF", 0.01, 0.01),
        difference("CRRMF", "LogMF", 0.01, 0.01),
        *(difference("HRM", other, 0.02, 0.02) for other in ("BPRMF", "LogMF", "CRRMF")),
    ]
    return {
        "figure1": {"t": rise, "lambda_t": peak, "alpha": peak, "t_biased": rise},
        "figure2": {m: {"f1": [0.01, 0.05, 0.05]} for m in ("BPRMF", "LogMF", "CRRMF", "HRM")},
        "pairs": pairs,
        "table1": {
            "BPRMF": cells(0.03, 0.1), "HRM": cells(0.04, 0.1),
            "DKBPRMF": cells(0.05, 0.2, 0.7, "+"), "DKHRM": cells(0.06, 0.2, 0.7, "+"),
        },
        "all_users": [
            all_users("BPRMF", "fixed N", 0.03, 0, 1), all_users("HRM", "fixed N", 0.04, 0, 1),
            all_users("DKBPRMF", "learned boundary", 0.05, 0.02, 0.01),
            all_users("DKHRM", "learned boundary", 0.06, 0.02, 0.01),
        ],
    }  # fmt: skip


def verdict_of(results, start, dataset="ml-100k"):
    return next(one["verdict"] for one in verdicts(dataset, results) if one["claim"].startswith(start))


def test_verdict_for_all_and_for_covered_users():
    assert verdict(True, False) == HOLDS
    assert verdict(False, True) == COVERED
    assert verdict(False, False) == FAILS


def test_all_claims_hold(results):
    assert {one["verdict"] for one in verdicts("ml-100k", results)} == {HOLDS}
    assert len(verdicts("ml-100k", results)) == 11
    assert len(verdicts("ta-feng", results)) == 13


def test_better_for_covered_users_only(results):
    results["all_users"][3] |= {"f1_difference": -0.01}
    assert verdict_of(results, "DK-HRM beats HRM in F1") == COVERED
    assert verdict_of(results, "DK-BPRMF beats BPRMF in F1") == HOLDS


def test_insignificant_difference_does_not_hold(results):
    results["all_users"][3] |= {"f1_p_holm": 0.06}
    results["table1"]["DKHRM"]["f1_mark"] = ""
    assert verdict_of(results, "DK-HRM beats HRM in F1") == FAILS


def test_improvement_must_reach_its_size(results):
    """Covered users: .06 over .04 is 50%; all users: .05 over .04 is 25%, less than 33.1%."""
    results["all_users"][3] |= {"f1": 0.05}
    assert verdict_of(results, "DK-HRM improves on HRM by 33.1% in F1", "ta-feng") == COVERED


@pytest.mark.parametrize(
    ("number", "metric", "claim"),
    [
        (0, "f1", "LogMF is better"),
        (0, "ndcg", "LogMF is better"),
        (1, "f1", "CRRMF is good"),
        (2, "ndcg", "CRRMF is good"),
        (4, "ndcg", "HRM beats BPRMF"),
    ],
)
def test_one_wrong_sign_breaks_a_claim(results, number, metric, claim):
    results["pairs"][number][f"{metric}_difference"] *= -1
    assert verdict_of(results, claim) == FAILS


def test_sweep_of_t(results):
    results["figure1"]["t"]["f1"] = [0.3, 0.2, 0.1]
    assert verdict_of(results, "As t rises") == COVERED
    results["figure1"]["t"]["cover_ratio"] = [0.9, 0.9, 0.9]
    assert verdict_of(results, "As t rises") == FAILS


def test_falling_curve_is_not_steady(results):
    results["figure2"]["HRM"]["f1"] = [0.01, 0.05, 0.02]
    assert verdict_of(results, "F1 rises with N") == FAILS


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], True),
        ([1, 3, 2], True),
        ([3, 2, 1], False),
        ([1, 2, 1, 2, 1.5, 3], False),
        ([1, 1.01], False),
    ],
)
def test_rises(values, expected):
    assert rises(values) is expected


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 3, 2], True), ([1, 2, 3], False), ([3, 2, 1], False), ([1, 1.01, 1], False)]
)
def test_peaks_inside(values, expected):
    assert peaks_inside(values) is expected


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 2], True), ([1, 2, 1.7], False), ([2, 1.95, 1.9], False)]
)
def test_steady(values, expected):
    assert steady(values) is expected


def test_above_and_below_need_significance():
    significant, insignificant = difference("a", "b", 0.1, -0.1), difference("a", "b", 0.1, -0.1, p=0.2)
    assert above(significant, "f1")
    assert below(significant, "ndcg")
    assert not above(insignificant, "f1")
    assert not below(insignificant, "ndcg")
