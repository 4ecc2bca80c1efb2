"""Losses by their pulls: minus the derivative of the loss with respect to the score or the margin."""

import numpy as np

from shortlist.kernels.jit import inlined

LOGISTIC, HINGE, SQUARED = np.int32(0), np.int32(1), np.int32(2)
L2, L1 = np.int32(0), np.int32(1)
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


@inlined
def rank_pull(margin: np.float32) -> np.float32:
    """BPR, -ln σ(s_i - s_j): how hard to drive the two scores apart."""
    pull: np.float32 = ONE / (ONE + np.exp(margin))
    return pull


@inlined
def class_pull(
    loss: np.int32, score: np.float32, boundary: np.float32, relevant: bool | np.bool
) -> np.float32:
    """How hard an example lifts (+) or lowers (-) its score; paper eq. 5, hinge, or squares to 1 and 0."""
    if loss == SQUARED:
        return (ONE if relevant else ZERO) - score
    margin = score - boundary if relevant else boundary - score
    pull = (ONE if margin < ONE else ZERO) if loss == HINGE else ONE / (ONE + np.exp(margin))
    return pull if relevant else -pull


@inlined
def boundary_step(
    boundary: np.float32,
    pull: np.float32,
    lr: np.float32,
    t: np.float32,
    lambda_t: np.float32,
    penalty: np.int32,
) -> np.float32:
    """One step on ℓ + λ_t·R(t_u - t): the loss by gradient, R by its proximal map, stable for any λ_t."""
    moved = boundary - lr * pull - t
    if penalty == L1:
        reach = lr * lambda_t
        moved = moved - reach if moved > reach else (moved + reach if moved < -reach else ZERO)
    else:
        moved /= ONE + TWO * lr * lambda_t
    return t + moved
