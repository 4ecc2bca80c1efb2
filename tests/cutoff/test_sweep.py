"""Choices on validation, judged by trying everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.cutoff import FixedN, Threshold, heads
from shortlist.cutoff.labels import label
from shortlist.cutoff.sweep import between, coverage_threshold, mean_utility
from shortlist.cutoff.threshold import exceeding
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError

tables = arrays(
    np.float32, (5, 6), elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5, 0.75, 2.0, np.inf])
)
outcomes = arrays(np.bool_, (5, 6)).filter(lambda y: y.any())


def all_thresholds(lists, known, target):
    """The utility of every cut that can be made."""
    limits = [np.inf, -np.inf, *np.unique(lists.scores)]
    return max(
        mean_utility(known, exceeding(lists.scores.astype(float), lists, limit), target) for limit in limits
    )


@pytest.mark.parametrize("target", ["f1", "ndcg"])
@given(scores=tables, y=outcomes)
def test_no_threshold_is_better_than_the_chosen_one(target, scores, y):
    lists, truth = heads(scores), Interactions.from_csr(y)
    known = label(lists, truth)
    cut = Threshold(target=target).fit(scores, truth)
    worth = mean_utility(known, cut.lengths(scores), target)
    assert worth == pytest.approx(all_thresholds(lists, known, target), abs=1e-12)


@pytest.mark.parametrize("target", ["f1", "ndcg"])
@given(scores=tables, y=outcomes)
def test_no_length_is_better_than_the_chosen_one(target, scores, y):
    truth = Interactions.from_csr(y)
    known = label(heads(scores), truth)
    cut = FixedN(target=target).fit(scores, truth)
    worths = [mean_utility(known, FixedN(N=n).lengths(scores), target) for n in range(1, 7)]
    assert mean_utility(known, cut.lengths(scores), target) == pytest.approx(max(worths), abs=1e-12)
    assert 1 + int(np.argmax(np.array(worths) >= max(worths) - 1e-12)) == cut.N_


@given(scores=tables, coverage=st.floats(0, 1))
def test_coverage_is_reached_and_no_more_than_needed(scores, coverage):
    lists = heads(scores)
    cut = Threshold(coverage=coverage).fit(scores, Interactions.from_csr(np.ones((5, 6))))
    covered = int((cut.lengths(scores) > 0).sum())
    possible = int((lists.lengths > 0).sum())
    wanted = min(int(np.ceil(coverage * 5 - 1e-9)), possible)
    tops = np.sort(lists.scores[lists.indptr[:-1][lists.lengths > 0]])[::-1]
    ties = int((tops == tops[wanted - 1]).sum()) if wanted else 0
    assert wanted <= covered <= max(wanted + ties - 1, 0) or covered == possible == wanted


def test_mean_utility_counts_empty_lists_as_zero():
    truth = Interactions.from_csr(np.eye(2))
    known = label(heads(np.eye(2)), truth)
    assert mean_utility(known, np.array([1, 0]), "f1") == 0.5


def test_a_threshold_lies_between_what_passes_and_what_does_not():
    assert between(3.0, 1.0) == 2.0
    assert between(np.inf, 1.0) == 1.0
    assert between(3.0, -np.inf) == -np.inf
    above = np.nextafter(1.0, 2.0)
    assert between(above, 1.0) == 1.0


def test_coverage_beyond_the_possible_shows_everything():
    assert coverage_threshold(np.array([1.0, 2.0]), 4, 0.9) == -np.inf
    assert coverage_threshold(np.array([1.0, 2.0]), 4, 0.0) == np.inf


def test_a_given_threshold_needs_no_fit():
    assert Threshold(threshold=0.5).lengths(np.array([[0.4, 0.5, 0.6, 0.7]])).tolist() == [2]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"on": "rank"}, "on must be score or probability"),
        ({"coverage": 1.5}, r"coverage must lie in \[0, 1\]"),
        ({"threshold": np.nan}, "threshold must be a number"),
        ({"calibration": "magic"}, "calibration must be one of"),
        ({"target": "recall"}, "target must be one of f1, ndcg"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        Threshold(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))
