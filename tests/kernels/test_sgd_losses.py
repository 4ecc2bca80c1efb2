"""Negative gradients against numeric derivatives; boundary steps against the proximal point."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from shortlist.kernels.parameters import HINGE, L1, L2, LOGISTIC, SQUARED
from shortlist.kernels.sgd import boundary_step, class_descent, rank_descent
from tests import naive

F = np.float32
SCORES = st.floats(-6, 6, width=32)


@given(SCORES)
def test_rank_descent(margin):
    slope = (naive.pair_loss(margin + 1e-5, 0) - naive.pair_loss(margin - 1e-5, 0)) / 2e-5
    assert rank_descent(F(margin)) == pytest.approx(-slope, abs=1e-6)


@pytest.mark.parametrize("relevant", [True, False])
@pytest.mark.parametrize("loss", [LOGISTIC, HINGE, SQUARED])
@given(score=SCORES, boundary=SCORES)
def test_class_descent(loss, relevant, score, boundary):
    assume(loss != HINGE or abs(abs(score - boundary) - 1) > 1e-3)  # no derivative at the corner
    up, down = (naive.class_loss(loss, score + h, boundary, relevant) for h in (1e-5, -1e-5))
    got = class_descent(loss, F(score), F(boundary), relevant)
    assert got == pytest.approx(-(up - down) / 2e-5, abs=1e-5)


def test_gradients_are_finite_for_extreme_scores():
    for score in (-1e4, 1e4):
        assert rank_descent(F(score)) == (score < 0)
        assert class_descent(LOGISTIC, F(score), F(0), True) == (score < 0)
        assert class_descent(LOGISTIC, F(score), F(0), False) == -(score > 0)


PENALTY = {L2: lambda x: x**2, L1: abs}


@pytest.mark.parametrize("penalty", [L2, L1])
@given(
    boundary=st.floats(-3, 3, width=32),
    descent=st.floats(-1, 1, width=32),
    lambda_t=st.floats(0, 100, width=32),
    lr=st.floats(0.0078125, 1, width=32),
)
def test_boundary_steps_to_the_proximal_point(penalty, boundary, descent, lambda_t, lr):
    t = 0.5
    got = float(boundary_step(F(boundary), F(descent), F(lr), F(t), F(lambda_t), penalty))
    moved = boundary - lr * descent

    def value(x):
        return lr * lambda_t * PENALTY[penalty](x - t) + (x - moved) ** 2 / 2

    best = minimize_scalar(value, bracket=(min(moved, t) - 1, max(moved, t) + 1), tol=1e-12).x
    assert got == pytest.approx(best, abs=1e-4)
    assert value(got) <= value(best) + 1e-6


@pytest.mark.parametrize("penalty", [L2, L1])
def test_small_boundary_steps_follow_the_gradient(penalty):
    boundary, descent, t, lambda_t, lr = 1.5, 0.3, 0.5, 0.7, 2**-10
    moved = boundary_step(F(boundary), F(descent), F(lr), F(t), F(lambda_t), penalty) - boundary
    slope = descent + lambda_t * (2 * (boundary - t) if penalty == L2 else 1)
    assert moved / lr == pytest.approx(-slope, rel=5e-3)


def test_huge_penalty_fixes_the_boundary():
    assert boundary_step(F(1), F(1), F(0.1), F(2), F(1e6), L2) == pytest.approx(2, abs=1e-4)
    assert boundary_step(F(1), F(1), F(0.1), F(2), F(1e6), L1) == 2
