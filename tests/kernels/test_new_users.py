"""fold_in_loss against finite differences and plain losses; fold_in_users against SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize

from shortlist.kernels.new_users import (
    AVERAGE,
    MAXIMUM,
    USER_ONLY,
    FoldInPairs,
    UserPairs,
    fold_in_loss,
    fold_in_users,
)
from shortlist.kernels.parameters import HINGE, L1, L2, LOGISTIC, SQUARED, Hyperparameters
from tests import naive

F = np.float32
N_ITEMS, N_PAIRS = 12, 30
LOSSES = [(LOGISTIC, True), (HINGE, True), (LOGISTIC, False), (SQUARED, False)]
NONE = np.empty((0, 0))


def hyperparameters(**changed):
    plain = {
        "lr": 0.0, "reg_user": 0.05, "reg_item": 0.0, "reg_negative": 0.0, "alpha": 0.6, "positive_rate": 0.3,
        "positive_weight": 1.2, "t": 0.7, "lambda_t": 0.4, "loss": LOGISTIC, "penalty": L2,
        "learn_boundary": True, "negative_draws": np.int32(1),
    }  # fmt: skip
    return Hyperparameters(**plain | changed)


def problem(seed):
    rng = np.random.default_rng(seed)
    return {
        "liked": rng.integers(0, 5, N_PAIRS).astype(np.int32),
        "unseen": rng.integers(5, N_ITEMS, N_PAIRS).astype(np.int32),
        "rate": 0.3,
        "items": rng.normal(scale=0.8, size=(N_ITEMS, 8)).astype(F),
        "bias": rng.normal(size=N_ITEMS).astype(F),
    }


def loss_at(x, parts, hyper, pool, hess=NONE):
    grad = np.empty(9)
    pairs = UserPairs(parts["liked"], parts["unseen"], parts["rate"], hyper.lambda_t)
    return fold_in_loss(x, pairs, parts["items"], parts["bias"], hyper, pool, grad, hess), grad


def plain_loss(x, parts, hyper, pool):
    """The objective written out, without rounded corners."""
    pools = {USER_ONLY: lambda p: p, AVERAGE: lambda p: p / 2, MAXIMUM: lambda p: np.maximum(p, 0)}
    vector = pools[pool](x[:8])
    scores = parts["items"].astype(float) @ vector + parts["bias"]
    total, rate = 0, parts["rate"]
    for i, j in zip(parts["liked"], parts["unseen"], strict=True):
        total += (1 - hyper.alpha) * naive.pair_loss(scores[i], scores[j])
        up, down = (naive.class_loss(hyper.loss, scores[k], x[8], k == i) for k in (i, j))
        total += hyper.alpha * (rate * hyper.positive_weight * up + (1 - rate) * down)
    distance = x[8] - hyper.t
    penalty = abs(distance) if hyper.penalty == L1 else distance**2
    return total / N_PAIRS + hyper.reg_user / 2 * x[:8] @ x[:8] + hyper.alpha * hyper.lambda_t * penalty


@pytest.mark.parametrize("pool", [USER_ONLY, AVERAGE, MAXIMUM])
@pytest.mark.parametrize("penalty", [L2, L1])
@pytest.mark.parametrize(("loss", "learn"), LOSSES)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_value_gradient_and_hessian(alpha, loss, learn, penalty, pool):
    hyper = hyperparameters(alpha=alpha, loss=loss, learn_boundary=learn, penalty=penalty)
    parts = problem(int(loss) + 10 * pool)
    x = np.random.default_rng(3).normal(size=9)
    hess = np.empty((9, 9))
    value, grad = loss_at(x, parts, hyper, pool, hess)
    assert value == pytest.approx(plain_loss(x, parts, hyper, pool), abs=0.02 if loss == HINGE else 1e-6)
    for f in range(9 if learn else 8):
        above, below = x.copy(), x.copy()
        above[f] += 1e-6
        below[f] -= 1e-6
        up, down = loss_at(above, parts, hyper, pool), loss_at(below, parts, hyper, pool)
        assert grad[f] == pytest.approx((up[0] - down[0]) / 2e-6, abs=1e-6)
        curvature = (up[1] - down[1]) / 2e-6
        np.testing.assert_allclose(hess[f, : f + 1], curvature[: f + 1], atol=2e-4)
    assert learn or grad[8] == 0


def fold_one(parts, hyper, pool=USER_ONLY, start=0.0):
    values = np.array([parts["rate"]]), np.array([hyper.lambda_t])
    pairs = FoldInPairs(np.array([0, N_PAIRS]), parts["liked"], parts["unseen"], *values)
    vectors, boundary = np.full((1, 8), start, F), np.full(1, hyper.t, F)
    fixed = parts["items"], parts["bias"]
    fold_in_users(0, 1, pairs, *fixed, hyper, pool, vectors, boundary)
    return np.append(vectors[0], boundary[0]).astype(np.float64)


@pytest.mark.parametrize(("loss", "learn"), LOSSES)
@pytest.mark.parametrize("penalty", [L2, L1])
@pytest.mark.parametrize(
    ("alpha", "pool"), [(0.6, USER_ONLY), (1.0, USER_ONLY), (0.0, USER_ONLY), (0.6, AVERAGE)]
)
def test_solution_is_the_minimum(alpha, pool, penalty, loss, learn):
    hyper = hyperparameters(alpha=alpha, loss=loss, learn_boundary=learn, penalty=penalty, positive_rate=0.0)
    for seed in range(3):
        parts = problem(seed)
        found = fold_one(parts, hyper, pool)
        value, grad = loss_at(found, parts, hyper, pool)
        start = np.append(np.zeros(8), hyper.t)
        other = minimize(lambda x, p=parts: loss_at(x, p, hyper, pool), start, jac=True, tol=1e-10)
        assert np.abs(grad).max() < 1e-3
        assert value <= other.fun + 1e-6
        if loss == LOGISTIC and learn and alpha:
            np.testing.assert_allclose(found, other.x, atol=5e-3)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE])
def test_maximum_pooling_lowers_the_loss(loss):
    hyper = hyperparameters(loss=loss, positive_rate=0.0)
    for seed in range(5):
        parts = problem(seed)
        found = fold_one(parts, hyper, MAXIMUM, start=0.1)
        start = np.append(np.full(8, 0.1), hyper.t)
        assert loss_at(found, parts, hyper, MAXIMUM)[0] < loss_at(start, parts, hyper, MAXIMUM)[0]


def test_rejected_draws_raise_the_positive_rate():
    """With a fixed positive rate, the negatives of a dense user weigh less, as in training."""
    parts, hyper = problem(0), hyperparameters(positive_rate=0.3)
    dense = fold_one(parts | {"rate": 0.5}, hyper)
    effective = 0.3 / (0.3 + 0.7 * 0.5)
    _, grad = loss_at(dense, parts | {"rate": effective}, hyper, USER_ONLY)
    assert np.abs(grad).max() < 1e-3


def test_user_without_pairs_does_not_change():
    parts, nothing = problem(0), np.empty(0, np.int32)
    pairs = FoldInPairs(np.array([0, 0]), nothing, nothing, np.zeros(1), np.zeros(1))
    vectors, boundary = np.full((1, 8), 0.25, F), np.full(1, 2, F)
    fixed = parts["items"], parts["bias"]
    fold_in_users(0, 1, pairs, *fixed, hyperparameters(), USER_ONLY, vectors, boundary)
    assert (vectors == 0.25).all()
    assert boundary[0] == 2
