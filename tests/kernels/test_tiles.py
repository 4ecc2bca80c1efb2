"""Products in tiles against NumPy, and their independence of everything but the values."""

import numpy as np
import pytest

from shortlist.kernels.tiles import SIDE, multiply_tiles, sum_outer


def drawn(n, width, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 5, 300])
def test_product_is_that_of_numpy(n):
    a, b = drawn(n, 2 * SIDE), drawn(n, 3 * SIDE, 1)
    out = np.full((2 * SIDE, 3 * SIDE), np.nan, np.float32)
    multiply_tiles(a, b, out)
    np.testing.assert_allclose(out, a.astype(float).T @ b.astype(float), atol=1e-4)


def test_element_does_not_depend_on_its_place():
    """Columns may be cut into slices of any size and moved within a tile without another bit."""
    a, b = drawn(70, 2 * SIDE), drawn(70, 2 * SIDE, 1)
    whole, turned, alone = (np.empty((2 * SIDE, 2 * SIDE), np.float32) for _ in range(3))
    multiply_tiles(a, b, whole)
    order = np.random.default_rng(2).permutation(2 * SIDE)
    multiply_tiles(a[:, order].copy(), b[:, order].copy(), turned)
    assert (turned == whole[order][:, order]).all()
    multiply_tiles(a[:, :SIDE].copy(), b, alone[:SIDE])
    assert (alone[:SIDE] == whole[:SIDE]).all()


@pytest.mark.parametrize("n", [1, 255, 256, 700])
def test_outer_products_are_summed(n):
    rows, out = drawn(n, 2 * SIDE), np.ones((2 * SIDE, 2 * SIDE))
    sum_outer(rows, out)
    wanted = rows.astype(float).T @ rows.astype(float)
    upper = np.triu_indices(2 * SIDE)
    np.testing.assert_allclose(out[upper], wanted[upper] + 1, atol=1e-3)
    assert (out == out.T).all()
