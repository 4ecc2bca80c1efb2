"""Item statistics as of a point in time: sales of items, counted basket by basket."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs

DAY = 86_400_000_000  # microseconds
HOUR = 3_600_000_000  # best sellers are computed as of the last full hour


class UserLog(NamedTuple):
    """Baskets user by user, each user's in order of time: the history of known users, or sessions."""

    user_baskets: Longs  # (n_users + 1,) where each user's baskets start
    baskets: Longs  # (n_baskets + 1,) where each basket's rows start
    item: Ints  # (n_rows,)
    time: Longs  # (n_baskets,) microseconds
    gap: Doubles  # (n_rows,) days since the user last bought the item, -1 the first time
    trend: Doubles  # (n_rows,) the item's share of recent sales just before the basket


class EventLog(NamedTuple):
    """The history of all known users, and the order in which its baskets happened."""

    users: UserLog
    owner: Ints  # (n_baskets,) user of each basket
    order: Longs  # (n_baskets,) basket numbers by time


class SalesIndex(NamedTuple):
    """Positions in the order of baskets at which each item was bought."""

    starts: Longs  # (n_items + 1,)
    position: Longs  # (n_rows,) ascending per item
    time: Longs  # (n_baskets,) time of each basket, ascending
    rows_before: Longs  # (n_baskets + 1,) rows of all baskets before a position


class ItemStats(NamedTuple):
    """Statistics of every item over the baskets counted so far."""

    cursor: Longs  # (1 + n_windows,) position of the next basket to count, and of the oldest in each window
    sold: Doubles  # (n_items,) all sales
    recent: Doubles  # (n_windows, n_items) sales within each window
    total: Doubles  # (1 + n_windows,) the same summed over items: all sales, then those within each window
    buyers: Doubles  # (n_items,) distinct users
    repeats: Doubles  # (n_items,) sales that were not the user's first of the item
    gaps: Doubles  # (n_items,) days between a user's purchases, summed over repeats
    sizes: Doubles  # (n_items,) sizes of the baskets with the item, summed
    first: Longs  # (n_items,) time of the first sale
    experience: Doubles  # (n_items, 2) experience of the buyers, summed, and its squares, summed


class Rules(NamedTuple):
    """How items are counted and candidates proposed; the same in training and serving."""

    windows: Longs  # (n_windows,) microseconds, ascending
    per_source: int  # candidates of each source; own items: twice as many, EASE: half as many
    transition_window: int  # baskets back from which transitions are followed
    decay: float  # factor on a transition per basket further back
    has_repeats: bool  # whether items that the user has bought may be proposed


class ReplayState(NamedTuple):
    """Everything known about single items at the time `clock[0]`."""

    item_stats: ItemStats
    best: Ints  # (3, per_source) best sellers of the second and fourth window and of all time, -1: none
    clock: Longs  # (2,) time reached, and its hour


@kernel
def fill_gaps(
    user_baskets: Longs, baskets: Longs, item: Ints, time: Longs, n_items: int, gap: Doubles
) -> None:
    """gap (n_rows,): days since the user last bought the item, -1 the first time."""
    owner, last = np.full(n_items, -1, np.int64), np.zeros(n_items, np.int64)
    for user in range(user_baskets.size - 1):
        for b in range(user_baskets[user], user_baskets[user + 1]):
            for row in range(baskets[b], baskets[b + 1]):
                i = item[row]
                gap[row] = (time[b] - last[i]) / DAY if owner[i] == user else -1.0
                owner[i], last[i] = user, time[b]


@inlined
def _sales_before(index: SalesIndex, item: int, position: int) -> int:
    """Return the sales of the item in the first `position` baskets."""
    low, high = int(index.starts[item]), int(index.starts[item + 1])
    while low < high:
        middle = (low + high) // 2
        if index.position[middle] < position:
            low = middle + 1
        else:
            high = middle
    return low - int(index.starts[item])


@kernel
def fill_trend(
    index: SalesIndex,
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    first: Longs,  # (n_baskets,) position of the oldest basket in the window before each basket
    last: Longs,  # (n_baskets,) position that each basket has, or would have
    trend: Doubles,  # (n_rows,) filled
) -> None:
    """Each item's share of the sales in the window before its basket; sales add up within a basket."""
    for b in range(baskets.size - 1):
        total = index.rows_before[last[b]] - index.rows_before[first[b]]
        for row in range(baskets[b], baskets[b + 1]):
            recent = _sales_before(index, item[row], last[b]) - _sales_before(index, item[row], first[b])
            trend[row] = recent / max(float(total), 1.0)
            total += 1


