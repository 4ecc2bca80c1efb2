"""Adding new rows: what they have in common with the known rows of the same user, and decayed counts."""

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Ints, Longs

SAME_ROW, SAME_ITEM, SAME_BASKET = 1, 2, 4  # what a new row has in common with a known one


@kernel
def compare_rows(
    place: Longs,  # (n_new,) where the user's known rows are listed in `starts`, -1: nowhere
    item: Ints,  # (n_new,)
    time: Longs,  # (n_new,), or (0,) without times
    basket: Ints,  # (n_new,) basket numbers, or (0,) if rows with one time are one basket
    starts: Longs,  # (n + 1,)
    known_item: Ints,  # (n_known,)
    known_time: Longs,
    known_basket: Ints,
    common: npt.NDArray[np.uint8],  # (n_new,) the bits above are set
) -> None:
    """Mark new rows that are known, whose user has the item, or whose basket is known."""
    for row in range(place.size):
        if place[row] < 0:
            continue
        for known in range(starts[place[row]], starts[place[row] + 1]):
            same_basket = time.size == 0 or time[row] == known_time[known]
            same_basket = same_basket and (basket.size == 0 or basket[row] == known_basket[known])
            if same_basket:
                common[row] |= SAME_BASKET
            if item[row] == known_item[known]:
                common[row] |= SAME_ITEM
                if same_basket:
                    common[row] |= SAME_ROW


@kernel
def find_last_baskets(
    place: Longs,  # (n_new,)
    time: Longs,  # (n_new,)
    starts: Longs,  # (n + 1,)
    known_time: Longs,  # (n_known,)
    known_basket: Ints,  # (n_known,)
    basket: Ints,  # (n_new,) set to the largest basket number of the user at that time, if there is one
) -> None:
    """Find the known baskets that new rows continue: the last one of the user at the same time."""
    for row in range(place.size):
        if place[row] >= 0:
            for known in range(starts[place[row]], starts[place[row] + 1]):
                if known_time[known] == time[row]:
                    basket[row] = max(basket[row], known_basket[known])


@kernel
def add_decayed(
    item: Ints,  # (n_rows,)
    time: Longs,  # (n_rows,) ascending
    amount: Doubles,  # (n_rows,) what each row counts, or (0,) if all count 1
    half_life: float,
    count: Doubles,  # (n_items,) decayed up to the item's time in `last`
    last: Longs,  # (n_items,)
) -> bool:
    """Add rows to `count`.

    Return False, with some rows added, if a row is older than the last one of its item.
    """
    for row in range(item.size):
        i = item[row]
        if count[i] != 0:  # 0 is 0 at any time
            if time[row] < last[i]:
                return False
            count[i] *= 0.5 ** ((time[row] - last[i]) / half_life)
        count[i] += amount[row] if amount.size else 1.0
        last[i] = time[row]
    return True
