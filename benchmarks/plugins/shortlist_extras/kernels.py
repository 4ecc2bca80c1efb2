"""Compiled loops of PerK and FrozenBoundary."""

import math

import numpy as np

from shortlist.kernels.expected_utility import argmax, convolve
from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Ints, Longs

ROOT2 = math.sqrt(2.0)
ROOT2PI = math.sqrt(2.0 * math.pi)
MAX_BOUNDARY_STEPS = 200  # bisection alone needs about 60, Newton usually fewer than 10


@inlined
def skewed_normal_cdf(x: float, skew: float) -> float:
    """Return the normal distribution function corrected for skewness, clipped to [0, 1] (as in PerK)."""
    density = math.exp(-0.5 * x * x) / ROOT2PI
    value = 0.5 * math.erfc(-x / ROOT2) + skew * (1.0 - x * x) * density / 6.0
    return min(max(value, 0.0), 1.0)


@inlined
def fill_refined_pmf(rest: Doubles, support: int, mean: float, variance: float, third: float) -> None:
    """Fill `rest` with the probabilities of 0 … support − 1 in the refined normal approximation."""
    if variance < 1e-12:
        for m in range(support):
            rest[m] = 1.0 if m == round(mean) else 0.0
        return
    spread = math.sqrt(variance)
    skew = third / (variance * spread)
    below = 0.0
    for m in range(support):
        now = 1.0 if m == support - 1 else skewed_normal_cdf((m + 0.5 - mean) / spread, skew)
        rest[m] = max(now - below, 0.0)
        below = max(now, below)


@kernel
def compute_refined_utilities(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    ndcg: bool,  # instead of F1
    ideal: Doubles,  # (n_candidates + 1,) ideal DCG by length
    curve: Doubles,  # (n_candidates,) filled: expected utility of the list that ends at this candidate
    lengths: Ints,  # (n_lists,) filled: where it is largest
) -> None:
    """Compute the expected utilities if the number of relevant candidates is nearly normal."""
    width = ideal.size - 1
    pmf, rest, joint = np.empty(width + 2), np.empty(width + 2), np.empty(width + 2)
    for u in range(indptr.size - 1):
        chances = p[indptr[u] : indptr[u + 1]]
        support, mean, variance, third = 1, 0.0, 0.0, 0.0
        pmf[0] = 1.0
        for i in range(chances.size):
            support = convolve(pmf, support, chances[i])  # where the exact distribution ends
            q = chances[i] * (1.0 - chances[i])
            mean, variance, third = mean + chances[i], variance + q, third + q * (1.0 - 2.0 * chances[i])
        joint[:support] = 0.0
        for i in range(chances.size):
            q = chances[i] * (1.0 - chances[i])
            fill_refined_pmf(
                rest, support, mean - chances[i], variance - q, third - q * (1.0 - 2.0 * chances[i])
            )
            gain, total = chances[i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0), 0.0
            for m in range(1, support):
                joint[m] += gain * rest[m - 1]
                total += joint[m] / ideal[min(i + 1, m)] if ndcg else joint[m] * (2.0 / (i + 1 + m))
            curve[indptr[u] + i] = total
        lengths[u] = argmax(curve[indptr[u] : indptr[u + 1]])


@inlined
def loss_derivatives(
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
        user_scores, labels = scores[indptr[u] : indptr[u + 1]], relevant[indptr[u] : indptr[u + 1]]
        at_t = loss_derivatives(t, user_scores, labels, negative_weight)[0]
        if at_t == 0.0:
            boundaries[u], slopes[u] = t, 0.0
            continue
        far = t - np.sign(at_t) * (abs(at_t) / (2.0 * lambda_t) + 1e-12)
        low, high = min(t, far), max(t, far)
        x = 0.5 * (low + high)
        for _ in range(MAX_BOUNDARY_STEPS):
            slope, curve = loss_derivatives(x, user_scores, labels, negative_weight)
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
