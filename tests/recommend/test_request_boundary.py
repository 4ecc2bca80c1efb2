"""The boundary with the highest expected F1, against the best prefix found by trying all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import nbinom

from shortlist.core.ragged import ItemSets, no_sets
from shortlist.recommend.request import FIRST_CANDIDATES, Factors, Scores, f1_boundaries
from shortlist.recommend.retrieval import Retriever, ScoredCandidates


def boundaries(values, shift, sizes, dispersion, excluded=None):
    """The boundaries for dense scores, and the calls of the search."""
    n_users, n_items = values.shape
    scores = Scores(
        values=values,
        log_odds_shift=shift,
        expected_sizes=np.asarray(sizes, np.float64),
        size_dispersion=dispersion,
    )
    excluded = no_sets(n_users) if excluded is None else excluded
    retriever, calls = Retriever(n_items, None, n_users), []
    search = retriever.search

    def record(scored, limit):
        calls.append((scored.scores.values, limit))
        return search(scored, limit)

    retriever.search = record
    return f1_boundaries(ScoredCandidates(scores, None, excluded), retriever)[0], calls


def expected_f1(p, size, dispersion):
    """(n,) expected F1 of the 1, 2, … most probable items; the next list has 1 + a random number of items."""
    n = np.arange(0, 4000)
    if size <= 1:
        mass = (n == 0).astype(float)
    elif dispersion == 0:
        mass = np.exp(n * np.log(size - 1) - (size - 1) - np.cumsum(np.log(np.maximum(n, 1))))
    else:
        mass = nbinom.pmf(n, 1 / dispersion, 1 / (1 + dispersion * (size - 1)))
    k = np.arange(1, p.size + 1)
    g = np.array([(mass * 2 / (length + 1 + n)).sum() for length in k])
    return np.cumsum(p) * g


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.4, 1.5]), st.floats(1, 20), st.floats(-4, 2))
def test_list_above_the_boundary_has_the_highest_expected_f1(seed, dispersion, size, shift):
    rng = np.random.default_rng(seed)
    values = rng.normal(scale=2, size=(1, 25)).astype(np.float32)
    found, _ = boundaries(values, np.array([shift], np.float32), [size], dispersion)
    p = np.sort(expit(values[0].astype(float) + np.float32(shift)))[::-1]
    curve = expected_f1(p, size, dispersion)
    length = int((values[0] > found[0]).sum())
    assert curve[length - 1] == pytest.approx(curve.max(), rel=1e-6)


def test_boundary_is_half_the_best_f1_if_the_size_is_known():
    values = np.log(np.array([[0.9, 0.5, 0.2, 0.05]]) / (1 - np.array([[0.9, 0.5, 0.2, 0.05]])))
    found, _ = boundaries(values.astype(np.float32), np.zeros(1, np.float32), [1.0], 0.0)
    curve = 2 * np.cumsum([0.9, 0.5, 0.2, 0.05]) / (np.arange(1, 5) + 1)  # one relevant item for certain
    assert found[0] == pytest.approx(logit(curve.max() / 2), abs=1e-5)
    assert (values[0] > found[0]).tolist() == [True, True, False, False]


def test_long_lists_get_more_candidates_and_short_ones_do_not():
    rng = np.random.default_rng(0)
    likely = rng.normal(3, 0.1, (1, 700))
    rare = rng.normal(-6, 2, (1, 700))
    values = np.concatenate([likely, rare]).astype(np.float32)
    found, calls = boundaries(values, np.zeros(2, np.float32), [600.0, 2.0], 0.0)
    assert (values[0] > found[0]).sum() == 700
    assert (values[1] > found[1]).sum() < FIRST_CANDIDATES
    for (searched, _), rows in zip(calls, ([0, 1], [0], [0]), strict=True):
        np.testing.assert_array_equal(searched, values[rows])
    assert calls[-1][1] is None  # more than all items


def test_users_without_candidates_have_no_boundary():
    values = np.zeros((2, 3), np.float32)
    everything = ItemSets(np.array([0, 3, 3]), np.arange(3, dtype=np.int32))
    found, _ = boundaries(values, np.zeros(2, np.float32), [2.0, 2.0], 0.0, everything)
    assert np.isnan(found[0])
    assert np.isfinite(found[1])


def test_scores_of_some_users():
    rng = np.random.default_rng(1)
    shift, sizes = rng.normal(size=4).astype(np.float32), rng.random(4)
    dense = rng.normal(size=(4, 5)).astype(np.float32)
    sets = ItemSets(np.array([0, 2, 2, 5, 6]), np.array([0, 3, 1, 2, 4, 2], np.int32))
    numbers = np.array([2, 0])
    forms = [
        Scores(values=dense, log_odds_shift=shift, expected_sizes=sizes),
        Scores(values=np.arange(6, dtype=np.float32), candidates=sets, boundaries=shift),
        Scores(factors=Factors(dense, rng.normal(size=(7, 5)).astype(np.float32)), expected_sizes=sizes),
    ]
    for scores in forms:
        part = scores.take(numbers)
        np.testing.assert_array_equal(
            part.dense(7 if scores.factors else 5), scores.dense(7 if scores.factors else 5)[numbers]
        )
        for name in ("boundaries", "log_odds_shift", "expected_sizes"):
            whole = getattr(scores, name)
            assert (getattr(part, name) is None) == (whole is None)
            if whole is not None:
                np.testing.assert_array_equal(getattr(part, name), whole[numbers])
        assert scores.take(np.arange(4)) is scores
