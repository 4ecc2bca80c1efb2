"""Top-k selection against a plain sort."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.core.ragged import no_sets, same_sets
from shortlist.kernels.retrieval import (
    lower_to_running_minimum,
    rank_rows,
    score_pairs,
    select_top,
    top_k,
    unpack_keys,
)
from shortlist.kernels.rows import read_only
from shortlist.recommend.retrieval import ItemIndex, search_index, select_dense, select_ragged

SCORES = st.sampled_from(
    [0.0, -0.0, 1.0, 1.0, -1.0, 2.5, -3e38, 3e38, 1e-45, -1e-45, np.inf, -np.inf, np.nan]
)
values = st.one_of(st.floats(-3, 3, width=32), st.sampled_from([-np.inf, np.inf, np.nan, 0.0, 1.0]))
matrices = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=values)


def best(scores, items, floor=-np.inf, excluded=(), limit=None):
    """(score, item) strictly above the floor and not excluded, best first, smaller item first."""
    kept = [(s, i) for s, i in zip(scores, items, strict=True) if s > floor and i not in excluded]
    return sorted(kept, key=lambda hit: (-hit[0], hit[1]))[:limit]


def as_pairs(indptr, items, scores):
    pairs = list(zip(scores.tolist(), items.tolist(), strict=True))
    return [pairs[a:b] for a, b in itertools.pairwise(indptr)]


@given(matrix=matrices, k=st.integers(1, 14))
def test_top_k_of_dense_rows(matrix, k):
    n, width = matrix.shape
    found = top_k(np.arange(n + 1) * width, np.arange(width, dtype=np.int32), matrix.ravel(), k)
    assert as_pairs(*found) == [best(row, range(width), limit=k) for row in matrix.tolist()]


@given(matrix=matrices, k=st.integers(1, 14), data=st.data())
def test_top_k_of_candidates_in_any_order(matrix, k, data):
    row = matrix[0]
    items = np.array(data.draw(st.permutations(range(row.size))), np.int32)
    expected = [best(row.tolist(), items.tolist(), limit=k)]
    assert as_pairs(*top_k(np.array([0, row.size]), items, row, k)) == expected


@given(
    rows=st.integers(0, 12).flatmap(
        lambda n: st.lists(st.lists(SCORES, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    floor=SCORES,
    excluded=st.sets(st.integers(0, 40)),
    limit=st.none() | st.integers(1, 15),
)
def test_dense_and_ragged_selection_agree_with_a_plain_sort(rows, floor, excluded, limit):
    scores = np.array(rows, np.float32).reshape(len(rows), -1)
    n_users, n_items = scores.shape
    items = np.arange(n_items, dtype=np.int32) * 3 + 1
    floors = np.full(n_users, floor, np.float32)
    away = same_sets(np.array(sorted(excluded), np.int32), n_users)
    expected = [best(row.tolist(), items.tolist(), floors[0], excluded, limit) for row in scores]
    for hits in (
        select_dense(scores, items, floors, away, limit),
        select_ragged(same_sets(items, n_users), scores.ravel(), floors, away, limit),
    ):
        assert as_pairs(hits.indptr, hits.items, hits.scores) == expected


@pytest.mark.parametrize("order", [1, -1])
def test_count_exceeds_width_if_a_hit_does_not_fit(order):
    scores = read_only(np.array([3.0, 2.0, 1.0, -1.0, 1.0, -2.0], np.float32)[::order])
    indptr, items = read_only(np.array([0, 3, 6])), read_only(np.arange(3, dtype=np.int32))
    floors, excluded = read_only(np.zeros(2, np.float32)), (no_sets(2).indptr, no_sets(2).items)
    keys, counts = np.empty((2, 2), np.uint64), np.zeros(2, np.int64)
    select_top(indptr, items, scores, floors, *excluded, keys, counts)
    assert counts.tolist() == [3, 1][::order]
    kept, found = np.empty(3, np.int32), np.empty(3, np.float32)
    ends = np.array([0, 2, 3]) if order == 1 else np.array([0, 1, 3])
    unpack_keys(keys, np.minimum(counts, 2), ends, kept, found)
    assert kept.tolist() == ([0, 1, 1] if order == 1 else [1, 2, 1])
    assert found.tolist() == ([3.0, 2.0, 1.0] if order == 1 else [1.0, 3.0, 2.0])


def test_list_without_limit_is_complete_if_scores_fall():
    scores = np.arange(3000, 0, -1).astype(np.float32)
    items, floors = np.arange(3000, dtype=np.int32), np.zeros(1, np.float32)
    dense = select_dense(scores[None], items, floors, no_sets(1), None)
    one = np.ones((1, 1), np.float32)
    retrieved = search_index(ItemIndex.build(scores[:, None]), one, floors, no_sets(1), None)
    for hits in (dense, retrieved):
        assert hits.items.tolist() == items.tolist()
        assert not hits.truncated.any()


def test_minus_zero_ties_with_zero():
    scores = np.array([[-0.0, 0.0, -0.0]], np.float32)
    floors = np.array([-1.0], np.float32)
    hits = select_dense(scores, np.arange(3, dtype=np.int32), floors, no_sets(1), 2)
    assert hits.items.tolist() == [0, 1]


@given(
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from([-1.0, -0.0, 0.0, 0.5, np.inf]), st.integers(0, 9))), max_size=4
    )
)
def test_rank_rows_sorts_each_row(rows):
    rows = [list({item: (score, item) for score, item in row}.values()) for row in rows]
    indptr = np.cumsum([0, *map(len, rows)])
    scores = np.array([score for row in rows for score, _ in row], np.float32)
    items = np.array([item for row in rows for _, item in row], np.int32)
    order = rank_rows(indptr, items, scores)
    expected = [item for row in rows for _, item in sorted((-score, item) for score, item in row)]
    assert items[order].tolist() == expected
    assert (
        np.searchsorted(indptr, order, side="right")
        == np.repeat(np.arange(1, len(rows) + 1), np.diff(indptr))
    ).all()


@given(matrix=arrays(np.float64, (2, 6), elements=st.floats(-3, 3)))
def test_running_minimum_restarts_in_each_row(matrix):
    lowered = matrix.copy().ravel()
    lower_to_running_minimum(np.array([0, 6, 12]), lowered)
    np.testing.assert_array_equal(lowered, np.minimum.accumulate(matrix, axis=1).ravel())


@pytest.mark.parametrize("n_factors", [1, 8, 13])
@pytest.mark.parametrize("has_bias", [True, False])
def test_scores_of_users_and_items_are_inner_products(n_factors, has_bias):
    rng = np.random.default_rng(n_factors)
    users, items = (rng.normal(size=(n, n_factors)).astype(np.float32) for n in (4, 6))
    bias = rng.normal(size=6 if has_bias else 0).astype(np.float32)
    expected = users.astype(float) @ items.T + (bias if has_bias else 0)
    lists = [[5, 0], [], [3], [1, 2, 4]]
    indptr, listed = np.cumsum([0, *map(len, lists)]), np.array([*itertools.chain(*lists)], np.int32)
    scores = np.empty(6, np.float32)
    score_pairs(users, items, bias, indptr, listed, scores)
    np.testing.assert_allclose(scores, expected[np.repeat(range(4), np.diff(indptr)), listed], atol=1e-5)
