"""Sums of blocks of items against plain arithmetic."""

import numpy as np
import pytest

from shortlist.kernels.simd import BLOCK, GROUP, sum_block
from tests.kernels.test_simd import call


def aligned_problem(n_dims):
    """(items, users, rows, start): one block dimension by dimension, and some users in any order."""
    rng = np.random.default_rng(n_dims)
    items, users = rng.normal(size=(n_dims, BLOCK)), rng.normal(size=(9, n_dims))
    rows = rng.permutation(9)[:GROUP].astype(np.int32)
    return items.astype(np.float32), users.astype(np.float32), rows, rng.normal(size=BLOCK).astype(np.float32)


@pytest.mark.parametrize(("n_users", "lanes"), [(1, BLOCK), (GROUP, 16), (GROUP, 32)])
def test_sums_of_some_users_over_some_dimensions(n_users, lanes):
    add = sum_block(n_users, lanes)  # whatever the processor of this machine uses
    for n_dims, n in ((1, 1), (8, 5), (37, 37)):
        items, users, rows, start = aligned_problem(n_dims)
        sums = np.full((GROUP + 1, BLOCK), 7, np.float32)
        addresses = [np.uintp(array.ctypes.data) for array in (items, users, rows, start, sums)]
        call(add, *addresses[:3], n_dims, n, *addresses[3:])
        expected = start + users[rows[:n_users], :n].astype(float) @ items[:n]
        np.testing.assert_allclose(sums[:n_users], expected, rtol=1e-4, atol=1e-5)
        assert (sums[n_users:] == 7).all()
