"""Exact retrieval from factors: the best items, or all items above a floor, without scoring most of them.

Users and items are rotated so that the first dimensions carry most of every inner product. After some
dimensions, the Cauchy-Schwarz inequality bounds the rest by the product of the remaining lengths. A block of
items proceeds to more dimensions only while many of its items could still qualify. Items that could qualify
are scored by `simd_blocks.score`, so the result does not depend on which items were skipped. A NaN bound
never skips an item.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, ir_inlined, kernel
from shortlist.kernels.simd_blocks import BLOCK, add_block, bound_mask, count_bits, lowest_bit, score
from shortlist.kernels.topk import contains, entry_score, pack, push
from shortlist.types import Doubles, Floats, Ints, Longs, State

TILE = 32  # users that process a block while it is in the first-level cache
FEW = 6  # with so few items left in a block, scoring them is cheaper than bounding them again
ZERO, EMPTY, ONE = np.float32(0), np.uint64(0), np.uint64(1)
ROUND_UP, MIN_LENGTH = 1.000001, 1e-38  # lengths are rounded up and stay above what rounding could lose
TINY = np.float32(1e-37)  # larger than any underflow
HUGE = np.float32(1e37)  # above it sums may overflow, so bounds are not used


class Items(NamedTuple):
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
    active: Ints  # (TILE,) users for which later blocks may still hold a hit


@inlined
def _new_tile(blocks: ItemBlocks) -> Tile:
    return Tile(
        np.empty(TILE * blocks.rotation.shape[1], np.float32),
        np.empty(TILE * blocks.stages.size, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.float32),
        np.empty(TILE, np.int32),
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
def _load_users(query: Query, blocks: ItemBlocks, start: int, tile: Tile) -> int:
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
        tile.active[n_active] = row
        n_active += 1
    return n_active


@inlined
def _lowered_floor(
    floor: np.float32, length: np.float32, peaks: Floats, block: int, slack: np.float32
) -> np.float32:
    """Return the floor minus the largest rounding error between a bound and a score."""
    most = length * peaks[block, 0] + peaks[block, 2]
    return floor - slack * (abs(floor) + most) - TINY if most < HUGE else np.float32(-np.inf)


@inlined
def _below_floor(floor: np.float32, length: np.float32, peaks: Floats, block: int, slack: np.float32) -> bool:
    """Return whether no item within the block's peaks can reach the floor."""
    bound = length * peaks[block, 0] + peaks[block, 1]
    return bool(bound < _lowered_floor(floor, length, peaks, block, slack))


@ir_inlined
def _survivors(
    block: int,
    item_side: tuple[Floats, Floats, Floats],  # bias, coordinates, residuals of the item blocks
    stages: Longs,
    row: int,
    user_side: tuple[Floats, Floats],  # coordinates, residuals of the tile
    floor: np.float32,
    sums: Floats,  # (BLOCK,) scratch
) -> np.uint64:
    """Return a mask of the items of a block that could qualify, from exact partial sums plus bounds."""
    bias, item_coordinates, item_residuals = item_side
    coordinates, residuals = user_side
    n_stages, n_dims, low = stages.size, stages[stages.size - 1], 0
    for j in range(BLOCK):
        sums[j] = bias[block * BLOCK + j]
    mask = EMPTY
    for stage in range(n_stages):
        high = stages[stage]
        add_block(
            item_coordinates,
            (block * n_dims + low) * BLOCK,
            coordinates,
            row * n_dims + low,
            high - low,
            sums,
        )
        mask = bound_mask(
            sums, item_residuals, (block * n_stages + stage) * BLOCK, residuals[row * n_stages + stage], floor
        )
        if count_bits(mask) <= FEW:
            break
        low = high
    return mask


@kernel
def retrieve_from_factors(
    items: Items,
    blocks: ItemBlocks,
    query: Query,
    slack: np.float32,  # relative rounding error to allow for
    keys: State,  # (n_users, width) written
    counts: Longs,  # (n_users,) zeros; number of hits, width + 1 if some did not fit
) -> None:
    """Select the best `width` items above each user's floor, in any order; see `topk.unpack_keys`."""
    # unpacked once: reference counting inside the loops would cost more than the arithmetic
    factors, bias = items
    item_coordinates, item_residuals, block_bias, block_item, peaks, ahead, stages, _ = blocks
    vectors, query_floors, excluded_at, excluded = query
    tile, sums = _new_tile(blocks), np.empty(BLOCK, np.float32)
    coordinates, residuals, lengths, floors, active = tile
    left, right, n = vectors.ctypes.data, factors.ctypes.data, vectors.shape[1]
    for start in range(0, query_floors.size, TILE):
        n_active = _load_users(query, blocks, start, tile)
        for block in range(peaks.shape[0]):
            n_kept = 0
            for at in range(n_active):
                row = active[at]
                user, floor, length = start + row, floors[row], lengths[row]
                if _below_floor(floor, length, ahead, block, slack):
                    continue  # drop the user: later blocks have smaller bounds and floors never fall
                active[n_kept] = row
                n_kept += 1
                if _below_floor(floor, length, peaks, block, slack):
                    continue
                lowered = _lowered_floor(floor, length, peaks, block, slack)
                mask = _survivors(
                    block,
                    (block_bias, item_coordinates, item_residuals),
                    stages,
                    row,
                    (coordinates, residuals),
                    lowered,
                    sums,
                )
                count = counts[user]
                while mask:
                    item = block_item[block * BLOCK + lowest_bit(mask)]
                    mask &= mask - ONE
                    if item >= 0:
                        offset = bias[item] if bias.size else ZERO
                        found = score(left + 4 * n * user, right + 4 * n * item, n, offset)
                        qualifies = found > query_floors[user] and found >= floors[row]
                        if qualifies and not contains(excluded_at, excluded, user, item):
                            count = push(keys, user, count, pack(found, item))
                            floors[row] = entry_score(keys, user, count, query_floors[user])
                counts[user] = count
            n_active = n_kept
            if n_active == 0:
                break
