"""Training examples of TwoStage: candidates of users just before baskets that are known."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.ragged import row_owners
from shortlist.core.threads import open_pool, thread_count
from shortlist.errors import DataError
from shortlist.kernels.snapshot_features import Snapshots
from shortlist.models.two_stage.content import ItemContent
from shortlist.models.two_stage.features import PROPOSED, compute_features
from shortlist.models.two_stage.snapshots import EventReplay, select_last_snapshots
from shortlist.models.two_stage.trees import Text, TreeParams, fit_trees, grow_trees, take_examples
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
) -> Examples:
    """The candidates of the last baskets: all that were bought, and a share of the others."""
    whole, log = replay.whole, replay.whole.timeline.log
    snapshots = select_last_snapshots(log, n_snapshots)
    used = np.zeros(snapshots.user.size, np.bool_)
    features, parts = RowBuffer(), []
    for block in compute_features(
        replay, log.users, snapshots, PROPOSED, whole.quantities, content, negative_rate
    ):
        used[block.numbers] = block.non_empty
        owner = block.numbers[row_owners(block.indptr)]
        parts.append((owner, block.items.copy(), block.labels.copy(), block.user_features))
        features.append(block.features)
    if not any(rows[2].any() for rows in parts):
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


SIZE_PARAMS = TreeParams(objective="poisson", n_rounds=150, lr=0.05, n_leaves=15, rows=0.7)


def train_ensembles(
    examples: Examples,
    binned: Any,  # (n_rows, n_features) the features to use, from `bin_columns`
    params: TreeParams,  # of the ranking trees
    n_bags: int,
    seed: int,
) -> list[Text]:
    """The ranking ensembles and the one that predicts sizes, as texts.

    Each is trained on one thread, so that the number of threads does not change the bits.
    If there are several, each one sees half of the candidates that were not bought: that takes half the
    time, and the average is as good.
    """
    half = np.random.default_rng(seed).integers(0, 2, examples.labels.size, np.int8)

    def train(bag: int) -> Text:
        if bag == n_bags:
            return fit_trees(examples.user_features, examples.sizes, None, SIZE_PARAMS)
        bag_params = replace(params, seed=seed * n_bags + bag)
        if n_bags == 1:
            return grow_trees(binned, bag_params)
        rows = np.flatnonzero(examples.labels | (half == bag % 2)).astype(np.int32)
        weight = np.where(examples.labels, 1, 2).astype(np.float32) * examples.weight
        return grow_trees(take_examples(binned, rows, weight[rows]), bag_params)

    with open_pool(thread_count()) as pool:
        return list(pool.map(train, range(n_bags + 1)))
