"""Joint learning by SGD (paper, Algorithm 1): a loss, a step, and the rounds of an epoch."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.hybrid import (
    Blend,
    ContextCell,
    ContextRound,
    blend_visit,
    context_cell,
    has_context,
    move_one,
    move_pair,
    prefetch_context,
    score_vector,
)
from shortlist.kernels.jit import borrowing, inlined, kernel
from shortlist.kernels.parameters import HINGE, L1, ONE, SQUARED, TWO, ZERO, Hyperparameters, Parameters
from shortlist.kernels.rng import GOLDEN, index_below, mix_bits, next_bits, unit_float
from shortlist.kernels.simd import Width, prefetch_row, row_at, row_dot
from shortlist.kernels.strata import Strata, Visits, cell_state, row_item
from shortlist.kernels.terms import (
    Place,
    RepeatSignal,
    Signals,
    Terms,
    add_basket,
    add_term_margins,
    add_terms,
    new_counts,
    place_of,
    signals_of,
    step_item_terms,
    step_user_terms,
    term_range,
    trend_signal,
)
from shortlist.types import Floats, Ints, State

PAIR, POSITIVE, NEGATIVE, NO_STEP = np.int32(0), np.int32(1), np.int32(2), np.int32(3)
HISTORY_BIT = np.uint64(1)  # the random bit that decides whether a repeat is paired with a history item


@borrowing
def rank_descent(margin: np.float32) -> np.float32:
    """Return the negative gradient of the BPR loss -ln σ(s_i - s_j) in its margin."""
    descent: np.float32 = ONE / (ONE + np.exp(margin))
    return descent


@borrowing
def class_descent(
    loss: np.int32, score: np.float32, boundary: np.float32, relevant: bool | np.bool
) -> np.float32:
    """Return the negative gradient in the score: logistic (paper eq. 5), hinge, or squared loss."""
    if loss == SQUARED:
        return (ONE if relevant else ZERO) - score
    margin = score - boundary if relevant else boundary - score
    descent = (ONE if margin < ONE else ZERO) if loss == HINGE else ONE / (ONE + np.exp(margin))
    return descent if relevant else -descent


@borrowing
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


class Shrink(NamedTuple):
    """What vectors are multiplied by in a step: the L2 penalty."""

    user: np.float32
    item: np.float32
    negative: np.float32


@borrowing
def shrink_factors(hyper: Hyperparameters[np.float32]) -> Shrink:
    """Return the factors of users, liked items and sampled items."""
    lr = hyper.lr
    return Shrink(ONE - lr * hyper.reg_user, ONE - lr * hyper.reg_item, ONE - lr * hyper.reg_negative)


@borrowing
def hardest_negative(
    vector: np.uintp,  # address of the score vector
    theta: Parameters,
    first: np.int64,  # the first item drawn
    n_draws: np.int32,
    liked_in: Ints,  # (n_range_items,) the latest visit in which each item is liked
    visit_id: int,  # items liked in this visit are not negatives
    key: np.uint64,  # seeds the other draws
    width: Width,
    terms: Terms,
    place: Place,
) -> np.int64:
    """Return the item with the highest score, without its repeat term, among n_draws random items."""
    if n_draws <= 1:
        return first
    candidate, chosen, best = first, first, np.float32(-np.inf)
    for _ in range(n_draws):
        if liked_in[candidate] != visit_id:
            score = row_dot(vector, row_at(theta.item, candidate), width)
            if theta.bias.size:
                score += theta.bias[candidate]
            if theta.item_trend.size:
                signal = trend_signal(terms, place, candidate)
                score += (theta.user_trend[place.user] + theta.item_trend[candidate]) * signal
            if score > best:
                chosen, best = candidate, score
        key += GOLDEN
        candidate = index_below(mix_bits(key), theta.item.shape[0])
    return chosen


class Visitor(NamedTuple):
    """The user of a visit: where the vectors are, and the place in time."""

    p: np.uintp  # address of the user's vector
    vector: np.uintp  # address of the score vector
    blend: Blend | None  # with the context; None for matrix factorization
    place: Place


class Candidate(NamedTuple):
    """An item of a step."""

    item: np.int64
    q: np.uintp  # address of its vector
    product: np.float32  # with the score vector
    signals: Signals


@borrowing
def draw_step(
    code: np.int32,  # of the row
    other: np.int64,  # an item drawn at random
    z: np.float32,  # a number drawn at random from [0, 1)
    hyper: Hyperparameters[np.float32],
    liked_in: Ints,
    visit_id: int,
) -> tuple[np.int32, np.int64]:
    """Return the kind of step that a row makes, and its first item: lines 3 to 5 and 10 of Algorithm 1."""
    item = np.int64(row_item(code))
    if code >= 0 and z >= hyper.alpha:
        return PAIR, item
    if code >= 0 and hyper.positive_rate == ZERO:
        return NO_STEP, item  # all examples have their own rows
    is_relevant = liked_in[item] == visit_id if code < 0 else z < hyper.alpha * hyper.positive_rate
    if is_relevant:
        return POSITIVE, item
    if code >= 0:
        item = other
    # no second draw: a user who likes every item would never get one
    return NO_STEP if liked_in[item] == visit_id else NEGATIVE, item


@borrowing
def classify(
    visitor: Visitor,
    candidate: Candidate,
    relevant: bool,
    theta: Parameters,
    hyper: Hyperparameters[np.float32],
    shrink: Shrink,
    terms: Terms,
    width: Width,
) -> None:
    """Step on one example (paper eq. 5): the boundary, the vectors, the bias and the terms."""
    user, item, score = visitor.place.user, candidate.item, candidate.product
    if theta.bias.size:
        score += theta.bias[item]
    score = add_terms(score, theta, user, item, candidate.signals)
    descent = class_descent(hyper.loss, score, theta.boundary[user], relevant)
    if relevant:
        descent *= hyper.positive_weight
    if hyper.learn_boundary:
        theta.boundary[user] = boundary_step(
            theta.boundary[user], descent, hyper.lr, hyper.t, hyper.lambda_t, hyper.penalty
        )
    step, shrink_item = hyper.lr * descent, shrink.item if relevant else shrink.negative
    move_one(visitor.p, candidate.q, visitor.blend, step, shrink.user, shrink_item, width)
    if theta.bias.size:
        theta.bias[item] += step
    step_user_terms(theta, user, step, shrink.user, terms.repeat_start, candidate.signals)
    step_item_terms(theta, item, step, shrink_item, candidate.signals)


@borrowing
def rank(
    visitor: Visitor,
    liked: Candidate,
    other: Candidate,
    theta: Parameters,
    hyper: Hyperparameters[np.float32],
    shrink: Shrink,
    terms: Terms,
    width: Width,
) -> None:
    """Step on a liked item and another one (paper eq. 9): the vectors, the biases and the terms."""
    user, i, j, x, y = visitor.place.user, liked.item, other.item, liked.signals, other.signals
    margin = liked.product - other.product
    if theta.bias.size:
        margin += theta.bias[i] - theta.bias[j]
    margin = add_term_margins(margin, theta, user, i, j, x, y)
    step = hyper.lr * rank_descent(margin)
    rows = visitor.p, liked.q, other.q
    move_pair(*rows, visitor.blend, step, shrink.user, shrink.item, shrink.negative, width)
    if theta.bias.size:
        theta.bias[i] += step
        theta.bias[j] -= step
    difference = Signals(x.repeat - y.repeat, x.trend - y.trend)
    step_user_terms(theta, user, step, shrink.user, terms.repeat_start, difference)
    step_item_terms(theta, i, step, shrink.item, x)
    step_item_terms(theta, j, -step, shrink.negative, y)


@borrowing
def sgd_block(
    visits: Visits,
    users: Ints,  # (n_groups,) the user of each group
    theta: Parameters,  # all users, items of this range; updated in place
    hyper: Hyperparameters[np.float32],
    liked_in: Ints,  # (n_range_items,) zeros; scratch
    state: State,  # (1,) random state, advanced in place
    width: Width,
    terms: Terms,  # of this range
    counts: RepeatSignal,  # `owner` zeros; empty without a repeat term
    cell: ContextCell | None,  # None for matrix factorization
    scratch: Floats,  # (2, n_factors) for the vectors of a context
) -> int:
    """Make one step per row; return the number of pairs.

    The step of a liked item is a pair with probability 1 - alpha, otherwise a classification example. If the
    examples are drawn from all items, they have their own rows, and a liked item makes a pair or no step.
    The visits of a range are sorted by user and basket, so the counts hold the user's earlier purchases.
    """
    starts, groups, liked = visits
    pairs, n_items, last, shrink = 0, theta.item.shape[0], starts[-1] - 1, shrink_factors(hyper)
    n_history, latest_user = 0, np.int32(-1)
    ahead = next_bits(state)
    for visit in range(groups.size):
        group, visit_id, first, end = groups[visit], visit + 1, starts[visit], starts[visit + 1]
        user = users[group]
        if user != latest_user:
            n_history, latest_user = 0, user
        p, place = row_at(theta.user, user), place_of(terms, user, group)
        prefetch_row(row_at(theta.user, users[groups[min(visit + 2, groups.size - 1)]]), width)
        if cell is None:
            blend = None
        else:
            prefetch_context(cell, groups[min(visit + 1, groups.size - 1)], width)
            blend = blend_visit(cell, visit, group, scratch, width)
            if not has_context(cell.contexts, group):
                first = end  # no step: the basket only enters the history
        for row in range(first, end):
            if liked[row] >= 0:
                liked_in[liked[row]] = visit_id
        for row in range(first, end):
            bits, ahead = ahead, next_bits(state)
            prefetch_row(row_at(theta.item, row_item(liked[min(row + 1, last)])), width)
            prefetch_row(row_at(theta.item, index_below(ahead, n_items)), width)
            other = index_below(bits, n_items)
            kind, item = draw_step(liked[row], other, unit_float(bits), hyper, liked_in, visit_id)
            if kind == NO_STEP:
                continue
            vector = score_vector(p, blend, width)
            visitor, q = Visitor(p, vector, blend, place), row_at(theta.item, item)
            x = signals_of(terms, counts, place, item)
            candidate = Candidate(item, q, row_dot(vector, q, width), x)
            if kind != PAIR:
                classify(visitor, candidate, kind == POSITIVE, theta, hyper, shrink, terms, width)
                continue
            if x.repeat > ZERO and bits & HISTORY_BIT:  # a repeat: compare with another item of the history
                other = np.int64(counts.history[index_below(mix_bits(bits), n_history)])
            else:
                draws = hyper.negative_draws
                other = hardest_negative(
                    vector, theta, other, draws, liked_in, visit_id, bits, width, terms, place
                )
            if liked_in[other] == visit_id:
                continue
            r, y = row_at(theta.item, other), signals_of(terms, counts, place, other)
            negative = Candidate(other, r, row_dot(vector, r, width), y)
            rank(visitor, candidate, negative, theta, hyper, shrink, terms, width)
            pairs += 1
        if counts.owner.size:
            basket = liked[starts[visit] : end]
            n_history = add_basket(counts, n_history, basket, place, terms.log_decay)
    return pairs


@inlined
def item_range(theta: Parameters, low: int, high: int) -> Parameters:
    """Return the parameters with those of items low … high - 1 only."""
    return Parameters(
        theta.user,
        theta.boundary,
        theta.item[low:high],
        slice_items(theta.bias, low, high),
        theta.user_repeat,
        slice_items(theta.item_repeat, low, high),
        theta.user_trend,
        slice_items(theta.item_trend, low, high),
    )


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
    users: Ints,  # (n_groups,) the user of each group
    theta: Parameters,
    hyper: Hyperparameters[np.float32],
    key: np.uint64,  # random key of the epoch
    width: Width,
    terms: Terms,
    contexts: ContextRound | None,  # None for matrix factorization
) -> int:
    """Process some blocks of one round, one after the other; return the number of pairs."""
    pairs, n_blocks, n_items, size = 0, strata.n_blocks, theta.item.shape[0], strata.range_size
    n_ranges = (strata.cells.size - 1) // n_blocks
    ranges_per_block = n_ranges // n_blocks
    liked_in, counts = np.empty(size, np.int32), new_counts(size if theta.item_repeat.size else 0)
    scratch = np.empty((2, theta.item.shape[1]), np.float32)
    for b in range(first, last):
        first_range = (b + round_index) % n_blocks * ranges_per_block
        block_begin = strata.cells[b * n_ranges + first_range]
        for number in range(first_range, first_range + ranges_per_block):
            low, high = min(number * size, n_items), min((number + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + number], strata.cells[b * n_ranges + number + 1]
            if begin == end:
                continue
            liked_in[:] = 0
            counts.owner[:] = 0
            if contexts is None:
                cell = None
            else:
                start = contexts.collected.starts[b] - block_begin
                cell = context_cell(contexts, start + begin, start + end)
            pairs += sgd_block(
                Visits(strata.starts[begin : end + 1], strata.groups[begin:end], strata.liked),
                users,
                item_range(theta, low, high),
                hyper,
                liked_in[: high - low],
                cell_state(key, b * n_ranges + number),
                width,
                term_range(terms, low, high),
                counts,
                cell,
                scratch,
            )
    return pairs
