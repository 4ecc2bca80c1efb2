"""RollingEASE: item–item weights as of any time, solved again as the history grows."""

from threading import Lock
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.glm import fit_item_weights
from shortlist.kernels.candidates import EASEWeights
from shortlist.kernels.item_stats import EventLog
from shortlist.types import Floats, Longs

MAX_ITEMS = 1000  # items with the most buyers; the others have no weights
FIRST_BASKETS = 100  # baskets before the first solution
GROWTH = 1.25  # growth in baskets from one solution to the next
REG = 100.0
MAX_CACHED = 16  # solutions


class RollingEASE:
    """EASE weights of the last solution before a given time.

    The times of the solutions depend only on the number of earlier baskets, so later events change nothing.
    Safe for concurrent use; cached solutions are not pickled.
    """

    def __init__(self, log: EventLog, n_items: int) -> None:
        self.log, self.n_items = log, n_items
        users, order = log.users, log.order
        self.times = users.time[order]
        n_solutions = int(np.log(max(order.size / FIRST_BASKETS, 1)) / np.log(GROWTH)) + 1
        self.sizes = np.unique((FIRST_BASKETS * GROWTH ** np.arange(n_solutions)).astype(np.int64))
        position = np.empty(order.size, np.int64)
        position[order] = np.arange(order.size)
        rows = np.flatnonzero(users.gap < 0)  # each user's first purchase of an item
        basket = np.repeat(np.arange(users.time.size), np.diff(users.baskets))[rows]
        by_time = np.argsort(position[basket], kind="stable")
        self.position, self.rows = position[basket][by_time], rows[by_time]
        self.owner = log.owner[basket[by_time]]
        self.empty = EASEWeights(
            np.full(n_items, -1, np.int32), np.empty(0, np.int32), np.empty((0, 0), np.float32)
        )
        self._cache: dict[int, EASEWeights] = {}
        self._lock = Lock()

    def take_solutions(self, known: "RollingEASE", until: int) -> None:
        """Take over the solutions of a shorter history from the baskets before `until`."""
        more = self.n_items - known.n_items
        with known._lock:
            found = dict(known._cache)
        for number, ease in found.items():
            if known.times[known.sizes[number - 1] - 1] < until:
                self._cache[number] = ease._replace(row=np.pad(ease.row, (0, more), constant_values=-1))

    def solutions_before(self, at: Longs) -> Longs:
        """(n,) number of solutions before each time."""
        return np.searchsorted(self.sizes, np.searchsorted(self.times, at), side="right")

    def weights(self, number: int) -> EASEWeights:
        """The number-th solution; 0: none yet."""
        if number == 0:
            return self.empty
        with self._lock:
            if number not in self._cache:
                while len(self._cache) >= MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
                self._cache[number] = self._solve(int(self.sizes[number - 1]))
            return self._cache[number]

    def _solve(self, n_baskets: int) -> EASEWeights:
        """Weights from the first `n_baskets` baskets."""
        end = int(np.searchsorted(self.position, n_baskets))
        item, owner = self.log.users.item[self.rows[:end]], self.owner[:end]
        buyers = np.bincount(item, minlength=self.n_items)
        items = np.argsort(-buyers, kind="stable")[: min(MAX_ITEMS, int((buyers > 1).sum()))].astype(np.int32)
        if not items.size:
            return self.empty
        row = np.full(self.n_items, -1, np.int32)
        row[items] = np.arange(items.size, dtype=np.int32)
        kept = row[item] >= 0
        bought = csr_array(
            (np.ones(int(kept.sum())), (owner[kept], row[item[kept]])),
            shape=(self.log.users.user_baskets.size - 1, items.size),
        )
        return EASEWeights(row, items, _round_weights(fit_item_weights(bought, REG)))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cache": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())


def _round_weights(weights: Floats) -> Floats:
    """Round to three digits, so that the number of threads of the linear algebra has no influence."""
    return weights.astype(np.float16).astype(np.float32)
