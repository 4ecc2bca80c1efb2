"""What models of a plain matrix share: a basis of eigenvectors, whatever BLAS does."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from shortlist.models.matrix import find_basis
from tests.threads import on_threads


@pytest.mark.parametrize("rank", [1, 3, 40, 100])
@pytest.mark.parametrize("n", [1, 2, 12, 70])
def test_products_vanish_in_the_basis(n, rank):
    width = 96
    vectors = np.zeros((rank, width), np.float32)
    vectors[:, :n] = np.random.default_rng(0).normal(size=(rank, n)) * np.geomspace(1, 1e-4, n)
    basis, squares = find_basis(vectors, n)
    products = vectors.astype(float).T @ vectors
    largest = squares.max()
    np.testing.assert_allclose(
        np.sort(squares[:n]), np.linalg.eigvalsh(products[:n, :n]), atol=1e-6 * largest
    )
    np.testing.assert_allclose(basis.T @ products @ basis, np.diag(squares), atol=1e-6 * largest)
    np.testing.assert_allclose(basis[:n, :n].T @ basis[:n, :n], np.eye(n), atol=1e-5)
    assert not basis[n:].any()
    assert not basis[:, n:].any()


def test_threads_of_blas_change_no_bit():
    vectors = np.random.default_rng(0).normal(size=(500, 288)).astype(np.float32)
    results = []
    for n_threads in (1, 2, 4):
        with threadpool_limits(n_threads, "blas"):
            results += on_threads(n_threads, run=lambda: find_basis(vectors, 288))
    for basis, squares in results[1:]:
        np.testing.assert_array_equal(basis, results[0][0])
        np.testing.assert_array_equal(squares, results[0][1])
