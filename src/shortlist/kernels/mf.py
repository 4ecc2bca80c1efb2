"""Matrix factorization: joint ranking and classification SGD in a stratum (paper, Algorithm 1, eq. 7-11)."""

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import boundary_step, class_descent, rank_descent
from shortlist.kernels.rng import GOLDEN, index_below, mix_bits, next_bits, unit_float
from shortlist.kernels.simd import Width, prefetch_row, row_at, row_dot, step_one, step_pair
from shortlist.kernels.strata import Strata, Visits, cell_state, row_item
from shortlist.kernels.trend import Sales, trend_score
from shortlist.types import Floats, Ints, Longs, State

ZERO, ONE = np.float32(0), np.float32(1)
Real = TypeVar("Real", np.float32, float)


class Hyperparameters(NamedTuple, Generic[Real]):
    """Hyperparameters of the joint objective: float32 numbers for SGD, float64 numbers for fold-in."""

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


class TrendQuery(NamedTuple):
    """The user and the day for which trend scores are needed."""

    sales: Sales  # of the items of this range
    user: np.int32
    day: np.int32
    recent_share: np.float32  # see Sales


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
    trend: TrendQuery | None = None,
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
                    signal = trend_score(trend.sales, candidate, trend.day, trend.recent_share)
                    score += (theta.user_trend[trend.user] + theta.item_trend[candidate]) * signal
            if score > best:
                chosen, best = candidate, score
        key += GOLDEN
        candidate = index_below(mix_bits(key), theta.item.shape[0])
    return chosen


@inlined
def mf_block(
    visits: Visits,  # groups are rows of theta.user
    theta: Parameters,  # users of this block, items of this range; updated in place
    hyper: Hyperparameters[np.float32],
    liked_in: Ints,  # (n_range_items,) zeros; scratch
    state: State,  # (1,) random state, advanced in place
    width: Width,
) -> int:
    """Make one step per row; return the number of pairs.

    The step of a liked item is a pair with probability 1 - alpha, otherwise a classification example. If the
    examples are drawn from all items, they have their own rows, and a liked item makes a pair or no step.
    """
    starts, users, liked = visits
    own_rows = hyper.positive_rate == ZERO
    pairs, n_items = 0, theta.item.shape[0]
    shrink_user, shrink_item = ONE - hyper.lr * hyper.reg_user, ONE - hyper.lr * hyper.reg_item
    shrink_negative = ONE - hyper.lr * hyper.reg_negative
    last, ahead = starts[-1] - 1, next_bits(state)
    for visit in range(users.size):
        user, visit_id = users[visit], visit + 1
        p = row_at(theta.user, user)
        prefetch_row(row_at(theta.user, users[min(visit + 2, users.size - 1)]), width)
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
                q = row_at(theta.item, target)
                score = row_dot(p, q, width)
                if theta.bias.size:
                    score += theta.bias[target]
                descent = class_descent(hyper.loss, score, theta.boundary[user], relevant)
                if relevant:
                    descent *= hyper.positive_weight
                if hyper.learn_boundary:
                    theta.boundary[user] = boundary_step(
                        theta.boundary[user], descent, hyper.lr, hyper.t, hyper.lambda_t, hyper.penalty
                    )
                step = hyper.lr * descent
                step_one(p, q, step, (shrink_user, shrink_item if relevant else shrink_negative), width)
                if theta.bias.size:
                    theta.bias[target] += step
            else:
                other = hardest_negative(
                    p, theta, other, hyper.negative_draws, liked_in, visit_id, bits, width
                )
                if liked_in[other] == visit_id:
                    continue
                q, r = row_at(theta.item, item), row_at(theta.item, other)
                margin = row_dot(p, q, width) - row_dot(p, r, width)
                if theta.bias.size:
                    margin += theta.bias[item] - theta.bias[other]
                step = hyper.lr * rank_descent(margin)
                step_pair(p, q, r, step, (shrink_user, shrink_item, shrink_negative), width)
                if theta.bias.size:
                    theta.bias[item] += step
                    theta.bias[other] -= step
                pairs += 1
    return pairs


@kernel
def mf_round(
    first: int,  # blocks first … last - 1 are processed
    last: int,
    round_index: int,
    strata: Strata,
    user_starts: Longs,  # (B + 1,) where the users of each block start
    theta: Parameters,
    hyper: Hyperparameters[np.float32],
    key: np.uint64,  # random key of the epoch
    width: Width,
) -> int:
    """Process some blocks of one round, one after the other; return the number of pairs."""
    pairs, n_blocks, n_items, size = 0, strata.n_blocks, theta.item.shape[0], strata.range_size
    n_ranges = (strata.cells.size - 1) // n_blocks
    ranges_per_block = n_ranges // n_blocks
    liked_in = np.empty(size, np.int32)
    for b in range(first, last):
        users = slice(user_starts[b], user_starts[b + 1])
        user, boundary = theta.user[users], theta.boundary[users]
        first_range = (b + round_index) % n_blocks * ranges_per_block
        for part in range(first_range, first_range + ranges_per_block):
            low, high = min(part * size, n_items), min((part + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + part], strata.cells[b * n_ranges + part + 1]
            if begin == end:
                continue
            liked_in[:] = 0
            bias = theta.bias[low:high] if theta.bias.size else theta.bias
            rows = strata.groups[begin:end] - np.int32(user_starts[b])
            pairs += mf_block(
                Visits(strata.starts[begin : end + 1], rows, strata.liked),
                Parameters(user, boundary, theta.item[low:high], bias, *theta[4:]),
                hyper,
                liked_in[: high - low],
                cell_state(key, b * n_ranges + part),
                width,
            )
    return pairs
