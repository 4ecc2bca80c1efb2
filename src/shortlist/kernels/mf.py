"""Matrix factorisation: joint ranking and classification SGD in a stratum (paper, Algorithm 1, eq. 7-11)."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.losses import boundary_step, class_pull, rank_pull
from shortlist.kernels.rng import high_below, low_unit, next_below, next_word
from shortlist.kernels.strata import Strata, block_state
from shortlist.types import Floats, Ints, Longs, State

ZERO, ONE = np.float32(0), np.float32(1)

Width = tuple[tuple[()], ...]


def factor_width(n_factors: int) -> Width:
    """The number of factors as a type, and so a constant of the compiled loops: one empty tuple for each."""
    return ((),) * n_factors


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
    draws: np.int32  # unseen items drawn for a pair; the one that scores best is used


class Parameters(NamedTuple):
    """What is learned, or one block's slice of it; `bias` has length 0 where there is none."""

    user: Floats  # (n_users, n_factors)
    boundary: Floats  # (n_users,)
    item: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or (0,)


@inlined
def hardest_draw(
    vector: Floats,  # (n_factors,) score vector
    theta: Parameters,
    other: np.int64,  # the first draw
    draws: np.int32,
    stamp: Ints,
    mark: int,  # stamped items are liked, and lose
    state: State,
    n_factors: int,
) -> np.int64:
    """The best-scored of some random items: the one that stands most in the way of the liked item."""
    if draws <= 1:
        return other
    chosen, best = other, np.float32(-np.inf)
    for draw in range(draws):
        if draw > 0:
            other = next_below(state, theta.item.shape[0])
        if stamp[other] == mark:
            continue
        score = theta.bias[other] if theta.bias.size else ZERO
        q = theta.item[other]
        for f in range(n_factors):
            score += vector[f] * q[f]
        if score > best:
            chosen, best = other, score
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
    width: Width,  # see factor_width
) -> int:
    """One step per liked item: a pair with probability 1 - alpha, an example otherwise; the pairs made."""
    pairs, n_factors, n_items = 0, len(width), theta.item.shape[0]
    user_shrink, item_shrink = ONE - rates.lr * rates.reg_user, ONE - rates.lr * rates.reg_item
    negative_shrink = ONE - rates.lr * rates.reg_negative
    for visit in range(users.size):
        p, user = theta.user[users[visit]], users[visit]
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
            if z < rates.alpha:
                relevant = z < rates.alpha * share
                target = item if relevant else other
                if not relevant and stamp[other] == mark:
                    continue  # lose the draw, never retry: a user who has everything cannot hang us
                q = theta.item[target]
                score = theta.bias[target] if theta.bias.size else ZERO
                for f in range(n_factors):
                    score += p[f] * q[f]
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
                    pf, qf = p[f], q[f]
                    p[f] = user_shrink * pf + step * qf
                    q[f] = shrink * qf + step * pf
                if theta.bias.size:
                    theta.bias[target] += step
            else:
                other = hardest_draw(p, theta, other, rates.draws, stamp, mark, state, n_factors)
                if stamp[other] == mark:
                    continue
                q, r = theta.item[item], theta.item[other]
                margin = theta.bias[item] - theta.bias[other] if theta.bias.size else ZERO
                for f in range(n_factors):
                    margin += p[f] * (q[f] - r[f])
                step = rates.lr * rank_pull(margin)
                for f in range(n_factors):
                    pf, qf, rf = p[f], q[f], r[f]
                    p[f] = user_shrink * pf + step * (qf - rf)
                    q[f] = item_shrink * qf + step * pf
                    r[f] = negative_shrink * rf - step * pf
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
    stamp = np.empty(size, np.int32)
    for b in range(first, last):
        part = (b + turn) % n_blocks
        low, high = min(part * size, n_items), min((part + 1) * size, n_items)
        begin, end = strata.cells[b * n_blocks + part], strata.cells[b * n_blocks + part + 1]
        if begin == end:
            continue
        stamp[:] = 0
        bias = theta.bias[low:high] if theta.bias.size else theta.bias
        mine = Parameters(
            theta.user[users[b] : users[b + 1]],
            theta.boundary[users[b] : users[b + 1]],
            theta.item[low:high],
            bias,
        )
        local = strata.groups[begin:end] - np.int32(users[b])
        pairs += mf_block(
            strata.starts[begin : end + 1],
            local,
            strata.liked,
            mine,
            rates,
            stamp[: high - low],
            block_state(word, turn * n_blocks + b),
            width,
        )
    return pairs
