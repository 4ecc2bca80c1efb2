"""Slow reference implementation of training: numeric gradients, on the same random stream as the kernels."""

import numpy as np

from shortlist.kernels.parameters import HINGE, L1, SQUARED

GOLDEN, MASK, LOW = 0x9E3779B97F4A7C15, 2**64 - 1, 2**32 - 1
H = 1e-5


def next_bits(state):
    """SplitMix64 in Python integers: (next state, 64 bits)."""
    state = (state + GOLDEN) & MASK
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


def cell_state(key, number):
    """The stream of cell `number` in the epoch identified by `key`."""
    state = (number * GOLDEN) & MASK
    state = key ^ next_bits(state)[1]
    return next_bits(state)[1]


def draw(state, low, high):
    """(next state, an item of low … high - 1, a number in [0, 1))."""
    state, bits = next_bits(state)
    return state, low + ((bits >> 32) * (high - low) >> 32), ((bits & LOW) >> 8) * 2.0**-24


def pair_loss(liked, other):
    """BPR: -ln σ(s_i - s_j)."""
    return np.logaddexp(0, other - liked)


def class_loss(loss, score, boundary, relevant):
    """Logistic, hinge, or half the square to 1 and 0."""
    if loss == SQUARED:
        return (score - relevant) ** 2 / 2
    margin = (score - boundary) * (1 if relevant else -1)
    return max(0.0, 1 - margin) if loss == HINGE else np.logaddexp(0, -margin)


def prox(moved, strength, t, penalty):
    """The minimum of strength · R(x - t) + (x - moved)² / 2."""
    distance = moved - t
    if penalty == L1:
        return t + np.sign(distance) * max(abs(distance) - strength, 0)
    return t + distance / (1 + 2 * strength)


def gradient(value, x):
    """Central differences of value() with respect to the array x, which value() reads."""
    slope = np.empty_like(x)
    for at in np.ndindex(x.shape):
        old = x[at]
        x[at] = old + H
        above = value()
        x[at] = old - H
        slope[at] = (above - value()) / (2 * H)
        x[at] = old
    return slope


def hybrid(user, context, max_items, max_user):
    """The score vector of HRM; context has one row per item of the previous basket."""
    pooled = context.max(0) if max_items else context.mean(0)
    return np.maximum(user, pooled) if max_user else (user + pooled) / 2


def score(theta, vector, item):
    """One item's score."""
    return theta.item[item] @ vector + (theta.bias[item] if theta.bias.size else 0)


def repeat_signal(item, before, repeat_decay):
    """ln(1 + decayed number of baskets with the item); the latest basket has weight 1."""
    return np.log1p(sum(repeat_decay**age for age, basket in enumerate(reversed(before)) if item in basket))


def trend_score(item, day, sold, half_life, prior=3):
    """ln(recent / expected sales of an item before a day); sold are (day, item) of all users."""
    before = [(day - 1 - when, one) for when, one in sold if when < day]
    recent = sum(0.5 ** (age / half_life) for age, one in before if one == item)
    share = sum(one == item for _, one in before) / max(len(before), 1)
    expected = share * sum(0.5 ** (age / half_life) for age, _ in before)
    return np.log((recent + prior) / (expected + prior))


def step(theta, hyper, user, items, relevant, pools=None, basket=(), snapshot=None, signals=None):
    """One step on a pair of items (relevant None) or one example; returns the moves of the context items.

    `signals` maps the names of a term's weights to the signal of each item and the user's initial weight.
    """
    terms = [
        (theta._asdict()[own], theta._asdict()[each], np.asarray(x), start)
        for (own, each), (x, start) in (signals or {}).items()
    ]
    user_weights, item_weights = [own[[user]] for own, *_ in terms], [each[items] for _, each, *_ in terms]
    p, q, t = theta.user[user].copy(), theta.item[items].copy(), theta.boundary[[user]].copy()
    bias = theta.bias[items].copy() if theta.bias.size else np.zeros(len(items))
    owners, at = np.unique(np.array(basket, int), return_inverse=True)
    context = None if snapshot is None else snapshot[owners].copy()

    def loss():
        vector = p if context is None else hybrid(p, context[at], *pools)
        scores = q @ vector + bias
        for own, each, (_, _, x, _) in zip(user_weights, item_weights, terms, strict=True):
            scores = scores + (own + each) * x
        if relevant is None:
            return pair_loss(*scores)
        weight = hyper.positive_weight if relevant else 1
        return weight * class_loss(hyper.loss, scores[0], t[0], relevant)

    regs = [hyper.reg_item, hyper.reg_negative] if relevant is None or relevant else [hyper.reg_negative]
    regs = np.array(regs[: len(items)], float)

    def regularized_loss():
        size = hyper.reg_user * p @ p
        size += sum(reg * row @ row for reg, row in zip(regs, q, strict=False))
        for own, each, (*_, start) in zip(user_weights, item_weights, terms, strict=True):
            size += hyper.reg_user * (own[0] - start) ** 2 + regs @ each**2
        return loss() + size / 2  # the bias is not regularized

    lr = float(hyper.lr)
    moves = [-lr * gradient(regularized_loss, x) for x in (p, q, bias)]
    weights = zip(user_weights, item_weights, strict=True)
    weight_moves = [[-lr * gradient(regularized_loss, x) for x in pair] for pair in weights]
    if relevant is not None and hyper.learn_boundary:
        moved = t[0] - lr * gradient(loss, t)[0]
        theta.boundary[user] = prox(moved, lr * hyper.lambda_t, hyper.t, hyper.penalty)
    context_moves = {} if context is None else dict(zip(owners, -lr * gradient(loss, context), strict=True))
    theta.user[user] += moves[0]
    theta.item[items] += moves[1]
    if theta.bias.size:
        theta.bias[items] += moves[2]
    for (own, each, *_), (move, shift) in zip(terms, weight_moves, strict=True):
        own[user] += move[0]
        each[items] += shift
    return context_moves


