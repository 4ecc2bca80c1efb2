"""Exact retrieval from factors: the best items, or all items above a floor, without scoring most of them.

Users and items are rotated so that the first dimensions carry most of every inner product. After some
dimensions, the Cauchy-Schwarz inequality bounds the rest by the product of the remaining lengths. A block of
items proceeds to more dimensions only while many of its items could still qualify. The first dimensions are
summed for a group of users at a time, which makes full use of the processor where little can be skipped.
Items that could qualify are scored by `score`, so the result does not depend on which items were skipped. A
NaN bound never skips an item.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import exact, inlined, ir_inlined, kernel
from shortlist.kernels.rows import order_ascending, sort_ascending, starts
from shortlist.kernels.simd import BLOCK, GROUP, add_block, add_block_group
from shortlist.types import Doubles, Floats, Ints, Longs, State

ZERO = np.float32(0)
U1, U2, U3, U4, U5, U6, U7, PARTS = (np.uint64(number) for number in range(1, 9))
SIGN = np.uint32(0x80000000)
ALL = np.uint32(0xFFFFFFFF)
S32 = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@inlined
def pack_key(score: np.float32, item: int) -> np.uint64:
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


@exact
def score(vectors: Floats, user: int, factors: Floats, item: int, offset: np.float32) -> np.float32:
    """Return offset + the inner product of a user and an item, summed in eight parts.

    All retrieval scores are computed here, so they agree bit for bit.
    """
    p, q, n = vectors[user], factors[item], np.uint64(vectors.shape[1])
    a = b = c = d = e = f = g = h = ZERO
    for part in range(n // PARTS):
        k = part * PARTS  # unsigned: no check for negative indices
        a += p[k] * q[k]
        b += p[k + U1] * q[k + U1]
        c += p[k + U2] * q[k + U2]
        d += p[k + U3] * q[k + U3]
        e += p[k + U4] * q[k + U4]
        f += p[k + U5] * q[k + U5]
        g += p[k + U6] * q[k + U6]
        h += p[k + U7] * q[k + U7]
    total = ((a + e) + (c + g)) + ((b + f) + (d + h))
    for last in range(n - n % PARTS, n):
        total += p[last] * q[last]
    return np.float32(total + offset)


@kernel
def score_pairs(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats,  # (n_items,) or empty
    indptr: Longs,  # (n_users + 1,)
    items: Ints,  # (n_pairs,), or (n_columns,) if all users have the same items
    scores: Floats,  # (n_pairs,) written
) -> None:
    """Score the items listed for each user."""
    shared = items.size != scores.size
    for user in range(vectors.shape[0]):
        shift = indptr[user] if shared else 0
        for at in range(indptr[user], indptr[user + 1]):
            item = items[at - shift]
            offset = bias[item] if bias.size else ZERO
            scores[at] = score(vectors, user, item_factors, item, offset)


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
                    count = push(keys, row, count, pack_key(value, item))
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
    best_at = starts(counts)
    best, values = np.empty(best_at[-1], np.int32), np.empty(best_at[-1], np.float32)
    unpack_keys(keys, counts, best_at, best, values)
    return best_at, best, values


@kernel
def _order_rows(indptr: Longs, items: Ints, scores: Floats, order: Longs) -> None:
    """Write each row's positions (n_candidates,) in the order of their keys, best first."""
    for row in range(indptr.size - 1):
        start, size = indptr[row], indptr[row + 1] - indptr[row]
        keys, ascending = np.empty(size, np.uint64), np.empty(size, np.int64)
        for at in range(size):
            keys[at] = pack_key(scores[start + at], items[start + at])
        order_ascending(keys, ascending)
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


TILE = 21 * GROUP  # users that process a block while it is in the first-level cache
FEW = 6  # with so few items left in a block, scoring them is cheaper than bounding them again
ROUND_UP, MIN_LENGTH = 1.000001, 1e-38  # lengths are rounded up and stay above what rounding could lose
TINY = np.float32(1e-37)  # larger than any underflow
HUGE = np.float32(1e37)  # above it sums may overflow, so bounds are not used


