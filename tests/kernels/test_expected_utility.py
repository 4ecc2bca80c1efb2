"""Expected utilities against sums over all outcomes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nbinom, poisson

from shortlist.core.metrics import ideal_dcg
from shortlist.kernels.expected_utility import (
    compute_independent_utilities,
    compute_joint_utilities,
)
from shortlist.kernels.significance import bet_on_losses


def f1(hits, length, n):
    """F1 of a list with this many hits."""
    return 2 * sum(hits) / (length + n)


def ndcg(hits, length, n):
    """DCG over the ideal DCG of a list of this length."""
    discount = 1 / np.log2(np.arange(length) + 2)
    return hits @ discount / discount[: min(length, n)].sum()


def brute(p, utility):
    """Expected utility of every prefix, over all 2^n outcomes."""
    curve = np.zeros(len(p))
    for outcome in product([0, 1], repeat=len(p)):
        y = np.array(outcome)
        chance = np.prod(np.where(y, p, 1 - p))
        for k in range(1, len(p) + 1):
            if y[:k].any():
                curve[k - 1] += chance * utility(y[:k], k, y.sum())
    return curve


def joint(p, target, missed=0.0, dispersion=0.0):
    """The kernel on one list."""
    p = np.array(p, np.float64)
    curve, lengths = np.empty(p.size), np.empty(1, np.int32)
    indptr, means = np.array([0, p.size]), np.array([missed])
    compute_joint_utilities(indptr, p, means, dispersion, target == "ndcg", ideal_dcg(p.size), curve, lengths)
    return curve, int(lengths[0])


probabilities = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=7)


@pytest.mark.parametrize(("target", "utility"), [("f1", f1), ("ndcg", ndcg)])
@given(p=probabilities)
def test_equals_brute_force(target, utility, p):
    curve, length = joint(p, target)
    expected = brute(np.array(p), utility)
    np.testing.assert_allclose(curve, expected, atol=1e-12)
    assert (expected[length - 1] if length else 0) >= expected.max() - 1e-11


@pytest.mark.parametrize(("target", "utility"), [("f1", f1), ("ndcg", ndcg)])
def test_equals_brute_force_with_twelve_items(target, utility):
    p = np.random.default_rng(3).random(12)
    np.testing.assert_allclose(joint(p, target)[0], brute(p, utility), atol=1e-13)


@pytest.mark.parametrize(("target", "utility"), [("f1", f1), ("ndcg", ndcg)])
@pytest.mark.parametrize("dispersion", [0.0, 0.7])
def test_missed_items_are_added_to_n(target, utility, dispersion):
    p, mean = np.array([0.7, 0.4, 0.9, 0.1]), 2.5
    missed = poisson(mean) if dispersion == 0 else nbinom(1 / dispersion, 1 / (1 + dispersion * mean))
    expected = np.zeros(4)
    for z in range(100):
        expected += missed.pmf(z) * brute(p, lambda y, k, n, z=z: utility(y, k, n + z))
    np.testing.assert_allclose(joint(p, target, mean, dispersion)[0], expected, atol=1e-10)


@pytest.mark.parametrize(("target", "utility"), [("f1", f1), ("ndcg", ndcg)])
@pytest.mark.parametrize("dispersion", [0.0, 0.5])
def test_size_from_history_ignores_which_items_are_relevant(target, utility, dispersion):
    p, mean = np.array([0.6, 0.3, 0.2]), 3.0
    more = poisson(mean) if dispersion == 0 else nbinom(1 / dispersion, 1 / (1 + dispersion * mean))
    expected = np.zeros(3)
    for n in range(1, 300):
        for k in (1, 2, 3):
            expected[k - 1] += more.pmf(n - 1) * sum(p[i] * utility(np.eye(k)[i], k, n) for i in range(k))
    curve, lengths = np.empty(3), np.empty(1, np.int32)
    indptr, means = np.array([0, 3]), np.array([mean])
    compute_independent_utilities(
        indptr, p, means, dispersion, target == "ndcg", ideal_dcg(3), curve, lengths
    )
    np.testing.assert_allclose(curve, expected, rtol=1e-9)
    assert lengths[0] == np.argmax(expected) + 1


def test_long_lists_keep_their_precision():
    p = np.concatenate([np.full(50, 0.999), np.full(50, 0.5), np.full(100, 0.001)])
    curve, length = joint(p, "f1")
    draws = np.random.default_rng(0).random((20_000, 200)) < p
    hits = draws.cumsum(axis=1)
    simulated = (2 * hits / (np.arange(1, 201) + hits[:, -1:])).mean(axis=0)
    np.testing.assert_allclose(curve, simulated, atol=2e-3)
    assert length == 100


def test_list_without_possible_hits_is_empty():
    assert joint([0.0, 0.0, 0.0], "f1")[1] == 0


@pytest.mark.parametrize("target", ["f1", "ndcg"])
@pytest.mark.parametrize("dispersion", [0.0, 0.5])
def test_lists_do_not_influence_each_other(target, dispersion):
    """Lists of different lengths, one of them empty, against one call per list."""
    rng = np.random.default_rng(4)
    sizes, missed = np.array([3, 0, 6, 1, 4]), rng.random(5) * 2
    indptr, p = np.concatenate([[0], np.cumsum(sizes)]), -np.sort(-rng.random(sizes.sum()))
    for kernel in (compute_joint_utilities, compute_independent_utilities):
        curve, lengths = np.empty(p.size), np.empty(5, np.int32)
        ideal = ideal_dcg(6)
        kernel(indptr, p, missed, dispersion, target == "ndcg", ideal, curve, lengths)
        for u in range(5):
            own = p[indptr[u] : indptr[u + 1]]
            alone, length = np.empty(own.size), np.empty(1, np.int32)
            start = np.array([0, own.size])
            kernel(start, own, missed[u : u + 1], dispersion, target == "ndcg", ideal, alone, length)
            np.testing.assert_allclose(curve[indptr[u] : indptr[u + 1]], alone, rtol=1e-12)
            assert lengths[u] == length[0]
            assert length[0] == (0 if not own.size else np.argmax(alone) + 1)


def test_the_first_bet_is_made_with_the_largest_variance():
    losses = np.array([0.0] + [1.0] * 99)  # the capital is largest after the first list
    bet = np.sqrt(2 * np.log(10) / 100 / (0.5 * 0.5))
    assert bet_on_losses(losses, 0.5, 0.1) == pytest.approx(np.log(1 + bet * 0.5))
