"""Selection from a matrix product: its scores are rounded in another order than ours, so they only preselect.

An item can qualify only if its product is not below the current entry score, lowered by the largest possible
difference between the two roundings. Such items are scored again by `simd_blocks.score`, so the result has
the same bits as that of `retrieve.retrieve_from_factors`. A NaN product excludes nothing.
"""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.kernels.retrieve import HUGE, TINY, Items, Query
from shortlist.kernels.simd_blocks import BLOCK, lowest_bit, score, sum_mask
from shortlist.kernels.topk import contains, entry_score, pack, push
from shortlist.types import Floats, Ints, Longs, State

ZERO, ONE = np.float32(0), np.uint64(1)


@kernel
def select_from_product(
    products: Floats,  # (n_users, a multiple of BLOCK) of some consecutive candidates; padded with any number
    offsets: Floats,  # (a multiple of BLOCK,) their biases or zeros
    columns: Ints,  # (n_columns,) their items
    items: Items,
    query: Query,
    largest: Floats,  # (n_users,) what no |score| exceeds, rounded up
    slack: np.float32,  # relative rounding error to allow for
    keys: State,  # (n_users, width) the best items so far, updated
    counts: Longs,  # (n_users,) number of hits so far, updated; width + 1 if some did not fit
) -> None:
    """Add the candidates of a part of the product to the best `width` items of each user above the floor."""
    factors, bias = items
    vectors, floors, excluded_at, excluded = query
    left, right, n = vectors.ctypes.data, factors.ctypes.data, vectors.shape[1]
    row_at, offset_at = products.ctypes.data, offsets.ctypes.data
    for user in range(floors.size):
        floor, count, most = floors[user], counts[user], largest[user]
        if not floor < np.inf:  # also true for NaN
            continue
        entry = entry_score(keys, user, count, floor)
        for first in range(0, products.shape[1], BLOCK):
            lowered = entry - slack * (abs(entry) + most) - TINY if most < HUGE else np.float32(-np.inf)
            place = row_at + 4 * (user * products.shape[1] + first)
            mask = sum_mask(place, offset_at + 4 * first, lowered)
            while mask:
                column = first + lowest_bit(mask)
                mask &= mask - ONE
                if column < columns.size:
                    item = columns[column]
                    offset = bias[item] if bias.size else ZERO
                    found = score(left + 4 * n * user, right + 4 * n * item, n, offset)
                    qualifies = found > floor and found >= entry
                    if qualifies and not contains(excluded_at, excluded, user, item):
                        count = push(keys, user, count, pack(found, item))
                        entry = entry_score(keys, user, count, floor)
        counts[user] = count
