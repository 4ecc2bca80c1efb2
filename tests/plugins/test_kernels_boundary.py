"""solve_boundaries against a general optimizer of the plain objective."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from shortlist_extras.kernels import solve_boundaries


def objective(t_u, scores, relevant, negative, t, lambda_t):
    """L_cf of one user (paper, eq. 4)."""
    margin = np.where(relevant, scores - t_u, t_u - scores)
    weight = np.where(relevant, 1.0, negative)
    return float((weight * np.logaddexp(0, -margin)).sum() + lambda_t * (t_u - t) ** 2)


def reference(*arguments):
    """The minimum, by golden sections in a wide bracket."""
    found = minimize_scalar(
        objective, bounds=(-60, 60), args=arguments, method="bounded", options={"xatol": 1e-11}
    )
    return found.fun


def solve(scores, relevant, *arguments):
    boundaries, slopes = np.empty(1), np.empty(1)
    solve_boundaries(np.array([0, scores.size]), scores, relevant, *arguments, boundaries, slopes)
    return float(boundaries[0]), float(slopes[0])


@pytest.mark.parametrize("seed", range(24))
def test_minimum_equals_that_of_a_general_optimizer(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, rng.integers(1, 30))
    relevant = rng.random(scores.size) < rng.choice([0, 0.2, 0.5, 1])
    setting = (
        float(rng.choice([0.05, 1.0, 3.0])),
        float(rng.normal()),
        float(rng.choice([0.01, 0.3, 1.0, 10.0])),
    )
    found, _ = solve(scores, relevant, *setting)
    value = objective(found, scores, relevant, *setting)
    assert value <= reference(scores, relevant, *setting) + 1e-6
    near = [objective(found + step, scores, relevant, *setting) for step in (-1e-4, 1e-4)]
    assert value <= min(near) + 1e-9


def test_slope_is_the_derivative_of_the_smallest_loss():
    rng = np.random.default_rng(5)
    scores, relevant = rng.normal(0, 1, 20), rng.random(20) < 0.3

    def smallest(t):
        found, _ = solve(scores, relevant, 0.5, t, 0.8)
        return objective(found, scores, relevant, 0.5, t, 0.8)

    for t in (-2.0, 0.3, 1.5):
        _, slope = solve(scores, relevant, 0.5, t, 0.8)
        assert slope == pytest.approx((smallest(t + 1e-5) - smallest(t - 1e-5)) / 2e-5, abs=1e-4)


def test_user_without_candidates_gets_t():
    assert solve(np.empty(0), np.empty(0, np.bool_), 1.0, 0.7, 1.0) == (0.7, 0.0)


def test_strong_regularization_gives_t_and_weak_regularization_separates():
    scores, relevant = np.array([3.0, 2.0, -2.0, -3.0]), np.array([True, True, False, False])
    assert solve(scores, relevant, 1.0, 9.0, 1e6)[0] == pytest.approx(9.0, abs=1e-4)
    assert -2 < solve(scores, relevant, 1.0, 9.0, 1e-3)[0] < 2
