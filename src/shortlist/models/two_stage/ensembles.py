"""Training of the trees of TwoStage: several ensembles that rank, and one that predicts basket sizes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.threads import thread_count
from shortlist.core.trees import Text, TreeParams, fit_trees, grow_trees, take_rows
from shortlist.models.two_stage.examples import Examples

SIZE_PARAMS = TreeParams(objective="poisson", n_rounds=150, lr=0.05, n_leaves=15, rows=0.7)


class Ensembles(NamedTuple):
    """Trained trees, as text."""

    ranker: tuple[Text, ...]
    sizes: Text


def train_ensembles(
    examples: Examples,
    binned: Any,  # (n_rows, n_features) the features to use, from `bin_columns`
    params: TreeParams,  # of the ranking trees
    n_bags: int,
    seed: int,
    n_threads: int,
) -> Ensembles:
    """Train each ensemble on one thread, so that the number of threads does not change the bits.

    If there are several, each one sees half of the candidates that were not bought: that takes half the
    time, and the average is as good.
    """
    half = np.random.default_rng(seed).integers(0, 2, examples.labels.size, np.int8)

    def train(bag: int) -> Text:
        if bag == n_bags:
            return fit_trees(examples.user_features, examples.sizes, None, SIZE_PARAMS)
        own = replace(params, seed=seed * n_bags + bag)
        if n_bags == 1:
            return grow_trees(binned, own)
        rows = np.flatnonzero(examples.labels | (half == bag % 2)).astype(np.int32)
        weight = np.where(examples.labels, 1, 2).astype(np.float32) * examples.weight
        return grow_trees(take_rows(binned, rows, weight[rows]), own)

    with ThreadPoolExecutor(thread_count(n_threads)) as pool:
        *ranker, sizes = pool.map(train, range(n_bags + 1))
    return Ensembles(tuple(ranker), sizes)
