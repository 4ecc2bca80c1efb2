"""UtilityRegression, against ridge regression in plain NumPy and in worlds with known best lengths."""

from itertools import pairwise

import numpy as np
import pytest

import shortlist as sl
from shortlist.cutoff import Cutoff, FixedN, UtilityRegression, top_candidates
from shortlist.cutoff.regression import LIMIT, _solve, shape_ranks
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.glm import add_curve_products, fill_shapes, find_best_lengths


def world(n_lists=120, n_items=30, seed=0, informative=True):
    """(scores, truth): scores drop after 4 or 15 items, and the items before the drop are relevant."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([4, 15], n_lists)
    ranks = np.arange(n_items)
    drop = np.where(ranks < sizes[:, None], 3.0, 0.0) if informative else 0.0
    scores = drop - 0.01 * ranks + rng.normal(0, 0.2, (n_lists, n_items)).cumsum(axis=1) * 0.01
    scores = -np.sort(-scores, axis=1)
    relevant = (ranks < sizes[:, None]) & (rng.random((n_lists, n_items)) < 0.8)
    relevant[:, 0] = True
    return scores, sl.Interactions.from_csr(relevant)


def test_ranks_are_1_2_5_and_the_last():
    assert shape_ranks(1).tolist() == [1]
    assert shape_ranks(30).tolist() == [1, 2, 5, 10, 20, 30]
    assert shape_ranks(200).tolist() == [1, 2, 5, 10, 20, 50, 100, 200]


def test_shapes_worked_by_hand():
    indptr, scores = np.array([0, 3, 3, 4]), np.array([4.0, 2.0, 0.0, 7.0])
    out = np.full((3, 5), np.nan)
    fill_shapes(indptr, scores, np.array([1, 5]), out)
    spread = np.sqrt(8 / 3)
    expected = [[4, 0, 2 / spread, -2 / spread, np.log(3)], [0, 0, 0, 0, 0], [7, 7, 0, 0, 0]]
    np.testing.assert_allclose(out, expected, rtol=1e-12)


def test_coefficients_are_those_of_ridge_regression():
    rng = np.random.default_rng(1)
    rows = np.column_stack([np.ones(40), rng.normal(size=(40, 3))])
    utilities, lengths = rng.random(40 * 6), np.full(40, 6)
    lengths[3] = 2  # a short list counts whole at the later lengths
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    products = np.zeros((2, 6, 4))
    fold = (np.arange(40) % 2).astype(np.int32)
    add_curve_products(rows, indptr, utilities, fold, products)
    curves = np.array([utilities[a + np.minimum(np.arange(6), b - a - 1)] for a, b in pairwise(indptr)])
    for f in range(2):
        np.testing.assert_allclose(products[f], curves[fold == f].T @ rows[fold == f], rtol=1e-12)
    weights = _solve(products.sum(axis=0), rows.T @ rows, 0.5)
    penalty = np.diag([0.0, 20.0, 20.0, 20.0])  # 0.5 per list, not for the intercept
    np.testing.assert_allclose(
        weights, np.linalg.solve(rows.T @ rows + penalty, rows.T @ curves).T, rtol=1e-9
    )
    best = np.zeros(40, np.int32)
    find_best_lengths(rows, indptr, weights, best)
    assert best[3] <= 2
    predicted = rows @ weights.T
    others = np.arange(40) != 3
    assert (best[others] == predicted[others].argmax(axis=1) + 1).all()


def test_lengths_follow_the_drop_in_the_scores():
    scores, truth = world()
    cut = UtilityRegression(n_candidates=30).fit(scores, truth)
    assert np.isfinite(cut.ridge_)
    later, outcome = world(seed=1)
    lists = top_candidates(later, n_candidates=30)
    fixed = FixedN(n_candidates=30).fit(scores, truth)
    ours, theirs = (sl.evaluate(one.apply(lists), outcome).f1 for one in (cut, fixed))
    assert ours > 1.15 * theirs
    lengths = cut.lengths(later)
    assert np.corrcoef(lengths, (later > 1.5).sum(axis=1))[0, 1] > 0.9


@pytest.mark.parametrize("seed", range(4))
def test_noise_gives_the_best_fixed_n(seed):
    scores, truth = world(seed=seed, informative=False)
    cut = UtilityRegression(n_candidates=30).fit(scores, truth)
    if cut.ridge_ == np.inf:
        fixed = FixedN(n_candidates=30).fit(scores, truth).lengths(scores)
        assert (cut.lengths(scores) == fixed).all()
        assert "no other length was clearly better" in repr(cut)
    later, outcome = world(seed=seed + 10, informative=False)
    lists = top_candidates(later, n_candidates=30)
    fixed = FixedN(n_candidates=30).fit(scores, truth)
    assert sl.evaluate(cut.apply(lists), outcome).f1 > 0.95 * sl.evaluate(fixed.apply(lists), outcome).f1


def test_few_lists_give_the_best_fixed_n():
    scores, truth = world(n_lists=19)
    cut = UtilityRegression(n_candidates=30).fit(scores, truth)
    assert cut.ridge_ == np.inf
    assert (cut.lengths(scores) == FixedN(n_candidates=30).fit(scores, truth).lengths(scores)).all()


def test_order_of_users_changes_nothing():
    scores, truth = world()
    lists = top_candidates(scores, n_candidates=30)
    order = np.random.default_rng(0).permutation(len(lists))
    one, other = (
        UtilityRegression(n_candidates=30).fit(given, truth) for given in (lists, lists.take(order))
    )
    assert (one.weights_ == other.weights_).all()


def test_extreme_scores_are_limited():
    scores, truth = world()
    cut = UtilityRegression(n_candidates=30).fit(scores, truth)
    far = top_candidates(np.vstack([scores[0] * 1e30, scores[0] - 1e30]))
    assert np.abs(cut._rows(far, None)[:, 1:]).max() <= LIMIT
    assert ((cut.lengths(far) >= 1) & (cut.lengths(far) <= 30)).all()


def test_history_is_used_and_then_needed(tmp_path):
    split = sl.split.last_basket(sl.load_dataset("sample"))
    candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    cut = UtilityRegression(n_candidates=20).fit(candidates, split.valid, history=split.train)
    assert "scores and history" in repr(cut)
    table = split.train.to_frame()  # a table is enough
    assert (cut.lengths(candidates, history=table) == cut.lengths(candidates, history=split.train)).all()
    with pytest.raises(DataError, match="needs one to predict; pass history="):
        cut.lengths(candidates)
    loaded = Cutoff.load(cut.save(tmp_path / "cut.shortlist"))
    assert (loaded.lengths(candidates, history=table) == cut.lengths(candidates, history=table)).all()


def test_target():
    with pytest.raises(ConfigError, match="target"):
        UtilityRegression(target="map")
    with pytest.raises(ConfigError, match=r"target must be one of f1, ndcg, ndcg_paper, .*got 'value'"):
        UtilityRegression(target="value")
