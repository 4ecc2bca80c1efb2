"""Verdicts, from numbers small enough to decide by hand."""

import pytest

from shortlist.paper.verdicts import (
    COVERED,
    FAILS,
    HOLDS,
    above,
    below,
    peaks_inside,
    rises,
    steady,
    verdict,
    verdicts,
)


def difference(model, against, f1, ndcg, p=0.001):
    row = {"model": model, "against": against}
    for metric, value in (("f1", f1), ("ndcg", ndcg)):
        row |= {f"{metric}_difference": value, f"{metric}_low": value - 0.01, f"{metric}_high": value + 0.01}
        row |= {f"{metric}_p_holm": p}
    return row


def cells(f1, ndcg, cover=1.0, mark="", same=0.0):
    both = {
        f"{m}_{k}": v for m in ("f1", "ndcg") for k, v in (("mark", mark), ("p", 0.01), ("same_users", same))
    }
    return {"f1": f1, "ndcg": ndcg, "cover": cover} | both


def fair(model, lists, f1, change, p):
    return {"model": model, "lists": lists, "f1": f1, "ndcg": f1} | {
        key: value for key, value in difference("", "", change, change, p).items() if "_" in key
    }


@pytest.fixture
def found():
    """A world in which every claim holds."""
    sweep = {"values": [1, 2, 3], "ndcg_covered": [0.1, 0.3, 0.2], "cover": [0.9, 0.8, 0.7]}
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
        "fair": [
            fair("BPRMF", "fixed N", 0.03, 0, 1), fair("HRM", "fixed N", 0.04, 0, 1),
            fair("DKBPRMF", "own boundary", 0.05, 0.02, 0.01),
            fair("DKHRM", "own boundary", 0.06, 0.02, 0.01),
        ],
    }  # fmt: skip


def of(found, start, dataset="ml-100k"):
    return next(one["verdict"] for one in verdicts(dataset, found) if one["claim"].startswith(start))


def test_the_three_words():
    assert verdict(True, False) == HOLDS
    assert verdict(False, True) == COVERED
    assert verdict(False, False) == FAILS


def test_a_world_where_everything_holds(found):
    assert {one["verdict"] for one in verdicts("ml-100k", found)} == {HOLDS}
    assert len(verdicts("ml-100k", found)) == 11
    assert len(verdicts("ta-feng", found)) == 13


def test_better_on_covered_users_only(found):
    found["fair"][3] |= {"f1_difference": -0.01}
    assert of(found, "DK-HRM beats HRM in F1") == COVERED
    assert of(found, "DK-BPRMF beats BPRMF in F1") == HOLDS


def test_better_by_chance_is_not_better(found):
    found["fair"][3] |= {"f1_p_holm": 0.06}
    found["table1"]["DKHRM"]["f1_mark"] = ""
    assert of(found, "DK-HRM beats HRM in F1") == FAILS


def test_improvement_is_judged_by_its_size(found):
    """Covered users: .06 over .04 is 50%; all users: .05 over .04 is 25%, less than 33.1%."""
    found["fair"][3] |= {"f1": 0.05}
    assert of(found, "DK-HRM improves on HRM by 33.1% in F1", "ta-feng") == COVERED


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
def test_one_wrong_sign_breaks_a_claim(found, number, metric, claim):
    found["pairs"][number][f"{metric}_difference"] *= -1
    assert of(found, claim) == FAILS


def test_sweep_of_t(found):
    found["figure1"]["t"]["f1"] = [0.3, 0.2, 0.1]
    assert of(found, "As t rises") == COVERED
    found["figure1"]["t"]["cover"] = [0.9, 0.9, 0.9]
    assert of(found, "As t rises") == FAILS


def test_falling_curve_is_not_steady(found):
    found["figure2"]["HRM"]["f1"] = [0.01, 0.05, 0.02]
    assert of(found, "F1 rises with N") == FAILS


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([1, 2, 3], True),
        ([1, 3, 2], True),
        ([3, 2, 1], False),
        ([1, 2, 1, 2, 1.5, 3], False),
        ([1, 1.01], False),
    ],
)
def test_rises(values, answer):
    assert rises(values) is answer


@pytest.mark.parametrize(
    ("values", "answer"), [([1, 3, 2], True), ([1, 2, 3], False), ([3, 2, 1], False), ([1, 1.01, 1], False)]
)
def test_peaks_inside(values, answer):
    assert peaks_inside(values) is answer


@pytest.mark.parametrize(
    ("values", "answer"), [([1, 2, 2], True), ([1, 2, 1.7], False), ([2, 1.95, 1.9], False)]
)
def test_steady(values, answer):
    assert steady(values) is answer


def test_signs_need_certainty():
    sure, unsure = difference("a", "b", 0.1, -0.1), difference("a", "b", 0.1, -0.1, p=0.2)
    assert above(sure, "f1")
    assert below(sure, "ndcg")
    assert not above(unsure, "f1")
    assert not below(unsure, "ndcg")
