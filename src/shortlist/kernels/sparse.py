"""Exact search in a sparse item × feature matrix through its inverted index.

Items are searched in blocks whose scores fit into the cache. The entries of a query's features are added to
the scores of the block, feature by feature. Once the best k are known of some items, features that together
cannot add more than a share of the k-th score are left out: those with the most entries for their largest
possible contribution first ("MaxScore", Turtle and Flood, 1995). Only items that could still be among the
best are completed. Every returned score is computed anew from the item's own row, in the order of the row: it
does not depend on the path of the search.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.retrieval import pack_key, push, unpack_score
from shortlist.kernels.rows import kth_smallest, order_ascending
from shortlist.types import Bools, Doubles, Floats, Ints, Longs, State

ZERO = np.float32(0)
SLACK = 1e-5  # error of sums in another order, relative to the largest possible score
LEFT_OUT = 0.25  # share of the k-th score that features without a search may add
FEW = 16  # a block with fewer entries than its items / FEW is read by its entries
FIRST = 16  # the first block is smaller by this factor: it only gives a first bound
CHUNK = 128  # scores that are compared with the limit at once
SHORT = 32  # the end of a shorter list within the block is searched entry by entry


class SparseRows(NamedTuple):
    """A sparse matrix by rows."""

    indptr: Longs  # (n_rows + 1,)
    columns: Ints  # (n_entries,) ascending per row
    values: Floats | Doubles  # (n_entries,)


class Postings(NamedTuple):
    """The same matrix by columns, with the largest absolute value of each."""

    indptr: Longs  # (n_features + 1,)
    items: Ints  # (n_entries,) ascending per feature
    values: Floats  # (n_entries,)
    largest: Floats  # (n_features,)


@kernel
def row_norms(rows: SparseRows, norms: Doubles) -> None:
    """Write the Euclidean length of every row."""
    for row in range(norms.size):
        total = 0.0
        for at in range(rows.indptr[row], rows.indptr[row + 1]):
            total += np.float64(rows.values[at]) ** 2
        norms[row] = np.sqrt(total)


@inlined
def dot_row(rows: SparseRows, row: int, dense: Floats) -> np.float32:
    """Return the product of one sparse row and a dense vector."""
    total = ZERO
    for at in range(rows.indptr[row], rows.indptr[row + 1]):
        total += rows.values[at] * dense[np.uint32(rows.columns[at])]
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
    items: Ints,  # (n_pairs,) the items to score for each query, or (n_columns,) if all have the same
    dense: Floats,  # (n_features,) zeros, scratch
    scores: Floats,  # (n_pairs,) written
) -> None:
    """Score the items listed for each query."""
    shared = items.size != scores.size
    for query in range(queries.indptr.size - 1):
        open_query(queries, query, dense)
        shift = indptr[query] if shared else 0
        for at in range(indptr[query], indptr[query + 1]):
            scores[at] = dot_row(rows, items[at - shift], dense)
        close_query(queries, query, dense)


class QueryTerms(NamedTuple):
    """The features of one query: those that are left out first come first."""

    value: Floats  # (n_terms,) weight in the query
    start: Longs  # (n_terms,) first entry in the block
    stop: Longs  # (n_terms,) end of the entries in the block
    end: Longs  # (n_terms,) end of all entries
    bound: Doubles  # (n_terms + 1,) what the terms before each can add to a score


@inlined
def order_terms(queries: SparseRows, query: int, index: Postings) -> QueryTerms:
    """Order a query's features by their largest possible contribution per entry."""
    first = queries.indptr[query]
    n = queries.indptr[query + 1] - first
    most, per_entry = np.empty(n, np.float64), np.empty(n, np.float64)
    for at in range(n):
        feature = queries.columns[first + at]
        most[at] = abs(queries.values[first + at]) * index.largest[feature]
        per_entry[at] = most[at] / max(index.indptr[feature + 1] - index.indptr[feature], 1)
    order = np.empty(n, np.int64)
    order_ascending(per_entry, order)
    terms = QueryTerms(
        np.empty(n, np.float32),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.zeros(n + 1, np.float64),
    )
    for number in range(n):
        at = first + order[number]
        feature = queries.columns[at]
        terms.value[number] = queries.values[at]
        terms.start[number] = terms.stop[number] = index.indptr[feature]
        terms.end[number] = index.indptr[feature + 1]
        terms.bound[number + 1] = terms.bound[number] + most[order[number]]
    return terms


@inlined
def add_entries(
    terms: QueryTerms, left_out: int, index: Postings, begin: int, end: int, scores: Floats
) -> int:
    """Add the entries of items begin … end - 1 to the scores of the block; return how many there are."""
    n_entries = 0
    for term in range(left_out, terms.value.size):
        value, low, high = terms.value[term], terms.stop[term], terms.end[term]
        terms.start[term] = low
        if high - low > SHORT:
            high = min(high, low + end - begin)
            while low < high:
                middle = (low + high) >> 1
                if index.items[middle] < end:
                    low = middle + 1
                else:
                    high = middle
        else:
            while low < high and index.items[low] < end:
                low += 1
        terms.stop[term] = low
        for entry in range(terms.start[term], low):
            # unsigned: a signed index is tested for being negative
            scores[np.uint64(index.items[entry] - begin)] += value * index.values[entry]
        n_entries += low - terms.start[term]
    return int(n_entries)


@inlined
def count_at_least(scores: Floats, low: int, high: int, limit: np.float32) -> int:
    """Return how many scores reach a limit; without a branch, so that several are compared at once."""
    count = 0
    for at in range(low, high):
        count += scores[at] >= limit
    return count


