"""Snapshots: users at points in time, and the item statistics that were known then."""

from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.ragged import read_only, starts
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions
from shortlist.data.negative_rows import without_negative
from shortlist.kernels.candidates import CHUNK, DECAYS, Scratch
from shortlist.kernels.item_stats import (
    DAY,
    EventLog,
    ItemStats,
    ReplayState,
    Rules,
    SalesIndex,
    UserLog,
    fill_gaps,
    fill_trend,
    replay_until,
)
from shortlist.kernels.snapshots import Snapshots
from shortlist.models.two_stage.quantities import Quantities
from shortlist.models.two_stage.rolling_ease import RollingEASE
from shortlist.models.two_stage.rolling_links import RollingLinks
from shortlist.models.weighting import COUNT_ROWS, WeightTransform
from shortlist.types import Doubles, Ints, Longs

WINDOWS = (1, 3, 7, 14, 30)  # days of recent sales
TREND_WINDOW = WINDOWS[1] * DAY
UNSETTLED = 2000  # baskets at the end that are replayed again after new events, which may be late
MAX_STATES = 2  # replay states kept for later times, in addition to the one at the end of the history
BEFORE_ALL = np.iinfo(np.int64).min


class Layout(NamedTuple):
    """The history in order of time; never modified."""

    log: EventLog
    sales: SalesIndex
    links: RollingLinks
    ease: RollingEASE
    end: int  # just after the last event
    settled: int  # time before which few new events are expected
    quantities: Quantities | None  # None if rows count 1


def basket_times(data: Interactions) -> Longs:
    """(n_baskets,) microseconds; without timestamps, a user's baskets are a day apart."""
    if data.time is not None:
        return np.asarray(data.time[data.baskets[:-1]], np.int64)
    return (np.arange(data.n_baskets) - data.user_baskets[_owner(data)]) * DAY


def _owner(data: Interactions) -> Ints:
    return np.repeat(np.arange(data.n_users, dtype=np.int32), np.diff(data.user_baskets))


def _user_log(data: Interactions, time: Longs, sales: SalesIndex, positions: Longs) -> UserLog:
    """Baskets with these times and these positions in the order of the history's baskets."""
    gap, trend = np.empty(data.n_rows), np.empty(data.n_rows)
    fill_gaps(data.user_baskets, data.baskets, data.item, read_only(time), data.n_items, gap)
    first = np.minimum(np.searchsorted(sales.time, time - TREND_WINDOW), positions)
    fill_trend(sales, data.baskets, data.item, first, positions, trend)
    return UserLog(
        read_only(data.user_baskets),
        read_only(data.baskets),
        read_only(data.item),
        read_only(time),
        read_only(gap),
        read_only(trend),
    )


def _build_layout(
    data: Interactions, rules: Rules, earlier: "Earlier | None", transform: WeightTransform
) -> Layout:
    quantities = None
    if transform.is_used:  # returns are quantities, not purchases
        quantities = Quantities.of(data, basket_times(data), transform)
        data = without_negative(data)
    time = basket_times(data)
    order, positions = np.argsort(time, kind="stable"), np.empty(time.size, np.int64)
    positions[order] = np.arange(time.size)
    row_position = np.repeat(positions, np.diff(data.baskets))
    by_item = np.lexsort((row_position, data.item))
    sales = SalesIndex(
        starts(np.bincount(data.item, minlength=data.n_items)),
        row_position[by_item],
        time[order],
        starts(np.diff(data.baskets)[order]),
    )
    log = EventLog(_user_log(data, time, sales, positions), read_only(_owner(data)), read_only(order))
    links, ease = RollingLinks(log, data.n_items, rules), RollingEASE(log, data.n_items)
    end, settled = int(time.max()) + 1, int(sales.time[max(time.size - UNSETTLED, 0)])
    if earlier is not None:
        links.take_solutions(earlier.replay.layout.links, earlier.until)
        ease.take_solutions(earlier.replay.layout.ease, earlier.until)
    return Layout(log, sales, links, ease, end, settled, quantities)


