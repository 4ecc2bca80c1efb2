"""Grouping kernels against plain Python sorting."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.rows import (
    SHORT,
    build_sets,
    fill_user_starts,
    find_baskets,
    find_invalid_row,
    find_repeated_item,
    group_rows,
    look_up_codes,
    mark_present,
    merge_duplicates,
    sort_rows,
)

EMPTY = {"time": np.empty(0, np.int64), "basket": np.empty(0, np.int32), "weight": np.empty(0, np.float32)}


def grouped(user, n_users, item, time, basket, weight):
    """All kernels in their order, on copies."""
    indptr = np.zeros(n_users + 1, np.int64)
    fill_user_starts(user, indptr)
    out = [np.empty_like(column) for column in (item, time, basket, weight)]
    free = indptr[:-1].copy()
    for first in range(0, n_users, 2):  # two users at a time, as blocks of users are moved
        group_rows(user, first, free[first : first + 2], item, time, basket, weight, *out)
    sort_rows(indptr, out[1], out[2], out[0], out[3])
    return indptr, *out


@st.composite
def tables(draw):
    """Columns of any length; each optional one may be absent; times repeat, users are sometimes long."""
    n = draw(st.integers(0, 60))
    column = lambda top, kind: np.array(draw(st.lists(st.integers(0, top), min_size=n, max_size=n)), kind)  # noqa: E731
    n_users = draw(st.integers(1, 4))
    user, item = column(n_users - 1, np.int32), column(6, np.int32)
    time = column(draw(st.sampled_from([3, 10**12])), np.int64) if draw(st.booleans()) else EMPTY["time"]
    basket = column(2, np.int32) if draw(st.booleans()) else EMPTY["basket"]
    weight = np.arange(n, dtype=np.float32) if draw(st.booleans()) else EMPTY["weight"]
    return user, n_users, item, time, basket, weight


def plain_rows(user, item, time, basket):
    """Every row as a tuple of the keys it is sorted by."""
    zeros = np.zeros(user.size, np.int64)
    keys = (user, time if time.size else zeros, basket if basket.size else zeros, item)
    return list(zip(*(key.tolist() for key in keys), strict=True))


@given(tables())
def test_rows_come_out_sorted_and_keep_their_weights(table):
    user, n_users, item, time, basket, weight = table
    indptr, to_item, to_time, to_basket, to_weight = grouped(*table)
    to_user = np.repeat(np.arange(n_users), np.diff(indptr))
    before, after = plain_rows(user, item, time, basket), plain_rows(to_user, to_item, to_time, to_basket)
    assert after == sorted(before)
    if weight.size:  # every weight was the number of its row: it must stay with its keys
        assert [before[int(number)] for number in to_weight] == after
        assert sorted(to_weight) == sorted(weight)


@pytest.mark.parametrize("n", [SHORT, SHORT + 1, 500])
@pytest.mark.parametrize("times", [1, 5, 10**9])
def test_long_and_short_users_are_sorted_equally(n, times):
    rng = np.random.default_rng(n)
    item, time = rng.integers(0, 50, n).astype(np.int32), rng.integers(0, times, n)
    _, to_item, to_time, _, _ = grouped(
        np.zeros(n, np.int32), 1, item, time, EMPTY["basket"], EMPTY["weight"]
    )
    assert list(zip(to_time, to_item, strict=True)) == sorted(zip(time, item, strict=True))


@pytest.mark.parametrize("n", [SHORT + 1, 100])
def test_log_in_reverse_order_is_sorted(n):
    item, time = np.arange(n, dtype=np.int32) % 7, np.arange(n)[::-1].copy()
    _, to_item, to_time, _, _ = grouped(
        np.zeros(n, np.int32), 1, item, time, EMPTY["basket"], EMPTY["weight"]
    )
    assert to_time.tolist() == list(range(n))
    assert to_item.tolist() == item[::-1].tolist()


def test_sorted_log_is_sorted_within_equal_times():
    item, time = np.array([5, 3, 9, 1, 7, 2] * 20, np.int32), np.repeat(np.arange(40), 3)
    _, to_item, to_time, _, _ = grouped(
        np.zeros(120, np.int32), 1, item, time, EMPTY["basket"], EMPTY["weight"]
    )
    assert to_time.tolist() == time.tolist()
    assert to_item.tolist() == [3, 5, 9, 1, 2, 7] * 20


@given(tables())
def test_equal_rows_are_merged_and_their_weights_added(table):
    user, n_users, _, _, _, weight = table
    indptr, to_item, to_time, to_basket, to_weight = grouped(*table)
    to_user = np.repeat(np.arange(n_users), np.diff(indptr))
    rows = plain_rows(to_user, to_item, to_time, to_basket)
    total = {}
    for row, value in zip(rows, to_weight.tolist() or [0.0] * len(rows), strict=True):
        total[row] = total.get(row, 0.0) + value
    keep = np.empty(user.size, np.bool_)
    merged = merge_duplicates(indptr, to_time, to_basket, to_item, to_weight, keep)
    kept = [row for row, stays in zip(rows, keep, strict=True) if stays]
    assert kept == sorted(set(rows))
    assert merged == len(rows) - len(kept)
    if weight.size:
        assert to_weight[keep].tolist() == [total[row] for row in kept]


@given(tables())
def test_baskets_start_where_user_time_or_basket_id_changes(table):
    _, n_users, *_ = table
    indptr, to_item, to_time, to_basket, _ = grouped(*table)
    to_user = np.repeat(np.arange(n_users), np.diff(indptr))
    keys = [row[:3] for row in plain_rows(to_user, to_item, to_time, to_basket)]
    starts, counts = np.empty(len(keys), np.bool_), np.zeros(n_users + 1, np.int64)
    total = find_baskets(indptr, to_time, to_basket, starts, counts)
    assert starts.tolist() == [at == 0 or keys[at] != keys[at - 1] for at in range(len(keys))]
    assert total == starts.sum() == len(set(keys)) == counts[-1]
    assert np.diff(counts).tolist() == [len({key for key in keys if key[0] == u}) for u in range(n_users)]


@given(tables())
def test_sets_are_each_users_distinct_items_ascending(table):
    _, n_users, *_ = table
    indptr, to_item, *_ = grouped(*table)
    starts, items = np.zeros(n_users + 1, np.int64), np.empty(to_item.size, np.int32)
    build_sets(indptr, to_item, starts, items)
    for u in range(n_users):
        expected = sorted(set(to_item[indptr[u] : indptr[u + 1]].tolist()))
        assert items[starts[u] : starts[u + 1]].tolist() == expected


@given(st.lists(st.integers(-5, 20), min_size=1, max_size=40))
def test_marks_and_codes_number_the_ids_in_order(ids):
    rows, low = np.array(ids, np.int64), min(ids)
    table = np.zeros(max(ids) - low + 1, np.int32)
    mark_present(rows, low, table)
    distinct = np.flatnonzero(table)
    assert (distinct + low).tolist() == sorted(set(ids))
    table[distinct] = np.arange(distinct.size)
    codes = np.empty(rows.size, np.int32)
    look_up_codes(rows, low, table, codes)
    assert [sorted(set(ids))[code] for code in codes] == ids


@pytest.mark.parametrize(
    ("lists", "at"),
    [
        ([], -1),
        ([[]], -1),
        ([[1, 2], [2, 1]], -1),
        ([[0, 1], [2, 0, 2]], 4),
        ([[3, 3, 3]], 1),
        ([[1], [], [1, 1]], 2),
    ],
)
def test_first_repeated_item_is_found(lists, at):
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    items = np.array([item for one in lists for item in one], np.int32)
    assert find_repeated_item(indptr, items, np.full(4, -1, np.int32)) == at


def plain_invalid_row(indptr, baskets, item, time, n_items, max_time):
    """The first row that breaks a rule, basket by basket."""
    for begin, end in pairwise(baskets):
        user_begins = begin in indptr
        rows = range(begin, end)
        if not rows:
            return begin
        for row in rows:
            inside = 0 <= item[row] < n_items and (not time or -max_time <= time[row] <= max_time)
            ascending = row == begin or item[row] > item[row - 1]
            same_time = not time or row == begin or time[row] == time[row - 1]
            if not (inside and ascending and same_time):
                return row
        if time and not user_begins and time[begin] < time[begin - 1]:
            return begin
    return -1


@given(
    users=st.lists(st.lists(st.sets(st.integers(0, 4), min_size=1), max_size=3), min_size=1, max_size=4),
    has_times=st.booleans(),
    data=st.data(),
)
def test_first_invalid_row_is_found(users, has_times, data):
    """Valid rows, of which one number is changed."""
    baskets = [sorted(one) for user in users for one in user]
    ends = np.cumsum([0, *map(len, baskets)])
    indptr = ends[np.cumsum([0, *map(len, users)])]
    item = [i for one in baskets for i in one]
    numbers = [number for user in users for number in range(len(user))]
    time = [number // 2 for number, one in zip(numbers, baskets, strict=True) for _ in one if has_times]

    def found():
        columns = np.array(item, np.int32), np.array(time, np.int64)
        return find_invalid_row(indptr, ends, *columns, 5, 3)

    assert found() == plain_invalid_row(indptr, ends.tolist(), item, time, 5, 3) == -1
    if item:
        column = time if time and data.draw(st.booleans()) else item
        column[data.draw(st.integers(0, len(item) - 1))] = data.draw(st.integers(-5, 6))
        assert found() == plain_invalid_row(indptr, ends.tolist(), item, time, 5, 3)


@pytest.mark.parametrize(
    ("baskets", "item", "time", "row"),
    [
        ([[0, 2]], [0, 4], [3, 3], -1),
        ([[0, 2]], [-1, 4], [3, 3], 0),
        ([[0, 2]], [0, 5], [3, 3], 1),
        ([[0, 2]], [4, 4], [3, 3], 1),
        ([[0, 2]], [0, 4], [-4, -4], 0),
        ([[0, 2]], [0, 4], [4, 4], 0),
        ([[0, 2]], [0, 4], [], -1),
        ([[0, 2]], [0, 4], [1, 2], 1),
        ([[0, 1], [1, 2]], [0, 0], [1, 1], -1),
        ([[0, 1], [1, 2]], [0, 0], [2, 1], 1),
        ([[0, 1], [1, 1], [1, 2]], [0, 0], [1, 2], 1),
    ],
)
def test_invalid_rows_by_hand(baskets, item, time, row):
    """One user, five items, times from -3 to 3."""
    starts = np.array([baskets[0][0], *(end for _, end in baskets)])
    columns = np.array(item, np.int32), np.array(time, np.int64)
    assert find_invalid_row(np.array([0, len(item)]), starts, *columns, 5, 3) == row


def test_next_user_may_begin_before_the_last_one_ends():
    columns = np.array([0, 0], np.int32), np.array([2, 1], np.int64)
    assert find_invalid_row(np.array([0, 1, 2]), np.array([0, 1, 2]), *columns, 5, 3) == -1
