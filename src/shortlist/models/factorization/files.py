"""Train a factor model on ranges of users in files, and save it in shards."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.engine import Engine
from shortlist.core.ragged import ItemSets, no_sets, starts
from shortlist.core.serialization import save_artifact
from shortlist.cutoff.basket_size import N_HISTORY_COLUMNS, BasketSize
from shortlist.data.columns import DataSource
from shortlist.data.history import History, Totals
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranges import UserRanges, UserSlices, without_rows
from shortlist.errors import DataError, ModelFileError
from shortlist.kernels.sgd import USER_TREND_START, Parameters
from shortlist.models.factorization.hrm import HRM, SideData
from shortlist.models.factorization.model import DynamicK, FactorModel, fit_sizes, size_examples
from shortlist.models.factorization.objective import single_precision
from shortlist.models.factorization.parameters import freeze, mean_of_sums, parameter_shapes
from shortlist.models.factorization.representation import (
    GrowingTrend,
    HybridFactors,
    RepeatTotals,
    Representation,
    Trend,
    UserFactors,
    add_sales,
    count_sales,
)
from shortlist.models.factorization.schedule import Partition, UniformExamples, choose_partition
from shortlist.models.factorization.trainer import BY_USER, ShareRows, TrainingTask
from shortlist.models.factorization.training import (
    Evaluator,
    TrainingOptions,
    TrainingState,
    draw_users,
    train,
)
from shortlist.types import Bools, Doubles, Ints, Longs


class LoadedRows(NamedTuple):
    """The rows of some users, as training needs them."""

    groups: tuple[Any, Any, Any]  # (indptr, item, group_starts)
    representation: Representation
    trained: Bools  # (n_users,) whether training has pairs of the user


class RowReader(ABC):
    """Reads the rows of a worker's users."""

    min_blocks: int

    @abstractmethod
    def read(self, users: UserSlices) -> LoadedRows:
        """Read the rows of these users."""

    @abstractmethod
    def row_starts(self, data: UserRanges) -> Longs:
        """(n_users + 1,) where the rows of each user start."""

    @abstractmethod
    def group_starts(self, data: UserRanges) -> Longs | None:
        """(n_users + 1,) where the groups of each user start; None: a group is a user."""


class SetReader(RowReader):
    """Of matrix factorization: the rows are the distinct items of each user, and a group is a user."""

    min_blocks = UserFactors.min_blocks

    def read(self, users: UserSlices) -> LoadedRows:
        indptr, item = users.item_sets()
        groups = indptr, item, np.arange(indptr.size, dtype=np.int64)
        return LoadedRows(groups, UserFactors(), np.diff(indptr) > 0)

    def row_starts(self, data: UserRanges) -> Longs:
        return data.set_starts

    def group_starts(self, data: UserRanges) -> Longs | None:
        return None


@dataclass(frozen=True, eq=False)
class BasketReader(RowReader):
    """Of HRM and DKHRM: the groups are baskets."""

    model: HRM  # not fitted
    n_items: int
    repeat_start: float
    trend: Trend | None

    min_blocks = HybridFactors.min_blocks

    def read(self, users: UserSlices) -> LoadedRows:
        data = users.interactions(number_items(self.n_items))
        factors = self.model.hybrid_factors(data, self.repeat_start, self.trend)
        return LoadedRows(factors.groups(data), factors, self.model.trained_users(data))

    def row_starts(self, data: UserRanges) -> Longs:
        assert data.row_starts is not None
        return data.row_starts

    def group_starts(self, data: UserRanges) -> Longs | None:
        return data.basket_starts


