"""Learn from the training data how much each field of the content counts, and how scores become log-odds.

Items are hidden from the users' profiles: the last basket of each user, or a random fifth of all items if
no user has two baskets. The log-odds that a user interacts with a hidden item are linear in the similarity of
each field, in the neighborhood's, and in the logarithm of the size of the history.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack

from shortlist.core.glm import LOGISTIC, glm_fit
from shortlist.data.interactions import Interactions
from shortlist.models.content.neighbors import neighborhood_rows, normalize_readers
from shortlist.models.content.queries import Catalog, ProfileRules, build_queries
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

MAX_USERS = 2000  # users to learn from
N_NEGATIVES = 300  # hidden items per user that are compared with those the user interacted with
HIDDEN_SHARE = 0.2
NEIGHBORHOOD_FACTORS = (1.0, 1.5, 2.0, 3.0)  # of the regression, which weighs easy items like hard ones
RIDGE = 1.0


class LearnedWeights(NamedTuple):
    """log-odds = fields · similarities + intercept + activity · log(1 + items of the user)."""

    fields: Floats  # (n_fields + 1,) of each field and of the neighborhood, not negative
    intercept: float
    activity: float

    def shift(self, n_items: Longs) -> Floats:
        """(n,) log-odds of an item that shares nothing with the user, by the size of the history."""
        found: Floats = (self.intercept + self.activity * np.log1p(n_items)).astype(np.float32)
        return found


class Hidden(NamedTuple):
    """What is hidden from the profiles of some users."""

    seen: Interactions  # the rest of the rows
    is_hidden: Bools  # (n_rows,) of the training data
    users: Longs
    pool: Longs  # items that are compared


class Examples(NamedTuple):
    """Pairs of users and hidden items."""

    similarities: Doubles  # (n_pairs, n_fields + 1)
    log_items: Doubles  # (n_pairs,) log(1 + items of the user's profile)
    relevant: Bools  # (n_pairs,)
    weight: Doubles  # (n_pairs,) pairs that each stands for
    user: Longs  # (n_pairs,)


def learn_weights(
    train: Interactions, catalog: Catalog, neighbors: csr_array, k: int, rules: ProfileRules, seed: int
) -> LearnedWeights:
    """Logistic regression on hidden items; equal weights if there is nothing to learn from.

    `neighbors` has a few more than k entries per item, because those that are hidden do not count.
    """
    rng = np.random.default_rng(seed)
    hidden = _hide(train, catalog.content, rng)
    n_fields = len(catalog.space.fields) + 1
    found = None if hidden is None else _compare(train, hidden, catalog, neighbors, k, rules, rng)
    if found is None or not found.relevant.any():
        rate = train.n_rows / max(train.n_users * train.n_items, 1)
        prior = float(np.log(rate / max(1 - rate, 1e-6)))
        return LearnedWeights(np.ones(n_fields, np.float32), min(prior, 0.0), 0.0)
    learned = _regress(found, n_fields)
    best = max(NEIGHBORHOOD_FACTORS, key=lambda factor: _precision(found, _boost(learned.fields, factor)))
    if best == 1 or not learned.fields[-1]:
        return learned
    # one regression more: the size of the scores, with the weights in the ratio that ranks best
    ratio = _boost(learned.fields, best)
    score = found.similarities @ ratio.astype(np.float64)
    scaled = _regress(found._replace(similarities=score[:, None]), 1)
    return scaled._replace(fields=ratio * scaled.fields[0])


def _boost(fields: Floats, factor: float) -> Floats:
    """The weights with another one of the neighborhood."""
    return np.append(fields[:-1], np.float32(factor) * fields[-1]).astype(np.float32)


def _precision(found: Examples, fields: Floats) -> float:
    """Mean average precision over users, if the sampled items stand for all: random ones are easy to rank."""
    score = found.similarities @ fields.astype(np.float64)
    order = np.lexsort((-score, found.user))
    user, relevant, weight = found.user[order], found.relevant[order], found.weight[order]
    first = np.searchsorted(user, user)
    hits, rank = np.cumsum(relevant), np.cumsum(weight)
    hits, rank = hits - (hits - relevant)[first], rank - (rank - weight)[first]
    each = np.bincount(user, weights=np.where(relevant, hits / rank, 0.0))
    total = np.bincount(user, weights=relevant)
    return float((each[total > 0] / total[total > 0]).mean())


def _regress(found: Examples, n_fields: int) -> LearnedWeights:
    """The weights of all fields that raise the odds; the others are 0."""
    used = np.flatnonzero(found.similarities.std(axis=0) > 0)
    while True:
        columns = np.column_stack([found.similarities[:, used], found.log_items])
        scale = np.maximum(columns.std(axis=0), 1e-9)
        y = found.relevant.astype(np.float64)
        beta = glm_fit(columns / scale, y, LOGISTIC, weight=found.weight, ridge=RIDGE)
        slopes = beta[1:] / scale
        if (slopes[:-1] > 0).all():
            break
        used = used[slopes[:-1] > 0]
    fields = np.zeros(n_fields, np.float32)
    fields[used] = slopes[:-1]
    if not used.size:
        fields[:] = 1
    return LearnedWeights(fields, float(beta[0]), float(slopes[-1]))


def _hide(train: Interactions, content: csr_array, rng: np.random.Generator) -> Hidden | None:
    """Hide last baskets, or a share of the items."""
    known = np.flatnonzero(np.diff(content.indptr) > 0)
    if train.n_baskets > train.n_users:
        users = np.flatnonzero(np.diff(train.user_baskets) > 1)
        basket = np.repeat(np.arange(train.n_baskets), np.diff(train.baskets))
        is_last = np.zeros(train.n_baskets, np.bool_)
        is_last[train.user_baskets[1:][users] - 1] = True
        is_hidden, pool = is_last[basket], known
    else:
        pool = np.sort(rng.permutation(known)[: max(int(known.size * HIDDEN_SHARE), 1)])
        member = np.zeros(train.n_items, np.bool_)
        member[pool] = True
        is_hidden = member[train.item]
        users = np.unique(train.user[is_hidden])
    seen = train.where(~is_hidden)
    users = users[np.diff(seen.indptr)[users] > 0]
    if not users.size or not pool.size:
        return None
    return Hidden(seen, is_hidden, np.sort(rng.permutation(users)[:MAX_USERS]), pool)


def _compare(
    train: Interactions,
    hidden: Hidden,
    catalog: Catalog,
    neighbors: csr_array,
    k: int,
    rules: ProfileRules,
    rng: np.random.Generator,
) -> Examples:
    """The similarities of hidden items: all that a user interacted with, and a sample of the others."""
    seen = hidden.seen
    known = catalog._replace(readers=normalize_readers(*seen.item_sets, seen.n_items))
    n_fields = len(catalog.space.fields) + 1
    chosen = np.zeros(seen.n_users, np.bool_)
    chosen[hidden.users] = True
    ones = np.ones(n_fields, np.float32)
    profiles = build_queries(seen.where(chosen[seen.user]), rules, known, ones)
    near = neighborhood_rows(neighbors, seen.item_counts > 0, k)
    items = csr_array(hstack([catalog.content, near], format="csr", dtype=np.float32))
    owner, has_content = catalog.owner, np.diff(catalog.content.indptr) > 0
    parts = []
    for user in hidden.users:
        at = slice(train.indptr[user], train.indptr[user + 1])
        own = seen.item[seen.indptr[user] : seen.indptr[user + 1]]
        positive = np.setdiff1d(train.item[at][hidden.is_hidden[at]], own)
        positive = positive[has_content[positive]]
        drawn = hidden.pool[rng.integers(hidden.pool.size, size=N_NEGATIVES)]
        drawn = np.setdiff1d(drawn, np.concatenate([positive, own]))
        pair = np.concatenate([positive, drawn])
        relevant = np.arange(pair.size) < positive.size
        others = max(hidden.pool.size - positive.size, drawn.size) / max(drawn.size, 1)
        similar = _similarities(profiles[[int(user)]], items[pair], owner, n_fields)
        size = np.full(pair.size, np.log1p(np.unique(own).size))
        weight, number = np.where(relevant, 1.0, others), np.full(pair.size, user, np.int64)
        parts.append(Examples(similar, size, relevant, weight, number))
    return Examples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _similarities(profile: csr_array, items: csr_array, owner: Ints, n_fields: int) -> Doubles:
    """(n_items, n_fields) the product of each item and the profile, field by field."""
    dense = np.zeros(items.shape[1])
    dense[profile.indices] = profile.data
    row = np.repeat(np.arange(items.shape[0]), np.diff(items.indptr))
    values = items.data * dense[items.indices]
    key = row * n_fields + owner[items.indices]
    found = np.bincount(key, weights=values, minlength=items.shape[0] * n_fields)
    return found.astype(np.float64).reshape(-1, n_fields)
