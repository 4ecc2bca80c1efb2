"""HRM: the score vector is pooled from the user and the previous basket (paper eq. 12-16; Wang et al., 2015).

Context items lie outside the stratum: they are read from a snapshot taken before the round, and their
gradients are kept per visit and applied after it, in the order of the visits (`context_apply`).
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import boundary_step, class_pull, rank_pull
from shortlist.kernels.mf import Lately, Parameters, Rates, hardest_draw
from shortlist.kernels.repeats import Trace, strength, taken
from shortlist.kernels.rng import high_below, low_unit, mixed, next_word
from shortlist.kernels.simd import (
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
from shortlist.kernels.trend import Sales, trend_score
from shortlist.types import Floats, Ints, Longs, State

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
USER_TREND_START = ONE  # where users' weights of recent sales start: log-odds follow the logarithm of sales
OWN = np.uint64(1)  # the bit of a word that holds what is taken again against the rest of the user's past


class Contexts(NamedTuple):
    """What stood before each group: rows begin[g] … end[g] - 1 of `item`."""

    user: Ints  # (n_groups,) owner of each group
    begin: Longs  # (n_groups,)
    end: Longs  # (n_groups,)
    item: Ints  # (n_rows,) in the labelling of the snapshot
    max_items: bool  # pooling over the context's items: max, else average
    max_user: bool  # pooling of user and context: max, else average
    fade: np.float32  # logarithm of what a past basket still counts one basket later
    level: np.float32  # where habits start and what they are drawn back to


@inlined
def context_pool(contexts: Contexts, group: int, items: Floats, out: Floats, width: Width) -> None:
    """First layer: the context's items into `out` (n_factors,)."""
    begin, end, total = contexts.begin[group], contexts.end[group], np.uintp(out.ctypes.data)
    if contexts.max_items:
        for f in range(len(width)):  # an assignment of arrays would compile its error message too
            out[f] = items[contexts.item[begin], f]
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
    trace: Trace,  # `held` zeros; scratch, empty where the past does not count
    sales: Sales,  # of this range's items
    state: State,  # (1,) random state, advanced in place
    width: Width,
) -> int:
    """One step per liked item, as `mf_block`, with the hybrid vector in the user's place.

    A range's visits come user by user, basket by basket, so that what a user took before has just gone by.
    """
    pairs, n_items = 0, theta.item.shape[0]
    keep_user, keep_item = ONE - rates.lr * rates.reg_user, ONE - rates.lr * rates.reg_item
    keep_negative = ONE - rates.lr * rates.reg_negative
    pooled, hybrid = np.empty(len(width), np.float32), np.empty(len(width), np.float32)
    context, h = np.uintp(pooled.ctypes.data), np.uintp(hybrid.ctypes.data)
    base, gain = user_share(contexts.max_user)
    recall, fade, level = theta.item_repeat.size > 0, contexts.fade, contexts.level
    trend = theta.item_trend.size > 0
    n_past, owner, today, usual = 0, np.int32(-1), np.int32(0), ZERO
    for visit in range(groups.size):
        group = groups[visit]
        user = contexts.user[group]
        if user != owner:
            n_past, owner = 0, user
        p, debt = row_at(theta.user, user), row_at(debts, visit)
        debts[visit] = ZERO
        if contexts.begin[group] == contexts.end[group]:  # a first basket: nothing stood before it
            if recall:
                for row in range(starts[visit], starts[visit + 1]):
                    n_past = taken(trace, n_past, liked[row], user, group, fade)
            continue
        ahead = groups[min(visit + 1, groups.size - 1)]
        row_fetch(row_at(theta.user, contexts.user[ahead]), width)
        for row in range(contexts.begin[ahead], contexts.end[ahead]):
            row_fetch(row_at(snapshot, contexts.item[row]), width)
        context_pool(contexts, group, snapshot, pooled, width)
        mark = visit + 1
        if trend:
            today, usual = sales.today[group], sales.usual[group]
        for row in range(starts[visit], starts[visit + 1]):
            stamp[liked[row]] = mark
        share = rates.share
        if share == ZERO:
            n_liked = np.float32(starts[visit + 1] - starts[visit])
            share = n_liked / (
                np.float32(n_items) + n_liked
            )  # with the lost negative_draws, even for every item
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
                x = strength(trace, target, user, group, fade) if recall else ZERO
                if recall:
                    score += (theta.user_repeat[user] + theta.item_repeat[target]) * x
                v = trend_score(sales, target, today, usual) if trend else ZERO
                if trend:
                    score += (theta.user_trend[user] + theta.item_trend[target]) * v
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
                if recall:
                    theta.user_repeat[user] = level + keep_user * (theta.user_repeat[user] - level) + step * x
                    theta.item_repeat[target] = keep * theta.item_repeat[target] + step * x
                if trend:
                    theta.user_trend[user] = (
                        USER_TREND_START + keep_user * (theta.user_trend[user] - USER_TREND_START) + step * v
                    )
                    theta.item_trend[target] = keep * theta.item_trend[target] + step * v
            else:
                x = strength(trace, item, user, group, fade) if recall else ZERO
                if x > ZERO and word & OWN:  # taken again: what of the past was not?
                    other = np.int64(trace.history[high_below(mixed(word), n_past)])
                elif rates.negative_draws > 1:
                    lately = Lately(sales, user, today, usual)
                    other = hardest_draw(
                        h, theta, other, rates.negative_draws, stamp, mark, word, width, lately
                    )
                if stamp[other] == mark:
                    continue
                q, r = row_at(theta.item, item), row_at(theta.item, other)
                margin = row_dot(h, q, width) - row_dot(h, r, width)
                if theta.bias.size:
                    margin += theta.bias[item] - theta.bias[other]
                y = strength(trace, other, user, group, fade) if recall else ZERO
                if recall:
                    margin += (theta.user_repeat[user] + theta.item_repeat[item]) * x
                    margin -= (theta.user_repeat[user] + theta.item_repeat[other]) * y
                v, w = ZERO, ZERO
                if trend:
                    v, w = trend_score(sales, item, today, usual), trend_score(sales, other, today, usual)
                    margin += (theta.user_trend[user] + theta.item_trend[item]) * v
                    margin -= (theta.user_trend[user] + theta.item_trend[other]) * w
                step = rates.lr * rank_pull(margin)
                hybrid_pair_move(
                    p, debt, q, r, context, step, keep_user, keep_item, keep_negative, base, gain, width
                )
                if theta.bias.size:
                    theta.bias[item] += step
                    theta.bias[other] -= step
                if recall:
                    theta.user_repeat[user] = (
                        level + keep_user * (theta.user_repeat[user] - level) + step * (x - y)
                    )
                    theta.item_repeat[item] = keep_item * theta.item_repeat[item] + step * x
                    theta.item_repeat[other] = keep_negative * theta.item_repeat[other] - step * y
                if trend:
                    theta.user_trend[user] = (
                        USER_TREND_START
                        + keep_user * (theta.user_trend[user] - USER_TREND_START)
                        + step * (v - w)
                    )
                    theta.item_trend[item] = keep_item * theta.item_trend[item] + step * v
                    theta.item_trend[other] = keep_negative * theta.item_trend[other] - step * w
                pairs += 1
        if recall:
            for row in range(starts[visit], starts[visit + 1]):
                n_past = taken(trace, n_past, liked[row], user, group, fade)
    return pairs


