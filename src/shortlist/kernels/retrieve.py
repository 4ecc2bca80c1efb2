"""Exact retrieval from factors: the best items, or all above a boundary, without scoring most of them.

Both sides are rotated so that the first dimensions carry most of every product. After some dimensions the
rest is bounded by the product of the remaining lengths (Cauchy–Schwarz); a block of items goes on to more
dimensions only while many of its items could still be shown. What could be shown is scored afresh by
`topk.score`, so the path taken leaves no trace in the result. A NaN bound keeps its item in play.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.lanes import GROUP, lowest_bit, reach_mask
from shortlist.kernels.topk import contains, floor_of, offer, pack, score
from shortlist.types import Doubles, Floats, Ints, Longs, State

Masks = npt.NDArray[np.uint32]

BLOCK = 128  # items bounded together
TILE = 32  # users that share a block while it is in the nearest cache
DIMS = 4  # dimensions added in one sweep; every stage ends at a multiple
FEW = 6  # survivors of a block that are cheaper to score than to bound again
ZERO, ONE = np.float32(0), np.uint32(1)
UP, LEAST = 1.000001, 1e-38  # lengths are rounded up, and never so small that rounding them loses a product
TINY = np.float32(1e-37)  # more than underflow can hide
HUGE = np.float32(1e37)  # beyond it sums may overflow, and a bound says nothing


class Items(NamedTuple):
    """What items are scored by."""

    factors: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or empty


class ItemBlocks(NamedTuple):
    """Items in blocks, longest first; padding has item -1 and bias -inf."""

    heads: Floats  # (n_blocks, n_dims, BLOCK) rotated factors
    tails: Floats  # (n_blocks * n_stages * BLOCK,) length left after each stage, rounded up
    bias: Floats  # (n_blocks, BLOCK)
    item: Ints  # (n_blocks, BLOCK)
    peaks: Floats  # (n_blocks, 3) longest vector, largest bias, largest |bias| of each block
    ahead: Floats  # (n_blocks, 3) the same over this block and all after it
    stages: Longs  # (n_stages,) dimensions known after each stage
    rotation: Doubles  # (n_factors, n_dims)


class Query(NamedTuple):
    """Who asks, and what they must not be shown."""

    vectors: Floats  # (n_users, n_factors)
    floors: Floats  # (n_users,) only scores strictly above are shown; NaN shows nothing
    barred_at: Longs  # (n_users + 1,)
    barred: Ints  # (n_barred,) items never shown, ascending per user


class Tile(NamedTuple):
    """What a few users work on together."""

    heads: Floats  # (TILE, n_dims) rotated users
    tails: Floats  # (TILE, n_stages) length left after each stage, rounded up
    lengths: Floats  # (TILE,)
    floors: Floats  # (TILE,) what a score must reach at the moment
    cuts: Floats  # (TILE,) what a bound must reach in the block at hand
    sums: Floats  # (TILE, BLOCK) bias and product so far
    flat: Floats  # (TILE * BLOCK,) the same memory as `sums`
    live: Ints  # (TILE,) users that may still find something
    busy: Ints  # (TILE,) users at work on the block at hand


@inlined
def _tile(blocks: ItemBlocks) -> Tile:
    n_stages, n_dims = blocks.stages.size, blocks.heads.shape[1]
    sums = np.empty((TILE, BLOCK), np.float32)
    return Tile(
        np.empty((TILE, n_dims), np.float32),
        np.empty((TILE, n_stages), np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.float32),
        sums,
        sums.reshape(TILE * BLOCK),
        np.empty(TILE, np.int32),
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


@inlined
def _take_place(turned: Doubles, stages: Longs, tile: Tile, row: int) -> None:
    """Note a rotated user and what is left of it after each stage."""
    left, stage = 0.0, stages.size - 1
    tile.tails[row, stage] = ZERO
    for d in range(turned.size - 1, -1, -1):
        tile.heads[row, d] = np.float32(turned[d])
        left += turned[d] * turned[d]
        if stage > 0 and d == stages[stage - 1]:
            stage -= 1
            tile.tails[row, stage] = _length(left)
    tile.lengths[row] = _length(left)


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
            blocks.heads[block, d, j] = np.float32(turned[d])
            left += turned[d] * turned[d]
            if stage > 0 and d == blocks.stages[stage - 1]:
                stage -= 1
                blocks.tails[(block * n_stages + stage) * BLOCK + j] = _length(left)
        lengths[place] = _length(left)


@inlined
def _cut(floor: np.float32, length: np.float32, peaks: Floats, block: int, slack: np.float32) -> np.float32:
    """The floor, lowered by all that rounding can do between a bound and a score."""
    most = length * peaks[block, 0] + peaks[block, 2]
    return floor - slack * (abs(floor) + most) - TINY if most < HUGE else np.float32(-np.inf)


@inlined
def _add_two(
    blocks: ItemBlocks, block: int, low: int, high: int, heads: Floats, sums: Floats, a: int, b: int
) -> None:
    """Add dimensions low..high for two users at once, so that each load of an item serves both."""
    items = blocks.heads
    for d in range(low, high, DIMS):
        a0, a1, a2, a3 = heads[a, d], heads[a, d + 1], heads[a, d + 2], heads[a, d + 3]
        b0, b1, b2, b3 = heads[b, d], heads[b, d + 1], heads[b, d + 2], heads[b, d + 3]
        for j in range(BLOCK):
            q0, q1, q2, q3 = (
                items[block, d, j],
                items[block, d + 1, j],
                items[block, d + 2, j],
                items[block, d + 3, j],
            )
            sums[a, j] += a0 * q0 + a1 * q1 + a2 * q2 + a3 * q3
            sums[b, j] += b0 * q0 + b1 * q1 + b2 * q2 + b3 * q3


@inlined
def _add_one(
    blocks: ItemBlocks, block: int, low: int, high: int, heads: Floats, sums: Floats, a: int
) -> None:
    """Add dimensions low..high for one user."""
    items = blocks.heads
    for d in range(low, high, DIMS):
        a0, a1, a2, a3 = heads[a, d], heads[a, d + 1], heads[a, d + 2], heads[a, d + 3]
        for j in range(BLOCK):
            q0, q1, q2, q3 = (
                items[block, d, j],
                items[block, d + 1, j],
                items[block, d + 2, j],
                items[block, d + 3, j],
            )
            sums[a, j] += a0 * q0 + a1 * q1 + a2 * q2 + a3 * q3


@inlined
def _add(blocks: ItemBlocks, block: int, low: int, high: int, tile: Tile, n_busy: int) -> None:
    """Add dimensions low..high for everybody at work."""
    for at in range(0, n_busy - 1, 2):
        _add_two(blocks, block, low, high, tile.heads, tile.sums, tile.busy[at], tile.busy[at + 1])
    if n_busy % 2:
        _add_one(blocks, block, low, high, tile.heads, tile.sums, tile.busy[n_busy - 1])


@inlined
def _survivors(blocks: ItemBlocks, block: int, stage: int, tile: Tile, row: int, masks: Masks) -> int:
    """Mark the items of the block that could be shown; counting stops beyond FEW."""
    count, at = 0, (block * blocks.stages.size + stage) * BLOCK
    tail, cut = tile.tails[row, stage], tile.cuts[row]
    for group in range(BLOCK // GROUP):
        start = group * GROUP
        mask = reach_mask(tile.flat, row * BLOCK + start, blocks.tails, at + start, tail, cut)
        masks[group] = mask
        while mask and count <= FEW:
            mask &= mask - ONE
            count += 1
    return count


@inlined
def _settle(
    items: Items,
    query: Query,
    user: int,
    block_item: Ints,
    block: int,
    masks: Masks,
    words: State,
    held: Longs,
) -> None:
    """Score the survivors and keep the worthy."""
    own, row = query.barred[query.barred_at[user] : query.barred_at[user + 1]], words[user]
    floor, count = query.floors[user], held[user]
    for group in range(masks.size):
        mask = masks[group]
        while mask:
            item = block_item[block, group * GROUP + lowest_bit(mask)]
            mask &= mask - ONE
            if item < 0:
                continue
            found = score(query.vectors, user, items.factors, items.bias, item)
            if found > floor and found >= floor_of(row, count, floor) and not contains(own, item):
                count = offer(row, count, pack(found, item))
    held[user] = count


@inlined
def _seat(query: Query, blocks: ItemBlocks, start: int, tile: Tile) -> int:
    """Rotate the users of a tile; how many may find anything at all."""
    turned, n_live = np.empty(blocks.rotation.shape[1], np.float64), 0
    for row in range(min(TILE, query.floors.size - start)):
        if query.floors[start + row] < np.inf:  # nor NaN
            _turn(query.vectors, start + row, blocks.rotation, turned)
            _take_place(turned, blocks.stages, tile, row)
            tile.floors[row] = query.floors[start + row]
            tile.live[n_live] = row
            n_live += 1
    return n_live


@inlined
def _enter(blocks: ItemBlocks, block: int, slack: np.float32, tile: Tile, n_live: int) -> tuple[int, int]:
    """Who may still find something, and who of them in this block."""
    kept, n_busy = 0, 0
    for at in range(n_live):
        row = tile.live[at]
        floor, length = tile.floors[row], tile.lengths[row]
        cut = _cut(floor, length, blocks.ahead, block, slack)
        if length * blocks.ahead[block, 0] + blocks.ahead[block, 1] < cut:
            continue
        tile.live[kept] = row
        kept += 1
        cut = _cut(floor, length, blocks.peaks, block, slack)
        if length * blocks.peaks[block, 0] + blocks.peaks[block, 1] < cut:
            continue
        tile.cuts[row] = cut
        tile.busy[n_busy] = row
        n_busy += 1
        for j in range(BLOCK):
            tile.sums[row, j] = blocks.bias[block, j]
    return kept, n_busy


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
    tile, masks, n_stages = _tile(blocks), np.empty(BLOCK // GROUP, np.uint32), blocks.stages.size
    for start in range(0, query.floors.size, TILE):
        n_live = _seat(query, blocks, start, tile)
        for block in range(blocks.item.shape[0]):
            n_live, n_busy = _enter(blocks, block, slack, tile, n_live)
            if n_live == 0:
                break
            low, stage = 0, 0
            while n_busy:
                _add(blocks, block, low, blocks.stages[stage], tile, n_busy)
                going = 0
                for at in range(n_busy):
                    row = tile.busy[at]
                    count = _survivors(blocks, block, stage, tile, row, masks)
                    if count > FEW and stage + 1 < n_stages:
                        tile.busy[going] = row
                        going += 1
                    elif count:
                        user = start + row
                        _settle(items, query, user, blocks.item, block, masks, words, held)
                        tile.floors[row] = floor_of(words[user], held[user], query.floors[user])
                low, stage, n_busy = blocks.stages[stage], stage + 1, going
