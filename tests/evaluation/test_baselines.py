"""Fixed N, matched baselines and the oracle, against the evaluation of lists cut one by one."""

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve, gap_recovered, match_baselines, oracle
from tests.evaluation import cases, naive
from tests.evaluation.cases import LISTS, TRUTH, interactions


@settings(max_examples=40)
@given(cases.shown, cases.truths, st.integers(1, 12))
def test_curve_equals_the_evaluation_of_each_cut(shown, relevant, max_items):
    assume(shown.keys() & relevant.keys())
    truth = interactions(relevant)
    curve = fixed_n_curve(shown, truth, range(1, 13), max_items=max_items)
    for row in curve.to_dicts():
        cut = {user: items[: row["N"]] for user, items in shown.items()}
        report = evaluate(cut, truth, max_items=max_items)
        for name in ("f1", "precision", "recall", "ndcg", "ndcg_paper", "length"):
            assert row[name] == pytest.approx(report.mean(name)), (row["N"], name)


def test_curve_by_hand():
    curve = fixed_n_curve(
        {"u": ["x", "a", "b"], "v": ["c"]}, interactions({"u": ["a", "b"], "v": ["c"]}), [3, 1]
    )
    assert curve["N"].to_list() == [1, 3]
    assert curve["f1"].to_list() == pytest.approx([(0 + 1) / 2, (4 / 5 + 1) / 2])
    assert curve["length"].to_list() == [1, 2]


def test_best_n_is_the_smallest_on_ties():
    curve = pl.DataFrame({"N": [3, 2, 1], "f1": [0.5, 0.5, 0.1], "ndcg": [0.9, 0.5, 0.1]})
    assert best_fixed_n(curve) == 2
    assert best_fixed_n(curve, "ndcg") == 3


@pytest.mark.parametrize("lengths", [[], [0, 1], [-1]])
def test_lengths_below_1_are_refused(lengths):
    with pytest.raises(ConfigError, match="at least 1"):
        fixed_n_curve(LISTS, interactions(TRUTH), lengths)


def test_curve_refuses_invalid_parameters():
    with pytest.raises(ConfigError, match="max_items"):
        fixed_n_curve(LISTS, interactions(TRUTH), max_items=0)
    with pytest.raises(ConfigError, match="'auc'"):
        best_fixed_n(fixed_n_curve(LISTS, interactions(TRUTH)), "auc")


@given(cases.shown, cases.truths)
def test_oracle_is_the_best_of_all_prefixes(shown, relevant):
    assume(shown.keys() & relevant.keys())
    report = oracle(shown, interactions(relevant))
    for user, f1, length in zip(report.user_ids, report.values("f1"), report.lengths, strict=True):
        items = shown.get(user, [])
        tried = [naive.metrics(items[:k], relevant[user])["f1"] for k in range(len(items) + 1)]
        assert f1 == pytest.approx(max(tried))
        assert length == tried.index(max(tried))  # the shortest of the best; 0 without a hit


@given(cases.shown, cases.truths, st.integers(0, 10))
def test_no_cut_beats_the_oracle(shown, relevant, n):
    assume(shown.keys() & relevant.keys())
    truth = interactions(relevant)
    cut = {user: items[:n] for user, items in shown.items()}
    assert (oracle(shown, truth).values("f1") >= evaluate(cut, truth).values("f1") - 1e-12).all()


def test_gap_recovered_by_hand():
    truth = interactions({"u": ["a", "b"]})
    fixed, ceiling = evaluate({"u": ["a"]}, truth), evaluate({"u": ["a", "b"]}, truth)
    halfway = evaluate({"u": ["a", "b", "x"]}, truth)  # F1 2/3, 4/5, 1
    assert gap_recovered(halfway, fixed, ceiling) == pytest.approx((4 / 5 - 2 / 3) / (1 - 2 / 3))
    assert gap_recovered(ceiling, fixed, ceiling) == 1
    assert gap_recovered(evaluate({"u": []}, truth), fixed, ceiling) == pytest.approx(-2)
    assert np.isnan(gap_recovered(fixed, ceiling, ceiling))
    with pytest.raises(ConfigError, match="'auc'"):
        gap_recovered(fixed, fixed, ceiling, "auc")


