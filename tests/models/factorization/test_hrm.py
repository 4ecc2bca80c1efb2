"""HRM: it reads the last basket, through windows and pools, and asks for baskets."""

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from tests import naive
from tests.models.cases import all_users, answer, checkerboard, dense, fit, fitted


@pytest.mark.parametrize("pools", [(a, b) for a in ("average", "max") for b in ("average", "max")])
@pytest.mark.parametrize("window", [1, 2])
def test_score_vectors_pool_the_last_baskets(pools, window):
    data = checkerboard()
    one = fit("HRM", data, n_epochs=2, pool_items=pools[0], pool_user=pools[1], window=window)
    vectors = answer(one, all_users(data)).factors[0]
    for user in range(data.n_users):
        first, last = data.user_baskets[user : user + 2]
        rows = slice(data.baskets[max(first, last - window)], data.baskets[last])
        theta = one._state.parameters
        wanted = naive.hybrid(
            theta.user[user].astype(float), theta.item[data.item[rows]].astype(float),
            pools[0] == "max", pools[1] == "max",
        )  # fmt: skip
        np.testing.assert_allclose(vectors[user], wanted, atol=1e-6)


def test_the_last_basket_matters():
    """Users wander through three rooms and stay a while; only the last basket says where they are."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(90):
        rooms = np.repeat(rng.permutation(3), 5)
        rows += [(user, int(4 * room + rng.integers(4)), when) for when, room in enumerate(rooms)]
    data = Interactions.from_tuples(rows)
    scores = dense(fit("HRM", data)).reshape(90, 3, 4).mean(2)
    room = data.item[data.indptr[1:] - 1] // 4
    assert (scores.argmax(1) == room).mean() > 0.9
    blind = dense(fit("BPRMF", data)).reshape(90, 3, 4).mean(2)
    assert (blind.argmax(1) == room).mean() < 0.6


@pytest.mark.parametrize("name", ["HRM", "DKHRM"])
def test_data_without_a_second_basket_is_refused(name):
    for rows in ([("a", "x"), ("a", "y"), ("b", "x")], [("a", "x", 1), ("b", "y", 2)]):
        with pytest.raises(DataError, match=f"{name} learns from users with two baskets or more"):
            fit(name, Interactions.from_tuples(rows))


def test_newcomers_of_one_basket_may_follow():
    one = fit("HRM", checkerboard())
    one.partial_fit(Interactions.from_tuples([("zed", "i02", 900)]), n_epochs=1)
    assert "zed" in one.users_


def test_probabilities_are_those_of_a_basket():
    data = checkerboard()
    taken = fitted("DKHRM").items_per_group(data, all_users(data))
    assert taken.tolist() == [2.0] * 30
    assert fitted("DKBPRMF").items_per_group(data, all_users(data)).tolist() == [8.0] * 30
