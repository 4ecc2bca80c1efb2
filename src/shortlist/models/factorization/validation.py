"""Validation while training: F1 at the best N, on a fixed sample of users."""

from collections.abc import Callable

import numpy as np

from shortlist.core.metrics import f1_at_n
from shortlist.core.ragged import ItemSets, no_sets
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.kernels.mf import Parameters
from shortlist.recommend.retrieval import select_dense
from shortlist.types import Floats, Ints, Longs

MAX_USERS = 2000
MAX_ITEMS = 20
BATCH = 256
SAMPLE = 6  # id of a random stream

DenseScores = Callable[[Parameters, Ints, Longs | None], Floats]  # of users at their prediction times


def build_evaluator(
    valid: Interactions, history: Interactions, dense_scores: DenseScores, seed: int
) -> Callable[[Parameters], float]:
    """A function from parameters to F1; each list is made at the time of the user's validation basket.

    Seen items are left out unless users repeat items in the data.
    """
    if valid.users != history.users or valid.items != history.items:
        raise DataError(
            "validation data must share its id tables with the training data; take both from one split."
        )
    users = valid.active_users
    if not users.size:
        raise DataError("validation data must hold at least one interaction, got none; omit valid.")
    if users.size > MAX_USERS:
        rng = np.random.Generator(np.random.PCG64([seed, SAMPLE]))
        users = np.sort(rng.choice(users, MAX_USERS, replace=False))
    times = None if valid.time is None else valid.time[valid.indptr[users]]
    if times is not None:  # users of the same day together: the trend is computed once per day
        order = np.argsort(times, kind="stable")
        users, times = users[order], times[order]
    truth = ItemSets(*valid.item_sets).take(users)
    seen = no_sets(history.n_users) if history.has_repeats else ItemSets(*history.item_sets)
    items, floors = np.arange(history.n_items, dtype=np.int32), np.full(BATCH, -np.inf, np.float32)

    def evaluate(parameters: Parameters) -> float:
        totals = np.zeros(MAX_ITEMS)
        for start in range(0, users.size, BATCH):
            rows = slice(start, min(start + BATCH, users.size))
            part = users[rows]
            scores = dense_scores(parameters, part, None if times is None else times[rows])
            hits = select_dense(scores, items, floors[: part.size], seen.take(part), MAX_ITEMS)
            own = truth.part(rows)
            owner = np.repeat(np.arange(part.size), np.diff(hits.indptr))
            relevant = np.zeros((part.size, history.n_items), np.bool_)
            relevant[np.repeat(np.arange(part.size), np.diff(own.indptr)), own.items] = True
            n_relevant = np.diff(own.indptr).astype(np.int32)
            totals += f1_at_n(hits.indptr, relevant[owner, hits.items], n_relevant, MAX_ITEMS)
        return float(totals.max() / users.size)

    return evaluate