def rankings(scores):
    """Three items per user; the first score as given, then descending."""
    rows = [(u, f"i{k}", s - k) for u, s in scores.items() for k in range(3)]
    return RankedLists.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id", "score"], orient="row"))


SAME_TRUTH = interactions({user: ["i0", "i1"] for user in "abcd"})
RANKINGS = rankings({"d": 4.0, "b": 9.0, "a": 1.0, "c": 5.0, "zed": 99.0})
DYNAMIC = {"a": ["i0", "i1", "i2"], "b": [], "c": ["i0"], "zed": ["i0"]}  # d has no list


def lengths_of(lists):
    return {one.user_id: len(one) for one in lists}


def test_match_baselines_by_hand():
    baselines = match_baselines(DYNAMIC, RANKINGS, SAME_TRUTH, N=2)
    assert {name: lengths_of(lists) for name, lists in baselines.items()} == {
        "top 2": {"d": 2, "b": 2, "a": 2, "c": 2},
        "top 2, same users": {"d": 0, "b": 0, "a": 2, "c": 2},
        "top 2, same abstention": {"d": 0, "b": 2, "a": 0, "c": 2},
        "fixed length, same items": {"d": 1, "b": 1, "a": 1, "c": 1},
    }


def test_remaining_items_go_to_the_most_confident_users():
    dynamic = {"a": ["i0", "i1", "i2"], "b": ["i0", "i1", "i2"]}
    baselines = match_baselines(dynamic, RANKINGS, SAME_TRUTH, N=1)
    assert lengths_of(baselines["fixed length, same items"]) == {"d": 1, "b": 2, "a": 1, "c": 2}


def test_probabilities_are_preferred_as_confidence():
    ranked = RankedLists.from_frame(RANKINGS.to_frame().with_columns(probability=1 / (10 + pl.col("score"))))
    baselines = match_baselines(DYNAMIC, ranked, SAME_TRUTH, N=2)
    assert lengths_of(baselines["top 2, same abstention"]) == {"d": 2, "b": 0, "a": 2, "c": 0}


@settings(max_examples=50)
@given(cases.shown, cases.shown, cases.truths, st.integers(1, 6))
def test_matched_baselines_cover_as_many_users_and_items(dynamic, ranking, relevant, n):
    assume(dynamic.keys() & relevant.keys())
    assume(ranking.keys() & relevant.keys())
    truth = interactions(relevant)
    baselines = match_baselines(dynamic, ranking, truth, n)
    ours = evaluate(dynamic, truth)
    reports = [evaluate(lists, truth) for lists in baselines.values()]
    available = evaluate(ranking, truth)
    top, same_users, same_abstention, same_items = reports
    assert top.lengths.tolist() == np.minimum(available.lengths, n).tolist()
    assert same_users.covered.tolist() == (ours.covered & available.covered).tolist()
    assert same_abstention.covered.sum() == min(ours.covered.sum(), available.covered.sum())
    assert same_items.lengths.sum() == min(ours.lengths.sum(), available.lengths.sum())
    short = same_items.lengths < available.lengths
    if short.any():  # lengths differ by one at most unless a ranking ends
        assert same_items.lengths[short].min() >= same_items.lengths.max() - 1
    assert all(report.ignored == 0 for report in reports)


def test_match_baselines_refuses_n_below_1():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        match_baselines(DYNAMIC, RANKINGS, SAME_TRUTH, N=0)


def test_the_default_curve_has_20_lengths():
    assert fixed_n_curve(LISTS, interactions(TRUTH))["N"].to_list() == list(range(1, 21))
