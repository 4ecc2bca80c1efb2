"""RollingEASE: which items go with which in what people take over time, learned again as the shop grows."""

from threading import Lock

import numpy as np
from scipy.sparse import csr_array

from shortlist.kernels.candidates import Taste
from shortlist.kernels.item_stats import Log
from shortlist.models.ease import fit_item_weights
from shortlist.types import Floats, Longs

ITEMS = 1000  # those most people have; the rest have no taste
FIRST = 100  # baskets before anything is learned
GROWTH = 1.25  # learned again when there are so many times as many
REG = 100.0
KEPT = 16  # of these; training passes them once and serving again


class RollingEASE:
    """Weights of the linear item–item model as of the last time that it was learned before a moment.

    When that was depends on how many baskets had happened, so nothing that comes later changes it.
    """

    def __init__(self, log: Log, n_items: int) -> None:
        self.log, self.n_items = log, n_items
        self.times = log.moment[log.order]
        steps = int(np.log(max(log.order.size / FIRST, 1)) / np.log(GROWTH)) + 1
        self.sizes = np.unique((FIRST * GROWTH ** np.arange(steps)).astype(np.int64))
        rank = np.empty(log.order.size, np.int64)
        rank[log.order] = np.arange(log.order.size)
        rows = np.flatnonzero(log.gap < 0)  # what a user takes again was known
        basket = np.repeat(np.arange(log.moment.size), np.diff(log.baskets))[rows]
        by_time = np.argsort(rank[basket], kind="stable")
        self.when, self.rows, self.owner = rank[basket][by_time], rows[by_time], log.owner[basket[by_time]]
        self.none = Taste(np.full(n_items, -1, np.int32), np.empty(0, np.int32), np.empty((0, 0), np.float32))
        self._kept: dict[int, Taste] = {}
        self._lock = Lock()

    def stages(self, at: Longs) -> Longs:
        """(n,) how often it has been learned before each moment."""
        return np.searchsorted(self.sizes, np.searchsorted(self.times, at), side="right")

    def __getitem__(self, stage: int) -> Taste:
        """As learned for the stage-th time; 0: not yet."""
        if stage == 0:
            return self.none
        with self._lock:
            if stage not in self._kept:
                while len(self._kept) >= KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[stage] = self._learn(int(self.sizes[stage - 1]))
            return self._kept[stage]

    def _learn(self, n_baskets: int) -> Taste:
        """From the first `n_baskets` baskets of all."""
        end = int(np.searchsorted(self.when, n_baskets))
        item, owner = self.log.item[self.rows[:end]], self.owner[:end]
        holders = np.bincount(item, minlength=self.n_items)
        items = np.argsort(-holders, kind="stable")[: min(ITEMS, int((holders > 1).sum()))].astype(np.int32)
        if not items.size:
            return self.none
        place = np.full(self.n_items, -1, np.int32)
        place[items] = np.arange(items.size, dtype=np.int32)
        held = place[item] >= 0
        taken = csr_array(
            (np.ones(int(held.sum())), (owner[held], place[item[held]])),
            shape=(self.log.user_baskets.size - 1, items.size),
        )
        return Taste(place, items, _coarse(fit_item_weights(taken, REG)))


def _coarse(weights: Floats) -> Floats:
    """Three digits: how many threads the linear algebra used leaves no trace in them."""
    return weights.astype(np.float16).astype(np.float32)
