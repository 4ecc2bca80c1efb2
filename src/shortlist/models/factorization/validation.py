"""Validation while training: F1 at its best N on a fixed sample of users."""

from collections.abc import Callable

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.kernels.mf import Parameters
from shortlist.recommend.retrieve import Hits, Sets, from_rows, no_sets
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

MOST_USERS = 2000
MOST_ITEMS = 20
CHUNK = 256
SAMPLE = 6  # name of a random stream

Scores = Callable[[Parameters, Interactions, Ints, Longs | None], Floats]  # of users at moments


def judge_of(
    valid: Interactions, history: Interactions, scores_of: Scores, seed: int
) -> Callable[[Parameters], float]:
    """A function from parameters to F1; each user is asked when the validation basket was taken.

    Seen items are left out unless the data shows that people return.
    """
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
    moments = None if valid.time is None else valid.time[valid.indptr[users]]
    if moments is not None:  # those of a day together: what holds for all of them is worked out once
        order = np.argsort(moments, kind="stable")
        users, moments = users[order], moments[order]
    taken = valid.to_csr()[users]
    taken.data[:] = 1
    taken.sum_duplicates()
    taken.data[:] = 1
    excluded = no_sets(history.n_users) if history.has_repeats else Sets(*history.item_sets)
    every, floors = np.arange(history.n_items, dtype=np.int32), np.full(CHUNK, -np.inf, np.float32)

    def judge(theta: Parameters) -> float:
        totals = np.zeros(MOST_ITEMS)
        for at in range(0, users.size, CHUNK):
            part = users[at : at + CHUNK]
            when = None if moments is None else moments[at : at + CHUNK]
            scores = scores_of(theta, history, part, when)
            unwanted = excluded.take(part.astype(np.int64))
            hits = from_rows(scores, every, floors[: part.size], unwanted, MOST_ITEMS)
            totals += _f1_sums(hits, taken[at : at + CHUNK].toarray() > 0)
        return float(totals.max() / users.size)

    return judge


def _f1_sums(found: Hits, truth: Bools) -> Doubles:
    """Sum over users of F1 at N = 1 … MOST_ITEMS."""
    lengths = np.diff(found.indptr)
    row = np.repeat(np.arange(lengths.size), lengths)
    hits = np.zeros((lengths.size, MOST_ITEMS))
    hits[row, np.arange(row.size) - found.indptr[row]] = truth[row, found.items]
    shown = np.minimum(np.arange(1, MOST_ITEMS + 1), lengths[:, None])
    f1: Doubles = 2 * hits.cumsum(axis=1) / (shown + truth.sum(axis=1, keepdims=True))
    return np.asarray(f1.sum(axis=0))
