"""The refined normal approximation against its formula and the exact distribution."""

import numpy as np
import pytest
from scipy.stats import norm
from shortlist_extras.kernels import compute_refined_utilities

from shortlist.core.metrics import ideal_dcg
from shortlist.kernels.expected_utility import compute_joint_utilities


def utilities(p, target, refined=False):
    """One of the kernels on one list."""
    p = np.array(p, np.float64)
    curve, lengths = np.empty(p.size), np.empty(1, np.int32)
    indptr, last = np.array([0, p.size]), (target == "ndcg", ideal_dcg(p.size), curve, lengths)
    if refined:
        compute_refined_utilities(indptr, p, *last)
    else:
        compute_joint_utilities(indptr, p, np.zeros(1), 0.0, *last)
    return curve, int(lengths[0])


@pytest.mark.parametrize(("level", "error"), [(0.5, 1e-3), (0.1, 5e-3), (0.02, 4e-2)])
def test_refined_normal_is_close_to_the_exact_distribution(level, error):
    p = np.sort(np.random.default_rng(1).beta(2, 2 / level - 2, 100))[::-1]
    exact, k = utilities(p, "f1")
    close, k_close = utilities(p, "f1", refined=True)
    assert 0 < np.abs(close / exact - 1).max() < error
    assert exact[k_close - 1] > 0.995 * exact[k - 1]


def refined_f1(p):
    """Expected F1 of every prefix if the other relevant candidates follow the refined normal approximation.

    P(at most m) = Φ(x) + skewness · (1 − x²) · φ(x) / 6, where x = (m + 1/2 − mean) / standard deviation.
    """
    joint_with = np.zeros((len(p), len(p)))  # P(item i is relevant, m of the others are)
    for i in range(len(p)):
        others = np.delete(p, i)
        q = others * (1 - others)
        x = (np.arange(len(p)) + 0.5 - others.sum()) / np.sqrt(q.sum())
        skewness = (q * (1 - 2 * others)).sum() / q.sum() ** 1.5
        below = np.clip(norm.cdf(x) + skewness * (1 - x**2) * norm.pdf(x) / 6, 0, 1)
        joint_with[i] = p[i] * np.diff(below, prepend=0)
    counts = np.arange(len(p)) + 1
    return [float((joint_with[:k] * 2 / (k + counts)).sum()) for k in counts]


@pytest.mark.parametrize("seed", range(5))
def test_refined_normal_equals_its_formula(seed):
    p = np.random.default_rng(seed).random(6) ** (1 + seed / 2)
    np.testing.assert_allclose(utilities(p, "f1", refined=True)[0], refined_f1(p), atol=1e-12)


@pytest.mark.parametrize("target", ["f1", "ndcg"])
def test_certain_outcomes_need_no_approximation(target):
    p = [1.0, 0.0, 1.0, 1.0, 0.0]
    np.testing.assert_allclose(utilities(p, target, refined=True)[0], utilities(p, target)[0], atol=1e-12)
