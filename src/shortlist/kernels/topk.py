"""Top-k selection: the best items of each row of scores, ties to the smaller item.

A row's best items are kept in a bounded min-heap. Its elements are 64-bit keys that pack the score and the
item, so that comparing two keys also breaks ties.
"""

import numpy as np

from shortlist.kernels.jit import inlined, ir_inlined, kernel
from shortlist.kernels.simd_blocks import score
from shortlist.kernels.sort import sort_ascending
from shortlist.types import Doubles, Floats, Ints, Longs, State

ZERO = np.float32(0)
SIGN = np.uint32(0x80000000)
ALL = np.uint32(0xFFFFFFFF)
S32 = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@inlined
def pack(score: np.float32, item: int) -> np.uint64:
    """Return a key that is larger for a larger score, then for a smaller item; undefined for NaN."""
    bits = np.float32(score + ZERO).view(np.uint32)  # adding zero makes -0.0 equal to 0.0
    ordered = np.uint32(~bits) if bits & SIGN else np.uint32(bits | SIGN)
    return (np.uint64(ordered) << S32) | np.uint64(ALL - np.uint32(item))


@inlined
def unpack_score(key: np.uint64) -> np.float32:
    """Return the score of a key."""
    bits = np.uint32(key >> S32)
    if bits & SIGN:
        return np.uint32(bits ^ SIGN).view(np.float32)
    return np.uint32(~bits).view(np.float32)


@inlined
def unpack_item(key: np.uint64) -> np.int32:
    """Return the item of a key."""
    return np.int32(ALL - np.uint32(key & LOW))


@ir_inlined
def _sift_down(keys: State, row: int, root: int) -> None:
    """Move the key at `root` of a row's heap down until no child is smaller."""
    size, key = keys.shape[1], keys[row, root]
    while True:
        child = 2 * root + 1
        if child >= size:
            break
        # a sum instead of a branch, which would be mispredicted half of the time
        child += child + 1 < size and keys[row, child + 1] < keys[row, child]
        if not keys[row, child] < key:
            break
        keys[row, root] = keys[row, child]
        root = child
    keys[row, root] = key


