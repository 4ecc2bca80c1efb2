"""Features of each candidate of a user, computed from what was known just before a point in time."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import borrowing, inlined, kernel
from shortlist.kernels.rng import GOLDEN, mix_bits, unit_float
from shortlist.kernels.rows import kth_smallest
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

DAY = 86_400_000_000  # microseconds
HOUR = 3_600_000_000  # best sellers are computed as of the last full hour
ONE = np.float32(1)


class UserLog(NamedTuple):
    """Baskets user by user, each user's in order of time: the history of known users, or sessions."""

    user_baskets: Longs  # (n_users, 2) each user's first basket, and the one after the last
    baskets: Longs  # (n_baskets + 1,) where each basket's rows start
    item: Ints  # (n_rows,)
    time: Longs  # (n_baskets,) microseconds
    gap: Doubles  # (n_rows,) days since the user last bought the item, -1 the first time
    trend: Doubles  # (n_rows,) the item's share of recent sales just before the basket


class EventLog(NamedTuple):
    """The history of all known users, and the order in which its baskets happened.

    The baskets of a user with new events are written again at the end, with other numbers. The order names
    one copy of each basket; the copies of a basket are equal.
    """

    users: UserLog
    owner: Ints  # (n_copies,) user of each basket
    first: Longs  # (n_copies,) the first basket of the user among the copies written with a basket
    order: Longs  # (n_baskets,) basket numbers by time
    time: Longs  # (n_baskets,) ascending

    def count_before(self, at: Longs) -> Longs:
        """(n,) number of baskets before each time."""
        return np.searchsorted(self.time, at)


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
    clock: Floats  # (n_items + 1, 31) sales by hour and weekday, last of all items; without a clock no rows


class CandidateRules(NamedTuple):
    """How items are counted and candidates proposed; the same in training and serving."""

    windows: Longs  # (n_windows,) microseconds, ascending
    per_source: int  # candidates of each source; own items: twice as many, EASE: half as many
    transition_window: int  # baskets back from which transitions are followed
    decay: float  # factor on a transition per basket further back
    has_repeats: bool  # whether items that the user has bought may be proposed
    has_clock: bool = False  # whether times tell the hour, so that there are features of the clock


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
    for user in range(user_baskets.shape[0]):
        for b in range(user_baskets[user, 0], user_baskets[user, 1]):
            for row in range(baskets[b], baskets[b + 1]):
                i = item[row]
                gap[row] = (time[b] - last[i]) / DAY if owner[i] == user else -1.0
                owner[i], last[i] = user, time[b]


class SalesWindow(NamedTuple):
    """Sales of every item in some consecutive baskets."""

    edges: Longs  # (2,) position of the first basket, and of the one after the last
    sold: Longs  # (n_items + 1,) the last: of all items


@inlined
def _count_sales(log: EventLog, window: SalesWindow, position: int, sign: int) -> None:
    """Add the sales of a basket, or subtract them."""
    b, users = log.order[position], log.users
    for row in range(users.baskets[b], users.baskets[b + 1]):
        window.sold[users.item[row]] += sign
    window.sold[-1] += sign * (users.baskets[b + 1] - users.baskets[b])


@inlined
def _move_window(log: EventLog, window: SalesWindow, oldest: int, end: int) -> None:
    """Move the window to the baskets before position `end` that are not before the time `oldest`."""
    low, high = window.edges[0], window.edges[1]
    if end <= low or low == high or log.time[high - 1] < oldest:  # no basket remains
        for position in range(low, high):
            _count_sales(log, window, position, -1)
        low = high = end
    for position in range(high, end):
        _count_sales(log, window, position, 1)
    for position in range(end, high):
        _count_sales(log, window, position, -1)
    while low < end and log.time[low] < oldest:
        _count_sales(log, window, low, -1)
        low += 1
    while low > 0 and log.time[low - 1] >= oldest:
        low -= 1
        _count_sales(log, window, low, 1)
    window.edges[0], window.edges[1] = low, end


@kernel
def fill_trend(
    log: EventLog,
    window: SalesWindow,  # moved
    length: int,  # of the window, in microseconds
    users: UserLog,  # log.users, or sessions
    numbers: Longs,  # (n,) baskets whose rows are filled, by time
    positions: Longs,  # (n,) position that each of them has in the log, or would have
    trend: Doubles,  # filled, from the first row of basket `first` on
    first: int,
) -> None:
    """Each item's share of the sales in the window before its basket; sales add up within a basket."""
    skipped = users.baskets[first]
    for k in range(numbers.size):
        b = numbers[k]
        _move_window(log, window, users.time[b] - length, positions[k])
        total = window.sold[-1]
        for row in range(users.baskets[b], users.baskets[b + 1]):
            trend[row - skipped] = window.sold[users.item[row]] / max(float(total), 1.0)
            total += 1


