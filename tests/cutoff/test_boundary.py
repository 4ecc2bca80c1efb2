"""Boundary: learned ones are read, frozen scores get their own, strangers get the prior."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from shortlist.cutoff import Boundary, heads
from shortlist.cutoff.labels import label
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, NotFittedError

RNG = np.random.default_rng(2)
SCORES = RNG.normal(size=(12, 15)).astype(np.float32)
TRUTH = Interactions.from_csr(RNG.random(SCORES.shape) < 1 / (1 + np.exp(1 - 2 * SCORES)))


def loss(vector, lists, known, negative, lambda_t, scale):
    """The whole objective, t last; logistic with squares."""
    t_u, t = vector[:-1], vector[-1]
    margin = scale * (lists.scores.astype(float) - t_u[known.number])
    margin = np.where(known.relevant, margin, -margin)
    weight = np.where(known.relevant, 1.0, negative)
    return (weight * np.logaddexp(0, -margin)).sum() + lambda_t * ((scale * (t_u - t)) ** 2).sum()


@pytest.mark.parametrize("negatives", ["uniform", 2.0, None])
def test_all_boundaries_and_t_reach_the_joint_optimum(negatives):
    cut = Boundary(negatives=negatives, lambda_t=0.7, scale=1.3).fit(SCORES, TRUTH)
    lists = heads(SCORES)
    setting = (lists, label(lists, TRUTH), cut.negative_, 0.7, 1.3)
    found = np.append(cut.boundaries_, cut.t_)
    best = minimize(loss, np.zeros(13), setting, method="BFGS", options={"gtol": 1e-9})
    assert loss(found, *setting) <= best.fun + 1e-6
    np.testing.assert_allclose(found, best.x, atol=1e-4)


@pytest.mark.parametrize(("kind", "penalty"), [("logistic", "l1"), ("hinge", "l2"), ("hinge", "l1")])
def test_t_is_where_moving_it_stops_helping(kind, penalty):
    def value(t):
        cut = Boundary(t=t, loss=kind, penalty=penalty, lambda_t=0.5, negatives=2, scale=1).fit(SCORES, TRUTH)
        lists = heads(SCORES)
        known = label(lists, TRUTH)
        margin = np.where(known.relevant, 1, -1) * (lists.scores - cut.boundaries_[known.number])
        each = np.maximum(0, 1 - margin) if kind == "hinge" else np.logaddexp(0, -margin)
        apart = np.abs(cut.boundaries_ - t) if penalty == "l1" else (cut.boundaries_ - t) ** 2
        return (np.where(known.relevant, 1, cut.negative_) * each).sum() + 0.5 * apart.sum()

    free = Boundary(loss=kind, penalty=penalty, lambda_t=0.5, negatives=2, scale=1).fit(SCORES, TRUTH)
    assert value(free.t_) <= min(value(free.t_ + step) for step in (-0.1, -0.01, 0.01, 0.1)) + 1e-7


def test_lists_that_carry_boundaries_need_no_fit():
    lists = replace(heads(np.array([[3.0, 2.0, 1.0]] * 3)), boundary=np.array([2.0, 0.0, np.nan], np.float32))
    shown = Boundary().apply(lists)
    assert shown.lengths.tolist() == [1, 3, 0]
    assert [shown.at(n).reason for n in range(3)] == ["boundary", "boundary", "unknown_user"]
    assert Boundary(t=2.5).lengths(lists).tolist() == [1, 3, 1]


def test_nothing_above_the_boundary_is_said_so():
    lists = replace(heads(np.ones((1, 2))), boundary=np.array([1.0], np.float32))
    assert Boundary().apply(lists).at(0).reason == "no_candidate_above_boundary"


def test_without_any_boundary_it_is_not_fitted():
    with pytest.raises(NotFittedError, match="on lists without boundaries"):
        Boundary().lengths(SCORES)


def test_new_users_get_the_prior():
    cut = Boundary(lambda_t=0.1).fit(SCORES, TRUTH)
    strangers = replace(heads(SCORES[:2]), users=type(TRUTH.users).of([500, 3]))
    shown = cut.apply(strangers)
    assert shown.boundary == pytest.approx([cut.t_, cut.boundaries_[3]], rel=1e-6)
    assert cut.boundaries_[3] != pytest.approx(cut.t_, abs=1e-3)


def test_by_default_the_pooled_loss_is_smallest_at_the_best_threshold():
    from shortlist.cutoff import Threshold

    best = Threshold().fit(SCORES, TRUTH).threshold_
    cut = Boundary(lambda_t=1e7).fit(SCORES, TRUTH)
    assert cut.t_ == pytest.approx(best, abs=1e-3)


def test_more_negatives_are_stricter():
    lengths = [Boundary(negatives=r).fit(SCORES, TRUTH).lengths(SCORES).sum() for r in (0.3, 1, 3)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


def test_nothing_relevant_shows_nothing():
    elsewhere = Interactions.from_tuples([(u, 99) for u in range(12)])
    assert Boundary().fit(heads(SCORES), elsewhere).lengths(heads(SCORES)).sum() == 0


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"lambda_t": 0}, "lambda_t must be positive"),
        ({"loss": "square"}, "loss is logistic or hinge"),
        ({"penalty": "l3"}, "penalty l2 or l1"),
        ({"scale": -1}, "scale must be positive"),
        ({"negatives": "many"}, "negatives must be positive, 'uniform' or None"),
        ({"negatives": 0}, "negatives must be positive"),
        ({"n_candidates": 0}, "n_candidates must be at least 1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        Boundary(**params).fit(SCORES, TRUTH)
