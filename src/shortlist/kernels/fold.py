"""Folding in: one user's vector and boundary with all items fixed, by Newton's method with a line search."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import HINGE, L1, SQUARED
from shortlist.types import Doubles, Floats, Ints, Longs

PLAIN, AVERAGE, MAXIMUM = 0, 1, 2
SMOOTH = 0.05  # half-width in which hinge and absolute value are rounded off, so that they have a curvature
STEPS = 50
TOLERANCE = 1e-9


class Terms(NamedTuple):
    """What is asked of each user: liked[r] above unseen[r], and each on its side of the boundary."""

    indptr: Longs  # (n_users + 1,)
    liked: Ints  # (n_rows,)
    unseen: Ints  # (n_rows,)


class FoldInObjective(NamedTuple):
    """The objective, in double precision; see `kernels.mf.Rates`."""

    reg_user: float
    alpha: float
    share: float  # 0: the user's own density
    weight: float
    t: float
    lambda_t: float
    loss: int
    penalty: int
    learn_boundary: bool
    pool: int  # PLAIN, AVERAGE or MAXIMUM of user and context


@inlined
def _logistic(margin: float) -> tuple[float, float, float]:
    """ln(1 + exp(-m)), its slope and its curvature."""
    e = np.exp(-abs(margin))
    p = 1 / (1 + e) if margin < 0 else e / (1 + e)  # σ(-m)
    return np.log1p(e) + max(-margin, 0.0), -p, p * (1 - p)


@inlined
def _rounded(x: float) -> tuple[float, float, float]:
    """max(x, 0) with its corner rounded off, slope and curvature."""
    if x <= -SMOOTH:
        return 0.0, 0.0, 0.0
    if x >= SMOOTH:
        return x, 1.0, 0.0
    return (x + SMOOTH) ** 2 / (4 * SMOOTH), (x + SMOOTH) / (2 * SMOOTH), 1 / (2 * SMOOTH)


@inlined
def _example(loss: int, score: float, boundary: float, relevant: bool) -> tuple[float, float, float]:
    """The loss of an example, slope and curvature in its score; in the boundary the slope turns its sign."""
    if loss == SQUARED:
        gap = score - (1.0 if relevant else 0.0)
        return 0.5 * gap * gap, gap, 1.0
    sign = 1.0 if relevant else -1.0
    margin = sign * (score - boundary)
    if loss == HINGE:
        value, slope, curve = _rounded(1 - margin)
        return value, -sign * slope, curve
    value, slope, curve = _logistic(margin)
    return value, sign * slope, curve


@inlined
def _pooled(pool: int, x: Doubles, context: Floats, hybrid: Doubles, gain: Doubles) -> None:
    """The score vector at x, and how much of each coordinate's movement reaches it."""
    for f in range(hybrid.size):
        if pool == PLAIN:
            hybrid[f], gain[f] = x[f], 1.0
        elif pool == AVERAGE:
            hybrid[f], gain[f] = 0.5 * (x[f] + context[f]), 0.5
        else:
            mine = x[f] >= context[f]
            hybrid[f], gain[f] = (x[f] if mine else context[f]), (1.0 if mine else 0.0)