def step_kind(row, liked, z, hyper):
    """(whether the step is a positive example, whether it is a pair); (None, False) for no step."""
    if row < 0:
        return ~row in liked, False
    if z < hyper.alpha and not hyper.positive_rate:
        return None, False  # all examples have their own rows
    return z < hyper.alpha * hyper.positive_rate, z >= hyper.alpha


def block(
    theta,
    hyper,
    visits,
    low,
    high,
    state,
    pools=None,
    snapshot=None,
    histories=None,
    repeat_decay=1,
    start=0.0,
    trend_scores=None,
):
    """All steps of one stratum; visits are (user, rows, previous basket). Returns (pairs, moves).

    A row is a liked item or ~item, an example drawn from all items.
    `histories` are all earlier baskets of the user at each visit, `trend_scores` the items' trend scores.
    """
    pairs, context_moves = 0, []
    for number, (user, rows, basket) in enumerate(visits):
        liked = [row for row in rows if row >= 0]
        if snapshot is not None and not basket:
            continue
        before = () if histories is None else histories[number]
        known = list(dict.fromkeys(i for one in before for i in one if low <= i < high))
        for row in rows:
            bits = next_bits(state)[1]
            state, other, z = draw(state, low, high)
            item, other = (row, other) if row >= 0 else (~row, ~row)
            relevant, pair = step_kind(row, liked, z, hyper)
            if pair and bits & 1 and repeat_signal(item, before, repeat_decay) > 0:
                mixed = next_bits(bits - GOLDEN)[1]
                other = known[(mixed >> 32) * len(known) >> 32]
            elif pair and hyper.negative_draws > 1:
                vector = (
                    theta.user[user]
                    if snapshot is None
                    else hybrid(theta.user[user], snapshot[basket], *pools)
                )
                drawn = [other]
                for _ in range(hyper.negative_draws - 1):  # from a stream seeded with the bits just drawn
                    bits, another, _ = draw(bits, low, high)
                    drawn.append(another)
                free = [i for i in drawn if i not in liked]
                signal = dict.fromkeys(free, 0) if trend_scores is None else trend_scores[number]
                trend_part = {
                    i: (theta.user_trend[user] + theta.item_trend[i]) * signal[i] if signal[i] else 0
                    for i in free
                }
                other = max(free, key=lambda i: score(theta, vector, i) + trend_part[i]) if free else other
            if relevant is None or (not relevant and other in liked):
                continue
            pairs += pair
            items = [item, other] if pair else [item if relevant else other]
            signals = {}
            if histories is not None:
                signals["user_repeat", "item_repeat"] = (
                    [repeat_signal(i, before, repeat_decay) for i in items],
                    start,
                )
            if trend_scores is not None:
                signals["user_trend", "item_trend"] = [trend_scores[number][i] for i in items], 1.0
            kind = None if pair else relevant
            context_moves.append(step(theta, hyper, user, items, kind, pools, basket, snapshot, signals))
    return pairs, context_moves


def run_round(
    theta,
    hyper,
    groups,
    user_starts,
    size,
    round_index,
    key,
    pools=None,
    each=1,
    repeat_decay=None,
    start=0.0,
    trend_scores=None,
):
    """One round over all blocks; groups are (user, items, previous basket), items by their label."""
    n_blocks, n_items, pairs, context_moves = len(user_starts) - 1, len(theta.item), 0, []
    snapshot = None if pools is None else theta.item.copy()
    cells = [(b, (b + round_index) % n_blocks * each + k) for b in range(n_blocks) for k in range(each)]
    for b, part in cells:
        low, high = min(part * size, n_items), min((part + 1) * size, n_items)
        visits, histories, visit_trends = [], [], []
        for number, (user, items, basket) in enumerate(groups):
            liked = [i for i in items if low <= (i if i >= 0 else ~i) < high]
            if liked and user_starts[b] <= user < user_starts[b + 1]:
                visits.append((user, liked, basket))
                earlier = [own for who, own, _ in groups[:number] if who == user]
                histories.append([[i for i in own if i >= 0] for own in earlier])
                visit_trends.append(None if trend_scores is None else trend_scores[number])
        state = cell_state(key, b * n_blocks * each + part)
        counts = (
            None if repeat_decay is None else histories,
            repeat_decay,
            start,
            None if trend_scores is None else visit_trends,
        )
        n_pairs, moves = block(theta, hyper, visits, low, high, state, pools, snapshot, *counts)
        pairs += n_pairs
        context_moves += moves
    for moves in context_moves:
        for item, move in moves.items():
            theta.item[item] += move
    return pairs
