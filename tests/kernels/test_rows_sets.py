"""Ragged sets against Python sets."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.rows import count_common, find_members, sum_rows, unite_sets

PAIRS = st.lists(st.tuples(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20))), max_size=6)


def ragged(sets):
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    return indptr, np.array([item for one in sets for item in sorted(one)], np.int32)


@given(PAIRS)
def test_union_and_number_of_common_items_per_user(pairs):
    left, right = ragged([a for a, _ in pairs]), ragged([b for _, b in pairs])
    at, out = np.empty(len(pairs) + 1, np.int64), np.empty(left[1].size + right[1].size, np.int32)
    unite_sets(*left, *right, at, out)
    found = [out[a:b].tolist() for a, b in pairwise(at)]
    assert found == [sorted(a | b) for a, b in pairs]
    common = np.empty(len(pairs), np.int64)
    count_common(*left, *right, common)
    assert common.tolist() == [len(a & b) for a, b in pairs]


@given(st.lists(st.tuples(st.sets(st.integers(0, 8)), st.integers(0, 9)), max_size=6))
def test_find_members_of_unsorted_numbers(cases):
    at, items = ragged([one for one, _ in cases])
    which = np.arange(len(cases), dtype=np.int32)[::-1].copy()
    wanted, out = np.array([cases[n][1] for n in which], np.int32), np.empty(len(cases), np.bool_)
    find_members(at, items, which, wanted, out)
    assert out.tolist() == [cases[n][1] in cases[n][0] for n in which]


def test_sums_of_rows_by_hand():
    assert sum_rows(np.array([0, 2, 2, 3]), np.array([1.0, 2.0, 4.0])).tolist() == [3, 0, 4]
