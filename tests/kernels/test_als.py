"""solve_rows against the normal equations."""

import numpy as np
import pytest

from shortlist.kernels.als import FEW, ConfidenceRows, FixedSide, solve_rows

SIZES = (0, 1, 3, FEW, FEW + 1, 600)  # with few pairs and with many
NONE = np.zeros((0, 0), np.float32)  # no basis of start values


def case(width=64, seed=0):
    """(rows, fixed, penalty): random confidences, a few of them of pairs that should score 0."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(scale=0.3, size=(700, width)).astype(np.float32)
    columns = np.concatenate([rng.choice(700, n, replace=False) for n in SIZES]).astype(np.int32)
    confidence = rng.uniform(0.5, 3, columns.size).astype(np.float32)
    confidence[::7] *= -1
    indptr = np.concatenate([[0], np.cumsum(SIZES)])
    gram = rng.uniform(0.1, 4, width).astype(np.float32)
    penalty = np.arange(1, len(SIZES) + 1, dtype=np.float32) / 2
    return ConfidenceRows(indptr, columns, confidence), FixedSide(vectors, gram), penalty


def system(rows, fixed, penalty, u):
    """(matrix, right side) of the normal equations of one row."""
    entries = slice(rows.indptr[u], rows.indptr[u + 1])
    liked, c = fixed.vectors[rows.columns[entries]].astype(float), rows.confidence[entries].astype(float)
    matrix = np.diag(fixed.gram.astype(float)) + penalty[u] * np.eye(fixed.gram.size)
    return matrix + (liked.T * abs(c)) @ liked, (liked.T * abs(c)) @ (c > 0)


def solve(problem, n_steps, tolerance, basis=NONE):
    rows, fixed, penalty = problem
    vectors = np.full((len(SIZES), fixed.gram.size), 0.01, np.float32)
    done = solve_rows(rows, fixed, penalty, basis, n_steps, np.float32(tolerance), vectors)
    return vectors, done


@pytest.mark.parametrize("width", [1, 50, 96])
def test_steps_end_at_the_solution(width):
    problem = case(width)
    vectors, done = solve(problem, 200, 1e-6)
    for u in range(len(SIZES)):
        np.testing.assert_allclose(vectors[u], np.linalg.solve(*system(*problem, u)), atol=2e-5)
    assert 2 <= done < 100


@pytest.mark.parametrize("n_steps", [1, 3])
def test_steps_are_preconditioned_conjugate_gradients(n_steps):
    problem = case()
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(64, 64)))[0].astype(np.float32)
    vectors, done = solve(problem, n_steps, 0, basis)
    assert done == 2 * n_steps
    for u in (4, 5):
        matrix, right = system(*problem, u)
        x = np.full(64, 0.01) @ basis
        r = right - matrix @ x
        p = z = r / np.diag(matrix)
        for _ in range(n_steps):
            length = r @ z / (p @ matrix @ p)
            x, new = x + length * p, r - length * matrix @ p
            after = new / np.diag(matrix)
            p, r, z = after + new @ after / (r @ z) * p, new, after
        np.testing.assert_allclose(vectors[u], x, atol=2e-5)


def test_rows_do_not_depend_on_each_other():
    problem = rows, fixed, penalty = case()
    together, _ = solve(problem, 3, 0)
    for u in range(len(SIZES)):
        alone = np.full((1, fixed.gram.size), 0.01, np.float32)
        selected = rows._replace(indptr=rows.indptr[u : u + 2])
        solve_rows(selected, fixed, penalty[u : u + 1], NONE, 3, np.float32(0), alone)
        assert (alone[0] == together[u]).all()
