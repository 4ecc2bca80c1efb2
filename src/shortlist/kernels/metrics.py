"""Metrics of ragged lists in one pass; a table of stamps marks the items in a user's truth."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.rng import next_below
from shortlist.kernels.simd import factor_width, prefetch_row
from shortlist.types import Bools, Doubles, Ints, Longs, State

AHEAD = 12  # lists between a prefetch and its use
ONE_LINE, TWO_LINES = factor_width(16), factor_width(32)  # cache lines, in 32-bit numbers
UNIT = 2.0**32  # of sums of probabilities: two billion of them fit in a cell


class Chunk(NamedTuple):
    """Lists of some users; `row` is the row of each user in the truth, -1 for users who are not evaluated."""

    indptr: Longs  # (n_lists + 1,)
    items: Ints  # (n_shown,)
    code: Ints  # (n_list_items,) index in the truth's item table of each item, -1 for unknown items
    row: Ints  # (n_lists,) no row twice
    order: Longs  # (n_lists,) list numbers by ascending row, for sequential access to truth and sums


class Truth(NamedTuple):
    """Relevant items of every row; an item may occur twice."""

    start: Longs  # (n_rows,)
    end: Longs  # (n_rows,)
    item: Ints  # (n_interactions,)
    stamp: Ints  # (n_items,) scratch, all -1 before the first list


class PerUserSums(NamedTuple):
    """Output of `evaluate_lists` per row, per item and per cell of predicted probability."""

    hits: Ints  # (n_rows,) like the others down to `expected_hits`, all 0 at first
    first: Ints  # rank of the first hit, 0 without a hit
    dcg: Doubles  # of the whole list
    dcg_capped: Doubles  # of the first max_items
    precision_sum: Doubles  # precision at every hit among the first max_items
    expected_hits: Doubles  # sum of the probabilities shown; length 0 for lists without probabilities
    shown_of: Longs  # (n_items,) times shown
    hits_of: Longs  # (n_items,) times hit
    cells: Longs  # (n_cells, 3) shown, sum of probabilities in units of 1 / UNIT, hits


@kernel
def count_distinct(truth: Truth, n_relevant: Ints, relevant_of: Longs) -> None:
    """n_relevant (n_rows,): distinct items of each user; relevant_of (n_items,): users of each item."""
    for row in range(n_relevant.size):
        for k in range(truth.start[row], truth.end[row]):
            item = truth.item[k]
            if truth.stamp[item] != row:
                truth.stamp[item] = row
                relevant_of[item] += 1
                n_relevant[row] += 1
    truth.stamp[:] = -1


@inlined
def _stamp(truth: Truth, row: int) -> None:
    """Mark the relevant items of a row."""
    for k in range(truth.start[row], truth.end[row]):
        truth.stamp[truth.item[k]] = row


@inlined
def _take_hit(truth: Truth, row: int, code: int) -> bool:
    """Return whether an item is in the truth; clear its stamp, so that it counts as one hit at most."""
    if code < 0 or truth.stamp[code] != row:
        return False
    truth.stamp[code] = -1
    return True


@inlined
def _add_probability(sums: PerUserSums, row: int, p: float, hit: bool) -> None:
    """Record a predicted probability and its outcome; skip NaN, which means no prediction."""
    if p != p:
        return
    cell = min(int(p * sums.cells.shape[0]), sums.cells.shape[0] - 1)
    sums.expected_hits[row] += p
    sums.cells[cell, 0] += 1
    sums.cells[cell, 1] += int(p * UNIT + 0.5)  # whole numbers: the sum does not depend on the order
    sums.cells[cell, 2] += hit


@kernel
def evaluate_lists(
    chunk: Chunk,
    truth: Truth,
    probabilities: Doubles,  # (n_shown,) or length 0
    discount: Doubles,  # (>= longest list,) 1 / log2(rank + 1)
    max_items: int,
    sums: PerUserSums,
) -> None:
    """Evaluate every list of the chunk that has a row."""
    order, last = chunk.order, chunk.order.size - 1
    starts_at, items_at = np.uintp(chunk.indptr.ctypes.data), np.uintp(chunk.items.ctypes.data)
    for place in range(order.size):
        number = order[place]
        # lists in another order than the rows lie anywhere in memory
        prefetch_row(starts_at + np.uintp(8 * order[min(place + 2 * AHEAD, last)]), ONE_LINE)
        ahead = chunk.indptr[order[min(place + AHEAD, last)]]
        prefetch_row(items_at + np.uintp(4 * ahead), TWO_LINES)
        row = chunk.row[number]
        if row < 0:
            continue
        _stamp(truth, row)
        start = chunk.indptr[number]
        hits, dcg, capped, precisions = 0, 0.0, 0.0, 0.0
        for at in range(start, chunk.indptr[number + 1]):
            rank = at - start
            code = chunk.code[chunk.items[at]]
            if code >= 0:
                sums.shown_of[code] += 1
            hit = _take_hit(truth, row, code)
            if probabilities.size:
                _add_probability(sums, row, probabilities[at], hit)
            if not hit:
                continue
            hits += 1
            sums.hits_of[code] += 1
            if hits == 1:
                sums.first[row] = rank + 1
            dcg += discount[rank]
            if rank < max_items:
                capped += discount[rank]
                precisions += hits / (rank + 1)
        sums.hits[row] = hits
        sums.dcg[row] = dcg
        sums.dcg_capped[row] = capped
        sums.precision_sum[row] = precisions


@kernel
def mark_hits(chunk: Chunk, truth: Truth, relevant: Bools) -> None:
    """relevant (n_shown,), False at first: whether each shown item is in its user's truth."""
    for number in chunk.order:
        row = chunk.row[number]
        if row < 0:
            continue
        _stamp(truth, row)
        for at in range(chunk.indptr[number], chunk.indptr[number + 1]):
            relevant[at] = _take_hit(truth, row, chunk.code[chunk.items[at]])


