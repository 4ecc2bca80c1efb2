"""Snapshots: users at points in time, and the item statistics that were known then."""

from abc import ABC, abstractmethod
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.glm import fit_item_weights
from shortlist.core.ragged import row_lengths
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.timeline import BEFORE_ALL, Timeline, event_times, new_window
from shortlist.kernels.rows import read_only, starts
from shortlist.kernels.snapshot_features import (
    CHUNK,
    DECAYS,
    CandidateRules,
    EASEWeights,
    EventLog,
    ItemStats,
    Links,
    LinkTable,
    NewPairs,
    PairKind,
    ReplayState,
    Scratch,
    Snapshots,
    UserLog,
    list_pairs,
    merge_links,
    replay_until,
)
from shortlist.models.two_stage.quantities import Quantities
from shortlist.models.weighting import WeightTransform
from shortlist.types import Doubles, Floats, Ints, Longs

T = TypeVar("T")


class Rolling(ABC, Generic[T]):
    """Solutions after a growing number of baskets, each computed when it is first needed.

    The times of the solutions depend only on the number of earlier baskets, so later events change nothing.
    Safe for concurrent use.
    """

    max_cached: int

    def __init__(self, log: EventLog, n_items: int, first: int, growth: float) -> None:
        self.log, self.n_items = log, n_items
        n_steps = int(np.log(max(log.order.size / first, 1)) / np.log(growth)) + 2
        sizes = np.unique((first * growth ** np.arange(n_steps)).astype(np.int64))
        self.sizes = sizes[sizes <= log.order.size]  # the last one rounded down may be small enough
        self._cache: dict[int, T] = {}
        self._lock = RLock()

    def take_solutions(self, earlier: "Rolling[T]", until: int) -> None:
        """Take over the solutions of a shorter history from the baskets before `until`."""
        with earlier._lock:
            solutions = dict(earlier._cache)
        n_same = earlier.log.count_before(np.array(until))
        for number, solution in solutions.items():
            if earlier.sizes[number - 1] <= n_same:
                self._cache[number] = self._extend(solution, self.n_items - earlier.n_items)

    def solutions_before(self, at: Longs) -> Longs:
        """(n,) number of solutions before each time."""
        return np.searchsorted(self.sizes, self.log.count_before(at), side="right")

    def solution(self, number: int) -> T:
        """The number-th solution; 0: nothing is known yet."""
        if number == 0:
            return self._empty()
        with self._lock:
            if number not in self._cache:
                before = max((cached for cached in self._cache if cached < number), default=0)
                self._make_room({before, self.sizes.size})  # a solution may be counted on from the one before
                solution = self._solve(number)
                self._make_room({self.sizes.size})
                self._cache[number] = solution
            return self._cache[number]

    def _make_room(self, needed: set[int]) -> None:
        """Forget the oldest cached solutions that are not needed. Most requests need the last one of all."""
        for number in list(self._cache):
            if len(self._cache) >= self.max_cached and number not in needed:
                del self._cache[number]

    @abstractmethod
    def _empty(self) -> T:
        """The solution of no baskets."""

    @abstractmethod
    def _solve(self, number: int) -> T:
        """Compute the number-th solution, of the first `sizes[number - 1]` baskets."""

    @abstractmethod
    def _extend(self, solution: T, more: int) -> T:
        """The same solution for a history with more items."""


MAX_ITEMS = 1000  # items with the most buyers; the others have no weights
EASE_FIRST_BASKETS = 100  # baskets before the first solution
EASE_GROWTH = 1.25  # growth in baskets from one solution to the next
REG = 100.0


class RollingEASE(Rolling[EASEWeights]):
    """EASE weights of the last solution before a given time."""

    max_cached = 4

    def __init__(self, log: EventLog, n_items: int) -> None:
        super().__init__(log, n_items, EASE_FIRST_BASKETS, EASE_GROWTH)

    def _empty(self) -> EASEWeights:
        return EASEWeights(
            np.full(self.n_items, -1, np.int32), np.empty(0, np.int32), np.empty((0, 0), np.float32)
        )

    def _extend(self, solution: EASEWeights, more: int) -> EASEWeights:
        return solution._replace(row=np.pad(solution.row, (0, more), constant_values=-1))

    def _solve(self, number: int) -> EASEWeights:
        """Weights from the first baskets."""
        users, sizes = self.log.users, np.diff(self.log.users.baskets)
        is_counted = np.zeros(sizes.size, np.bool_)
        is_counted[self.log.order[: self.sizes[number - 1]]] = True
        # each user's first purchase of an item
        rows = np.flatnonzero(np.repeat(is_counted, sizes) & (users.gap < 0))
        item, owner = users.item[rows], np.repeat(self.log.owner, sizes)[rows]
        buyers = np.bincount(item, minlength=self.n_items)
        items = np.argsort(-buyers, kind="stable")[: min(MAX_ITEMS, int((buyers > 1).sum()))].astype(np.int32)
        if not items.size:
            return self._empty()
        row = np.full(self.n_items, -1, np.int32)
        row[items] = np.arange(items.size, dtype=np.int32)
        has_row = row[item] >= 0
        bought = csr_array(
            (np.ones(int(has_row.sum())), (owner[has_row], row[item[has_row]])),
            shape=(users.user_baskets.shape[0], items.size),
        )
        return EASEWeights(row, items, _round_weights(fit_item_weights(bought, REG)))


