"""Choices on validation data, compared with exhaustive search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.core.metrics import Money, metrics_of_length
from shortlist.cutoff import FixedN, Threshold, top_candidates
from shortlist.cutoff.threshold import (
    choose_by_standard_error,
    count_above,
    coverage_threshold,
    midpoint,
    user_utilities,
)
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.errors import ConfigError
from shortlist.evaluation import best_fixed_n, fixed_n_curve

tables = arrays(
    np.float32, (5, 6), elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5, 0.75, 2.0, np.inf])
)
outcomes = arrays(np.bool_, (5, 6)).filter(lambda y: y.any())
AMOUNTS = {"value": {"gain": 1.0, "cost": 0.25}}  # what a target needs; sums of quarters are exact


def utility_of(known, lengths, target):
    """The mean utility of lists of these lengths."""
    money = Money(**AMOUNTS[target]) if target in AMOUNTS else None
    return user_utilities(known, lengths, target, money).mean()


def all_thresholds(lists, known, target):
    """The best mean utility over all thresholds."""
    limits = [np.inf, -np.inf, *np.unique(lists.scores)]
    lengths = [count_above(lists.scores.astype(float), lists, limit) for limit in limits]
    return max(utility_of(known, one, target) for one in lengths)


@pytest.mark.parametrize("target", metrics_of_length())
@given(scores=tables, y=outcomes)
def test_threshold_is_optimal(target, scores, y):
    lists, truth = top_candidates(scores), Interactions.from_csr(y)
    known = label_lists(lists, truth)
    cut = Threshold(target=target, **AMOUNTS.get(target, {})).fit(scores, truth)
    utility = utility_of(known, cut.lengths(scores), target)
    assert utility == pytest.approx(all_thresholds(lists, known, target), abs=1e-12)


@pytest.mark.parametrize("target", metrics_of_length())
@given(scores=tables, y=outcomes)
def test_length_is_optimal(target, scores, y):
    truth = Interactions.from_csr(y)
    known = label_lists(top_candidates(scores), truth)
    cut = FixedN(target=target, **AMOUNTS.get(target, {})).fit(scores, truth)
    utilities = [utility_of(known, FixedN(N=n).lengths(scores), target) for n in range(1, 7)]
    best = max(utilities)
    assert utility_of(known, cut.lengths(scores), target) == pytest.approx(max(best, 0.0), abs=1e-12)
    shortest = 1 + int(np.argmax(np.array(utilities) >= best - 1e-12))
    assert (shortest if best >= 0 else 0) == cut.N_  # nothing is shown if every length loses money


@pytest.mark.parametrize("target", metrics_of_length())
@pytest.mark.parametrize("seed", range(5))
def test_served_length_is_the_one_that_evaluation_reports(target, seed):
    rng = np.random.default_rng(seed)
    lists = top_candidates(rng.random((60, 40)))
    truth = Interactions.from_csr(rng.random((60, 40)) < 0.1)
    amounts = AMOUNTS.get(target, {})
    reported = best_fixed_n(fixed_n_curve(lists, truth, range(1, 41), **amounts), target)
    assert reported == FixedN(target=target, **amounts).fit(lists, truth).N_


@given(scores=tables, coverage=st.floats(0, 1))
def test_coverage_is_met_and_not_exceeded(scores, coverage):
    lists = top_candidates(scores)
    cut = Threshold(coverage=coverage).fit(scores, Interactions.from_csr(np.ones((5, 6))))
    covered = int((cut.lengths(scores) > 0).sum())
    possible = int((lists.lengths > 0).sum())
    wanted = min(int(np.ceil(coverage * 5 - 1e-9)), possible)
    tops = np.sort(lists.scores[lists.indptr[:-1][lists.lengths > 0]])[::-1]
    ties = int((tops == tops[wanted - 1]).sum()) if wanted else 0
    assert wanted <= covered <= max(wanted + ties - 1, 0) or covered == possible == wanted


def test_empty_lists_have_utility_zero():
    truth = Interactions.from_csr(np.eye(2))
    known = label_lists(top_candidates(np.eye(2)), truth)
    assert user_utilities(known, np.array([1, 0]), "f1").mean() == 0.5


def test_threshold_lies_between_the_two_values():
    assert midpoint(3.0, 1.0) == 2.0
    assert midpoint(np.inf, 1.0) == 1.0
    assert midpoint(3.0, -np.inf) == -np.inf
    above = np.nextafter(1.0, 2.0)
    assert midpoint(above, 1.0) == 1.0


def test_first_option_is_chosen_unless_another_is_clearly_better():
    first = np.array([0.2, 0.4, 0.6, 0.8])
    clearly_better = first + np.array([0.1, 0.2, 0.1, 0.2])
    by_chance = np.array([0.9, 0.0, 0.9, 0.3])
    assert by_chance.mean() > first.mean()
    assert choose_by_standard_error([first, by_chance]) == 0
    assert choose_by_standard_error([first, by_chance, clearly_better]) == 2
    assert choose_by_standard_error([first, first]) == 0


def test_infeasible_coverage_shows_everything():
    assert coverage_threshold(np.array([1.0, 2.0]), 4, 0.9) == -np.inf
    assert coverage_threshold(np.array([1.0, 2.0]), 4, 0.0) == np.inf


def test_given_threshold_needs_no_fit():
    assert Threshold(threshold=0.5).lengths(np.array([[0.4, 0.5, 0.6, 0.7]])).tolist() == [2]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"on": "rank"}, "on must be one of score, probability"),
        ({"coverage": 1.5}, "coverage must be a number between 0 and 1"),
        ({"threshold": np.nan}, "threshold must be a number"),
        ({"target": "recall"}, "target must be one of f1, ndcg"),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        Threshold(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))
