"""Guarantee: it holds as often as stated, and infeasible levels are refused."""

import numpy as np
import pytest
from scipy.stats import binom

from shortlist.cutoff import Guarantee, top_candidates
from shortlist.cutoff.base import label_lists
from shortlist.cutoff.guarantee import hoeffding_bentkus
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, InfeasibleError

N_ITEMS = 8


def world(rng, n_users):
    """(candidates, truth): relevance grows with the score; an item without a score labels all users."""
    scores = rng.normal(size=(n_users, N_ITEMS)).astype(np.float32)
    bought = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 1.5 * scores))
    table = np.column_stack([bought, np.ones(n_users, bool)])
    padded = np.column_stack([scores, np.full(n_users, -np.inf, np.float32)])
    truth = Interactions.from_csr(table)
    return top_candidates(padded, ids=truth), truth


def risks(threshold, lists, known):
    """(precision of covered users, precision with 1 for empty lists, share of empty lists)."""
    above = lists.scores > threshold
    lengths = np.bincount(known.list_number[above], minlength=len(lists))
    hits = np.bincount(known.list_number[above & known.relevant], minlength=len(lists))
    covered = lengths > 0
    precision = np.where(covered, hits / np.maximum(lengths, 1), 1.0)
    mean = precision[covered].mean() if covered.any() else 1.0
    return mean, precision.mean(), 1 - covered.mean()


BIG = world(np.random.default_rng(123), 20_000)
TRUE = label_lists(*BIG)


@pytest.mark.parametrize(
    ("params", "which", "n_users", "trials"),
    [
        ({"min_precision": 0.5}, 0, 120, 1000),
        ({"min_precision": 0.7, "over": "users"}, 1, 120, 150),
        ({"max_empty": 0.2}, 2, 120, 150),
    ],
)
def test_guarantee_holds_with_the_stated_confidence(params, which, n_users, trials):
    fallback = None if "max_empty" in params else "empty"
    cut = Guarantee(confidence=0.8, n_thresholds=12, fallback=fallback, **params)
    broken = useful = 0
    for seed in range(trials):
        threshold = cut.fit(*world(np.random.default_rng(seed), n_users)).threshold_
        useful += np.isfinite(threshold)
        risk = risks(threshold, BIG[0], TRUE)[which]
        broken += risk > cut.max_empty if which == 2 else np.isfinite(threshold) and risk < cut.min_precision
    assert broken <= 0.2 * trials
    assert useful > 0.1 * trials


@pytest.mark.parametrize("over", ["covered", "users"])
def test_infeasible_precision_is_refused(over):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, N_ITEMS)).astype(np.float32)
    truth = Interactions.from_tuples([(u, 0 if rng.random() < 0.01 else 99) for u in range(200)])
    cut = Guarantee(min_precision=0.9, over=over)
    if over == "users":  # empty lists have precision 1, so a few wrong items are allowed
        assert cut.fit(top_candidates(scores), truth).lengths(top_candidates(scores)).sum() < 200
        return
    with pytest.raises(InfeasibleError, match=r"no threshold guarantees .* 90\.0% with confidence 95\.0%"):
        cut.fit(top_candidates(scores), truth)
    cut.set_params(fallback="empty").fit(top_candidates(scores), truth)
    assert cut.apply(top_candidates(scores)).cover_ratio == 0
    assert cut.guarantee_.startswith("nothing is shown")


def test_users_without_candidates_make_max_empty_infeasible():
    lists, truth = world(np.random.default_rng(1), 100)
    with pytest.raises(InfeasibleError, match=r"at most 5\.0% of lists are empty"):
        Guarantee(max_empty=0.05).fit(lists.head(np.where(np.arange(100) < 50, 0, N_ITEMS)), truth)


def test_guarantee_states_level_and_assumption():
    lists, truth = world(np.random.default_rng(2), 400)
    cut = Guarantee(min_precision=0.4).fit(lists, truth)
    assert "precision over covered users is at least 40.0%" in cut.guarantee_
    assert "tested on 200 users" in cut.guarantee_
    assert "as long as users stay exchangeable" in cut.guarantee_
    assert "exchangeable" in Guarantee.__doc__
    assert cut.apply(lists).at(0).reason == "guarantee"


