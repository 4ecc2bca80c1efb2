"""Steps on rows against plain arithmetic, for widths with every kind of remainder."""

import numba
import numpy as np
import pytest

from shortlist.kernels.simd import (
    add_row,
    blend_rows,
    factor_width,
    keep_larger,
    prefetch_row,
    row_at,
    row_dot,
    step_hybrid_one,
    step_hybrid_pair,
    step_one,
    step_pair,
)

WIDTHS = [1, 2, 3, 4, 7, 8, 9, 15, 16, 50, 64, 100]
F = np.float32


def call(code, *args):
    """Call vector code, which only kernels can do."""

    @numba.njit
    def run(args):
        return code(*args)

    return run(args)


def table(n_factors, seed=0):
    return np.random.default_rng(seed).normal(size=(5, n_factors)).astype(F)


@pytest.mark.parametrize("n", WIDTHS)
def test_dot(n):
    rows = table(n)
    found = call(row_dot, row_at(rows, 1), row_at(rows, 4), factor_width(n))
    np.testing.assert_allclose(found, rows[1].astype(float) @ rows[4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", WIDTHS)
def test_pair_step_uses_old_values_of_three_rows(n):
    rows, step, shrink = table(n, 1), F(0.3), (F(0.9), F(0.8), F(0.7))
    p, q, r = rows[[3, 0, 2]].astype(float)
    wanted = rows.astype(float)
    wanted[3], wanted[0], wanted[2] = 0.9 * p + 0.3 * (q - r), 0.8 * q + 0.3 * p, 0.7 * r - 0.3 * p
    call(step_pair, row_at(rows, 3), row_at(rows, 0), row_at(rows, 2), step, *shrink, factor_width(n))
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", WIDTHS)
def test_example_step_uses_old_values_of_two_rows(n):
    rows = table(n, 2)
    p, q = rows[[1, 2]].astype(float)
    wanted = rows.astype(float)
    wanted[1], wanted[2] = 0.9 * p - 0.4 * q, 0.6 * q - 0.4 * p
    call(step_one, row_at(rows, 1), row_at(rows, 2), F(-0.4), F(0.9), F(0.6), factor_width(n))
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)


def test_prefetch_changes_nothing_and_accepts_any_address():
    rows = table(50)
    before = rows.copy()
    for row in (0, 4, 10**9):
        call(prefetch_row, row_at(rows, row), factor_width(50))
    assert (rows == before).all()


@pytest.mark.parametrize("n", [3, 16, 50])
def test_rows_are_added_and_compared(n):
    rows = table(n, 3)
    before = rows.astype(float)
    call(add_row, row_at(rows, 0), row_at(rows, 1), F(-0.3), factor_width(n))
    call(keep_larger, row_at(rows, 2), row_at(rows, 3), factor_width(n))
    np.testing.assert_allclose(rows[0], before[0] - 0.3 * before[1], rtol=1e-5, atol=1e-6)
    assert (rows[2] == np.maximum(before[2], before[3]).astype(F)).all()
    assert (rows[[1, 3, 4]] == before[[1, 3, 4]]).all()


@pytest.mark.parametrize("pooling", [(0.5, 0.0), (0.0, 1.0), (0.2, 0.3)])
@pytest.mark.parametrize("n", [3, 16, 50])
def test_steps_on_a_blend_of_user_and_context(n, pooling):
    """p has the weight w = base, plus gain where it is larger; both get their share of the gradient."""
    width, pool = factor_width(n), (F(pooling[0]), F(pooling[1]))
    rows = table(n, 4)
    p, context, q, r, gradient = rows.astype(float)
    w = pooling[0] + pooling[1] * (p >= context)
    blend = w * p + (1 - w) * context

    mixed = rows.copy()
    call(blend_rows, row_at(mixed, 4), row_at(mixed, 0), row_at(mixed, 1), *pool, width)
    np.testing.assert_allclose(mixed, [p, context, q, r, blend], rtol=1e-5, atol=1e-6)

    pair, shrink = rows.copy(), (F(0.9), F(0.8), F(0.7))
    at = [row_at(pair, row) for row in (0, 4, 2, 3, 1)]
    call(step_hybrid_pair, *at, F(0.3), *shrink, *pool, width)
    update = 0.3 * (q - r)
    wanted = [0.9 * p + w * update, context, 0.8 * q + 0.3 * blend, 0.7 * r - 0.3 * blend]
    np.testing.assert_allclose(pair, [*wanted, gradient + (1 - w) * update], rtol=1e-5, atol=1e-5)

    one = rows.copy()
    at = [row_at(one, row) for row in (0, 4, 2, 1)]
    call(step_hybrid_one, *at, F(-0.4), F(0.9), F(0.6), *pool, width)
    wanted = [0.9 * p - 0.4 * w * q, context, 0.6 * q - 0.4 * blend, r]
    np.testing.assert_allclose(one, [*wanted, gradient - 0.4 * (1 - w) * q], rtol=1e-5, atol=1e-5)
