"""Newton's sum against the matrix product, and where it leads against a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from shortlist.core.glm import Logistic, logistic_fit, sigmoid
from shortlist.kernels.logistic import curvature_sum


def test_curvature_is_the_weighted_product():
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(40, 5)), rng.random(40)
    total = np.zeros((5, 5))
    curvature_sum(rows, weight, total)
    np.testing.assert_allclose(total, rows.T @ np.diag(weight) @ rows)


@pytest.mark.parametrize("seed", range(4))
def test_newton_finds_the_minimum(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(200, 3)) * [1, 2, 0.5]
    weight = rng.random(200) + 0.1
    y = (rng.random(200) < sigmoid(rows @ [1.0, -1.0, 0.0] - 2)).astype(float)

    def loss(beta):
        x = beta[0] + rows @ beta[1:]
        return (weight * (np.logaddexp(0, x) - y * x)).sum() + 0.5 * 0.3 * (beta[1:] ** 2).sum()

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(logistic_fit(rows, y, weight, ridge=0.3), best.x, atol=1e-4)


@pytest.mark.parametrize("y", [np.zeros(20), np.ones(20)])
def test_one_sided_outcomes_stay_finite(y):
    beta = logistic_fit(np.arange(20.0)[:, None], y)
    assert np.isfinite(beta).all()


def test_separable_outcomes_stay_finite():
    x = np.linspace(-1, 1, 20)
    assert np.isfinite(logistic_fit(x[:, None], (x > 0).astype(float), ridge=1.0)).all()


def test_lines_bend_where_they_may():
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, (20_000, 1))
    chance = sigmoid(np.abs(x[:, 0]) * 2 - 3)
    y = (rng.random(20_000) < chance).astype(float)
    straight, bent = Logistic().learn(x, y), Logistic(quantiles=(0.25, 0.5, 0.75)).learn(x, y)
    error = [np.abs(sigmoid(line.log_odds(x)) - chance).mean() for line in (straight, bent)]
    assert error[1] < 0.02 < 0.1 < error[0]


def test_thinning_the_irrelevant_keeps_the_level():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50_000, 1))
    y = (rng.random(50_000) < sigmoid(x[:, 0] - 3)).astype(float)
    full, thin = Logistic().learn(x, y), Logistic(n_rows=5_000).learn(x, y)
    assert sigmoid(thin.log_odds(x)).mean() == pytest.approx(y.mean(), rel=0.05)
    np.testing.assert_allclose(thin.log_odds(x[:100]), full.log_odds(x[:100]), atol=0.2)