@inlined
def _add(
    slope: float, curve: float, a: Doubles, tau: float, grad: Doubles, hess: Doubles, full: bool
) -> None:
    """One term whose inner value moves by a·dp + tau·dt; hess = False asks for the gradient alone."""
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
def fold_value(
    x: Doubles,  # (n_factors + 1,) vector, then boundary
    context: Floats,  # (n_factors,)
    liked: Ints,
    unseen: Ints,
    share: float,
    items: Floats,  # (n_items, n_factors)
    bias: Floats,
    goal: FoldInObjective,
    grad: Doubles,  # (n_factors + 1,) written
    hess: Doubles,  # (n_factors + 1, n_factors + 1) lower triangle written; size 0 when not wanted
) -> float:
    """The mean joint loss of one user with its derivatives; what `users_fold` brings to its minimum."""
    n = x.size - 1
    full = hess.size > 0
    hybrid, gain, a = np.empty(n), np.empty(n), np.empty(n)
    _pooled(goal.pool, x, context, hybrid, gain)
    grad[:] = 0.0
    hess[:] = 0.0
    total = 0.0
    for row in range(liked.size):
        i, j = liked[row], unseen[row]
        up = float(bias[i]) if bias.size else 0.0
        down = float(bias[j]) if bias.size else 0.0
        for f in range(n):
            up += hybrid[f] * items[i, f]
            down += hybrid[f] * items[j, f]
        if goal.alpha < 1:
            value, slope, curve = _logistic(up - down)
            mass = 1 - goal.alpha
            total += mass * value
            for f in range(n):
                a[f] = gain[f] * (items[i, f] - items[j, f])
            _add(mass * slope, mass * curve, a, 0.0, grad, hess, full)
        if goal.alpha > 0:
            tau = -1.0 if goal.learn_boundary else 0.0
            for relevant in (True, False):
                item, score = (i, up) if relevant else (j, down)
                mass = goal.alpha * (share * goal.weight if relevant else 1 - share)
                value, slope, curve = _example(goal.loss, score, x[n], relevant)
                total += mass * value
                for f in range(n):
                    a[f] = gain[f] * items[item, f]
                _add(mass * slope, mass * curve, a, tau, grad, hess, full)
    scale = 1.0 / max(liked.size, 1)
    total *= scale
    grad *= scale
    hess *= scale
    for f in range(n):
        total += 0.5 * goal.reg_user * x[f] * x[f]
        grad[f] += goal.reg_user * x[f]
        if full:
            hess[f, f] += goal.reg_user + 1e-9
    away = x[n] - goal.t
    force = goal.alpha * goal.lambda_t
    if goal.penalty == L1:
        over, over_slope, over_curve = _rounded(away)
        under, under_slope, under_curve = _rounded(-away)
        total += force * (over + under)
        grad[n] += force * (over_slope - under_slope)
        bend = force * (over_curve + under_curve)
    else:
        total += force * away * away
        grad[n] += 2 * force * away
        bend = 2 * force
    if full:
        hess[n, n] += bend + 1e-9
    if not goal.learn_boundary:
        grad[n] = 0.0
        if full:
            hess[n, :] = 0.0
            hess[n, n] = 1.0
    return total


@inlined
def _solve(hess: Doubles, step: Doubles) -> None:
    """step ← hess⁻¹·step by Cholesky in place; hess (lower triangle) is destroyed."""
    n = step.size
    for i in range(n):
        for j in range(i + 1):
            s = hess[i, j]
            for k in range(j):
                s -= hess[i, k] * hess[j, k]
            hess[i, j] = np.sqrt(max(s, 1e-12)) if i == j else s / hess[j, j]
    for i in range(n):
        s = step[i]
        for k in range(i):
            s -= hess[i, k] * step[k]
        step[i] = s / hess[i, i]
    for i in range(n - 1, -1, -1):
        s = step[i]
        for k in range(i + 1, n):
            s -= hess[k, i] * step[k]
        step[i] = s / hess[i, i]


@kernel
def users_fold(
    first: int,  # users first … last - 1 are solved
    last: int,
    terms: Terms,
    contexts: Floats,  # (n_users, n_factors) pooled contexts; any values where pool is PLAIN
    items: Floats,
    bias: Floats,
    goal: FoldInObjective,
    density: Doubles,  # (n_users,) share of all items that the user takes
    vectors: Floats,  # (n_users, n_factors) start on entry, solution on return
    boundary: Floats,  # (n_users,) likewise
) -> None:
    """Minimise each user's objective; convex unless pooling is by maximum: then a stationary point."""
    n = vectors.shape[1]
    x, trial, grad, step = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    hess, none = np.empty((n + 1, n + 1)), np.empty((0, 0))
    for u in range(first, last):
        liked = terms.liked[terms.indptr[u] : terms.indptr[u + 1]]
        unseen = terms.unseen[terms.indptr[u] : terms.indptr[u + 1]]
        if liked.size == 0:
            continue
        share = density[u]
        if goal.share > 0:  # training loses the draws that hit a liked item
            share = goal.share / (1 - (1 - goal.share) * density[u])
        x[:n] = vectors[u]
        x[n] = boundary[u]
        for _ in range(STEPS):
            value = fold_value(x, contexts[u], liked, unseen, share, items, bias, goal, grad, hess)
            step[:] = -grad
            _solve(hess, step)
            slope = 0.0
            for f in range(n + 1):
                slope += step[f] * grad[f]
            if slope > -TOLERANCE * (1 + abs(value)):
                break
            length, improved = 1.0, False
            for _ in range(30):
                for f in range(n + 1):
                    trial[f] = x[f] + length * step[f]
                reached = fold_value(trial, contexts[u], liked, unseen, share, items, bias, goal, grad, none)
                if reached <= value + 1e-4 * length * slope:
                    improved = True
                    break
                length *= 0.5
            if not improved:
                break
            x[:] = trial
        for f in range(n):
            vectors[u, f] = np.float32(x[f])
        boundary[u] = np.float32(x[n])
