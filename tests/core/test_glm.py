"""Generalized linear models against a general optimizer."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from shortlist.core.glm import LOGISTIC, POISSON, AdditiveLogistic, fit_item_weights, glm_fit, newton
from shortlist.errors import DataError, TrainingError


@pytest.mark.parametrize("seed", range(4))
def test_logistic_regression_reaches_the_minimum(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(200, 3)) * [1, 2, 0.5]
    weight = rng.random(200) + 0.1
    y = (rng.random(200) < expit(rows @ [1.0, -1.0, 0.0] - 2)).astype(float)

    def loss(beta):
        x = beta[0] + rows @ beta[1:]
        return (weight * (np.logaddexp(0, x) - y * x)).sum() + 0.5 * 0.3 * (beta[1:] ** 2).sum()

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(glm_fit(rows, y, LOGISTIC, weight=weight, ridge=0.3), best.x, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_poisson_regression_reaches_the_minimum(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(200, 3))
    y = rng.poisson(np.exp(rows @ [0.5, -1.0, 0.0] + 1)).astype(float)

    def loss(beta):
        eta = beta[0] + rows @ beta[1:]
        return (np.exp(eta) - y * eta).sum() + 0.5 * 0.3 * (beta[1:] ** 2).sum()

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8})
    found = glm_fit(rows, y, POISSON, ridge=0.3, tolerance=1e-18)
    np.testing.assert_allclose(found, best.x, atol=1e-5)
    gradient = rows.T @ (np.exp(found[0] + rows @ found[1:]) - y) + 0.3 * found[1:]
    np.testing.assert_allclose(gradient, 0, atol=1e-8)


def test_counts_of_zero_give_finite_coefficients():
    assert np.isfinite(glm_fit(np.arange(20.0)[:, None], np.zeros(20), POISSON)).all()


def test_extreme_inputs_are_refused():
    with pytest.raises(TrainingError, match="did not converge"), np.errstate(all="ignore"):
        glm_fit(np.array([[np.inf], [0.0]]), np.array([1.0, 0.0]), LOGISTIC)


@pytest.mark.parametrize("y", [np.zeros(20), np.ones(20)])
def test_constant_outcomes_give_finite_coefficients(y):
    beta = glm_fit(np.arange(20.0)[:, None], y, LOGISTIC)
    assert np.isfinite(beta).all()


def test_separable_outcomes_give_finite_coefficients():
    x = np.linspace(-1, 1, 20)
    assert np.isfinite(glm_fit(x[:, None], (x > 0).astype(float), LOGISTIC, ridge=1.0)).all()


def test_piecewise_linear_terms_fit_a_bend():
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, (20_000, 1))
    p = expit(np.abs(x[:, 0]) * 2 - 3)
    y = (rng.random(20_000) < p).astype(float)
    linear, bent = AdditiveLogistic().fit(x, y), AdditiveLogistic(quantiles=(0.25, 0.5, 0.75)).fit(x, y)
    error = [np.abs(expit(model.log_odds(x)) - p).mean() for model in (linear, bent)]
    assert error[1] < 0.02 < 0.1 < error[0]


def test_sampling_negatives_keeps_the_level():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50_000, 1))
    y = (rng.random(50_000) < expit(x[:, 0] - 3)).astype(float)
    full, sampled = AdditiveLogistic().fit(x, y), AdditiveLogistic(n_rows=5_000).fit(x, y)
    assert expit(sampled.log_odds(x)).mean() == pytest.approx(y.mean(), rel=0.05)
    np.testing.assert_allclose(sampled.log_odds(x[:100]), full.log_odds(x[:100]), atol=0.2)


def test_log_odds_are_constant_beyond_the_data():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(5000, 1))
    model = AdditiveLogistic(quantiles=(0.2, 0.5, 0.8)).fit(x, (rng.random(5000) < 0.1).astype(float))
    assert model.log_odds(np.array([[99.0]])) == model.log_odds(np.array([[9.0]]))


def test_item_weights_by_hand():
    """The inverse of [[2, 1], [1, 2]] is [[2, -1], [-1, 2]] / 3."""
    weights = fit_item_weights(csr_array(np.ones((1, 2))), 1.0)
    np.testing.assert_allclose(weights, [[0, 0.5], [0.5, 0]], atol=1e-7)


def test_item_weights_without_a_solution_are_refused():
    with pytest.raises(DataError, match="not positive definite; raise reg"):
        fit_item_weights(csr_array(np.ones((1, 2))), 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_newton_solves_many_problems_at_once(seed):
    """Each row is a problem of its own: the sum of cosh(x - center) over its parameters."""
    centers = np.random.default_rng(seed).normal(size=(5, 2)) * 3

    def derivatives(x):
        return np.sinh(x - centers), np.cosh(x - centers)[:, :, None] * np.eye(2)

    found = newton(np.zeros((5, 2)), lambda x: np.cosh(x - centers).sum(axis=1), derivatives, tolerance=1e-14)
    np.testing.assert_allclose(found, centers, atol=1e-6)


def test_newton_refuses_what_is_not_convex():
    with pytest.raises(TrainingError, match="did not converge"):
        newton(np.ones((1, 1)), lambda x: -(x[:, 0] ** 2), lambda x: (-2 * x, np.full((1, 1, 1), -2.0)))
