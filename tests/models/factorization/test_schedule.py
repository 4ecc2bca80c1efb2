"""The partition depends on the data alone, and parallel work covers every part once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.models.factorization.schedule import (
    CACHE_MAX_BLOCKS,
    CACHE_MIN_BLOCKS,
    CELL_ROWS,
    Partition,
    Schedule,
    choose_partition,
)

SIZES = st.integers(1, 10**7)


def schedule(pool, n_threads):
    one_row = np.array([0, 1]), np.zeros(1, np.int32), np.array([0, 1]), 1
    return Schedule(*one_row, Partition(1, 1), 0, pool, n_threads)


@given(SIZES, SIZES, SIZES, st.integers(1, 512), st.sampled_from([4, 64]))
def test_partition_respects_users_items_and_limits(n_rows, n_users, n_items, n_factors, min_blocks):
    partition = choose_partition(n_rows, n_users, n_items, n_factors, min_blocks)
    assert 1 <= partition.n_blocks <= min(max(CACHE_MAX_BLOCKS, min_blocks), n_users, n_items)
    assert partition.ranges_per_block >= 1
    assert partition.n_blocks * partition.ranges_per_block <= n_items
    assert (
        partition.ranges_per_block == 1
        or n_rows >= partition.n_blocks**2 * partition.ranges_per_block * CELL_ROWS
    )


def test_more_data_gives_more_blocks():
    small, sparse, dense = (choose_partition(n, 10**6, 10**6, 64) for n in (1000, 10**7, 10**8))
    assert small.n_blocks == 1
    assert sparse.n_blocks < dense.n_blocks == CACHE_MAX_BLOCKS
    assert sparse.n_blocks >= CACHE_MIN_BLOCKS
    assert sparse.n_blocks * sparse.ranges_per_block >= 900  # so that a range of items fits in the cache


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_parallel_work_covers_every_part_once(n, n_threads):
    with ThreadPoolExecutor(n_threads) as pool:
        parts = schedule(pool, n_threads).run_parallel(
            lambda first, last, tag: [(tag, i) for i in range(first, last)], n, "x"
        )
    assert [i for part in parts for i in part] == [("x", i) for i in range(n)]


def test_exception_in_a_thread_is_raised():
    def fail(first, last):
        raise RuntimeError("in a thread")

    with ThreadPoolExecutor(2) as pool, pytest.raises(RuntimeError, match="in a thread"):
        schedule(pool, 2).run_parallel(fail, 4)
