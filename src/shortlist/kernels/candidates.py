"""Candidates of a user at a moment: what the past proposes, and what is remembered of the user meanwhile."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.item_stats import DAY, CoCounts, ItemStats, Log, item_stats_advance
from shortlist.kernels.jit import inlined
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

FADES = (0.5, 0.8, 0.95)  # a basket further back counts this much less
HOUR = 3_600_000_000  # lists of best sellers are those of the last full hour
LINKED = 40  # most recent own items whose neighbours are asked
LATELY = 10  # most recent own items that are looked at for what tends to come before them
CHUNK = 64  # items whose links are wiped together


class Rules(NamedTuple):
    """How candidates are found; the same for training and serving."""

    windows: Longs  # (n_windows,) microseconds, ascending
    quota: int  # candidates from each source; own items may be twice as many, those to taste half as many
    reach: int  # baskets back from which transitions are followed
    decay: float  # of transitions per basket back
    has_repeats: bool  # whether what the user has may be shown again


class Asked(NamedTuple):
    """Candidates named from outside, beside those found here or instead of them; no starts: none."""

    starts: Longs  # (n + 1,) by moment
    items: Ints  # (n_candidates,) distinct within a moment
    only: bool


class Taste(NamedTuple):
    """Weights among the items most people have."""

    place: Ints  # (n_items,) row of each item, -1: none
    items: Ints  # (n,) item of each row
    weights: Floats  # (n, n) what having the row's item adds to the column's


class Scratch(NamedTuple):
    """Room for one user at a time; an entry holds where it bears the number of the moment at hand."""

    own: Longs  # (n_items,) number of the moment whose user has the item
    shown: Longs  # (n_items,) number of the moment that has it as a candidate
    times: Doubles  # (n_items,) baskets with it
    faded: Doubles  # (n_items, len(FADES) + 1)
    last: Longs  # (n_items,) when the user last took it
    back: Longs  # (n_items,) how many baskets ago
    earliest: Longs  # (n_items,) when the user first took it
    links: Floats  # (n_items, 4) neighbourhood and transition scores, sums and largest terms
    dirty: Bools  # (⌈n_items / CHUNK⌉,) whether any of so many items has links
    liking: Floats  # (n_items,) sums of weights, by row of the taste
    pull: Floats  # (LATELY,) what a transition to each of the most recent own items counts
    touched: Ints  # (n_items,)
    mine: Ints  # (n_items,)
    best: Ints  # (3, quota) best sellers of the second and fourth window and of all time
    renewed: Longs  # (2,) the hour that `best` is of, and how many moments have been numbered


@inlined
def _best_fill(values: Doubles | Floats, ids: Ints, n: int, out: Ints) -> int:
    """The ids with the largest positive values, largest first; how many there are."""
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
def _renew(item_stats: ItemStats, scratch: Scratch, every: Ints) -> None:
    """Best sellers as of now; what has no sales is -1."""
    scratch.best[:] = -1
    for k in range(3):
        sales = item_stats.sold if k == 2 else item_stats.recent[1 + 2 * k]
        _best_fill(sales, every, every.size, scratch.best[k])


@inlined
def move_on(
    log: Log,
    item_stats: ItemStats,
    together: CoCounts,
    after: CoCounts,
    rules: Rules,
    scratch: Scratch,
    every: Ints,
    at: int,
) -> None:
    """Everything as of `at`, best sellers as of its full hour: whoever else is described has no say."""
    hour = at // HOUR
    for step in range(2):  # to the hour and then to the moment: one copy of the code for both
        if step == 1 or hour != scratch.renewed[0]:
            until = at if step else hour * HOUR
            item_stats_advance(
                log, item_stats, rules.windows, together, after, rules.reach, rules.decay, until
            )
            if step == 0 or scratch.renewed[0] < 0:  # nothing was sold before the first hour of all
                _renew(item_stats, scratch, every)
                scratch.renewed[0] = hour if step == 0 and item_stats.total[0] > 0 else -1


@inlined
def recall(log: Log, scratch: Scratch, number: int, first: int, end: int, at: int) -> int:
    """Lay out what the user has, most recent first; the number of distinct items."""
    n = 0
    for b in range(end - 1, first - 1, -1):
        back = end - 1 - b
        days = (at - log.moment[b]) / DAY
        for row in range(log.baskets[b], log.baskets[b + 1]):
            i = log.item[row]
            if scratch.own[i] != number:
                scratch.own[i] = number
                scratch.mine[n] = i
                n += 1
                scratch.times[i] = 0
                scratch.faded[i] = 0
                scratch.last[i], scratch.back[i] = log.moment[b], back
            scratch.earliest[i] = log.moment[b]
            scratch.times[i] += 1
            for f in range(len(FADES)):
                scratch.faded[i, f] += FADES[f] ** back
            scratch.faded[i, len(FADES)] += 0.5 ** (days / 14)
    return n


@inlined
def _follow(pairs: CoCounts, i: int, scale: float, at: int, scratch: Scratch) -> None:
    """Add the neighbours of one item to links[:, at] (sum) and links[:, at + 1] (largest).

    A pair that has not occurred yet adds 0: cheaper than asking, for nothing tells beforehand which have.
    """
    factor = np.float32(scale)
    for p in range(pairs.starts[i], pairs.starts[i + 1]):
        j = np.uint64(pairs.other[p])  # unsigned: no index counts from the end
        value = factor * pairs.weight[p]
        scratch.dirty[j // np.uint64(CHUNK)] = True
        scratch.links[j, at] += value
        scratch.links[j, at + 1] = max(scratch.links[j, at + 1], value)  # no branch: half of the time


@inlined
def _clear(scratch: Scratch) -> None:
    for c in range(scratch.dirty.size):
        if scratch.dirty[c]:
            scratch.links[c * CHUNK : (c + 1) * CHUNK] = 0
            scratch.dirty[c] = False


@inlined
def _touched(scratch: Scratch) -> int:
    """List the items that anything leads to; how many there are."""
    n = 0
    for c in range(scratch.dirty.size):
        if scratch.dirty[c]:
            for j in range(c * CHUNK, min((c + 1) * CHUNK, scratch.links.shape[0])):
                if scratch.links[j, 0] > 0 or scratch.links[j, 2] > 0:
                    scratch.touched[n] = j
                    n += 1
    return n


@inlined
def link(
    log: Log,
    item_stats: ItemStats,
    together: CoCounts,
    after: CoCounts,
    rules: Rules,
    scratch: Scratch,
    first: int,
    end: int,
    n_mine: int,
) -> int:
    """Score the neighbours of the user's recent items; how many there are."""
    _clear(scratch)
    for k in range(min(n_mine, LINKED)):
        i = scratch.mine[k]
        _follow(together, i, 0.9 ** scratch.back[i] / item_stats.sold[i], 0, scratch)
    for b in range(max(first, end - rules.reach), end):
        weight = rules.decay ** (end - 1 - b)
        for row in range(log.baskets[b], log.baskets[b + 1]):
            i = log.item[row]
            _follow(after, i, weight / max(after.out[i], 1.0) ** 0.5, 2, scratch)
    return _touched(scratch)


