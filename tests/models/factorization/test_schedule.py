"""Blocks are chosen from the data alone, and work is shared out whole."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.models.factorization.schedule import (
    CELL_ROWS,
    LEAST_BLOCKS,
    MOST_BLOCKS,
    Cut,
    Schedule,
    choose_cut,
    thread_count,
)

SIZES = st.integers(1, 10**7)


@given(SIZES, SIZES, SIZES, st.integers(1, 512), st.sampled_from([4, 64]))
def test_blocks_and_ranges_never_outnumber_users_items_or_the_cap(n_rows, n_users, n_items, n_factors, least):
    cut = choose_cut(n_rows, n_users, n_items, n_factors, least)
    assert 1 <= cut.n_blocks <= min(max(MOST_BLOCKS, least), n_users, n_items)
    assert cut.each >= 1
    assert cut.n_blocks * cut.each <= n_items
    assert cut.each == 1 or n_rows >= cut.n_blocks**2 * cut.each * CELL_ROWS


def test_more_data_more_blocks():
    small, sparse, dense = (choose_cut(n, 10**6, 10**6, 64) for n in (1000, 10**7, 10**8))
    assert small.n_blocks == 1
    assert sparse.n_blocks < dense.n_blocks == MOST_BLOCKS
    assert sparse.n_blocks >= LEAST_BLOCKS
    assert sparse.n_blocks * sparse.each >= 900  # a range of a thousand items stays in the cache


def test_threads():
    assert thread_count(3) == 3
    assert thread_count(0) >= 1


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_work_is_shared_out_whole(n, n_threads):
    with ThreadPoolExecutor(n_threads) as pool:
        one = Schedule(np.array([0, 1]), np.zeros(1, np.int32), np.array([0, 1]), 1, Cut(1, 1), 0, pool)
        parts = one.spread(lambda first, last, word: [(word, i) for i in range(first, last)], n, "x")
    assert [i for part in parts for i in part] == [("x", i) for i in range(n)]


def test_what_a_thread_raises_is_raised():
    def fail(first, last):
        raise RuntimeError("in a thread")

    with ThreadPoolExecutor(2) as pool:
        one = Schedule(np.array([0, 1]), np.zeros(1, np.int32), np.array([0, 1]), 1, Cut(1, 1), 0, pool)
        with pytest.raises(RuntimeError, match="in a thread"):
            one.spread(fail, 4)
