"""What metrics of ragged lists are computed from: labels, sums per list and per prefix."""

from typing import NamedTuple

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Ints, Longs

UNIT = 2.0**32  # of sums of probabilities: two billion of them fit in a cell


class TruthSets(NamedTuple):
    """Relevant items of every user."""

    indptr: Longs  # (n_users + 1,)
    item: Ints  # (n_relevant,) distinct items of each user
    weight: Doubles  # (n_relevant,), or (0,) if gains are not weighted
    stamp: Ints  # (n_items,) scratch, all -1 before the first list


class ListTotals(NamedTuple):
    """Output of `add_lists` per row, per item and per cell of predicted probability."""

    hits: Ints  # (n_rows,) like the others down to `gain_dcg`, all 0 at first
    first: Ints  # rank of the first hit, 0 without a hit
    dcg: Doubles  # of the whole list
    dcg_capped: Doubles  # of the first max_items
    precision_sum: Doubles  # precision at every hit among the first max_items
    expected_hits: Doubles  # sum of the probabilities shown
    gain: Doubles  # weights of the hits
    gain_dcg: Doubles  # the same discounted, among the first max_items
    shown_of: Longs  # (n_items,) times shown
    hits_of: Longs  # (n_items,) times hit
    cells: Longs  # (n_cells, 3) shown, sum of probabilities in units of 1 / UNIT, hits


@kernel
def mark_hits(
    indptr: Longs,  # (n_lists + 1,)
    items: Ints,  # (n_shown,)
    code: Ints,  # (n_list_items,) index in the truth of each item, -1 for unknown items
    user: Ints,  # (n_lists,) index in the truth of each user, -1 for unknown users
    truth: TruthSets,
    relevant: Bools,  # (n_shown,) False at first, filled: whether the item is in its user's truth
    gains: Doubles,  # (n_shown,) 0 at first, filled with its weight; or (0,)
) -> None:
    """Mark the relevant items of every list; an item counts as one hit at most."""
    truth_start, members, weight, stamp = truth  # arrays of their own are read without counting references
    for number in range(user.size):
        u = user[number]
        if u < 0:
            continue
        start, end = truth_start[u], truth_start[u + 1]
        for k in range(start, end):
            stamp[members[k]] = k
        for at in range(indptr[number], indptr[number + 1]):
            item = code[items[at]]
            if item >= 0 and start <= stamp[item] < end:
                relevant[at] = True
                if weight.size:
                    gains[at] = weight[stamp[item]]
                stamp[item] = -1


@inlined
def _add_probability(totals: ListTotals, row: int, p: float, hit: bool) -> None:
    """Record a predicted probability and its outcome; skip NaN, which means no prediction."""
    if p != p:
        return
    cell = min(int(p * totals.cells.shape[0]), totals.cells.shape[0] - 1)
    totals.expected_hits[row] += p
    totals.cells[cell, 0] += 1
    totals.cells[cell, 1] += int(p * UNIT + 0.5)  # whole numbers: the sum does not depend on the order
    totals.cells[cell, 2] += hit


@kernel
def add_lists(
    indptr: Longs,  # (n_lists + 1,)
    items: Ints,  # (n_shown,)
    row: Ints,  # (n_lists,) where the totals of each list are; -1 for lists that do not count
    relevant: Bools,  # (n_shown,)
    gains: Doubles,  # (n_shown,) or length 0
    probabilities: Doubles,  # (n_shown,) or length 0
    discount: Doubles,  # (>= longest list,) 1 / log2(rank + 1)
    max_items: int,
    totals: ListTotals,
) -> None:
    """Add up what the metrics of every list are computed from."""
    shown_of, hits_of = totals.shown_of, totals.hits_of  # arrays of their own, as above
    for number in range(row.size):
        r, start = row[number], indptr[number]
        if r < 0:
            continue
        hits, dcg, capped, precisions = 0, 0.0, 0.0, 0.0
        for at in range(start, indptr[number + 1]):
            shown_of[items[at]] += 1
            if probabilities.size:
                _add_probability(totals, r, probabilities[at], relevant[at])
            if not relevant[at]:
                continue
            rank = at - start
            hits += 1
            hits_of[items[at]] += 1
            if hits == 1:
                totals.first[r] = rank + 1
            dcg += discount[rank]
            if rank < max_items:
                capped += discount[rank]
                precisions += hits / (rank + 1)
            if gains.size:
                totals.gain[r] += gains[at]
                totals.gain_dcg[r] += gains[at] * discount[rank] if rank < max_items else 0.0
        totals.hits[r] = hits
        totals.dcg[r] = dcg
        totals.dcg_capped[r] = capped
        totals.precision_sum[r] = precisions


@kernel
def fill_prefix_sums(
    indptr: Longs,  # (n_lists + 1,)
    relevant: Bools,  # (n_shown,)
    discount: Doubles,  # (>= longest list,)
    max_items: int,
    hits: Ints,  # (n_shown,) like the others: hits, rank of the first hit, DCG, DCG of the first max_items …
    first: Ints,
    dcg: Doubles,
    dcg_capped: Doubles,
    precision_sum: Doubles,  # … and precision at every hit among them
) -> None:
    """Fill the sums of `add_lists` for the list that ends at each position."""
    for number in range(indptr.size - 1):
        n_hits, rank_of_first, total, capped, precisions = 0, 0, 0.0, 0.0, 0.0
        for at in range(indptr[number], indptr[number + 1]):
            rank = at - indptr[number]
            if relevant[at]:
                n_hits += 1
                rank_of_first = rank + 1 if n_hits == 1 else rank_of_first
                total += discount[rank]
                if rank < max_items:
                    capped += discount[rank]
                    precisions += n_hits / (rank + 1)
            hits[at], first[at] = n_hits, rank_of_first
            dcg[at], dcg_capped[at], precision_sum[at] = total, capped, precisions


@kernel
def add_at_lengths(indptr: Longs, values: Doubles, sums: Doubles) -> None:
    """sums (n_max, n_metrics) += values (n_shown, n_metrics) at N = 1 … n_max; short lists count whole."""
    for number in range(indptr.size - 1):
        start, length = indptr[number], indptr[number + 1] - indptr[number]
        if length > 0:
            for n in range(sums.shape[0]):
                for metric in range(sums.shape[1]):
                    sums[n, metric] += values[start + min(n, length - 1), metric]


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