def test_more_users_allow_longer_lists():
    shown = []
    for n_users in (100, 3000):
        cut = (
            Guarantee(min_precision=0.45)
            .set_params(fallback="empty")
            .fit(*world(np.random.default_rng(3), n_users))
        )
        shown.append(cut.lengths(BIG[0]).mean())
    assert shown[0] < shown[1]


def test_thresholds_are_tested_on_users_who_did_not_define_them():
    """Users who shape the calibration and the grid, and users who test it, are disjoint halves."""
    lists, truth = world(np.random.default_rng(4), 400)
    users = {"grid": set(), "test": set()}

    class Recorded(Guarantee):
        def _calibrate(self, labels, history):
            users["grid"].update(labels.lists.users.values.to_list())
            super()._calibrate(labels, history)

        def _p_value(self, test, lengths):
            users["test"].update(test.lists.users.values.to_list())
            return super()._p_value(test, lengths)

    Recorded(min_precision=0.3, on="probability", calibration="platt").fit(lists, truth)
    assert not users["grid"] & users["test"]
    assert users["grid"] | users["test"] == set(lists.users.values.to_list())


@pytest.mark.parametrize("risk", [0.0, 0.1, 0.29])
def test_p_values_are_valid(risk):
    """For binary losses with mean equal to the limit, P(p-value ≤ level) ≤ level."""
    n, limit = 60, 0.3
    p = [hoeffding_bentkus(k / n, n, limit) for k in range(n + 1)]
    chance = binom.pmf(np.arange(n + 1), n, limit)
    for level in (0.01, 0.05, 0.2, 0.5):
        assert chance[np.array(p) <= level].sum() <= level
    assert hoeffding_bentkus(risk, n, limit) <= hoeffding_bentkus(risk + 0.05, n, limit)
    assert hoeffding_bentkus(risk, 10 * n, limit) <= hoeffding_bentkus(risk, n, limit)
    assert hoeffding_bentkus(risk, 0, limit) == 1.0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "exactly one of min_precision and max_empty"),
        ({"min_precision": 0.5, "max_empty": 0.5}, "exactly one"),
        ({"min_precision": 1.5}, r"min_precision must be a number in \(0, 1\)"),
        ({"min_precision": 0.5, "confidence": 1.0}, r"confidence must be a number in \(0, 1\)"),
        ({"min_precision": 0.5, "over": "days"}, "over must be one of"),
        ({"min_precision": 0.5, "on": "rank"}, "on must be one of score, probability"),
        ({"min_precision": 0.5, "n_thresholds": 0}, "n_thresholds must be a whole number of at least 1"),
        ({"max_empty": 0.5, "fallback": "empty"}, "fallback must be None"),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        Guarantee(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))


@pytest.mark.parametrize(
    "params", [{"min_precision": 0.36}, {"min_precision": 0.6, "over": "users"}, {"max_empty": 0.3}]
)
def test_threshold_follows_from_the_p_values(params):
    """The loosest threshold that passes with a Bonferroni correction, or the last of a fixed sequence."""
    lists, truth = world(np.random.default_rng(0), 200)
    cut = Guarantee(n_thresholds=12, confidence=0.8, **params).fit(lists, truth)
    p = cut.p_values_.tolist()
    if "max_empty" in params:  # from the loosest threshold, the last one
        passed = [at for at in range(len(p)) if max(p[at:]) <= 0.2 + 1e-12]
        at = passed[0]
    elif "over" in params:  # from the strictest threshold, the first one
        at = [at for at in range(len(p)) if max(p[: at + 1]) <= 0.2 + 1e-12][-1]
    else:
        at = [at for at in range(len(p)) if p[at] <= (0.2 + 1e-12) / len(p)][-1]
        assert any(one <= 0.2 for one in p[at + 1 :])  # without the correction, the list would be longer
    assert cut.threshold_ == cut.grid_[at]
    assert (np.diff(cut.grid_) < 0).all()
