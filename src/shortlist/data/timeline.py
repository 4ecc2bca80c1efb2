"""The view of a history by time: its baskets in order, each row with what was known just before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.core.ragged import row_owners
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.kernels.rows import read_only
from shortlist.kernels.snapshot_features import (
    DAY,
    EventLog,
    SalesWindow,
    UserLog,
    fill_gaps,
    fill_trend,
)
from shortlist.types import Doubles, Ints, Longs

TREND_WINDOW = 3 * DAY  # before a basket
MAX_COPIES = 2  # the log is written anew when it holds more than so many times the rows of the history
BEFORE_ALL, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class GrowingArray:
    """Values that grow at the end without a copy of the others; shorter arrays stay as they were."""

    def __init__(self, values: npt.NDArray[Any], room: "Room | None" = None) -> None:
        self.values = read_only(values)
        self._room = Room(values, values.size) if room is None else room

    def append(self, more: npt.NDArray[Any], n: int | None = None) -> "GrowingArray":
        """The first n values (None: all) and more; written in place if no other array has grown from them."""
        n, room = self.values.size if n is None else n, self._room
        end = n + more.size
        with room.lock:
            if room.used != n or end > room.values.size:
                values = np.empty(end + end // 4, self.values.dtype)
                values[:n] = self.values[:n]
                room = Room(values, n)
            room.values[n:end] = more
            room.used = end
        return GrowingArray(room.values[:end], room)


@dataclass
class Room:
    """Values of which the first `used` never change."""

    values: npt.NDArray[Any]
    used: int
    lock: Lock = field(default_factory=Lock)


def event_times(data: Interactions) -> Longs:
    """(n_baskets,) microseconds; without timestamps, a user's baskets are a day apart."""
    if data.time is not None:
        return np.asarray(data.time[data.baskets[:-1]], np.int64)
    return (np.arange(data.n_baskets) - data.user_baskets[basket_owners(data)]) * DAY


def basket_owners(data: Interactions) -> Ints:
    """(n_baskets,) the user of each basket."""
    return row_owners(data.user_baskets).astype(np.int32)


def new_window(n_items: int) -> SalesWindow:
    """A window without baskets."""
    return SalesWindow(np.zeros(2, np.int64), np.zeros(n_items + 1, np.int64))


def _spans(user_baskets: Longs) -> Longs:
    """(n_users, 2) each user's first basket and the one after the last, from their starts (n_users + 1,)."""
    return np.stack([user_baskets[:-1], user_baskets[1:]], axis=1)


def _gaps(data: Interactions, time: Longs) -> Doubles:
    """(n_rows,) days since the user last bought the item, -1 the first time."""
    gap, spans = np.empty(data.n_rows), read_only(_spans(data.user_baskets))
    fill_gaps(spans, read_only(data.baskets), read_only(data.item), read_only(time), data.n_items, gap)
    return gap


