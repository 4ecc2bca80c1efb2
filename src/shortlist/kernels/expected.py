"""Expected utility of every prefix of a ranked list, if items are relevant independently of one another.

A utility is a sum over shown relevant items of discount[rank] · factor(length, n), where n is the number of
all relevant items: candidates (Poisson binomial) and others, which are missed (negative binomial). The factor
is first averaged over the missed items. Then E[utility of length k] = Σ_m factor(k, m) · Σ_{i ≤ k} discount_i
· P(i relevant, m relevant candidates). The inner sum grows by one term per k, so a list costs n_candidates ×
the support of m.
"""

import math

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Ints, Longs

NEGLIGIBLE = 1e-16  # smaller probabilities are dropped from the upper tail of relevant candidates
TAIL_MASS = 1e-12  # the tail of missed items from here on is assigned to one value
LONGEST_TAIL = 1024  # largest support of the missed items
ROOT2 = math.sqrt(2.0)
ROOT2PI = math.sqrt(2.0 * math.pi)


@inlined
def fill_count_pmf(pmf: Doubles, mean: float, dispersion: float) -> int:
    """Fill pmf with a negative binomial (Poisson at dispersion 0); return the size of its support."""
    if dispersion > 1e-9:
        odds = dispersion * mean / (1.0 + dispersion * mean)
        size = 1.0 / dispersion
        mass = math.exp(-size * math.log1p(dispersion * mean))
    else:
        odds, size, mass = mean, 0.0, math.exp(-mean)
    remaining = 1.0
    for m in range(pmf.size):
        pmf[m] = mass
        remaining -= mass
        if (m > mean and mass < TAIL_MASS) or m == pmf.size - 1:
            pmf[m] += max(remaining, 0.0)
            return m + 1
        mass *= (odds * (m + size) if dispersion > 1e-9 else odds) / (m + 1.0)
    return pmf.size


@inlined
def _convolve(pmf: Doubles, support: int, p: float) -> int:
    """Convolve with one Bernoulli variable; return the new support."""
    pmf[support] = 0.0
    for m in range(support, 0, -1):
        pmf[m] += p * (pmf[m - 1] - pmf[m])
    pmf[0] *= 1.0 - p
    support += 1
    while support > 1 and pmf[support - 1] < NEGLIGIBLE:
        support -= 1
    return support


@inlined
def _deconvolve(pmf: Doubles, support: int, p: float, rest: Doubles) -> None:
    """Deconvolve one Bernoulli variable into `rest`, from the end where errors shrink."""
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
def _skewed_normal_cdf(x: float, skew: float) -> float:
    """Return the normal distribution function corrected for skewness, clipped to [0, 1] (as in PerK)."""
    density = math.exp(-0.5 * x * x) / ROOT2PI
    value = 0.5 * math.erfc(-x / ROOT2) + skew * (1.0 - x * x) * density / 6.0
    return min(max(value, 0.0), 1.0)


@inlined
def _fill_refined_pmf(rest: Doubles, support: int, mean: float, variance: float, third: float) -> None:
    """Fill `rest` with the probabilities of 0 … support − 1 in the refined normal approximation."""
    if variance < 1e-12:
        for m in range(support):
            rest[m] = 1.0 if m == round(mean) else 0.0
        return
    spread = math.sqrt(variance)
    skew = third / (variance * spread)
    below = 0.0
    for m in range(support):
        now = 1.0 if m == support - 1 else _skewed_normal_cdf((m + 0.5 - mean) / spread, skew)
        rest[m] = max(now - below, 0.0)
        below = max(now, below)


@inlined
def _argmax(curve: Doubles) -> int:
    """Return the length with the largest utility, the shortest of equals; 0 if no utility is positive."""
    best, length = 0.0, 0
    for k in range(curve.size):
        if curve[k] > best * (1.0 + 1e-12):
            best, length = curve[k], k + 1
    return length


@inlined
def _fill_f1_factor(factor: Doubles, n: int, missed: Doubles, n_missed: int, over: Doubles) -> None:
    """factor[k + m] = E[2 / (k + m + missed)] for k + m < n; over[c] = 2 / c."""
    for total in range(1, n):
        value = 0.0
        for z in range(n_missed):
            value += missed[z] * over[total + z]
        factor[total] = value


