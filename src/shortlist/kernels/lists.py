"""Ragged lists: metrics, expected utilities, features, labels, bets."""

import math
from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import exact, inlined, kernel
from shortlist.kernels.rng import next_below
from shortlist.kernels.simd import factor_width, prefetch_row
from shortlist.types import Bools, Doubles, Ints, Longs, State

AHEAD = 12  # lists between a prefetch and its use
ONE_LINE = factor_width(16)  # a cache line, in 32-bit numbers
LARGEST_BET = 0.75  # as a share of the bet that could lose everything
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
    last = user.size - 1
    starts_at, members_at = np.uintp(truth_start.ctypes.data), np.uintp(members.ctypes.data)
    for number in range(user.size):
        # users in another order than those of the truth have theirs anywhere in memory
        prefetch_row(starts_at + np.uintp(8 * max(user[min(number + 2 * AHEAD, last)], 0)), ONE_LINE)
        ahead = truth_start[max(user[min(number + AHEAD, last)], 0)]
        prefetch_row(members_at + np.uintp(4 * ahead), ONE_LINE)
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


@kernel
def resample_means(values: Doubles, state: State, means: Doubles) -> None:
    """means (n_resamples,): the mean of each bootstrap sample of the values."""
    for r in range(means.size):
        total = 0.0
        for _ in range(values.size):
            total += values[next_below(state, values.size)]
        means[r] = total / values.size


NEGLIGIBLE = 1e-16  # smaller probabilities are dropped from the upper tail of relevant candidates
TAIL_MASS = 1e-12  # the tail of missed items from here on is assigned to one value
LONGEST_TAIL = 1024  # largest support of the missed items


@inlined
def fill_count_pmf(pmf: Doubles, mean: float, dispersion: float) -> int:
    """Fill pmf with a negative binomial (Poisson at dispersion 0); return the size of its support."""
    if dispersion > 1e-9:
        odds = dispersion * mean / (1.0 + dispersion * mean)
        size = 1.0 / dispersion
        mass = math.exp(-size * math.log1p(dispersion * mean))
    else:
        odds, size, mass = mean, 0.0, math.exp(-mean)
    remaining = 1.0
    for m in range(pmf.size):
        pmf[m] = mass
        remaining -= mass
        if (m > mean and mass < TAIL_MASS) or m == pmf.size - 1:
            pmf[m] += max(remaining, 0.0)
            return m + 1
        mass *= (odds * (m + size) if dispersion > 1e-9 else odds) / (m + 1.0)
    return pmf.size


@inlined
def convolve(pmf: Doubles, support: int, p: float) -> int:
    """Convolve with one Bernoulli variable; return the new support."""
    pmf[support] = 0.0
    for m in range(support, 0, -1):
        pmf[m] += p * (pmf[m - 1] - pmf[m])
    pmf[0] *= 1.0 - p
    support += 1
    while support > 1 and pmf[support - 1] < NEGLIGIBLE:
        support -= 1
    return support


@inlined
def _deconvolve(pmf: Doubles, support: int, p: float, rest: Doubles) -> None:
    """Deconvolve one Bernoulli variable into `rest`, from the end where errors shrink."""
    if p <= 0.5:
        scale, before = 1.0 / (1.0 - p), 0.0
        ratio = p * scale
        for m in range(support):
            before = pmf[m] * scale - ratio * before
            rest[m] = before
    else:
        scale, after = 1.0 / p, 0.0
        ratio = (1.0 - p) * scale
        for m in range(support - 1, 0, -1):
            after = pmf[m] * scale - ratio * after
            rest[m - 1] = after


@inlined
def argmax(curve: Doubles) -> int:
    """Return the length with the largest utility, the shortest of equals; 0 if no utility is positive."""
    best, length = 0.0, 0
    for k in range(curve.size):
        if curve[k] > best * (1.0 + 1e-12):
            best, length = curve[k], k + 1
    return length


@inlined
def _fill_f1_factor(factor: Doubles, n: int, missed: Doubles, n_missed: int, over: Doubles) -> None:
    """factor[k + m] = E[2 / (k + m + missed)] for k + m < n; over[c] = 2 / c."""
    for total in range(1, n):
        value = 0.0
        for z in range(n_missed):
            value += missed[z] * over[total + z]
        factor[total] = value