@dataclass(frozen=True, kw_only=True, eq=False)
class FileTask(TrainingTask):
    """A task whose rows are in ranges of users in files: `data` are UserRanges, `representation` reads."""

    examples_per_group: float | None = None  # None: no examples are drawn from all items

    @property
    def row_starts(self) -> Longs:
        found: Longs = self.representation.row_starts(self.data)
        return found

    @property
    def partition(self) -> Partition:
        n_rows, blocks = int(self.row_starts[-1]), self.representation.min_blocks
        return choose_partition(n_rows, self.data.n_users, self.data.n_items, self.n_factors, blocks)

    @property
    def examples(self) -> UniformExamples | None:
        """Without the groups that are trained, which the workers find."""
        if self.examples_per_group is None:
            return None
        return UniformExamples(np.empty(0, np.bool_), self.examples_per_group)

    def share(self, first: int, last: int, examples: UniformExamples | None) -> ShareRows:
        begin, end = int(self.row_starts[first]), int(self.row_starts[last])
        groups = self.representation.group_starts(self.data)
        first_group = first if groups is None else int(groups[first])
        return ShareRows(first_group, begin, end, self.data.users(first, last), self.representation, examples)


def number_items(n_items: int) -> IdMap:
    """Ids for items whose own ids are not needed."""
    return IdMap(pl.Series(np.arange(n_items)))


Sales = tuple[Longs, Longs]  # keys of items with days, and counts
Sizes = tuple[Doubles, Ints]  # what is known before the last baskets, and their sizes


class RangeStatistics(NamedTuple):
    """Of the users of one range; None: the model does not need it."""

    trained_users: int  # users with training pairs
    trained_groups: int  # groups with training pairs
    trained_rows: int  # rows of these groups
    repeats: RepeatTotals | None
    sales: Sales | None
    sizes: Sizes | None


class DataStatistics(NamedTuple):
    """Of all users."""

    trained_users: int
    trained_groups: int
    trained_rows: int
    repeat_start: float | None  # initial weight of the repeat term
    trend: Trend | None
    next_size: BasketSize | None


def collect_statistics(model: FactorModel, data: UserRanges, engine: Engine) -> DataStatistics:
    """Read all rows once more, if the model needs more than counts."""
    if not isinstance(model, HRM) and not (isinstance(model, DynamicK) and model.maximizes_f1):
        n_rows = int(data.set_starts[-1])
        return DataStatistics(data.n_users, data.n_users, n_rows, None, None, None)
    measure = partial(measure_range, model, data.n_items, data.n_users)
    parts: list[RangeStatistics] = []
    sales: Sales = np.empty(0, np.int64), np.empty(0, np.int64)
    for part in engine.map(measure, list(data.each_range())):
        if part.sales is not None:
            sales = add_sales([sales, part.sales])
        parts.append(part._replace(sales=None))
    half_life = model.trend_half_life if isinstance(model, HRM) else None
    totals = data.totals
    trend = None
    if half_life is not None:
        trend = Trend.build(*sales, data.n_items, half_life, totals.end_time)
    return DataStatistics(
        sum(part.trained_users for part in parts),
        sum(part.trained_groups for part in parts),
        sum(part.trained_rows for part in parts),
        _repeat_start([part.repeats for part in parts], data),
        trend,
        _fit_next_size(part.sizes for part in parts),
    )


def _repeat_start(parts: list[RepeatTotals | None], data: UserRanges) -> float | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    joined = RepeatTotals(*(sum(column) for column in zip(*found, strict=True)))
    return joined.initial_weight(data.totals.n_rows, data.totals.n_baskets, data.n_items)


def _fit_next_size(parts: Iterable[Sizes | None]) -> BasketSize | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    columns = np.concatenate([np.empty((0, N_HISTORY_COLUMNS)), *(part[0] for part in found)])
    return fit_sizes(columns, np.concatenate([part[1] for part in found]))


def measure_range(
    model: FactorModel, n_items: int, n_users: int, task: tuple[int, UserSlices]
) -> RangeStatistics:
    """The statistics of one range, whose first user and users are given."""
    first_user, users = task
    data = users.interactions(number_items(n_items))
    trained = model.trained_users(data)
    groups, rows, repeats, sales = int(trained.sum()), data.n_rows, None, None
    if isinstance(model, HRM):
        first = data.user_baskets[:-1][np.diff(data.user_baskets) > 0]  # a first basket has no context
        groups, rows = data.n_baskets - first.size, data.n_rows - int(np.diff(data.baskets)[first].sum())
        repeats = None if model.repeat_decay is None else RepeatTotals.of(data, model.repeat_decay)
        sales = None if model.trend_half_life is None else count_sales(data)
    else:
        rows = int(data.item_sets[0][-1])
    sizes = None
    if isinstance(model, DynamicK) and model.maximizes_f1:
        sizes = size_examples(data, first_user, n_users)
    return RangeStatistics(int(trained.sum()), groups, rows, repeats, sales, sizes)


