"""search_postings against the dense product."""

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from shortlist.content.features import to_rows
from shortlist.core.ragged import ItemSets, no_sets
from shortlist.recommend.retrieval import (
    SparseItems,
    SparseScores,
    dense_scores,
    search_sparse,
    top_items,
)


def sparse(rng, n_rows, n_columns, density, negative):
    found = csr_array(random_array((n_rows, n_columns), density=density, rng=rng, format="csr"))
    found.data = (found.data - (0.5 if negative else 0)).astype(np.float32)
    found.data *= (rng.random(n_columns) ** 4)[found.indices]  # few features decide, many are common
    found.sort_indices()
    return csr_array(found.astype(np.float32))


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_search_finds_the_best_of_the_dense_product(seed, negative):
    rng = np.random.default_rng(seed)
    items, queries = sparse(rng, 800, 60, 0.2, negative), sparse(rng, 9, 60, 0.5, negative)
    scores = SparseScores(to_rows(queries), SparseItems.of(items))
    dense = dense_scores(scores, np.arange(800, dtype=np.int32))
    product = queries.toarray() @ items.toarray().T
    assert np.allclose(np.where(dense == -np.inf, 0, dense), product, atol=1e-5)
    floors = np.full(9, -np.inf, np.float32)
    banned = ItemSets(np.arange(10, dtype=np.int64) * 3, np.tile(np.array([0, 5, 9], np.int32), 9))
    for k in (1, 10, 100):
        hits = search_sparse(scores, None, floors, banned, None, k)
        for user in range(9):
            row = dense[user].copy()
            row[[0, 5, 9]] = -np.inf
            best = np.argsort(-row, kind="stable")[:k]
            best = best[row[best] > -np.inf]
            at = slice(hits.indptr[user], hits.indptr[user + 1])
            assert hits.items[at].tolist() == best.tolist()
            assert hits.scores[at].tolist() == row[best].tolist()


def test_candidates_are_scored_like_all_items():
    rng = np.random.default_rng(3)
    items, queries = sparse(rng, 200, 40, 0.3, False), sparse(rng, 4, 40, 0.5, False)
    scores = SparseScores(to_rows(queries), SparseItems.of(items))
    floors, shared = np.full(4, -np.inf, np.float32), np.arange(3, 60, 4, dtype=np.int32)
    own = ItemSets(np.arange(5, dtype=np.int64) * shared.size, np.tile(shared, 4))
    first = search_sparse(scores, shared, floors, no_sets(4), None, 5)
    second = search_sparse(scores, None, floors, no_sets(4), own, 5)
    every = search_sparse(scores, None, floors, no_sets(4), None, None)
    for user in range(4):
        at = slice(first.indptr[user], first.indptr[user + 1])
        whole = every.items[every.indptr[user] : every.indptr[user + 1]]
        assert first.items[at].tolist() == [item for item in whole if item in shared][:5]
        again = slice(second.indptr[user], second.indptr[user + 1])
        assert second.items[again].tolist() == first.items[at].tolist()


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize(
    ("n_items", "density", "block"), [(3000, 0.2, 256), (3000, 0.002, 512), (900, 0.3, 7)]
)
def test_the_search_does_not_depend_on_the_blocks(n_items, density, block, negative):
    rng = np.random.default_rng(block)
    items, queries = sparse(rng, n_items, 60, density, negative), sparse(rng, 20, 60, 0.3, negative)
    queries.data[queries.indptr[3] : queries.indptr[4]] = 0  # nothing is found for it
    scores = SparseScores(to_rows(queries), SparseItems.of(items))
    dense = dense_scores(scores, np.arange(n_items, dtype=np.int32))
    for width in (1, 12, 200):
        hits = top_items(scores.queries, scores.items, scores.items.postings, width, block)
        for query, row in enumerate(dense):
            best = np.argsort(-row, kind="stable")[:width]
            best = best[row[best] > -np.inf]
            at = slice(hits.indptr[query], hits.indptr[query + 1])
            assert hits.items[at].tolist() == best.tolist()
            assert hits.scores[at].tolist() == row[best].tolist()