@inlined
def _fill_ndcg_factor(
    factor: Doubles, width: int, support: int, missed: Doubles, n_missed: int, ideal: Doubles
) -> None:
    """factor[k·support + m] = E[1 / ideal(min(k, m + missed))] for 1 ≤ k ≤ width, 1 ≤ m < support."""
    for m in range(1, support):
        below, remaining = 0.0, 1.0  # contribution of m + missed < k, and the probability of the rest
        for k in range(1, width + 1):
            if k > m and k - 1 - m < n_missed:
                below += missed[k - 1 - m] / ideal[k - 1]
                remaining -= missed[k - 1 - m]
            factor[k * support + m] = below + max(remaining, 0.0) / ideal[k]


@inlined
def _reciprocals(width: int) -> Doubles:
    """Return 2 / c for every c = length + n that can occur."""
    over = np.empty(2 * width + LONGEST_TAIL + 2)
    over[0] = 0.0
    for c in range(1, over.size):
        over[c] = 2.0 / c
    return over


@kernel
def compute_joint_utilities(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    missed: Doubles,  # (n_lists,) expected number of relevant items that are not candidates
    dispersion: float,
    ndcg: bool,  # instead of F1
    ideal: Doubles,  # (n_candidates + 1,) ideal DCG by length
    curve: Doubles,  # (n_candidates,) filled: expected utility of the list that ends at this candidate
    lengths: Ints,  # (n_lists,) filled: where it is largest
) -> None:
    """Compute the expected utilities if n = relevant candidates + missed items."""
    width = ideal.size - 1
    pmf, rest, joint = np.empty(width + 2), np.empty(width + 2), np.empty(width + 2)
    factor, others, over = np.zeros((width + 1) * (width + 2)), np.empty(LONGEST_TAIL), _reciprocals(width)
    for u in range(indptr.size - 1):
        chances = p[indptr[u] : indptr[u + 1]]
        support = 1
        pmf[0] = 1.0
        for i in range(chances.size):
            support = convolve(pmf, support, chances[i])
        n_missed = fill_count_pmf(others, missed[u], dispersion)
        if ndcg:
            _fill_ndcg_factor(factor, chances.size, support, others, n_missed, ideal)
        else:
            _fill_f1_factor(factor, chances.size + support, others, n_missed, over)
        joint[:support] = 0.0
        for i in range(chances.size):
            _deconvolve(pmf, support, chances[i], rest)
            gain, total = chances[i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0), 0.0
            row = factor[(i + 1) * (support if ndcg else 1) :]
            for m in range(1, support):
                joint[m] += gain * rest[m - 1]
                total += joint[m] * row[m]
            curve[indptr[u] + i] = total
        lengths[u] = argmax(curve[indptr[u] : indptr[u + 1]])


@kernel
def compute_independent_utilities(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    mean_minus_one: Doubles,  # (n_lists,) mean of n − 1
    dispersion: float,
    ndcg: bool,
    ideal: Doubles,  # (n_candidates + 1,)
    curve: Doubles,  # (n_candidates,) filled
    lengths: Ints,  # (n_lists,) filled
) -> None:
    """The same if n = 1 + a negative binomial variable that is independent of the candidates."""
    width = ideal.size - 1
    factor, others, over = np.zeros(2 * width + 2), np.empty(LONGEST_TAIL), _reciprocals(width)
    for u in range(indptr.size - 1):
        size = indptr[u + 1] - indptr[u]
        n_others = fill_count_pmf(others, mean_minus_one[u], dispersion)
        if ndcg:
            _fill_ndcg_factor(factor, size, 2, others, n_others, ideal)
        else:
            _fill_f1_factor(factor, size + 2, others, n_others, over)
        gain = 0.0
        for i in range(size):
            gain += p[indptr[u] + i] * (ideal[i + 1] - ideal[i] if ndcg else 1.0)
            curve[indptr[u] + i] = gain * factor[2 * i + 3 if ndcg else i + 2]
        lengths[u] = argmax(curve[indptr[u] : indptr[u + 1]])


@exact
def _sum_in_order(values: Doubles, first: int, last: int) -> float:
    """Return the sum of values[first] … values[last - 1], from the first to the last."""
    total = 0.0
    for k in range(first, last):
        total += values[k]
    return total