@ir_inlined
def push(keys: State, row: int, count: int, key: np.uint64) -> int:
    """Keep the key if it is among the row's best; return the new count (width + 1 once a key was dropped).

    The heap is addressed as (table, row), here and below: slicing a row costs more than the work on it.
    """
    size = keys.shape[1]
    if count < size:
        keys[row, count] = key
        if count + 1 == size:
            for root in range(size // 2 - 1, -1, -1):
                _sift_down(keys, row, root)
        return count + 1
    if size and key > keys[row, 0]:
        keys[row, 0] = key
        _sift_down(keys, row, 0)
    return int(size + 1)


@ir_inlined
def entry_score(keys: State, row: int, count: int, floor: np.float32) -> np.float32:
    """Return the score below which a key need not be pushed.

    It rises above `floor` only after a key was dropped, so that the count tells whether all hits fit.
    """
    if count <= keys.shape[1] or keys.shape[1] == 0:
        return floor
    return max(floor, unpack_score(keys[row, 0]))


@ir_inlined
def contains(indptr: Longs, items: Ints, row: int, item: int) -> bool:
    """Return whether a row of ascending items contains the item."""
    low, n = indptr[row], indptr[row + 1] - indptr[row]
    while n > 1:  # without a branch on the comparison, which would be mispredicted half of the time
        half = n >> 1
        low += half * (items[low + half - 1] < item)
        n -= half
    return bool(n == 1 and items[low] == item)


@kernel
def score_pairs(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or empty
    indptr: Longs,  # (n_users + 1,)
    items: Ints,  # (n_pairs,)
    scores: Floats,  # (n_pairs,) written
) -> None:
    """Score the items listed for each user."""
    left, right, n = vectors.ctypes.data, item_factors.ctypes.data, vectors.shape[1]
    for user in range(vectors.shape[0]):
        for at in range(indptr[user], indptr[user + 1]):
            offset = bias[items[at]] if bias.size else ZERO
            scores[at] = score(left + 4 * n * user, right + 4 * n * items[at], n, offset)


@kernel
def select_top(
    indptr: Longs,  # (n_rows + 1,) where each row's candidates start
    items: Ints,  # (n_candidates,), or (n_columns,) if all rows have the same candidates
    scores: Floats,  # (n_candidates,)
    floors: Floats,  # (n_rows,) only scores strictly above are selected; NaN selects nothing
    excluded_indptr: Longs,  # (n_rows + 1,)
    excluded: Ints,  # (n_excluded,) items never selected, ascending per row
    keys: State,  # (n_rows, width) written
    counts: Longs,  # (n_rows,) written; width + 1 if some hit did not fit
) -> None:
    """Select the best `width` candidates of each row, in no particular order; see `unpack_keys`."""
    shared = items.size != scores.size
    for row in range(indptr.size - 1):
        count, entry, floor = 0, floors[row], floors[row]
        shift = indptr[row] if shared else 0
        for at in range(indptr[row], indptr[row + 1]):
            value = scores[at]
            if value >= entry and value > floor:
                item = items[at - shift]
                if not contains(excluded_indptr, excluded, row, item):
                    count = push(keys, row, count, pack(value, item))
                    entry = entry_score(keys, row, count, floor)
        counts[row] = count


@kernel
def unpack_keys(
    keys: State,  # (n_rows, width) as written by a selecting kernel; sorted in place
    counts: Longs,  # (n_rows,) how many keys of each row are valid
    indptr: Longs,  # (n_rows + 1,) where each row's hits are written
    items: Ints,  # (n_hits,) written, best first per row
    scores: Floats,  # (n_hits,) written
) -> None:
    """Sort each row of keys and unpack as many of the best as `indptr` has room for."""
    for row in range(keys.shape[0]):
        ascending = keys[row, : counts[row]]
        sort_ascending(ascending)
        for at in range(indptr[row + 1] - indptr[row]):
            key = ascending[ascending.size - 1 - at]
            items[indptr[row] + at] = unpack_item(key)
            scores[indptr[row] + at] = unpack_score(key)


def top_k(indptr: Longs, items: Ints, scores: Floats, k: int) -> tuple[Longs, Ints, Floats]:
    """Return (indptr, items, scores) of each row's best k candidates, best first; NaN and -inf never qualify.

    `items` (n_columns,) may be shared by all rows, see `select_top`.
    """
    n_rows = indptr.size - 1
    keys, counts = np.empty((n_rows, k), np.uint64), np.zeros(n_rows, np.int64)
    indptr, items, scores = indptr.view(), items.view(), scores.view()
    floors, excluded_indptr = np.full(n_rows, -np.inf, np.float32), np.zeros(n_rows + 1, np.int64)
    excluded = np.empty(0, np.int32)
    for array in (indptr, items, scores, floors, excluded_indptr, excluded):
        array.flags.writeable = False  # as in retrieval, so that the kernel is compiled once
    select_top(indptr, items, scores, floors, excluded_indptr, excluded, keys, counts)
    np.minimum(counts, k, out=counts)
    found = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    best, values = np.empty(found[-1], np.int32), np.empty(found[-1], np.float32)
    unpack_keys(keys, counts, found, best, values)
    return found, best, values


@kernel
def _order_rows(indptr: Longs, items: Ints, scores: Floats, order: Longs) -> None:
    """Write each row's positions (n_candidates,) in the order of their keys, best first."""
    for row in range(indptr.size - 1):
        start, size = indptr[row], indptr[row + 1] - indptr[row]
        keys = np.empty(size, np.uint64)
        for at in range(size):
            keys[at] = pack(scores[start + at], items[start + at])
        ascending = np.argsort(keys)
        for at in range(size):
            order[start + at] = start + ascending[size - 1 - at]


def rank_rows(indptr: Longs, items: Ints, scores: Floats) -> Longs:
    """Return (n_candidates,) the positions of each row's candidates, best first; scores must not be NaN."""
    order = np.arange(items.size)
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    better = (scores[1:] > scores[:-1]) | ((scores[1:] == scores[:-1]) & (items[1:] < items[:-1]))
    if (better & (row[1:] == row[:-1])).any():
        _order_rows(indptr, items, scores, order)
    return order


@kernel
def lower_to_running_minimum(indptr: Longs, values: Doubles) -> None:
    """Replace each value (n_candidates,) by the smallest value of its row so far."""
    for row in range(indptr.size - 1):
        for at in range(indptr[row] + 1, indptr[row + 1]):
            values[at] = min(values[at], values[at - 1])
