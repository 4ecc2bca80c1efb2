"""Labels: which users are labeled, which candidates are relevant, the utility of each prefix."""

import numpy as np
import pytest

from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError

LISTS = RankedLists(
    users=IdMap.of(["ann", "bob", "cat", "dan"]),
    item_ids=IdMap.of(["p", "q", "r"]),
    indptr=np.array([0, 3, 5, 5, 6]),
    items=np.array([2, 0, 1, 0, 1, 0], np.int32),
    scores=np.array([3, 2, 1, 2, 1, 1], np.float32),
)
# dan has no truth, cat has no candidates, and "other" is not a candidate
TRUTH = Interactions.from_tuples(
    [("ann", "q"), ("ann", "r"), ("bob", "q"), ("bob", "other"), ("cat", "p"), ("eve", "p")]
)


def test_users_and_items_are_matched_by_id():
    known = label_lists(LISTS, TRUTH)
    assert known.relevant.tolist() == [True, False, True, False, True, False]
    assert known.n_relevant.tolist() == [2, 2, 1, 0]
    assert known.labeled.tolist() == [True, True, True, False]
    assert known.n_retrieved.tolist() == [2, 1, 0, 0]
    assert known.prefixes.hits.tolist() == [1, 1, 2, 0, 1, 0]


def test_f1_counts_relevant_items_that_are_not_candidates():
    utility = label_lists(LISTS, TRUTH).utilities("f1")
    assert utility[:5] == pytest.approx([2 / 3, 2 / 4, 4 / 5, 0, 2 / 4])
    assert np.isnan(utility[5])


def test_ndcg_is_relative_to_an_ideal_list_of_the_same_length():
    second, third = 1 / np.log2(3), 1 / np.log2(4)
    utility = label_lists(LISTS, TRUTH).utilities("ndcg_paper")
    assert utility[:5] == pytest.approx(
        [1, 1 / (1 + second), (1 + third) / (1 + second), 0, second / (1 + second)]
    )
    assert np.isnan(utility[5])


def test_taking_lists_keeps_their_labels():
    part = label_lists(LISTS, TRUTH).take(np.array([3, 1], np.int32))
    assert part.relevant.tolist() == [False, False, True]
    assert part.n_relevant.tolist() == [0, 2]


def test_truth_with_the_same_ids():
    truth = Interactions.from_csr(np.eye(4, 3), ["ann", "bob", "cat", "dan"], ["p", "q", "r"])
    assert label_lists(LISTS, truth).relevant.tolist() == [False, True, False, False, True, False]


def test_named_users_without_truth_are_labeled():
    known = label_lists(LISTS, TRUTH, users=["dan", "ann", "unknown"])
    assert known.labeled.tolist() == [True, True, True, True]
    assert known.n_relevant.tolist() == [2, 2, 1, 0]
    assert known.utilities("f1")[5] == known.utilities("ndcg_paper")[5] == 0
    assert known.take(np.array([3], np.int32)).labeled.tolist() == [True]
    with pytest.raises(DataError, match="users must name users who have lists, got none"):
        label_lists(LISTS, TRUTH, users=["unknown"])


def test_outcomes_of_labeled_users_are_known():
    known = label_lists(LISTS, TRUTH)
    assert known.n_outcomes == int(known.rows.sum())
