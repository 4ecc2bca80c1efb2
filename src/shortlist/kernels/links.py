"""Links between items: pairs bought together or one after the other, counted interval by interval."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.item_stats import EventLog
from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs

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


class MergeScratch(NamedTuple):
    """Working memory of `merge_links`."""

    value: Floats  # (n_items,) zeros
    listed: Ints  # (n_items,)
    order: Floats  # (n_items,)


@kernel
def list_pairs(
    log: EventLog,
    positions: tuple[int, int],  # baskets positions[0] … positions[1] - 1 in order of time
    kind: PairKind,
    end: Longs,  # (n_items,) where the next pair of each item goes; advanced
    other: Ints,  # empty: leave room for all pairs instead of writing them
    weight: Floats,
) -> None:
    """List the pairs that the baskets complete, by item."""
    users = log.users
    for position in range(positions[0], positions[1]):
        b = log.order[position]
        first = max(b - kind.window, users.user_baskets[log.owner[b]]) if kind.window else b
        to_first, to_end = users.baskets[b], min(users.baskets[b + 1], users.baskets[b] + MAX_PAIRED)
        for earlier in range(first, b if kind.window else b + 1):
            value = np.float32(kind.decay ** (b - earlier - 1)) if kind.window else np.float32(1)
            from_first = users.baskets[earlier]
            from_end = min(users.baskets[earlier + 1], from_first + MAX_PAIRED)
            if other.size == 0:
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
                            other[end[owner]], weight[end[owner]] = target, value
                            end[owner] += 1


@inlined
def _largest(values: Floats, n: int, k: int) -> np.float32:
    """Return the k-th largest (from 1) of the first n values, which are reordered."""
    low, high, wanted = 0, n - 1, k - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return np.float32(values[wanted])


@kernel
def merge_links(
    known: LinkTable, new: NewPairs, most: int, scratch: MergeScratch, out: LinkTable, kept: Longs
) -> None:
    """Add new pairs to a table; of each item, the `most` heaviest remain, of equal ones the latest.

    The entries of item i start at out.starts[i]; kept (n_items,) is set to their number. There is room for
    all or for `most` of them.
    """
    value, listed = scratch.value, scratch.listed
    for i in range(new.begin.size):
        n, total = 0, known.total[i]
        if new.begin[i] == new.end[i]:  # nothing new
            kept[i], out.total[i] = known.starts[i + 1] - known.starts[i], total
            for p in range(kept[i]):
                out.other[out.starts[i] + p] = known.other[known.starts[i] + p]
                out.weight[out.starts[i] + p] = known.weight[known.starts[i] + p]
            continue
        for p in range(known.starts[i], known.starts[i + 1]):
            value[known.other[p]] = known.weight[p]
            listed[n] = known.other[p]
            n += 1
        for p in range(new.begin[i], new.end[i]):
            j = new.other[p]
            if value[j] == 0:
                listed[n] = j
                n += 1
            value[j] += new.weight[p]
            total += new.weight[p]
        least, ties = np.float32(0), most
        if n > most:
            for k in range(n):
                scratch.order[k] = value[listed[k]]
            least = _largest(scratch.order, n, most)
            for k in range(n):
                ties -= value[listed[k]] > least
        at = out.starts[i] + min(n, most)
        for k in range(n - 1, -1, -1):  # from the end: the latest of equal ones are kept
            j = listed[k]
            if value[j] > least or (value[j] == least and ties > 0):
                ties -= value[j] == least
                at -= 1
                out.other[at], out.weight[at] = j, value[j]
            value[j] = 0
        kept[i] = min(n, most)
        out.total[i] = total


@kernel
def close_gaps(starts: Longs, kept: Longs, other: Ints, weight: Floats) -> int:
    """Move the kept entries of each item to where the previous item's end; return their number."""
    n = 0
    for i in range(kept.size):
        first = starts[i]
        starts[i] = n
        for p in range(first, first + kept[i]):
            other[n], weight[n] = other[p], weight[p]
            n += 1
    starts[kept.size] = n
    return n
