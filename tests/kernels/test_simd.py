"""Steps on rows against plain arithmetic, for widths with every kind of remainder."""

import numpy as np
import pytest

from shortlist.kernels.simd import factor_width, prefetch_row, row_at, row_dot, step_one, step_pair

WIDTHS = [1, 2, 3, 4, 7, 8, 9, 15, 16, 50, 64, 100]
F = np.float32


def table(n_factors, seed=0):
    return np.random.default_rng(seed).normal(size=(5, n_factors)).astype(F)


@pytest.mark.parametrize("n", WIDTHS)
def test_dot(n):
    rows = table(n)
    found = row_dot(row_at(rows, 1), row_at(rows, 4), factor_width(n))
    np.testing.assert_allclose(found, rows[1].astype(float) @ rows[4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", WIDTHS)
def test_pair_step_uses_old_values_of_three_rows(n):
    rows, step, shrink = table(n, 1), F(0.3), (F(0.9), F(0.8), F(0.7))
    p, q, r = rows[[3, 0, 2]].astype(float)
    wanted = rows.astype(float)
    wanted[3], wanted[0], wanted[2] = 0.9 * p + 0.3 * (q - r), 0.8 * q + 0.3 * p, 0.7 * r - 0.3 * p
    step_pair(row_at(rows, 3), row_at(rows, 0), row_at(rows, 2), step, shrink, factor_width(n))
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", WIDTHS)
def test_example_step_uses_old_values_of_two_rows(n):
    rows = table(n, 2)
    p, q = rows[[1, 2]].astype(float)
    wanted = rows.astype(float)
    wanted[1], wanted[2] = 0.9 * p - 0.4 * q, 0.6 * q - 0.4 * p
    step_one(row_at(rows, 1), row_at(rows, 2), F(-0.4), (F(0.9), F(0.6)), factor_width(n))
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)


def test_prefetch_changes_nothing_and_accepts_any_address():
    rows = table(50)
    before = rows.copy()
    for row in (0, 4, 10**9):
        prefetch_row(row_at(rows, row), factor_width(50))
    assert (rows == before).all()