@inlined
def experience(users: UserLog, user: int, end: int) -> float:
    """Return log(1 + number of items that a user bought before basket `end`)."""
    return float(np.log1p(users.baskets[end] - users.baskets[users.user_baskets[user]]))


@inlined
def _slide_windows(log: EventLog, item_stats: ItemStats, windows: Longs, until: int) -> None:
    """Drop the baskets that have become too old from each window."""
    users = log.users
    for w in range(windows.size):
        at = item_stats.cursor[1 + w]
        while at < item_stats.cursor[0] and users.time[log.order[at]] < until - windows[w]:
            b = log.order[at]
            for row in range(users.baskets[b], users.baskets[b + 1]):
                item_stats.recent[w, users.item[row]] -= 1
                item_stats.total[1 + w] -= 1
            at += 1
        item_stats.cursor[1 + w] = at


@inlined
def _count_items(users: UserLog, owner: int, b: int, item_stats: ItemStats) -> None:
    """Count the items of one basket."""
    size, user_experience = users.baskets[b + 1] - users.baskets[b], experience(users, owner, b)
    for row in range(users.baskets[b], users.baskets[b + 1]):
        i = users.item[row]
        if item_stats.sold[i] == 0:
            item_stats.first[i] = users.time[b]
        item_stats.sold[i] += 1
        item_stats.total[0] += 1
        item_stats.sizes[i] += size
        item_stats.experience[i, 0] += user_experience
        item_stats.experience[i, 1] += user_experience * user_experience
        if users.gap[row] < 0:
            item_stats.buyers[i] += 1
        else:
            item_stats.repeats[i] += 1
            item_stats.gaps[i] += users.gap[row]
        for w in range(item_stats.recent.shape[0]):
            item_stats.recent[w, i] += 1
            item_stats.total[1 + w] += 1


@inlined
def _count_until(log: EventLog, state: ReplayState, rules: Rules, until: int) -> None:
    """Count every basket before `until`, and no other."""
    item_stats, users = state.item_stats, log.users
    while item_stats.cursor[0] < log.order.size and users.time[log.order[item_stats.cursor[0]]] < until:
        b = log.order[item_stats.cursor[0]]
        owner = log.owner[b]
        _slide_windows(log, item_stats, rules.windows, users.time[b])
        _count_items(users, owner, b, item_stats)
        item_stats.cursor[0] += 1
    _slide_windows(log, item_stats, rules.windows, until)


@inlined
def top_positive(values: Doubles | Floats, ids: Ints, n: int, out: Ints) -> int:
    """Fill `out` with the ids of the largest positive values, largest first; return their number."""
    size = 0
    for k in range(n):
        value = values[ids[k]]
        if value <= 0 or (size == out.size and value <= values[out[size - 1]]):
            continue
        at = size if size < out.size else size - 1
        while at > 0 and values[out[at - 1]] < value:
            out[at] = out[at - 1]
            at -= 1
        out[at] = ids[k]
        size = min(size + 1, out.size)
    return size


@inlined
def advance(log: EventLog, state: ReplayState, rules: Rules, all_items: Ints, at: int) -> None:
    """Bring the state to `at`, and best sellers to the last full hour; write nothing if `at` is its time."""
    if state.clock[0] == at:
        return
    item_stats, hour = state.item_stats, at // HOUR
    # before the first full hour with sales, best sellers are computed as of `at` itself
    by_hour = log.order.size > 0 and log.users.time[log.order[0]] < hour * HOUR
    for step in range(2):  # to the hour, then to the time: one copy of the code for both
        if step == 1 or (by_hour and hour != state.clock[1]):
            _count_until(log, state, rules, at if step else hour * HOUR)
            if step == 0 or not by_hour:
                state.best[:] = -1
                for k in range(3):
                    sales = item_stats.sold if k == 2 else item_stats.recent[1 + 2 * k]
                    top_positive(sales, all_items, all_items.size, state.best[k])
    state.clock[1] = hour
    state.clock[0] = at


@kernel
def replay_until(log: EventLog, state: ReplayState, rules: Rules, all_items: Ints, at: int) -> None:
    """Call `advance` from outside the kernels."""
    advance(log, state, rules, all_items, at)
