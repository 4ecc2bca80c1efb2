"""Training examples of TwoStage: candidates of users just before baskets that are known."""

from typing import NamedTuple

import numpy as np

from shortlist.core.engine import Engine
from shortlist.errors import DataError
from shortlist.kernels.snapshots import Snapshots
from shortlist.models.two_stage.content import ItemContent
from shortlist.models.two_stage.slices import compute_blocks_on
from shortlist.models.two_stage.snapshots import EventReplay, select_last_snapshots
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


class Examples(NamedTuple):
    """Training examples: candidates of snapshots, and the snapshots' users; from `compute_examples`."""

    replay: EventReplay  # the data that the examples come from
    snapshots: Snapshots  # (n_snapshots,) users just before a basket
    owner: Longs  # (n_rows,) snapshot of each candidate
    items: Ints  # (n_rows,)
    features: Floats  # (n_rows, N_FEATURES) or more
    labels: Bools  # (n_rows,) whether the user bought the candidate next
    weight: Floats  # (n_rows,)
    user_features: Floats  # (n_snapshots, n)
    sizes: Doubles  # (n_snapshots,) sizes of the baskets that followed
    content: ItemContent | None = None


def collect_examples(
    replay: EventReplay,
    content: ItemContent | None,
    n_snapshots: int,
    negative_rate: float,
    n_threads: int,
    engine: Engine,
) -> Examples:
    """The candidates of the last baskets: all that were bought, and a share of the others."""
    log = replay.layout.log
    snapshots = select_last_snapshots(log, n_snapshots)
    used, parts = np.zeros(snapshots.user.size, np.bool_), []
    for block in compute_blocks_on(engine, replay, snapshots, n_threads, content, negative_rate):
        numbers = block.first + np.arange(block.indptr.size - 1)
        used[numbers] = block.non_empty
        owner = np.repeat(numbers, np.diff(block.indptr))
        parts.append((owner, block.items.copy(), block.features.copy(), block.labels, block.user_features))
    if not any(part[3].any() for part in parts):
        raise DataError(
            "TwoStage needs users whose later baskets contain a proposed item, got none; "
            "add users with two or more baskets, or use Popularity or PersonalFrequency."
        )
    columns = [list(each) for each in zip(*parts, strict=True)]
    parts.clear()
    owner, items, features, y, user_features = (np.concatenate(columns.pop(0)) for _ in range(5))
    return Examples(
        replay=replay,
        snapshots=Snapshots(snapshots.user[used], snapshots.at[used], snapshots.target[used]),
        owner=(np.cumsum(used) - 1)[owner],
        items=items,
        features=features,
        labels=y,
        weight=np.where(y, 1.0, 1 / negative_rate).astype(np.float32),
        user_features=user_features,
        sizes=np.diff(log.users.baskets)[snapshots.target[used]].astype(np.float64),
        content=content,
    )
