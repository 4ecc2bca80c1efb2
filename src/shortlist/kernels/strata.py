"""Strata: blocks of users × ranges of items, so that threads never share a row of factors.

Users are divided into B blocks and items, under a random relabeling, into R = B·e ranges. In round r, block b
processes the e ranges that start at e·((b + r) mod B), one after the other. A range is small enough to stay
in a core's cache while all users of the block are visited. Rows are visited group by group: a group shares
one score vector. It is a user's whole history for matrix factorization and one basket for HRM.

A row holds an item that the group likes or, as its complement ~item, an example drawn uniformly from all
items. Both are assigned to cells in the same way, so the share of an example does not depend on the cells.
"""

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
            part = np.uint32(label[row_item(item[row])]) // np.uint32(range_size)
            rows[part] += 1
            if latest[part] != group:
                latest[part] = group
                visits[part] += 1


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
            part = np.int64(np.uint32(position) // np.uint32(strata.range_size))
            if latest[part] != group:
                latest[part] = group
                strata.starts[visit_at[part]] = row_at[part]
                strata.groups[visit_at[part]] = group
                visit_at[part] += 1
            inside = position - part * strata.range_size
            strata.liked[row_at[part]] = inside if item[row] >= 0 else ~inside
            row_at[part] += 1


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
