"""EASE against the optimality conditions of its objective."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.errors import ConfigError
from shortlist.models.ease import EASE
from tests.models.cases import all_users, bits, checkerboard, crowd, dense
from tests.threads import on_threads


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


def test_observed_users_keep_the_weights():
    one = EASE().fit(checkerboard())
    weights = one._state.weights
    one.observe([("guest", "i00", 900), ("guest", "i02", 900)])
    assert one._state.weights is weights
    guest = dense(one, [one.users_.index("guest")])
    np.testing.assert_allclose(guest[0], weights[0] + weights[2], rtol=1e-6)


def test_all_neighbors_give_the_weights_of_the_inversion():
    data = crowd()
    whole, sparse = EASE(reg=20.0), EASE(reg=20.0, max_memory=0, n_neighbors=data.n_items)
    expected = whole.fit(data)._state.weights
    np.testing.assert_allclose(sparse.fit(data)._state.weights.toarray(), expected, atol=2e-5)


def test_sparse_weights_regress_every_item_on_its_nearest_items():
    data = crowd()
    weights = EASE(reg=20.0, max_memory=0, n_neighbors=5).fit(data)._state.weights.toarray().astype(float)
    x = interaction_matrix(data)
    gram = x.T @ x
    size = np.sqrt(np.diag(gram) + 20.0)
    for item in range(data.n_items):
        others = np.delete(np.arange(data.n_items), item)
        near = gram[others, item] / size[others]
        nearest = others[np.argsort(-near, kind="stable")[:5]]
        system = gram[np.ix_(nearest, nearest)] + 20.0 * np.eye(5)
        expected = np.zeros(data.n_items)
        expected[nearest] = np.linalg.solve(system, gram[nearest, item])
        np.testing.assert_allclose(np.sort(weights[:, item]), np.sort(expected), atol=1e-4)


def expected_of(one, items):
    """(n_items,) scores of a history with these items."""
    return one._state.weights.toarray()[items].sum(axis=0)


def test_sparse_scores_are_sums_over_the_users_items_and_survive_a_file(tmp_path):
    data = crowd()
    one = EASE(max_memory=0, n_neighbors=7).fit(data)
    lists = one.recommend(N=5, filter_seen=False)
    expected = interaction_matrix(data) @ one._state.weights.toarray()
    for user, row in enumerate(expected):
        mine = lists.scores[lists.indptr[user] : lists.indptr[user + 1]]
        np.testing.assert_allclose(mine, np.sort(row)[::-1][:5], rtol=1e-4)
    again = sl.load_model(one.save(tmp_path / "ease.shortlist"))
    assert (again.recommend(N=5, filter_seen=False).scores == lists.scores).all()
    frame = one.explain(one.users_.values[0], N=3, filter_seen=False, n_contributions=100)
    amounts = [sum(part["amount"] for part in row) for row in frame["contributions"].to_list()]
    np.testing.assert_allclose(amounts[:3], lists.scores[:3], rtol=1e-4)
    session = one.recommend(history={"guest": [0, 2]}, N=3)
    np.testing.assert_allclose(
        session.scores, np.sort(np.delete(expected_of(one, [0, 2]), [0, 2]))[:-4:-1], rtol=1e-4
    )


def test_number_of_threads_changes_no_sparse_weight():
    few, many = on_threads(1, 3, run=lambda: bits(EASE(max_memory=0, n_neighbors=9).fit(crowd())))
    assert few == many


def test_without_a_penalty_the_equations_have_no_solution():
    with pytest.raises(ConfigError, match=r"^reg must"):
        EASE(reg=0)
