"""Retrieval from factors against a plain sort of all scores."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.core.ragged import ItemSets, no_sets
from shortlist.kernels.retrieval import TILE
from shortlist.recommend import retrieval
from shortlist.recommend.request import Factors
from shortlist.recommend.retrieval import ItemIndex, score_candidates, search_index
from tests.threads import on_threads, use_threads


def plain_scores(vectors, item_factors, bias=None):
    """All scores in float32: eight partial sums added by halves, then the remainder, then the bias."""
    n_factors = vectors.shape[1]
    n_lanes = n_factors - n_factors % 8
    sums = np.zeros((len(vectors), len(item_factors), 8), np.float32)
    with np.errstate(all="ignore"):
        for f in range(n_lanes):
            sums[:, :, f % 8] += vectors[:, f, None] * item_factors[None, :, f]
        for half in (4, 2, 1):
            sums = sums[:, :, :half] + sums[:, :, half : 2 * half]
        scores = sums[:, :, 0]
        for f in range(n_lanes, n_factors):
            scores = scores + vectors[:, f, None] * item_factors[None, :, f]
        return scores if bias is None else scores + bias


def plain_lists(scores, floors, excluded, limit=None, candidates=None):
    """(items, scores) of every user: allowed, strictly above the floor, best first, smaller item first."""
    lists = []
    for user, row in enumerate(scores):
        allowed = range(row.size) if candidates is None else candidates[user]
        hits = [item for item in allowed if row[item] > floors[user] and item not in excluded[user]]
        hits = sorted(hits, key=lambda item: (-row[item], item))[:limit]
        lists.append((hits, [float(row[item]) for item in hits]))
    return lists


def as_lists(hits):
    bounds = zip(hits.indptr[:-1], hits.indptr[1:], strict=True)
    return [(hits.items[a:b].tolist(), hits.scores[a:b].tolist()) for a, b in bounds]


def as_sets(rows):
    lengths = [len(row) for row in rows]
    items = [item for row in rows for item in sorted(row)]
    return ItemSets(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.array(items, np.int32))


def zipf_factors(rng, n_users=40, n_items=700, n_factors=37):
    """Factors with a decaying spectrum and very different lengths, as popularity causes."""
    shape = np.exp(-np.arange(n_factors) / 6)
    vectors = rng.normal(size=(n_users, n_factors)) * shape
    items = rng.normal(size=(n_items, n_factors)) * shape / (1 + np.arange(n_items) / 50)[:, None]
    bias = rng.normal(size=n_items) * 0.1
    return vectors.astype(np.float32), items.astype(np.float32), bias.astype(np.float32)


NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 1e-3, 1e20, -1e20, 1e-30, 3e38, -3e38])
ODD = st.sampled_from([np.inf, -np.inf, np.nan, 1e-45])


@st.composite
def problems(draw):
    """Small factor pairs with many ties, zeros and overflows, and sometimes infinities and NaN."""
    n_users, n_items, n_factors = draw(st.integers(1, 5)), draw(st.integers(0, 9)), draw(st.integers(1, 19))
    number = draw(st.sampled_from([st.sampled_from([0.0, 1.0, -1.0]), NUMBERS, NUMBERS | ODD]))
    copies = draw(st.sampled_from([1, 1, 40]))  # more than one block of equal items

    def matrix(*shape):
        size = int(np.prod(shape))
        return np.array(draw(st.lists(number, min_size=size, max_size=size)), np.float32).reshape(shape)

    vectors, items = matrix(n_users, n_factors), matrix(n_items, n_factors)
    bias = matrix(n_items) if draw(st.booleans()) else None
    items, bias = np.tile(items, (copies, 1)), None if bias is None else np.tile(bias, copies)
    floor = number | st.sampled_from([-np.inf, np.nan, np.inf])
    floors = np.array(draw(st.lists(floor, min_size=n_users, max_size=n_users)), np.float32)
    subset = st.sets(st.integers(0, max(len(items) - 1, 0))) if len(items) else st.just(set())
    sets = st.lists(subset, min_size=n_users, max_size=n_users)
    limit = draw(st.none() | st.integers(1, 12))
    return vectors, items, bias, floors, draw(sets), draw(sets), limit


def build_both(*given, **options):
    """The index with early bound checks and without them, whatever the factors are."""
    indexes = []
    for share in (0.0, 2.0):
        with patch.object(retrieval, "STAGED_SHARE", share), np.errstate(all="ignore"):
            indexes.append(ItemIndex.build(*given, **options))
    return indexes


@given(problems())
def test_all_paths_match_a_plain_sort(problem):
    vectors, items, bias, floors, excluded, candidates, limit = problem
    scores = plain_scores(vectors, items, bias)
    expected = plain_lists(scores, floors, excluded, limit)
    for index in build_both(items, bias):
        assert as_lists(search_index(index, vectors, floors, as_sets(excluded), limit)) == expected
    factors, everything = Factors(vectors, items, bias), np.arange(len(items), dtype=np.int32)
    assert as_lists(score_candidates(factors, everything, floors, as_sets(excluded), limit)) == expected
    found = score_candidates(factors, as_sets(candidates), floors, as_sets(excluded), limit)
    assert as_lists(found) == plain_lists(scores, floors, excluded, limit, candidates)
    shared = np.array(sorted(candidates[0]), np.int32)
    with np.errstate(all="ignore"):
        part = ItemIndex.build(items, bias, items=shared)
    expected = plain_lists(scores, floors, excluded, limit, [shared.tolist()] * len(vectors))
    assert as_lists(search_index(part, vectors, floors, as_sets(excluded), limit)) == expected
    assert as_lists(score_candidates(factors, shared, floors, as_sets(excluded), limit)) == expected


@pytest.mark.parametrize("n_factors", [1, 7, 8, 16, 17, 37, 64, 100])
@pytest.mark.parametrize("length", [1, 5, 40])
def test_retrieval_is_exact_on_decaying_spectra(n_factors, length):
    rng = np.random.default_rng(n_factors)
    vectors, items, bias = zipf_factors(rng, n_factors=n_factors)
    scores = plain_scores(vectors, items, bias)
    excluded = [set(rng.choice(700, 30, replace=False).tolist()) for _ in vectors]
    floors = np.sort(scores, axis=1)[:, -length]
    index = ItemIndex.build(items, bias, vector_norm=2.0)
    found = search_index(index, vectors, floors, as_sets(excluded), None)
    assert as_lists(found) == plain_lists(scores, floors, excluded)
    open_floors = np.full(len(vectors), -np.inf, np.float32)
    found = search_index(index, vectors, open_floors, as_sets(excluded), length)
    assert as_lists(found) == plain_lists(scores, open_floors, excluded, length)


@pytest.mark.parametrize("n_users", [1, 2, 3, 6, 7, 8, 9, TILE - 1, TILE + 1, 2 * TILE + 4])
def test_groups_of_users_of_any_size_get_exact_lists(n_users):
    """Users are scored in groups of GROUP, the last ones alone, and those without candidates drop out."""
    rng = np.random.default_rng(n_users)
    vectors = rng.normal(size=(n_users, 20)).astype(np.float32)
    items = rng.normal(size=(400, 20)).astype(np.float32)  # flat: hardly any block can be skipped
    bias = rng.normal(size=400).astype(np.float32)
    scores = plain_scores(vectors, items, bias)
    excluded = [set(rng.choice(400, 50, replace=False).tolist()) for _ in vectors]
    floors = np.sort(scores, axis=1)[:, -rng.integers(1, 60)]
    floors[rng.random(n_users) < 0.2] = np.inf
    for index in build_both(items, bias, vector_norm=4.0):
        for limit in (None, 9):
            found = search_index(index, vectors, floors, as_sets(excluded), limit)
            assert as_lists(found) == plain_lists(scores, floors, excluded, limit)


@pytest.mark.parametrize("n_threads", [2, 4])
def test_same_bits_on_any_number_of_threads(n_threads):
    vectors, items, bias = zipf_factors(np.random.default_rng(1), n_users=1000)
    with use_threads(n_threads):
        index = ItemIndex.build(items, bias)
    floors = np.full(1000, 0.5, np.float32)
    one, many = on_threads(
        1, n_threads, run=lambda: search_index(index, vectors, floors, no_sets(1000), None)
    )
    assert one.items.size > 1000
    assert one.skipped is None  # no limits of groups
    assert many.skipped is None
    for name in ("indptr", "items", "scores", "truncated"):
        assert getattr(one, name).tobytes() == getattr(many, name).tobytes()


def test_single_users_get_the_same_lists_as_a_batch():
    vectors, items, bias = zipf_factors(np.random.default_rng(2))
    index, floors = ItemIndex.build(items, bias), np.zeros(40, np.float32)
    together = as_lists(search_index(index, vectors, floors, no_sets(40), 7))
    alone = [
        as_lists(search_index(index, vectors[u : u + 1], floors[:1], no_sets(1), 7))[0] for u in range(40)
    ]
    assert together == alone


def test_list_longer_than_the_buffer_is_complete():
    items = np.ones((3000, 2), np.float32)
    found = search_index(
        ItemIndex.build(items), np.ones((2, 2), np.float32), np.zeros(2, np.float32), no_sets(2), None
    )
    assert found.indptr.tolist() == [0, 3000, 6000]
    assert found.items.tolist() == [*range(3000), *range(3000)]
    assert not found.truncated.any()


def test_truncated_marks_lists_cut_by_the_limit():
    items = np.array([[1.0], [2.0], [3.0]], np.float32)
    floors = np.array([0.0, 1.5, 2.5], np.float32)
    found = search_index(ItemIndex.build(items), np.ones((3, 1), np.float32), floors, no_sets(3), 2)
    assert as_lists(found) == [([2, 1], [3.0, 2.0]), ([2, 1], [3.0, 2.0]), ([2], [3.0])]
    assert found.truncated.tolist() == [True, False, False]
