"""Candidates of a user at a point in time, and the user's own history laid out for the features."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.item_stats import DAY, ItemStats, Rules, UserLog, top_positive
from shortlist.kernels.jit import inlined
from shortlist.kernels.links import Links, LinkTable
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

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

    own: Longs  # (n_items,) mark of the snapshot whose user has the item
    candidate: Longs  # (n_items,) mark of the snapshot in which the item is a candidate
    purchases: Doubles  # (n_items,) own baskets with it
    decayed: Doubles  # (n_items, len(DECAYS) + 1) decayed counts
    last: Longs  # (n_items,) when the user last bought it
    back: Longs  # (n_items,) baskets since then
    earliest: Longs  # (n_items,) when the user first bought it
    links: Floats  # (n_items, 8) sum and maximum over links together, after and before; two unused
    dirty: Bools  # (⌈n_items / CHUNK⌉,) whether any item of the chunk has links
    ease: Floats  # (n_items,) EASE scores, by row of the weights
    touched: Ints  # (n_items,) items, or rows of the EASE weights, to select from
    own_items: Ints  # (n_items,) the user's distinct items, most recent first
    all_items: Ints  # (n_items,) 0 … n_items - 1
    target: Longs  # (n_items,) mark of the snapshot whose next basket contains the item
    item_rows: Floats  # (n_items, 14) features of the item at the time in `item_at`
    item_experience: Doubles  # (n_items, 2) mean experience of the buyers, and its spread
    item_at: Longs  # (n_items,) time of the two before
    mark: Longs  # (1,) the next unused mark


@inlined
def load_history(users: UserLog, scratch: Scratch, mark: int, first: int, end: int, at: int) -> int:
    """Lay out the user's items, most recent first; return the number of distinct items."""
    n = 0
    for b in range(end - 1, first - 1, -1):
        back = end - 1 - b
        by_days = 0.5 ** ((at - users.time[b]) / DAY / 14)
        slow, middle, fast = DECAYS[2] ** back, DECAYS[1] ** back, DECAYS[0] ** back
        for row in range(users.baskets[b], users.baskets[b + 1]):
            i = users.item[row]
            if scratch.own[i] != mark:
                scratch.own[i] = mark
                scratch.own_items[n] = i
                n += 1
                scratch.purchases[i] = 0
                scratch.decayed[i] = 0
                scratch.last[i], scratch.back[i] = users.time[b], back
            scratch.earliest[i] = users.time[b]
            scratch.purchases[i] += 1
            scratch.decayed[i, 0] += fast
            scratch.decayed[i, 1] += middle
            scratch.decayed[i, 2] += slow
            scratch.decayed[i, 3] += by_days
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


@inlined
def _list_touched(scratch: Scratch) -> int:
    """List the items with a positive link; return their number."""
    n = 0
    for c in range(scratch.dirty.size):
        if scratch.dirty[c]:
            for j in range(c * CHUNK, min((c + 1) * CHUNK, scratch.links.shape[0])):
                if scratch.links[j, 0] > 0 or scratch.links[j, 2] > 0:
                    scratch.touched[n] = j
                    n += 1
    return n


@inlined
def score_links(
    users: UserLog,
    item_stats: ItemStats,
    links: Links,
    rules: Rules,
    scratch: Scratch,
    first: int,
    end: int,
    n_own: int,
) -> int:
    """Score the neighbors of the user's recent items; return the number of those that may be proposed."""
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
    n = _list_touched(scratch)
    for k in range(min(n_own, N_LATEST)):
        i = scratch.own_items[k]
        if scratch.back[i] >= rules.transition_window:
            break  # the most recent ones come first
        weight = rules.decay ** scratch.back[i] / max(links.after.total[i], 1.0) ** 0.5
        _add_neighbors(links.before, i, weight, 4, scratch)
    return n


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
def _propose_ease(rules: Rules, ease: EASEWeights, scratch: Scratch, mark: int, out: Ints) -> int:
    """Write the items with the highest EASE scores that are not candidates yet; return their number."""
    n = 0
    for row in range(ease.items.size):
        i = ease.items[row]
        if scratch.candidate[i] != mark and (rules.has_repeats or scratch.own[i] != mark):
            scratch.touched[n] = row
            n += 1
    size = top_positive(scratch.ease, scratch.touched, n, out)
    for k in range(size):
        out[k] = ease.items[out[k]]
    return size


@inlined
def propose(
    rules: Rules,
    ease: EASEWeights,
    best: Ints,  # (3, per_source)
    scratch: Scratch,
    mark: int,
    n_own: int,
    n_near: int,
    found: Ints,
) -> int:
    """Fill `found` with distinct candidates of all sources; return their number.

    The sources are own items, neighbors, followers, three lists of best sellers, and EASE.
    """
    n = 0
    # if own items are not proposed, twice as many neighbors and followers are
    top = np.empty(rules.per_source if rules.has_repeats else 2 * rules.per_source, np.int32)
    for source in range(7):
        if source == 0:
            size = min(n_own, 2 * rules.per_source) if rules.has_repeats else 0
            part = scratch.own_items[:size]
        elif source < 3:
            size = top_positive(scratch.links[:, 2 * (source - 1)], scratch.touched, n_near, top)
            part = top[:size]
        elif source < 6:
            part = best[source - 3]
        else:
            size = _propose_ease(rules, ease, scratch, mark, top[: max(rules.per_source // 2, 1)])
            part = top[:size]
        for i in part:
            if i >= 0 and scratch.candidate[i] != mark and (rules.has_repeats or scratch.own[i] != mark):
                scratch.candidate[i] = mark
                found[n] = i
                n += 1
    return n


@inlined
def add_given(more: Ints, scratch: Scratch, mark: int, n: int, found: Ints) -> int:
    """Add the given candidates that are not in `found` yet; return the new number."""
    for i in more:
        if scratch.candidate[i] != mark:
            scratch.candidate[i] = mark
            found[n] = i
            n += 1
    return n