class ItemFactors(NamedTuple):
    """The parameters that score items."""

    factors: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or empty


class ItemBlocks(NamedTuple):
    """Items in blocks, longest vectors first; padding has item -1 and bias -inf."""

    coordinates: Floats  # (n_blocks * n_dims * BLOCK,) rotated factors, dimension by dimension
    residuals: Floats  # (n_blocks * n_stages * BLOCK,) length that remains after each stage, rounded up
    bias: Floats  # (n_blocks * BLOCK,)
    item: Ints  # (n_blocks * BLOCK,)
    peaks: Floats  # (n_blocks, 3) longest vector, largest bias, largest |bias| of each block
    ahead: Floats  # (n_blocks, 3) the same over this block and all blocks after it
    stages: Longs  # (n_stages,) dimensions known after each stage
    rotation: Doubles  # (n_factors, n_dims)


class Query(NamedTuple):
    """Users and the items excluded for them."""

    vectors: Floats  # (n_users, n_factors)
    floors: Floats  # (n_users,) only scores strictly above qualify; NaN selects nothing
    excluded_at: Longs  # (n_users + 1,)
    excluded: Ints  # (n_excluded,) items never returned, ascending per user


class Tile(NamedTuple):
    """A few users that are processed together, block by block."""

    coordinates: Floats  # (TILE * n_dims,) rotated users
    residuals: Floats  # (TILE * n_stages,) length that remains after each stage, rounded up
    lengths: Floats  # (TILE,)
    floors: Floats  # (TILE,) the score an item must currently reach
    lowered: Floats  # (TILE,) the same minus rounding errors, so what a bound must reach
    active: Ints  # (TILE,) users for which later blocks may still hold a hit
    waiting: Ints  # (TILE + GROUP,) those for which the current block may
    found_rows: Ints  # (TILE * BLOCK,) the users and
    found_items: Ints  # (TILE * BLOCK,) items of the current block that may be hits


class BlockAddresses(NamedTuple):
    """Addresses of one block of items: without arrays there is no reference counting."""

    coordinates: int
    bias: int
    first_stage: int  # dimensions of the first stage; each stage doubles them
    n_dims: int
    n_stages: int


@inlined
def _new_tile(blocks: ItemBlocks) -> Tile:
    return Tile(
        np.empty(TILE * blocks.rotation.shape[1], np.float32),
        np.empty(TILE * blocks.stages.size, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.int32),
        np.empty(TILE + GROUP, np.int32),
        np.empty(TILE * BLOCK, np.int32),
        np.empty(TILE * BLOCK, np.int32),
    )


@inlined
def _length(squares: float) -> np.float32:
    """Return a length from its square, rounded up; infinite beyond HUGE."""
    length = np.sqrt(squares) * ROUND_UP + MIN_LENGTH
    return np.float32(length) if length < HUGE else np.float32(np.inf)


@inlined
def _rotate(vectors: Floats, row: int, rotation: Doubles, rotated: Doubles) -> None:
    """Rotate one row in double precision."""
    rotated[:] = 0.0
    for f in range(rotation.shape[0]):
        p = np.float64(vectors[row, f])
        for d in range(rotated.size):
            rotated[d] += p * rotation[f, d]


@kernel
def fill_blocks(
    item_factors: Floats,  # (n_items, n_factors)
    order: Ints,  # (n_indexed,) the items to index, longest first
    blocks: ItemBlocks,  # coordinates and residuals are written, item and bias are read
    lengths: Floats,  # (n_indexed,) written
) -> None:
    """Write the rotated items into their blocks."""
    rotated = np.empty(blocks.rotation.shape[1], np.float64)
    n_stages = blocks.stages.size
    for place in range(order.size):
        block, j = place // BLOCK, place % BLOCK
        _rotate(item_factors, order[place], blocks.rotation, rotated)
        left, stage = 0.0, n_stages - 1
        for d in range(rotated.size - 1, -1, -1):
            blocks.coordinates[(block * rotated.size + d) * BLOCK + j] = np.float32(rotated[d])
            left += rotated[d] * rotated[d]
            if stage > 0 and d == blocks.stages[stage - 1]:
                stage -= 1
                blocks.residuals[(block * n_stages + stage) * BLOCK + j] = _length(left)
        lengths[place] = _length(left)


