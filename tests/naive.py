"""Slow and plain: the learners' steps by numeric gradients, on the random stream the kernels draw from."""

import numpy as np

from shortlist.kernels.losses import HINGE, L1, SQUARED

GOLDEN, MASK, LOW = 0x9E3779B97F4A7C15, 2**64 - 1, 2**32 - 1
H = 1e-5


def next_word(state):
    """SplitMix64 in whole numbers: (next state, 64 bits)."""
    state = (state + GOLDEN) & MASK
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


def block_state(word, number):
    """The stream of cell `number` in the epoch named by `word`."""
    state = (number * GOLDEN) & MASK
    state = word ^ next_word(state)[1]
    return next_word(state)[1]


def draw(state, low, high):
    """(next state, an item of low … high - 1, a number in [0, 1))."""
    state, word = next_word(state)
    return state, low + ((word >> 32) * (high - low) >> 32), ((word & LOW) >> 8) * 2.0**-24


def pair_loss(liked, other):
    """BPR: -ln σ(s_i - s_j)."""
    return np.logaddexp(0, other - liked)


def class_loss(loss, score, boundary, relevant):
    """Logistic, hinge, or half the square to 1 and 0."""
    if loss == SQUARED:
        return (score - relevant) ** 2 / 2
    margin = (score - boundary) * (1 if relevant else -1)
    return max(0.0, 1 - margin) if loss == HINGE else np.logaddexp(0, -margin)


def prox(moved, reach, t, penalty):
    """Where reach · R(x - t) + (x - moved)² / 2 is least."""
    away = moved - t
    if penalty == L1:
        return t + np.sign(away) * max(abs(away) - reach, 0)
    return t + away / (1 + 2 * reach)


def gradient(value, x):
    """Central differences of value() with respect to the array x, which value() reads."""
    slope = np.empty_like(x)
    for at in np.ndindex(x.shape):
        kept = x[at]
        x[at] = kept + H
        above = value()
        x[at] = kept - H
        slope[at] = (above - value()) / (2 * H)
        x[at] = kept
    return slope


def hybrid(user, context, max_items, max_user):
    """HRM's score vector; context holds one row per item of the basket before."""
    pooled = context.max(0) if max_items else context.mean(0)
    return np.maximum(user, pooled) if max_user else (user + pooled) / 2


def score(theta, vector, item):
    """One item's score."""
    return theta.item[item] @ vector + (theta.bias[item] if theta.bias.size else 0)


def strength(item, before, repeat_decay):
    """How strongly baskets speak for an item; the last one counts in full."""
    return np.log1p(sum(repeat_decay**age for age, basket in enumerate(reversed(before)) if item in basket))


def trend_score(item, day, sold, half_life, prior=3):
    """How much more than usual an item sold before a day; sold are (day, item) of everybody, in any order."""
    before = [(day - 1 - when, one) for when, one in sold if when < day]
    recent = sum(0.5 ** (age / half_life) for age, one in before if one == item)
    share = sum(one == item for _, one in before) / max(len(before), 1)
    expected = share * sum(0.5 ** (age / half_life) for age, _ in before)
    return np.log((recent + prior) / (expected + prior))


def step(theta, rates, user, items, relevant, pools=None, basket=(), snapshot=None, signals=None):
    """One step on a pair of items (relevant None) or on one example; what the basket's items are owed.

    `signals` are, by the names of a term's weights, what these are multiplied by and where the user's starts.
    """
    terms = [
        (theta._asdict()[own], theta._asdict()[each], np.asarray(x), level)
        for (own, each), (x, level) in (signals or {}).items()
    ]
    owns, eaches = [own[[user]] for own, *_ in terms], [each[items] for _, each, *_ in terms]
    p, q, t = theta.user[user].copy(), theta.item[items].copy(), theta.boundary[[user]].copy()
    bias = theta.bias[items].copy() if theta.bias.size else np.zeros(len(items))
    owners, at = np.unique(np.array(basket, int), return_inverse=True)
    context = None if snapshot is None else snapshot[owners].copy()

    def loss():
        vector = p if context is None else hybrid(p, context[at], *pools)
        scores = q @ vector + bias
        for own, each, (_, _, x, _) in zip(owns, eaches, terms, strict=True):
            scores = scores + (own + each) * x
        if relevant is None:
            return pair_loss(*scores)
        weight = rates.weight if relevant else 1
        return weight * class_loss(rates.loss, scores[0], t[0], relevant)

    regs = [rates.reg_item, rates.reg_negative] if relevant is None or relevant else [rates.reg_negative]
    regs = np.array(regs[: len(items)], float)

    def whole():
        size = rates.reg_user * p @ p
        size += sum(reg * row @ row for reg, row in zip(regs, q, strict=False))
        for own, each, (*_, level) in zip(owns, eaches, terms, strict=True):
            size += rates.reg_user * (own[0] - level) ** 2 + regs @ each**2
        return loss() + size / 2  # the bias is free

    lr = float(rates.lr)
    moves = [-lr * gradient(whole, x) for x in (p, q, bias)]
    leans = [[-lr * gradient(whole, x) for x in pair] for pair in zip(owns, eaches, strict=True)]
    if relevant is not None and rates.learn_boundary:
        moved = t[0] - lr * gradient(loss, t)[0]
        theta.boundary[user] = prox(moved, lr * rates.lambda_t, rates.t, rates.penalty)
    owed = {} if context is None else dict(zip(owners, -lr * gradient(loss, context), strict=True))
    theta.user[user] += moves[0]
    theta.item[items] += moves[1]
    if theta.bias.size:
        theta.bias[items] += moves[2]
    for (own, each, *_), (move, shift) in zip(terms, leans, strict=True):
        own[user] += move[0]
        each[items] += shift
    return owed


