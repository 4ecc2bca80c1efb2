"""Exact search in a sparse item × feature matrix through its inverted index.

Features of a query are added in order of their largest possible contribution. As soon as the features that
are left cannot lift an unseen item into the best k, only the items seen so far are completed ("MaxScore",
Turtle and Flood, 1995). Every returned score is computed anew from the item's own row, in the order of the
row: it does not depend on the path of the search.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.topk import pack, push
from shortlist.types import Bools, Doubles, Floats, Ints, Longs, State

ZERO = np.float32(0)
SLACK = 1e-5  # error of sums in another order, relative to the largest possible score
CHECK = 4  # the bound is computed before a feature whose items are more than the seen items / CHECK


class SparseRows(NamedTuple):
    """A sparse matrix by rows."""

    indptr: Longs  # (n_rows + 1,)
    columns: Ints  # (n_entries,) ascending per row
    values: Floats  # (n_entries,)


class Postings(NamedTuple):
    """The same matrix by columns, with the largest absolute value of each."""

    indptr: Longs  # (n_features + 1,)
    items: Ints  # (n_entries,) ascending per feature
    values: Floats  # (n_entries,)
    largest: Floats  # (n_features,)


@inlined
def dot_row(rows: SparseRows, row: int, dense: Floats) -> np.float32:
    """Return the product of one sparse row and a dense vector."""
    total = ZERO
    for at in range(rows.indptr[row], rows.indptr[row + 1]):
        total += rows.values[at] * dense[rows.columns[at]]
    return np.float32(total)


@inlined
def open_query(queries: SparseRows, query: int, dense: Floats) -> None:
    """Write a query into a dense vector of zeros."""
    for at in range(queries.indptr[query], queries.indptr[query + 1]):
        dense[queries.columns[at]] = queries.values[at]


@inlined
def close_query(queries: SparseRows, query: int, dense: Floats) -> None:
    """Make the dense vector zero again."""
    for at in range(queries.indptr[query], queries.indptr[query + 1]):
        dense[queries.columns[at]] = ZERO


@kernel
def score_rows(
    queries: SparseRows,
    rows: SparseRows,
    indptr: Longs,  # (n_queries + 1,)
    items: Ints,  # (n_pairs,) the items to score for each query
    dense: Floats,  # (n_features,) zeros, scratch
    scores: Floats,  # (n_pairs,) written
) -> None:
    """Score the items listed for each query."""
    for query in range(queries.indptr.size - 1):
        open_query(queries, query, dense)
        for at in range(indptr[query], indptr[query + 1]):
            scores[at] = dot_row(rows, items[at], dense)
        close_query(queries, query, dense)


@kernel
def score_grid_rows(
    queries: SparseRows, rows: SparseRows, items: Ints, dense: Floats, scores: Floats
) -> None:
    """Score the same items for every query; scores (n_queries, n_items)."""
    for query in range(queries.indptr.size - 1):
        open_query(queries, query, dense)
        for at in range(items.size):
            scores[query, at] = dot_row(rows, items[at], dense)
        close_query(queries, query, dense)


@inlined
def kth_largest(heap: Floats, partial: Floats, seen: Ints, n_seen: int) -> np.float32:
    """Return the k-th largest partial score of the seen items; k is the size of the heap."""
    k = heap.size
    heap[:] = -np.inf
    for number in range(n_seen):
        value = partial[seen[number]]
        if value > heap[0]:
            root = 0
            while True:
                child = 2 * root + 1
                if child >= k:
                    break
                if child + 1 < k and heap[child + 1] < heap[child]:
                    child += 1
                if not heap[child] < value:
                    break
                heap[root] = heap[child]
                root = child
            heap[root] = value
    return np.float32(heap[0])


@inlined
def sum_bounds(queries: SparseRows, query: int, index: Postings, order: Longs, rest: Doubles) -> None:
    """Order a query's features by their largest possible contribution, and sum what follows each of them."""
    start = queries.indptr[query]
    bounds = np.empty(order.size, np.float64)
    for at in range(order.size):
        bounds[at] = abs(queries.values[start + at]) * index.largest[queries.columns[start + at]]
    order[:] = np.argsort(-bounds)
    rest[order.size] = 0.0
    for number in range(order.size - 1, -1, -1):
        rest[number] = rest[number + 1] + bounds[order[number]]


@kernel
def search_postings(
    queries: SparseRows,
    rows: SparseRows,
    index: Postings,
    dense: Floats,  # (n_features,) zeros, scratch
    partial: Floats,  # (n_items,) zeros, scratch
    is_seen: Bools,  # (n_items,) False, scratch
    keys: State,  # (n_queries, width) written: packed (score, item) in heap order
    found: Longs,  # (n_queries,) written; width + 1 if there are more
) -> None:
    """Find the best `width` items with a score other than 0 of each query."""
    seen, heap = np.empty(is_seen.size, np.int32), np.empty(max(keys.shape[1], 1), np.float32)
    for query in range(queries.indptr.size - 1):
        start = queries.indptr[query]
        n_terms = queries.indptr[query + 1] - start
        order, rest = np.empty(n_terms, np.int64), np.empty(n_terms + 1, np.float64)
        sum_bounds(queries, query, index, order, rest)
        slack, n_seen, limit = SLACK * rest[0], 0, -np.inf
        for number in range(n_terms):
            feature = queries.columns[start + order[number]]
            low, high = index.indptr[feature], index.indptr[feature + 1]
            if n_seen >= heap.size and high - low > n_seen // CHECK:
                lowest = kth_largest(heap, partial, seen, n_seen) - rest[number]
                if lowest > rest[number] + slack:
                    limit = lowest - rest[number] - slack
                    break
            value = queries.values[start + order[number]]
            for entry in range(low, high):
                item = index.items[entry]
                partial[item] += value * index.values[entry]
                if not is_seen[item]:
                    is_seen[item] = True
                    seen[n_seen] = item
                    n_seen += 1
        if limit == -np.inf and n_seen >= heap.size:
            limit = kth_largest(heap, partial, seen, n_seen) - slack
        open_query(queries, query, dense)
        count = 0
        for at in range(n_seen):
            item = seen[at]
            if partial[item] >= limit:
                score = dot_row(rows, item, dense)
                if score != ZERO:
                    count = push(keys, query, count, pack(score, item))
            partial[item] = ZERO
            is_seen[item] = False
        close_query(queries, query, dense)
        found[query] = count