@dataclass(frozen=True, eq=False)
class Timeline:
    """The baskets of a history by time; never modified, only replaced by a longer one."""

    log: EventLog
    first_sales: Longs  # (n_items,) time of the first sale; NEVER for an item without any
    columns: Mapping[str, GrowingArray]  # of the log

    @classmethod
    def of(cls, data: Interactions) -> Self:
        """The timeline of all rows."""
        users = np.arange(data.n_users, dtype=np.int32)
        empty = _log(NO_ROWS, np.empty((0, 2), np.int64))
        return cls(empty, np.empty(0, np.int64), NO_ROWS)._add(data, users, BEFORE_ALL, data.n_users)

    @property
    def end(self) -> int:
        """Just after the last event."""
        return int(self.log.time[-1]) + 1

    def grow(self, history: History, users: Ints, until: int) -> Self | None:
        """The timeline of the longer history, in time proportional to the rows of users with later baskets.

        `users` are those with new rows, the first of which is at the time `until`. None if the log would
        hold many copies: then the timeline must be built anew.
        """
        log, n_same = self.log, int(np.searchsorted(self.log.time, until))
        users = np.union1d(users, log.owner[log.order[n_same:]])  # their trend changes, too
        rows = history.rows_of(users)
        if log.users.item.size + rows.n_rows > MAX_COPIES * history.n_rows:
            return None
        return self._add(rows, users, until, history.n_users)

    def _add(self, rows: Interactions, users: Ints, until: int, n_users: int) -> Self:
        """With new copies of the baskets of these users, of whom `rows` are all rows."""
        log, columns, n_items = self.log, dict(self.columns), rows.n_items
        n_copies, n_copied_rows = log.users.time.size, log.users.item.size
        time, owner = event_times(rows), basket_owners(rows)
        user_baskets = np.zeros((n_users, 2), np.int64)
        user_baskets[: log.users.user_baskets.shape[0]] = log.users.user_baskets
        row_time = time[rows.basket]
        is_before = row_time < until  # these rows were there, and their trend is known
        moved = log.users.baskets[user_baskets[users, 0]] - rows.indptr[:-1]
        trend = np.empty(rows.n_rows)
        trend[is_before] = log.users.trend[(np.arange(rows.n_rows) + moved[rows.user])[is_before]]
        user_baskets[users] = n_copies + _spans(rows.user_baskets)
        later = np.flatnonzero(time >= until)
        later = later[np.argsort(time[later], kind="stable")]
        more: dict[str, npt.NDArray[Any]] = {
            "item": rows.item,
            "gap": _gaps(rows, time),
            "baskets": n_copied_rows + rows.baskets[1:],
            "time": time,
            "owner": users[owner],
            "first": n_copies + rows.user_baskets[owner],
        }
        columns |= {name: columns[name].append(values) for name, values in more.items()}
        n_same, numbers = int(np.searchsorted(log.time, until)), n_copies + later
        columns["order"] = columns["order"].append(numbers, n_same)
        columns["order_time"] = columns["order_time"].append(time[later], n_same)
        log, positions = _log(columns, user_baskets), np.arange(n_same, n_same + later.size)
        fill_trend(log, new_window(n_items), TREND_WINDOW, log.users, numbers, positions, trend, n_copies)
        columns["trend"] = columns["trend"].append(trend)
        first_sales = np.full(n_items, NEVER)
        first_sales[: self.first_sales.size] = self.first_sales
        np.minimum.at(first_sales, rows.item[~is_before], row_time[~is_before])
        return type(self)(_log(columns, user_baskets), first_sales, columns)

    def of_sessions(
        self, sessions: Interactions, at: Longs, window: SalesWindow, *, has_times: bool
    ) -> UserLog:
        """Sessions as the log of users; `at` (n_users,) is when each is predicted.

        Sessions without timestamps end just before the prediction. If the history has no timestamps, those
        of sessions are ignored: baskets are a day apart, as for known users.
        """
        owner = basket_owners(sessions)
        if not has_times:
            time = (np.arange(sessions.n_baskets) - sessions.user_baskets[owner]) * DAY
        elif sessions.time is None:
            time = at[owner] - (sessions.user_baskets[owner + 1] - np.arange(sessions.n_baskets))
        else:
            time = event_times(sessions)
        gap, trend = _gaps(sessions, time), np.empty(sessions.n_rows)
        arrays: Any = _spans(sessions.user_baskets), sessions.baskets, sessions.item, time, gap, trend
        users, numbers = UserLog(*map(read_only, arrays)), np.argsort(time, kind="stable")
        positions = self.log.count_before(time[numbers])
        fill_trend(self.log, window, TREND_WINDOW, users, numbers, positions, trend, 0)
        return users


def _log(columns: Mapping[str, GrowingArray], user_baskets: Longs) -> EventLog:
    """The log with these columns and user spans."""
    baskets, item, time, gap, trend, owner, first, *order = (columns[name].values for name in NO_ROWS)
    users = UserLog(read_only(user_baskets), baskets, item, time, gap, trend)
    return EventLog(users, owner, first, *order)


NO_ROWS = {
    "baskets": GrowingArray(np.zeros(1, np.int64)),
    "item": GrowingArray(np.empty(0, np.int32)),
    "time": GrowingArray(np.empty(0, np.int64)),
    "gap": GrowingArray(np.empty(0)),
    "trend": GrowingArray(np.empty(0)),
    "owner": GrowingArray(np.empty(0, np.int32)),
    "first": GrowingArray(np.empty(0, np.int64)),
    "order": GrowingArray(np.empty(0, np.int64)),
    "order_time": GrowingArray(np.empty(0, np.int64)),
}
