"""Validation while training: F1 at the best N, on a fixed sample of users."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shortlist.core.metrics import f1_at_n
from shortlist.core.ragged import ItemSets, no_sets
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.kernels.mf import Parameters
from shortlist.models.factorization.parameters import mean_user, set_untrained_users
from shortlist.recommend.retrieval import select_dense
from shortlist.types import Bools, Floats, Ints, Longs

MAX_USERS = 2000
MAX_ITEMS = 20
BATCH = 256
SAMPLE = 6  # id of a random stream

# (parameters of the sampled users, numbers of users in the sample, their prediction times) -> scores
DenseScores = Callable[[Parameters, Ints, Longs | None], Floats]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """F1 of a fixed sample of users; each list is made at the time of the user's validation basket."""

    users: Ints  # (n,) the sample, ordered by time: the trend is computed once per day
    times: Longs | None  # (n,) prediction times
    truth: ItemSets  # of the sampled users
    seen: ItemSets  # items that the sampled users are not shown
    trained: Bools  # (n,) whether training has pairs of the user
    dense_scores: DenseScores
    n_items: int

    def score(self, parameters: Parameters) -> float:
        """F1 at the best N; the user parameters are those of `users`."""
        totals, n = np.zeros(MAX_ITEMS), self.users.size
        if not self.trained.all():
            means = mean_user(parameters, self.trained, np.array([0, n]))
            parameters = set_untrained_users(parameters, self.trained, means)
        items, floors = np.arange(self.n_items, dtype=np.int32), np.full(BATCH, -np.inf, np.float32)
        for start in range(0, n, BATCH):
            rows = slice(start, min(start + BATCH, n))
            part = np.arange(rows.start, rows.stop, dtype=np.int32)
            scores = self.dense_scores(parameters, part, None if self.times is None else self.times[rows])
            hits = select_dense(scores, items, floors[: part.size], self.seen.part(rows), MAX_ITEMS)
            own = self.truth.part(rows)
            owner = np.repeat(np.arange(part.size), np.diff(hits.indptr))
            relevant = np.zeros((part.size, self.n_items), np.bool_)
            relevant[np.repeat(np.arange(part.size), np.diff(own.indptr)), own.items] = True
            n_relevant = np.diff(own.indptr).astype(np.int32)
            totals += f1_at_n(hits.indptr, relevant[owner, hits.items], n_relevant, MAX_ITEMS)
        return float(totals.max() / n)


def sample_users(valid: Interactions, history: Interactions, seed: int) -> tuple[Ints, Longs | None]:
    """(users, prediction times): at most MAX_USERS users of the validation data, ordered by time."""
    if valid.users != history.users or valid.items != history.items:
        raise DataError(
            "validation data must share its id tables with the training data; take both from one split."
        )
    users = valid.active_users
    if not users.size:
        raise DataError("validation data must hold at least one interaction, got none; omit valid.")
    users = draw_users(users, seed)
    if valid.time is None:
        return users, None
    times = valid.time[valid.indptr[users]]
    order = np.argsort(times, kind="stable")
    return users[order], times[order]


def draw_users(users: Ints, seed: int) -> Ints:
    """At most MAX_USERS of these users, ascending."""
    if users.size <= MAX_USERS:
        return users
    rng = np.random.Generator(np.random.PCG64([seed, SAMPLE]))
    return np.sort(rng.choice(users, MAX_USERS, replace=False))


def build_evaluator(
    valid: Interactions,
    history: Interactions,
    dense_scores: Callable[[Interactions], DenseScores],
    seed: int,
    trained: Bools | None = None,  # (n_users,)
) -> Evaluator:
    """The evaluator; `dense_scores` gets the histories of the sampled users.

    Users that are not `trained` are scored with the mean parameters of the sample.

    Seen items are left out unless users repeat items in the data.
    """
    users, times = sample_users(valid, history, seed)
    own = History.of(history).rows_of(users)
    truth = ItemSets(*valid.item_sets).take(users)
    seen = no_sets(users.size) if history.has_repeats else ItemSets(*own.item_sets)
    has_pairs = np.ones(users.size, np.bool_) if trained is None else trained[users]
    return Evaluator(users, times, truth, seen, has_pairs, dense_scores(own), history.n_items)
