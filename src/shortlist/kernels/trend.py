"""What sells these days: an item's faded sales against its usual ones, as they stood when a day began."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs

PRIOR = np.float32(3)  # sales that both sides get for nothing: one or two more than usual say little


class Sales(NamedTuple):
    """The selling days of item i: entries begin[i] … end[i] - 1, ascending; by item, all empty or none."""

    begin: Longs  # (n_items,)
    end: Longs  # (n_items,)
    day: Ints  # (n_entries,) since 1970
    faded: Floats  # (n_entries,) sales up to this day, those of the day itself counting in full
    sold: Floats  # (n_entries,) sales up to this day, all alike
    fade: np.float32  # logarithm of what a sale still counts one day later
    today: Ints  # (n_groups,) the day of each basket
    usual: Floats  # (n_groups,) faded sales of all items before that day, per sale


@kernel
def sales_fade(
    item: Ints,  # (n_entries,) ascending
    day: Ints,  # (n_entries,) ascending within an item
    count: Longs,  # (n_entries,) sales of the item on the day
    fade: float,
    faded: Doubles,  # (n_entries,) out
    sold: Doubles,  # (n_entries,) out
) -> None:
    """Every item's sales up to each of its days, faded by the days since and not."""
    recent, total = 0.0, 0.0
    for n in range(item.size):
        if n == 0 or item[n] != item[n - 1]:
            recent, total = 0.0, 0.0
        elif recent:
            recent *= np.exp(fade * (day[n] - day[n - 1]))
        recent, total = recent + count[n], total + count[n]
        faded[n], sold[n] = recent, total


@inlined
def trend_score(sales: Sales, item: int | np.integer, day: np.int32, usual: np.float32) -> np.float32:
    """ln of recent sales over those that the item's share of all sales leads to expect, before the day."""
    first, low, high = sales.begin[item], sales.begin[item], sales.end[item]
    while low < high:  # the first entry that is not before the day
        middle = (low + high) // 2
        if sales.day[middle] < day:
            low = middle + 1
        else:
            high = middle
    if low == first:
        return np.float32(0)
    age = np.float32(day - 1 - sales.day[low - 1])
    recent = sales.faded[low - 1] * np.exp(sales.fade * age)
    return np.log((recent + PRIOR) / (sales.sold[low - 1] * usual + PRIOR))  # type: ignore[no-any-return]


@kernel
def trend_scores(
    sales: Sales,
    items: Ints,  # (n,)
    days: Ints,  # (n,)
    usual: Floats,  # (n,)
    out: Floats,  # (n,)
) -> None:
    """`trend_score` of single items on single days."""
    for n in range(items.size):
        out[n] = trend_score(sales, items[n], days[n], usual[n])
