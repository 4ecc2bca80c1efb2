"""Events: purchases and returns that are added to a history."""

from collections.abc import Iterable, Sized
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl

from shortlist.data.columns import NO_RETURNS, NO_TIME, Table, tuples_to_frame
from shortlist.data.ids import IdMap
from shortlist.data.interactions import NO_BASKET, Interactions, keeps_negative
from shortlist.data.read_options import ReadOptions
from shortlist.data.returns import list_returns, subtract_from

NO_IDS = IdMap.of([])
NO_EVENTS = Interactions(  # without kernels, which would be loaded or compiled with the module
    NO_IDS, NO_IDS, np.zeros(1, np.int64), NO_BASKET.copy(), np.zeros(1, np.int64), np.zeros(1, np.int64)
)


class Events(NamedTuple):
    """Purchases to add to a history, and returns, which are subtracted from it."""

    purchases: Interactions
    returns: pl.DataFrame = NO_RETURNS  # one row each: two returns at one time are two

    @classmethod
    def of(cls, events: Any) -> Self:
        """Events in any form that `fit` accepts, or a list of tuples."""
        if isinstance(events, cls):
            return events
        if isinstance(events, Interactions) or (hasattr(events, "tocsr") and hasattr(events, "nnz")):
            data = Interactions.of(events)
            if data.weight is None or not keeps_negative(data):
                return cls(data)
            is_return = data.weight < 0
            columns = data.user, data.item, NO_TIME if data.time is None else data.time, data.weight
            return cls(data.where(~is_return), list_returns(data.users, data.items, is_return, *columns))
        if isinstance(events, Sized) and len(events) == 0:
            return cls(NO_EVENTS)
        frame = tuples_to_frame(events) if isinstance(events, (list, tuple)) else events
        table = Table(frame, ReadOptions(future=None))
        table.returns_apart = True
        return cls(Interactions.from_table(table), table.returns)

    @classmethod
    def join(cls, batches: Iterable[Self]) -> Self | None:
        """The events of all batches, None without any."""
        events = list(batches)
        if not events:
            return None
        purchases = [batch.purchases for batch in events if batch.purchases.n_rows] or [NO_EVENTS]
        returns = [batch.returns for batch in events if batch.returns.height] or [NO_RETURNS]
        return cls(reduce(Interactions.concat, purchases), pl.concat(returns, how="vertical_relaxed"))

    def before(self, time: int) -> Self:
        """The events before a time."""
        purchases = self.purchases
        if purchases.time is not None:
            purchases = purchases.where(purchases.time < time)
        return self._replace(purchases=purchases, returns=self.returns.filter(pl.col("time") < time))

    def add_to(self, data: Interactions) -> Interactions:
        """The data with the purchases and without what was returned."""
        joined = data.concat(self.purchases) if self.purchases.n_rows else data
        return subtract_from(joined, self.returns)[0] if self.returns.height else joined