def _round_weights(weights: Floats) -> Floats:
    """Round to three digits, so that the number of threads of the linear algebra has no influence."""
    return weights.astype(np.float16).astype(np.float32)


LINKS_FIRST_BASKETS = 10  # baskets before the first solution
LINKS_GROWTH = 1.05  # growth in baskets from one solution to the next
MAX_LINKS = 300  # per item and table; lighter pairs are forgotten
MAX_PAIRS = 1 << 20  # pairs that are listed before they are counted, unless a step has more


class RollingLinks(Rolling[Links]):
    """The heaviest links of each item after the last solution before a given time."""

    max_cached = 2

    def __init__(self, log: EventLog, n_items: int, rules: CandidateRules) -> None:
        super().__init__(log, n_items, LINKS_FIRST_BASKETS, LINKS_GROWTH)
        window, decay = rules.transition_window, float(rules.decay)
        self.kinds = PairKind(0, decay, False), PairKind(window, decay, False), PairKind(window, decay, True)

    def _empty(self) -> Links:
        n = self.n_items
        none = LinkTable(
            read_only(np.zeros(n + 1, np.int64)),
            read_only(np.empty(0, np.int32)),
            read_only(np.empty(0, np.float32)),
            read_only(np.zeros(n)),
        )
        return Links(none, none, none)

    def _solve(self, number: int) -> Links:
        """Count on from the nearest cached solution, always in the same steps: links may be forgotten."""
        last = max((cached for cached in self._cache if cached < number), default=0)
        links = self._cache[last] if last else self._empty()
        edges = np.append(0, self.sizes)[last : number + 1]
        pairs = zip(links, self.kinds, strict=True)
        return Links(*(self._count(table, kind, edges) for table, kind in pairs))

    def _count(self, table: LinkTable, kind: PairKind, edges: Longs) -> LinkTable:
        """The table with the pairs of more baskets, step by step; steps share a list while it has room."""
        while edges.size > 1:
            room, n_steps = _new_pairs(np.zeros(self.n_items, np.int64), 0), 0
            while n_steps + 1 < edges.size and (not n_steps or room.end.sum() < MAX_PAIRS):
                list_pairs(self.log, edges[n_steps : n_steps + 2], kind, room)
                n_steps += 1
            begin = starts(room.end)
            new = _new_pairs(begin[:-1], int(begin[-1]))
            list_pairs(self.log, edges[: n_steps + 1], kind, new)
            table, edges = self._add(table, new), edges[n_steps:]
        return table

    def _add(self, table: LinkTable, new: NewPairs) -> LinkTable:
        first = starts(np.minimum(row_lengths(table.starts) + new.end - new.begin, MAX_LINKS))
        size = int(first[-1])
        out = LinkTable(first, np.empty(size, np.int32), np.empty(size, np.float32), np.empty(self.n_items))
        size = merge_links(table, new, MAX_LINKS, out)
        return LinkTable(
            read_only(first), read_only(out.other[:size]), read_only(out.weight[:size]), read_only(out.total)
        )

    def _extend(self, solution: Links, more: int) -> Links:
        return Links(*(_extend_table(table, more) for table in solution))


def _new_pairs(begin: Longs, n: int) -> NewPairs:
    """Room for n pairs."""
    entries = np.empty(n, np.int32), np.empty(n, np.float32), np.empty(n, np.int16)
    return NewPairs(begin, begin.copy(), *entries)


def _extend_table(table: LinkTable, more: int) -> LinkTable:
    """The same links, followed by items without any."""
    if not more:
        return table
    return table._replace(
        starts=read_only(np.pad(table.starts, (0, more), mode="edge")),
        total=read_only(np.pad(table.total, (0, more))),
    )


WINDOWS = (1, 3, 7, 14, 30)  # days of recent sales
UNSETTLED = 2000  # baskets at the end among which late events are expected
MAX_STATES = 2  # replay states kept for later times, in addition to the one at the end of the history


