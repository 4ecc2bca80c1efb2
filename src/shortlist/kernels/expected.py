"""Expected utility of every prefix of a ranked list whose items are relevant independently of one another.

A utility is a sum over shown relevant items of discount[rank] · worth(length, n), n being the number of all
relevant items: those inside the head (Poisson binomial) and those outside it (negative binomial). The outside
ones are averaged into the worth first. Then E[utility of length k] = Σ_m worth(k, m) · Σ_{i ≤ k} discount_i ·
P(i relevant, m inside), and the inner sum grows by one term with every k: a curve costs M × the support of m.
"""

import math

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Ints, Longs

SURE = 1e-16  # relevant items inside the head: probabilities below this are dropped from the upper tail
FAINT = 1e-12  # outside it: everything from here on is lumped together
TAIL = 1024
ROOT2 = math.sqrt(2.0)
ROOT2PI = math.sqrt(2.0 * math.pi)


@inlined
def count_fill(pmf: Doubles, mean: float, dispersion: float) -> int:
    """Negative binomial (Poisson at dispersion 0) into pmf, the far tail on the last value; its support."""
    if dispersion > 1e-9:
        odds = dispersion * mean / (1.0 + dispersion * mean)
        size = 1.0 / dispersion
        mass = math.exp(-size * math.log1p(dispersion * mean))
    else:
        odds, size, mass = mean, 0.0, math.exp(-mean)
    left = 1.0
    for m in range(pmf.size):
        pmf[m] = mass
        left -= mass
        if (m > mean and mass < FAINT) or m == pmf.size - 1:
            pmf[m] += max(left, 0.0)
            return m + 1
        mass *= (odds * (m + size) if dispersion > 1e-9 else odds) / (m + 1.0)
    return pmf.size


@inlined
def _add(pmf: Doubles, support: int, p: float) -> int:
    """Convolve with one coin; the new support."""
    pmf[support] = 0.0
    for m in range(support, 0, -1):
        pmf[m] += p * (pmf[m - 1] - pmf[m])
    pmf[0] *= 1.0 - p
    support += 1
    while support > 1 and pmf[support - 1] < SURE:
        support -= 1
    return support


@inlined
def _remove(pmf: Doubles, support: int, p: float, rest: Doubles) -> None:
    """Undo one coin into `rest`, from the end where errors shrink."""
    if p <= 0.5:
        scale, before = 1.0 / (1.0 - p), 0.0
        ratio = p * scale
        for m in range(support):
            before = pmf[m] * scale - ratio * before
            rest[m] = before
    else:
        scale, after = 1.0 / p, 0.0
        ratio = (1.0 - p) * scale
        rest[support - 1] = 0.0
        for m in range(support - 1, 0, -1):
            after = pmf[m] * scale - ratio * after
            rest[m - 1] = after


@inlined
def _refined_cdf(x: float, skew: float) -> float:
    """Normal distribution function with one term for skewness, kept within [0, 1]."""
    density = math.exp(-0.5 * x * x) / ROOT2PI
    value = 0.5 * math.erfc(-x / ROOT2) + skew * (1.0 - x * x) * density / 6.0
    return min(max(value, 0.0), 1.0)


@inlined
def _refined_fill(rest: Doubles, support: int, mean: float, variance: float, third: float) -> None:
    """The refined normal's probabilities of 0 … support − 1."""
    if variance < 1e-12:
        for m in range(support):
            rest[m] = 1.0 if m == round(mean) else 0.0
        return
    spread = math.sqrt(variance)
    skew = third / (variance * spread)
    below = 0.0
    for m in range(support):
        now = 1.0 if m == support - 1 else _refined_cdf((m + 0.5 - mean) / spread, skew)
        rest[m] = max(now - below, 0.0)
        below = max(now, below)


@inlined
def _argmax(curve: Doubles) -> int:
    """Length with the largest utility, the shorter of equals; 0 where nothing is worth showing."""
    best, length = 0.0, 0
    for k in range(curve.size):
        if curve[k] > best * (1.0 + 1e-12):
            best, length = curve[k], k + 1
    return length


@inlined
def _f1_fill(worth: Doubles, n: int, outside: Doubles, n_outside: int, over: Doubles) -> None:
    """worth[k + m] = E[2 / (k + m + outside)] for k + m < n; over[c] = 2 / c."""
    for total in range(1, n):
        value = 0.0
        for z in range(n_outside):
            value += outside[z] * over[total + z]
        worth[total] = value