@inlined
def lately(after: CoCounts, rules: Rules, scratch: Scratch, n_mine: int) -> int:
    """Weigh transitions to the user's latest items, which stand first; how many these are."""
    n = 0
    while n < min(n_mine, LATELY) and scratch.back[scratch.mine[n]] < rules.reach:
        i = scratch.mine[n]
        scratch.pull[n] = rules.decay ** scratch.back[i] / max(after.out[i], 1.0) ** 0.5
        n += 1
    return n


@inlined
def like(taste: Taste, scratch: Scratch, n_mine: int) -> None:
    """What all of the user's items say about those with a taste."""
    n = taste.items.size
    liking = scratch.liking[:n]
    liking[:] = 0
    for k in range(n_mine):
        row = taste.place[scratch.mine[k]]
        if row >= 0:
            for c in range(n):
                liking[c] += taste.weights[row, c]


@inlined
def _tasty(rules: Rules, taste: Taste, scratch: Scratch, number: int, out: Ints) -> int:
    """The best liked items that are no candidates yet; how many there are."""
    n = 0
    for row in range(taste.items.size):
        i = taste.items[row]
        if scratch.shown[i] != number and (rules.has_repeats or scratch.own[i] != number):
            scratch.touched[n] = row
            n += 1
    size = _best_fill(scratch.liking, scratch.touched, n, out)
    for k in range(size):
        out[k] = taste.items[out[k]]
    return size


@inlined
def propose(
    rules: Rules, taste: Taste, scratch: Scratch, number: int, n_mine: int, n_near: int, found: Ints
) -> int:
    """Distinct candidates into `found`: own items, neighbours, followers, best sellers, the user's taste."""
    n = 0
    # where own items cannot come back, their places go to neighbours and followers
    room = np.empty(rules.quota if rules.has_repeats else 2 * rules.quota, np.int32)
    for source in range(7):
        if source == 0:
            size = min(n_mine, 2 * rules.quota) if rules.has_repeats else 0
            part = scratch.mine[:size]
        elif source < 3:
            size = _best_fill(scratch.links[:, 2 * (source - 1)], scratch.touched, n_near, room)
            part = room[:size]
        elif source < 6:
            part = scratch.best[source - 3]
        else:
            size = _tasty(rules, taste, scratch, number, room[: max(rules.quota // 2, 1)])
            part = room[:size]
        for i in part:
            if i >= 0 and scratch.shown[i] != number and (rules.has_repeats or scratch.own[i] != number):
                scratch.shown[i] = number
                found[n] = i
                n += 1
    return n


@inlined
def add_asked(more: Ints, scratch: Scratch, number: int, n: int, found: Ints) -> int:
    """Candidates from outside into `found`, where they are not yet in it."""
    for i in more:
        if scratch.shown[i] != number:
            scratch.shown[i] = number
            found[n] = i
            n += 1
    return n
