"""HRM: the score vector blends the user and the previous baskets (paper eq. 12-16; Wang et al., 2015).

Context items may lie outside the stratum. They are read from a snapshot made before the round. Their
gradients are stored per visit and applied after the round in the order of the visits
(`apply_context_gradients`).
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import boundary_step, class_descent, rank_descent
from shortlist.kernels.mf import Hyperparameters, Parameters, TrendQuery, hardest_negative
from shortlist.kernels.repeats import RepeatCounts, add_purchase, repeat_signal
from shortlist.kernels.rng import index_below, mix_bits, next_bits, unit_float
from shortlist.kernels.simd import (
    FloatPair,
    Width,
    add_row,
    blend_rows,
    keep_larger,
    prefetch_row,
    row_at,
    row_dot,
    step_hybrid_one,
    step_hybrid_pair,
)
from shortlist.kernels.strata import Strata, Visits, cell_state, row_item
from shortlist.kernels.trend import Sales, trend_score
from shortlist.types import Floats, Ints, Longs, State

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
USER_TREND_START = ONE  # initial trend weight of users: log-odds then follow the logarithm of sales
HISTORY_BIT = np.uint64(1)  # the random bit that decides whether a repeat is paired with a history item


class Contexts(NamedTuple):
    """The items before each group: rows begin[g] … end[g] - 1 of `item`."""

    user: Ints  # (n_groups,) the user of each group
    begin: Longs  # (n_groups,)
    end: Longs  # (n_groups,)
    item: Ints  # (n_rows,) in the labeling of the item factors
    max_pool_items: bool  # pool the items of the context by maximum, else by average
    max_pool_user: bool  # pool user and context by maximum, else by average
    log_decay: np.float32  # logarithm of the weight of a basket one basket later
    repeat_start: np.float32  # initial repeat weight of users, toward which it is regularized


class ContextGradients(NamedTuple):
    """The item factors that contexts read in a round, and the gradients that they collect."""

    snapshot: Floats  # (n_items, n_factors) all items before the round
    gradients: Floats  # (n_visits of the round, n_factors) written
    starts: Longs  # (B + 1,) where the visits of each block start in `gradients`


@inlined
def pool_context(contexts: Contexts, group: int, items: Floats, out: Floats, width: Width) -> None:
    """Write the pooled items of a context, the first layer, to `out` (n_factors,)."""
    begin, end, total = contexts.begin[group], contexts.end[group], np.uintp(out.ctypes.data)
    if contexts.max_pool_items:
        for f in range(out.size):  # assigning the array would also compile its error message
            out[f] = items[contexts.item[begin], f]
        for row in range(begin + 1, end):
            keep_larger(total, row_at(items, contexts.item[row]), width)
        return
    scale = ONE / np.float32(end - begin)
    out[:] = ZERO
    for row in range(begin, end):
        add_row(total, row_at(items, contexts.item[row]), scale, width)


@inlined
def user_pooling(max_pool_user: bool) -> FloatPair:
    """Return (base, gain) of the second layer, which weigh the user against the context; see `blend_rows`."""
    return (ZERO, ONE) if max_pool_user else (HALF, ZERO)


@inlined
def hrm_block(
    visits: Visits,
    contexts: Contexts,
    snapshot: Floats,  # (n_items, n_factors) all items before the round
    gradients: Floats,  # (n_visits, n_factors) gradients of the contexts; written
    sales: Sales,  # of the items of this range
    theta: Parameters,  # all users, items of this range; updated in place
    hyper: Hyperparameters[np.float32],
    scratch: tuple[Ints, RepeatCounts],  # `liked_in` (n_range_items,) and `owner` zeros; counts may be empty
    state: State,  # (1,) random state, advanced in place
    width: Width,
) -> int:
    """Make one step per row, as `mf_block`, with the blended vector instead of the user's.

    The visits of a range are sorted by user and basket, so the counts hold the user's earlier purchases.
    """
    starts, groups, liked = visits
    liked_in, counts = scratch
    own_rows = hyper.positive_rate == ZERO
    pairs, n_items = 0, theta.item.shape[0]
    shrink_user, shrink_item = ONE - hyper.lr * hyper.reg_user, ONE - hyper.lr * hyper.reg_item
    shrink_negative = ONE - hyper.lr * hyper.reg_negative
    n_factors = snapshot.shape[1]
    pooled, hybrid = np.empty(n_factors, np.float32), np.empty(n_factors, np.float32)
    context, h = np.uintp(pooled.ctypes.data), np.uintp(hybrid.ctypes.data)
    pooling = user_pooling(contexts.max_pool_user)
    log_decay, repeat_start = contexts.log_decay, contexts.repeat_start
    use_repeats, use_trend = theta.item_repeat.size > 0, theta.item_trend.size > 0
    n_history, latest_user, day, recent_share = 0, np.int32(-1), np.int32(0), ZERO
    for visit in range(groups.size):
        group = groups[visit]
        user = contexts.user[group]
        if user != latest_user:
            n_history, latest_user = 0, user
        p, gradient = row_at(theta.user, user), row_at(gradients, visit)
        gradients[visit] = ZERO
        if contexts.begin[group] == contexts.end[group]:  # the user's first basket has no context
            if use_repeats:
                for row in range(starts[visit], starts[visit + 1]):
                    n_history = add_purchase(counts, n_history, liked[row], user, group, log_decay)
            continue
        ahead = groups[min(visit + 1, groups.size - 1)]
        prefetch_row(row_at(theta.user, contexts.user[ahead]), width)
        for row in range(contexts.begin[ahead], contexts.end[ahead]):
            prefetch_row(row_at(snapshot, contexts.item[row]), width)
        pool_context(contexts, group, snapshot, pooled, width)
        visit_id = visit + 1
        if use_trend:
            day, recent_share = sales.group_day[group], sales.recent_share[group]
        for row in range(starts[visit], starts[visit + 1]):
            if liked[row] >= 0:
                liked_in[liked[row]] = visit_id
        for row in range(starts[visit], starts[visit + 1]):
            bits = next_bits(state)
            item, other, z = np.int64(row_item(liked[row])), index_below(bits, n_items), unit_float(bits)
            is_drawn = liked[row] < 0
            if own_rows and not is_drawn and z < hyper.alpha:
                continue
            is_example = is_drawn or z < hyper.alpha
            relevant = liked_in[item] == visit_id if is_drawn else z < hyper.alpha * hyper.positive_rate
            target = item if relevant or is_drawn else other
            if is_example and not relevant and liked_in[target] == visit_id:
                continue  # no second draw
            blend_rows(h, p, context, pooling, width)
            if is_example:
                q = row_at(theta.item, target)
                score = row_dot(h, q, width)
                if theta.bias.size:
                    score += theta.bias[target]
                repeat = repeat_signal(counts, target, user, group, log_decay) if use_repeats else ZERO
                if use_repeats:
                    score += (theta.user_repeat[user] + theta.item_repeat[target]) * repeat
                trend = trend_score(sales, target, day, recent_share) if use_trend else ZERO
                if use_trend:
                    score += (theta.user_trend[user] + theta.item_trend[target]) * trend
                descent = class_descent(hyper.loss, score, theta.boundary[user], relevant)
                if relevant:
                    descent *= hyper.positive_weight
                if hyper.learn_boundary:
                    theta.boundary[user] = boundary_step(
                        theta.boundary[user], descent, hyper.lr, hyper.t, hyper.lambda_t, hyper.penalty
                    )
                step = hyper.lr * descent
                shrink = shrink_item if relevant else shrink_negative
                step_hybrid_one(p, gradient, q, context, step, (shrink_user, shrink), pooling, width)
                if theta.bias.size:
                    theta.bias[target] += step
                if use_repeats:
                    theta.user_repeat[user] = (
                        repeat_start + shrink_user * (theta.user_repeat[user] - repeat_start) + step * repeat
                    )
                    theta.item_repeat[target] = shrink * theta.item_repeat[target] + step * repeat
                if use_trend:
                    theta.user_trend[user] = (
                        USER_TREND_START
                        + shrink_user * (theta.user_trend[user] - USER_TREND_START)
                        + step * trend
                    )
                    theta.item_trend[target] = shrink * theta.item_trend[target] + step * trend
            else:
                repeat = repeat_signal(counts, item, user, group, log_decay) if use_repeats else ZERO
                if repeat > ZERO and bits & HISTORY_BIT:  # a repeat: compare with another item of the history
                    other = np.int64(counts.history[index_below(mix_bits(bits), n_history)])
                elif hyper.negative_draws > 1:
                    trend_query = TrendQuery(sales, user, day, recent_share)
                    other = hardest_negative(
                        h, theta, other, hyper.negative_draws, liked_in, visit_id, bits, width, trend_query
                    )
                if liked_in[other] == visit_id:
                    continue
                q, r = row_at(theta.item, item), row_at(theta.item, other)
                margin = row_dot(h, q, width) - row_dot(h, r, width)
                if theta.bias.size:
                    margin += theta.bias[item] - theta.bias[other]
                repeat_other = repeat_signal(counts, other, user, group, log_decay) if use_repeats else ZERO
                if use_repeats:
                    margin += (theta.user_repeat[user] + theta.item_repeat[item]) * repeat
                    margin -= (theta.user_repeat[user] + theta.item_repeat[other]) * repeat_other
                trend, trend_other = ZERO, ZERO
                if use_trend:
                    trend = trend_score(sales, item, day, recent_share)
                    trend_other = trend_score(sales, other, day, recent_share)
                    margin += (theta.user_trend[user] + theta.item_trend[item]) * trend
                    margin -= (theta.user_trend[user] + theta.item_trend[other]) * trend_other
                step = hyper.lr * rank_descent(margin)
                shrinks = (shrink_user, shrink_item, shrink_negative)
                step_hybrid_pair(p, gradient, q, r, context, step, shrinks, pooling, width)
                if theta.bias.size:
                    theta.bias[item] += step
                    theta.bias[other] -= step
                if use_repeats:
                    theta.user_repeat[user] = (
                        repeat_start
                        + shrink_user * (theta.user_repeat[user] - repeat_start)
                        + step * (repeat - repeat_other)
                    )
                    theta.item_repeat[item] = shrink_item * theta.item_repeat[item] + step * repeat
                    theta.item_repeat[other] = (
                        shrink_negative * theta.item_repeat[other] - step * repeat_other
                    )
                if use_trend:
                    theta.user_trend[user] = (
                        USER_TREND_START
                        + shrink_user * (theta.user_trend[user] - USER_TREND_START)
                        + step * (trend - trend_other)
                    )
                    theta.item_trend[item] = shrink_item * theta.item_trend[item] + step * trend
                    theta.item_trend[other] = shrink_negative * theta.item_trend[other] - step * trend_other
                pairs += 1
        if use_repeats:
            for row in range(starts[visit], starts[visit + 1]):
                if liked[row] >= 0:
                    n_history = add_purchase(counts, n_history, liked[row], user, group, log_decay)
    return pairs


@kernel
def hrm_round(
    first: int,  # blocks first … last - 1 are processed
    last: int,
    round_index: int,
    strata: Strata,
    contexts: Contexts,
    collected: ContextGradients,
    sales: Sales,  # in the labeling of the item factors; empty if not used
    theta: Parameters,
    hyper: Hyperparameters[np.float32],
    key: np.uint64,  # random key of the epoch
    width: Width,
) -> int:
    """Process some blocks of one round, one after the other; return the number of pairs."""
    pairs, n_blocks, n_items, size = 0, strata.n_blocks, theta.item.shape[0], strata.range_size
    n_ranges = (strata.cells.size - 1) // n_blocks
    ranges_per_block = n_ranges // n_blocks
    liked_in, n_counts = np.empty(size, np.int32), size if theta.item_repeat.size else 0
    counts = RepeatCounts(
        np.empty(n_counts, np.int32),
        np.empty(n_counts, np.float32),
        np.empty(n_counts, np.int32),
        np.empty(n_counts, np.int32),
    )
    for b in range(first, last):
        first_range, start = (b + round_index) % n_blocks * ranges_per_block, collected.starts[b]
        for part in range(first_range, first_range + ranges_per_block):
            low, high = min(part * size, n_items), min((part + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + part], strata.cells[b * n_ranges + part + 1]
            if begin == end:
                continue
            liked_in[:] = 0
            counts.owner[:] = 0
            bias = theta.bias[low:high] if theta.bias.size else theta.bias
            item_repeat = theta.item_repeat[low:high] if theta.item_repeat.size else theta.item_repeat
            item_trend = theta.item_trend[low:high] if theta.item_trend.size else theta.item_trend
            pairs += hrm_block(
                Visits(strata.starts[begin : end + 1], strata.groups[begin:end], strata.liked),
                contexts,
                collected.snapshot,
                collected.gradients[start : start + end - begin],
                Sales(sales.begin[low:high], sales.end[low:high], *sales[2:]),
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
                hyper,
                (liked_in[: high - low], counts),
                cell_state(key, b * n_ranges + part),
                width,
            )
            start += end - begin
    return pairs


@kernel
def apply_context_gradients(
    low: int,  # only items low … high - 1 are updated, so that threads can share the work
    high: int,
    round_index: int,
    strata: Strata,
    contexts: Contexts,
    collected: ContextGradients,
    items: Floats,  # (n_items, n_factors), updated in place
    width: Width,
) -> None:
    """Apply the gradients of the contexts after a round, in an order that does not depend on the threads."""
    snapshot, gradients, starts = collected
    n_blocks, n_factors = strata.n_blocks, items.shape[1]
    n_ranges = (strata.cells.size - 1) // n_blocks
    for b in range(n_blocks):
        begin = strata.cells[b * n_ranges + (b + round_index) % n_blocks * (n_ranges // n_blocks)]
        for number in range(starts[b + 1] - starts[b]):
            group, gradient = strata.groups[begin + number], gradients[starts[b] + number]
            first, last = contexts.begin[group], contexts.end[group]
            if first == last:
                continue
            scale = ONE / np.float32(last - first)
            if not contexts.max_pool_items:
                for row in range(first, last):
                    item = contexts.item[row]
                    if low <= item < high:
                        add_row(row_at(items, item), row_at(gradients, starts[b] + number), scale, width)
                continue
            for f in range(n_factors):
                best = contexts.item[first]
                for row in range(first + 1, last):
                    if snapshot[contexts.item[row], f] > snapshot[best, f]:
                        best = contexts.item[row]
                if low <= best < high:
                    items[best, f] += gradient[f]


@kernel
def hybrid_vectors(
    user_factors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    contexts: Contexts,  # one group per vector
    out: Floats,  # (n_groups, n_factors) written
    width: Width,
) -> None:
    """Write the score vector of each group; without a context it is the user's vector."""
    pooled, pooling = np.empty(out.shape[1], np.float32), user_pooling(contexts.max_pool_user)
    context = np.uintp(pooled.ctypes.data)
    for number in range(contexts.user.size):
        if contexts.begin[number] == contexts.end[number]:
            for f in range(out.shape[1]):
                out[number, f] = user_factors[contexts.user[number], f]
            continue
        pool_context(contexts, number, item_factors, pooled, width)
        blend_rows(row_at(out, number), row_at(user_factors, contexts.user[number]), context, pooling, width)
