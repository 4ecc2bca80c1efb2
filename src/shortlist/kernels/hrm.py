"""HRM: the score vector is pooled from the user and the previous basket (paper eq. 12-16; Wang et al., 2015).

Context items lie outside the stratum: they are read from a snapshot taken before the round, and their
gradients are kept per visit and applied after it, in the order of the visits (`context_apply`).
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import boundary_step, class_pull, rank_pull
from shortlist.kernels.mf import Parameters, Rates, hardest_draw
from shortlist.kernels.rng import high_below, low_unit, next_word
from shortlist.kernels.rows import (
    Width,
    hybrid_make,
    hybrid_one_move,
    hybrid_pair_move,
    row_add,
    row_at,
    row_dot,
    row_fetch,
    row_larger,
)
from shortlist.kernels.strata import Strata, block_state
from shortlist.types import Floats, Ints, Longs, State

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)


class Contexts(NamedTuple):
    """What stood before each group: rows begin[g] … end[g] - 1 of `item`."""

    user: Ints  # (n_groups,) owner of each group
    begin: Longs  # (n_groups,)
    end: Longs  # (n_groups,)
    item: Ints  # (n_rows,) in the labelling of the snapshot
    max_items: bool  # pooling over the context's items: max, else average
    max_user: bool  # pooling of user and context: max, else average


@inlined
def context_pool(contexts: Contexts, group: int, items: Floats, out: Floats, width: Width) -> None:
    """First layer: the context's items into `out` (n_factors,)."""
    begin, end, total = contexts.begin[group], contexts.end[group], np.uintp(out.ctypes.data)
    if contexts.max_items:
        out[:] = items[contexts.item[begin]]
        for row in range(begin + 1, end):
            row_larger(total, row_at(items, contexts.item[row]), width)
        return
    scale = ONE / np.float32(end - begin)
    out[:] = ZERO
    for row in range(begin, end):
        row_add(total, row_at(items, contexts.item[row]), scale, width)


@inlined
def user_share(max_user: bool) -> tuple[np.float32, np.float32]:
    """(base, gain) of the second layer: what the user's factors weigh beside the context's."""
    return (ZERO, ONE) if max_user else (HALF, ZERO)


@inlined
def hrm_block(
    starts: Longs,  # (n_visits + 1,)
    groups: Ints,  # (n_visits,)
    liked: Ints,  # items within the range; starts point into it
    contexts: Contexts,
    snapshot: Floats,  # (n_items, n_factors) all items as they were before the round
    theta: Parameters,  # all users, this range's items; updated in place
    debts: Floats,  # (n_visits, n_factors) what the contexts are owed; written
    rates: Rates,
    stamp: Ints,  # (n_range_items,) zeros; scratch
    state: State,  # (1,) random state, advanced in place
    width: Width,
) -> int:
    """One step per liked item, as `mf_block`, with the hybrid vector in the user's place."""
    pairs, n_items = 0, theta.item.shape[0]
    keep_user, keep_item = ONE - rates.lr * rates.reg_user, ONE - rates.lr * rates.reg_item
    keep_negative = ONE - rates.lr * rates.reg_negative
    pooled, hybrid = np.empty(len(width), np.float32), np.empty(len(width), np.float32)
    context, h = np.uintp(pooled.ctypes.data), np.uintp(hybrid.ctypes.data)
    base, gain = user_share(contexts.max_user)
    for visit in range(groups.size):
        user = contexts.user[groups[visit]]
        p, debt = row_at(theta.user, user), row_at(debts, visit)
        debts[visit] = ZERO
        if contexts.begin[groups[visit]] == contexts.end[groups[visit]]:
            continue  # a first basket: nothing stood before it
        ahead = groups[min(visit + 1, groups.size - 1)]
        row_fetch(row_at(theta.user, contexts.user[ahead]), width)
        for row in range(contexts.begin[ahead], contexts.end[ahead]):
            row_fetch(row_at(snapshot, contexts.item[row]), width)
        context_pool(contexts, groups[visit], snapshot, pooled, width)
        mark = visit + 1
        for row in range(starts[visit], starts[visit + 1]):
            stamp[liked[row]] = mark
        share = rates.share
        if share == ZERO:
            n_liked = np.float32(starts[visit + 1] - starts[visit])
            share = n_liked / (np.float32(n_items) + n_liked)  # with the lost draws, even for every item
        for row in range(starts[visit], starts[visit + 1]):
            word = next_word(state)
            item, other, z = np.int64(liked[row]), high_below(word, n_items), low_unit(word)
            example = z < rates.alpha
            relevant = z < rates.alpha * share
            if example and not relevant and stamp[other] == mark:
                continue  # lose the draw, never retry
            hybrid_make(h, p, context, base, gain, width)
            if example:
                target = item if relevant else other
                q = row_at(theta.item, target)
                score = row_dot(h, q, width)
                if theta.bias.size:
                    score += theta.bias[target]
                pull = class_pull(rates.loss, score, theta.boundary[user], relevant)
                if relevant:
                    pull *= rates.weight
                if rates.learn_boundary:
                    theta.boundary[user] = boundary_step(
                        theta.boundary[user], pull, rates.lr, rates.t, rates.lambda_t, rates.penalty
                    )
                step = rates.lr * pull
                keep = keep_item if relevant else keep_negative
                hybrid_one_move(p, debt, q, context, step, keep_user, keep, base, gain, width)
                if theta.bias.size:
                    theta.bias[target] += step
            else:
                other = hardest_draw(h, theta, other, rates.draws, stamp, mark, word, width)
                if stamp[other] == mark:
                    continue
                q, r = row_at(theta.item, item), row_at(theta.item, other)
                margin = row_dot(h, q, width) - row_dot(h, r, width)
                if theta.bias.size:
                    margin += theta.bias[item] - theta.bias[other]
                step = rates.lr * rank_pull(margin)
                hybrid_pair_move(
                    p, debt, q, r, context, step, keep_user, keep_item, keep_negative, base, gain, width
                )
                if theta.bias.size:
                    theta.bias[item] += step
                    theta.bias[other] -= step
                pairs += 1
    return pairs


