"""Objective: its value against the plain losses, its shift against Bayes, its forms for kernels."""

import numpy as np
import pytest

from shortlist.errors import ConfigError
from shortlist.kernels.losses import HINGE, L1
from shortlist.models.factorization.objective import LOSSES, Objective
from tests import naive

RNG = np.random.default_rng(0)
LIKED, OTHER, BOUNDARY = RNG.normal(size=(3, 50)).astype(np.float32)
DENSITY = RNG.uniform(0.01, 0.5, 50)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("negatives", [3.0, "uniform"])
def test_value(alpha, loss, penalty, negatives):
    aim = Objective(
        alpha=alpha, loss=loss, penalty=penalty, negatives=negatives, weight=1.5, t=0.5, lambda_t=0.7,
        learn_boundary=loss != "squared",
    )  # fmt: skip
    wanted = []
    for liked, other, t, density in zip(LIKED, OTHER, BOUNDARY, DENSITY, strict=True):
        share = density if negatives == "uniform" else 0.25
        up, down = (naive.class_loss(LOSSES[loss], s, t, s is liked) for s in (liked, other))
        away = abs(t - 0.5) if penalty == "l1" else (t - 0.5) ** 2
        example = 1.5 * share * up + (1 - share) * down + 0.7 * away * aim.learn_boundary
        wanted.append((1 - alpha) * naive.pair_loss(liked, other) + alpha * example)
    assert aim.value(LIKED, OTHER, BOUNDARY, DENSITY) == pytest.approx(np.mean(wanted), rel=1e-5)


@pytest.mark.parametrize("negatives", [1.0, 10.0, "uniform"])
@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_the_shift_undoes_the_sampling(negatives, weight):
    """An item liked with probability p is drawn as positive and as negative at known rates: back to p."""
    n_items, n_liked, p, t = 50, 20.0, 0.3, 0.8
    share = n_liked / (n_items + n_liked) if negatives == "uniform" else 1 / (1 + negatives)
    odds = weight * share * p / n_liked / ((1 - share) * (1 - p) / n_items)
    score = np.log(odds) + t  # what the logistic loss makes of it
    aim = Objective(alpha=1.0, negatives=negatives, weight=weight, t=t, learn_boundary=True)
    shift = aim.log_odds_shift(np.array([t], np.float32), np.array([n_liked]), n_items)
    assert score + shift[0] == pytest.approx(np.log(p / (1 - p)), abs=1e-5)


def test_users_without_items_have_a_finite_shift():
    aim = Objective(alpha=1.0)
    assert np.isfinite(aim.log_odds_shift(np.zeros(1, np.float32), np.zeros(1), 10)).all()


def test_scores_that_only_rank_have_no_shift():
    for aim in (Objective(), Objective(alpha=0.5, loss="hinge"), Objective(alpha=0.5, loss="squared")):
        assert aim.log_odds_shift(np.zeros(1, np.float32), np.ones(1), 10) is None


def test_kernels_get_what_was_asked():
    aim = Objective(
        alpha=0.4, negatives=3, loss="hinge", penalty="l1", t=2, lambda_t=0.1, learn_boundary=True
    )
    rates, goal = aim.rates(0.1, 0.2, 0.3, 0.4, 5), aim.goal(0.2, 1)
    assert rates[:4] == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert (rates.share, goal.share) == (0.25, 0.25)
    assert (rates.loss, rates.penalty, rates.learn_boundary, rates.negative_draws) == (HINGE, L1, True, 5)
    assert (goal.reg_user, goal.alpha, goal.loss, goal.penalty, goal.pool) == (0.2, 0.4, HINGE, L1, 1)
    assert Objective(negatives="uniform").rates(0.1, 0, 0, 0, 1).share == 0


def test_squares_have_no_boundary():
    with pytest.raises(ConfigError, match="loss must be logistic or hinge"):
        Objective(alpha=0.5, loss="squared", learn_boundary=True)
