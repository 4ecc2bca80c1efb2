"""Diversity and novelty, each worked by hand on three lists."""

import numpy as np
import pytest
from shortlist_extras.diversity import ListMetric, measure_diversity

from shortlist.data.interactions import Interactions

# users of each item: tea ann, bob, cid; jam ann, bob; rice cid; oil dan
HISTORY = [
    *[("ann", "tea"), ("bob", "tea"), ("cid", "tea")],
    *[("ann", "jam"), ("bob", "jam")],
    *[("cid", "rice"), ("dan", "oil")],
]
LISTS = {"ann": ["tea", "jam", "rice"], "bob": ["oil"], "cid": []}
TRUTH = [("ann", "tea"), ("ann", "rice"), ("bob", "oil"), ("cid", "jam")]


def measure(lists=LISTS, truth=TRUTH):
    known = None if truth is None else Interactions.from_tuples(truth)
    return measure_diversity(lists, Interactions.from_tuples(HISTORY), known)


def test_intra_list_diversity():
    # tea-jam: cosine 2 / √(3·2); tea-rice: 1 / √(3·1); jam-rice: 0; lists of one item do not count
    expected = 1 - (2 / np.sqrt(6) + 1 / np.sqrt(3) + 0) / 3
    assert measure()["intra_list_diversity"] == pytest.approx(expected)
    assert measure({"ann": ["tea", "new"]})["intra_list_diversity"] == pytest.approx(1)
    assert np.isnan(measure({"ann": ["tea"]})["intra_list_diversity"])


def test_catalog_coverage():
    assert measure()["catalog_coverage"] == 1.0
    assert measure({"ann": ["tea", "new"], "bob": ["tea"]})["catalog_coverage"] == 0.25


def test_novelty():
    # four users: tea −log2(4/5), jam −log2(3/5), rice and oil −log2(2/5); an item without users −log2(1/5)
    first = -np.log2(np.array([4, 3, 2]) / 5).mean()
    assert measure()["novelty"] == pytest.approx((first - np.log2(2 / 5)) / 2)
    assert measure({"ann": ["new"]})["novelty"] == pytest.approx(np.log2(5))


def test_serendipity():
    # by users: tea, jam, oil, rice (equal counts by id); ann's list of three expects tea, jam and oil
    # bob's list of one expects tea, so oil is one
    assert measure()["serendipity"] == pytest.approx((1 / 3 + 1) / 2)
    assert "serendipity" not in measure(truth=None)


def test_empty_lists_count_nowhere_and_a_new_class_is_computed():
    assert np.isnan(measure({"ann": []})["novelty"])

    class Longest(ListMetric):
        name = "longest"

        @staticmethod
        def value(given):
            return float(given.lists.lengths.max())

    try:
        assert measure()["longest"] == 3.0
    finally:
        del ListMetric.registry["longest"]
