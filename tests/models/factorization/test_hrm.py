"""HRM: score vectors from the last baskets, for every window and pooling; data it needs."""

import numpy as np
import polars as pl
import pytest

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.models.base import load_model
from shortlist.models.factorization.hrm import DKHRM, HRM
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


def test_groups_are_baskets_for_hrm_and_histories_for_mf():
    data = checkerboard()
    per_basket = fitted("DKHRM").representation.items_per_group(data, all_users(data))
    assert per_basket.tolist() == [2.0] * 30
    assert fitted("DKBPRMF").representation.items_per_group(data, all_users(data)).tolist() == [8.0] * 30


def test_terms_and_negatives_suit_the_data():
    """Terms are on where users buy again; `fit` shows what it chose, and a file keeps it."""
    again = [(f"u{u}", f"i{(u + b) % 5}", 1_000_000 * (b + 1)) for u in range(6) for b in range(6)]
    once = [(f"u{u}", f"i{u + 2 * b}", 1_000_000 * (b + 1)) for u in range(6) for b in range(3)]
    shop = DKHRM(n_epochs=1).fit(Interactions.from_tuples(again))
    assert (shop.repeat_decay, shop.trend_half_life, shop.negatives) == (0.9, 3.0, 100.0)
    assert DKHRM(n_factors=4).fit(Interactions.from_tuples(again)).n_epochs == 20
    films = DKHRM(n_epochs=1).fit(Interactions.from_tuples(once))
    assert (films.repeat_decay, films.trend_half_life, films.negatives) == (None, None, 10.0)
    frame = pl.DataFrame(again, schema=["user_id", "item_id", "basket_id"], orient="row")
    plain = HRM(n_epochs=1).fit(Interactions.from_frame(frame))
    assert (plain.repeat_decay, plain.trend_half_life) == (0.9, None)
    set_by_hand = DKHRM(n_epochs=1, repeat_decay=None, negatives=7.0).fit(Interactions.from_tuples(again))
    assert (set_by_hand.repeat_decay, set_by_hand.negatives) == (None, 7.0)


def test_fit_shows_its_choices_in_the_file(tmp_path):
    model = DKHRM(n_epochs=1).fit(checkerboard())
    loaded = load_model(model.save(tmp_path / "m.shortlist"))
    assert loaded.get_params() == model.get_params()
    assert loaded.recommend(N=3).to_frame().equals(model.recommend(N=3).to_frame())


def test_negative_sampling_is_the_logistic_loss_without_pairs():
    """HRM by negative sampling minimizes ln(1 + e^-s) of items bought and ln(1 + e^s) of sampled ones."""
    objective = HRM(negatives=4.0).objective()
    liked, other = np.array([0.3], np.float32), np.array([-1.2], np.float32)
    expected = (np.log1p(np.exp(-0.3)) + 4 * np.log1p(np.exp(-1.2))) / 5
    rest = np.zeros(1, np.float32), np.ones(1), np.zeros(1)  # boundary, density, penalty on boundaries
    assert objective.value(liked, other, *rest) == pytest.approx(expected, rel=1e-6)
    assert HRM().objective().value(liked, other, *rest) == pytest.approx(np.log1p(np.exp(-1.5)), rel=1e-6)


def test_negative_sampling_learns_the_checkerboard():
    data = checkerboard()
    one = fit("HRM", data, negatives=5.0, n_epochs=200, repeat_decay=None)
    assert one.score(one.build_request(data.users.values)).log_odds_shift is not None
    lists = one.recommend(N=5)
    assert (
        np.mean(
            [
                int(item[1:]) % 2 == int(user[1:]) % 2
                for user in lists.users.values
                for item in lists[user].items
            ]
        )
        > 0.9
    )
    assert one.losses_[-1] < one.losses_[0]
