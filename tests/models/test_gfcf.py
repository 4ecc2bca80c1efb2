"""GFCF against its formula with NumPy's singular vectors."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from shortlist.data.interactions import Interactions
from shortlist.models.gfcf import GFCF, singular_basis
from tests.models.cases import bits, checkerboard, crowd, dense
from tests.threads import on_threads


def interaction_matrix(data):
    return (data.to_csr().toarray() > 0).astype(float)


def normalized(matrix, user_power=1.0):
    degrees = abs(matrix).sum(axis=1, keepdims=True), abs(matrix).sum(axis=0)
    values = matrix / np.sqrt(degrees[0] ** user_power * degrees[1])
    return values / np.linalg.norm(values, 2)


def formula(matrix, n_factors, low_pass=0.3, sharpen=0.6, user_power=0.6, item_power=0.3):
    """The scores as in the docstring."""
    powers = abs(matrix).sum(axis=0) ** item_power
    values = normalized(matrix, user_power)
    _, singular, vectors = np.linalg.svd(values)
    first, energy = vectors[:n_factors], singular[:n_factors] ** 2
    gains = (energy + low_pass) * (1 - sharpen * energy) - energy
    return (matrix / powers) @ (values.T @ values + (first.T * gains) @ first) * powers


@pytest.mark.parametrize("max_memory", [0, 1])
@pytest.mark.parametrize("n_factors", [1, 4])
def test_scores_are_the_formula(n_factors, max_memory):
    """The data has four groups of users, so that the fourth singular value is far above the fifth."""
    data = crowd()
    params = {"low_pass": 0.7, "sharpen": 0.5, "user_power": 0.8, "item_power": 0.4}
    one = GFCF(n_factors=n_factors, max_memory=max_memory, **params).fit(data)
    np.testing.assert_allclose(dense(one), formula(interaction_matrix(data), n_factors, **params), atol=2e-3)


def test_memory_changes_no_list():
    data = crowd()
    lists = [GFCF(n_factors=40, max_memory=limit).fit(data).recommend(N=10) for limit in (0, 1)]
    np.testing.assert_allclose(lists[0].scores, lists[1].scores, rtol=1e-4)


def test_weights_are_used():
    rows = [("a", "x", 0, 3), ("a", "y", 0, -2), ("b", "x", 0, 1), ("b", "z", 0, 1), ("c", "y", 0, 1)]
    data = Interactions.from_tuples(rows, negative_weights="keep")
    one = GFCF(n_factors=1, weighting="linear").fit(data)
    matrix = np.array([[3.0, -2, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_allclose(dense(one), formula(matrix, 1), atol=1e-3)


def test_basis_holds_as_much_as_singular_vectors():
    matrix = normalized(interaction_matrix(crowd()))
    basis, squares = singular_basis(csr_array(matrix.astype(np.float32)), 20, 0)
    np.testing.assert_allclose(basis @ basis.T, np.eye(20), atol=1e-5)
    energy = ((matrix @ basis.T) ** 2).sum()
    expected = np.linalg.svd(matrix)[1][:20] ** 2
    assert energy > 0.97 * expected.sum()
    np.testing.assert_allclose(squares[:4], expected[:4], rtol=1e-3)


def test_rows_without_rank_are_zero():
    basis = GFCF(n_factors=64).fit(checkerboard())._state.filter.basis
    lengths = (basis**2).sum(axis=1)
    assert (np.isclose(lengths, 1, atol=1e-4) | (lengths == 0)).all()
    assert 2 <= (lengths > 0).sum() <= 20


def test_number_of_threads_changes_nothing():
    few, many = on_threads(1, 3, run=lambda: GFCF(n_factors=40, max_memory=0).fit(crowd()))
    assert bits(few) == bits(many)
    lists = on_threads(1, 3, run=lambda: few.recommend(N=5))
    assert (lists[0].scores == lists[1].scores).all()
