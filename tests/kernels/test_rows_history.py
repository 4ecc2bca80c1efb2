"""Counts that fade with time, row by row, against the sum over all rows; new rows of users."""

import numpy as np

from shortlist.kernels.rows import add_decayed, find_last_baskets, mark_new_rows

ONES = np.empty(0)  # every row counts 1


def test_add_decayed_equals_the_sum_of_faded_rows():
    rng = np.random.default_rng(3)
    item = rng.integers(0, 5, 40).astype(np.int32)
    time = np.sort(rng.integers(0, 1_000, 40))
    count, last = np.zeros(6), np.zeros(6, dtype=np.int64)
    assert add_decayed(item, time, ONES, 50.0, count, last)
    for i in range(5):
        own = time[item == i]
        assert last[i] == own[-1]
        np.testing.assert_allclose(count[i], (0.5 ** ((own[-1] - own) / 50.0)).sum(), rtol=1e-12)
    assert count[5] == 0


def test_add_decayed_adds_amounts():
    item, time = np.array([0, 1, 0, 0], dtype=np.int32), np.array([0, 0, 1, 3])
    count, last = np.zeros(2), np.zeros(2, dtype=np.int64)
    assert add_decayed(item, time, np.array([8.0, -2.0, 3.0, 0.5]), 1.0, count, last)
    assert count.tolist() == [(8 / 2 + 3) / 4 + 0.5, -2]
    assert last.tolist() == [3, 0]
    assert not add_decayed(item[1:2], np.array([-1]), np.ones(1), 1.0, count, last)  # below 0 has an age too


def test_add_decayed_in_two_pieces_has_the_same_bits():
    rng = np.random.default_rng(4)
    item = rng.integers(0, 5, 40).astype(np.int32)
    time = np.sort(rng.integers(0, 1_000, 40))
    whole, pieces = np.zeros(5), np.zeros(5)
    add_decayed(item, time, ONES, 50.0, whole, np.zeros(5, dtype=np.int64))
    last = np.zeros(5, dtype=np.int64)
    for part in (slice(0, 17), slice(17, 40)):
        assert add_decayed(item[part], time[part], ONES, 50.0, pieces, last)
    assert (whole == pieces).all()


def test_add_decayed_refuses_a_row_that_is_older_than_its_item():
    count, last = np.zeros(2), np.zeros(2, dtype=np.int64)
    item = np.array([0, 1, 1, 0], dtype=np.int32)
    assert add_decayed(item, np.array([5, 3, 3, 5]), ONES, 1.0, count, last)
    assert not add_decayed(item[:1], np.array([4]), ONES, 1.0, count, last)


def test_find_last_baskets_takes_the_largest_number_at_the_same_time():
    starts = np.array([0, 3, 5])
    known_time, known_basket = np.array([1, 7, 7, 7, 9]), np.array([0, 1, 2, 0, 1], dtype=np.int32)
    place, time = np.array([0, 0, 1, -1]), np.array([7, 8, 9, 7])
    basket = np.full(4, -1, dtype=np.int32)
    find_last_baskets(place, time, starts, known_time, known_basket, basket)
    assert basket.tolist() == [2, -1, 1, -1]


def test_new_rows_are_those_beside_the_earlier_ones():
    before = [[(1, 5), (4, 5), (2, 7)], [], [(3, 1)]]
    after = [[(0, 5), (1, 5), (4, 5), (4, 6), (2, 7), (9, 7)], [(3, 1)], [(3, 1)]]
    columns = []
    for users in (before, after):
        rows = [row for user in users for row in user]
        columns.append(np.cumsum([0, *map(len, users)]))
        columns.append(np.array([item for item, _ in rows], np.int32))
        columns.append(np.array([time for _, time in rows]))
    is_new = np.empty(8, np.bool_)
    mark_new_rows(*columns, is_new)
    assert is_new.tolist() == [True, False, False, True, False, True, True, False]
