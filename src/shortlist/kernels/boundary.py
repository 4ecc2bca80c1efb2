"""The personal boundary on frozen scores: L_cf of the paper (eq. 4) with everything but t_u held fixed."""

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Longs

STEPS = 200  # bisection alone needs about 60; Newton mostly fewer than 10


@inlined
def _loss_slope(
    t: float, scores: Doubles, relevant: Bools, negative: float, hinge: bool, left: bool
) -> tuple[float, float]:
    """First and second derivative of the loss in t; `left` picks the left derivative at a hinge's corner."""
    slope, curve = 0.0, 0.0
    for at in range(scores.size):
        margin = scores[at] - t
        if hinge:
            if relevant[at]:
                slope += 1.0 if margin < 1.0 or (margin == 1.0 and not left) else 0.0
            else:
                slope -= negative if margin > -1.0 or (margin == -1.0 and left) else 0.0
        else:
            p = 1.0 / (1.0 + np.exp(-margin))
            weight = 1.0 if relevant[at] else negative
            slope += weight * ((1.0 if relevant[at] else 0.0) - p)
            curve += weight * p * (1.0 - p)
    return slope, curve


@inlined
def _root(
    low: float,
    high: float,
    pull: float,
    t: float,
    square: float,
    scores: Doubles,
    relevant: Bools,
    negative: float,
    hinge: bool,
) -> float:
    """Where loss slope + pull + 2·square·(x − t) changes sign; Newton, kept inside the bracket."""
    x = 0.5 * (low + high)
    for _ in range(STEPS):
        slope, curve = _loss_slope(x, scores, relevant, negative, hinge, False)
        slope += pull + 2.0 * square * (x - t)
        curve += 2.0 * square
        if slope < 0.0:
            low = x
        else:
            high = x
        step = x - slope / curve if curve > 0.0 and not hinge else 0.5 * (low + high)
        if not (low < step < high):
            step = 0.5 * (low + high)
        if abs(step - x) <= 1e-12 * (1.0 + abs(x)) or step in (low, high):
            return step
        x = step
    return x


@kernel
def boundaries_solve(
    indptr: Longs,  # (n_lists + 1,)
    scores: Doubles,  # (n_candidates,) finite
    relevant: Bools,  # (n_candidates,)
    negative: float,  # weight of an irrelevant candidate; a relevant one weighs 1
    t: float,
    lambda_t: float,
    hinge: bool,
    absolute: bool,  # R is |t_u − t| instead of its square
    boundaries: Doubles,  # (n_lists,) filled
    slopes: Doubles,  # (n_lists,) filled: derivative of the user's smallest loss in t
) -> None:
    """Each user's own minimum: unique for the squared penalty, the one nearest t for the absolute."""
    for u in range(indptr.size - 1):
        own, marks = scores[indptr[u] : indptr[u + 1]], relevant[indptr[u] : indptr[u + 1]]
        right = _loss_slope(t, own, marks, negative, hinge, False)[0]
        left = _loss_slope(t, own, marks, negative, hinge, True)[0]
        if absolute:
            if left <= lambda_t and right >= -lambda_t:
                boundaries[u] = t
                slopes[u] = min(max(left, -lambda_t), lambda_t)
                continue
            pull, square = (lambda_t, 0.0) if right < 0.0 else (-lambda_t, 0.0)
            reach = 1.0
            while True:  # the loss slope passes −pull somewhere: it has the other sign far away
                far = t + reach if right < 0.0 else t - reach
                value = _loss_slope(far, own, marks, negative, hinge, False)[0] + pull
                if (value >= 0.0) == (right < 0.0):
                    break
                reach *= 2.0
        else:
            pull, square = 0.0, lambda_t
            reach = max(abs(left), abs(right)) / (2.0 * lambda_t) + 1e-12
            if right < 0.0 or left > 0.0:
                far = t + reach if right < 0.0 else t - reach
            else:
                boundaries[u], slopes[u] = t, 0.0
                continue
        low, high = min(t, far), max(t, far)
        boundaries[u] = _root(low, high, pull, t, square, own, marks, negative, hinge)
        slopes[u] = -pull if absolute else 2.0 * lambda_t * (t - boundaries[u])
