"""Candidates of snapshots and their features, block by block."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from shortlist.core.ragged import row_lengths, row_owners
from shortlist.core.threads import open_pool, thread_count
from shortlist.kernels.rows import read_only
from shortlist.kernels.snapshot_features import (
    DECAYS,
    HOUR,
    N_CLOCK_FEATURES,
    N_FEATURES,
    N_USER_FEATURES,
    EASEWeights,
    FeatureRows,
    GivenCandidates,
    Links,
    ReplayState,
    Snapshots,
    UserLog,
    fill_features,
)
from shortlist.models.two_stage.content import ItemContent
from shortlist.models.two_stage.quantities import Quantities
from shortlist.models.two_stage.snapshots import WINDOWS, EventReplay
from shortlist.types import Longs

T = TypeVar("T")
Solutions = tuple[Links, EASEWeights]  # solutions of a time

MAX_SOURCES = 8  # candidates per snapshot are at most this many times candidates_per_source
BLOCK = 512  # snapshots per block
BLOCK_ROWS = 1 << 18  # candidates per block, at most
PROPOSED = GivenCandidates(read_only(np.empty(0, np.int64)), read_only(np.empty(0, np.int32)), False)

FEATURES = (
    # the item
    *(f"sales_{days}d" for days in WINDOWS),
    "sales",
    "repeat_rate",
    "repeat_gap",
    "trend_3d",
    "trend_14d",
    "item_age",
    "item_basket_size",
    "sales_per_buyer",
    "buyer_experience",
    "experience_above_buyers",
    "experience_above_buyers_scaled",
    # the user's purchases of the item
    "own_count",
    *(f"own_decayed_{decay}" for decay in DECAYS),
    "own_decayed_days",
    "own_basket_share",
    "own_days",
    "own_baskets_ago",
    "own_days_per_item_gap",
    "own_days_per_own_gap",
    # the item and the user's other items
    "together_sum",
    "together_max",
    "after_sum",
    "after_max",
    "before_sum",
    "before_max",
    "together_lift",
    "after_lift",
    "before_lift",
    "ease",
    # the user
    "n_baskets",
    "mean_basket_size",
    "last_basket_size",
    "previous_basket_size",
    "days_since_last_basket",
    "mean_basket_gap",
    "user_repeat_rate",
    "user_trend",
    "n_own_items",
    "weekday",
    "days_since_last_basket_per_gap",
    "days_since_first_basket",
)
CLOCK_FEATURES: tuple[str, ...] = (  # if times tell the hour
    "hour",
    "item_at_hour",
    "item_at_weekday",
    "own_at_hour",
    "own_at_hour_recently",
    "own_at_weekday",
)
USER_FEATURES = slice(FEATURES.index("n_baskets"), len(FEATURES))  # the same for all candidates of a snapshot


def tells_hours(time: Longs | None) -> bool:
    """Whether times have a clock: days alone have one hour, and two where the clock is changed in summer."""
    return time is not None and np.unique(time // HOUR % 24).size > 2


class BlockRange(NamedTuple):
    """Snapshots first … last - 1, which form a block, and the numbers of solutions before them."""

    first: int
    last: int
    links: int
    ease: int


def compute_features(
    replay: EventReplay,
    users: UserLog,
    snapshots: Snapshots,
    given: GivenCandidates = PROPOSED,
    quantities: Quantities | None = None,
    content: ItemContent | None = None,
    negative_rate: float = 1.0,
) -> Iterator[FeatureRows]:
    """Yield the blocks of the snapshots, in order, with a share of the candidates that were not bought.

    QUANTITY_FEATURES follow the usual features if there are quantities, then the features of the content.

    Each thread advances a replay state of its own and computes every n-th block. A block does not depend on
    the thread that computes it.
    """
    ranges = _plan_blocks(replay, snapshots, given, content is not None)
    if not ranges:
        return
    states = replay.states(min(thread_count(), len(ranges)), int(snapshots.at[0]), int(snapshots.at[-1]))

    whole = replay.whole

    def solve(number: int) -> Solutions:
        return whole.links.solution(ranges[number].links), whole.ease.solution(ranges[number].ease)

    def compute(number: int, solutions: Solutions) -> FeatureRows:
        state, block_range = states[number % len(states)], ranges[number]
        more = given
        if content is not None and not given.only:
            more = _propose_content(content, replay, users, snapshots, block_range)
        block = _compute_block(replay, state, users, snapshots, more, block_range, solutions, negative_rate)
        if quantities is not None:
            block = _add_quantities(block, snapshots, quantities)
        return block if content is None else _add_content(block, users, snapshots, content, solutions)

    if len(states) == 1:
        yield from (compute(number, solve(number)) for number in range(len(ranges)))
    else:
        yield from _run_in_order(solve, compute, len(ranges), len(states))
    replay.keep(states)


def _add_quantities(block: FeatureRows, snapshots: Snapshots, quantities: Quantities) -> FeatureRows:
    numbers = block.numbers[row_owners(block.indptr)]
    more = quantities.features(snapshots.user[numbers], block.items, snapshots.at[numbers])
    return block._replace(features=np.concatenate([block.features, more], axis=1))


def _propose_content(
    content: ItemContent, replay: EventReplay, users: UserLog, snapshots: Snapshots, block_range: BlockRange
) -> GivenCandidates:
    """New items with similar content, in addition to the proposed candidates."""
    whole, selected = replay.whole, _slice(snapshots, block_range.first, block_range.last)
    end = content.learned_until if replay.history.has_times else whole.timeline.end
    sets = content.propose(users, selected, whole.timeline.first_sales, end, replay.rules.per_source)
    before = np.zeros(block_range.first, np.int64)  # numbers count from the first snapshot of all blocks
    return GivenCandidates(read_only(np.concatenate([before, sets.indptr])), read_only(sets.items), False)


def _add_content(
    block: FeatureRows, users: UserLog, snapshots: Snapshots, content: ItemContent, solutions: Solutions
) -> FeatureRows:
    selected = _slice(snapshots, block.first, block.first + block.non_empty.size)
    more = content.features(
        users, solutions[0].together, selected, read_only(block.indptr), read_only(block.items)
    )
    return block._replace(features=np.concatenate([block.features, more], axis=1))


def _slice(snapshots: Snapshots, first: int, last: int) -> Snapshots:
    return Snapshots(snapshots.user[first:last], snapshots.at[first:last], snapshots.target[first:last])


def _plan_blocks(
    replay: EventReplay, snapshots: Snapshots, given: GivenCandidates, has_content: bool
) -> list[BlockRange]:
    """Divide into blocks of at most BLOCK snapshots and BLOCK_ROWS candidates, one solution of each kind."""
    most = 0 if given.only else (MAX_SOURCES + has_content) * replay.rules.per_source
    most += int(row_lengths(given.starts).max(initial=0))
    size = max(1, min(BLOCK, BLOCK_ROWS // max(most, 1)))
    whole = replay.whole
    links, ease = (rolling.solutions_before(snapshots.at) for rolling in (whole.links, whole.ease))
    edges = np.flatnonzero(np.diff(links + ease, prepend=-1, append=-1))  # both only grow
    return [
        BlockRange(first, min(first + size, int(end)), int(links[first]), int(ease[first]))
        for begin, end in pairwise(edges)
        for first in range(begin, end, size)
    ]


def _run_in_order(
    prepare: Callable[[int], T], compute: Callable[[int, T], FeatureRows], n: int, n_workers: int
) -> Iterator[FeatureRows]:
    """compute(0, prepare(0)) … compute(n - 1, prepare(n - 1)), in order, by the threads of a pool.

    A call starts after the one `n_workers` before it has ended; this thread prepares all of them.
    """
    with open_pool(n_workers) as pool:
        running = deque(pool.submit(compute, number, prepare(number)) for number in range(n_workers))
        for number in range(n):
            block = running.popleft().result()
            if number + n_workers < n:
                running.append(pool.submit(compute, number + n_workers, prepare(number + n_workers)))
            yield block


def _compute_block(
    replay: EventReplay,
    state: ReplayState,
    users: UserLog,
    snapshots: Snapshots,
    given: GivenCandidates,
    block_range: BlockRange,
    solutions: Solutions,
    negative_rate: float,
) -> FeatureRows:
    first, last = block_range.first, block_range.last
    n_rows = 0 if given.only else (last - first) * MAX_SOURCES * replay.rules.per_source
    if given.starts.size:
        n_rows += int(given.starts[last] - given.starts[first])
    out = FeatureRows(
        first,
        np.zeros(last - first + 1, np.int64),
        np.empty(n_rows, np.int32),
        np.empty((n_rows, N_FEATURES + N_CLOCK_FEATURES * replay.rules.has_clock), np.float32),
        np.empty(n_rows, np.bool_),
        np.empty((last - first, N_USER_FEATURES), np.float32),
        np.empty(last - first, np.bool_),
    )
    log, scratch = replay.whole.timeline.log, replay.take_scratch()
    rate = float(negative_rate)
    fill_features(log, state, users, replay.rules, solutions, scratch, snapshots, given, rate, out)
    replay.return_scratch(scratch)
    n = out.indptr[-1]
    return out._replace(items=out.items[:n], features=out.features[:n], labels=out.labels[:n])
