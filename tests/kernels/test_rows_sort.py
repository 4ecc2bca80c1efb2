"""Sorting and selecting, against NumPy."""

import numpy as np
import pytest

from shortlist.kernels.rows import kth_smallest, order_ascending, sort_ascending


@pytest.mark.parametrize("kind", [np.int32, np.uint64])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 17, 100, 1000])
def test_sorts_like_numpy(kind, size):
    rng = np.random.default_rng(size)
    ends = np.iinfo(kind)
    for low, high in ((ends.min, ends.max), (0, 5)):  # all numbers, and many equal ones
        values = rng.integers(low, high, size, dtype=kind, endpoint=True)
        for given in (values, np.sort(values), np.sort(values)[::-1]):
            found = given.copy()
            sort_ascending(found)
            np.testing.assert_array_equal(found, np.sort(values))


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 17, 1000])
def test_order_is_the_stable_one_of_numpy(kind, size):
    rng = np.random.default_rng(size)
    for n_values in (3, 10**9):  # many equal numbers, and few
        values = rng.integers(0, n_values, size).astype(kind)
        order = np.empty(size, np.int64)
        order_ascending(values, order)
        np.testing.assert_array_equal(order, np.argsort(values, kind="stable"))


@pytest.mark.parametrize("size", [1, 2, 3, 10, 500])
def test_kth_smallest_is_that_of_a_sorted_array(size):
    rng = np.random.default_rng(size)
    for values in (rng.random(size), rng.integers(0, 3, size), np.arange(size), -np.arange(size)):
        numbers = values.astype(np.float32)
        for k in {0, size // 3, size - 1}:
            assert kth_smallest(numbers.copy(), k) == np.sort(numbers)[k]