@kernel
def sum_prefixes(
    indptr: Longs,  # (n_lists + 1,)
    relevant: Bools,  # (n_shown,)
    n_relevant: Ints,  # (n_lists,) size of each list's truth
    numbers: Longs,  # lists to add, in this order
    discount: Doubles,  # (>= max(max_items, n_max),)
    ideal: Doubles,  # (same + 1,) ideal[n] = sum of the first n discounts
    max_items: int,
    sums: Doubles,  # (n_max, 6) F1, precision, recall, NDCG, paper's NDCG, length; of the top 1, 2, …
) -> None:
    """Add every list's metrics at every fixed length; a list shorter than N counts whole."""
    n_max = sums.shape[0]
    for number in numbers:
        start = indptr[number]
        length = indptr[number + 1] - start
        if length == 0:
            continue
        size = max(n_relevant[number], 1)  # without relevant items there are no hits to divide
        hits, dcg, capped = 0, 0.0, 0.0
        for n in range(1, n_max + 1):
            if n <= length and relevant[start + n - 1]:
                hits += 1
                dcg += discount[n - 1]
                if n <= max_items:
                    capped += discount[n - 1]
            shown = min(n, length)
            sums[n - 1, 0] += 2 * hits / (shown + size)
            sums[n - 1, 1] += hits / shown
            sums[n - 1, 2] += hits / size
            sums[n - 1, 3] += capped / ideal[min(max_items, size)]
            sums[n - 1, 4] += dcg / ideal[min(shown, size)]
            sums[n - 1, 5] += shown


@kernel
def find_best_prefixes(indptr: Longs, relevant: Bools, n_relevant: Ints, best: Longs) -> None:
    """best (n_lists,), zeros at first: length of the shortest prefix with the highest F1; 0 without a hit."""
    for number in range(best.size):
        start = indptr[number]
        hits, top = 0, 0.0
        for at in range(start, indptr[number + 1]):
            if not relevant[at]:
                continue  # F1 can only rise at a hit
            hits += 1
            f1 = 2 * hits / (at - start + 1 + n_relevant[number])
            if f1 > top:
                top = f1
                best[number] = at - start + 1


@kernel
def count_shown_repeats(chunk: Chunk, truth: Truth, history: Truth, shown: Ints, hits: Ints) -> None:
    """shown, hits (n_rows,): shown items and hits that the user's history contains."""
    for number in chunk.order:
        row = chunk.row[number]
        if row < 0:
            continue
        _stamp(truth, row)
        _stamp(history, row)
        for at in range(chunk.indptr[number], chunk.indptr[number + 1]):
            code = chunk.code[chunk.items[at]]
            hit = _take_hit(truth, row, code)
            if code >= 0 and history.stamp[code] == row:
                shown[row] += 1
                hits[row] += hit


@kernel
def count_repeated_items(truth: Truth, history: Truth, repeated: Ints) -> None:
    """repeated (n_rows,): distinct truth items that the user's history contains."""
    for row in range(repeated.size):
        _stamp(history, row)
        for k in range(truth.start[row], truth.end[row]):
            item = truth.item[k]
            if history.stamp[item] == row:
                history.stamp[item] = -1
                repeated[row] += 1
    history.stamp[:] = -1


@kernel
def resample_means(values: Doubles, state: State, means: Doubles) -> None:
    """means (n_resamples,): the mean of each bootstrap sample of the values."""
    for r in range(means.size):
        total = 0.0
        for _ in range(values.size):
            total += values[next_below(state, values.size)]
        means[r] = total / values.size
