"""solve_rows against the normal equations."""

import numpy as np
import pytest

from shortlist.kernels.als import ConfidenceRows, FixedSide, solve_rows
from shortlist.kernels.simd import factor_width
from shortlist.kernels.tiles import SIDE

WIDTH = factor_width(SIDE)
SIZES = (0, 3, 20, 600)  # the last one in several chunks


def case(n_blocks=2, seed=0):
    """(rows, fixed, penalty): random confidences, a few of them of pairs that should score 0."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(scale=0.3, size=(700, n_blocks * SIDE)).astype(np.float32)
    columns = np.concatenate([rng.choice(700, n, replace=False) for n in SIZES]).astype(np.int32)
    confidence = rng.uniform(0.5, 3, columns.size).astype(np.float32)
    confidence[::7] *= -1
    indptr = np.concatenate([[0], np.cumsum(SIZES)])
    gram = (0.05 * vectors.T @ vectors).astype(np.float32)
    return (
        ConfidenceRows(indptr, columns, confidence),
        FixedSide(vectors, gram),
        np.array([0.5, 1, 2, 3], "f4"),
    )


def system(rows, fixed, penalty, u):
    """(matrix, right side) of the normal equations of one row."""
    entries = slice(rows.indptr[u], rows.indptr[u + 1])
    liked, c = fixed.vectors[rows.columns[entries]].astype(float), rows.confidence[entries].astype(float)
    matrix = fixed.gram + penalty[u] * np.eye(len(fixed.gram)) + (liked.T * abs(c)) @ liked
    return matrix, (liked.T * abs(c)) @ (c > 0)


def solve(problem, n_sweeps, tolerance, start=0.01):
    rows, fixed, penalty = problem
    vectors = np.full((len(SIZES), fixed.vectors.shape[1]), start, np.float32)
    done = solve_rows(rows, fixed, penalty, n_sweeps, np.float32(tolerance), WIDTH, vectors)
    return vectors, done


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_sweeps_end_at_the_solution(n_blocks):
    problem = case(n_blocks)
    vectors, done = solve(problem, 200, 1e-6)
    for u in range(len(SIZES)):
        np.testing.assert_allclose(vectors[u], np.linalg.solve(*system(*problem, u)), atol=2e-5)
    assert len(SIZES) <= done < 150 * len(SIZES)


def test_a_sweep_solves_block_after_block():
    problem = case()
    vectors, done = solve(problem, 1, 0)
    assert done == len(SIZES)
    for u in range(len(SIZES)):
        matrix, right = system(*problem, u)
        plain = np.full(2 * SIDE, 0.01)
        for block in (slice(0, SIDE), slice(SIDE, 2 * SIDE)):
            plain[block] += np.linalg.solve(matrix[block, block], (right - matrix @ plain)[block])
        np.testing.assert_allclose(vectors[u], plain, atol=2e-5)


def test_rows_do_not_depend_on_each_other():
    problem = rows, fixed, penalty = case()
    together, _ = solve(problem, 3, 0)
    for u in range(len(SIZES)):
        alone = np.full((1, fixed.vectors.shape[1]), 0.01, np.float32)
        part = rows._replace(indptr=rows.indptr[u : u + 2])
        solve_rows(part, fixed, penalty[u : u + 1], 3, np.float32(0), WIDTH, alone)
        assert (alone[0] == together[u]).all()
