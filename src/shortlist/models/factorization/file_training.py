"""Train a factor model on ranges of users in files, and save it in shards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.engine import Engine
from shortlist.core.ragged import ItemSets, no_sets
from shortlist.data.history import History
from shortlist.data.user_ranges import UserRanges
from shortlist.data.user_slices import without_rows
from shortlist.errors import DataError
from shortlist.kernels.hrm import USER_TREND_START
from shortlist.models.factorization.engine import FactorModel
from shortlist.models.factorization.file_task import BasketReader, FileTask, RowReader, SetReader
from shortlist.models.factorization.hrm import HRM, SideData
from shortlist.models.factorization.objective import single_precision
from shortlist.models.factorization.parameters import mean_of_sums, parameter_shapes
from shortlist.models.factorization.range_statistics import DataStatistics, collect_statistics
from shortlist.models.factorization.shards import NO_USERS, Shard
from shortlist.models.factorization.training import TrainingOptions, train
from shortlist.models.factorization.trend import GrowingTrend
from shortlist.models.factorization.validation import Evaluator, draw_users


def train_files(
    model: FactorModel,
    data: UserRanges,
    folder: Path,
    engine: Engine,
    progress: Callable[[Any], None] | None,
    checkpoint: Path | None,
) -> None:
    """Train on the workers of the engine; each of them saves a shard in `folder`."""
    for what, n in (("user", data.n_users), ("item", data.n_items)):
        if n < 2:
            raise DataError(f"interactions must have at least two {what}s, got {n}; use more data.")
    plain = type(model)(**model.get_params())
    has_pairs = data.basket_starts is None or bool((np.diff(data.basket_starts) > 1).any())
    plain.check_rows("timestamp" in data.source.columns, has_pairs)
    found = collect_statistics(plain, data, engine)
    side = _side(plain, found)
    weights = _start_weights(plain, found)
    task = FileTask(
        start=plain._initializer(weights, data.n_items),
        data=data,
        representation=_reader(plain, data, found),
        objective=plain.objective(),
        hyper=single_precision(plain._hyperparameters()),
        n_factors=plain.n_factors,
        seed=plain.seed,
        n_threads=plain.n_threads,
        examples_per_group=_examples_per_group(plain, found),
    )
    training = TrainingOptions(
        n_epochs=plain.n_epochs,
        patience=plain.patience,
        tol=plain.tol,
        shapes=parameter_shapes(data.n_users, data.n_items, plain.n_factors, plain.bias, plain.terms_on),
        identity=plain._identity(data.digest, None if data.held is None else "last_basket"),
        checkpoint=checkpoint,
        progress=progress,
        evaluator=build_file_evaluator(plain, data, side),
    )
    trainer_of: Any = engine.open_trainer(task)
    with trainer_of as trainer:
        run = train(trainer, plain.lr, training)
        mean = mean_of_sums(trainer.user_sums(), found.trained_users)
        shard = Shard(
            plain,
            data.items,
            data.item_names,
            data.source,
            data.totals,
            mean,
            run,
            side,
            found.next_size,
        )
        trainer.save_shards(shard, folder)


def _reader(model: FactorModel, data: UserRanges, found: DataStatistics) -> RowReader:
    if isinstance(model, HRM):
        return BasketReader(model, data.n_items, found.repeat_start or 0.0, found.trend)
    return SetReader()


def _start_weights(model: FactorModel, found: DataStatistics) -> tuple[float | None, ...]:
    """As `start_weights` of the model, from the statistics."""
    repeats, has_trend = found.repeat_start, found.trend is not None
    return repeats, float(USER_TREND_START) if has_trend else None


def _side(model: FactorModel, found: DataStatistics) -> Any:
    """What scores need of the rows of all users."""
    if not isinstance(model, HRM):
        return None
    trend = None
    if found.trend is not None and model.trend_half_life is not None:
        trend = GrowingTrend.grow(found.trend, model.trend_half_life, is_shared=True)
    return SideData(None, trend)


def _examples_per_group(model: FactorModel, found: DataStatistics) -> float | None:
    """As in `UniformExamples.of`."""
    objective = model.objective()
    if not objective.has_uniform_examples:
        return None
    return objective.alpha * found.trained_rows / max(found.trained_groups, 1)


def build_file_evaluator(model: FactorModel, data: UserRanges, side: Any) -> Evaluator | None:
    """What scores the parameters on the held-out baskets of a sample of users; as `build_evaluator`."""
    if data.held is None:
        return None
    users = draw_users(np.flatnonzero(data.held).astype(np.int32), model.seed)
    if not users.size:
        raise DataError("valid needs users with at least two baskets, got none; omit valid.")
    held, times = data.take(users).interactions(data.items, held=True), None
    if held.time is not None:
        times = held.time[held.indptr[:-1]]
        order = np.argsort(times, kind="stable")
        users, times = users[order], times[order]
        held = data.take(users).interactions(data.items, held=True)
    own = data.take(users).interactions(data.items)
    own_side = model.request_side_data(side, own)
    whole = History(without_rows(NO_USERS, data.items), NO_USERS, data.items, None, counted=data.totals)
    return Evaluator(
        users,
        times,
        ItemSets(*held.item_sets),
        no_sets(users.size) if whole.has_repeats else ItemSets(*own.item_sets),
        model.trained_users(own),
        lambda theta, rows, at: model.dense_scores(theta, own, own_side, rows, at),
        data.n_items,
    )
