"""One round of SGD for matrix factorization and HRM (paper, Algorithm 1, eq. 7-16), and its steps."""

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.rng import GOLDEN, index_below, mix_bits, next_bits, unit_float
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
    step_one,
    step_pair,
)
from shortlist.types import Bools, Doubles, Floats, Ints, Longs, State

Real = TypeVar("Real", np.float32, float)
LOGISTIC, HINGE, SQUARED = np.int32(0), np.int32(1), np.int32(2)
L2, L1 = np.int32(0), np.int32(1)
ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
PRIOR = np.float32(3)  # pseudo-sales added to both sides, so that one or two extra sales change little
SIGNAL_UNITS = 1 << 24  # in a sum of signals: a whole number has the same bits in any order of the users
USER_TREND_START = ONE  # initial trend weight of users: log-odds then follow the logarithm of sales
HISTORY_BIT = np.uint64(1)  # the random bit that decides whether a repeat is paired with a history item


class Hyperparameters(NamedTuple, Generic[Real]):
    """Hyperparameters of the joint objective: float32 numbers for SGD, float64 numbers for new users."""

    lr: Real
    reg_user: Real
    reg_item: Real
    reg_negative: Real
    alpha: Real  # share of classification steps
    positive_rate: Real  # share of positive examples; 0: examples are rows drawn from all items
    positive_weight: Real
    t: Real
    lambda_t: Real
    loss: np.int32
    penalty: np.int32
    learn_boundary: bool
    negative_draws: np.int32  # unseen items drawn per pair; the one with the highest score is used


class Parameters(NamedTuple):
    """The parameters that are learned, or one block's slice of them; unused arrays have length 0."""

    user: Floats  # (n_users, n_factors)
    boundary: Floats  # (n_users,)
    item: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or (0,)
    user_repeat: Floats  # (n_users,) or (0,) the user's weight of the repeat signal
    item_repeat: Floats  # (n_items,) or (0,) the item's addition to that weight
    user_trend: Floats  # (n_users,) or (0,) the user's weight of the trend signal
    item_trend: Floats  # (n_items,) or (0,) the item's addition to that weight


# weights of the signals that are added to the factors: (by user, by item)
TERMS = (("user_repeat", "item_repeat"), ("user_trend", "item_trend"))


@inlined
def rank_descent(margin: np.float32) -> np.float32:
    """Return the negative gradient of the BPR loss -ln σ(s_i - s_j) in its margin."""
    descent: np.float32 = ONE / (ONE + np.exp(margin))
    return descent


@inlined
def class_descent(
    loss: np.int32, score: np.float32, boundary: np.float32, relevant: bool | np.bool
) -> np.float32:
    """Return the negative gradient in the score: logistic (paper eq. 5), hinge, or squared loss."""
    if loss == SQUARED:
        return (ONE if relevant else ZERO) - score
    margin = score - boundary if relevant else boundary - score
    descent = (ONE if margin < ONE else ZERO) if loss == HINGE else ONE / (ONE + np.exp(margin))
    return descent if relevant else -descent


@inlined
def boundary_step(
    boundary: np.float32,
    descent: np.float32,
    lr: np.float32,
    t: np.float32,
    lambda_t: np.float32,
    penalty: np.int32,
) -> np.float32:
    """Return the boundary after one step on ℓ + λ_t·R(t_u - t).

    The loss takes a gradient step and R its proximal map, which is stable for any λ_t.
    """
    moved = boundary - lr * descent - t
    if penalty == L1:
        limit = lr * lambda_t
        moved = moved - limit if moved > limit else (moved + limit if moved < -limit else ZERO)
    else:
        moved /= ONE + TWO * lr * lambda_t
    return t + moved


class Strata(NamedTuple):
    """All visits of an epoch, sorted by cell = block · R + range."""

    cells: Longs  # (B·R + 1,) where the visits of each cell start
    starts: Longs  # (n_visits + 1,) where the liked items of each visit start
    groups: Ints  # (n_visits,) group of each visit
    liked: Ints  # (n_rows,) items, relative to the start of their range; ~item: a drawn example
    n_blocks: int  # B
    range_size: int  # items per range


