"""Fold-in: the vector and boundary of a user with all items fixed, by solving the user's convex problem."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from shortlist.core.ragged import read_only
from shortlist.core.threads import thread_count
from shortlist.data.interactions import Interactions
from shortlist.kernels.fold import FoldInPairs, fold_in_users
from shortlist.kernels.mf import Hyperparameters
from shortlist.types import Doubles, Floats, Ints

MIN_PAIRS = 200  # pairs per user, at least
FOLD_IN = 7  # id of a random stream


def fold_in(
    data: Interactions,
    users: Ints,
    density: Doubles,
    vectors: Floats,
    boundary: Floats,
    items: Floats,
    bias: Floats,
    hyper: Hyperparameters[float],
    pooling: int,
    seed: int,
    n_threads: int,
) -> tuple[Floats, Floats]:
    """Return the (vectors, boundaries) of `users`, which start at the given ones; HRM gets no context."""
    pairs = _draw_pairs(data, users, density, seed)
    contexts = np.zeros_like(vectors)
    items, bias = read_only(items), read_only(bias)  # as in all calls, so that the kernel is compiled once
    n = thread_count(n_threads)
    cuts = np.linspace(0, users.size, min(n, users.size) + 1).astype(int)
    with ThreadPoolExecutor(n) as pool:
        jobs = [
            pool.submit(fold_in_users, a, b, pairs, contexts, items, bias, hyper, pooling, vectors, boundary)
            for a, b in pairwise(cuts)
        ]
        for job in jobs:
            job.result()
    return vectors, boundary


def _draw_pairs(data: Interactions, users: Ints, density: Doubles, seed: int) -> FoldInPairs:
    """Every item of a user against a few others; the draws depend only on the seed and the user's items."""
    indptr, sets = data.item_sets
    liked, unseen, lengths = [], [], [0]
    for user in users:
        own = sets[indptr[user] : indptr[user + 1]]
        rng = np.random.Generator(np.random.PCG64([seed, FOLD_IN, *own.tolist()]))
        each = -(-MIN_PAIRS // own.size)
        drawn = rng.integers(data.n_items, size=own.size * each, dtype=np.int32)
        at = np.searchsorted(own, drawn)
        is_unseen = own[np.minimum(at, own.size - 1)] != drawn
        liked.append(np.repeat(own, each)[is_unseen])
        unseen.append(drawn[is_unseen])
        lengths.append(int(is_unseen.sum()))
    return FoldInPairs(np.cumsum(lengths), np.concatenate(liked), np.concatenate(unseen), density)