@kernel
def fill_f1_levels(
    indptr: Longs,  # (n_lists + 1,)
    p: Doubles,  # (n_candidates,)
    curve: Doubles,  # (n_candidates,) expected F1 of the list that ends with each candidate
    lengths: Ints,  # (n_lists,) of the best lists
    level: Doubles,  # (n_lists,) filled
) -> None:
    """level: the probability below which the next candidate lowers the expected F1 of the best list."""
    for u in range(lengths.size):
        first, end = indptr[u], indptr[u] + lengths[u]
        best = curve[end - 1] if lengths[u] > 0 else 0.0
        share = 0.5
        if 0 < lengths[u] < indptr[u + 1] - first:
            # 1 / g(k) is the sum of the probabilities over the expected F1
            total = _sum_in_order(p, first, end)
            rise = (total + p[end]) / curve[end] - total / best
            if np.isfinite(rise):
                share = rise
        level[u] = share * best


@kernel
def fill_basket_sizes(
    user: Ints,  # (n,) -1: unknown
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    usual: float,  # mean size of all baskets, for users without any
    out: Doubles,  # (n, 4) filled
) -> None:
    """Mean size of each user's baskets, sizes of the last and the one before, number of baskets."""
    for k in range(user.size):
        u = user[k]
        first, end = (user_baskets[u], user_baskets[u + 1]) if u >= 0 else (0, 0)
        n = end - first
        mean = (baskets[end] - baskets[first]) / n if n > 0 else usual
        out[k, 0] = mean
        out[k, 1] = baskets[end] - baskets[end - 1] if n > 0 else mean
        out[k, 2] = baskets[end - 1] - baskets[end - 2] if n > 1 else mean
        out[k, 3] = n


@kernel
def fill_rank_features(indptr: Longs, scores: Doubles, out: Doubles) -> None:
    """out (n_candidates, ≥ 4): score, gap to the top score, log of the rank, 1 / rank."""
    for number in range(indptr.size - 1):
        for at in range(indptr[number], indptr[number + 1]):
            rank = at - indptr[number] + 1.0
            out[at, 0] = scores[at]
            out[at, 1] = scores[indptr[number]] - scores[at]
            out[at, 2] = np.log(rank)
            out[at, 3] = 1.0 / rank


@kernel
def fill_history_features(
    indptr: Longs,  # (n_lists + 1,)
    candidates: Ints,  # (n_candidates,) item indices of the history; -1: unknown item
    user: Ints,  # (n_lists,) user indices of the history; -1: unknown user
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_popularity: Doubles,  # (n_items + 1,), the last value for unknown items
    user_features: Doubles,  # (n_lists, 2) log history length, log mean basket size
    out: Doubles,  # (n_candidates, 9) the last five columns are filled
) -> None:
    """History length, basket size, popularity, share of the user's baskets with the item, and its recency."""
    n_items = log_popularity.size - 1
    owner = np.full(n_items, -1, np.int32)
    count, last = np.zeros(n_items, np.int32), np.zeros(n_items, np.int32)
    for number in range(user.size):
        u = user[number]
        first = user_baskets[u] if u >= 0 else 0
        end = user_baskets[u + 1] if u >= 0 else 0
        for basket in range(first, end):
            for row in range(baskets[basket], baskets[basket + 1]):
                i = item[row]
                if owner[i] != number:
                    owner[i], count[i], last[i] = number, 0, -1
                if last[i] != basket - first:  # count a basket once
                    count[i] += 1
                    last[i] = basket - first
        for at in range(indptr[number], indptr[number + 1]):
            i = candidates[at]
            out[at, 4], out[at, 5] = user_features[number, 0], user_features[number, 1]
            out[at, 6] = log_popularity[i]
            bought = i >= 0 and owner[i] == number
            out[at, 7] = count[i] / (end - first) if bought else 0.0
            out[at, 8] = 1.0 / (end - first - last[i]) if bought else 0.0


@kernel
def bet_on_losses(losses: Doubles, limit: float, alpha: float) -> float:
    """log of the largest capital while betting that the mean loss is below the limit.

    losses: (n_lists,) from 0 to 1, in random order; NaN for a list that does not count. Waudby-Smith and
    Ramdas (2024), section 3: each bet depends on the variance of the losses before it. The first variance is
    the largest one whose mean is the limit.
    """
    n = 0
    for loss in losses:
        n += loss == loss
    scale = -2 * math.log(alpha) / max(n, 1)
    log_capital, highest = 0.0, 0.0
    total, squares, seen = limit, limit * (1 - limit), 1
    for loss in losses:
        if loss != loss:
            continue
        bet = min(math.sqrt(scale * seen / squares), LARGEST_BET / (1 - limit))
        log_capital += math.log1p(bet * (limit - loss))
        highest = max(highest, log_capital)
        total += loss
        seen += 1
        squares += (loss - total / seen) ** 2
    return highest