@inlined
def _lower(floor: np.float32, length: np.float32, ahead: Floats, slack: np.float32) -> np.float32:
    """Return the floor minus the largest rounding error between a bound and a score of any item."""
    most = length * ahead[0, 0] + ahead[0, 2]
    return floor - slack * (abs(floor) + most) - TINY if most < HUGE else np.float32(-np.inf)


@inlined
def _load_users(query: Query, blocks: ItemBlocks, start: int, slack: np.float32, tile: Tile) -> int:
    """Rotate the users of a tile and store their remaining lengths; return how many users are active."""
    stages, n_active = blocks.stages, 0
    rotated = np.empty(blocks.rotation.shape[1], np.float64)
    for row in range(min(TILE, query.floors.size - start)):
        if not query.floors[start + row] < np.inf:  # also true for NaN
            continue
        _rotate(query.vectors, start + row, blocks.rotation, rotated)
        left, stage = 0.0, stages.size - 1
        tile.residuals[row * stages.size + stage] = ZERO
        for d in range(rotated.size - 1, -1, -1):
            tile.coordinates[row * rotated.size + d] = np.float32(rotated[d])
            left += rotated[d] * rotated[d]
            if stage > 0 and d == stages[stage - 1]:
                stage -= 1
                tile.residuals[row * stages.size + stage] = _length(left)
        tile.lengths[row] = _length(left)
        tile.floors[row] = query.floors[start + row]
        tile.lowered[row] = _lower(tile.floors[row], tile.lengths[row], blocks.ahead, slack)
        tile.active[n_active] = row
        n_active += 1
    return n_active


@inlined
def _find_waiting(tile: Tile, n_active: int, peaks: Floats, ahead: Floats, block: int) -> tuple[int, int]:
    """Collect the users for which a block may hold a hit; return their number and how many stay active."""
    lengths, lowered, active, waiting = tile.lengths, tile.lowered, tile.active, tile.waiting
    longest, shift, longest_ahead, shift_ahead = (
        peaks[block, 0],
        peaks[block, 1],
        ahead[block, 0],
        ahead[block, 1],
    )
    n_waiting, n_kept = 0, 0
    for at in range(n_active):
        row = active[at]
        if lengths[row] * longest + shift < lowered[row]:
            if lengths[row] * longest_ahead + shift_ahead < lowered[row]:
                continue  # drop the user: later blocks have smaller bounds and floors never fall
        else:
            waiting[n_waiting] = row
            n_waiting += 1
        active[n_kept] = row
        n_kept += 1
    return n_waiting, n_kept


@inlined
def _block_at(blocks: ItemBlocks, number: int) -> BlockAddresses:
    """Return the addresses of a block."""
    stages = blocks.stages
    first_stage, n_dims, n_stages, size = stages[0], stages[stages.size - 1], stages.size, 4 * BLOCK
    return BlockAddresses(
        blocks.coordinates.ctypes.data + number * size * n_dims,
        blocks.bias.ctypes.data + number * size,
        first_stage,
        n_dims,
        n_stages,
    )


@inlined
def _count_survivors(
    sums: Floats,  # (GROUP * BLOCK,)
    at: int,  # of the user's sums
    tails: Floats,  # (n_blocks * n_stages * BLOCK,) lengths that remain of items
    tails_at: int,
    length: np.float32,  # that remains of the user
    lowered: np.float32,
) -> np.int32:
    """Count the items of a block whose sum plus bound reaches a score; a NaN bound excludes nothing."""
    n = np.int32(0)
    for j in range(BLOCK):
        n += np.int32(not sums[at + j] + length * tails[tails_at + j] < lowered)
    return n