@kernel
def hrm_round(
    first: int,  # blocks first … last - 1 are run
    last: int,
    turn: int,  # the round
    strata: Strata,
    contexts: Contexts,
    size: int,  # items per range
    snapshot: Floats,
    theta: Parameters,
    debts: Floats,  # (n_visits of the round, n_factors)
    debt_at: Longs,  # (B + 1,) where each block's visits start in debts
    rates: Rates,
    word: np.uint64,
    width: Width,
) -> int:
    """Run some blocks of one round, one after the other; the pairs made."""
    pairs, n_blocks, n_items = 0, debt_at.size - 1, theta.item.shape[0]
    n_ranges = (strata.cells.size - 1) // n_blocks
    each = n_ranges // n_blocks
    stamp = np.empty(size, np.int32)
    for b in range(first, last):
        begin_part, debt_from = (b + turn) % n_blocks * each, debt_at[b]
        for part in range(begin_part, begin_part + each):
            low, high = min(part * size, n_items), min((part + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + part], strata.cells[b * n_ranges + part + 1]
            if begin == end:
                continue
            stamp[:] = 0
            bias = theta.bias[low:high] if theta.bias.size else theta.bias
            pairs += hrm_block(
                strata.starts[begin : end + 1],
                strata.groups[begin:end],
                strata.liked,
                contexts,
                snapshot,
                Parameters(theta.user, theta.boundary, theta.item[low:high], bias),
                debts[debt_from : debt_from + end - begin],
                rates,
                stamp[: high - low],
                block_state(word, b * n_ranges + part),
                width,
            )
            debt_from += end - begin
    return pairs


@kernel
def context_apply(
    low: int,  # only items low … high - 1 are touched, so that threads can share the work
    high: int,
    turn: int,
    strata: Strata,
    contexts: Contexts,
    snapshot: Floats,
    items: Floats,  # (n_items, n_factors), updated in place
    debts: Floats,
    debt_at: Longs,  # (B + 1,)
    width: Width,
) -> None:
    """Pay the contexts after a round: block by block, visit by visit, the same on any number of threads."""
    n_blocks, n_factors = debt_at.size - 1, items.shape[1]
    n_ranges = (strata.cells.size - 1) // n_blocks
    for b in range(n_blocks):
        begin = strata.cells[b * n_ranges + (b + turn) % n_blocks * (n_ranges // n_blocks)]
        for number in range(debt_at[b + 1] - debt_at[b]):
            group, debt = strata.groups[begin + number], debts[debt_at[b] + number]
            first, last = contexts.begin[group], contexts.end[group]
            if first == last:
                continue
            scale = ONE / np.float32(last - first)
            if not contexts.max_items:
                for row in range(first, last):
                    item = contexts.item[row]
                    if low <= item < high:
                        row_add(row_at(items, item), row_at(debts, debt_at[b] + number), scale, width)
                continue
            for f in range(n_factors):
                best = contexts.item[first]
                for row in range(first + 1, last):
                    if snapshot[contexts.item[row], f] > snapshot[best, f]:
                        best = contexts.item[row]
                if low <= best < high:
                    items[best, f] += debt[f]


@kernel
def hybrid_vectors(
    users: Ints,  # (n,) rows of user_factors
    user_factors: Floats,
    item_factors: Floats,
    contexts: Contexts,  # one group per user asked, in their order
    out: Floats,  # (n, n_factors)
    width: Width,
) -> None:
    """The score vector of each user at prediction time; a user without context is the user alone."""
    context, (base, gain) = np.empty(len(width), np.float32), user_share(contexts.max_user)
    for number in range(users.size):
        if contexts.begin[number] == contexts.end[number]:
            out[number] = user_factors[users[number]]
            continue
        context_pool(contexts, number, item_factors, context, width)
        p, pooled = row_at(user_factors, users[number]), np.uintp(context.ctypes.data)
        hybrid_make(row_at(out, number), p, pooled, base, gain, width)
