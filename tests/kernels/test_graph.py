"""Kernels of GFCF against dense products and NumPy's decomposition."""

import numpy as np
from scipy.sparse import csr_array, random_array

from shortlist.kernels.graph import WeightedRows, diagonalize, follow_paths, orthonormalize


def as_rows(matrix):
    matrix = csr_array(matrix)
    return WeightedRows(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float32)
    )


def test_paths_are_two_products():
    rng = np.random.default_rng(0)
    matrix = random_array((30, 20), density=0.2, rng=rng, format="csr")
    queries = random_array((7, 20), density=0.3, rng=rng, format="csr")
    queries.data -= 0.5  # sums may cancel
    out = np.ones((7, 20), np.float32)
    follow_paths(as_rows(queries), as_rows(matrix.T), as_rows(matrix), out)
    np.testing.assert_allclose(out, 1 + (queries @ matrix.T @ matrix).toarray(), atol=1e-5)


def test_columns_become_orthonormal_and_dependent_ones_vanish():
    columns = np.random.default_rng(0).normal(size=(50, 6))
    columns[:, 3] = columns[:, 0] - 2 * columns[:, 1]
    change = np.full((6, 6), np.nan, np.float32)
    orthonormalize(columns.T @ columns, change)
    turned = columns @ change
    wanted = np.eye(6)
    wanted[3, 3] = 0
    np.testing.assert_allclose(turned.T @ turned, wanted, atol=1e-5)
    plain = np.linalg.qr(columns[:, [0, 1, 2, 4, 5]])[0]
    np.testing.assert_allclose(abs(np.diag(plain.T @ turned[:, [0, 1, 2, 4, 5]])), 1, atol=1e-5)


def test_rotations_end_at_the_eigenvectors():
    drawn = np.random.default_rng(0).normal(size=(40, 12))
    matrix = drawn.T @ drawn
    turned, vectors = matrix.copy(), np.full((12, 12), np.nan)
    diagonalize(turned, vectors)
    np.testing.assert_allclose(np.sort(np.diag(turned)), np.linalg.eigvalsh(matrix), rtol=1e-10)
    np.testing.assert_allclose(vectors @ matrix @ vectors.T, np.diag(np.diag(turned)), atol=1e-9)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(12), atol=1e-12)