class EventReplay:
    """Replays the history to any point in time. Safe for concurrent use.

    The state at the end of the history is kept and shared by all readers, so that predictions just after
    the last event replay nothing. Nothing but the history and the rules is pickled; the rest is computed
    when it is first needed, from what a replay of a shorter history computed where that is possible.
    """

    def __init__(
        self,
        history: History,
        rules: Rules,
        earlier: "Earlier | None" = None,
        transform: WeightTransform = COUNT_ROWS,
    ) -> None:
        self.history, self.rules, self.transform = history, rules, transform
        self._lock = RLock()
        self._layout: Layout | None = None
        self._earlier = earlier
        self._at_end: ReplayState | None = None
        self._states: list[ReplayState] = []
        self._scratch: list[Scratch] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"history": self.history, "rules": self.rules, "transform": self.transform}

    def __setstate__(self, state: dict[str, Any]) -> None:
        EventReplay.__init__(self, **state)

    def observe(self, history: History, rules: Rules, new: NewRows) -> "EventReplay":
        """The replay of a history with new rows."""
        transform, is_changed = self.transform, self.transform.is_used and new.reweighted.size > 0
        if not new.time.size or is_changed:  # without times, new baskets come between the known ones
            return EventReplay(history, rules, transform=transform)
        with self._lock:
            last, until = self, int(new.time.min())
            if self._layout is None:  # never used: continue from the one before
                if self._earlier is None:
                    return EventReplay(history, rules, transform=transform)
                last, until = self._earlier.replay, min(until, self._earlier.until)
        return EventReplay(history, rules, Earlier(last, history, until), transform)

    @property
    def layout(self) -> Layout:
        """The history in order of time."""
        with self._lock:
            if self._layout is None:
                self._layout = _build_layout(self.history.merged, self.rules, self._earlier, self.transform)
                if self._earlier is not None:
                    self._states = self._earlier.states(self._layout)
                    self._earlier = None
            return self._layout

    def session_log(self, sessions: Interactions, at: Longs) -> UserLog:
        """Sessions as `fill_features` reads them; `at` (n_users,) is when each is predicted.

        Sessions without timestamps end just before the prediction. If the history has no timestamps, those
        of sessions are ignored: baskets are a day apart, as for known users.
        """
        sales = self.layout.sales
        if not self.history.has_times:
            time = (np.arange(sessions.n_baskets) - sessions.user_baskets[_owner(sessions)]) * DAY
        elif sessions.time is None:
            owner = _owner(sessions)
            time = at[owner] - (sessions.user_baskets[owner + 1] - np.arange(sessions.n_baskets))
        else:
            time = basket_times(sessions)
        return _user_log(sessions, time, sales, np.searchsorted(sales.time, time))

    def session_quantities(self, sessions: Interactions, time: Longs) -> Quantities | None:
        """The quantities of sessions whose baskets have these times, and of the items in the history."""
        known = self.layout.quantities
        if known is None:
            return None
        return Quantities.of(sessions, time, self.transform)._replace(by_item=known.by_item)

    # ------------------------------------------------------------------ states
    def states(self, n: int, first: int, last: int) -> list[ReplayState]:
        """n states from which times from `first` to `last` can be reached; hand them back with `keep`."""
        end = self.layout.end
        if first < end:
            return [self._take_state(first) for _ in range(n)]
        with self._lock:
            if self._at_end is None:
                state, settled = self._take_state(end), self.layout.settled
                all_items = np.arange(self.history.n_items, dtype=np.int32)
                if state.clock[0] <= settled:  # kept for a replay of more events
                    replay_until(self.layout.log, state, self.rules, all_items, settled)
                    self.keep([_extend_state(state, self.history.n_items)])
                replay_until(self.layout.log, state, self.rules, all_items, end)
                self._at_end = state
        if last == end:
            return [self._at_end] * n  # nothing is written
        return [_copy_state(self._at_end) for _ in range(n)]

    def keep(self, states: list[ReplayState]) -> None:
        """Keep states for later times."""
        with self._lock:
            before = [state for state in states if state.clock[0] < self.layout.end]
            self._states = [*before, *self._states][:MAX_STATES]

    def _take_state(self, at: int) -> ReplayState:
        """Take a state at or before `at`: a kept one, or a new one before all events."""
        with self._lock:
            for number, state in enumerate(self._states):
                if state.clock[0] <= at:
                    return self._states.pop(number)
        return ReplayState(
            _empty_stats(self.history.n_items, len(self.rules.windows)),
            np.full((3, self.rules.per_source), -1, np.int32),
            np.full(2, BEFORE_ALL),
        )

    # ------------------------------------------------------------------ working memory
    def take_scratch(self) -> Scratch:
        """Working memory that no other thread uses; hand it back with `return_scratch`."""
        with self._lock:
            return self._scratch.pop() if self._scratch else _new_scratch(self.history.n_items)

    def return_scratch(self, scratch: Scratch) -> None:
        """Make working memory available to other calls."""
        with self._lock:
            self._scratch.append(scratch)


