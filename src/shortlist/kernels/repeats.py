"""What a user took before, basket by basket, and how strongly that speaks for an item."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Floats, Ints, Longs

ZERO, ONE = np.float32(0), np.float32(1)


class Trace(NamedTuple):
    """What the user at hand took before, of the items of this range; each user overwrites the last one's."""

    held: Ints  # (n_range_items,) one more than the user whom the next two are about
    faded: Floats  # (n_range_items,) baskets with the item, faded, as of the last one
    last: Ints  # (n_range_items,) the last one
    history: Ints  # (n_range_items,) the items, in the order of their first baskets


@inlined
def strength(
    trace: Trace, item: int | np.integer, user: np.int32, group: np.int32, fade: np.float32
) -> np.float32:
    """ln(1 + faded baskets with the item): how strongly the user's past speaks for it."""
    if trace.held[item] != user + 1:
        return ZERO
    age = np.float32(group - 1 - trace.last[item])
    return np.log(ONE + trace.faded[item] * np.exp(fade * age))  # type: ignore[no-any-return]


@inlined
def taken(
    trace: Trace, n_past: int, item: np.int32, user: np.int32, group: np.int32, fade: np.float32
) -> int:
    """Note that the basket `group` holds the item; how many items the trace has then."""
    if trace.held[item] == user + 1:
        trace.faded[item] = ONE + trace.faded[item] * np.exp(fade * np.float32(group - trace.last[item]))
    else:
        trace.held[item], trace.faded[item], trace.history[n_past] = user + 1, ONE, item
        n_past += 1
    trace.last[item] = group
    return n_past


@kernel
def past_strengths(
    groups: Ints,  # (n,) baskets
    wanted: Ints,  # (n,) items
    first: Longs,  # (n,) the first basket of each one's user
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    fade: np.float32,
    out: Floats,  # (n,)
) -> None:
    """`strength` of single items before single baskets, counted afresh."""
    for n in range(groups.size):
        count = ZERO
        for basket in range(first[n], groups[n]):
            for row in range(baskets[basket], baskets[basket + 1]):
                if item[row] == wanted[n]:
                    count += np.exp(fade * np.float32(groups[n] - 1 - basket))
        out[n] = np.log(ONE + count)


@kernel
def repeats_tally(
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    fade: np.float32,
    trace: Trace,  # over all items
) -> tuple[int, int, float]:
    """Past items before all baskets: how many, how many were taken again, and the strength of these."""
    chances, takes, total = 0, 0, 0.0
    for u in range(user_baskets.size - 1):
        n_past, user = 0, np.int32(u)
        for basket in range(user_baskets[u], user_baskets[u + 1]):
            group = np.int32(basket)
            chances += n_past
            for row in range(baskets[basket], baskets[basket + 1]):
                x = strength(trace, item[row], user, group, fade)
                takes += int(x > ZERO)
                total += float(x)
            for row in range(baskets[basket], baskets[basket + 1]):
                n_past = taken(trace, n_past, item[row], user, group, fade)
    return chances, takes, total
