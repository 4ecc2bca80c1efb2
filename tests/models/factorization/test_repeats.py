"""HRM with repeat_decay: earlier purchases raise the scores of their items."""

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.models.base import load_model
from shortlist.models.factorization.terms import repeat_weight
from tests.models.cases import all_users, answer, checkerboard, crowd, dense, fit


def regulars(again, n_users=60, n_items=40):
    """Eight baskets of three items each: all items are repeated, or all are new."""
    rng = np.random.default_rng(5)
    rows = []
    for user in range(n_users):
        own = rng.permutation(n_items)
        for basket in range(8):
            others = own[1:3] if again else own[2 * basket + 1 : 2 * basket + 3]
            rows += [(user, int(i), basket) for i in ([own[0]] if again else []) + [int(i) for i in others]]
    return Interactions.from_tuples(rows)


def test_initial_repeat_weight_is_the_log_odds_by_counting():
    data = regulars(again=True)  # all history items are repeated in every basket
    strength = np.mean([np.log1p(sum(0.9**age for age in range(n))) for n in range(1, 8)])
    assert repeat_weight(data, 0.9) == pytest.approx(np.log(1 / (3 / 40)) / strength, rel=1e-4)
    assert repeat_weight(regulars(again=False), 0.9) == 0


def test_repeat_decay_ranks_repeated_items_first():
    data = regulars(again=True)
    held = data.where(np.repeat(np.arange(data.n_baskets), np.diff(data.baskets)) % 8 < 7)
    plain, repeating = (fit("HRM", held, n_epochs=3, lr=0.02, repeat_decay=decay) for decay in (None, 0.9))
    found = []
    for one in (plain, repeating):
        best = np.argsort(-dense(one), axis=1)[:, :3]
        sets = held.item_sets.items.reshape(-1, 3)
        found.append(np.mean([np.isin(a, b).mean() for a, b in zip(best, sets, strict=True)]))
    assert found[1] > 0.95 > found[0]
    assert (repeating._state.parameters.user_repeat > 0).all()


def test_scores_are_factors_plus_repeat_term():
    one = fit("DKHRM", crowd(), n_epochs=2, lr=0.05, repeat_decay=0.8)
    theta, data, users = one._state.parameters, crowd(), np.array([3, 0, 77], np.int32)
    plain = one.representation.vectors(theta, data, users) @ theta.item.T + theta.bias
    for row, user in enumerate(users):
        for item in range(data.n_items):
            rows = slice(data.user_baskets[user], data.user_baskets[user + 1] + 1)
            ages = [
                age
                for age, (a, b) in enumerate(
                    zip(data.baskets[rows][-2::-1], data.baskets[rows][:0:-1], strict=True)
                )
                if item in data.item[a:b]
            ]
            weight = theta.user_repeat[user] + theta.item_repeat[item]
            plain[row, item] += weight * np.log1p(sum(0.8**age for age in ages))
    np.testing.assert_allclose(dense(one, users), plain, rtol=1e-4, atol=1e-5)
    assert answer(one, users).factors is None
    assert (theta.item_repeat != 0).any()


def test_saved_and_loaded_and_recommended(tmp_path):
    one = fit("DKHRM", checkerboard(), n_epochs=5, repeat_decay=0.9)
    one.save(tmp_path / "model")
    other = load_model(tmp_path / "model")
    users = all_users(checkerboard())
    assert (dense(one, users) == dense(other, users)).all()
    assert other.repeat_decay == 0.9
    assert one.recommend(["u00"], N=3).lengths.tolist() == [3]


def test_new_users_get_the_mean_weight_and_known_users_keep_theirs():
    one = fit("DKHRM", regulars(again=True), n_epochs=3, lr=0.02, repeat_decay=0.9)
    learned = one._state.parameters.user_repeat
    one.observe([(999, item, int(one.history_.time.max()) + 1) for item in (0, 2, 4)])
    request = one.build_request([0, 999])
    used = one._request_parameters(request).user_repeat
    assert used[0] == learned[request.users[0]]
    assert used[1] == pytest.approx(learned.mean(), rel=1e-5)
    scores = dense(one, one.users_.lookup([999]))[0]
    assert set(np.argsort(-scores)[:3]) == {0, 2, 4}