class WholeHistory(NamedTuple):
    """What is computed from a history as a whole; never modified."""

    timeline: Timeline
    links: RollingLinks
    ease: RollingEASE
    quantities: Quantities | None  # None if rows count 1

    @classmethod
    def of(
        cls, timeline: Timeline, rules: CandidateRules, quantities: Quantities | None = None
    ) -> "WholeHistory":
        """With solutions that are computed when they are needed."""
        log, n_items = timeline.log, timeline.first_sales.size
        return cls(timeline, RollingLinks(log, n_items, rules), RollingEASE(log, n_items), quantities)

    @property
    def settled(self) -> int:
        """The time before which few new events are expected."""
        time = self.timeline.log.time
        return int(time[max(time.size - UNSETTLED, 0)])


class EventReplay:
    """Replays the history to any point in time. Safe for concurrent use.

    The state at the end of the history is kept and shared by all readers, so that predictions just after
    the last event replay nothing. Nothing but the history and the rules is pickled; the rest is computed
    when it is first needed, from what a replay of a shorter history computed where that is possible.
    """

    def __init__(
        self,
        history: History,
        rules: CandidateRules,
        earlier: "EarlierReplay | None" = None,
        transform: WeightTransform | None = None,
    ) -> None:
        self.history, self.rules, self.transform = history, rules, transform
        self._lock = RLock()
        self._whole: WholeHistory | None = None
        self._earlier = earlier
        self._at_end: ReplayState | None = None
        self._states: list[ReplayState] = []
        self._scratch: list[Scratch] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"history": self.history, "rules": self.rules, "transform": self.transform}

    def __setstate__(self, state: dict[str, Any]) -> None:
        EventReplay.__init__(self, **state)

    def observe(self, history: History, rules: CandidateRules, new: NewRows | None) -> "EventReplay":
        """The replay of a history with new rows (None: rows were also removed)."""
        transform = self.transform
        is_changed = new is None or (transform is not None and new.reweighted.size > 0)
        # without times, new baskets come between the known ones
        if new is None or not new.time.size or is_changed:
            return EventReplay(history, rules, transform=transform)
        with self._lock:
            last, until, users = self, int(new.time.min()), np.unique(new.user)
            if self._whole is None:  # never used: continue from the one before
                if self._earlier is None:
                    return EventReplay(history, rules, transform=transform)
                last, until = self._earlier.replay, min(until, self._earlier.until)
                users = np.union1d(users, self._earlier.users)
        return EventReplay(history, rules, EarlierReplay(last, history, until, users), transform)

    @property
    def whole(self) -> WholeHistory:
        """The history in order of time, with what is computed from all of it."""
        with self._lock:
            if self._whole is None:
                earlier, timeline = self._earlier, None
                if earlier is not None and earlier.replay.whole.quantities is None:
                    timeline = earlier.replay.whole.timeline.grow(self.history, earlier.users, earlier.until)
                whole = self._read() if timeline is None else WholeHistory.of(timeline, self.rules)
                if earlier is not None:
                    whole.links.take_solutions(earlier.replay.whole.links, earlier.until)
                    whole.ease.take_solutions(earlier.replay.whole.ease, earlier.until)
                    self._states = earlier.states(whole.settled)
                self._whole, self._earlier = whole, None
            return self._whole

    def _read(self) -> WholeHistory:
        data, quantities = self.history.merged, None
        if self.transform is not None:  # returns are quantities, not purchases
            quantities = Quantities.of(data, event_times(data), self.transform)
            data = without_negative(data)
        return WholeHistory.of(Timeline.of(data), self.rules, quantities)

    def session_log(self, sessions: Interactions, at: Longs) -> UserLog:
        """Sessions as `fill_features` reads them; `at` (n_users,) is when each is predicted."""
        timeline, scratch, has_times = self.whole.timeline, self.take_scratch(), self.history.has_times
        users = timeline.of_sessions(sessions, at, scratch.window, has_times=has_times)
        self.return_scratch(scratch)
        return users

    def session_quantities(self, sessions: Interactions, time: Longs) -> Quantities | None:
        """The quantities of sessions whose baskets have these times, and of the items in the history."""
        quantities = self.whole.quantities
        if quantities is None:
            return None
        return Quantities.of(sessions, time, self.transform)._replace(by_item=quantities.by_item)

    # ------------------------------------------------------------------ states
    def states(self, n: int, first: int, last: int) -> list[ReplayState]:
        """n states from which times from `first` to `last` can be reached; hand them back with `keep`."""
        end = self.whole.timeline.end
        if first < end:
            return [self._take_state(first) for _ in range(n)]
        with self._lock:
            if self._at_end is None:
                log, settled = self.whole.timeline.log, self.whole.settled
                all_items = np.arange(self.history.n_items, dtype=np.int32)
                before = [state.item_stats.cursor[0] for state in self._states if state.clock[0] <= settled]
                if max(before, default=-1) < log.order.size - 2 * UNSETTLED:  # for a replay of late events
                    state = self._take_state(settled)
                    replay_until(log, state, self.rules, all_items, settled)
                    self.keep([state])
                state = self._take_state(end)
                replay_until(log, state, self.rules, all_items, end)
                self._at_end = state
        if last == end:
            return [self._at_end] * n  # nothing is written
        return [_copy_state(self._at_end) for _ in range(n)]

    def keep(self, states: list[ReplayState]) -> None:
        """Keep states for later times."""
        with self._lock:
            before = [state for state in states if state.clock[0] < self.whole.timeline.end]
            self._states = [*before, *self._states][:MAX_STATES]

    def _take_state(self, at: int) -> ReplayState:
        """A copy of the latest kept state at or before `at`, or a new one before all events."""
        with self._lock:
            state = _latest(self._states, at)
        if state is not None:
            return _extend_state(state, self.history.n_items)
        return ReplayState(
            _empty_stats(self.history.n_items, self.rules),
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


class EarlierReplay(NamedTuple):
    """A replay of a shorter history, and what has changed since."""

    replay: EventReplay
    history: History  # the longer one
    until: int  # time of the first new row
    users: Ints  # with new rows

    def states(self, settled_time: int) -> list[ReplayState]:
        """The latest state before all new rows, and the latest one before late events."""
        with self.replay._lock:
            at_end = [] if self.replay._at_end is None else [self.replay._at_end]
            states = [*self.replay._states, *at_end]
        newest, settled = (_latest(states, at) for at in (self.until, min(self.until, settled_time)))
        return [state for state in (newest, None if settled is newest else settled) if state is not None]


def _latest(states: list[ReplayState], at: int) -> ReplayState | None:
    """The latest state at or before a time."""
    usable = [state for state in states if state.clock[0] <= at]
    return max(usable, key=lambda state: int(state.clock[0]), default=None)


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
    if len(stats["clock"]):  # the last row stays the last
        stats["clock"] = np.insert(stats["clock"], len(stats["clock"]) - 1, np.zeros((more, 31)), axis=0)
    return ReplayState(ItemStats(**stats), state.best.copy(), state.clock.copy())


def _copy_state(state: ReplayState) -> ReplayState:
    """A copy that can advance beyond the last event, where only the windows change."""
    stats = state.item_stats
    copied = {name: getattr(stats, name).copy() for name in ("cursor", "recent", "total")}
    return state._replace(
        item_stats=stats._replace(**copied), best=state.best.copy(), clock=state.clock.copy()
    )


def _empty_stats(n: int, rules: CandidateRules) -> ItemStats:
    n_windows = len(rules.windows)

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
        clock=np.zeros(((n + 1) * rules.has_clock, 31), np.float32),
    )


