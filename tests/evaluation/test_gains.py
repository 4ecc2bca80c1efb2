"""Weighted gains, against cases worked by hand."""

from math import log2

import numpy as np
import pytest

import shortlist as sl
from shortlist.core.metrics import Metric
from shortlist.errors import ConfigError, DataError

TRUTH = [
    ("ann", "tea", 1, 6.0),
    ("ann", "jam", 1, 1.0),
    ("ann", "oil", 1, 3.0),
    ("bob", "tea", 1, 2.0),
    ("bob", "tea", 2, 3.0),  # bought twice: gains add up
    ("bob", "oil", 2, 5.0),
    ("cat", "jam", 1, 4.0),
]
LISTS = {"ann": ["rice", "oil", "tea"], "bob": ["tea"]}


def build(rows=TRUTH):
    """The truth, with returns."""
    return sl.Interactions.from_tuples(rows, negative_weights="keep")


def test_weighted_recall_is_the_share_of_the_weight():
    report = sl.evaluate(LISTS, build(), gains="weight")
    assert report.gains.total_gains.tolist() == [10.0, 10.0, 4.0]
    assert report.values("weighted_recall").tolist() == pytest.approx([9 / 10, 5 / 10, 0])
    assert report.mean("weighted_recall") == pytest.approx(1.4 / 3)


def test_weighted_ndcg_is_normalized_by_the_heaviest_items():
    report = sl.evaluate(LISTS, build(), gains="weight")
    ann = (3 / log2(3) + 6 / log2(4)) / (6 + 3 / log2(3) + 1 / log2(4))
    bob = 5 / (5 + 5 / log2(3))
    assert report.values("weighted_ndcg").tolist() == pytest.approx([ann, bob, 0])


def test_max_items_ends_both_lists():
    report = sl.evaluate(LISTS, build(), gains="weight", max_items=2)
    assert report.values("weighted_ndcg")[0] == pytest.approx((3 / log2(3)) / (6 + 3 / log2(3)))
    assert report.values("weighted_recall")[0] == pytest.approx(0.9)  # of the whole list


def test_equal_weights_give_the_plain_metrics():
    rng = np.random.default_rng(3)
    rows = [(f"u{u}", f"i{i}", 1, 7.0) for u in range(20) for i in rng.choice(30, 5, replace=False)]
    lists = {f"u{u}": [f"i{i}" for i in rng.choice(30, 8, replace=False)] for u in range(0, 20, 2)}
    report = sl.evaluate(lists, build(rows), gains="weight", max_items=4)
    assert report.values("weighted_ndcg") == pytest.approx(report.values("ndcg"))
    assert report.values("weighted_recall") == pytest.approx(report.values("recall"))


def test_chunks_and_other_users_change_nothing():
    whole = sl.evaluate(LISTS, build(), gains="weight", users=["dan"])
    parts = [{"bob": LISTS["bob"], "eve": ["tea"]}, {"ann": LISTS["ann"]}]
    chunked = sl.evaluate(parts, build(), gains="weight", users=["dan"])
    for metric in ("weighted_ndcg", "weighted_recall"):
        assert chunked.values(metric).tolist() == whole.values(metric).tolist()
        assert whole.values(metric)[3] == 0  # dan has no truth


def test_the_other_metrics_stay():
    metrics = [name for name, metric in Metric.registry.items() if not metric.needs_money]  # also of packages
    weighted, plain = (sl.evaluate(LISTS, build(), gains=gains) for gains in ("weight", None))
    for metric in metrics:
        assert weighted.values(metric).tolist() == plain.values(metric).tolist()
    assert weighted.summary["metric"].to_list() == [*metrics, "weighted_ndcg", "weighted_recall"]
    assert "weighted_recall" in weighted.to_dict()["all"]
    with pytest.raises(ConfigError, match="metric must be one of"):
        plain.values("weighted_ndcg")


def test_compare():
    reports = {
        name: sl.evaluate(one, build(), gains="weight")
        for name, one in {"A": LISTS, "B": {"ann": ["tea"]}}.items()
    }
    found = sl.compare(reports, metrics=["weighted_recall"])
    assert found.tests["difference"].to_list() == pytest.approx([(0.6 - 1.4) / 3])


def test_returns_are_not_relevant():
    rows = [*TRUTH, ("ann", "rice", 3, -2.0), ("dan", "tea", 3, -1.0)]
    found, expected = sl.evaluate(LISTS, build(rows)), sl.evaluate(LISTS, build())
    assert found.user_ids.to_list() == ["ann", "bob", "cat"]
    assert found.values("hits").tolist() == expected.values("hits").tolist()
    assert found.values("recall").tolist() == expected.values("recall").tolist()
    with pytest.raises(DataError, match="truth must hold at least one interaction"):
        sl.evaluate(LISTS, build([("ann", "tea", 1, -1.0), ("bob", "tea", 1, -2.0)]))


def test_cutoffs_do_not_learn_from_returns():
    model = sl.Popularity().fit(sl.load_dataset("sample"))
    lists = model.recommend(N=10)
    rows = [(user, lists[user].items[0], "2030-01-01", 1.0) for user in lists.users.values[:100]]
    returned = [(user, lists[user].items[1], "2030-01-01", -1.0) for user in lists.users.values[:100]]
    one, other = (sl.cutoff.FixedN().fit(lists, build(given)) for given in (rows, rows + returned))
    assert one.N_ == other.N_ == 1


@pytest.mark.parametrize("bad", ["weights", 1, True])
def test_other_gains_are_refused(bad):
    with pytest.raises(ConfigError, match="gains must be None or 'weight'"):
        sl.evaluate(LISTS, build(), gains=bad)


def test_a_truth_without_weights_is_refused():
    with pytest.raises(ConfigError, match='gains="weight" needs a truth with weights'):
        sl.evaluate(LISTS, sl.Interactions.from_tuples([row[:3] for row in TRUTH]), gains="weight")