@inlined
def _fill_ndcg_factor(
    factor: Doubles, width: int, support: int, missed: Doubles, n_missed: int, ideal: Doubles
) -> None:
    """factor[k·support + m] = E[1 / ideal(min(k, m + missed))] for 1 ≤ k ≤ width, 1 ≤ m < support."""
    for m in range(1, support):
        below, remaining = 0.0, 1.0  # contribution of m + missed < k, and the probability of the rest
        for k in range(1, width + 1):
            if k > m and k - 1 - m < n_missed:
                below += missed[k - 1 - m] / ideal[k - 1]
                remaining -= missed[k - 1 - m]
            factor[k * support + m] = below + max(remaining, 0.0) / ideal[k]


@inlined
def _reciprocals(width: int) -> Doubles:
    """Return 2 / c for every c = length + n that can occur."""
    over = np.empty(2 * width + LONGEST_TAIL + 2)
    over[0] = 0.0
    for c in range(1, over.size):
        over[c] = 2.0 / c
    return over


@kernel
def compute_joint_utilities(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    missed: Doubles,  # (n_lists,) expected number of relevant items that are not candidates
    dispersion: float,
    refined: bool,  # the refined normal approximation instead of the exact distribution
    ndcg: bool,  # instead of F1
    ideal: Doubles,  # (n_candidates + 1,) ideal DCG by length
    curve: Doubles,  # (n_candidates,) filled: expected utility of the list that ends at this candidate
    lengths: Ints,  # (n_lists,) filled: where it is largest
) -> None:
    """Compute the expected utilities if n = relevant candidates + missed items."""
    width = ideal.size - 1
    pmf, rest, joint = np.empty(width + 2), np.empty(width + 2), np.empty(width + 2)
    factor, others, over = np.zeros((width + 1) * (width + 2)), np.empty(LONGEST_TAIL), _reciprocals(width)
    for u in range(indptr.size - 1):
        own = p[indptr[u] : indptr[u + 1]]
        support, mean, variance, third = 1, 0.0, 0.0, 0.0
        pmf[0] = 1.0
        for i in range(own.size):
            support = _convolve(pmf, support, own[i])
            q = own[i] * (1.0 - own[i])
            mean, variance, third = mean + own[i], variance + q, third + q * (1.0 - 2.0 * own[i])
        n_missed = fill_count_pmf(others, missed[u], dispersion)
        if ndcg:
            _fill_ndcg_factor(factor, own.size, support, others, n_missed, ideal)
        else:
            _fill_f1_factor(factor, own.size + support, others, n_missed, over)
        joint[:support] = 0.0
        for i in range(own.size):
            if refined:
                q = own[i] * (1.0 - own[i])
                _fill_refined_pmf(
                    rest, support, mean - own[i], variance - q, third - q * (1.0 - 2.0 * own[i])
                )
            else:
                _deconvolve(pmf, support, own[i], rest)
            gain, total = own[i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0), 0.0
            row = factor[(i + 1) * (support if ndcg else 1) :]
            for m in range(1, support):
                joint[m] += gain * rest[m - 1]
                total += joint[m] * row[m]
            curve[indptr[u] + i] = total
        lengths[u] = _argmax(curve[indptr[u] : indptr[u + 1]])


@kernel
def compute_independent_utilities(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    mean_minus_one: Doubles,  # (n_lists,) mean of n − 1
    dispersion: float,
    ndcg: bool,
    ideal: Doubles,  # (n_candidates + 1,)
    curve: Doubles,  # (n_candidates,) filled
    lengths: Ints,  # (n_lists,) filled
) -> None:
    """The same if n = 1 + a negative binomial variable that is independent of the candidates."""
    width = ideal.size - 1
    factor, others, over = np.zeros(2 * width + 2), np.empty(LONGEST_TAIL), _reciprocals(width)
    for u in range(indptr.size - 1):
        size = indptr[u + 1] - indptr[u]
        n_others = fill_count_pmf(others, mean_minus_one[u], dispersion)
        if ndcg:
            _fill_ndcg_factor(factor, size, 2, others, n_others, ideal)
        else:
            _fill_f1_factor(factor, size + 2, others, n_others, over)
        gain = 0.0
        for i in range(size):
            gain += p[indptr[u] + i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0)
            curve[indptr[u] + i] = gain * factor[2 * i + 3 if ndcg else i + 2]
        lengths[u] = _argmax(curve[indptr[u] : indptr[u + 1]])