class Visits(NamedTuple):
    """The visits of one cell."""

    starts: Longs  # (n_visits + 1,) where the liked items of each visit start
    groups: Ints  # (n_visits,)
    liked: Ints  # (n_rows,) items as in `Strata`; `starts` points into it


@inlined
def row_item(code: np.int32) -> np.int32:
    """Return the item of a row, liked or drawn."""
    return code if code >= 0 else ~code


@kernel
def count_visits(
    indptr: Longs,  # (n_groups + 1,)
    item: Ints,  # (n_rows,) items, or ~item for drawn examples
    label: Ints,  # (n_items,) position of each item after relabeling
    range_size: int,
    first: int,  # first group of the block
    last: int,  # one past its last group
    visits: Longs,  # (R,) added to
    rows: Longs,  # (R,) added to
) -> None:
    """Count the visits and rows of one block in each range."""
    latest = np.full(visits.size, -1, np.int64)
    for group in range(first, last):
        for row in range(indptr[group], indptr[group + 1]):
            number = np.uint32(label[row_item(item[row])]) // np.uint32(range_size)
            rows[number] += 1
            if latest[number] != group:
                latest[number] = group
                visits[number] += 1


@kernel
def write_visits(
    indptr: Longs,  # (n_groups + 1,)
    item: Ints,  # (n_rows,) items, or ~item for drawn examples
    label: Ints,  # (n_items,)
    first: int,
    last: int,
    visit_at: Longs,  # (R,) where the block's visits of each range are written; advanced
    row_at: Longs,  # (R,) where its rows are written; advanced
    strata: Strata,  # starts, groups and liked are written
) -> None:
    """Write the visits of one block, in the order of `count_visits`."""
    latest = np.full(visit_at.size, -1, np.int64)
    for group in range(first, last):
        for row in range(indptr[group], indptr[group + 1]):
            position = label[row_item(item[row])]
            number = np.int64(np.uint32(position) // np.uint32(strata.range_size))
            if latest[number] != group:
                latest[number] = group
                strata.starts[visit_at[number]] = row_at[number]
                strata.groups[visit_at[number]] = group
                visit_at[number] += 1
            inside = position - number * strata.range_size
            strata.liked[row_at[number]] = inside if item[row] >= 0 else ~inside
            row_at[number] += 1


@kernel
def permute_rows(table: Floats, target: Ints, done: Bools) -> None:
    """Move row n of a (n, n_factors) table to row target[n], in place; `done` (n,) is scratch."""
    done[:] = False
    for start in range(target.size):
        if done[start]:
            continue
        carried, at = table[start].copy(), start
        while True:
            at = target[at]
            for f in range(carried.size):
                table[at, f], carried[f] = carried[f], table[at, f]
            done[at] = True
            if at == start:
                break


@inlined
def cell_state(key: np.uint64, cell: int) -> State:
    """Return the random state (1,) of one cell in the epoch identified by `key`."""
    state = np.empty(1, np.uint64)
    state[0] = np.uint64(cell) * GOLDEN
    state[0] = key ^ next_bits(state)
    state[0] = next_bits(state)
    return state


class Sales(NamedTuple):
    """The sales days of each item: entries begin[i] … end[i] - 1, ascending. Empty arrays if not used."""

    begin: Longs  # (n_items,)
    end: Longs  # (n_items,)
    day: Ints  # (n_entries,) since 1970
    decayed: Floats  # (n_entries,) sales up to and including this day, decayed by the days since
    total: Floats  # (n_entries,) sales up to and including this day, not decayed
    log_decay: np.float32  # logarithm of the weight of a sale one day later
    group_day: Ints  # (n_groups,) the day of each basket
    recent_share: Floats  # (n_groups,) decayed sales divided by all sales, over all items before that day


@kernel
def decay_sales(
    item: Ints,  # (n_entries,) ascending
    day: Ints,  # (n_entries,) ascending within an item
    count: Longs,  # (n_entries,) sales of the item on the day
    log_decay: float,
    decayed: Doubles,  # (n_entries,) written
    total: Doubles,  # (n_entries,) written
) -> None:
    """Accumulate each item's sales up to each of its days, with and without decay."""
    recent, whole = 0.0, 0.0
    for n in range(item.size):
        if n == 0 or item[n] != item[n - 1]:
            recent, whole = 0.0, 0.0
        elif recent:
            recent *= np.exp(log_decay * (day[n] - day[n - 1]))
        recent, whole = recent + count[n], whole + count[n]
        decayed[n], total[n] = recent, whole


@inlined
def trend_score(sales: Sales, item: int | np.integer, day: np.int32, recent_share: np.float32) -> np.float32:
    """Return ln(recent sales / recent sales expected from all sales) of an item before the day."""
    first, low, high = sales.begin[item], sales.begin[item], sales.end[item]
    while low < high:  # binary search for the first entry that is not before the day
        middle = (low + high) // 2
        if sales.day[middle] < day:
            low = middle + 1
        else:
            high = middle
    if low == first:
        return np.float32(0)
    age = np.float32(day - 1 - sales.day[low - 1])
    recent = sales.decayed[low - 1] * np.exp(sales.log_decay * age)
    expected = sales.total[low - 1] * recent_share
    return np.log((recent + PRIOR) / (expected + PRIOR))  # type: ignore[no-any-return]


@kernel
def trend_scores(
    sales: Sales,
    items: Ints,  # (n,)
    days: Ints,  # (n,)
    recent_share: Floats,  # (n,)
    out: Floats,  # (n,) written
) -> None:
    """Compute `trend_score` of single items on single days."""
    for n in range(items.size):
        out[n] = trend_score(sales, items[n], days[n], recent_share[n])


class RepeatSignal(NamedTuple):
    """Earlier purchases of the current user in a range of items; each user overwrites the previous one."""

    owner: Ints  # (n_range_items,) 1 + the user that the next two entries belong to
    decayed: Floats  # (n_range_items,) number of baskets with the item, decayed up to the latest of them
    latest: Ints  # (n_range_items,) the latest of these baskets
    history: Ints  # (n_range_items,) the user's distinct items, in the order of their first purchase


@inlined
def repeat_signal(
    counts: RepeatSignal, item: int | np.integer, user: np.int32, basket: np.int32, log_decay: np.float32
) -> np.float32:
    """Return ln(1 + decayed number of the user's earlier baskets with the item)."""
    if counts.owner[item] != user + 1:
        return ZERO
    age = np.float32(basket - 1 - counts.latest[item])
    return np.log(ONE + counts.decayed[item] * np.exp(log_decay * age))  # type: ignore[no-any-return]


@inlined
def add_purchase(
    counts: RepeatSignal,
    n_history: int,
    item: np.int32,
    user: np.int32,
    basket: np.int32,
    log_decay: np.float32,
) -> int:
    """Record that the basket contains the item; return the number of distinct items in `counts.history`."""
    if counts.owner[item] == user + 1:
        age = np.float32(basket - counts.latest[item])
        counts.decayed[item] = ONE + counts.decayed[item] * np.exp(log_decay * age)
    else:
        counts.owner[item], counts.decayed[item], counts.history[n_history] = user + 1, ONE, item
        n_history += 1
    counts.latest[item] = basket
    return n_history


@kernel
def repeat_signals(
    groups: Ints,  # (n,) baskets
    wanted: Ints,  # (n,) items
    first: Longs,  # (n,) the first basket of each basket's user
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_decay: np.float32,
    out: Floats,  # (n,) written
) -> None:
    """Compute `repeat_signal` of single items before single baskets, directly from the data."""
    for n in range(groups.size):
        count = ZERO
        for basket in range(first[n], groups[n]):
            for row in range(baskets[basket], baskets[basket + 1]):
                if item[row] == wanted[n]:
                    count += np.exp(log_decay * np.float32(groups[n] - 1 - basket))
        out[n] = np.log(ONE + count)


@kernel
def count_repeats(
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_decay: np.float32,
    counts: RepeatSignal,  # over all items, `owner` zeros; scratch
) -> tuple[int, int, int]:
    """Return, over all baskets, the number of history items, of repeats, and the sum of their signals.

    The sum is in units of 1 / SIGNAL_UNITS; each user's part is rounded.
    """
    n_candidates, n_repeats, units = 0, 0, 0
    for u in range(user_baskets.size - 1):
        n_history, user, total = 0, np.int32(u), 0.0
        for b in range(user_baskets[u], user_baskets[u + 1]):
            basket = np.int32(b)
            n_candidates += n_history
            for row in range(baskets[b], baskets[b + 1]):
                signal = repeat_signal(counts, item[row], user, basket, log_decay)
                n_repeats += int(signal > ZERO)
                total += float(signal)
            for row in range(baskets[b], baskets[b + 1]):
                n_history = add_purchase(counts, n_history, item[row], user, basket, log_decay)
        units += int(total * SIGNAL_UNITS + 0.5)
    return n_candidates, n_repeats, units


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


class HybridRound(NamedTuple):
    """What a round of HRM needs in addition to matrix factorization; items in the order of the factors."""

    contexts: Contexts
    collected: ContextGradients
    sales: Sales  # empty if not used


class HybridCell(NamedTuple):
    """The same for one block and one range of items, with the scratch memory of the repeat term."""

    contexts: Contexts
    snapshot: Floats  # (n_items, n_factors) all items before the round
    gradients: Floats  # (n_visits, n_factors) gradients of the contexts; written
    sales: Sales  # of the items of this range
    counts: RepeatSignal  # `owner` zeros; may be empty


# `hybrid` is None for matrix factorization. Numba decides tests of it at compile time, if they stand alone.


@inlined
def hardest_negative(
    vector: np.uintp,  # address of the score vector
    theta: Parameters,
    first: np.int64,  # the first item drawn
    n_draws: np.int32,
    liked_in: Ints,  # (n_range_items,) the latest visit in which each item is liked
    visit_id: int,  # items liked in this visit are not negatives
    key: np.uint64,  # seeds the other draws
    width: Width,
    trend: tuple[Sales, np.int32, np.int32, np.float32] | None,  # sales, user, day and recent share
) -> np.int64:
    """Return the item with the highest score among n_draws random items."""
    if n_draws <= 1:
        return first
    candidate, chosen, best = first, first, np.float32(-np.inf)
    for _ in range(n_draws):
        if liked_in[candidate] != visit_id:
            score = row_dot(vector, row_at(theta.item, candidate), width)
            if theta.bias.size:
                score += theta.bias[candidate]
            if trend is not None:  # noqa: SIM102  # its own test: it is decided at compile time
                if theta.item_trend.size:
                    sales, user, day, recent_share = trend
                    signal = trend_score(sales, candidate, day, recent_share)
                    score += (theta.user_trend[user] + theta.item_trend[candidate]) * signal
            if score > best:
                chosen, best = candidate, score
        key += GOLDEN
        candidate = index_below(mix_bits(key), theta.item.shape[0])
    return chosen


@inlined
def add_basket(
    counts: RepeatSignal,
    n_history: int,
    basket: Ints,  # items; ~item: a drawn example
    user: np.int32,
    group: np.int32,
    log_decay: np.float32,
) -> int:
    """Record the items of a basket; return the number of distinct items of the user."""
    for code in basket:
        if code >= 0:
            n_history = add_purchase(counts, n_history, code, user, group, log_decay)
    return n_history


@inlined
def shrink_toward(start: np.float32, weight: np.float32, shrink: np.float32) -> np.float32:
    """Return a weight after regularization toward its initial value."""
    return start + shrink * (weight - start)


@inlined
def sgd_block(
    visits: Visits,
    theta: Parameters,  # all users, items of this range; updated in place
    hyper: Hyperparameters[np.float32],
    liked_in: Ints,  # (n_range_items,) zeros; scratch
    state: State,  # (1,) random state, advanced in place
    width: Width,
    hybrid: HybridCell | None,
) -> int:
    """Make one step per row; return the number of pairs.

    The step of a liked item is a pair with probability 1 - alpha, otherwise a classification example. If the
    examples are drawn from all items, they have their own rows, and a liked item makes a pair or no step.
    With a context, the blended vector replaces the user's. The visits of a range are then sorted by user and
    basket, so the counts hold the user's earlier purchases.
    """
    starts, groups, liked = visits
    own_rows = hyper.positive_rate == ZERO
    pairs, n_items, last = 0, theta.item.shape[0], starts[-1] - 1
    shrink_user, shrink_item = ONE - hyper.lr * hyper.reg_user, ONE - hyper.lr * hyper.reg_item
    shrink_negative = ONE - hyper.lr * hyper.reg_negative
    use_repeats, use_trend, n_history, latest_user = False, False, 0, np.int32(-1)
    log_decay, repeat_start, day, recent_share = ZERO, ZERO, np.int32(0), ZERO
    if hybrid is not None:
        use_repeats, use_trend = theta.item_repeat.size > 0, theta.item_trend.size > 0
        pooled, blended = np.empty(theta.item.shape[1], np.float32), np.empty(theta.item.shape[1], np.float32)
        context = np.uintp(pooled.ctypes.data)
        contexts, snapshot, gradients, sales, counts = hybrid  # once, because of reference counting
        base, gain = user_pooling(contexts.max_pool_user)
        log_decay, repeat_start = contexts.log_decay, contexts.repeat_start
    ahead = next_bits(state)
    for visit in range(groups.size):
        group, visit_id = groups[visit], visit + 1
        if hybrid is None:
            user = group
            prefetch_row(row_at(theta.user, groups[min(visit + 2, groups.size - 1)]), width)
            h = row_at(theta.user, user)
        else:
            user, h = contexts.user[group], np.uintp(blended.ctypes.data)
            if user != latest_user:
                n_history, latest_user = 0, user
            gradient = row_at(gradients, visit)
            gradients[visit] = ZERO
            if contexts.begin[group] == contexts.end[group]:  # the user's first basket has no context
                if use_repeats:
                    basket = liked[starts[visit] : starts[visit + 1]]
                    n_history = add_basket(counts, n_history, basket, user, group, log_decay)
                continue
            later = groups[min(visit + 1, groups.size - 1)]
            prefetch_row(row_at(theta.user, contexts.user[later]), width)
            for row in range(contexts.begin[later], contexts.end[later]):
                prefetch_row(row_at(snapshot, contexts.item[row]), width)
            pool_context(contexts, group, snapshot, pooled, width)
            if use_trend:
                day, recent_share = sales.group_day[group], sales.recent_share[group]
        p = row_at(theta.user, user)
        for row in range(starts[visit], starts[visit + 1]):
            if liked[row] >= 0:
                liked_in[liked[row]] = visit_id
        for row in range(starts[visit], starts[visit + 1]):
            bits, ahead = ahead, next_bits(state)
            prefetch_row(row_at(theta.item, row_item(liked[min(row + 1, last)])), width)
            prefetch_row(row_at(theta.item, index_below(ahead, n_items)), width)
            item, other, z = np.int64(row_item(liked[row])), index_below(bits, n_items), unit_float(bits)
            is_drawn = liked[row] < 0
            if own_rows and not is_drawn and z < hyper.alpha:
                continue
            if is_drawn or z < hyper.alpha:
                relevant = liked_in[item] == visit_id if is_drawn else z < hyper.alpha * hyper.positive_rate
                target = item if relevant or is_drawn else other
                if not relevant and liked_in[target] == visit_id:
                    continue  # no second draw: a user who likes every item would never get one
                repeat, trend = ZERO, ZERO
                if hybrid is not None:
                    if use_repeats:
                        repeat = repeat_signal(counts, target, user, group, log_decay)
                    if use_trend:
                        trend = trend_score(sales, target, day, recent_share)
                    blend_rows(h, p, context, base, gain, width)
                q = row_at(theta.item, target)
                score = row_dot(h, q, width)
                if theta.bias.size:
                    score += theta.bias[target]
                if use_repeats:
                    score += (theta.user_repeat[user] + theta.item_repeat[target]) * repeat
                if use_trend:
                    score += (theta.user_trend[user] + theta.item_trend[target]) * trend
                descent = class_descent(hyper.loss, score, theta.boundary[user], relevant)
                if relevant:
                    descent *= hyper.positive_weight
                if hyper.learn_boundary:
                    theta.boundary[user] = boundary_step(
                        theta.boundary[user], descent, hyper.lr, hyper.t, hyper.lambda_t, hyper.penalty
                    )
                step, shrink = hyper.lr * descent, shrink_item if relevant else shrink_negative
                if hybrid is None:
                    step_one(p, q, step, shrink_user, shrink, width)
                else:
                    step_hybrid_one(p, gradient, q, context, step, shrink_user, shrink, base, gain, width)
                if theta.bias.size:
                    theta.bias[target] += step
                if use_repeats:
                    weight = shrink_toward(repeat_start, theta.user_repeat[user], shrink_user)
                    theta.user_repeat[user] = weight + step * repeat
                    theta.item_repeat[target] = shrink * theta.item_repeat[target] + step * repeat
                if use_trend:
                    weight = shrink_toward(USER_TREND_START, theta.user_trend[user], shrink_user)
                    theta.user_trend[user] = weight + step * trend
                    theta.item_trend[target] = shrink * theta.item_trend[target] + step * trend
                continue
            repeat, trend, repeat_other, trend_other = ZERO, ZERO, ZERO, ZERO
            if hybrid is None:
                other = hardest_negative(
                    h, theta, other, hyper.negative_draws, liked_in, visit_id, bits, width, None
                )
            else:
                if use_repeats:
                    repeat = repeat_signal(counts, item, user, group, log_decay)
                blend_rows(h, p, context, base, gain, width)
                if repeat > ZERO and bits & HISTORY_BIT:  # a repeat: compare with another item of the history
                    other = np.int64(counts.history[index_below(mix_bits(bits), n_history)])
                elif hyper.negative_draws > 1:
                    query = sales, user, day, recent_share
                    other = hardest_negative(
                        h, theta, other, hyper.negative_draws, liked_in, visit_id, bits, width, query
                    )
            if liked_in[other] == visit_id:
                continue
            q, r = row_at(theta.item, item), row_at(theta.item, other)
            margin = row_dot(h, q, width) - row_dot(h, r, width)
            if theta.bias.size:
                margin += theta.bias[item] - theta.bias[other]
            if hybrid is not None:
                if use_repeats:
                    repeat_other = repeat_signal(counts, other, user, group, log_decay)
                if use_trend:
                    trend = trend_score(sales, item, day, recent_share)
                    trend_other = trend_score(sales, other, day, recent_share)
            if use_repeats:
                margin += (theta.user_repeat[user] + theta.item_repeat[item]) * repeat
                margin -= (theta.user_repeat[user] + theta.item_repeat[other]) * repeat_other
            if use_trend:
                margin += (theta.user_trend[user] + theta.item_trend[item]) * trend
                margin -= (theta.user_trend[user] + theta.item_trend[other]) * trend_other
            step = hyper.lr * rank_descent(margin)
            if hybrid is None:
                step_pair(p, q, r, step, shrink_user, shrink_item, shrink_negative, width)
            else:
                step_hybrid_pair(
                    p,
                    gradient,
                    q,
                    r,
                    context,
                    step,
                    shrink_user,
                    shrink_item,
                    shrink_negative,
                    base,
                    gain,
                    width,
                )
            if theta.bias.size:
                theta.bias[item] += step
                theta.bias[other] -= step
            if use_repeats:
                weight = shrink_toward(repeat_start, theta.user_repeat[user], shrink_user)
                theta.user_repeat[user] = weight + step * (repeat - repeat_other)
                theta.item_repeat[item] = shrink_item * theta.item_repeat[item] + step * repeat
                theta.item_repeat[other] = shrink_negative * theta.item_repeat[other] - step * repeat_other
            if use_trend:
                weight = shrink_toward(USER_TREND_START, theta.user_trend[user], shrink_user)
                theta.user_trend[user] = weight + step * (trend - trend_other)
                theta.item_trend[item] = shrink_item * theta.item_trend[item] + step * trend
                theta.item_trend[other] = shrink_negative * theta.item_trend[other] - step * trend_other
            pairs += 1
        if hybrid is not None:  # noqa: SIM102  # decided at compile time
            if use_repeats:
                basket = liked[starts[visit] : starts[visit + 1]]
                n_history = add_basket(counts, n_history, basket, user, group, log_decay)
    return pairs


@inlined
def slice_items(values: Floats, low: int, high: int) -> Floats:
    """Return the values of a range of items; nothing if the model does not have the parameter."""
    return values[low:high] if values.size else values


@kernel
def sgd_round(
    first: int,  # blocks first … last - 1 are processed
    last: int,
    round_index: int,
    strata: Strata,
    theta: Parameters,
    hyper: Hyperparameters[np.float32],
    key: np.uint64,  # random key of the epoch
    width: Width,
    hybrid: HybridRound | None,
) -> int:
    """Process some blocks of one round, one after the other; return the number of pairs."""
    pairs, n_blocks, n_items, size = 0, strata.n_blocks, theta.item.shape[0], strata.range_size
    n_ranges = (strata.cells.size - 1) // n_blocks
    ranges_per_block = n_ranges // n_blocks
    liked_in, n_counts, start = np.empty(size, np.int32), size if theta.item_repeat.size else 0, 0
    counts = RepeatSignal(
        np.empty(n_counts, np.int32),
        np.empty(n_counts, np.float32),
        np.empty(n_counts, np.int32),
        np.empty(n_counts, np.int32),
    )
    for b in range(first, last):
        first_range = (b + round_index) % n_blocks * ranges_per_block
        if hybrid is not None:
            start = hybrid.collected.starts[b]
        for number in range(first_range, first_range + ranges_per_block):
            low, high = min(number * size, n_items), min((number + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + number], strata.cells[b * n_ranges + number + 1]
            if begin == end:
                continue
            liked_in[:] = 0
            counts.owner[:] = 0
            if hybrid is None:
                cell = None
            else:
                sales = hybrid.sales
                cell = HybridCell(
                    hybrid.contexts,
                    hybrid.collected.snapshot,
                    hybrid.collected.gradients[start : start + end - begin],
                    Sales(sales.begin[low:high], sales.end[low:high], *sales[2:]),
                    counts,
                )
            pairs += sgd_block(
                Visits(strata.starts[begin : end + 1], strata.groups[begin:end], strata.liked),
                Parameters(
                    theta.user,
                    theta.boundary,
                    theta.item[low:high],
                    slice_items(theta.bias, low, high),
                    theta.user_repeat,
                    slice_items(theta.item_repeat, low, high),
                    theta.user_trend,
                    slice_items(theta.item_trend, low, high),
                ),
                hyper,
                liked_in[: high - low],
                cell_state(key, b * n_ranges + number),
                width,
                cell,
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
    pooled = np.empty(out.shape[1], np.float32)
    base, gain = user_pooling(contexts.max_pool_user)
    context = np.uintp(pooled.ctypes.data)
    for number in range(contexts.user.size):
        if contexts.begin[number] == contexts.end[number]:
            for f in range(out.shape[1]):
                out[number, f] = user_factors[contexts.user[number], f]
            continue
        pool_context(contexts, number, item_factors, pooled, width)
        user = row_at(user_factors, contexts.user[number])
        blend_rows(row_at(out, number), user, context, base, gain, width)