@kernel
def hrm_round(
    first: int,  # blocks first … last - 1 are run
    last: int,
    turn: int,  # the round
    strata: Strata,
    contexts: Contexts,
    sales: Sales,  # in the labelling of the snapshot; empty where they do not count
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
    stamp, room = np.empty(size, np.int32), size if theta.item_repeat.size else 0
    trace = Trace(
        np.empty(room, np.int32),
        np.empty(room, np.float32),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
    )
    for b in range(first, last):
        begin_part, debt_from = (b + turn) % n_blocks * each, debt_at[b]
        for part in range(begin_part, begin_part + each):
            low, high = min(part * size, n_items), min((part + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + part], strata.cells[b * n_ranges + part + 1]
            if begin == end:
                continue
            stamp[:] = 0
            trace.held[:] = 0
            bias = theta.bias[low:high] if theta.bias.size else theta.bias
            item_repeat = theta.item_repeat[low:high] if theta.item_repeat.size else theta.item_repeat
            item_trend = theta.item_trend[low:high] if theta.item_trend.size else theta.item_trend
            pairs += hrm_block(
                strata.starts[begin : end + 1],
                strata.groups[begin:end],
                strata.liked,
                contexts,
                snapshot,
                Parameters(
                    theta.user,
                    theta.boundary,
                    theta.item[low:high],
                    bias,
                    theta.user_repeat,
                    item_repeat,
                    theta.user_trend,
                    item_trend,
                ),
                debts[debt_from : debt_from + end - begin],
                rates,
                stamp[: high - low],
                trace,
                Sales(sales.begin[low:high], sales.end[low:high], *sales[2:]),
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
    user_factors: Floats,
    item_factors: Floats,
    contexts: Contexts,  # one group per vector asked for
    out: Floats,  # (n, n_factors)
    width: Width,
) -> None:
    """The score vector of each user at prediction time; a user without context is the user alone."""
    context, (base, gain) = np.empty(len(width), np.float32), user_share(contexts.max_user)
    for number in range(contexts.user.size):
        if contexts.begin[number] == contexts.end[number]:
            for f in range(len(width)):
                out[number, f] = user_factors[contexts.user[number], f]
            continue
        context_pool(contexts, number, item_factors, context, width)
        p, pooled = row_at(user_factors, contexts.user[number]), np.uintp(context.ctypes.data)
        hybrid_make(row_at(out, number), p, pooled, base, gain, width)
