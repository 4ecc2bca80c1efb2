"""fold_value against its own differences and the plain losses; users_fold against another optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from shortlist.kernels.fold import AVERAGE, MAXIMUM, PLAIN, FoldInObjective, Terms, fold_value, users_fold
from shortlist.kernels.losses import HINGE, L1, L2, LOGISTIC, SQUARED
from tests import naive

F = np.float32
N_ITEMS, N_TERMS = 12, 30
LOSSES = [(LOGISTIC, True), (HINGE, True), (LOGISTIC, False), (SQUARED, False)]
NONE = np.empty((0, 0))


def goal(**changed):
    plain = {
        "reg_user": 0.05, "alpha": 0.6, "share": 0.3, "weight": 1.2, "t": 0.7, "lambda_t": 0.4,
        "loss": int(LOGISTIC), "penalty": int(L2), "learn_boundary": True, "pool": PLAIN,
    }  # fmt: skip
    return FoldInObjective(**plain | changed)


def problem(seed):
    rng = np.random.default_rng(seed)
    return {
        "context": rng.normal(size=8).astype(F),
        "liked": rng.integers(0, 5, N_TERMS).astype(np.int32),
        "unseen": rng.integers(5, N_ITEMS, N_TERMS).astype(np.int32),
        "share": 0.3,
        "items": rng.normal(scale=0.8, size=(N_ITEMS, 8)).astype(F),
        "bias": rng.normal(size=N_ITEMS).astype(F),
    }


def value_at(x, parts, aim, hess=NONE):
    grad = np.empty(9)
    return fold_value(x, *parts.values(), aim, grad, hess), grad


def plain_value(x, parts, aim):
    """The objective written out; hinge and absolute value with their corners."""
    pools = {PLAIN: lambda p, c: p, AVERAGE: lambda p, c: (p + c) / 2, MAXIMUM: np.maximum}
    vector = pools[aim.pool](x[:8], parts["context"])
    scores = parts["items"].astype(float) @ vector + parts["bias"]
    total = 0
    for i, j in zip(parts["liked"], parts["unseen"], strict=True):
        total += (1 - aim.alpha) * naive.pair_loss(scores[i], scores[j])
        up, down = (naive.class_loss(aim.loss, scores[k], x[8], k == i) for k in (i, j))
        total += aim.alpha * (parts["share"] * aim.weight * up + (1 - parts["share"]) * down)
    away = x[8] - aim.t
    spread = abs(away) if aim.penalty == L1 else away**2
    return total / N_TERMS + aim.reg_user / 2 * x[:8] @ x[:8] + aim.alpha * aim.lambda_t * spread


@pytest.mark.parametrize("pool", [PLAIN, AVERAGE, MAXIMUM])
@pytest.mark.parametrize("penalty", [int(L2), int(L1)])
@pytest.mark.parametrize(("loss", "learn"), LOSSES)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_value_gradient_and_curvature(alpha, loss, learn, penalty, pool):
    aim = goal(alpha=alpha, loss=int(loss), learn_boundary=learn, penalty=penalty, pool=pool)
    parts = problem(int(loss) + 10 * pool)
    x = np.random.default_rng(3).normal(size=9)
    hess = np.empty((9, 9))
    value, grad = value_at(x, parts, aim, hess)
    assert value == pytest.approx(plain_value(x, parts, aim), abs=0.02 if loss == HINGE else 1e-6)
    moving = 9 if learn else 8
    for f in range(moving):
        above, below = x.copy(), x.copy()
        above[f] += 1e-6
        below[f] -= 1e-6
        up, down = value_at(above, parts, aim), value_at(below, parts, aim)
        assert grad[f] == pytest.approx((up[0] - down[0]) / 2e-6, abs=1e-6)
        bend = (up[1] - down[1]) / 2e-6
        np.testing.assert_allclose(hess[f, : f + 1], bend[: f + 1], atol=2e-4)
    assert learn or grad[8] == 0


def fold_one(parts, aim, start=0.0):
    terms = Terms(np.array([0, N_TERMS]), parts["liked"], parts["unseen"])
    vectors, boundary = np.full((1, 8), start, F), np.full(1, aim.t, F)
    users_fold(
        0, 1, terms, parts["context"][None], parts["items"], parts["bias"], aim, np.array([parts["share"]]),
        vectors, boundary,
    )  # fmt: skip
    return np.append(vectors[0], boundary[0]).astype(np.float64)


@pytest.mark.parametrize(("loss", "learn"), LOSSES)
@pytest.mark.parametrize("penalty", [int(L2), int(L1)])
@pytest.mark.parametrize(("alpha", "pool"), [(0.6, PLAIN), (1.0, PLAIN), (0.0, PLAIN), (0.6, AVERAGE)])
def test_the_solution_is_the_minimum(alpha, pool, penalty, loss, learn):
    aim = goal(alpha=alpha, loss=int(loss), learn_boundary=learn, penalty=penalty, pool=pool, share=0.0)
    for seed in range(3):
        parts = problem(seed)
        found = fold_one(parts, aim)
        value, grad = value_at(found, parts, aim)
        start = np.append(np.zeros(8), aim.t)
        other = minimize(lambda x, p=parts: value_at(x, p, aim), start, jac=True, tol=1e-10)
        assert np.abs(grad).max() < 1e-3
        assert value <= other.fun + 1e-6
        if loss == LOGISTIC and learn and alpha:
            np.testing.assert_allclose(found, other.x, atol=5e-3)


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE])
def test_maximum_pooling_ends_no_worse_than_it_began(loss):
    aim = goal(pool=MAXIMUM, loss=int(loss), share=0.0)
    for seed in range(5):
        parts = problem(seed)
        found = fold_one(parts, aim, start=0.1)
        start = np.append(np.full(8, 0.1), aim.t)
        assert value_at(found, parts, aim)[0] < value_at(start, parts, aim)[0]


def test_lost_draws_count_in_the_share():
    """With a share asked for, a dense user's negatives weigh less, as they do in training."""
    parts, aim = problem(0), goal(share=0.3)
    dense = fold_one(parts | {"share": 0.5}, aim)
    effective = 0.3 / (0.3 + 0.7 * 0.5)
    _, grad = value_at(dense, parts | {"share": effective}, aim)
    assert np.abs(grad).max() < 1e-3


def test_a_user_without_terms_is_left_alone():
    parts, aim = problem(0), goal()
    terms = Terms(np.array([0, 0]), np.empty(0, np.int32), np.empty(0, np.int32))
    vectors, boundary = np.full((1, 8), 0.25, F), np.full(1, 2, F)
    users_fold(
        0,
        1,
        terms,
        parts["context"][None],
        parts["items"],
        parts["bias"],
        aim,
        np.zeros(1),
        vectors,
        boundary,
    )
    assert (vectors == 0.25).all()
    assert boundary[0] == 2
