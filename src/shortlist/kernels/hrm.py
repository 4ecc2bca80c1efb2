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
from shortlist.kernels.rows import Width
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
def context_pool(contexts: Contexts, group: int, items: Floats, out: Floats) -> None:
    """First layer: the context's items into `out` (n_factors,)."""
    begin, end = contexts.begin[group], contexts.end[group]
    for f in range(out.size):
        out[f] = items[contexts.item[begin], f]
    for row in range(begin + 1, end):
        v = items[contexts.item[row]]
        for f in range(out.size):
            out[f] = max(out[f], v[f]) if contexts.max_items else out[f] + v[f]
    if not contexts.max_items:
        scale = ONE / np.float32(end - begin)
        for f in range(out.size):
            out[f] *= scale


@inlined
def user_pool(max_user: bool, p: Floats, context: Floats, out: Floats) -> None:
    """Second layer: the user and the pooled context into `out` (n_factors,)."""
    for f in range(out.size):
        out[f] = max(p[f], context[f]) if max_user else HALF * (p[f] + context[f])


@inlined
def pull_split(
    max_user: bool, pull: Floats, lr: np.float32, shrink: np.float32, p: Floats, context: Floats, debt: Floats
) -> None:
    """Hand the pull on the score vector to the user now, and to the context's account `debt`."""
    for f in range(p.size):
        if max_user:
            mine = pull[f] if p[f] >= context[f] else ZERO
            theirs = pull[f] - mine
        else:
            mine = HALF * pull[f]
            theirs = mine
        p[f] = shrink * p[f] + lr * mine
        debt[f] += lr * theirs


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
    pairs, n_factors, n_items = 0, len(width), theta.item.shape[0]
    user_shrink, item_shrink = ONE - rates.lr * rates.reg_user, ONE - rates.lr * rates.reg_item
    negative_shrink = ONE - rates.lr * rates.reg_negative
    context, hybrid, pull_h = (
        np.empty(n_factors, np.float32),
        np.empty(n_factors, np.float32),
        np.empty(n_factors, np.float32),
    )
    at = np.uintp(hybrid.ctypes.data)
    for visit in range(groups.size):
        user = contexts.user[groups[visit]]
        p, debt = theta.user[user], debts[visit]
        debt[:] = ZERO
        if contexts.begin[groups[visit]] == contexts.end[groups[visit]]:
            continue  # a first basket: nothing stood before it
        context_pool(contexts, groups[visit], snapshot, context)
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
            user_pool(contexts.max_user, p, context, hybrid)
            if example:
                target = item if relevant else other
                q = theta.item[target]
                score = theta.bias[target] if theta.bias.size else ZERO
                for f in range(n_factors):
                    score += hybrid[f] * q[f]
                pull = class_pull(rates.loss, score, theta.boundary[user], relevant)
                if relevant:
                    pull *= rates.weight
                if rates.learn_boundary:
                    theta.boundary[user] = boundary_step(
                        theta.boundary[user], pull, rates.lr, rates.t, rates.lambda_t, rates.penalty
                    )
                shrink = item_shrink if relevant else negative_shrink
                step = rates.lr * pull
                for f in range(n_factors):
                    pull_h[f] = pull * q[f]
                    q[f] = shrink * q[f] + step * hybrid[f]
                if theta.bias.size:
                    theta.bias[target] += step
            else:
                other = hardest_draw(at, theta, other, rates.draws, stamp, mark, word, width)
                if stamp[other] == mark:
                    continue
                q, r = theta.item[item], theta.item[other]
                margin = theta.bias[item] - theta.bias[other] if theta.bias.size else ZERO
                for f in range(n_factors):
                    margin += hybrid[f] * (q[f] - r[f])
                pull = rank_pull(margin)
                step = rates.lr * pull
                for f in range(n_factors):
                    qf, rf = q[f], r[f]
                    pull_h[f] = pull * (qf - rf)
                    q[f] = item_shrink * qf + step * hybrid[f]
                    r[f] = negative_shrink * rf - step * hybrid[f]
                if theta.bias.size:
                    theta.bias[item] += step
                    theta.bias[other] -= step
                pairs += 1
            pull_split(contexts.max_user, pull_h, rates.lr, user_shrink, p, context, debt)
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
                        for f in range(n_factors):
                            items[item, f] += scale * debt[f]
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
) -> None:
    """The score vector of each user at prediction time; a user without context is the user alone."""
    context = np.empty(out.shape[1], np.float32)
    for number in range(users.size):
        p = user_factors[users[number]]
        if contexts.begin[number] == contexts.end[number]:
            out[number] = p
            continue
        context_pool(contexts, number, item_factors, context)
        user_pool(contexts.max_user, p, context, out[number])
