"""Kernels of GFCF against dense products and NumPy's decomposition."""

import numpy as np
from scipy.sparse import csr_array, random_array

from shortlist.content.features import to_rows
from shortlist.kernels.graph import follow_paths, multiply_sparse, rotate_rows


def test_paths_are_two_products():
    rng = np.random.default_rng(0)
    matrix = random_array((30, 20), density=0.2, rng=rng, format="csr")
    queries = random_array((7, 20), density=0.3, rng=rng, format="csr")
    queries.data -= 0.5  # sums may cancel
    out = np.ones((7, 20), np.float32)
    follow_paths(to_rows(queries), to_rows(csr_array(matrix.T)), to_rows(matrix), out)
    np.testing.assert_allclose(out, 1 + (queries @ matrix.T @ matrix).toarray(), atol=1e-5)


def test_rotation_of_rows():
    rng = np.random.default_rng(0)
    rows, basis = (rng.normal(size=(n, 64)).astype(np.float32) for n in (37, 64))
    out = np.full((37, 64), np.nan, np.float32)
    rotate_rows(rows, basis, out)
    np.testing.assert_allclose(out, rows.astype(float) @ basis, atol=1e-5)


def test_product_of_a_sparse_and_a_dense_matrix():
    rng = np.random.default_rng(0)
    sparse = csr_array(np.where(rng.random((7, 5)) < 0.4, rng.normal(size=(7, 5)), 0).astype(np.float32))
    right, out = rng.normal(size=(5, 9)).astype(np.float32), np.full((7, 9), np.nan, np.float32)
    multiply_sparse(to_rows(sparse), right, out)
    np.testing.assert_allclose(out, sparse.toarray() @ right, atol=1e-6)
