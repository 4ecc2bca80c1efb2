"""Train a factor model on ranges of users in files, and save it in shards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.engine import Engine
from shortlist.core.serialization import save_artifact
from shortlist.cutoff.base import Cutoff
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.data.ranges import NO_IDS, UserRanges, UserSlices, without_rows
from shortlist.errors import DataError
from shortlist.kernels.sgd import Parameters
from shortlist.models.factorization.model import FactorModel, FactorState, collect_statistics, fit_sizes
from shortlist.models.factorization.parameters import freeze, mean_of_sums
from shortlist.models.factorization.representation import GrowingTrend
from shortlist.models.factorization.training import Evaluator, TrainingTask, train
from shortlist.types import Ints


@dataclass(frozen=True, eq=False)
class Shard:
    """What the files of all workers have in common."""

    model: FactorModel
    data: UserRanges
    state: FactorState  # without users
    mean: dict[str, Any]  # the parameters of the mean user

    def save(self, path: Path, users: UserSlices, parameters: Parameters) -> None:
        """Write the model of some users; their rows go to the file slice by slice."""
        model, data = self.model, self.data
        rows = users.store(data.items, data.item_names, data.source, data.totals)
        state = model._with_fingerprint(replace(self.state, parameters=freeze(parameters)))
        save_artifact(path, model._artifact(state, rows))


def train_files(
    model: FactorModel,
    data: UserRanges,
    folder: Path,
    engine: Engine,
    *,
    cutoff: Cutoff | None = None,
    progress: Callable[[Any], None] | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Train on the workers of the engine; each of them saves a shard in `folder`."""
    for what, n in (("user", data.n_users), ("item", data.n_items)):
        if n < 2:
            raise DataError(f"interactions must have at least two {what}s, got {n}; use more data.")
    plain, columns = model._unfitted(), data.source.columns
    whole = History(without_rows(NO_IDS, data.items), NO_IDS, data.items, None, counted=data.totals)
    plain.choose_params(has_times="timestamp" in columns, has_repeats=whole.has_repeats)
    plain.check_rows("timestamp" in columns, bool((np.diff(data.basket_starts) > 1).any()))
    plain.weight_transform.check_weights("weight" in columns)
    statistics = collect_statistics(plain, data, engine)
    trend = GrowingTrend.grow(statistics.trend, is_shared=True)
    start = plain._initializer(statistics, data.n_items)
    task = TrainingTask(model=plain, rows=data, statistics=statistics, start=start)
    names = data.digest, None if data.held is None else "last_basket"
    evaluator = _build_evaluator(plain, data, trend)
    training = plain.training_options(task, names, evaluator, checkpoint, progress)
    trainer_of: Any = engine.open_trainer(task)
    with trainer_of as trainer:
        run = train(trainer, plain.lr, training)
        mean = mean_of_sums(trainer.user_sums(), statistics.trained_users)
        empty, sizes = without_rows(NO_IDS, data.items), fit_sizes(statistics)
        state = plain.build_state(empty, task.start(0, 0), mean, run, trend, sizes)
        none = np.zeros(1, np.int64)  # shards do not need what grows with the users
        starts: dict[str, Any] = dict.fromkeys(
            ("range_starts", "set_starts", "row_starts", "basket_starts"), none
        )
        shard = Shard(plain, replace(data, held=None, **starts), replace(state, cutoff=cutoff), mean)
        trainer.save_shards(shard, folder)


def _build_evaluator(model: FactorModel, data: UserRanges, trend: GrowingTrend | None) -> Evaluator | None:
    """What scores the parameters on the held-out baskets of a sample of users."""
    if data.held is None:
        return None
    users = np.flatnonzero(data.held).astype(np.int32)
    if not users.size:
        raise DataError("valid needs users with at least two baskets, got none; omit valid.")

    def held_rows(users: Ints) -> Interactions:
        return data.take(users).interactions(data.items, held=True)

    def other_rows(users: Ints) -> Interactions:
        return data.take(users).interactions(data.items)

    whole = History(without_rows(NO_IDS, data.items), NO_IDS, data.items, None, counted=data.totals)
    return model.evaluator(users, held_rows, other_rows, whole.has_repeats, trend)
