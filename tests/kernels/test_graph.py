"""Kernels of GFCF against dense products and NumPy's decomposition."""

import numpy as np
from scipy.sparse import csr_array, random_array

from shortlist.content.features import to_rows
from shortlist.kernels.graph import diagonalize, follow_paths, multiply_sparse, orthonormalize


def test_paths_are_two_products():
    rng = np.random.default_rng(0)
    matrix = random_array((30, 20), density=0.2, rng=rng, format="csr")
    queries = random_array((7, 20), density=0.3, rng=rng, format="csr")
    queries.data -= 0.5  # sums may cancel
    out = np.ones((7, 20), np.float32)
    follow_paths(to_rows(queries), to_rows(csr_array(matrix.T)), to_rows(matrix), out)
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
    vectors, values = np.full((12, 12), np.nan), np.full(12, np.nan)
    diagonalize(matrix.copy(), vectors, values)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), rtol=1e-10)
    np.testing.assert_allclose(vectors @ matrix @ vectors.T, np.diag(values), atol=1e-6)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(12), atol=1e-12)


def test_eigenvectors_of_a_matrix_without_full_rank():
    drawn = np.random.default_rng(0).normal(size=(3, 8))
    matrix = drawn.T @ drawn
    vectors, values = np.empty((8, 8)), np.empty(8)
    diagonalize(matrix.copy(), vectors, values)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), atol=1e-9)
    np.testing.assert_allclose((vectors.T * values) @ vectors, matrix, atol=1e-6)


def test_product_of_a_sparse_and_a_dense_matrix():
    rng = np.random.default_rng(0)
    sparse = csr_array(np.where(rng.random((7, 5)) < 0.4, rng.normal(size=(7, 5)), 0).astype(np.float32))
    right, out = rng.normal(size=(5, 9)).astype(np.float32), np.full((7, 9), np.nan, np.float32)
    multiply_sparse(to_rows(sparse), right, out)
    np.testing.assert_allclose(out, sparse.toarray() @ right, atol=1e-6)
