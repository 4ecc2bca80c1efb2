"""Validation while training: F1 at its best N on a fixed sample of users."""

from collections.abc import Callable

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.kernels.mf import Parameters
from shortlist.types import Floats, Ints

MOST_USERS = 2000
MOST_ITEMS = 20
CHUNK = 256
SAMPLE = 6  # name of a random stream

Vectors = Callable[[Parameters, Interactions, Ints], Floats]


def judge_of(
    valid: Interactions, history: Interactions, vectors: Vectors, seed: int
) -> Callable[[Parameters], float]:
    """A function from parameters to F1; seen items are left out unless the data shows that people return."""
    if valid.users != history.users or valid.items != history.items:
        raise DataError(
            "validation data must share its id tables with the training data; take both from one split."
        )
    rng = np.random.Generator(np.random.PCG64([seed, SAMPLE]))
    users = valid.active_users
    if not users.size:
        raise DataError("validation data must hold at least one interaction, got none; leave it out instead.")
    if users.size > MOST_USERS:
        users = np.sort(rng.choice(users, MOST_USERS, replace=False))
    taken = valid.csr()[users]
    taken.data[:] = 1
    taken.sum_duplicates()
    taken.data[:] = 1
    seen = None if history.returns else history.item_sets

    def judge(theta: Parameters) -> float:
        totals = np.zeros(MOST_ITEMS)
        for at in range(0, users.size, CHUNK):
            part = users[at : at + CHUNK]
            scores = vectors(theta, history, part) @ theta.item.T
            if theta.bias.size:
                scores += theta.bias
            if seen is not None:
                lengths = np.diff(seen[0])[part]
                row = np.repeat(np.arange(part.size), lengths)
                cols = np.concatenate([seen[1][seen[0][u] : seen[0][u + 1]] for u in part])
                scores[row, cols] = -np.inf
            totals += _f1_sums(scores, taken[at : at + CHUNK].toarray() > 0)
        return float(totals.max() / users.size)

    return judge


def _f1_sums(scores: Floats, truth: np.ndarray) -> np.ndarray:
    """Sum over users of F1 at N = 1 … MOST_ITEMS."""
    depth = min(MOST_ITEMS, scores.shape[1])
    head = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
    order = np.argsort(-np.take_along_axis(scores, head, 1), axis=1, kind="stable")
    hits = np.cumsum(np.take_along_axis(truth, np.take_along_axis(head, order, 1), 1), axis=1)
    lengths = np.arange(1, depth + 1)
    f1 = 2 * hits / (lengths + truth.sum(1, keepdims=True))
    sums = np.zeros(MOST_ITEMS)
    sums[:depth] = f1.sum(0)
    sums[depth:] = sums[depth - 1]
    return sums
