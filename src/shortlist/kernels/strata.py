"""Strata: user blocks × item ranges, so that threads never share a row.

Users are cut into B blocks, items (under a random relabelling) into R = B·e ranges. In round r, block b works
through the e ranges from e·((b + r) mod B) on, one after the other: a range is small enough to stay in a
core's cache while all the block's users come by. Rows are visited group by group: a group is what one score
vector serves, that is a user's whole history for matrix factorisation and one basket for HRM.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.rng import GOLDEN, next_word
from shortlist.types import Bools, Floats, Ints, Longs, State


class Strata(NamedTuple):
    """All visits of an epoch, ordered by block, then range; cell = block · R + range."""

    cells: Longs  # (B·R + 1,) where each cell's visits start
    starts: Longs  # (n_visits + 1,) where each visit's liked items start
    groups: Ints  # (n_visits,) group of each visit
    liked: Ints  # (n_rows,) item within its range


@kernel
def strata_count(
    indptr: Longs,  # (n_groups + 1,)
    item: Ints,  # (n_rows,)
    label: Ints,  # (n_items,) where the relabelling puts each item
    size: int,  # items per range
    first: int,  # first group of this block
    last: int,  # one past its last group
    visits: Longs,  # (R,) out
    rows: Longs,  # (R,) out
) -> None:
    """How many visits and rows each range holds for one block."""
    latest = np.full(visits.size, -1, np.int64)
    for group in range(first, last):
        for row in range(indptr[group], indptr[group + 1]):
            part = np.uint32(label[item[row]]) // np.uint32(size)
            rows[part] += 1
            if latest[part] != group:
                latest[part] = group
                visits[part] += 1


@kernel
def strata_fill(
    indptr: Longs,
    item: Ints,
    label: Ints,
    size: int,
    first: int,
    last: int,
    visit_at: Longs,  # (R,) where this block's visits of each range go; advanced
    row_at: Longs,  # (R,) where its rows go; advanced
    strata: Strata,  # starts, groups and liked are filled
) -> None:
    """Write one block's visits; the mirror of `strata_count`."""
    latest = np.full(visit_at.size, -1, np.int64)
    for group in range(first, last):
        for row in range(indptr[group], indptr[group + 1]):
            spot = label[item[row]]
            part = np.int64(np.uint32(spot) // np.uint32(size))
            if latest[part] != group:
                latest[part] = group
                strata.starts[visit_at[part]] = row_at[part]
                strata.groups[visit_at[part]] = group
                visit_at[part] += 1
            strata.liked[row_at[part]] = spot - part * size
            row_at[part] += 1


@kernel
def rows_permute(table: Floats, place: Ints, done: Bools) -> None:
    """In place: row n of a (n, n_factors) table goes to row place[n]; `done` (n,) is scratch."""
    done[:] = False
    for start in range(place.size):
        if done[start]:
            continue
        carried, at = table[start].copy(), start
        while True:
            at = place[at]
            for f in range(carried.size):
                table[at, f], carried[f] = carried[f], table[at, f]
            done[at] = True
            if at == start:
                break


@inlined
def block_state(word: np.uint64, number: int) -> State:
    """The random stream of one cell of one epoch; `word` names the epoch."""
    state = np.empty(1, np.uint64)
    state[0] = np.uint64(number) * GOLDEN
    state[0] = word ^ next_word(state)
    state[0] = next_word(state)
    return state
