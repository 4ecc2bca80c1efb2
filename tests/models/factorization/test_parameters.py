"""Users without a training pair get the parameters of the mean user."""

import numpy as np
import pytest

import shortlist as sl
from tests.models.cases import JOINT, bits, checkerboard, crowd, fit, model
from tests.models.factorization.test_training import split

TERMS = {"repeat_decay": 0.9, "trend_half_life": 3.0}
CASES = [*((name, {}) for name in JOINT), ("DKHRM", TERMS)]


def without_pairs(data, name, user=3):
    """The data without any row of a user, or with the first basket alone for models of baskets."""
    is_hrm = name in ("HRM", "DKHRM")
    basket = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    kept = (data.user != user) | (is_hrm & (basket == data.user_baskets[user]))
    return data.where(kept)


@pytest.mark.parametrize(("name", "changed"), CASES)
def test_users_without_training_pairs_get_the_mean_user(name, changed):
    one = fit(name, without_pairs(checkerboard(), name), n_epochs=5, **changed)
    theta, others = one._state.parameters, np.arange(30) != 3
    for part in ("user", "boundary", "user_repeat", "user_trend"):
        values = getattr(theta, part)
        if values.size:
            np.testing.assert_allclose(values[3], values[others].mean(axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(one._state.mean_user, theta.user[3])
    assert one._state.mean_boundary == theta.boundary[3]
    if changed:
        assert one._state.start_weights == (theta.user_repeat[3], theta.user_trend[3])


@pytest.mark.parametrize("name", ["BPRMF", "HRM"])
def test_validation_sees_the_mean_user(name):
    train, valid = split()
    reduced = without_pairs(train, name)
    seen = []
    one = model(name, n_epochs=3)
    exact = type(one).dense_scores

    class Spy(type(one)):
        def dense_scores(self, parameters, *args):
            seen.append((parameters.user[3].copy(), parameters.user.mean(axis=0)))
            return exact(self, parameters, *args)

    Spy(**one.get_params()).fit(reduced, valid=valid)
    assert len(seen) == 3
    for own, mean in seen:
        np.testing.assert_allclose(own, mean, rtol=1e-4, atol=1e-6)


def test_mean_user_survives_a_file(tmp_path):
    one = fit("DKHRM", crowd(), n_epochs=2)
    loaded = type(one).load(one.save(tmp_path / "model"))
    assert bits(loaded) == bits(one)
    np.testing.assert_array_equal(loaded._state.mean_user, one._state.mean_user)
    assert loaded._state.mean_boundary == one._state.mean_boundary
    session = {7777: crowd().items.values[:3].to_list()}
    first, second = (m.recommend(history=session, cutoff="boundary") for m in (one, loaded))
    np.testing.assert_array_equal(first.scores, second.scores)


@pytest.mark.parametrize(("n_items", "draws"), [(9, 1), (999, 1), (3_706, 7), (17_632, 20)])
def test_more_items_need_more_negative_draws(n_items, draws):
    assert sl.BPRMF()._hyperparameters(n_items).negative_draws == draws
    assert sl.BPRMF(negative_draws=3)._hyperparameters(n_items).negative_draws == 3
    assert sl.LogMF()._hyperparameters(n_items).negative_draws == 1
