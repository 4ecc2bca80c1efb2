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
    used = np.zeros(snapshots.user.size, np.bool_)
    features, parts = RowBuffer(), []
    for block in compute_blocks_on(engine, replay, snapshots, n_threads, content, negative_rate):
        numbers = block.first + np.arange(block.indptr.size - 1)
        used[numbers] = block.non_empty
        owner = np.repeat(numbers, np.diff(block.indptr))
        parts.append((owner, block.items.copy(), block.labels.copy(), block.user_features))
        features.append(block.features)
    if not any(part[2].any() for part in parts):
        raise DataError(
            "TwoStage needs users whose later baskets contain a proposed item, got none; "
            "add users with two or more baskets, or use Popularity or PersonalFrequency."
        )
    owner, items, y, user_features = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Examples(
        replay=replay,
        snapshots=Snapshots(snapshots.user[used], snapshots.at[used], snapshots.target[used]),
        owner=(np.cumsum(used) - 1)[owner],
        items=items,
        features=features.finish(),
        labels=y,
        weight=np.where(y, 1.0, 1 / negative_rate).astype(np.float32),
        user_features=user_features,
        sizes=np.diff(log.users.baskets)[snapshots.target[used]].astype(np.float64),
        content=content,
    )


class RowBuffer:
    """Rows that arrive block by block. The buffer grows in place, so that no second copy is needed."""

    def __init__(self) -> None:
        self._rows: Floats = np.empty((0, 0), np.float32)
        self._n = 0

    def append(self, rows: Floats) -> None:
        end = self._n + rows.shape[0]
        if end > self._rows.shape[0] or self._n == 0:
            self._rows.resize((end + end // 8, rows.shape[1]), refcheck=False)
        self._rows[self._n : end] = rows
        self._n = end

    def finish(self) -> Floats:
        """All rows. The buffer must not be used afterwards."""
        self._rows.resize((self._n, self._rows.shape[1]), refcheck=False)
        return self._rows
