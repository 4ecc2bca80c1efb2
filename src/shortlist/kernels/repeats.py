"""Repeat signal: how often, and how recently, a user bought an item before a basket."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Floats, Ints, Longs

ZERO, ONE = np.float32(0), np.float32(1)
SIGNAL_UNITS = 1 << 24  # in a sum of signals: a whole number has the same bits in any order of the users


class RepeatCounts(NamedTuple):
    """Earlier purchases of the current user in a range of items; each user overwrites the previous one."""

    owner: Ints  # (n_range_items,) 1 + the user that the next two entries belong to
    decayed: Floats  # (n_range_items,) number of baskets with the item, decayed up to the latest of them
    latest: Ints  # (n_range_items,) the latest of these baskets
    history: Ints  # (n_range_items,) the user's distinct items, in the order of their first purchase


@inlined
def repeat_signal(
    counts: RepeatCounts, item: int | np.integer, user: np.int32, basket: np.int32, log_decay: np.float32
) -> np.float32:
    """Return ln(1 + decayed number of the user's earlier baskets with the item)."""
    if counts.owner[item] != user + 1:
        return ZERO
    age = np.float32(basket - 1 - counts.latest[item])
    return np.log(ONE + counts.decayed[item] * np.exp(log_decay * age))  # type: ignore[no-any-return]


@inlined
def add_purchase(
    counts: RepeatCounts,
    n_history: int,
    item: np.int32,
    user: np.int32,
    basket: np.int32,
    log_decay: np.float32,
) -> int:
    """Record that the basket contains the item; return the number of distinct items in `counts.history`."""
    if counts.owner[item] == user + 1:
        age = np.float32(basket - counts.latest[item])
        counts.decayed[item] = ONE + counts.decayed[item] * np.exp(log_decay * age)
    else:
        counts.owner[item], counts.decayed[item], counts.history[n_history] = user + 1, ONE, item
        n_history += 1
    counts.latest[item] = basket
    return n_history


@kernel
def repeat_signals(
    groups: Ints,  # (n,) baskets
    wanted: Ints,  # (n,) items
    first: Longs,  # (n,) the first basket of each basket's user
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_decay: np.float32,
    out: Floats,  # (n,) written
) -> None:
    """Compute `repeat_signal` of single items before single baskets, directly from the data."""
    for n in range(groups.size):
        count = ZERO
        for basket in range(first[n], groups[n]):
            for row in range(baskets[basket], baskets[basket + 1]):
                if item[row] == wanted[n]:
                    count += np.exp(log_decay * np.float32(groups[n] - 1 - basket))
        out[n] = np.log(ONE + count)


@kernel
def count_repeats(
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_decay: np.float32,
    counts: RepeatCounts,  # over all items, `owner` zeros; scratch
) -> tuple[int, int, int]:
    """Return, over all baskets, the number of history items, of repeats, and the sum of their signals.

    The sum is in units of 1 / SIGNAL_UNITS; each user's part is rounded.
    """
    n_candidates, n_repeats, units = 0, 0, 0
    for u in range(user_baskets.size - 1):
        n_history, user, total = 0, np.int32(u), 0.0
        for b in range(user_baskets[u], user_baskets[u + 1]):
            basket = np.int32(b)
            n_candidates += n_history
            for row in range(baskets[b], baskets[b + 1]):
                signal = repeat_signal(counts, item[row], user, basket, log_decay)
                n_repeats += int(signal > ZERO)
                total += float(signal)
            for row in range(baskets[b], baskets[b + 1]):
                n_history = add_purchase(counts, n_history, item[row], user, basket, log_decay)
        units += int(total * SIGNAL_UNITS + 0.5)
    return n_candidates, n_repeats, units