def _new_scratch(n: int) -> Scratch:
    bought, candidate = (np.full(n, -1, np.int64) for _ in range(2))
    last, back, earliest = (np.zeros(n, np.int64) for _ in range(3))
    return Scratch(
        bought=bought,
        candidate=candidate,
        purchases=np.zeros(n),
        decayed=np.zeros((n, len(DECAYS) + 1)),
        own_clock=np.zeros((n, 3)),
        last=last,
        back=back,
        earliest=earliest,
        links=np.zeros((n, 8), np.float32),
        dirty=np.zeros(-(-n // CHUNK), np.bool_),
        ease=np.zeros(n, np.float32),
        own_items=np.zeros(n, np.int32),
        all_items=np.arange(n, dtype=np.int32),
        target=np.full(n, -1, np.int64),
        item_rows=np.zeros((n, 16), np.float32),
        item_experience=np.zeros((n, 2)),
        item_at=np.full(n, BEFORE_ALL),
        window=new_window(n),
        mark=np.zeros(1, np.int64),
    )


def select_last_snapshots(log: EventLog, most: int) -> Snapshots:
    """Every user's last baskets as targets, in order of time; never a user's first basket.

    The same number of baskets for each user, as many as keep the sum within `most`. If the last one of each
    user is too many already, those of a sample of the users.
    """
    users = log.users
    number = np.arange(users.time.size)
    number = number[number > users.user_baskets[log.owner, 0]]
    left = users.user_baskets[log.owner[number], 1] - number
    within = np.cumsum(np.bincount(left)) <= most
    target = number[left <= max(int(within.sum()) - 1, 1)]
    if target.size > most:
        target = np.random.default_rng(0).choice(target, most, replace=False)
        target.sort()
    target = target[np.argsort(users.time[target], kind="stable")]
    return Snapshots(log.owner[target], users.time[target], target)
