"""The best of many scores: kept as one sortable word per hit, so that ties are never an accident."""

import numpy as np

from shortlist.kernels.jit import folded, inlined, kernel
from shortlist.kernels.simd_blocks import score
from shortlist.types import Floats, Ints, Longs, State

ZERO = np.float32(0)
SIGN = np.uint32(0x80000000)
ALL = np.uint32(0xFFFFFFFF)
S32 = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@inlined
def pack(score: np.float32, item: int) -> np.uint64:
    """A word that is larger for a larger score and, among equal scores, for a smaller item; NaN has none."""
    bits = np.float32(score + ZERO).view(np.uint32)  # adding zero makes -0.0 equal to 0.0
    ordered = np.uint32(~bits) if bits & SIGN else np.uint32(bits | SIGN)
    return (np.uint64(ordered) << S32) | np.uint64(ALL - np.uint32(item))


@inlined
def score_of(word: np.uint64) -> np.float32:
    """The score inside a word."""
    bits = np.uint32(word >> S32)
    if bits & SIGN:
        return np.uint32(bits ^ SIGN).view(np.float32)
    return np.uint32(~bits).view(np.float32)


@inlined
def item_of(word: np.uint64) -> np.int32:
    """The item inside a word."""
    return np.int32(ALL - np.uint32(word & LOW))


@folded
def _sift(words: State, user: int, root: int) -> None:
    """Let the word at `root` of the user's heap sink until no child is smaller."""
    size, word = words.shape[1], words[user, root]
    while True:
        child = 2 * root + 1
        if child >= size:
            break
        if child + 1 < size and words[user, child + 1] < words[user, child]:
            child += 1
        if not words[user, child] < word:
            break
        words[user, root] = words[user, child]
        root = child
    words[user, root] = word


@folded
def offer(words: State, user: int, count: int, word: np.uint64) -> int:
    """Keep a word among the user's best; how many are held now (width + 1 once any was lost).

    Whole arrays and an index, here and below: cutting out a row costs more than what is done to it.
    """
    size = words.shape[1]
    if count < size:
        words[user, count] = word
        if count + 1 == size:
            for root in range(size // 2 - 1, -1, -1):
                _sift(words, user, root)
        return count + 1
    if size and word > words[user, 0]:
        words[user, 0] = word
        _sift(words, user, 0)
    return int(size + 1)


@folded
def floor_of(words: State, user: int, count: int, floor: np.float32) -> np.float32:
    """The score a newcomer must reach: the smallest held once the row is full, else the floor."""
    if count < words.shape[1] or words.shape[1] == 0:
        return floor
    return max(floor, score_of(words[user, 0]))


@folded
def contains(indptr: Longs, items: Ints, user: int, item: int) -> bool:
    """Is the item in the user's ascending row?"""
    low, high = indptr[user], indptr[user + 1]
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return bool(low < indptr[user + 1] and items[low] == item)


@kernel
def pairs_score(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or empty
    indptr: Longs,  # (n_users + 1,)
    items: Ints,  # (n_pairs,)
    scores: Floats,  # (n_pairs,) written
) -> None:
    """Score each user's own items."""
    left, right, n = vectors.ctypes.data, item_factors.ctypes.data, vectors.shape[1]
    for user in range(vectors.shape[0]):
        for at in range(indptr[user], indptr[user + 1]):
            offset = bias[items[at]] if bias.size else ZERO
            scores[at] = score(left + 4 * n * user, right + 4 * n * items[at], n, offset)


@kernel
def grid_score(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or empty
    items: Ints,  # (n_columns,)
    scores: Floats,  # (n_users, n_columns) written
) -> None:
    """Score every user on the same items."""
    left, right, n = vectors.ctypes.data, item_factors.ctypes.data, vectors.shape[1]
    for user in range(vectors.shape[0]):
        for at in range(items.size):
            offset = bias[items[at]] if bias.size else ZERO
            scores[user, at] = score(left + 4 * n * user, right + 4 * n * items[at], n, offset)


@kernel
def rows_select(
    scores: Floats,  # (n_users, n_columns)
    items: Ints,  # (n_columns,) the item of each column
    floors: Floats,  # (n_users,) only scores strictly above are shown; NaN shows nothing
    excluded_at: Longs,  # (n_users + 1,)
    excluded: Ints,  # (n_barred,) items never shown, ascending per user
    words: State,  # (n_users, width) written
    held: Longs,  # (n_users,) written; width + 1 where some hit did not fit
) -> None:
    """The best `width` of each row of dense scores, in no order; see `words_unpack`."""
    for user in range(scores.shape[0]):
        count, reach, floor = 0, floors[user], floors[user]
        for at in range(items.size):
            found = scores[user, at]
            if found > floor and found >= reach and not contains(excluded_at, excluded, user, items[at]):
                count = offer(words, user, count, pack(found, items[at]))
                reach = floor_of(words, user, count, floor)
        held[user] = count


@kernel
def ragged_select(
    indptr: Longs,  # (n_users + 1,)
    items: Ints,  # (n_pairs,)
    scores: Floats,  # (n_pairs,)
    floors: Floats,  # (n_users,)
    excluded_at: Longs,  # (n_users + 1,)
    excluded: Ints,  # (n_barred,) ascending per user
    words: State,  # (n_users, width) written
    held: Longs,  # (n_users,) written; width + 1 where some hit did not fit
) -> None:
    """The best `width` of each user's own scored items, in no order; see `words_unpack`."""
    for user in range(indptr.size - 1):
        count = 0
        for at in range(indptr[user], indptr[user + 1]):
            if scores[at] > floors[user] and not contains(excluded_at, excluded, user, items[at]):
                count = offer(words, user, count, pack(scores[at], items[at]))
        held[user] = count


@kernel
def words_unpack(
    words: State,  # (n_users, width) as filled by a selecting kernel
    held: Longs,  # (n_users,) how many words of each row count
    indptr: Longs,  # (n_users + 1,) how many of them are wanted
    items: Ints,  # (n_hits,) written, best first per user
    scores: Floats,  # (n_hits,) written
) -> None:
    """Sort each row of words and take the best apart."""
    for user in range(words.shape[0]):
        row = np.sort(words[user, : held[user]])
        for at in range(indptr[user + 1] - indptr[user]):
            word = row[row.size - 1 - at]
            items[indptr[user] + at] = item_of(word)
            scores[indptr[user] + at] = score_of(word)
