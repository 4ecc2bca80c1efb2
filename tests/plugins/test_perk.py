"""PerK: calibrations against a general optimizer, lengths against sums over all outcomes."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from shortlist_extras.perk import PerK, fit_user_wise

from shortlist.core.glm import log_loss
from shortlist.cutoff import ExpectedF1, top_candidates
from shortlist.data.interactions import Interactions


def test_user_wise_calibration_is_the_minimum_of_the_penalized_loss():
    rng = np.random.default_rng(0)
    indptr = np.array([0, 12, 12, 30, 33])
    z, y = rng.normal(size=33), (rng.random(33) < 0.4).astype(float)
    y[30:] = 1  # separable
    common = np.array([-0.5, 1.2])
    own = fit_user_wise(indptr, z, y, common, 0.7)
    for u in range(4):
        part = slice(indptr[u], indptr[u + 1])

        def loss(b, part=part):
            return log_loss(b[0] + b[1] * z[part], y[part]).sum() + 0.35 * ((b - common) ** 2).sum()

        np.testing.assert_allclose(own[u], minimize(loss, common, tol=1e-12).x, atol=1e-5)
    assert own[1].tolist() == common.tolist()


def test_lists_are_never_empty_and_close_to_the_exact_optimum():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(60, 8))
    truth = rng.random((60, 8)) < 1 / (1 + np.exp(3 - 1.5 * scores))
    candidates = top_candidates(scores, n_candidates=8)
    cut = PerK(n_candidates=8, prior=1e6).fit(candidates, Interactions.from_tuples(pairs(truth)))
    lists = cut.apply(candidates)
    assert lists.lengths.min() == 1
    p = cut.with_probabilities(candidates).probabilities.reshape(60, 8)
    for u in range(0, 60, 10):
        curve = expected_f1(p[u])
        assert curve[lists.lengths[u] - 1] > 0.97 * curve.max()


def pairs(truth):
    """(user, item) of every entry that is true."""
    return [(int(u), int(i)) for u, i in zip(*np.nonzero(truth), strict=True)]


def expected_f1(p):
    """Expected F1 of every prefix, by summing over all outcomes; 0 if nothing is relevant."""
    curve = np.zeros(p.size)
    for outcome in product((0, 1), repeat=p.size):
        y = np.array(outcome)
        chance = np.prod(np.where(y == 1, p, 1 - p))
        curve += chance * 2 * np.cumsum(y) / (np.arange(1, p.size + 1) + y.sum())
    return curve


def test_users_differ_and_unknown_users_get_the_common_calibration(tmp_path):
    scores = top_candidates(np.tile(np.linspace(2, 0, 6), (2, 1)))
    truth = Interactions.from_tuples([(0, i) for i in range(5)] + [(1, 0)])
    cut = PerK(n_candidates=6, prior=0.01).fit(scores, truth)
    lengths = cut.lengths(scores)
    assert lengths[0] > lengths[1]
    assert cut.calibrations_.shape == (3, 2)
    assert PerK.load(cut.save(tmp_path / "cutoff")).lengths(scores).tolist() == lengths.tolist()


@pytest.mark.parametrize("target", ["f1", "ndcg"])
def test_target_changes_the_lists(target):
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(50, 20))
    truth = Interactions.from_tuples(pairs(scores + rng.normal(size=(50, 20)) > 1.5))
    scores = top_candidates(scores)
    cut, exact = PerK(target=target).fit(scores, truth), ExpectedF1(calibration="platt").fit(scores, truth)
    assert not np.array_equal(cut.lengths(scores), exact.lengths(scores))
    assert np.array_equal(cut.lengths(scores), PerK(target=target).fit(scores, truth).lengths(scores))
