"""Negative gradients of the losses with respect to a score or a margin, and the step of a boundary."""

import numpy as np

from shortlist.kernels.jit import inlined

LOGISTIC, HINGE, SQUARED = np.int32(0), np.int32(1), np.int32(2)
L2, L1 = np.int32(0), np.int32(1)
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


@inlined
def rank_descent(margin: np.float32) -> np.float32:
    """Return the negative gradient of the BPR loss -ln σ(s_i - s_j) in its margin."""
    descent: np.float32 = ONE / (ONE + np.exp(margin))
    return descent


@inlined
def class_descent(
    loss: np.int32, score: np.float32, boundary: np.float32, relevant: bool | np.bool
) -> np.float32:
    """Return the negative gradient in the score: logistic (paper eq. 5), hinge, or squared loss."""
    if loss == SQUARED:
        return (ONE if relevant else ZERO) - score
    margin = score - boundary if relevant else boundary - score
    descent = (ONE if margin < ONE else ZERO) if loss == HINGE else ONE / (ONE + np.exp(margin))
    return descent if relevant else -descent


@inlined
def boundary_step(
    boundary: np.float32,
    descent: np.float32,
    lr: np.float32,
    t: np.float32,
    lambda_t: np.float32,
    penalty: np.int32,
) -> np.float32:
    """Return the boundary after one step on ℓ + λ_t·R(t_u - t).

    The loss takes a gradient step and R its proximal map, which is stable for any λ_t.
    """
    moved = boundary - lr * descent - t
    if penalty == L1:
        limit = lr * lambda_t
        moved = moved - limit if moved > limit else (moved + limit if moved < -limit else ZERO)
    else:
        moved /= ONE + TWO * lr * lambda_t
    return t + moved
