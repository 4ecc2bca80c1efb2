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


def strength(item, before, memory):
    """How strongly baskets speak for an item; the last one counts in full."""
    return np.log1p(sum(memory**age for age, basket in enumerate(reversed(before)) if item in basket))


def step(theta, rates, user, items, relevant, pools=None, basket=(), snapshot=None, past=None, level=0.0):
    """One step on a pair of items (relevant None) or on one example; what the basket's items are owed."""
    p, q, t = theta.user[user].copy(), theta.item[items].copy(), theta.boundary[[user]].copy()
    bias = theta.bias[items].copy() if theta.bias.size else np.zeros(len(items))
    habit = np.zeros(1) if past is None else theta.habit[[user]].copy()
    repeat = np.zeros(len(items)) if past is None else theta.repeat[items].copy()
    owners, at = np.unique(np.array(basket, int), return_inverse=True)
    context = None if snapshot is None else snapshot[owners].copy()

    def loss():
        vector = p if context is None else hybrid(p, context[at], *pools)
        scores = q @ vector + bias + (0 if past is None else (habit + repeat) * past)
        if relevant is None:
            return pair_loss(*scores)
        weight = rates.weight if relevant else 1
        return weight * class_loss(rates.loss, scores[0], t[0], relevant)

    regs = [rates.reg_item, rates.reg_negative] if relevant is None or relevant else [rates.reg_negative]
    regs = np.array(regs[: len(items)], float)

    def whole():
        size = rates.reg_user * p @ p
        size += sum(reg * row @ row for reg, row in zip(regs, q, strict=False))
        size += rates.reg_user * (habit[0] - level) ** 2 + regs @ repeat**2
        return loss() + size / 2  # the bias is free

    lr = float(rates.lr)
    moves = [-lr * gradient(whole, x) for x in (p, q, bias, habit, repeat)]
    if relevant is not None and rates.learn_boundary:
        moved = t[0] - lr * gradient(loss, t)[0]
        theta.boundary[user] = prox(moved, lr * rates.lambda_t, rates.t, rates.penalty)
    owed = {} if context is None else dict(zip(owners, -lr * gradient(loss, context), strict=True))
    theta.user[user] += moves[0]
    theta.item[items] += moves[1]
    if theta.bias.size:
        theta.bias[items] += moves[2]
    if past is not None:
        theta.habit[user] += moves[3][0]
        theta.repeat[items] += moves[4]
    return owed


def block(theta, rates, visits, low, high, state, pools=None, snapshot=None, pasts=None, memory=1, level=0.0):
    """All steps of one stratum; visits are (user, liked items, basket before). Returns (pairs, [owed, …]).

    `pasts` are all baskets of the user before each visit, where they count.
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
            if pair and word & 1 and strength(item, before, memory) > 0:
                own = next_word(word - GOLDEN)[1]  # the word itself, mixed
                other = known[(own >> 32) * len(known) >> 32]
            elif pair and rates.draws > 1:
                vector = (
                    theta.user[user]
                    if snapshot is None
                    else hybrid(theta.user[user], snapshot[basket], *pools)
                )
                drawn = [other]
                for _ in range(rates.draws - 1):  # from a stream that starts at the word just drawn
                    word, another, _ = draw(word, low, high)
                    drawn.append(another)
                free = [i for i in drawn if i not in liked]
                other = max(free, key=lambda i: score(theta, vector, i)) if free else other
            if not relevant and other in liked:
                continue
            pairs += pair
            items = [item, other] if pair else [item if relevant else other]
            past = None if pasts is None else np.array([strength(i, before, memory) for i in items])
            kind = None if pair else relevant
            debts.append(step(theta, rates, user, items, kind, pools, basket, snapshot, past, level))
    return pairs, debts


def a_round(theta, rates, groups, users_at, size, turn, word, pools=None, each=1, memory=None, level=0.0):
    """One round over all blocks; groups are (user, items, basket before), items by their place."""
    n_blocks, n_items, pairs, owed = len(users_at) - 1, len(theta.item), 0, []
    snapshot = None if pools is None else theta.item.copy()
    cells = [(b, (b + turn) % n_blocks * each + k) for b in range(n_blocks) for k in range(each)]
    for b, part in cells:
        low, high = min(part * size, n_items), min((part + 1) * size, n_items)
        visits = [
            (user, [i for i in items if low <= i < high], basket)
            for user, items, basket in groups
            if users_at[b] <= user < users_at[b + 1]
        ]
        owners = [user for user, _, _ in groups]
        pasts = [
            [groups[g][1] for g in range(len(groups)) if owners[g] == user and g < number]
            for number, user in enumerate(owners)
            if users_at[b] <= user < users_at[b + 1]
        ]
        pasts = [past for past, visit in zip(pasts, visits, strict=True) if visit[1]]
        visits = [visit for visit in visits if visit[1]]
        state = block_state(word, b * n_blocks * each + part)
        past = (None,) if memory is None else (pasts, memory, level)
        made, debts = block(theta, rates, visits, low, high, state, pools, snapshot, *past)
        pairs += made
        owed += debts
    for debt in owed:
        for item, move in debt.items():
            theta.item[item] += move
    return pairs
