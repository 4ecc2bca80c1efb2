"""Objective: value against plain losses, log-odds shift against Bayes' rule, arguments of the kernels."""

import numpy as np
import pytest

from shortlist.errors import ConfigError
from shortlist.kernels.parameters import HINGE, L1
from shortlist.models.factorization.objective import LOSSES, Objective, single_precision
from tests import naive

RNG = np.random.default_rng(0)
LIKED, OTHER, BOUNDARY = RNG.normal(size=(3, 50)).astype(np.float32)
DENSITY = RNG.uniform(0.01, 0.5, 50)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("negatives", [3.0, "uniform"])
def test_value(alpha, loss, penalty, negatives):
    objective = Objective(
        alpha=alpha, loss=loss, penalty=penalty, negatives=negatives, weight=1.5, t=0.5, lambda_t=0.7,
        learn_boundary=loss != "squared",
    )  # fmt: skip
    expected = []
    for liked, other, t, density in zip(LIKED, OTHER, BOUNDARY, DENSITY, strict=True):
        share = density if negatives == "uniform" else 0.25
        up, down = (naive.class_loss(LOSSES[loss], s, t, s is liked) for s in (liked, other))
        away = abs(t - 0.5) if penalty == "l1" else (t - 0.5) ** 2
        example = 1.5 * share * up + (1 - share) * down + 0.7 * away * objective.learn_boundary
        expected.append((1 - alpha) * naive.pair_loss(liked, other) + alpha * example)
    value = objective.value(LIKED, OTHER, BOUNDARY, DENSITY, np.full(50, 0.7))
    assert value == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("negatives", [1.0, 10.0, "uniform"])
@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_log_odds_shift_undoes_the_sampling(negatives, weight):
    """An item liked with probability p is sampled at known rates; the shift recovers p."""
    n_items, n_liked, p, t = 50, 20.0, 0.3, 0.8
    share = n_liked / (n_items + n_liked) if negatives == "uniform" else 1 / (1 + negatives)
    odds = weight * share * p / n_liked / ((1 - share) * (1 - p) / n_items)
    score = np.log(odds) + t  # the minimum of the logistic loss
    objective = Objective(alpha=1.0, negatives=negatives, weight=weight, t=t, learn_boundary=True)
    shift = objective.log_odds_shift(np.array([t], np.float32), np.array([n_liked]), n_items)
    assert score + shift[0] == pytest.approx(np.log(p / (1 - p)), abs=1e-5)


def test_user_without_items_has_finite_shift():
    objective = Objective(alpha=1.0)
    assert np.isfinite(objective.log_odds_shift(np.zeros(1, np.float32), np.zeros(1), 10)).all()


def test_scores_that_only_rank_have_no_shift():
    for objective in (Objective(), Objective(alpha=0.5, loss="hinge"), Objective(alpha=0.5, loss="squared")):
        assert objective.log_odds_shift(np.zeros(1, np.float32), np.ones(1), 10) is None


def test_hyperparameters_of_the_kernels():
    objective = Objective(
        alpha=0.4, negatives=3, loss="hinge", penalty="l1", t=2, lambda_t=0.1, learn_boundary=True
    )
    rates = {"lr": 0.1, "reg_user": 0.2, "reg_item": 0.3, "reg_negative": 0.4, "negative_draws": 5}
    exact = objective.hyperparameters(**rates)
    assert exact[:9] == (0.1, 0.2, 0.3, 0.4, 0.4, 0.25, 1.0, 2.0, 0.1)
    assert exact[9:] == (HINGE, L1, True, 5)
    rounded = single_precision(exact)
    assert rounded == exact._make(np.float32(v) if isinstance(v, float) else v for v in exact)
    assert all(isinstance(value, np.float32) for value in rounded[:9])
    assert rounded[9:] == exact[9:]
    assert Objective(negatives="uniform").hyperparameters(**rates).positive_rate == 0


def test_squared_loss_has_no_boundary():
    with pytest.raises(ConfigError, match="loss must be logistic or hinge"):
        Objective(alpha=0.5, loss="squared", learn_boundary=True)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_penalty_once_per_user_is_a_proximal_step_per_epoch(penalty):
    """Equation 4 has it outside of the sum: it does not grow with the examples of a user."""
    objective = Objective(
        alpha=0.5, t=1.0, lambda_t=0.3, lambda_t_per="user", penalty=penalty, learn_boundary=True
    )
    assert objective.lambda_of_examples(np.array([1.0, 20.0])).tolist() == [0.3, 0.03]
    rates = {"lr": 0.1, "reg_user": 0.0, "reg_item": 0.0, "reg_negative": 0.0, "negative_draws": 1}
    assert objective.hyperparameters(**rates).lambda_t == 0
    before = np.array([1.5, 1.01, 0.2], np.float32)
    after = before.copy()
    objective.pull_boundaries(after, 0.1)
    grid = np.linspace(0, 2, 200_001)
    distance = np.abs(grid - 1) if penalty == "l1" else (grid - 1) ** 2
    for start, end in zip(before, after, strict=True):
        best = grid[np.argmin((grid - start) ** 2 / 2 + 0.1 * 0.3 * distance)]
        assert end == pytest.approx(best, abs=1e-4)


def test_penalty_of_every_step_needs_no_step_of_its_own():
    objective = Objective(alpha=0.5, t=1.0, lambda_t=0.3, learn_boundary=True)
    boundary = np.array([1.5, 0.2], np.float32)
    objective.pull_boundaries(boundary, 0.1)
    assert boundary.tolist() == pytest.approx([1.5, 0.2])
    assert objective.lambda_of_examples(np.array([1.0, 20.0])).tolist() == [0.3, 0.3]
