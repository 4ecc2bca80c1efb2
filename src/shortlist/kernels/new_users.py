"""Fold-in of new users: a vector and a boundary for fixed items, by Newton's method with a line search."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.glm import solve_cholesky
from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.parameters import HINGE, L1, SQUARED, Hyperparameters
from shortlist.types import Doubles, Floats, Ints, Longs

USER_ONLY, AVERAGE, MAXIMUM = 0, 1, 2  # how the user is pooled with a context, which is 0 here
SMOOTH = 0.05  # half-width of the rounded corner of hinge and absolute value, which gives them a curvature
MAX_STEPS = 50
MAX_TRIALS = 30  # of the length of a step
TOLERANCE = 1e-9


class FoldInPairs(NamedTuple):
    """The training pairs of each user: liked[r] should score above unseen[r]."""

    indptr: Longs  # (n_users + 1,)
    liked: Ints  # (n_pairs,)
    unseen: Ints  # (n_pairs,)
    density: Doubles  # (n_users,) share of all items that the user interacts with
    lambda_t: Doubles  # (n_users,) penalty of an example on the distance of the boundary from t


class UserPairs(NamedTuple):
    """The pairs of one user."""

    liked: Ints  # (n,)
    unseen: Ints  # (n,)
    positive_rate: float  # share of positive examples
    lambda_t: float


@inlined
def _logistic(margin: float) -> tuple[float, float, float]:
    """Return ln(1 + exp(-m)), its slope and its curvature."""
    e = np.exp(-abs(margin))
    p = 1 / (1 + e) if margin < 0 else e / (1 + e)  # σ(-m)
    return np.log1p(e) + max(-margin, 0.0), -p, p * (1 - p)


@inlined
def _smooth_relu(x: float) -> tuple[float, float, float]:
    """Return max(x, 0) with a rounded corner, its slope and its curvature."""
    if x <= -SMOOTH:
        return 0.0, 0.0, 0.0
    if x >= SMOOTH:
        return x, 1.0, 0.0
    return (x + SMOOTH) ** 2 / (4 * SMOOTH), (x + SMOOTH) / (2 * SMOOTH), 1 / (2 * SMOOTH)


@inlined
def _class_loss(loss: np.int32, score: float, boundary: float, relevant: bool) -> tuple[float, float, float]:
    """Return the loss of an example, its slope and its curvature; the slope in the boundary is minus that."""
    if loss == SQUARED:
        gap = score - (1.0 if relevant else 0.0)
        return 0.5 * gap * gap, gap, 1.0
    sign = 1.0 if relevant else -1.0
    margin = sign * (score - boundary)
    if loss == HINGE:
        value, slope, curve = _smooth_relu(1 - margin)
        return value, -sign * slope, curve
    value, slope, curve = _logistic(margin)
    return value, sign * slope, curve


@inlined
def _pool(pool: int, x: Doubles, hybrid: Doubles, gain: Doubles) -> None:
    """Write the score vector at x and its derivative with respect to each coordinate of x."""
    for f in range(hybrid.size):
        gain[f] = 1.0 if pool == USER_ONLY else 0.5 if pool == AVERAGE else 1.0 if x[f] >= 0 else 0.0
        hybrid[f] = gain[f] * x[f]


@inlined
def _add_term(
    slope: float, curve: float, a: Doubles, tau: float, grad: Doubles, hess: Doubles, full: bool
) -> None:
    """Add the derivatives of a term whose argument changes by a·dp + tau·dt; `full` includes the Hessian."""
    n = a.size
    for f in range(n):
        grad[f] += slope * a[f]
    grad[n] += slope * tau
    if not full or curve == 0:
        return
    for f in range(n):
        c = curve * a[f]
        for g in range(f + 1):
            hess[f, g] += c * a[g]
    c = curve * tau
    for g in range(n):
        hess[n, g] += c * a[g]
    hess[n, n] += c * tau


@inlined
def fold_in_loss(
    x: Doubles,  # (n_factors + 1,) the vector, then the boundary
    pairs: UserPairs,
    items: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or (0,)
    hyper: Hyperparameters[float],
    pool: int,  # USER_ONLY, AVERAGE or MAXIMUM
    grad: Doubles,  # (n_factors + 1,) written
    hess: Doubles,  # (n_factors + 1, n_factors + 1) lower triangle written; (0, 0) if not needed
) -> float:
    """Return the mean joint loss of one user and write its derivatives; `fold_in_users` minimizes it."""
    liked, unseen, positive_rate, lambda_t = pairs
    n = x.size - 1
    full = hess.size > 0
    hybrid, gain, a = np.empty(n), np.empty(n), np.empty(n)
    _pool(pool, x, hybrid, gain)
    # loops, here and below: array expressions take long to compile
    for f in range(n + 1):
        grad[f] = 0.0
    for f in range(hess.shape[0]):
        for g in range(hess.shape[1]):
            hess[f, g] = 0.0
    total = 0.0
    for row in range(liked.size):
        i, j = liked[row], unseen[row]
        up = float(bias[i]) if bias.size else 0.0
        down = float(bias[j]) if bias.size else 0.0
        for f in range(n):
            up += hybrid[f] * items[i, f]
            down += hybrid[f] * items[j, f]
        for term in range(3):  # the pair, its liked item, its unseen item; one call of each inlined function
            tau = 0.0
            if term == 0:
                weight = 1 - hyper.alpha
                value, slope, curve = _logistic(up - down)
                for f in range(n):
                    a[f] = gain[f] * (items[i, f] - items[j, f])
            else:
                relevant = term == 1
                item, score = (i, up) if relevant else (j, down)
                weight = hyper.alpha * (
                    positive_rate * hyper.positive_weight if relevant else 1 - positive_rate
                )
                tau = -1.0 if hyper.learn_boundary else 0.0
                value, slope, curve = _class_loss(hyper.loss, score, x[n], relevant)
                for f in range(n):
                    a[f] = gain[f] * items[item, f]
            if weight != 0:
                total += weight * value
                _add_term(weight * slope, weight * curve, a, tau, grad, hess, full)
    scale = 1.0 / max(liked.size, 1)
    total *= scale
    for f in range(n + 1):
        grad[f] *= scale
    for f in range(hess.shape[0]):
        for g in range(hess.shape[1]):
            hess[f, g] *= scale
    for f in range(n):
        total += 0.5 * hyper.reg_user * x[f] * x[f]
        grad[f] += hyper.reg_user * x[f]
        if full:
            hess[f, f] += hyper.reg_user + 1e-9
    distance = x[n] - hyper.t
    strength = hyper.alpha * lambda_t
    if hyper.penalty == L1:
        above, above_slope, above_curve = _smooth_relu(distance)
        below, below_slope, below_curve = _smooth_relu(-distance)
        total += strength * (above + below)
        grad[n] += strength * (above_slope - below_slope)
        curvature = strength * (above_curve + below_curve)
    else:
        total += strength * distance * distance
        grad[n] += 2 * strength * distance
        curvature = 2 * strength
    if full:
        hess[n, n] += curvature + 1e-9
    if not hyper.learn_boundary:
        grad[n] = 0.0
        if full:
            for g in range(n):
                hess[n, g] = 0.0
            hess[n, n] = 1.0
    return total


@kernel
def fold_in_users(
    first: int,  # users first … last - 1 are solved
    last: int,
    pairs: FoldInPairs,
    items: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or (0,)
    hyper: Hyperparameters[float],
    pool: int,  # USER_ONLY, AVERAGE or MAXIMUM
    vectors: Floats,  # (n_users, n_factors) initial values, replaced by the solution
    boundary: Floats,  # (n_users,) likewise
) -> None:
    """Minimize the loss of each user; convex except for maximum pooling, which ends at a stationary point."""
    n = vectors.shape[1]
    x, trial, grad, step = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    hess, none = np.empty((n + 1, n + 1)), np.empty((0, 0))
    for u in range(first, last):
        rows = slice(pairs.indptr[u], pairs.indptr[u + 1])
        if rows.start == rows.stop:
            continue
        positive_rate = pairs.density[u]
        if hyper.positive_rate > 0:  # training rejects the draws that hit a liked item
            positive_rate = hyper.positive_rate / (1 - (1 - hyper.positive_rate) * pairs.density[u])
        user_pairs = UserPairs(pairs.liked[rows], pairs.unseen[rows], positive_rate, pairs.lambda_t[u])
        for f in range(n):
            x[f] = trial[f] = np.float64(vectors[u, f])
        x[n] = trial[n] = np.float64(boundary[u])
        value, slope, length, n_steps, n_trials = 0.0, 0.0, 0.0, 0, 0
        while True:  # n_trials 0: a new step from x = trial, else the trials of its length
            # one call for both, because the loss is inlined
            curvature = none if n_trials else hess
            reached = fold_in_loss(trial, user_pairs, items, bias, hyper, pool, grad, curvature)
            if n_trials == 0:
                value, slope, length, n_trials = reached, 0.0, 1.0, 1
                for f in range(n + 1):
                    step[f] = -grad[f]
                solve_cholesky(hess, step, 1e-12)
                for f in range(n + 1):
                    slope += step[f] * grad[f]
                if slope > -TOLERANCE * (1 + abs(value)):
                    break
            elif reached <= value + 1e-4 * length * slope:
                for f in range(n + 1):
                    x[f] = trial[f]
                n_steps, n_trials = n_steps + 1, 0
                if n_steps == MAX_STEPS:
                    break
                continue
            elif n_trials == MAX_TRIALS:
                break
            else:
                length, n_trials = 0.5 * length, n_trials + 1
            for f in range(n + 1):
                trial[f] = x[f] + length * step[f]
        for f in range(n):
            vectors[u, f] = np.float32(x[f])
        boundary[u] = np.float32(x[n])
