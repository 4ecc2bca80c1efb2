"""HRM: score vectors from the last baskets, for every window and pooling; data it needs."""

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


def test_scores_follow_the_last_basket():
    """Users buy from three categories, one after the other; only the last basket shows the current one."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(90):
        categories = np.repeat(rng.permutation(3), 5)
        rows += [
            (user, int(4 * category + rng.integers(4)), when) for when, category in enumerate(categories)
        ]
    data = Interactions.from_tuples(rows)
    scores = dense(fit("HRM", data)).reshape(90, 3, 4).mean(2)
    category = data.item[data.indptr[1:] - 1] // 4
    assert (scores.argmax(1) == category).mean() > 0.9
    without_context = dense(fit("BPRMF", data)).reshape(90, 3, 4).mean(2)
    assert (without_context.argmax(1) == category).mean() < 0.6


@pytest.mark.parametrize("name", ["HRM", "DKHRM"])
def test_data_without_a_second_basket_is_rejected(name):
    for rows in ([("a", "x"), ("a", "y"), ("b", "x")], [("a", "x", 1), ("b", "y", 2)]):
        with pytest.raises(DataError, match=f"{name} learns from users with two baskets or more"):
            fit(name, Interactions.from_tuples(rows))


def test_partial_fit_accepts_new_users_with_one_basket():
    one = fit("HRM", checkerboard())
    one.partial_fit(Interactions.from_tuples([("zed", "i02", 900)]), n_epochs=1)
    assert "zed" in one.users_


def test_groups_are_baskets_for_hrm_and_histories_for_mf():
    data = checkerboard()
    per_basket = fitted("DKHRM").items_per_group(data, all_users(data))
    assert per_basket.tolist() == [2.0] * 30
    assert fitted("DKBPRMF").items_per_group(data, all_users(data)).tolist() == [8.0] * 30