@inlined
def _ndcg_fill(
    worth: Doubles, width: int, support: int, outside: Doubles, n_outside: int, ideal: Doubles
) -> None:
    """worth[k·support + m] = E[1 / ideal(min(k, m + outside))] for 1 ≤ k ≤ width, 1 ≤ m < support."""
    for m in range(1, support):
        below, left = 0.0, 1.0  # what outcomes with m + outside < k add, and the chance of all others
        for k in range(1, width + 1):
            if k > m and k - 1 - m < n_outside:
                below += outside[k - 1 - m] / ideal[k - 1]
                left -= outside[k - 1 - m]
            worth[k * support + m] = below + max(left, 0.0) / ideal[k]


@inlined
def _reciprocals(width: int) -> Doubles:
    """over[c] = 2 / c for every K + n that can occur."""
    over = np.empty(2 * width + TAIL + 2)
    over[0] = 0.0
    for c in range(1, over.size):
        over[c] = 2.0 / c
    return over


@kernel
def utilities_joint(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    outside: Doubles,  # (n_lists,) expected number of relevant items outside the head; 0: none
    dispersion: float,
    refined: bool,  # the refined normal instead of the exact distribution
    ndcg: bool,  # instead of F1
    ideal: Doubles,  # (M + 1,) ideal DCG of every length
    curve: Doubles,  # (n_candidates,) filled: expected utility of the list that ends here
    lengths: Ints,  # (n_lists,) filled: where it is largest
) -> None:
    """n = relevant items inside the head + outside it."""
    width = ideal.size - 1
    pmf, rest, joint = np.empty(width + 2), np.empty(width + 2), np.empty(width + 2)
    worth, others, over = np.zeros((width + 1) * (width + 2)), np.empty(TAIL), _reciprocals(width)
    for u in range(indptr.size - 1):
        own = p[indptr[u] : indptr[u + 1]]
        support, mean, variance, third = 1, 0.0, 0.0, 0.0
        pmf[0] = 1.0
        for i in range(own.size):
            support = _add(pmf, support, own[i])
            q = own[i] * (1.0 - own[i])
            mean, variance, third = mean + own[i], variance + q, third + q * (1.0 - 2.0 * own[i])
        n_outside = count_fill(others, outside[u], dispersion)
        if ndcg:
            _ndcg_fill(worth, own.size, support, others, n_outside, ideal)
        else:
            _f1_fill(worth, own.size + support, others, n_outside, over)
        joint[:support] = 0.0
        for i in range(own.size):
            if refined:
                q = own[i] * (1.0 - own[i])
                _refined_fill(rest, support, mean - own[i], variance - q, third - q * (1.0 - 2.0 * own[i]))
            else:
                _remove(pmf, support, own[i], rest)
            gain, total = own[i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0), 0.0
            row = worth[(i + 1) * (support if ndcg else 1) :]
            for m in range(1, support):
                joint[m] += gain * rest[m - 1]
                total += joint[m] * row[m]
            curve[indptr[u] + i] = total
        lengths[u] = _argmax(curve[indptr[u] : indptr[u + 1]])


@kernel
def utilities_apart(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    more: Doubles,  # (n_lists,) mean of n − 1
    dispersion: float,
    ndcg: bool,
    ideal: Doubles,  # (M + 1,)
    curve: Doubles,  # (n_candidates,) filled
    lengths: Ints,  # (n_lists,) filled
) -> None:
    """n = 1 + a negative binomial predicted from the user's past, whichever items are relevant."""
    width = ideal.size - 1
    worth, others, over = np.zeros(2 * width + 2), np.empty(TAIL), _reciprocals(width)
    for u in range(indptr.size - 1):
        size = indptr[u + 1] - indptr[u]
        n_others = count_fill(others, more[u], dispersion)
        if ndcg:
            _ndcg_fill(worth, size, 2, others, n_others, ideal)
        else:
            _f1_fill(worth, size + 2, others, n_others, over)
        gain = 0.0
        for i in range(size):
            gain += p[indptr[u] + i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0)
            curve[indptr[u] + i] = gain * worth[2 * i + 3 if ndcg else i + 2]
        lengths[u] = _argmax(curve[indptr[u] : indptr[u + 1]])
