"""The schedule of an epoch: which block of users is trained on which range of items, and in what order."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shortlist.kernels.rng import GOLDEN, MIX_1, MIX_2, S27, S30, S31, stream
from shortlist.kernels.rows import read_only, starts
from shortlist.kernels.strata import Strata, count_visits, write_visits
from shortlist.types import Bools, Doubles, Ints, Longs, State

RANGE_BYTES = 1 << 18  # a range of item factors should fit in a core's second-level cache
CACHE_MIN_BLOCKS, CACHE_MAX_BLOCKS = 8, 32  # limits of the number of blocks that the cache size suggests
CELL_ROWS = 500  # with fewer rows per cell, overhead exceeds the time of the steps
BLOCK_ROWS = 10_000_000  # a block has at most about this many rows
RELABEL_PERIOD = 5  # epochs between two relabelings of the items

LABELS, STEPS, EXAMPLES, VISITS = 1, 2, 8, 9  # ids of random streams
MAX_MEAN = 4.0  # visits per row and epoch; larger weights are all divided by the same number


class Partition(NamedTuple):
    """How finely users and items are divided."""

    n_blocks: int  # of users
    ranges_per_block: int  # ranges of items that a block processes per round

    def range_size(self, n_items: int) -> int:
        """Items per range; the last ranges may have fewer."""
        return -(-n_items // (self.n_blocks * self.ranges_per_block))

    def item_starts(self, n_items: int) -> Longs:
        """(B + 1,) where the items start that a block processes in one round."""
        each = self.range_size(n_items) * self.ranges_per_block
        return np.minimum(np.arange(self.n_blocks + 1, dtype=np.int64) * each, n_items)


def choose_partition(
    n_rows: int, n_users: int, n_items: int, n_factors: int, min_blocks: int = 4
) -> Partition:
    """Choose from the data alone, because the result of a fit must not depend on the machine."""
    by_cache = -(-n_items * n_factors * 4 // RANGE_BYTES)
    by_rows = int((n_rows / CELL_ROWS) ** 0.5)
    # more blocks than this would use each item less than about once
    by_reuse = min(max(n_rows // n_items, CACHE_MIN_BLOCKS), CACHE_MAX_BLOCKS)
    by_size = n_rows // BLOCK_ROWS
    n_blocks = max(1, min(max(min_blocks, min(by_cache, by_reuse), by_size), by_rows, n_users, n_items))
    each = min(-(-by_cache // n_blocks), n_rows // (CELL_ROWS * n_blocks**2), n_items // n_blocks)
    return Partition(n_blocks, max(1, each))


def draw_labels(n_items: int, seed: int, epoch: int) -> Ints:
    """(n_items,) the position of each item in this epoch; it changes every RELABEL_PERIOD epochs."""
    rng = np.random.Generator(np.random.PCG64([seed, LABELS, epoch // RELABEL_PERIOD]))
    return rng.permutation(n_items).astype(np.int32)


def random_bits(key: np.uint64, numbers: State) -> State:
    """(n,) 64 random bits for each number, as `mix_bits`; they depend on `key` and the number alone."""
    z: State = numbers * GOLDEN + key
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


def count_row_visits(amounts: Doubles, scale: float, seed: int) -> Longs:
    """(n_rows,) visits per epoch: the amount, rounded up or down at random, at least 1; 0 if it is negative.

    The numbers depend on the seed and on the row's place alone. A row of positive weight is visited at least
    once: one without any visit would be sampled as an item that the user does not have.
    """
    wanted = amounts * scale
    whole = np.floor(wanted)
    bits = random_bits(stream(seed, VISITS)[0], np.arange(amounts.size, dtype=np.uint64))
    drawn = whole + ((bits >> np.uint64(11)) * 2.0**-53 < wanted - whole)
    return np.where(amounts > 0, np.maximum(drawn, 1), 0).astype(np.int64)


class UniformExamples(NamedTuple):
    """Classification examples drawn uniformly over groups × items, anew in every epoch."""

    trained: Bools  # (n_groups,) the groups that are trained; the others get no example
    per_group: float  # examples per trained group and epoch, on average

    def add_to(self, indptr: Longs, item: Ints, n_items: int, path: tuple[int, ...]) -> tuple[Longs, Ints]:
        """(indptr, item) with examples, as ~item, after the rows of each group.

        The examples of a group depend on its number alone.
        """
        whole, rest = divmod(self.per_group, 1)
        most, numbers = int(whole) + 1, np.arange(self.trained.size, dtype=np.uint64)
        chance = random_bits(stream(*path, 0)[0], numbers) >> np.uint64(11)
        counts = np.where(self.trained, int(whole) + (chance * 2.0**-53 < rest), 0)
        before = starts(counts)
        order = np.arange(before[-1], dtype=np.uint64) - np.repeat(before[:-1], counts).astype(np.uint64)
        bits = random_bits(stream(*path, 1)[0], np.repeat(numbers, counts) * np.uint64(most) + order)
        drawn = ((bits >> np.uint64(32)) * np.uint64(n_items) >> np.uint64(32)).astype(np.int32)
        total = item.size + drawn.size
        liked: Longs = np.arange(item.size) + np.repeat(before[:-1], np.diff(indptr))
        rows, is_drawn = np.empty(total, np.int32), np.ones(total, np.bool_)
        rows[liked], is_drawn[liked] = item, False
        rows[is_drawn] = ~drawn
        return indptr + before, rows


def divide_users(row_starts: Longs, n_blocks: int) -> Longs:
    """(n_blocks + 1,) the users of each block, with about the same number of rows.

    `row_starts` (n_users + 1,) says where the rows of each user start.
    """
    cuts = np.searchsorted(row_starts, np.linspace(0, row_starts[-1], n_blocks + 1)[1:-1])
    return np.concatenate([[0], cuts, [row_starts.size - 1]]).astype(np.int64)


@dataclass(eq=False)
class Schedule:
    """Groups of rows divided into strata; items are relabeled every few epochs, from the seed alone."""

    indptr: Longs  # (n_groups + 1,) rows of each group
    item: Ints  # (n_rows,)
    group_starts: Longs  # (n_users + 1,) groups of each user
    n_items: int
    partition: Partition
    seed: int
    pool: ThreadPoolExecutor
    n_workers: int  # of the pool
    examples: UniformExamples | None = None
    user_starts: Longs = field(init=False)  # (B + 1,) users of each block
    label: Ints = field(init=False)  # (n_items,) current position of each item
    strata: Strata = field(init=False)
    period: int = -1  # number of the current labeling
    epoch: int = -1  # that the strata were built for

    def __post_init__(self) -> None:
        self.indptr, self.item = read_only(self.indptr), read_only(self.item)
        self.user_starts = divide_users(self.indptr[self.group_starts], self.n_blocks)

    @property
    def n_blocks(self) -> int:
        """B, the number of user blocks and of rounds per epoch."""
        return self.partition.n_blocks

    @property
    def n_ranges(self) -> int:
        """R, the number of item ranges."""
        return self.partition.n_blocks * self.partition.ranges_per_block

    def prepare(self, epoch: int) -> bool:
        """Build the strata of this epoch; return whether the items were relabeled."""
        period = epoch // RELABEL_PERIOD
        is_new = period != self.period
        if is_new:
            self.period, self.label = period, draw_labels(self.n_items, self.seed, epoch)
        if is_new or (self.examples is not None and epoch != self.epoch):
            self.epoch = epoch
            self._build_strata(*self._rows())
        return is_new

    def _rows(self) -> tuple[Longs, Ints]:
        """(indptr, item) of the rows of this epoch."""
        if self.examples is None:
            return self.indptr, self.item
        path = self.seed, EXAMPLES, self.epoch
        indptr, item = self.examples.add_to(self.indptr, self.item, self.n_items, path)
        return read_only(indptr), read_only(item)

    def epoch_key(self, epoch: int) -> np.uint64:
        """The key of the random streams of one epoch."""
        return np.uint64(stream(self.seed, STEPS, epoch)[0])

    def run_parallel(self, task: Callable[..., Any], n_parts: int, *args: Any) -> list[Any]:
        """Run task(first, last, *args) over 0 … n_parts - 1 in one piece per thread; wait for all of them."""
        n = min(self.n_workers, n_parts)
        if n <= 1:
            return [task(0, n_parts, *args)]
        cuts = np.linspace(0, n_parts, n + 1).astype(int).tolist()
        jobs = [self.pool.submit(task, first, last, *args) for first, last in pairwise(cuts)]
        return [job.result() for job in jobs]

    def _build_strata(self, indptr: Longs, item: Ints) -> None:
        n, groups = self.n_blocks, self.group_starts[self.user_starts]
        range_size = self.partition.range_size(self.n_items)
        visits, rows = np.zeros((n, self.n_ranges), np.int64), np.zeros((n, self.n_ranges), np.int64)

        def count(first: int, last: int) -> None:
            for b in range(first, last):
                block = groups[b], groups[b + 1]
                count_visits(indptr, item, self.label, range_size, *block, visits[b], rows[b])

        self.run_parallel(count, n)
        cells, row_cells = starts(visits.ravel()), starts(rows.ravel())
        strata = Strata(
            cells=cells,
            starts=np.empty(cells[-1] + 1, np.int64),
            groups=np.empty(cells[-1], np.int32),
            liked=np.empty(item.size, np.int32),
            n_blocks=n,
            range_size=range_size,
        )
        strata.starts[-1] = item.size
        visit_at, row_at = cells[:-1].reshape(n, -1).copy(), row_cells[:-1].reshape(n, -1).copy()

        def write(first: int, last: int) -> None:
            for b in range(first, last):
                block = groups[b], groups[b + 1]
                write_visits(indptr, item, self.label, *block, visit_at[b], row_at[b], strata)

        self.run_parallel(write, n)
        self.strata = strata
