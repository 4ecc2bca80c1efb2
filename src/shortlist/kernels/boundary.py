"""The user's boundary for fixed scores: L_cf of the paper (eq. 4) as a function of t_u alone."""

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Longs

MAX_STEPS = 200  # bisection alone needs about 60, Newton usually fewer than 10


@inlined
def _loss_derivatives(
    t: float, scores: Doubles, relevant: Bools, negative_weight: float
) -> tuple[float, float]:
    """Return the first and second derivative of the weighted logistic loss with respect to t."""
    slope, curve = 0.0, 0.0
    for at in range(scores.size):
        p = 1.0 / (1.0 + np.exp(t - scores[at]))
        weight = 1.0 if relevant[at] else negative_weight
        slope += weight * ((1.0 if relevant[at] else 0.0) - p)
        curve += weight * p * (1.0 - p)
    return slope, curve


@kernel
def solve_boundaries(
    indptr: Longs,  # (n_lists + 1,)
    scores: Doubles,  # (n_candidates,) finite
    relevant: Bools,  # (n_candidates,)
    negative_weight: float,  # weight of an irrelevant candidate; a relevant one has weight 1
    t: float,
    lambda_t: float,
    boundaries: Doubles,  # (n_lists,) filled
    slopes: Doubles,  # (n_lists,) filled: derivative of the user's minimal loss with respect to t
) -> None:
    """Minimize loss + lambda_t · (t_u − t)² per user: Newton's method inside a bracket."""
    for u in range(indptr.size - 1):
        own, labels = scores[indptr[u] : indptr[u + 1]], relevant[indptr[u] : indptr[u + 1]]
        at_t = _loss_derivatives(t, own, labels, negative_weight)[0]
        if at_t == 0.0:
            boundaries[u], slopes[u] = t, 0.0
            continue
        far = t - np.sign(at_t) * (abs(at_t) / (2.0 * lambda_t) + 1e-12)
        low, high = min(t, far), max(t, far)
        x = 0.5 * (low + high)
        for _ in range(MAX_STEPS):
            slope, curve = _loss_derivatives(x, own, labels, negative_weight)
            slope += 2.0 * lambda_t * (x - t)
            curve += 2.0 * lambda_t
            if slope < 0.0:
                low = x
            else:
                high = x
            step = x - slope / curve
            if not (low < step < high):
                step = 0.5 * (low + high)
            done = abs(step - x) <= 1e-12 * (1.0 + abs(x)) or step in (low, high)
            x = step
            if done:
                break
        boundaries[u], slopes[u] = x, 2.0 * lambda_t * (t - x)
