"""Labels, by hand: who is labelled, what is relevant, what a prefix is worth."""

import numpy as np
import pytest

from shortlist.cutoff.labels import label
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError

LISTS = RankedLists(
    users=IdMap.of(["ann", "bob", "cat", "dan"]),
    item_ids=IdMap.of(["p", "q", "r"]),
    indptr=np.array([0, 3, 5, 5, 6]),
    items=np.array([2, 0, 1, 0, 1, 0], np.int32),
    scores=np.array([3, 2, 1, 2, 1, 1], np.float32),
)
# dan has no truth, cat no candidates, and "elsewhere" is in nobody's list
TRUTH = Interactions.from_tuples(
    [("ann", "q"), ("ann", "r"), ("bob", "q"), ("bob", "elsewhere"), ("cat", "p"), ("eve", "p")]
)


def test_items_and_users_meet_by_outside_id():
    known = label(LISTS, TRUTH)
    assert known.relevant.tolist() == [True, False, True, False, True, False]
    assert known.n_relevant.tolist() == [2, 2, 1, 0]
    assert known.labelled.tolist() == [True, True, True, False]
    assert known.n_found.tolist() == [2, 1, 0, 0]
    assert known.hits.tolist() == [1, 1, 2, 0, 1, 0]


def test_f1_counts_what_no_candidate_met():
    worth = label(LISTS, TRUTH).f1()
    assert worth[:5] == pytest.approx([2 / 3, 2 / 4, 4 / 5, 0, 2 / 4])
    assert np.isnan(worth[5])


def test_ndcg_compares_with_an_ideal_of_the_same_length():
    second, third = 1 / np.log2(3), 1 / np.log2(4)
    worth = label(LISTS, TRUTH).ndcg()
    assert worth[:5] == pytest.approx(
        [1, 1 / (1 + second), (1 + third) / (1 + second), 0, second / (1 + second)]
    )
    assert np.isnan(worth[5])


def test_a_part_keeps_its_labels():
    part = label(LISTS, TRUTH).take(np.array([3, 1], np.int32))
    assert part.relevant.tolist() == [False, False, True]
    assert part.n_relevant.tolist() == [0, 2]


def test_truth_over_the_same_tables_needs_no_matching():
    truth = Interactions.from_csr(np.eye(4, 3), ["ann", "bob", "cat", "dan"], ["p", "q", "r"])
    assert label(LISTS, truth).relevant.tolist() == [False, True, False, False, True, False]


def test_who_is_asked_is_labelled_with_nothing():
    known = label(LISTS, TRUTH, asked=["dan", "ann", "nobody"])
    assert known.labelled.tolist() == [True, True, True, True]
    assert known.n_relevant.tolist() == [2, 2, 1, 0]
    assert known.f1()[5] == known.ndcg()[5] == 0
    assert known.take(np.array([3], np.int32)).labelled.tolist() == [True]
    with pytest.raises(DataError, match="asked must name users who have lists, got none"):
        label(LISTS, TRUTH, asked=["nobody"])
