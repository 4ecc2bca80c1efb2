"""EASE against the optimality conditions of its objective."""

import numpy as np
import pytest

from shortlist.errors import ConfigError
from shortlist.models.ease import EASE
from tests.models.cases import all_users, checkerboard, crowd, dense


def interaction_matrix(data):
    """(n_users, n_items) 1 where the user has the item."""
    return (data.to_csr().toarray() > 0).astype(float)


def test_weights_minimize_the_squared_error_with_a_zero_diagonal():
    """Outside the diagonal, the gradient of ‖X − XB‖² + reg·‖B‖² is zero."""
    data = crowd()
    weights = EASE(reg=20.0).fit(data)._state.weights.astype(float)
    x = interaction_matrix(data)
    gradient = x.T @ (x @ weights - x) + 20.0 * weights
    np.fill_diagonal(gradient, 0.0)
    assert np.abs(gradient).max() < 1e-3 * np.abs(x.T @ x).max()
    assert (np.diag(weights) == 0).all()


def test_scores_are_sums_over_the_users_items():
    data = crowd()
    one = EASE().fit(data)
    np.testing.assert_allclose(
        dense(one), interaction_matrix(data) @ one._state.weights, rtol=1e-4, atol=1e-5
    )


def test_decay_counts_baskets_since_the_last_one_with_the_item():
    data = checkerboard()
    one = EASE(decay=0.5).fit(data)
    rows = np.zeros((data.n_users, data.n_items))
    for user in all_users(data):
        first, end = data.user_baskets[user], data.user_baskets[user + 1]
        for basket in range(first, end):
            rows[user, data.item[data.baskets[basket] : data.baskets[basket + 1]]] = 0.5 ** (end - 1 - basket)
    np.testing.assert_allclose(dense(one), rows @ one._state.weights, rtol=1e-5, atol=1e-6)


def test_fold_in_keeps_the_weights():
    one = EASE().fit(checkerboard())
    weights = one._state.weights
    one.fold_in({"guest": ["i00", "i02"]})
    assert one._state.weights is weights
    guest = dense(one, [one.users_.index("guest")])
    np.testing.assert_allclose(guest[0], weights[0] + weights[2], rtol=1e-6)


@pytest.mark.parametrize(("name", "value"), [("reg", 0), ("decay", 0), ("decay", 1.5)])
def test_invalid_parameter_is_named(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must"):
        EASE(**{name: value}).fit(checkerboard())
