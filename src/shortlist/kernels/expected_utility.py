"""Expected F1 and NDCG of every prefix, from the distribution of the number of relevant items."""

import math

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Ints, Longs

NEGLIGIBLE = 1e-16  # smaller probabilities are dropped from the upper tail of relevant candidates
TAIL_MASS = 1e-12  # the tail of missed items from here on is assigned to one value
LONGEST_TAIL = 1024  # largest support of the missed items


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
def convolve(pmf: Doubles, support: int, p: float) -> int:
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
        for m in range(support - 1, 0, -1):
            after = pmf[m] * scale - ratio * after
            rest[m - 1] = after


@inlined
def argmax(curve: Doubles) -> int:
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
        chances = p[indptr[u] : indptr[u + 1]]
        support = 1
        pmf[0] = 1.0
        for i in range(chances.size):
            support = convolve(pmf, support, chances[i])
        n_missed = fill_count_pmf(others, missed[u], dispersion)
        if ndcg:
            _fill_ndcg_factor(factor, chances.size, support, others, n_missed, ideal)
        else:
            _fill_f1_factor(factor, chances.size + support, others, n_missed, over)
        joint[:support] = 0.0
        for i in range(chances.size):
            _deconvolve(pmf, support, chances[i], rest)
            gain, total = chances[i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0), 0.0
            row = factor[(i + 1) * (support if ndcg else 1) :]
            for m in range(1, support):
                joint[m] += gain * rest[m - 1]
                total += joint[m] * row[m]
            curve[indptr[u] + i] = total
        lengths[u] = argmax(curve[indptr[u] : indptr[u + 1]])


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
        lengths[u] = argmax(curve[indptr[u] : indptr[u + 1]])
