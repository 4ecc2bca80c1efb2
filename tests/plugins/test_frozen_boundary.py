"""FrozenBoundary: boundaries learned on fixed scores, t for unknown users."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from shortlist_extras import FrozenBoundary

from shortlist.cutoff import Threshold, top_candidates
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.errors import ConfigError, NotFittedError

RNG = np.random.default_rng(2)
SCORES = RNG.normal(size=(12, 15)).astype(np.float32)
TRUTH = Interactions.from_csr(RNG.random(SCORES.shape) < 1 / (1 + np.exp(1 - 2 * SCORES)))


def loss(vector, lists, known, negative, lambda_t, scale):
    """The objective; the last element of the vector is t."""
    t_u, t = vector[:-1], vector[-1]
    margin = scale * (lists.scores.astype(float) - np.repeat(t_u, lists.lengths))
    margin = np.where(known.relevant, margin, -margin)
    weight = np.where(known.relevant, 1.0, negative)
    return (weight * np.logaddexp(0, -margin)).sum() + lambda_t * ((scale * (t_u - t)) ** 2).sum()


@pytest.mark.parametrize("negatives", ["uniform", 2.0, None])
def test_boundaries_and_t_reach_the_joint_optimum(negatives):
    cut = FrozenBoundary(negatives=negatives, lambda_t=0.7, scale=1.3).fit(SCORES, TRUTH)
    lists = top_candidates(SCORES)
    setting = (lists, label_lists(lists, TRUTH), cut.negative_weight_, 0.7, 1.3)
    found = np.append(cut.boundaries_, cut.t_)
    best = minimize(loss, np.zeros(13), setting, method="BFGS", options={"gtol": 1e-9})
    assert loss(found, *setting) <= best.fun + 1e-6
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_t_minimizes_the_loss():
    def value(t):
        cut = FrozenBoundary(t=t, lambda_t=0.5, negatives=2, scale=1).fit(SCORES, TRUTH)
        lists = top_candidates(SCORES)
        vector = np.append(cut.boundaries_, t)
        return loss(vector, lists, label_lists(lists, TRUTH), cut.negative_weight_, 0.5, 1.0)

    best = FrozenBoundary(lambda_t=0.5, negatives=2, scale=1).fit(SCORES, TRUTH).t_
    assert value(best) <= min(value(best + step) for step in (-0.1, -0.01, 0.01, 0.1)) + 1e-7


def test_lists_need_a_fit():
    with pytest.raises(NotFittedError, match="before it was fitted"):
        FrozenBoundary().lengths(SCORES)


def test_unknown_users_get_t():
    cut = FrozenBoundary(lambda_t=0.1).fit(SCORES, TRUTH)
    others = replace(top_candidates(SCORES[:2]), users=type(TRUTH.users).of([500, 3]))
    shown = cut.apply(others)
    assert shown.boundary == pytest.approx([cut.t_, cut.boundaries_[3]], rel=1e-6)
    assert cut.boundaries_[3] != pytest.approx(cut.t_, abs=1e-3)


def test_default_weight_of_negatives_agrees_with_the_best_threshold():
    best = Threshold().fit(SCORES, TRUTH).threshold_
    cut = FrozenBoundary(lambda_t=1e7).fit(SCORES, TRUTH)
    assert cut.t_ == pytest.approx(best, abs=1e-3)


def test_more_negatives_are_stricter():
    lengths = [FrozenBoundary(negatives=r).fit(SCORES, TRUTH).lengths(SCORES).sum() for r in (0.3, 1, 3)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


def test_lists_are_empty_if_no_candidate_is_relevant():
    elsewhere = Interactions.from_tuples([(u, 99) for u in range(12)])
    assert FrozenBoundary().fit(top_candidates(SCORES), elsewhere).lengths(top_candidates(SCORES)).sum() == 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lambda_t": 0}, "lambda_t must be a number above 0"),
        ({"scale": -1}, "scale must be a number above 0"),
        ({"t": "low"}, "t must be a number"),
        ({"negatives": "many"}, "negatives must be a number above 0 or 'uniform'"),
        ({"negatives": 0}, "negatives must be a number above 0"),
        ({"n_candidates": 0}, "n_candidates must be a whole number of at least 1"),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        FrozenBoundary(**params).fit(SCORES, TRUTH)


def test_t_of_two_candidates():
    """With a huge penalty t_u = t, which minimizes log(1 + e^(t - 1)) + 0.5 · log(1 + e^(-1 - t))."""
    cut = FrozenBoundary(lambda_t=1e9, negatives=0.5, scale=1).fit(
        np.array([[1.0, -1.0]]), Interactions.from_csr(np.array([[1, 0]]))
    )
    best = minimize_scalar(lambda t: np.logaddexp(0, t - 1) + 0.5 * np.logaddexp(0, -1 - t))
    assert cut.negative_weight_ == 0.5
    assert cut.t_ == pytest.approx(best.x, abs=1e-5)


def test_equal_scores_have_scale_1():
    cut = FrozenBoundary().fit(np.full((4, 3), 2.0), Interactions.from_csr(np.eye(4, 3) + np.eye(4, 3, -1)))
    assert cut.scale_ == 1.0
    assert np.isfinite(cut.boundaries_).all()
