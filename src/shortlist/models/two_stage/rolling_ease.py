"""RollingEASE: item–item weights as of any time, solved again as the history grows."""

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.glm import fit_item_weights
from shortlist.kernels.candidates import EASEWeights
from shortlist.kernels.item_stats import EventLog
from shortlist.models.two_stage.rolling import Rolling
from shortlist.types import Floats

MAX_ITEMS = 1000  # items with the most buyers; the others have no weights
FIRST_BASKETS = 100  # baskets before the first solution
GROWTH = 1.25  # growth in baskets from one solution to the next
REG = 100.0


class RollingEASE(Rolling[EASEWeights]):
    """EASE weights of the last solution before a given time."""

    max_cached = 4

    def __init__(self, log: EventLog, n_items: int) -> None:
        super().__init__(log, n_items, FIRST_BASKETS, GROWTH)
        users, order = log.users, log.order
        position = np.empty(order.size, np.int64)
        position[order] = np.arange(order.size)
        rows = np.flatnonzero(users.gap < 0)  # each user's first purchase of an item
        basket = np.repeat(np.arange(users.time.size), np.diff(users.baskets))[rows]
        by_time = np.argsort(position[basket], kind="stable")
        self.position, self.rows = position[basket][by_time], rows[by_time]
        self.owner = log.owner[basket[by_time]]

    def _empty(self) -> EASEWeights:
        return EASEWeights(
            np.full(self.n_items, -1, np.int32), np.empty(0, np.int32), np.empty((0, 0), np.float32)
        )

    def _extend(self, solution: EASEWeights, more: int) -> EASEWeights:
        return solution._replace(row=np.pad(solution.row, (0, more), constant_values=-1))

    def _solve(self, number: int) -> EASEWeights:
        """Weights from the first baskets."""
        end = int(np.searchsorted(self.position, self.sizes[number - 1]))
        item, owner = self.log.users.item[self.rows[:end]], self.owner[:end]
        buyers = np.bincount(item, minlength=self.n_items)
        items = np.argsort(-buyers, kind="stable")[: min(MAX_ITEMS, int((buyers > 1).sum()))].astype(np.int32)
        if not items.size:
            return self._empty()
        row = np.full(self.n_items, -1, np.int32)
        row[items] = np.arange(items.size, dtype=np.int32)
        kept = row[item] >= 0
        bought = csr_array(
            (np.ones(int(kept.sum())), (owner[kept], row[item[kept]])),
            shape=(self.log.users.user_baskets.size - 1, items.size),
        )
        return EASEWeights(row, items, _round_weights(fit_item_weights(bought, REG)))


def _round_weights(weights: Floats) -> Floats:
    """Round to three digits, so that the number of threads of the linear algebra has no influence."""
    return weights.astype(np.float16).astype(np.float32)
