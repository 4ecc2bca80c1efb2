"""Expected utility of every prefix of a ranked list whose items are relevant independently of one another.

A utility is a sum over shown relevant items of discount[rank] · worth[length, n], n being the number of all
relevant items. So E[utility of length k] = Σ_m worth[k, m] · Σ_{i ≤ k} discount_i · P(i relevant, n = m), and
the inner sum grows by one term with every k: the whole curve costs M × the support of n.
"""

import math

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Ints, Longs

SURE = 1e-18  # probabilities below this are dropped from the upper tail
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
        if (m > mean and mass < SURE) or m == pmf.size - 1:
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
        for m in range(support):
            before = max((pmf[m] - p * before) * scale, 0.0)
            rest[m] = before
    else:
        scale, after = 1.0 / p, 0.0
        rest[support - 1] = 0.0
        for m in range(support - 1, 0, -1):
            after = max((pmf[m] - (1.0 - p) * after) * scale, 0.0)
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


@kernel
def utilities_joint(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    outside: Doubles,  # (n_lists,) expected number of relevant items outside the head; 0: none
    dispersion: float,
    refined: bool,  # the refined normal instead of the exact distribution
    discount: Doubles,  # (M,)
    worth: Doubles,  # (M + 1, n_max + 1)
    curve: Doubles,  # (n_candidates,) filled: expected utility of the list that ends here
    lengths: Ints,  # (n_lists,) filled: where it is largest
) -> None:
    """n = relevant items inside the head (Poisson binomial) + outside (negative binomial)."""
    top = worth.shape[1]
    pmf, rest, joint = np.empty(top + 1), np.empty(top + 1), np.empty(top + 1)
    for u in range(indptr.size - 1):
        own = p[indptr[u] : indptr[u + 1]]
        mean, extra = outside[u], dispersion * outside[u]
        support = count_fill(pmf[: top - own.size], mean, dispersion)
        variance, third = mean * (1.0 + extra), mean * (1.0 + extra) * (1.0 + 2.0 * extra)
        for i in range(own.size):
            support = _add(pmf, support, own[i])
            mean += own[i]
            variance += own[i] * (1.0 - own[i])
            third += own[i] * (1.0 - own[i]) * (1.0 - 2.0 * own[i])
        joint[:support] = 0.0
        for i in range(own.size):
            q = own[i] * (1.0 - own[i])
            if refined:
                _refined_fill(rest, support, mean - own[i], variance - q, third - q * (1.0 - 2.0 * own[i]))
            else:
                _remove(pmf, support, own[i], rest)
            gain, total = discount[i] * own[i], 0.0
            for m in range(1, support):
                joint[m] += gain * rest[m - 1]
                total += joint[m] * worth[i + 1, m]
            curve[indptr[u] + i] = total
        lengths[u] = _argmax(curve[indptr[u] : indptr[u + 1]])


@kernel
def utilities_apart(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    more: Doubles,  # (n_lists,) mean of n − 1
    dispersion: float,
    discount: Doubles,  # (M,)
    worth: Doubles,  # (M + 1, n_max + 1)
    curve: Doubles,  # (n_candidates,) filled
    lengths: Ints,  # (n_lists,) filled
) -> None:
    """n = 1 + a negative binomial predicted from the user's past, whichever items are relevant."""
    pmf = np.empty(worth.shape[1] - 1)
    for u in range(indptr.size - 1):
        support = count_fill(pmf, more[u], dispersion)
        gain = 0.0
        for i in range(indptr[u + 1] - indptr[u]):
            gain += discount[i] * p[indptr[u] + i]
            total = 0.0
            for m in range(support):
                total += pmf[m] * worth[i + 1, m + 1]
            curve[indptr[u] + i] = gain * total
        lengths[u] = _argmax(curve[indptr[u] : indptr[u + 1]])