@inlined
def experience(users: UserLog, first: int, end: int) -> float:
    """Return log(1 + number of items that a user with the first basket `first` bought before `end`)."""
    return float(np.log1p(users.baskets[end] - users.baskets[first]))


@inlined
def _slide_windows(log: EventLog, item_stats: ItemStats, windows: Longs, until: int) -> None:
    """Drop the baskets that have become too old from each window."""
    users, n_items, end = log.users, item_stats.sold.size, item_stats.cursor[0]
    for w in range(windows.size):
        at = item_stats.cursor[1 + w]
        if (end - at) * 8 > n_items and log.time[end - 1] < until - windows[w]:
            item_stats.recent[w, :] = 0.0  # nothing is left in the window, and much would have to be dropped
            item_stats.total[1 + w] = 0.0
            at = end
        while at < end and log.time[at] < until - windows[w]:
            b = log.order[at]
            for row in range(users.baskets[b], users.baskets[b + 1]):
                item_stats.recent[w, users.item[row]] -= 1
                item_stats.total[1 + w] -= 1
            at += 1
        item_stats.cursor[1 + w] = at


@inlined
def hour_of(time: int) -> int:
    """Hour of the day, 0 to 23."""
    return (time // HOUR) % 24


# how much a purchase counts that was 0, 1, … 23 hours earlier or later in the day: a bell of 1.5 hours
HOUR_WEIGHTS = np.exp(-(np.minimum(np.arange(24), 24 - np.arange(24)) ** 2) / 4.5)


@inlined
def weekday_of(time: int) -> int:
    """Day of the week, 0 to 6."""
    return (time // DAY + 4) % 7


@inlined
def _count_items(log: EventLog, b: int, item_stats: ItemStats) -> None:
    """Count the items of one basket."""
    users, clock = log.users, item_stats.clock
    size, user_experience = users.baskets[b + 1] - users.baskets[b], experience(users, log.first[b], b)
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
        if clock.shape[0] > 0:
            for counted in range(2):
                place = i if counted == 0 else clock.shape[0] - 1
                clock[place, hour_of(users.time[b])] += ONE
                clock[place, 24 + weekday_of(users.time[b])] += ONE


@inlined
def _count_until(log: EventLog, state: ReplayState, rules: CandidateRules, until: int) -> None:
    """Count every basket before `until`, and no other."""
    item_stats, n = state.item_stats, log.order.size
    while item_stats.cursor[0] < n and log.time[item_stats.cursor[0]] < until:
        _slide_windows(log, item_stats, rules.windows, log.time[item_stats.cursor[0]])
        _count_items(log, log.order[item_stats.cursor[0]], item_stats)
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
def advance(log: EventLog, state: ReplayState, rules: CandidateRules, all_items: Ints, at: int) -> None:
    """Bring the state to `at`, and best sellers to the last full hour; write nothing if `at` is its time."""
    if state.clock[0] == at:
        return
    item_stats, hour = state.item_stats, at // HOUR
    # before the first full hour with sales, best sellers are computed as of `at` itself
    by_hour = log.order.size > 0 and log.time[0] < hour * HOUR
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
def replay_until(log: EventLog, state: ReplayState, rules: CandidateRules, all_items: Ints, at: int) -> None:
    """Call `advance` from outside the kernels."""
    advance(log, state, rules, all_items, at)


MAX_PAIRED = 60  # items of a basket that form pairs: one pair of a very large basket says little


class LinkTable(NamedTuple):
    """Weights of item pairs: for each item, a limited number of the heaviest."""

    starts: Longs  # (n_items + 1,)
    other: Ints  # (n_links,)
    weight: Floats  # (n_links,) above 0
    total: Doubles  # (n_items,) sum over all pairs, those without an entry included


class Links(NamedTuple):
    """What was known about pairs of items after a number of baskets."""

    together: LinkTable  # pairs within a basket
    after: LinkTable  # transitions, from the earlier item
    before: LinkTable  # the same transitions, from the later item


class PairKind(NamedTuple):
    """Which pairs a table holds."""

    window: int  # 0: pairs within a basket; else from each of so many earlier baskets to a basket
    decay: float  # factor on a transition per basket further back
    reverse: bool  # whether entries belong to the later item


class NewPairs(NamedTuple):
    """Pairs of some baskets, item by item: entries begin[i] … end[i] - 1."""

    begin: Longs  # (n_items,)
    end: Longs  # (n_items,)
    other: Ints
    weight: Floats
    step: npt.NDArray[np.int16]  # ascending within an item


@kernel
def list_pairs(
    log: EventLog,
    edges: Longs,  # step k has the baskets edges[k] … edges[k + 1] - 1 in order of time
    kind: PairKind,
    new: NewPairs,  # `end` is advanced; without entries: by the room that all pairs need
) -> None:
    """List the pairs that the baskets complete, by item."""
    users, end, step = log.users, new.end, 0
    for position in range(edges[0], edges[-1]):
        while position >= edges[step + 1]:
            step += 1
        b = log.order[position]
        first = max(b - kind.window, log.first[b]) if kind.window else b
        to_first, to_end = users.baskets[b], min(users.baskets[b + 1], users.baskets[b] + MAX_PAIRED)
        for earlier in range(first, b if kind.window else b + 1):
            value = np.float32(kind.decay ** (b - earlier - 1)) if kind.window else np.float32(1)
            from_first = users.baskets[earlier]
            from_end = min(users.baskets[earlier + 1], from_first + MAX_PAIRED)
            if new.other.size == 0:
                if kind.reverse:
                    for to in range(to_first, to_end):
                        end[users.item[to]] += from_end - from_first
                else:
                    for row in range(from_first, from_end):
                        end[users.item[row]] += to_end - to_first
            elif value > 0:
                for row in range(from_first, from_end):
                    for to in range(to_first, to_end):
                        i, j = users.item[row], users.item[to]
                        if i != j:
                            owner, target = (j, i) if kind.reverse else (i, j)
                            at = end[owner]
                            new.other[at], new.weight[at], new.step[at] = target, value, step
                            end[owner] = at + 1


@inlined
def _forget_links(value: Floats, listed: Ints, n: int, most: int, order: Floats) -> None:
    """Move the `most` heaviest of n listed items to the front, or the latest; forget the others."""
    for k in range(n):
        order[k] = value[listed[k]]
    least = kth_smallest(order[:n].copy(), n - most)
    skipped, kept = n - most, 0  # of those that equal the least one
    for k in range(n):
        skipped -= order[k] < least
    for k in range(n):
        if order[k] > least or (order[k] == least and skipped <= 0):
            listed[kept] = listed[k]
            kept += 1
        else:
            skipped -= order[k] == least
            value[listed[k]] = 0


@kernel
def merge_links(table: LinkTable, new: NewPairs, most: int, out: LinkTable) -> int:
    """Add new pairs to a table; after each step, the `most` heaviest of an item remain, or the latest.

    `out` has room for all entries, or for `most` of each item. Returns how many there are.
    """
    n_items, used = new.begin.size, 0
    value, listed, order = (
        np.zeros(n_items, np.float32),
        np.empty(n_items, np.int32),
        np.empty(n_items, np.float32),
    )
    for i in range(n_items):
        n, total = 0, table.total[i]
        out.starts[i] = used
        for p in range(table.starts[i], table.starts[i + 1]):
            value[table.other[p]] = table.weight[p]
            listed[n] = table.other[p]
            n += 1
        for p in range(new.begin[i], new.end[i]):
            j = new.other[p]
            if value[j] == 0:
                listed[n] = j
                n += 1
            value[j] += new.weight[p]
            total += new.weight[p]
            if n > most and (p + 1 == new.end[i] or new.step[p + 1] != new.step[p]):
                _forget_links(value, listed, n, most, order)
                n = most
        for k in range(n):
            out.other[used], out.weight[used] = listed[k], value[listed[k]]
            value[listed[k]] = 0
            used += 1
        out.total[i] = total
    out.starts[n_items] = used
    return used


DECAYS = (0.5, 0.8, 0.95)  # factors on an own item per basket further back
N_LINKED = 40  # most recent own items whose neighbors are scored
N_LATEST = 10  # most recent own items for which transitions into them are scored
CHUNK = 64  # items whose links are cleared together


class GivenCandidates(NamedTuple):
    """Candidates given by the caller: instead of the proposed ones if `only`, else in addition to them."""

    starts: Longs  # (n_snapshots + 1,), or empty if no candidates are given
    items: Ints  # (n_candidates,) distinct within a snapshot
    only: bool


class EASEWeights(NamedTuple):
    """Item–item weights among the most common items."""

    row: Ints  # (n_items,) row of each item, -1: none
    items: Ints  # (n,) item of each row
    weights: Floats  # (n, n) what owning the item of the row adds to the score of the item of the column


class Scratch(NamedTuple):
    """Working memory for one user at a time; entries are valid if they carry the current mark."""

    bought: Longs  # (n_items,) mark of the snapshot whose user has the item
    candidate: Longs  # (n_items,) mark of the snapshot in which the item is a candidate
    purchases: Doubles  # (n_items,) own baskets with it
    decayed: Doubles  # (n_items, len(DECAYS) + 1) decayed counts
    last: Longs  # (n_items,) when the user last bought it
    back: Longs  # (n_items,) baskets since then
    earliest: Longs  # (n_items,) when the user first bought it
    own_clock: Doubles  # (n_items, 3) own purchases near the hour, the same with recency, on the weekday
    links: Floats  # (n_items, 8) sum and maximum over links together, after and before; two unused
    dirty: Bools  # (⌈n_items / CHUNK⌉,) whether any item of the chunk has links
    ease: Floats  # (n_items,) EASE scores, by row of the weights
    own_items: Ints  # (n_items,) the user's distinct items, most recent first
    all_items: Ints  # (n_items,) 0 … n_items - 1
    target: Longs  # (n_items,) mark of the snapshot whose next basket contains the item
    item_rows: Floats  # (n_items, 16) features of the item at the time in `item_at`, two of the clock
    item_experience: Doubles  # (n_items, 2) mean experience of the buyers, and its spread
    item_at: Longs  # (n_items,) time of the two before
    window: SalesWindow  # of sessions
    mark: Longs  # (1,) the next unused mark


@inlined
def load_history(
    users: UserLog, scratch: Scratch, mark: int, first: int, end: int, at: int, has_clock: bool
) -> int:
    """Lay out the user's items, most recent first; return the number of distinct items."""
    n = 0
    for b in range(end - 1, first - 1, -1):
        back = end - 1 - b
        by_days = 0.5 ** ((at - users.time[b]) / DAY / 14)
        slow, middle, fast = DECAYS[2] ** back, DECAYS[1] ** back, DECAYS[0] ** back
        near, lately, same_day = 0.0, 0.0, 0.0
        if has_clock:
            near = HOUR_WEIGHTS[abs(hour_of(users.time[b]) - hour_of(at))]
            lately = near * 0.5 ** ((at - users.time[b]) / DAY / 30)
            same_day = 1.0 if weekday_of(users.time[b]) == weekday_of(at) else 0.0
        for row in range(users.baskets[b], users.baskets[b + 1]):
            i = users.item[row]
            if scratch.bought[i] != mark:
                scratch.bought[i] = mark
                scratch.own_items[n] = i
                n += 1
                scratch.purchases[i] = 0
                scratch.decayed[i] = 0
                scratch.own_clock[i] = 0
                scratch.last[i], scratch.back[i] = users.time[b], back
            scratch.earliest[i] = users.time[b]
            scratch.purchases[i] += 1
            scratch.decayed[i, 0] += fast
            scratch.decayed[i, 1] += middle
            scratch.decayed[i, 2] += slow
            scratch.decayed[i, 3] += by_days
            if has_clock:
                scratch.own_clock[i, 0] += near
                scratch.own_clock[i, 1] += lately
                scratch.own_clock[i, 2] += same_day
    return n


@inlined
def _add_neighbors(table: LinkTable, i: int, scale: float, column: int, scratch: Scratch) -> None:
    """Add the neighbors of one item to links[:, column] (sum) and links[:, column + 1] (maximum)."""
    factor = np.float32(scale)
    for p in range(table.starts[i], table.starts[i + 1]):
        j = np.uint64(table.other[p])  # unsigned: no check for negative indices
        value = factor * table.weight[p]
        scratch.dirty[j // np.uint64(CHUNK)] = True
        scratch.links[j, column] += value
        previous = scratch.links[j, column + 1]
        scratch.links[j, column + 1] = max(previous, value)  # without a branch: twice as fast


@inlined
def _clear_links(scratch: Scratch) -> None:
    """Set all links to 0, but visit only the chunks that have any."""
    for c in range(scratch.dirty.size):
        if scratch.dirty[c]:
            scratch.links[c * CHUNK : (c + 1) * CHUNK] = 0
            scratch.dirty[c] = False


class LargestValues(NamedTuple):
    """Room for the ids of the largest values, largest first."""

    values: Floats  # (n,)
    ids: Ints  # (n,)


@inlined
def _insert(largest: LargestValues, size: int, value: float, i: int) -> int:
    """Insert an id, after those with equal values; return the number of ids."""
    at = size if size < largest.ids.size else size - 1
    while at > 0 and largest.values[at - 1] < value:
        largest.values[at], largest.ids[at] = largest.values[at - 1], largest.ids[at - 1]
        at -= 1
    largest.values[at], largest.ids[at] = value, i
    return min(size + 1, largest.ids.size)


@inlined
def top_neighbors(scratch: Scratch, together: LargestValues, after: LargestValues) -> tuple[int, int]:
    """Find the items with the largest sums together and after; return how many there are.

    Both in one pass over the links, most of which are below the smallest of the largest.
    """
    n_together, n_after = 0, 0
    least_together, least_after = np.float32(0), np.float32(0)
    for c in range(scratch.dirty.size):
        if scratch.dirty[c]:
            for j in range(c * CHUNK, min((c + 1) * CHUNK, scratch.links.shape[0])):
                value = scratch.links[j, 0]
                if value > least_together:
                    n_together = _insert(together, n_together, value, j)
                    if n_together == together.ids.size:
                        least_together = together.values[n_together - 1]
                value = scratch.links[j, 2]
                if value > least_after:
                    n_after = _insert(after, n_after, value, j)
                    if n_after == after.ids.size:
                        least_after = after.values[n_after - 1]
    return n_together, n_after


@inlined
def score_links(
    users: UserLog,
    item_stats: ItemStats,
    links: Links,
    rules: CandidateRules,
    scratch: Scratch,
    first: int,
    end: int,
    n_own: int,
) -> None:
    """Score the neighbors of the user's recent items."""
    _clear_links(scratch)
    for k in range(min(n_own, N_LINKED)):
        i = scratch.own_items[k]
        sold = max(item_stats.sold[i], 1.0)  # a session may hold items that were not sold yet
        _add_neighbors(links.together, i, 0.9 ** scratch.back[i] / sold, 0, scratch)
    for b in range(max(first, end - rules.transition_window), end):
        weight = rules.decay ** (end - 1 - b)
        for row in range(users.baskets[b], users.baskets[b + 1]):
            i = users.item[row]
            _add_neighbors(links.after, i, weight / max(links.after.total[i], 1.0) ** 0.5, 2, scratch)
    for k in range(min(n_own, N_LATEST)):
        i = scratch.own_items[k]
        if scratch.back[i] >= rules.transition_window:
            break  # the most recent ones come first
        weight = rules.decay ** scratch.back[i] / max(links.after.total[i], 1.0) ** 0.5
        _add_neighbors(links.before, i, weight, 4, scratch)


@inlined
def score_ease(ease: EASEWeights, scratch: Scratch, n_own: int) -> None:
    """Write the EASE scores of all items that have weights to `scratch.ease`."""
    n = ease.items.size
    scores = scratch.ease[:n]
    scores[:] = 0
    for k in range(n_own):
        row = ease.row[scratch.own_items[k]]
        if row >= 0:
            for c in range(n):
                scores[c] += ease.weights[row, c]


@inlined
def _propose_ease(
    rules: CandidateRules, ease: EASEWeights, scratch: Scratch, mark: int, largest: LargestValues
) -> int:
    """Find the items with the highest EASE scores that are not candidates yet; return their number."""
    size, least = 0, np.float32(0)
    for row in range(ease.items.size):
        value = scratch.ease[row]
        if value > least:
            i = ease.items[row]
            if scratch.candidate[i] != mark and (rules.has_repeats or scratch.bought[i] != mark):
                size = _insert(largest, size, value, i)
                if size == largest.ids.size:
                    least = largest.values[size - 1]
    return size


@inlined
def propose(
    rules: CandidateRules,
    ease: EASEWeights,
    best: Ints,  # (3, per_source)
    scratch: Scratch,
    mark: int,
    n_own: int,
    candidates: Ints,
) -> int:
    """Fill `candidates` with distinct candidates of all sources; return their number.

    The sources are own items, neighbors, followers, three lists of best sellers, and EASE.
    """
    n = 0
    # if own items are not proposed, twice as many neighbors and followers are
    width = rules.per_source if rules.has_repeats else 2 * rules.per_source
    together = LargestValues(np.empty(width, np.float32), np.empty(width, np.int32))
    after = LargestValues(np.empty(width, np.float32), np.empty(width, np.int32))
    n_together, n_after = top_neighbors(scratch, together, after)
    for source in range(7):
        if source == 0:
            size = min(n_own, 2 * rules.per_source) if rules.has_repeats else 0
            proposed = scratch.own_items[:size]
        elif source < 3:
            proposed = together.ids[:n_together] if source == 1 else after.ids[:n_after]
        elif source < 6:
            proposed = best[source - 3]
        else:
            most = max(rules.per_source // 2, 1)
            most_liked = LargestValues(after.values[:most], after.ids[:most])
            size = _propose_ease(rules, ease, scratch, mark, most_liked)
            proposed = after.ids[:size]
        for i in proposed:
            if i >= 0 and scratch.candidate[i] != mark and (rules.has_repeats or scratch.bought[i] != mark):
                scratch.candidate[i] = mark
                candidates[n] = i
                n += 1
    return n


@inlined
def add_given(more: Ints, scratch: Scratch, mark: int, n: int, candidates: Ints) -> int:
    """Add the given candidates that are not there yet; return the new number."""
    for i in more:
        if scratch.candidate[i] != mark:
            scratch.candidate[i] = mark
            candidates[n] = i
            n += 1
    return n


N_FEATURES = 48  # named by `FEATURES` in models/two_stage/features.py, in the same order
N_USER_FEATURES = 12  # the last of them
N_CLOCK_FEATURES = 6  # after these, if times tell the hour; named by `CLOCK_FEATURES`
ITEM, OWN, LINKED, USER, CLOCK = 0, 16, 26, 36, 48  # where the features of each kind start
CLOCK_PRIOR = 10.0  # sales at the usual hours that every item is credited with
MISSING = np.nan


class Snapshots(NamedTuple):
    """Users at points in time."""

    user: Ints  # (n,)
    at: Longs  # (n,) microseconds, ascending
    target: Longs  # (n,) the basket that followed, -1: unknown


class FeatureRows(NamedTuple):
    """Candidates of consecutive snapshots; row k of `indptr` belongs to snapshot `first` + k."""

    first: int
    indptr: Longs  # (n + 1,) where each snapshot's rows start
    items: Ints  # (n_rows,) for `fill_features`, at least as many rows as there can be candidates
    features: Floats  # (n_rows, N_FEATURES), with N_CLOCK_FEATURES if times tell the hour, or more
    labels: Bools  # (n_rows,) whether the basket that followed contains the item
    users: Floats  # (n, N_USER_FEATURES) features of the snapshots' users
    non_empty: Bools  # (n,) whether there are candidates, kept or not

    @property
    def user_features(self) -> Floats:
        """(n_non_empty, …) features of the users with candidates."""
        return self.users[self.non_empty]

    @property
    def numbers(self) -> Longs:
        """(n,) the numbers of the snapshots."""
        return np.arange(self.first, self.first + self.non_empty.size)


@borrowing
def _user_features(users: UserLog, first: int, end: int, at: int, n_own: int, row: Floats) -> None:
    """Fill the features of the user, which are the same for all candidates of a snapshot."""
    n = end - first
    rows = users.baskets[end] - users.baskets[first]
    repeats, trend = 0.0, 0.0
    for r in range(users.baskets[first], users.baskets[end]):
        repeats += users.gap[r] >= 0
        trend += users.trend[r]
    row[0] = n
    row[1] = rows / n if n else MISSING
    row[2] = users.baskets[end] - users.baskets[end - 1] if n else MISSING
    row[3] = users.baskets[end - 1] - users.baskets[end - 2] if n > 1 else MISSING
    row[4] = (at - users.time[end - 1]) / DAY if n else MISSING
    row[5] = (users.time[end - 1] - users.time[first]) / (n - 1) / DAY if n > 1 else MISSING
    row[6] = repeats / rows if n else MISSING
    row[7] = trend / rows if n else MISSING
    row[8] = n_own
    row[9] = weekday_of(at)
    row[10] = row[4] / (row[5] + 1.0)
    row[11] = (at - users.time[first]) / DAY if n else MISSING


@borrowing
def _load_item(item_stats: ItemStats, i: int, at: int, scratch: Scratch) -> None:
    """Compute the features of the item that are the same for all users at a time."""
    row, sold = scratch.item_rows[i], item_stats.sold[i]
    for w in range(item_stats.recent.shape[0]):
        row[w] = item_stats.recent[w, i] / max(item_stats.total[1 + w], 1.0)
    row[5] = sold / max(item_stats.total[0], 1.0)
    row[6] = item_stats.repeats[i] / (sold + 5.0)
    row[7] = item_stats.gaps[i] / item_stats.repeats[i] if item_stats.repeats[i] else MISSING
    row[8] = (row[1] + 1e-5) / (row[3] + 1e-5)
    row[9] = (row[3] + 1e-5) / (row[5] + 1e-5)
    row[10] = (at - item_stats.first[i]) / DAY if sold else MISSING
    row[11] = item_stats.sizes[i] / sold if sold else MISSING
    row[12] = sold / item_stats.buyers[i] if sold else MISSING
    mean = item_stats.experience[i, 0] / sold if sold else MISSING
    row[13] = mean
    spread = max(item_stats.experience[i, 1] / sold - mean * mean, 0.0) ** 0.5 + 0.3 if sold else MISSING
    scratch.item_experience[i, 0], scratch.item_experience[i, 1] = mean, spread
    if item_stats.clock.shape[0] > 0:
        row[14] = _lift(item_stats, i, hour_of(at), 2)
        row[15] = _lift(item_stats, i, 24 + weekday_of(at), 0)
    scratch.item_at[i] = at


@borrowing
def _lift(item_stats: ItemStats, i: int, column: int, width: int) -> float:
    """How many times as often the item is sold at this hour or weekday as all items are."""
    clock, own, everything = item_stats.clock, 0.0, 0.0
    for step in range(-width, width + 1):  # of hours also the neighbors, around midnight too
        place = (column + step + 24) % 24 if width else column
        own += HOUR_WEIGHTS[abs(step)] * clock[i, place]
        everything += HOUR_WEIGHTS[abs(step)] * clock[-1, place]
    if everything == 0.0:
        return MISSING
    share = everything / item_stats.total[0]
    return float((own + CLOCK_PRIOR * share) / (item_stats.sold[i] + CLOCK_PRIOR) / share)


# The rows of features are written element by element: a slice of a row is an object of its own, which takes
# longer to create than its elements take to write.
@borrowing
def _item_features(
    item_stats: ItemStats, i: int, at: int, user_experience: float, scratch: Scratch, out: Floats, k: int
) -> None:
    """Fill the features of the item in row k."""
    if scratch.item_at[i] != at:
        _load_item(item_stats, i, at, scratch)
    for c in range(14):
        out[k, ITEM + c] = scratch.item_rows[i, c]
    out[k, ITEM + 14] = user_experience - scratch.item_experience[i, 0]
    out[k, ITEM + 15] = (user_experience - scratch.item_experience[i, 0]) / scratch.item_experience[i, 1]


@borrowing
def _own_features(scratch: Scratch, mark: int, i: int, at: int, n: int, out: Floats, k: int) -> None:
    """Fill the features of the user's purchases of the item in row k, after those of the item."""
    if scratch.bought[i] != mark:
        for c in range(5):
            out[k, OWN + c] = 0
            out[k, OWN + 5 + c] = MISSING
        return
    count, last, item_gap = scratch.purchases[i], (at - scratch.last[i]) / DAY, out[k, ITEM + 7]
    out[k, OWN] = count
    for f in range(len(DECAYS) + 1):
        out[k, OWN + 1 + f] = scratch.decayed[i, f]
    out[k, OWN + 5] = count / n
    out[k, OWN + 6] = last
    out[k, OWN + 7] = scratch.back[i]
    out[k, OWN + 8] = last / item_gap
    days = (scratch.last[i] - scratch.earliest[i]) / DAY
    out[k, OWN + 9] = last * (count - 1) / days if count > 1 else MISSING


@borrowing
def _link_features(scratch: Scratch, ease: EASEWeights, i: int, sold: float, out: Floats, k: int) -> None:
    """Fill the features of the item and the user's other items in row k."""
    root = np.float32(max(sold, 1.0) ** 0.5)
    for c in range(6):
        out[k, LINKED + c] = scratch.links[i, c]
    for c in range(3):
        out[k, LINKED + 6 + c] = scratch.links[i, 2 * c] / root
    out[k, LINKED + 9] = scratch.ease[ease.row[i]] if ease.row[i] >= 0 else MISSING


@borrowing
def _clock_features(scratch: Scratch, mark: int, i: int, at: int, out: Floats, k: int) -> None:
    """Fill the features of the hour and the weekday in row k."""
    out[k, CLOCK] = hour_of(at)
    out[k, CLOCK + 1] = scratch.item_rows[i, 14]
    out[k, CLOCK + 2] = scratch.item_rows[i, 15]
    is_own = scratch.bought[i] == mark
    out[k, CLOCK + 3] = scratch.own_clock[i, 0] / scratch.purchases[i] if is_own else MISSING
    out[k, CLOCK + 4] = scratch.own_clock[i, 1] if is_own else 0.0
    out[k, CLOCK + 5] = scratch.own_clock[i, 2] / scratch.purchases[i] if is_own else MISSING


@inlined
def _label(users: UserLog, basket: int, scratch: Scratch, mark: int) -> None:
    """Mark the items of the basket that followed, if it is known."""
    if basket >= 0:
        for row in range(users.baskets[basket], users.baskets[basket + 1]):
            scratch.target[users.item[row]] = mark


@inlined
def _keep_some(
    candidates: Ints, n: int, basket: int, rate: float, scratch: Scratch, mark: int, labels: Bools
) -> int:
    """Keep the candidates in the basket and a share of the others, drawn for each basket and item."""
    kept = 0
    key = mix_bits(np.uint64(basket + 1) * GOLDEN)
    for k in range(n):
        i = candidates[k]
        label = scratch.target[i] == mark
        if label or rate >= 1 or unit_float(mix_bits(key ^ np.uint64(i) * GOLDEN)) < rate:
            candidates[kept], labels[kept] = i, label
            kept += 1
    return kept


@kernel
def fill_features(
    log: EventLog,
    state: ReplayState,  # advances with the snapshots
    users: UserLog,  # whose histories the snapshots refer to: log.users, or sessions
    rules: CandidateRules,
    pair_weights: tuple[Links, EASEWeights],  # as of all these snapshots
    scratch: Scratch,
    snapshots: Snapshots,
    given: GivenCandidates,
    rate: float,  # share of the candidates not bought to keep
    out: FeatureRows,
) -> None:
    """Propose candidates and compute their features, snapshot by snapshot."""
    links, ease = pair_weights
    used, stats = 0, state.item_stats
    out.indptr[0] = 0
    for row_number in range(out.non_empty.size):
        number = out.first + row_number
        user, at, target = snapshots.user[number], snapshots.at[number], snapshots.target[number]
        advance(log, state, rules, scratch.all_items, at)
        mark = scratch.mark[0]
        scratch.mark[0] += 1
        first, end = users.user_baskets[user, 0], users.user_baskets[user, 1]
        while end > first and users.time[end - 1] >= at:
            end -= 1
        n_own = load_history(users, scratch, mark, first, end, at, rules.has_clock)
        score_links(users, stats, links, rules, scratch, first, end, n_own)
        score_ease(ease, scratch, n_own)
        user_experience = experience(users, first, end)
        n, candidates, labels = 0, out.items[used:], out.labels[used:]
        if not given.only:
            n = propose(rules, ease, state.best, scratch, mark, n_own, candidates)
        if given.starts.size:
            more = given.items[given.starts[number] : given.starts[number + 1]]
            n = add_given(more, scratch, mark, n, candidates)
        about = out.users[row_number]
        out.non_empty[row_number] = n > 0
        _user_features(users, first, end, at, n_own, about)
        _label(users, target, scratch, mark)
        n = _keep_some(candidates, n, target, rate, scratch, mark, labels)
        for k in range(used, used + n):
            i = out.items[k]
            _item_features(stats, i, at, user_experience, scratch, out.features, k)
            _own_features(scratch, mark, i, at, end - first, out.features, k)
            _link_features(scratch, ease, i, stats.sold[i], out.features, k)
            for c in range(N_USER_FEATURES):
                out.features[k, USER + c] = about[c]
            if rules.has_clock:
                _clock_features(scratch, mark, i, at, out.features, k)
        used += n
        out.indptr[row_number + 1] = used