NO_USERS = IdMap(pl.Series([], dtype=pl.Int64))
NAME = re.compile(r"shard-(\d{5})-of-(\d{5})\.shortlist")


@dataclass(frozen=True, eq=False)
class Shard:
    """What the files of all workers have in common."""

    model: FactorModel
    items: IdMap
    item_names: pl.Series | None
    source: DataSource | None
    totals: Totals  # of all users
    mean: dict[str, Any]  # the parameters of the mean user
    run: TrainingState
    side: Any  # what scores need of the rows of all users
    next_size: BasketSize | None

    def save(self, path: Path, users: UserSlices, parameters: Parameters) -> None:
        """Write the model of some users; their rows go to the file part by part."""
        model, rows = self.model, users.store(self.items, self.item_names, self.source, self.totals)
        empty = without_rows(NO_USERS, self.items)
        state = model._build_state(empty, freeze(parameters), self.mean, self.run, self.side, self.next_size)
        save_artifact(path, model._artifact(model._with_fingerprint(state), rows))


def shard_paths(folder: Path, n: int) -> list[Path]:
    """The files of n shards."""
    return [folder / f"shard-{number:05}-of-{n:05}.shortlist" for number in range(n)]


def remove_shards(folder: Path) -> None:
    """Remove the files of shards."""
    for path in folder.iterdir():
        if NAME.fullmatch(path.name):
            path.unlink(missing_ok=True)


def find_shards(folder: Path) -> list[Path]:
    """The files of all shards of a folder."""
    found = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
    match = NAME.fullmatch(found[0].name) if found else None
    expected = shard_paths(folder, 0 if match is None else int(match[2]))
    if not found or found != expected:
        missing = next((path.name for path in expected if path not in found), "shard-00000-of-…")
        raise ModelFileError(
            f"{folder} must hold all shards of one model, but {missing} is missing or others are there too; "
            "run fit_to_folder again."
        )
    return found


def join_shards(models: list[Any], folder: Path) -> Any:
    """One model with the users of all shards; the same, bit for bit, as if it had been fitted whole."""
    first, states = models[0], [model._fitted_state() for model in models]
    for model, state in zip(models, states, strict=True):
        alike = type(model) is type(first) and model.get_params() == first.get_params()
        if not alike or state.history.items != states[0].history.items:
            raise ModelFileError(f"{folder} must hold shards of one model; load them one by one.")
    users = {name: np.concatenate([getattr(state.parameters, name) for state in states]) for name in BY_USER}
    history = join_users([state.history.merged for state in states])
    parameters = freeze(states[0].parameters._replace(**users))
    state = replace(
        states[0], history=History.of(history), parameters=parameters, side=first.side_data(history)
    )
    whole = type(first)(**first.get_params())
    whole._state = whole._with_fingerprint(state)
    return whole


def join_users(parts: list[Interactions]) -> Interactions:
    """The rows of several Interactions over the same items; their users follow each other."""

    def stack(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    def offsets(name: str) -> Any:
        return starts(np.concatenate([np.diff(getattr(part, name)) for part in parts]))

    for one, other in pairwise(parts):
        if one.users.values.dtype != other.users.values.dtype:
            raise ModelFileError("the users of all shards must have ids of one type; fit the model again.")
    return replace(
        parts[0],
        users=IdMap(pl.concat([part.users.values for part in parts])),
        indptr=offsets("indptr"),
        item=stack("item"),
        baskets=offsets("baskets"),
        user_baskets=offsets("user_baskets"),
        time=stack("time"),
        weight=stack("weight"),
        duplicates=sum(part.duplicates for part in parts),
    )


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