def block(
    theta,
    rates,
    visits,
    low,
    high,
    state,
    pools=None,
    snapshot=None,
    pasts=None,
    repeat_decay=1,
    level=0.0,
    trend_scores=None,
):
    """All steps of one stratum; visits are (user, liked items, basket before). Returns (pairs, [owed, …]).

    `pasts` are all baskets of the user before each visit, `trend_scores` each item's trend_score at it, where they count.
    """
    pairs, debts = 0, []
    for number, (user, liked, basket) in enumerate(visits):
        if snapshot is not None and not basket:
            continue
        before = () if pasts is None else pasts[number]
        known = list(dict.fromkeys(i for one in before for i in one if low <= i < high))
        share = rates.share or len(liked) / (high - low + len(liked))
        for item in liked:
            word = next_word(state)[1]
            state, other, z = draw(state, low, high)
            relevant = z < rates.alpha * share
            pair = z >= rates.alpha
            if pair and word & 1 and strength(item, before, repeat_decay) > 0:
                own = next_word(word - GOLDEN)[1]  # the word itself, mixed
                other = known[(own >> 32) * len(known) >> 32]
            elif pair and rates.negative_draws > 1:
                vector = (
                    theta.user[user]
                    if snapshot is None
                    else hybrid(theta.user[user], snapshot[basket], *pools)
                )
                drawn = [other]
                for _ in range(rates.negative_draws - 1):  # from a stream that starts at the word just drawn
                    word, another, _ = draw(word, low, high)
                    drawn.append(another)
                free = [i for i in drawn if i not in liked]
                warm = dict.fromkeys(free, 0) if trend_scores is None else trend_scores[number]
                lean = {
                    i: (theta.user_trend[user] + theta.item_trend[i]) * warm[i] if warm[i] else 0
                    for i in free
                }
                other = max(free, key=lambda i: score(theta, vector, i) + lean[i]) if free else other
            if not relevant and other in liked:
                continue
            pairs += pair
            items = [item, other] if pair else [item if relevant else other]
            signals = {}
            if pasts is not None:
                signals["user_repeat", "item_repeat"] = (
                    [strength(i, before, repeat_decay) for i in items],
                    level,
                )
            if trend_scores is not None:
                signals["user_trend", "item_trend"] = [trend_scores[number][i] for i in items], 1.0
            kind = None if pair else relevant
            debts.append(step(theta, rates, user, items, kind, pools, basket, snapshot, signals))
    return pairs, debts


def a_round(
    theta,
    rates,
    groups,
    users_at,
    size,
    turn,
    word,
    pools=None,
    each=1,
    repeat_decay=None,
    level=0.0,
    trend_scores=None,
):
    """One round over all blocks; groups are (user, items, basket before), items by their place."""
    n_blocks, n_items, pairs, owed = len(users_at) - 1, len(theta.item), 0, []
    snapshot = None if pools is None else theta.item.copy()
    cells = [(b, (b + turn) % n_blocks * each + k) for b in range(n_blocks) for k in range(each)]
    for b, part in cells:
        low, high = min(part * size, n_items), min((part + 1) * size, n_items)
        visits, pasts, warmth = [], [], []
        for number, (user, items, basket) in enumerate(groups):
            liked = [i for i in items if low <= i < high]
            if liked and users_at[b] <= user < users_at[b + 1]:
                visits.append((user, liked, basket))
                pasts.append([own for who, own, _ in groups[:number] if who == user])
                warmth.append(None if trend_scores is None else trend_scores[number])
        state = block_state(word, b * n_blocks * each + part)
        counts = (
            None if repeat_decay is None else pasts,
            repeat_decay,
            level,
            None if trend_scores is None else warmth,
        )
        made, debts = block(theta, rates, visits, low, high, state, pools, snapshot, *counts)
        pairs += made
        owed += debts
    for debt in owed:
        for item, move in debt.items():
            theta.item[item] += move
    return pairs
