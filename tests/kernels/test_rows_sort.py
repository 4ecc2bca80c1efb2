"""sort_ascending against NumPy."""

import numpy as np
import pytest

from shortlist.kernels.rows import sort_ascending


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
