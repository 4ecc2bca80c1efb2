"""Sums for generalized linear models against NumPy."""

import numpy as np

from shortlist.kernels.glm import (
    add_curvature,
    add_gradient,
    add_hinges,
    fill_hinges,
    multiply_rows,
    solve_positive,
)


def test_curvature_equals_the_weighted_product():
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(40, 5)), rng.random(40)
    total = np.zeros((5, 5))
    add_curvature(rows, weight, total)
    np.testing.assert_allclose(total, rows.T @ np.diag(weight) @ rows)


def test_added_hinges_equal_filled_hinges_times_beta():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(50, 3))
    starts, knots = np.array([0, 2, 2, 5]), np.array([-0.5, 0.5, -1.0, 0.0, 1.0])
    bent = np.empty((50, 8))
    fill_hinges(columns, starts, knots, bent)
    plain = [columns[:, 0], *(np.maximum(columns[:, 0] - k, 0) for k in knots[:2]), columns[:, 1]]
    plain += [columns[:, 2], *(np.maximum(columns[:, 2] - k, 0) for k in knots[2:])]
    np.testing.assert_array_equal(bent, np.column_stack(plain))
    beta, line = rng.normal(size=8), np.full(50, 7.0)
    add_hinges(columns, starts, knots, beta, line)
    np.testing.assert_allclose(line, 7 + bent @ beta)


def test_products_equal_numpy():
    rng = np.random.default_rng(1)
    rows, beta, residual = rng.normal(size=(40, 5)), rng.normal(size=5), rng.normal(size=40)
    eta, gradient = np.empty(40), np.ones(5)
    multiply_rows(rows, beta, eta)
    add_gradient(rows, residual, gradient)
    np.testing.assert_allclose(eta, rows @ beta)
    np.testing.assert_allclose(gradient, 1 + rows.T @ residual)


def test_positive_systems_are_solved_and_others_give_nan():
    rng = np.random.default_rng(2)
    factors, vectors = rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 4))
    matrices = factors.transpose(0, 2, 1) @ factors
    expected, solutions = np.linalg.solve(matrices, vectors[:, :, None])[:, :, 0], np.empty((3, 4))
    solve_positive(matrices.copy(), vectors, solutions)
    np.testing.assert_allclose(solutions, expected)
    solve_positive(-matrices, vectors, solutions)
    assert np.isnan(solutions).all()
