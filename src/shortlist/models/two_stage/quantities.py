"""Features of quantities: what rows count, such as the quantity of the user's last purchase of an item."""

from typing import NamedTuple

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.weighting import WeightTransform
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

QUANTITY_FEATURES = (
    "own_quantity_last",  # of the user's last purchase of the item
    "own_quantity_mean",  # of all of them
    "own_quantity_sum",
    "own_supply_used",  # days since the last purchase, per days that its quantity lasts at the user's rate
    "own_returned",  # what the user returned of the item, or dislikes it
    "item_quantity_mean",  # of all users
    "item_returned_share",
    "user_quantity_mean",  # of all items
)


class TimedSums:
    """Rows of groups in order of time, with running sums: what was known of a group before a time."""

    def __init__(self, group: Longs, time: Longs, amount: Doubles) -> None:
        order = np.lexsort((time, group))
        self.time, self.amount, n = time[order], amount[order], order.size
        self.groups, rank = np.unique(group[order], return_inverse=True)
        self.times, time_rank = np.unique(self.time, return_inverse=True)
        self.key = rank * (self.times.size + 1) + time_rank
        self.first = np.searchsorted(rank, np.arange(self.groups.size))
        is_bought = self.amount >= 0
        self.n = _running_sum(is_bought.astype(np.float64))
        self.bought = _running_sum(np.where(is_bought, self.amount, 0.0))
        self.returned = _running_sum(np.where(is_bought, 0.0, -self.amount))
        self.last = np.maximum.accumulate(np.where(is_bought, np.arange(n), -1))

    def before(self, group: Longs, at: Longs) -> "RowSpan":
        """The rows of each group (n,) before each time (n,)."""
        if not self.groups.size:
            return RowSpan(self, np.zeros(group.size, np.int64), np.zeros(group.size, np.int64))
        place = np.minimum(np.searchsorted(self.groups, group), self.groups.size - 1)
        first = self.first[place]
        end = np.searchsorted(self.key, place * (self.times.size + 1) + np.searchsorted(self.times, at))
        return RowSpan(self, first, np.where(self.groups[place] == group, end, first))


def _running_sum(values: Doubles) -> Doubles:
    return np.concatenate([[0.0], np.cumsum(values)])


class RowSpan(NamedTuple):
    """Consecutive rows first … end - 1 of `sums`, for each of n questions."""

    sums: TimedSums
    first: Longs
    end: Longs

    def total(self, values: Doubles) -> Doubles:
        """(n,) from a running sum."""
        return values[self.end] - values[self.first]

    def mean(self) -> Doubles:
        """(n,) mean quantity of the purchases; NaN without any."""
        return _divide(self.total(self.sums.bought), self.total(self.sums.n))

    def last(self) -> tuple[Bools, Longs]:
        """(n,) whether there is a purchase, and the row of the last one."""
        if not self.sums.last.size:
            return np.zeros(self.end.size, np.bool_), self.end
        row = self.sums.last[np.maximum(self.end - 1, 0)]
        return (self.end > self.first) & (row >= self.first), np.maximum(row, 0)


def _divide(amount: Doubles, whole: Doubles) -> Doubles:
    return np.asarray(np.divide(amount, whole, where=whole > 0, out=np.full(amount.size, np.nan)))


class Quantities(NamedTuple):
    """What rows count, by user and item, by user and by item."""

    n_items: int
    by_pair: TimedSums
    by_user: TimedSums
    by_item: TimedSums

    @classmethod
    def of(cls, data: Interactions, basket_times: Longs, transform: WeightTransform | None) -> "Quantities":
        """Of all rows, returns included; rows without weights count 1."""
        time = basket_times[data.basket]
        amount = None if transform is None else transform.of_rows(data)
        amount = np.ones(data.n_rows) if amount is None else amount
        user, item = data.user.astype(np.int64), data.item.astype(np.int64)
        sums = (TimedSums(group, time, amount) for group in (user * data.n_items + item, user, item))
        return cls(data.n_items, *sums)

    def features(self, user: Ints, item: Ints, at: Longs) -> Floats:
        """(n, len(QUANTITY_FEATURES)) of users and items as of times (n,)."""
        pair = self.by_pair.before(user.astype(np.int64) * self.n_items + item, at)
        pair_sums, (has_own, last) = pair.sums, pair.last()
        total, returned = pair.total(pair_sums.bought), pair.total(pair_sums.returned)
        last_quantity, supply = (np.full(item.size, np.nan) for _ in range(2))
        if pair_sums.time.size:
            last_quantity = np.where(has_own, pair_sums.amount[last], np.nan)
            days = (
                np.where(has_own, pair_sums.time[last] - pair_sums.time[np.minimum(pair.first, last)], 0)
                / DAY
            )
            since = np.where(has_own, at - pair_sums.time[last], 0) / DAY
            per_day = _divide(total - last_quantity, days)  # what was bought before was used up since then
            supply = _divide(since * per_day, np.where(has_own, last_quantity, 0.0))
        all_users = self.by_item.before(item.astype(np.int64), at)
        item_bought, item_returned = (
            all_users.total(values) for values in (all_users.sums.bought, all_users.sums.returned)
        )
        columns = (
            last_quantity,
            pair.mean(),
            total,
            supply,
            returned,
            all_users.mean(),
            _divide(item_returned, item_bought),
            self.by_user.before(user.astype(np.int64), at).mean(),
        )
        return np.stack(columns, axis=1).astype(np.float32)
