"""Matrix factorisation: joint ranking and classification SGD in a stratum (paper, Algorithm 1, eq. 7-11)."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import boundary_step, class_pull, rank_pull
from shortlist.kernels.rng import GOLDEN, high_below, low_unit, mixed, next_word
from shortlist.kernels.simd import Width, one_move, pair_move, row_at, row_dot, row_fetch
from shortlist.kernels.strata import Strata, block_state
from shortlist.kernels.trend import Sales, trend_score
from shortlist.types import Floats, Ints, Longs, State

ZERO, ONE = np.float32(0), np.float32(1)


class Rates(NamedTuple):
    """Hyper-parameters as kernels take them; see `models.joint` for their meaning."""

    lr: np.float32
    reg_user: np.float32
    reg_item: np.float32
    reg_negative: np.float32
    alpha: np.float32
    share: np.float32  # of examples that are positive; 0: every item of the range is drawn as often
    weight: np.float32  # of a positive example
    t: np.float32
    lambda_t: np.float32
    loss: np.int32
    penalty: np.int32
    learn_boundary: bool
    negative_draws: np.int32  # unseen items drawn for a pair; the one that scores best is used


class Parameters(NamedTuple):
    """What is learned, or one block's slice of it; what is not used has length 0."""

    user: Floats  # (n_users, n_factors)
    boundary: Floats  # (n_users,)
    item: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or (0,)
    user_repeat: Floats  # (n_users,) or (0,) how much the user's own past counts
    item_repeat: Floats  # (n_items,) or (0,) how much more it counts for this item
    user_trend: Floats  # (n_users,) or (0,) how much what sells these days counts for the user
    item_trend: Floats  # (n_items,) or (0,) how much more it counts for this item


TERMS = (
    ("user_repeat", "item_repeat"),
    ("user_trend", "item_trend"),
)  # weights of what counts beside the factors


class Lately(NamedTuple):
    """Whom an item is offered to, and when."""

    sales: Sales  # of this range's items
    user: np.int32
    day: np.int32
    usual: np.float32  # see Sales


@inlined
def hardest_draw(
    vector: np.uintp,  # where the score vector stands
    theta: Parameters,
    other: np.int64,  # the first draw
    negative_draws: np.int32,
    stamp: Ints,
    mark: int,  # stamped items are liked, and lose
    word: np.uint64,  # names the other negative_draws
    width: Width,
    lately: Lately | None = None,
) -> np.int64:
    """The best-scored of some random items: the one that stands most in the way of the liked item."""
    if negative_draws <= 1:
        return other
    chosen, best = other, np.float32(-np.inf)
    for _ in range(negative_draws):
        if stamp[other] != mark:
            score = row_dot(vector, row_at(theta.item, other), width)
            if theta.bias.size:
                score += theta.bias[other]
            if lately is not None:  # noqa: SIM102  # decided while compiling, so apart from the next line
                if theta.item_trend.size:
                    warm = trend_score(lately.sales, other, lately.day, lately.usual)
                    score += (theta.user_trend[lately.user] + theta.item_trend[other]) * warm
            if score > best:
                chosen, best = other, score
        word += GOLDEN
        other = high_below(mixed(word), theta.item.shape[0])
    return chosen


@inlined
def mf_block(
    starts: Longs,  # (n_visits + 1,)
    users: Ints,  # (n_visits,) rows of theta.user
    liked: Ints,  # items within the range; starts point into it
    theta: Parameters,  # this block's users, this range's items; updated in place
    rates: Rates,
    stamp: Ints,  # (n_range_items,) zeros; scratch
    state: State,  # (1,) random state, advanced in place
    width: Width,
) -> int:
    """One step per liked item: a pair with probability 1 - alpha, an example otherwise; the pairs made."""
    pairs, n_items = 0, theta.item.shape[0]
    keep_user, keep_item = ONE - rates.lr * rates.reg_user, ONE - rates.lr * rates.reg_item
    keep_negative = ONE - rates.lr * rates.reg_negative
    last, ahead = starts[-1] - 1, next_word(state)
    for visit in range(users.size):
        user, mark = users[visit], visit + 1
        p = row_at(theta.user, user)
        row_fetch(row_at(theta.user, users[min(visit + 2, users.size - 1)]), width)
        for row in range(starts[visit], starts[visit + 1]):
            stamp[liked[row]] = mark
        share = rates.share
        if share == ZERO:
            n_liked = np.float32(starts[visit + 1] - starts[visit])
            share = n_liked / (
                np.float32(n_items) + n_liked
            )  # with the lost negative_draws, even for every item
        for row in range(starts[visit], starts[visit + 1]):
            word, ahead = ahead, next_word(state)
            row_fetch(row_at(theta.item, liked[min(row + 1, last)]), width)
            row_fetch(row_at(theta.item, high_below(ahead, n_items)), width)
            item, other, z = np.int64(liked[row]), high_below(word, n_items), low_unit(word)
            if z < rates.alpha:
                relevant = z < rates.alpha * share
                target = item if relevant else other
                if not relevant and stamp[other] == mark:
                    continue  # lose the draw, never retry: a user who has everything cannot hang us
                q = row_at(theta.item, target)
                score = row_dot(p, q, width)
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
                one_move(p, q, step, keep_user, keep_item if relevant else keep_negative, width)
                if theta.bias.size:
                    theta.bias[target] += step
            else:
                other = hardest_draw(p, theta, other, rates.negative_draws, stamp, mark, word, width)
                if stamp[other] == mark:
                    continue
                q, r = row_at(theta.item, item), row_at(theta.item, other)
                margin = row_dot(p, q, width) - row_dot(p, r, width)
                if theta.bias.size:
                    margin += theta.bias[item] - theta.bias[other]
                step = rates.lr * rank_pull(margin)
                pair_move(p, q, r, step, keep_user, keep_item, keep_negative, width)
                if theta.bias.size:
                    theta.bias[item] += step
                    theta.bias[other] -= step
                pairs += 1
    return pairs


@kernel
def mf_round(
    first: int,  # blocks first … last - 1 are run
    last: int,
    turn: int,  # the round
    strata: Strata,
    users: Longs,  # (B + 1,) where each block's users start
    size: int,  # items per range
    theta: Parameters,
    rates: Rates,
    word: np.uint64,
    width: Width,
) -> int:
    """Run some blocks of one round, one after the other; the pairs made."""
    pairs, n_blocks, n_items = 0, users.size - 1, theta.item.shape[0]
    n_ranges = (strata.cells.size - 1) // n_blocks
    each = n_ranges // n_blocks
    stamp = np.empty(size, np.int32)
    for b in range(first, last):
        user, boundary = theta.user[users[b] : users[b + 1]], theta.boundary[users[b] : users[b + 1]]
        begin_part = (b + turn) % n_blocks * each
        for part in range(begin_part, begin_part + each):
            low, high = min(part * size, n_items), min((part + 1) * size, n_items)
            begin, end = strata.cells[b * n_ranges + part], strata.cells[b * n_ranges + part + 1]
            if begin == end:
                continue
            stamp[:] = 0
            bias = theta.bias[low:high] if theta.bias.size else theta.bias
            pairs += mf_block(
                strata.starts[begin : end + 1],
                strata.groups[begin:end] - np.int32(users[b]),
                strata.liked,
                Parameters(user, boundary, theta.item[low:high], bias, *theta[4:]),
                rates,
                stamp[: high - low],
                block_state(word, b * n_ranges + part),
                width,
            )
    return pairs
