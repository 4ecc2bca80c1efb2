"""The schedule of an epoch: which block of users meets which range of items, and in what order."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.kernels.rng import stream
from shortlist.kernels.strata import Strata, strata_count, strata_fill
from shortlist.types import Ints, Longs

RANGE_BYTES = 1 << 18  # a range of item factors should stay in a core's second-level cache
LEAST_BLOCKS, MOST_BLOCKS = 8, 32  # where the cache wants more ranges than there need be blocks
CELL_ROWS = 500  # fewer rows than this in a cell, and the bookkeeping costs more than the steps
ERA = 5  # epochs between two relabellings of the items

LABELS, STEPS = 1, 2  # names of random streams

Array = TypeVar("Array", bound=npt.NDArray[Any])


class Cut(NamedTuple):
    """How finely users and items are cut."""

    n_blocks: int  # of users
    each: int  # ranges of items that a block works through in a round


def choose_cut(n_rows: int, n_users: int, n_items: int, n_factors: int, at_least: int = 4) -> Cut:
    """From the data alone: the result of a fit must not depend on the machine."""
    by_cache = -(-n_items * n_factors * 4 // RANGE_BYTES)
    by_rows = int((n_rows / CELL_ROWS) ** 0.5)
    reuse = min(max(n_rows // n_items, LEAST_BLOCKS), MOST_BLOCKS)  # a block reads an item once or more
    n_blocks = max(1, min(max(at_least, min(by_cache, reuse)), by_rows, n_users, n_items))
    each = min(-(-by_cache // n_blocks), n_rows // (CELL_ROWS * n_blocks**2), n_items // n_blocks)
    return Cut(n_blocks, max(1, each))


def thread_count(n_threads: int) -> int:
    """0 means every core this process may use."""
    if n_threads > 0:
        return n_threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_only(array: Array) -> Array:
    """A view that cannot be written; to kernels it is another type, so all callers should agree."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(eq=False)
class Schedule:
    """Groups of rows cut into strata; relabels the items every few epochs, from the seed alone."""

    indptr: Longs  # (n_groups + 1,) rows of each group
    item: Ints  # (n_rows,)
    group_at: Longs  # (n_users + 1,) groups of each user
    n_items: int
    cut: Cut
    seed: int
    pool: ThreadPoolExecutor
    users_at: Longs = field(init=False)  # (B + 1,) users of each block
    size: int = field(init=False)  # items per range
    label: Ints = field(init=False)  # (n_items,) place of each item in this era
    strata: Strata = field(init=False)
    era: int = -1

    def __post_init__(self) -> None:
        self.indptr, self.item = read_only(self.indptr), read_only(self.item)
        rows = self.indptr[self.group_at]  # where each user's rows start
        cuts = np.searchsorted(rows, np.linspace(0, rows[-1], self.n_blocks + 1)[1:-1])
        self.users_at = np.concatenate([[0], cuts, [self.group_at.size - 1]]).astype(np.int64)
        self.size = -(-self.n_items // self.n_ranges)

    @property
    def n_blocks(self) -> int:
        """B, blocks of users and rounds of an epoch."""
        return self.cut.n_blocks

    @property
    def n_ranges(self) -> int:
        """R, ranges of items."""
        return self.cut.n_blocks * self.cut.each

    @property
    def n_threads(self) -> int:
        """How many tasks the pool runs at once."""
        return self.pool._max_workers

    def enter(self, epoch: int) -> bool:
        """Cut the strata of this epoch; True when the items were relabelled."""
        era = epoch // ERA
        if era == self.era:
            return False
        self.era = era
        shuffled = np.random.Generator(np.random.PCG64([self.seed, LABELS, era])).permutation(self.n_items)
        self.label = shuffled.astype(np.int32)
        self._cut()
        return True

    def word(self, epoch: int) -> np.uint64:
        """What names the random streams of one epoch."""
        return np.uint64(stream(self.seed, STEPS, epoch)[0])

    def spread(self, task: Callable[..., Any], n: int, *args: Any) -> list[Any]:
        """Run task(first, last, *args) over 0 … n - 1, cut into one part per thread; wait for all."""
        parts = min(self.n_threads, n)
        if parts <= 1:
            return [task(0, n, *args)]
        cuts = np.linspace(0, n, parts + 1).astype(int).tolist()
        jobs = [self.pool.submit(task, cuts[i], cuts[i + 1], *args) for i in range(parts)]
        return [job.result() for job in jobs]

    def _cut(self) -> None:
        n, groups = self.n_blocks, self.group_at[self.users_at]
        visits, rows = np.zeros((n, self.n_ranges), np.int64), np.zeros((n, self.n_ranges), np.int64)

        def count(first: int, last: int) -> None:
            for b in range(first, last):
                strata_count(
                    self.indptr,
                    self.item,
                    self.label,
                    self.size,
                    groups[b],
                    groups[b + 1],
                    visits[b],
                    rows[b],
                )

        self.spread(count, n)
        cells = np.concatenate([[0], np.cumsum(visits)])
        row_cells = np.concatenate([[0], np.cumsum(rows)])
        strata = Strata(
            cells=cells,
            starts=np.empty(cells[-1] + 1, np.int64),
            groups=np.empty(cells[-1], np.int32),
            liked=np.empty(self.item.size, np.int32),
        )
        strata.starts[-1] = self.item.size
        visit_at, row_at = cells[:-1].reshape(n, -1).copy(), row_cells[:-1].reshape(n, -1).copy()

        def fill(first: int, last: int) -> None:
            for b in range(first, last):
                strata_fill(
                    self.indptr,
                    self.item,
                    self.label,
                    self.size,
                    groups[b],
                    groups[b + 1],
                    visit_at[b],
                    row_at[b],
                    strata,
                )

        self.spread(fill, n)
        self.strata = strata
