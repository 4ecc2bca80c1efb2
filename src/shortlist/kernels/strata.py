"""The order of an epoch: blocks of users × ranges of items, and the visits of each cell."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.rng import GOLDEN, next_bits
from shortlist.types import Bools, Floats, Ints, Longs, State


class Strata(NamedTuple):
    """All visits of an epoch, sorted by cell = block · R + range."""

    cells: Longs  # (B·R + 1,) where the visits of each cell start
    starts: Longs  # (n_visits + 1,) where the liked items of each visit start
    groups: Ints  # (n_visits,) group of each visit
    liked: Ints  # (n_rows,) items, relative to the start of their range; ~item: a drawn example
    n_blocks: int  # B
    range_size: int  # items per range


class Visits(NamedTuple):
    """The visits of one cell."""

    starts: Longs  # (n_visits + 1,) where the liked items of each visit start
    groups: Ints  # (n_visits,)
    liked: Ints  # (n_rows,) items as in `Strata`; `starts` points into it


@inlined
def row_item(code: np.int32) -> np.int32:
    """Return the item of a row, liked or drawn."""
    return code if code >= 0 else ~code


@kernel
def count_visits(
    indptr: Longs,  # (n_groups + 1,)
    item: Ints,  # (n_rows,) items, or ~item for drawn examples
    label: Ints,  # (n_items,) position of each item after relabeling
    range_size: int,
    first: int,  # first group of the block
    last: int,  # one past its last group
    visits: Longs,  # (R,) added to
    rows: Longs,  # (R,) added to
) -> None:
    """Count the visits and rows of one block in each range."""
    latest = np.full(visits.size, -1, np.int64)
    for group in range(first, last):
        for row in range(indptr[group], indptr[group + 1]):
            number = np.uint32(label[row_item(item[row])]) // np.uint32(range_size)
            rows[number] += 1
            if latest[number] != group:
                latest[number] = group
                visits[number] += 1


@kernel
def write_visits(
    indptr: Longs,  # (n_groups + 1,)
    item: Ints,  # (n_rows,) items, or ~item for drawn examples
    label: Ints,  # (n_items,)
    first: int,
    last: int,
    visit_at: Longs,  # (R,) where the block's visits of each range are written; advanced
    row_at: Longs,  # (R,) where its rows are written; advanced
    strata: Strata,  # starts, groups and liked are written
) -> None:
    """Write the visits of one block, in the order of `count_visits`."""
    latest = np.full(visit_at.size, -1, np.int64)
    for group in range(first, last):
        for row in range(indptr[group], indptr[group + 1]):
            position = label[row_item(item[row])]
            number = np.int64(np.uint32(position) // np.uint32(strata.range_size))
            if latest[number] != group:
                latest[number] = group
                strata.starts[visit_at[number]] = row_at[number]
                strata.groups[visit_at[number]] = group
                visit_at[number] += 1
            inside = position - number * strata.range_size
            strata.liked[row_at[number]] = inside if item[row] >= 0 else ~inside
            row_at[number] += 1


@kernel
def permute_rows(table: Floats, target: Ints, done: Bools) -> None:
    """Move row n of a (n, n_factors) table to row target[n], in place; `done` (n,) is scratch."""
    done[:] = False
    for start in range(target.size):
        if done[start]:
            continue
        carried, at = table[start].copy(), start
        while True:
            at = target[at]
            for f in range(carried.size):
                table[at, f], carried[f] = carried[f], table[at, f]
            done[at] = True
            if at == start:
                break


@inlined
def cell_state(key: np.uint64, cell: int) -> State:
    """Return the random state (1,) of one cell in the epoch identified by `key`."""
    state = np.empty(1, np.uint64)
    state[0] = np.uint64(cell) * GOLDEN
    state[0] = key ^ next_bits(state)
    state[0] = next_bits(state)
    return state
