"""Exact retrieval from factors: the best items, or all above a boundary, without scoring most of them.

Both sides are rotated so that the first dimensions carry most of every product. After some dimensions the
rest is bounded by the product of the remaining lengths (Cauchy–Schwarz); a block of items goes on to more
dimensions only while many of its items could still be shown. What could be shown is scored afresh by
`lanes.score`, so the path taken leaves no trace in the result. A NaN bound keeps its item in play.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import folded, inlined, kernel
from shortlist.kernels.simd_blocks import BLOCK, bits_count, block_add, lowest_bit, reach_mask, score
from shortlist.kernels.topk import contains, floor_of, offer, pack
from shortlist.types import Doubles, Floats, Ints, Longs, State

TILE = 32  # users that share a block while it is in the nearest cache
FEW = 6  # survivors of a block that are cheaper to score than to bound again
ZERO, EMPTY, ONE = np.float32(0), np.uint64(0), np.uint64(1)
UP, LEAST = 1.000001, 1e-38  # lengths are rounded up, and never so small that rounding them loses a product
TINY = np.float32(1e-37)  # more than underflow can hide
HUGE = np.float32(1e37)  # beyond it sums may overflow, and a bound says nothing


class Items(NamedTuple):
    """What items are scored by."""

    factors: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or empty


class ItemBlocks(NamedTuple):
    """Items in blocks, longest first; padding has item -1 and bias -inf."""

    heads: Floats  # (n_blocks * n_dims * BLOCK,) rotated factors, dimension after dimension
    tails: Floats  # (n_blocks * n_stages * BLOCK,) length left after each stage, rounded up
    bias: Floats  # (n_blocks * BLOCK,)
    item: Ints  # (n_blocks * BLOCK,)
    peaks: Floats  # (n_blocks, 3) longest vector, largest bias, largest |bias| of each block
    ahead: Floats  # (n_blocks, 3) the same over this block and all after it
    stages: Longs  # (n_stages,) dimensions known after each stage
    rotation: Doubles  # (n_factors, n_dims)


class Query(NamedTuple):
    """Who asks, and what they must not be shown."""

    vectors: Floats  # (n_users, n_factors)
    floors: Floats  # (n_users,) only scores strictly above are shown; NaN shows nothing
    excluded_at: Longs  # (n_users + 1,)
    excluded: Ints  # (n_barred,) items never shown, ascending per user


class Tile(NamedTuple):
    """A few users who walk through the blocks together."""

    heads: Floats  # (TILE * n_dims,) rotated users
    tails: Floats  # (TILE * n_stages,) length left after each stage, rounded up
    lengths: Floats  # (TILE,)
    floors: Floats  # (TILE,) what a score must reach at the moment
    live: Ints  # (TILE,) users that may still find something


@inlined
def _tile(blocks: ItemBlocks) -> Tile:
    return Tile(
        np.empty(TILE * blocks.rotation.shape[1], np.float32),
        np.empty(TILE * blocks.stages.size, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.int32),
    )


@inlined
def _length(squares: float) -> np.float32:
    """A length from its square, rounded up; infinite beyond HUGE."""
    length = np.sqrt(squares) * UP + LEAST
    return np.float32(length) if length < HUGE else np.float32(np.inf)


@inlined
def _turn(vectors: Floats, row: int, rotation: Doubles, turned: Doubles) -> None:
    """Rotate one row, in double."""
    turned[:] = 0.0
    for f in range(rotation.shape[0]):
        p = np.float64(vectors[row, f])
        for d in range(turned.size):
            turned[d] += p * rotation[f, d]


@kernel
def blocks_fill(
    item_factors: Floats,  # (n_items, n_factors)
    order: Ints,  # (n_indexed,) which items, longest first
    blocks: ItemBlocks,  # heads and tails written, item and bias read
    lengths: Floats,  # (n_indexed,) written
) -> None:
    """Rotate the items into their blocks."""
    turned = np.empty(blocks.rotation.shape[1], np.float64)
    n_stages = blocks.stages.size
    for place in range(order.size):
        block, j = place // BLOCK, place % BLOCK
        _turn(item_factors, order[place], blocks.rotation, turned)
        left, stage = 0.0, n_stages - 1
        for d in range(turned.size - 1, -1, -1):
            blocks.heads[(block * turned.size + d) * BLOCK + j] = np.float32(turned[d])
            left += turned[d] * turned[d]
            if stage > 0 and d == blocks.stages[stage - 1]:
                stage -= 1
                blocks.tails[(block * n_stages + stage) * BLOCK + j] = _length(left)
        lengths[place] = _length(left)


@inlined
def _seat(query: Query, blocks: ItemBlocks, start: int, tile: Tile) -> int:
    """Rotate the users of a tile, note what is left of each after each stage; how many may find anything."""
    stages, n_live = blocks.stages, 0
    turned = np.empty(blocks.rotation.shape[1], np.float64)
    for row in range(min(TILE, query.floors.size - start)):
        if not query.floors[start + row] < np.inf:  # nor NaN
            continue
        _turn(query.vectors, start + row, blocks.rotation, turned)
        left, stage = 0.0, stages.size - 1
        tile.tails[row * stages.size + stage] = ZERO
        for d in range(turned.size - 1, -1, -1):
            tile.heads[row * turned.size + d] = np.float32(turned[d])
            left += turned[d] * turned[d]
            if stage > 0 and d == stages[stage - 1]:
                stage -= 1
                tile.tails[row * stages.size + stage] = _length(left)
        tile.lengths[row] = _length(left)
        tile.floors[row] = query.floors[start + row]
        tile.live[n_live] = row
        n_live += 1
    return n_live


@inlined
def _cut(floor: np.float32, length: np.float32, peaks: Floats, block: int, slack: np.float32) -> np.float32:
    """The floor, lowered by all that rounding can do between a bound and a score."""
    most = length * peaks[block, 0] + peaks[block, 2]
    return floor - slack * (abs(floor) + most) - TINY if most < HUGE else np.float32(-np.inf)


@inlined
def _out_of_reach(
    floor: np.float32, length: np.float32, peaks: Floats, block: int, slack: np.float32
) -> bool:
    """Can nothing reach the floor that is no longer than the peak?"""
    return bool(length * peaks[block, 0] + peaks[block, 1] < _cut(floor, length, peaks, block, slack))


@folded
def _survivors(
    block: int,
    bias: Floats,
    item_heads: Floats,
    item_tails: Floats,
    stages: Longs,
    row: int,
    heads: Floats,
    tails: Floats,
    cut: np.float32,
    sums: Floats,
) -> np.uint64:
    """Which items of a block could be shown: known exactly for some dimensions, bounded for the rest."""
    n_stages, n_dims, low = stages.size, stages[stages.size - 1], 0
    for j in range(BLOCK):
        sums[j] = bias[block * BLOCK + j]
    mask = EMPTY
    for stage in range(n_stages):
        high = stages[stage]
        block_add(item_heads, (block * n_dims + low) * BLOCK, heads, row * n_dims + low, high - low, sums)
        mask = reach_mask(
            sums, item_tails, (block * n_stages + stage) * BLOCK, tails[row * n_stages + stage], cut
        )
        if bits_count(mask) <= FEW:
            break
        low = high
    return mask


@kernel
def factors_retrieve(
    items: Items,
    blocks: ItemBlocks,
    query: Query,
    slack: np.float32,  # rounding allowed for, relative to the lengths
    words: State,  # (n_users, width) written
    held: Longs,  # (n_users,) zeros; hits held, width + 1 where some did not fit
) -> None:
    """The best `width` items above each user's floor, in no order; see `topk.words_unpack`."""
    # out of their tuples once: counting references inside the loops would cost more than the arithmetic
    factors, bias = items
    item_heads, item_tails, block_bias, block_item, peaks, ahead, stages, _ = blocks
    vectors, wanted, excluded_at, excluded = query
    tile, sums = _tile(blocks), np.empty(BLOCK, np.float32)
    heads, tails, lengths, floors, live = tile
    left, right, n = vectors.ctypes.data, factors.ctypes.data, vectors.shape[1]
    for start in range(0, wanted.size, TILE):
        n_live = _seat(query, blocks, start, tile)
        for block in range(peaks.shape[0]):
            n_left = 0
            for at in range(n_live):
                row = live[at]
                user, floor, length = start + row, floors[row], lengths[row]
                if _out_of_reach(floor, length, ahead, block, slack):
                    continue  # for good: blocks to come reach no higher, and floors only rise
                live[n_left] = row
                n_left += 1
                if _out_of_reach(floor, length, peaks, block, slack):
                    continue
                cut = _cut(floor, length, peaks, block, slack)
                mask = _survivors(
                    block, block_bias, item_heads, item_tails, stages, row, heads, tails, cut, sums
                )
                count = held[user]
                while mask:
                    item = block_item[block * BLOCK + lowest_bit(mask)]
                    mask &= mask - ONE
                    if item >= 0:
                        offset = bias[item] if bias.size else ZERO
                        found = score(left + 4 * n * user, right + 4 * n * item, n, offset)
                        worthy = found > wanted[user] and found >= floors[row]
                        if worthy and not contains(excluded_at, excluded, user, item):
                            count = offer(words, user, count, pack(found, item))
                            floors[row] = floor_of(words, user, count, wanted[user])
                held[user] = count
            n_live = n_left
            if n_live == 0:
                break
