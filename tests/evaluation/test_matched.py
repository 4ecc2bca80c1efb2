"""Rivals on equal terms: what they are given is exactly what the dynamic lists took."""

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.evaluation import evaluate, matched
from tests.evaluation import cases
from tests.evaluation.cases import interactions


def heads(scores):
    """Three items each; first scores as given, then falling."""
    rows = [(u, f"i{k}", s - k) for u, s in scores.items() for k in range(3)]
    return RankedLists.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id", "score"], orient="row"))


TRUTH = interactions({user: ["i0", "i1"] for user in "abcd"})
HEADS = heads({"d": 4.0, "b": 9.0, "a": 1.0, "c": 5.0, "zed": 99.0})
DYNAMIC = {"a": ["i0", "i1", "i2"], "b": [], "c": ["i0"], "zed": ["i0"]}  # d is not listed


def lengths(lists):
    return {one.user_id: len(one) for one in lists}


def test_by_hand():
    rivals = matched(DYNAMIC, HEADS, TRUTH, N=2)
    assert {name: lengths(lists) for name, lists in rivals.items()} == {
        "top 2": {"d": 2, "b": 2, "a": 2, "c": 2},
        "top 2, same users": {"d": 0, "b": 0, "a": 2, "c": 2},
        "top 2, same abstention": {"d": 0, "b": 2, "a": 0, "c": 2},
        "fixed length, same items": {"d": 1, "b": 1, "a": 1, "c": 1},
    }


def test_what_is_left_over_goes_to_the_surest():
    dynamic = {"a": ["i0", "i1", "i2"], "b": ["i0", "i1", "i2"]}
    rivals = matched(dynamic, HEADS, TRUTH, N=1)
    assert lengths(rivals["fixed length, same items"]) == {"d": 1, "b": 2, "a": 1, "c": 2}


def test_probabilities_say_how_sure_where_there_are_any():
    sure = RankedLists.from_frame(HEADS.to_frame().with_columns(probability=1 / (10 + pl.col("score"))))
    rivals = matched(DYNAMIC, sure, TRUTH, N=2)
    assert lengths(rivals["top 2, same abstention"]) == {"d": 2, "b": 0, "a": 2, "c": 0}


@settings(max_examples=50)
@given(cases.shown, cases.shown, cases.truths, st.integers(1, 6))
def test_terms_are_equal(dynamic, ranking, taken, n):
    assume(dynamic.keys() & taken.keys())
    assume(ranking.keys() & taken.keys())
    truth = interactions(taken)
    rivals = matched(dynamic, ranking, truth, n)
    ours = evaluate(dynamic, truth)
    reports = [evaluate(lists, truth) for lists in rivals.values()]
    available = evaluate(ranking, truth)
    top, same_users, same_abstention, same_items = reports
    assert top.lengths.tolist() == np.minimum(available.lengths, n).tolist()
    assert same_users.covered.tolist() == (ours.covered & available.covered).tolist()
    assert same_abstention.covered.sum() == min(ours.covered.sum(), available.covered.sum())
    assert same_items.lengths.sum() == min(ours.lengths.sum(), available.lengths.sum())
    short = same_items.lengths < available.lengths
    if short.any():  # nobody who could have more has two less than anybody else
        assert same_items.lengths[short].min() >= same_items.lengths.max() - 1
    assert all(report.ignored == 0 for report in reports)


def test_n_is_checked():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        matched(DYNAMIC, HEADS, TRUTH, N=0)
