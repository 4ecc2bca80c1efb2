"""Trend signal: recent sales of an item relative to its long-term share, known at the start of a day."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs

PRIOR = np.float32(3)  # pseudo-sales added to both sides, so that one or two extra sales change little


class Sales(NamedTuple):
    """The sales days of each item: entries begin[i] … end[i] - 1, ascending. Empty arrays if not used."""

    begin: Longs  # (n_items,)
    end: Longs  # (n_items,)
    day: Ints  # (n_entries,) since 1970
    decayed: Floats  # (n_entries,) sales up to and including this day, decayed by the days since
    total: Floats  # (n_entries,) sales up to and including this day, not decayed
    log_decay: np.float32  # logarithm of the weight of a sale one day later
    group_day: Ints  # (n_groups,) the day of each basket
    recent_share: Floats  # (n_groups,) decayed sales divided by all sales, over all items before that day


@kernel
def decay_sales(
    item: Ints,  # (n_entries,) ascending
    day: Ints,  # (n_entries,) ascending within an item
    count: Longs,  # (n_entries,) sales of the item on the day
    log_decay: float,
    decayed: Doubles,  # (n_entries,) written
    total: Doubles,  # (n_entries,) written
) -> None:
    """Accumulate each item's sales up to each of its days, with and without decay."""
    recent, whole = 0.0, 0.0
    for n in range(item.size):
        if n == 0 or item[n] != item[n - 1]:
            recent, whole = 0.0, 0.0
        elif recent:
            recent *= np.exp(log_decay * (day[n] - day[n - 1]))
        recent, whole = recent + count[n], whole + count[n]
        decayed[n], total[n] = recent, whole


@inlined
def trend_score(sales: Sales, item: int | np.integer, day: np.int32, recent_share: np.float32) -> np.float32:
    """Return ln(recent sales / recent sales expected from all sales) of an item before the day."""
    first, low, high = sales.begin[item], sales.begin[item], sales.end[item]
    while low < high:  # binary search for the first entry that is not before the day
        middle = (low + high) // 2
        if sales.day[middle] < day:
            low = middle + 1
        else:
            high = middle
    if low == first:
        return np.float32(0)
    age = np.float32(day - 1 - sales.day[low - 1])
    recent = sales.decayed[low - 1] * np.exp(sales.log_decay * age)
    expected = sales.total[low - 1] * recent_share
    return np.log((recent + PRIOR) / (expected + PRIOR))  # type: ignore[no-any-return]


@kernel
def trend_scores(
    sales: Sales,
    items: Ints,  # (n,)
    days: Ints,  # (n,)
    recent_share: Floats,  # (n,)
    out: Floats,  # (n,) written
) -> None:
    """Compute `trend_score` of single items on single days."""
    for n in range(items.size):
        out[n] = trend_score(sales, items[n], days[n], recent_share[n])
