"""Fixed lengths, the best one, and the oracle: all against judging the cut lists one by one."""

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shortlist.errors import ConfigError
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve, gap_recovered, oracle
from tests.evaluation import cases, naive
from tests.evaluation.cases import LISTS, TRUTH, interactions


@settings(max_examples=40)
@given(cases.shown, cases.truths, st.integers(1, 12))
def test_the_curve_is_what_judging_each_cut_would_say(shown, taken, max_items):
    assume(shown.keys() & taken.keys())
    truth = interactions(taken)
    curve = fixed_n_curve(shown, truth, range(1, 13), max_items=max_items)
    for row in curve.to_dicts():
        cut = {user: items[: row["N"]] for user, items in shown.items()}
        report = evaluate(cut, truth, max_items=max_items)
        for name in ("f1", "precision", "recall", "ndcg", "ndcg_paper", "length"):
            assert row[name] == pytest.approx(report.mean(name)), (row["N"], name)


def test_by_hand():
    curve = fixed_n_curve(
        {"u": ["x", "a", "b"], "v": ["c"]}, interactions({"u": ["a", "b"], "v": ["c"]}), [3, 1]
    )
    assert curve["N"].to_list() == [1, 3]
    assert curve["f1"].to_list() == pytest.approx([(0 + 1) / 2, (4 / 5 + 1) / 2])
    assert curve["length"].to_list() == [1, 2]


def test_best_is_the_shortest_of_equals():
    curve = pl.DataFrame({"N": [3, 2, 1], "f1": [0.5, 0.5, 0.1], "ndcg": [0.9, 0.5, 0.1]})
    assert best_fixed_n(curve) == 2
    assert best_fixed_n(curve, "ndcg") == 3


@pytest.mark.parametrize("lengths", [[], [0, 1], [-1]])
def test_lengths_must_be_lengths(lengths):
    with pytest.raises(ConfigError, match="at least 1"):
        fixed_n_curve(LISTS, interactions(TRUTH), lengths)


def test_other_settings_are_checked():
    with pytest.raises(ConfigError, match="max_items"):
        fixed_n_curve(LISTS, interactions(TRUTH), max_items=0)
    with pytest.raises(ConfigError, match="'auc'"):
        best_fixed_n(fixed_n_curve(LISTS, interactions(TRUTH)), "auc")


@given(cases.shown, cases.truths)
def test_the_oracle_is_the_best_prefix_by_trying_all(shown, taken):
    assume(shown.keys() & taken.keys())
    report = oracle(shown, interactions(taken))
    for user, f1, length in zip(report.user_ids, report.values("f1"), report.lengths, strict=True):
        items = shown.get(user, [])
        tried = [naive.metrics(items[:k], taken[user])["f1"] for k in range(len(items) + 1)]
        assert f1 == pytest.approx(max(tried))
        assert length == tried.index(max(tried))  # the shortest of the best; 0 where nothing hits


@given(cases.shown, cases.truths, st.integers(0, 10))
def test_nobody_beats_the_oracle(shown, taken, n):
    assume(shown.keys() & taken.keys())
    truth = interactions(taken)
    cut = {user: items[:n] for user, items in shown.items()}
    assert (oracle(shown, truth).values("f1") >= evaluate(cut, truth).values("f1") - 1e-12).all()


def test_share_of_the_gap():
    truth = interactions({"u": ["a", "b"]})
    fixed, ceiling = evaluate({"u": ["a"]}, truth), evaluate({"u": ["a", "b"]}, truth)
    halfway = evaluate({"u": ["a", "b", "x"]}, truth)  # F1 2/3, 4/5, 1
    assert gap_recovered(halfway, fixed, ceiling) == pytest.approx((4 / 5 - 2 / 3) / (1 - 2 / 3))
    assert gap_recovered(ceiling, fixed, ceiling) == 1
    assert gap_recovered(evaluate({"u": []}, truth), fixed, ceiling) == pytest.approx(-2)
    assert np.isnan(gap_recovered(fixed, ceiling, ceiling))
    with pytest.raises(ConfigError, match="'auc'"):
        gap_recovered(fixed, fixed, ceiling, "auc")