@inlined
def _find_survivors(
    blocks: ItemBlocks,
    number: int,  # of the block
    tile: Tile,
    n_waiting: int,
    sums: Floats,  # (GROUP * BLOCK,) scratch
) -> int:
    """Write the pairs of a user and an item of a block that could qualify; return their number."""
    block, block_items, tails = _block_at(blocks, number), blocks.item, blocks.residuals
    lowered, waiting, found_rows, found_items = tile.lowered, tile.waiting, tile.found_rows, tile.found_items
    lengths = tile.residuals
    users, rows, places = tile.coordinates.ctypes.data, waiting.ctypes.data, sums.ctypes.data
    n_dims, n_stages, n_found = block.n_dims, block.n_stages, 0
    for first in range(0, n_waiting, GROUP):
        is_alone = n_waiting - first < GROUP // 2  # then the work for a whole group would be wasted
        if not is_alone:
            for extra in range(n_waiting, first + GROUP):
                waiting[extra] = waiting[first]
            n = block.first_stage
            add_block_group(block.coordinates, users, rows + 4 * first, n_dims, n, block.bias, places)
        for at in range(first, min(first + GROUP, n_waiting)):
            row, place, low, high = waiting[at], (at - first) * BLOCK, 0, block.first_stage
            tails_at, length, n_survivors = 0, ZERO, np.int32(0)
            for stage in range(n_stages):
                if stage > 0 or is_alone:
                    start = places + 4 * place if stage > 0 else block.bias
                    items_at, user = block.coordinates + 4 * low * BLOCK, users + 4 * low
                    add_block(items_at, user, rows + 4 * at, n_dims, high - low, start, places + 4 * place)
                tails_at, length = (number * n_stages + stage) * BLOCK, lengths[row * n_stages + stage]
                n_survivors = _count_survivors(sums, place, tails, tails_at, length, lowered[row])
                if n_survivors <= FEW:
                    break
                low, high = high, 2 * high if stage + 2 < n_stages else n_dims
            for j in range(BLOCK if n_survivors else 0):
                item, bound = block_items[number * BLOCK + j], sums[place + j] + length * tails[tails_at + j]
                if item >= 0 and not bound < lowered[row]:
                    found_rows[n_found], found_items[n_found] = row, item
                    n_found += 1
    return n_found


@kernel
def retrieve_from_factors(
    items: ItemFactors,
    blocks: ItemBlocks,
    query: Query,
    slack: np.float32,  # relative rounding error to allow for
    keys: State,  # (n_users, width) written
    counts: Longs,  # (n_users,) zeros; number of hits, width + 1 if some did not fit
) -> None:
    """Select the best `width` items above each user's floor, in any order; see `topk.unpack_keys`."""
    # unpacked once: reference counting inside the loops would cost more than the arithmetic
    factors, bias = items
    vectors, query_floors, excluded_at, excluded = query
    peaks, ahead = blocks.peaks, blocks.ahead
    tile, sums = _new_tile(blocks), np.empty(GROUP * BLOCK, np.float32)
    lengths, floors, lowered = tile.lengths, tile.floors, tile.lowered
    found_rows, found_items = tile.found_rows, tile.found_items
    for start in range(0, query_floors.size if peaks.size else 0, TILE):
        n_active = _load_users(query, blocks, start, slack, tile)
        for number in range(peaks.shape[0]):
            n_waiting, n_active = _find_waiting(tile, n_active, peaks, ahead, number)
            if n_active == 0:
                break
            for at in range(_find_survivors(blocks, number, tile, n_waiting, sums)):
                row, item = found_rows[at], found_items[at]
                user, offset = start + row, bias[item] if bias.size else ZERO
                value = score(vectors, user, factors, item, offset)
                qualifies = value > query_floors[user] and value >= floors[row]
                if qualifies and not contains(excluded_at, excluded, user, item):
                    counts[user] = push(keys, user, counts[user], pack_key(value, item))
                    floors[row] = entry_score(keys, user, counts[user], query_floors[user])
                    lowered[row] = _lower(floors[row], lengths[row], ahead, slack)