@kernel
def search_postings(
    queries: SparseRows,
    rows: SparseRows,
    index: Postings,
    dense: Floats,  # (n_features,) zeros, scratch
    scores: Floats,  # (size of a block,) zeros, scratch
    is_done: Bools,  # (size of a block,) False, scratch
    keys: State,  # (n_queries, width) written: packed (score, item) in heap order
    counts: Longs,  # (n_queries,) written; width + 1 if an item was dropped
) -> None:
    """Find the best `width` items with a score other than 0 of each query."""
    n_items, width = rows.indptr.size - 1, keys.shape[1]
    for query in range(queries.indptr.size - 1):
        terms = order_terms(queries, query, index)
        n_terms = terms.value.size
        slack = SLACK * terms.bound[n_terms]
        open_query(queries, query, dense)
        count, left_out, begin, lowest = 0, 0, 0, -np.inf
        while begin < n_items:
            end = min(begin + (scores.size if begin else max(scores.size // FIRST, 1)), n_items)
            while left_out < n_terms and terms.bound[left_out + 1] + slack < LEFT_OUT * lowest:
                left_out += 1
            n_entries = add_entries(terms, left_out, index, begin, end, scores)
            limit = np.float32(lowest - terms.bound[left_out] - slack)
            is_full = FEW * n_entries > end - begin
            if is_full and lowest == -np.inf:
                first = end - begin - max(width, 1)  # of the best `width` in ascending order
                limit = np.float32(-np.inf)
                if first >= 0:
                    limit = np.float32(kth_smallest(scores[: end - begin].copy(), first) - 2 * slack)
            if is_full and limit > 0:
                for low in range(0, end - begin, CHUNK):
                    high = min(low + CHUNK, end - begin)
                    if count_at_least(scores, low, high, limit):
                        for at in range(low, high):
                            if scores[at] >= limit:
                                score = dot_row(rows, begin + at, dense)
                                if score != ZERO:
                                    count = push(keys, query, count, pack_key(score, begin + at))
                scores[: end - begin] = ZERO
            else:  # items without entries must not be read: there are too many, or 0 is above the limit
                if not limit > 0:
                    limit = np.float32(-np.inf)
                for term in range(left_out, n_terms):
                    for entry in range(terms.start[term], terms.stop[term]):
                        at = index.items[entry] - begin
                        if not is_done[at] and scores[at] >= limit:
                            score = dot_row(rows, begin + at, dense)
                            if score != ZERO:
                                count = push(keys, query, count, pack_key(score, begin + at))
                        is_done[at] = True
                for term in range(left_out, n_terms):
                    for entry in range(terms.start[term], terms.stop[term]):
                        at = index.items[entry] - begin
                        is_done[at] = False
                        scores[at] = ZERO
            if count >= width and width:
                lowest = np.float64(unpack_score(keys[query, 0]))
            begin = end
        close_query(queries, query, dense)
        counts[query] = count


class UserVectors(NamedTuple):
    """The vectors of all users."""

    by_user: SparseRows  # (n_users, n_items)
    by_item: SparseRows  # (n_items, n_users)
    norms: Doubles  # (n_users,) squared


@inlined
def _is_further(distance: Doubles, a: int, b: int) -> bool:
    """Whether user a comes after user b; of equally distant users, the one with the higher number."""
    return bool(distance[a] > distance[b] or (distance[a] == distance[b] and a > b))


@inlined
def _move_down(heap: Ints, size: int, distance: Doubles) -> None:
    """Move the root down to where no user below is further away."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _is_further(distance, heap[child + 1], heap[child]):
            child += 1
        if not _is_further(distance, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@inlined
def _move_up(heap: Ints, at: int, distance: Doubles) -> None:
    """Move an entry up to where the one above is further away."""
    while at > 0:
        parent = (at - 1) // 2
        if not _is_further(distance, heap[at], heap[parent]):
            return
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


@kernel
def score_with_neighbors(
    users: SparseRows,  # (n, n_items) vectors to score
    own_numbers: Longs,  # (n,) their numbers in `vectors`, which are no neighbors; -1: none
    vectors: UserVectors,
    n_neighbors: int,
    own_weight: float,
    others_weight: float,
    out: Floats,  # (n, n_items)
) -> None:
    """out = own_weight · (user's vector) + others_weight · (mean vector of the nearest users)."""
    n_users = vectors.norms.size
    distance, heap = np.empty(n_users), np.empty(n_neighbors, np.int32)
    total = np.empty(out.shape[1])
    for row in range(out.shape[0]):
        for user in range(n_users):  # the norm of the user's own vector is the same for all
            distance[user] = vectors.norms[user]
        total[:] = 0.0
        for at in range(users.indptr[row], users.indptr[row + 1]):
            item, value = users.columns[at], users.values[at]
            total[item] += own_weight * value
            for k in range(vectors.by_item.indptr[item], vectors.by_item.indptr[item + 1]):
                distance[vectors.by_item.columns[k]] -= 2 * value * vectors.by_item.values[k]
        size = 0
        for user in range(n_users):
            if user == own_numbers[row]:
                continue
            if size < n_neighbors:
                heap[size] = user
                _move_up(heap, size, distance)
                size += 1
            elif distance[user] < distance[heap[0]]:
                heap[0] = user
                _move_down(heap, size, distance)
        for k in range(size):
            user = heap[k]
            for at in range(vectors.by_user.indptr[user], vectors.by_user.indptr[user + 1]):
                total[vectors.by_user.columns[at]] += others_weight / size * vectors.by_user.values[at]
        for item in range(out.shape[1]):
            out[row, item] = total[item]
