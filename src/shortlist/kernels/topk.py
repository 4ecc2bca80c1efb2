"""The best of many scores: kept as one sortable word per hit, so that ties are never an accident."""

import numpy as np

from shortlist.kernels.jit import exact, inlined, kernel
from shortlist.kernels.lanes import LANES, lanes_dot
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


@inlined
def _sift(heap: State, root: int) -> None:
    """Let the word at `root` sink until no child is smaller."""
    word = heap[root]
    while True:
        child = 2 * root + 1
        if child >= heap.size:
            break
        if child + 1 < heap.size and heap[child + 1] < heap[child]:
            child += 1
        if not heap[child] < word:
            break
        heap[root] = heap[child]
        root = child
    heap[root] = word


@inlined
def offer(words: State, held: int, word: np.uint64) -> int:
    """Keep a word among the best `words.size`; how many are held now (size + 1 once any was lost)."""
    size = words.size
    if held < size:
        words[held] = word
        if held + 1 == size:
            for root in range(size // 2 - 1, -1, -1):
                _sift(words, root)
        return held + 1
    if size and word > words[0]:
        words[0] = word
        _sift(words, 0)
    return size + 1


@inlined
def floor_of(words: State, held: int, floor: np.float32) -> np.float32:
    """The score a newcomer must reach: the smallest held once the row is full, else the floor."""
    if held < words.size or words.size == 0:
        return floor
    return max(floor, score_of(words[0]))


@inlined
def contains(row: Ints, item: int) -> bool:
    """Is the item in an ascending row?"""
    low, high = 0, row.size
    while low < high:
        middle = (low + high) >> 1
        if row[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low < row.size and row[low] == item


@exact
def score(vectors: Floats, user: int, item_factors: Floats, bias: Floats, item: int) -> np.float32:
    """The one way any score is made; indices instead of rows, for a row costs more than its product."""
    width = vectors.shape[1]
    total = lanes_dot(vectors, user, item_factors, item)
    for f in range(width - width % LANES, width):
        total += vectors[user, f] * item_factors[item, f]
    return total + bias[item] if bias.size else total


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
    for user in range(vectors.shape[0]):
        for at in range(indptr[user], indptr[user + 1]):
            scores[at] = score(vectors, user, item_factors, bias, items[at])


@kernel
def grid_score(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or empty
    items: Ints,  # (n_columns,)
    scores: Floats,  # (n_users, n_columns) written
) -> None:
    """Score every user on the same items."""
    for user in range(vectors.shape[0]):
        for at in range(items.size):
            scores[user, at] = score(vectors, user, item_factors, bias, items[at])


@kernel
def rows_select(
    scores: Floats,  # (n_users, n_columns)
    items: Ints,  # (n_columns,) the item of each column
    floors: Floats,  # (n_users,) only scores strictly above are shown; NaN shows nothing
    barred_at: Longs,  # (n_users + 1,)
    barred: Ints,  # (n_barred,) items never shown, ascending per user
    words: State,  # (n_users, width) written
    held: Longs,  # (n_users,) written; width + 1 where some hit did not fit
) -> None:
    """The best `width` of each row of dense scores, in no order; see `words_unpack`."""
    for user in range(scores.shape[0]):
        row, own = scores[user], barred[barred_at[user] : barred_at[user + 1]]
        count, reach = 0, floors[user]
        for at in range(row.size):
            if row[at] > floors[user] and row[at] >= reach and not contains(own, items[at]):
                count = offer(words[user], count, pack(row[at], items[at]))
                reach = floor_of(words[user], count, floors[user])
        held[user] = count


@kernel
def ragged_select(
    indptr: Longs,  # (n_users + 1,)
    items: Ints,  # (n_pairs,)
    scores: Floats,  # (n_pairs,)
    floors: Floats,  # (n_users,)
    barred_at: Longs,  # (n_users + 1,)
    barred: Ints,  # (n_barred,) ascending per user
    words: State,  # (n_users, width) written
    held: Longs,  # (n_users,) written; width + 1 where some hit did not fit
) -> None:
    """The best `width` of each user's own scored items, in no order; see `words_unpack`."""
    for user in range(indptr.size - 1):
        own = barred[barred_at[user] : barred_at[user + 1]]
        count = 0
        for at in range(indptr[user], indptr[user + 1]):
            if scores[at] > floors[user] and not contains(own, items[at]):
                count = offer(words[user], count, pack(scores[at], items[at]))
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