class Earlier(NamedTuple):
    """A replay of a shorter history, and what has changed since."""

    replay: EventReplay
    history: History  # the longer one
    until: int  # time of the first new row

    def states(self, layout: Layout) -> list[ReplayState]:
        """The latest known state before all new rows, in the longer layout; none if there is none."""
        with self.replay._lock:
            latest_wanted = min(self.until, layout.settled)
            usable = [state for state in self.replay._states if state.clock[0] <= latest_wanted]
            if not usable:
                return []
            latest = max(usable, key=lambda state: int(state.clock[0]))
            return [_extend_state(latest, self.history.n_items)]


def _extend_state(state: ReplayState, n_items: int) -> ReplayState:
    """A copy for a history with more items."""
    more = n_items - state.item_stats.sold.size
    per_item = {"sold", "buyers", "repeats", "gaps", "sizes", "first"}
    stats = {
        name: np.pad(values, (0, more)) if name in per_item else values.copy()
        for name, values in state.item_stats._asdict().items()
    }
    stats["recent"] = np.pad(stats["recent"], ((0, 0), (0, more)))
    stats["experience"] = np.pad(stats["experience"], ((0, more), (0, 0)))
    return ReplayState(ItemStats(**stats), state.best.copy(), state.clock.copy())


def _copy_state(state: ReplayState) -> ReplayState:
    """A copy that can advance beyond the last event, where only the windows change."""
    stats = state.item_stats
    copied = {name: getattr(stats, name).copy() for name in ("cursor", "recent", "total")}
    return state._replace(
        item_stats=stats._replace(**copied), best=state.best.copy(), clock=state.clock.copy()
    )


def _empty_stats(n: int, n_windows: int) -> ItemStats:
    def zeros(*shape: int) -> Doubles:
        return np.zeros(shape)

    return ItemStats(
        cursor=np.zeros(1 + n_windows, np.int64),
        sold=zeros(n),
        recent=zeros(n_windows, n),
        total=zeros(1 + n_windows),
        buyers=zeros(n),
        repeats=zeros(n),
        gaps=zeros(n),
        sizes=zeros(n),
        first=np.zeros(n, np.int64),
        experience=zeros(n, 2),
    )


def _new_scratch(n: int) -> Scratch:
    own, candidate = (np.full(n, -1, np.int64) for _ in range(2))
    last, back, earliest = (np.zeros(n, np.int64) for _ in range(3))
    return Scratch(
        own=own,
        candidate=candidate,
        purchases=np.zeros(n),
        decayed=np.zeros((n, len(DECAYS) + 1)),
        last=last,
        back=back,
        earliest=earliest,
        links=np.zeros((n, 8), np.float32),
        dirty=np.zeros(-(-n // CHUNK), np.bool_),
        ease=np.zeros(n, np.float32),
        touched=np.zeros(n, np.int32),
        own_items=np.zeros(n, np.int32),
        all_items=np.arange(n, dtype=np.int32),
        target=np.full(n, -1, np.int64),
        item_rows=np.zeros((n, 14), np.float32),
        item_experience=np.zeros((n, 2)),
        item_at=np.full(n, BEFORE_ALL),
        mark=np.zeros(1, np.int64),
    )


def select_last_snapshots(log: EventLog, most: int) -> Snapshots:
    """Every user's last baskets as targets, in order of time; never a user's first basket.

    The same number of baskets for each user, as many as keep the sum within `most`. If the last one of each
    user is too many already, those of a sample of the users.
    """
    users = log.users
    number = np.arange(users.time.size)
    number = number[number > users.user_baskets[log.owner]]
    left = users.user_baskets[log.owner[number] + 1] - number
    within = np.cumsum(np.bincount(left)) <= most
    target = number[left <= max(int(within.sum()) - 1, 1)]
    if target.size > most:
        target = np.random.default_rng(0).choice(target, most, replace=False)
        target.sort()
    target = target[np.argsort(users.time[target], kind="stable")]
    return Snapshots(log.owner[target], users.time[target], target)
