"""The shop as it stood at a moment: sales of items and pairs of items, counted on as time moves forward."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs

DAY = 86_400_000_000  # microseconds
WIDEST = 60  # items of a basket that are paired with one another: a wholesaler's basket says little per pair


class Log(NamedTuple):
    """Who took what when: rows by user and time, and the baskets in the order in which they happened."""

    user_baskets: Longs  # (n_users + 1,)
    baskets: Longs  # (n_baskets + 1,)
    item: Ints  # (n_rows,)
    moment: Longs  # (n_baskets,)
    owner: Ints  # (n_baskets,)
    order: Longs  # (n_baskets,) by moment
    gap: Doubles  # (n_rows,) days since the user last took the item, -1 the first time


class ItemStats(NamedTuple):
    """What is known of every item so far."""

    cursor: Longs  # (1 + n_windows,) the next basket to count, and the oldest one in each window
    sold: Doubles  # (n_items,)
    recent: Doubles  # (n_windows, n_items)
    total: Doubles  # (1 + n_windows,) sales of all items
    buyers: Doubles  # (n_items,) users who took it
    repeats: Doubles  # (n_items,) rows that were not the user's first
    gaps: Doubles  # (n_items,) days between a user's rows, summed over repeats
    sizes: Doubles  # (n_items,) sizes of the baskets it was in, summed
    first: Longs  # (n_items,) when it was first taken
    stage: Doubles  # (n_items, 2) how far its takers had come (`far`), summed, and summed squares
    trend_score: Doubles  # (n_rows,) the item's share of the sales of the second window when the row happened


class CoCounts(NamedTuple):
    """Weights of item pairs; every pair that ever occurs has its place from the start."""

    starts: Longs  # (n_items + 1,)
    other: Ints  # (n_pairs,) ascending within an item
    weight: Floats  # (n_pairs,)
    out: Doubles  # (n_items,) sum of weights


@kernel
def gaps_fill(
    user_baskets: Longs, baskets: Longs, item: Ints, moment: Longs, gap: Doubles, n_items: int
) -> None:
    """gap (n_rows,): days since the user last took the item, -1 the first time."""
    owner, last = np.full(n_items, -1, np.int64), np.zeros(n_items, np.int64)
    for user in range(user_baskets.size - 1):
        for b in range(user_baskets[user], user_baskets[user + 1]):
            for row in range(baskets[b], baskets[b + 1]):
                i = item[row]
                gap[row] = (moment[b] - last[i]) / DAY if owner[i] == user else -1.0
                owner[i], last[i] = user, moment[b]


@kernel
def pairs_list(log: Log, reach: int, n_items: int, keys: Longs) -> int:
    """How many (item, other) pairs there are; those that fit are written as item · n_items + other.

    reach 0: pairs inside a basket. Otherwise: from each of the last `reach` baskets to this one.
    """
    n = 0
    for b in range(log.moment.size):
        first = max(b - reach, log.user_baskets[log.owner[b]])
        for earlier in range(first if reach else b, b if reach else b + 1):
            for row in range(
                log.baskets[earlier], min(log.baskets[earlier + 1], log.baskets[earlier] + WIDEST)
            ):
                for to in range(log.baskets[b], min(log.baskets[b + 1], log.baskets[b] + WIDEST)):
                    if log.item[row] != log.item[to]:
                        if n < keys.size:
                            keys[n] = np.int64(log.item[row]) * n_items + log.item[to]
                        n += 1
    return n


@inlined
def far(log: Log, user: int, end: int) -> float:
    """How far a user has come before basket `end`: the logarithm of what they have taken, and 1."""
    return float(np.log1p(log.baskets[end] - log.baskets[log.user_baskets[user]]))


@inlined
def _place(pairs: CoCounts, item: int, other: int) -> int:
    low, high = int(pairs.starts[item]), int(pairs.starts[item + 1]) - 1
    while low < high:
        middle = (low + high) // 2
        if pairs.other[middle] < other:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def pair_weight(pairs: CoCounts, item: int, other: int) -> np.float32:
    """What has been counted from an item to another; 0 of pairs that never occur."""
    if pairs.starts[item] < pairs.starts[item + 1]:
        place = _place(pairs, item, other)
        if pairs.other[place] == other:
            return np.float32(pairs.weight[place])
    return np.float32(0)


@inlined
def _pair_up(log: Log, b: int, reach: int, decay: float, pairs: CoCounts) -> None:
    """Count the pairs of one basket; a basket further back counts for less."""
    first = max(b - reach, log.user_baskets[log.owner[b]])
    for earlier in range(first if reach else b, b if reach else b + 1):
        weight = np.float32(decay ** (b - earlier - 1)) if reach else np.float32(1)
        for row in range(log.baskets[earlier], min(log.baskets[earlier + 1], log.baskets[earlier] + WIDEST)):
            i = log.item[row]
            for to in range(log.baskets[b], min(log.baskets[b + 1], log.baskets[b] + WIDEST)):
                if log.item[to] != i:
                    pairs.weight[_place(pairs, i, log.item[to])] += weight
                    pairs.out[i] += weight


@inlined
def _slide(log: Log, item_stats: ItemStats, windows: Longs, until: int) -> None:
    """Drop from each window what is older than it is long."""
    for w in range(windows.size):
        at = item_stats.cursor[1 + w]
        while at < item_stats.cursor[0] and log.moment[log.order[at]] < until - windows[w]:
            b = log.order[at]
            for row in range(log.baskets[b], log.baskets[b + 1]):
                item_stats.recent[w, log.item[row]] -= 1
                item_stats.total[1 + w] -= 1
            at += 1
        item_stats.cursor[1 + w] = at


@inlined
def _sell(log: Log, item_stats: ItemStats, b: int) -> None:
    """Count one basket."""
    size, come = log.baskets[b + 1] - log.baskets[b], far(log, log.owner[b], b)
    for row in range(log.baskets[b], log.baskets[b + 1]):
        i = log.item[row]
        item_stats.trend_score[row] = item_stats.recent[1, i] / max(item_stats.total[2], 1.0)
        if item_stats.sold[i] == 0:
            item_stats.first[i] = log.moment[b]
        item_stats.sold[i] += 1
        item_stats.total[0] += 1
        item_stats.sizes[i] += size
        item_stats.stage[i, 0] += come
        item_stats.stage[i, 1] += come * come
        if log.gap[row] < 0:
            item_stats.buyers[i] += 1
        else:
            item_stats.repeats[i] += 1
            item_stats.gaps[i] += log.gap[row]
        for w in range(item_stats.recent.shape[0]):
            item_stats.recent[w, i] += 1
            item_stats.total[1 + w] += 1


@inlined
def item_stats_advance(
    log: Log,
    item_stats: ItemStats,
    windows: Longs,
    together: CoCounts,
    after: CoCounts,
    reach: int,
    decay: float,
    until: int,
) -> None:
    """Count every basket that happened before `until`, and no other."""
    while item_stats.cursor[0] < log.order.size and log.moment[log.order[item_stats.cursor[0]]] < until:
        b = log.order[item_stats.cursor[0]]
        _slide(log, item_stats, windows, log.moment[b])
        _sell(log, item_stats, b)
        _pair_up(log, b, 0, decay, together)
        _pair_up(log, b, reach, decay, after)
        item_stats.cursor[0] += 1
    _slide(log, item_stats, windows, until)
