"""The features of snapshots, computed by the threads of this process or by the tasks of a cluster."""

from collections.abc import Iterator
from functools import partial

from shortlist.core.engine import Engine, ThreadEngine
from shortlist.kernels.snapshots import Snapshots
from shortlist.models.two_stage.content import ItemContent
from shortlist.models.two_stage.features import PROPOSED, Block, compute_features
from shortlist.models.two_stage.snapshots import EventReplay

SLICE = 2048  # snapshots that a task on a cluster computes


def compute_blocks_on(
    engine: Engine,
    replay: EventReplay,
    snapshots: Snapshots,
    n_threads: int,
    content: ItemContent | None,
    negative_rate: float,
) -> Iterator[Block]:
    """The features of the snapshots, in order; on a cluster, each task computes a slice of them."""
    if isinstance(engine, ThreadEngine):
        users, quantities = replay.layout.log.users, replay.layout.quantities
        yield from compute_features(
            replay, users, snapshots, PROPOSED, n_threads, quantities, content, negative_rate
        )
        return
    n = snapshots.user.size
    slices = [slice(first, min(first + SLICE, n)) for first in range(0, n, SLICE)]
    for blocks in engine.map(partial(_compute_slice, replay, snapshots, content, negative_rate), slices):
        yield from blocks


def _compute_slice(
    replay: EventReplay, snapshots: Snapshots, content: ItemContent | None, negative_rate: float, part: slice
) -> list[Block]:
    """The blocks of some consecutive snapshots; they do not depend on how the snapshots are divided."""
    own, layout = Snapshots(snapshots.user[part], snapshots.at[part], snapshots.target[part]), replay.layout
    blocks = compute_features(
        replay, layout.log.users, own, PROPOSED, 1, layout.quantities, content, negative_rate
    )
    return [block._replace(first=block.first + part.start) for block in blocks]
