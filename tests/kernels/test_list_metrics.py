"""Metric kernels on arrays, by hand and against plain loops."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.list_metrics import (
    UNIT,
    ListTotals,
    TruthSets,
    add_at_lengths,
    add_lists,
    fill_prefix_sums,
    find_best_prefixes,
    mark_hits,
)

N_ITEMS = 9
NONE = np.empty(0)


class Lists(NamedTuple):
    """Lists in the form the kernels use."""

    indptr: np.ndarray
    items: np.ndarray
    code: np.ndarray
    row: np.ndarray


def ragged(rows):
    flat = np.array([item for row in rows for item in row], np.int32)
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64), flat


def truth_of(rows, weight=NONE):
    return TruthSets(*ragged(rows), np.array(weight, float), np.full(N_ITEMS, -1, np.int32))


def lists_of(lists, row, code=None):
    code = np.arange(N_ITEMS, dtype=np.int32) if code is None else np.array(code, np.int32)
    return Lists(*ragged(lists), code, np.array(row, np.int32))


def mark(lists, truth):
    """Which items are relevant, and their gains."""
    relevant, gains = (
        np.zeros(lists.items.size, np.bool_),
        np.zeros(lists.items.size * (truth.weight.size > 0)),
    )
    mark_hits(*lists, truth, relevant, gains)
    return relevant, gains


def add(lists, truth, max_items, probabilities=NONE, n_cells=4):
    """The totals of marked lists."""
    n_rows = truth.indptr.size - 1
    totals = ListTotals(
        *(np.zeros(n_rows, np.int32) for _ in range(2)),
        *(np.zeros(n_rows) for _ in range(6)),
        *(np.zeros(N_ITEMS, np.int64) for _ in range(2)),
        np.zeros((n_cells, 3)),
    )
    marked = mark(lists, truth)
    add_lists(lists.indptr, lists.items, lists.row, *marked, probabilities, DISCOUNT, max_items, totals)
    return totals


DISCOUNT = 1 / np.log2(np.arange(2, 12))


def test_the_item_with_code_0_is_counted():
    sums = add(lists_of([[0, 3]], [0]), truth_of([[3, 4]]), 2)
    assert sums.shown_of.tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert sums.hits_of.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_the_gain_of_a_hit_is_its_weight():
    truth = truth_of([[2, 5], [2, 4]], [3, 4, 8, 16])
    sums = add(lists_of([[2, 5, 2], [2, 3]], [0, 1]), truth, 9)
    assert sums.gain.tolist() == [3 + 4, 8]
    assert sums.gain_dcg.tolist() == pytest.approx([3 + 4 / np.log2(3), 8])


def test_sums_by_hand():
    # list 0 belongs to row 1 (hits at ranks 2 and 3), list 1 to no row, list 2 to row 0 and is empty
    lists = lists_of([[5, 1, 2, 7], [1, 2], []], [1, -1, 0])
    sums = add(lists, truth_of([[3], [1, 2]]), 2, np.array([0.9, 0.6, 0.5, 1.0, 0.3, 0.3]))
    assert sums.hits.tolist() == [0, 2]
    assert sums.first.tolist() == [0, 2]
    assert sums.dcg[1] == pytest.approx(DISCOUNT[1] + DISCOUNT[2])
    assert sums.dcg_capped[1] == pytest.approx(DISCOUNT[1])
    assert sums.precision_sum[1] == pytest.approx(1 / 2)
    assert sums.expected_hits.tolist() == [0, pytest.approx(3.0)]
    assert sums.shown_of.tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 0]
    assert sums.hits_of.tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0]
    # cells of a quarter: 0.5 and 0.6 (two hits), 0.9 and 1.0 (none)
    assert sums.cells[:, [0, 2]].tolist() == [[0, 0], [0, 0], [2, 2], [2, 0]]
    np.testing.assert_allclose(sums.cells[:, 1] / UNIT, [0, 0, 1.1, 1.9], rtol=1e-9)


def test_items_are_matched_by_code_and_unknown_items_never_hit():
    sums = add(lists_of([[0, 1, 2]], [0], code=[4, -1, 3]), truth_of([[3]]), 9)
    assert (sums.hits[0], sums.first[0]) == (1, 3)
    assert sums.shown_of.tolist()[:4] == [1, 1, 1, 0]


def test_stamps_of_one_list_do_not_affect_another():
    truth = truth_of([[2], [1]])
    for _ in range(2):  # nor a second pass
        assert mark(lists_of([[1, 2], [1, 2]], [1, 0]), truth)[0].tolist() == [True, False, False, True]


def test_an_item_counts_as_one_hit_at_most():
    assert mark(lists_of([[2, 2, 1]], [0]), truth_of([[1, 2]]))[0].tolist() == [True, False, True]


@pytest.mark.parametrize("seed", range(4))
def test_prefixes_match_plain_loops(seed):
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(N_ITEMS)[: rng.integers(0, 8)].tolist() for _ in range(20)]
    relevant_items = [rng.permutation(N_ITEMS)[: rng.integers(1, 6)].tolist() for _ in range(20)]
    row = rng.permutation(20)
    row[:3] = -1
    marked = lists_of(lists, row)
    relevant = mark(marked, truth_of(relevant_items))[0]
    n_relevant = np.array([0 if r < 0 else len(relevant_items[r]) for r in row], np.int32)
    f1 = np.zeros((20, 9))
    for number, (items, r) in enumerate(zip(lists, row, strict=True)):
        if r >= 0:
            for k in range(1, 9):
                prefix = items[:k]
                f1[number, k] = (
                    2 * len(set(prefix) & set(relevant_items[r])) / (len(prefix) + len(relevant_items[r]))
                    if prefix
                    else 0
                )
    best = np.zeros(20, np.int64)
    find_best_prefixes(marked.indptr, relevant, n_relevant, best)
    assert best.tolist() == f1.argmax(axis=1).tolist()


def prefixes_of(indptr, relevant, max_items):
    n = relevant.size
    filled = [np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n), np.empty(n), np.empty(n)]
    fill_prefix_sums(indptr, relevant, DISCOUNT, max_items, *filled)
    return filled


def test_sums_of_prefixes_by_hand():
    """Hits at ranks 1 and 3 of the first list, at rank 2 of the second; at most two items would be shown."""
    one, two, three = DISCOUNT[:3]
    indptr, relevant = np.array([0, 3, 5]), np.array([True, False, True, False, True])
    hits, first, dcg, capped, precisions = prefixes_of(indptr, relevant, 2)
    assert hits.tolist() == [1, 1, 2, 0, 1]
    assert first.tolist() == [1, 1, 1, 0, 2]
    np.testing.assert_allclose(dcg, [one, one, one + three, 0, two])
    np.testing.assert_allclose(capped, [one, one, one, 0, two])
    np.testing.assert_allclose(precisions, [1, 1, 1, 0, 1 / 2])


def test_last_prefix_equals_the_whole_list():
    rng = np.random.default_rng(3)
    lists = [rng.permutation(N_ITEMS)[: rng.integers(1, 8)].tolist() for _ in range(20)]
    truth = truth_of([rng.permutation(N_ITEMS)[: rng.integers(1, 6)].tolist() for _ in range(20)])
    marked = lists_of(lists, np.arange(20))
    sums = add(marked, truth, 4)
    filled = prefixes_of(marked.indptr, mark(marked, truth)[0], 4)
    whole = (sums.hits, sums.first, sums.dcg, sums.dcg_capped, sums.precision_sum)
    for prefixes, expected in zip(filled, whole, strict=True):
        assert prefixes[marked.indptr[1:] - 1].tolist() == expected.tolist()


def test_values_at_fixed_lengths_by_hand():
    """Lists of two, no and one item: a shorter list counts whole, an empty one not at all."""
    sums = np.zeros((3, 2))
    add_at_lengths(np.array([0, 2, 2, 3]), np.array([[1.0, 10], [2, 20], [5, 50]]), sums)
    assert sums.tolist() == [[6, 60], [7, 70], [7, 70]]


rows = st.lists(st.integers(-1, 6), max_size=6, unique=True)


@given(
    lists=st.lists(rows, min_size=1, max_size=4),
    sets=st.lists(st.sets(st.integers(0, 6)), max_size=3),
    data=st.data(),
)
def test_candidates_in_the_set_are_marked(lists, sets, data):
    numbers = data.draw(st.permutations([*range(len(sets)), *(-1 for _ in lists)]))
    user = np.array(numbers[: len(lists)], np.int32)  # no set belongs to two lists
    indptr, set_indptr = (np.cumsum([0, *map(len, ragged)]) for ragged in (lists, sets))
    inside = np.zeros(indptr[-1], np.bool_)
    items = np.array([i if i >= 0 else 7 for row in lists for i in row], np.int32)
    codes = np.array([*range(7), -1], np.int32)  # item 7 is unknown
    members = np.array([i for items_of_user in sets for i in sorted(items_of_user)], np.int32)
    truth = TruthSets(set_indptr, members, np.empty(0), np.full(7, -1, np.int32))
    mark_hits(indptr, items, codes, user, truth, inside, np.empty(0))
    expected = [u >= 0 and i in sets[u] for row, u in zip(lists, user, strict=True) for i in row]
    assert inside.tolist() == expected
