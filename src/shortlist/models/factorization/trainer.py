"""Trainer: holds the parameters while they are trained. An engine decides where it keeps them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from shortlist.core.engine import thread_count
from shortlist.core.ragged import starts
from shortlist.data.ranges import UserSlices
from shortlist.kernels.rng import stream
from shortlist.kernels.sgd import TERMS, Hyperparameters, Parameters, permute_rows
from shortlist.models.base import COUNT_ROWS, WeightTransform
from shortlist.models.factorization.objective import LossRows, LossTracker, Objective, draw_rows
from shortlist.models.factorization.parameters import ItemFeatures, SharedSteps, freeze
from shortlist.models.factorization.schedule import (
    Partition,
    Schedule,
    UniformExamples,
    choose_partition,
    random_bits,
)
from shortlist.types import Doubles, Floats, Ints, Longs

VISITS = 9  # id of a random stream
MAX_MEAN = 4.0  # visits per row and epoch; larger weights are all divided by the same number


def count_row_visits(amounts: Doubles, seed: int) -> Longs:
    """(n_rows,) visits per epoch: the amount, rounded up or down at random, at least 1; 0 if it is negative.

    The numbers depend on the seed and on the row's place alone. A row of positive weight is visited at least
    once: one without any visit would be sampled as an item that the user does not have.
    """
    liked = amounts > 0
    mean = float(amounts[liked].mean()) if liked.any() else 1.0
    wanted = amounts * min(1.0, MAX_MEAN / mean)
    whole = np.floor(wanted)
    bits = random_bits(stream(seed, VISITS)[0], np.arange(amounts.size, dtype=np.uint64))
    drawn = whole + ((bits >> np.uint64(11)) * 2.0**-53 < wanted - whole)
    return np.where(liked, np.maximum(drawn, 1), 0).astype(np.int64)


def repeat_rows(groups: tuple[Longs, Ints, Longs], amounts: Doubles, seed: int) -> tuple[Longs, Ints, Longs]:
    """The groups of `Representation.groups` with every row as often as it is visited."""
    indptr, item, group_starts = groups
    visits = count_row_visits(amounts, seed)
    return starts(visits)[indptr], np.repeat(item, visits), group_starts


BY_ITEM = ("item", "bias", *(by_item for _, by_item in TERMS))  # parameters in the order of the labels
BY_USER = tuple(name for name in Parameters._fields if name not in BY_ITEM)


class ShareRows(NamedTuple):
    """What a worker with consecutive users needs of the data."""

    first_group: int
    first_row: int  # number of its first row, among all rows
    last_row: int  # one past its last
    groups: tuple[Any, Any, Any] | UserSlices  # groups of rows, or where to read them
    representation: Any  # of its users; or what reads it
    examples: UniformExamples | None  # of its groups


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingTask:
    """What to train, and from which parameters."""

    start: Callable[[int, int], Parameters]  # initial values of users first … last - 1 and of all items
    data: Any  # the rows that are visited: Interactions
    representation: Any  # a Representation
    objective: Objective
    hyper: Hyperparameters[np.float32]
    n_factors: int
    seed: int
    n_threads: int
    features: ItemFeatures | None = None  # the content of items, whose vectors are trained too
    transform: WeightTransform = COUNT_ROWS  # how often a row is visited

    @cached_property
    def groups(self) -> tuple[Any, Any, Any]:
        """The groups of rows; see `Representation.groups`."""
        found: tuple[Any, Any, Any] = self.representation.groups(self.data)
        if not self.transform.is_used:
            return found
        return repeat_rows(found, self.representation.amounts(self.data, self.transform), self.seed)

    @property
    def row_starts(self) -> Longs:
        """(n_users + 1,) where the rows of each user start."""
        indptr, _, group_starts = self.groups
        found: Longs = indptr[group_starts]
        return found

    @property
    def partition(self) -> Partition:
        """How finely users and items are divided."""
        data = self.data
        return choose_partition(
            int(self.row_starts[-1]),
            data.n_users,
            data.n_items,
            self.n_factors,
            self.representation.min_blocks,
        )

    @property
    def examples(self) -> UniformExamples | None:
        """The classification examples that are drawn from all items, if the objective has any."""
        indptr = self.groups[0]
        if not self.objective.has_uniform_examples:
            return None
        trained = self.representation.trained_groups(indptr)
        return UniformExamples.of(indptr, trained, self.objective.alpha)

    def share(self, first: int, last: int, examples: UniformExamples | None) -> ShareRows:
        """The rows of users first … last - 1."""
        indptr, item, group_starts = self.groups
        groups = slice(int(group_starts[first]), int(group_starts[last]))
        begin, end = int(indptr[groups.start]), int(indptr[groups.stop])
        own = (
            indptr[groups.start : groups.stop + 1] - begin,
            item[begin:end],
            group_starts[first : last + 1] - groups.start,
        )
        part = self.representation.part(first, last)
        return ShareRows(groups.start, begin, end, own, part, _take_groups(examples, groups))


def _take_groups(examples: UniformExamples | None, groups: slice) -> UniformExamples | None:
    """The examples of some groups."""
    return None if examples is None else examples._replace(trained=examples.trained[groups])


class Trainer(ABC):
    """The parameters in training. Item parameters leave it in the original order of the items."""

    slow_worker: str | None = None  # who took much longer than the others in the last epoch

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Release what training needed."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of steps of an epoch."""

    @property
    @abstractmethod
    def user_cuts(self) -> Longs:
        """The first user of each block, and the number of users."""

    @abstractmethod
    def prepare_epoch(self, epoch: int) -> None:
        """Prepare an epoch, and keep a copy of the parameters so that it can be undone."""

    @abstractmethod
    def run_epoch(self, epoch: int, step_factor: float) -> None:
        """Make one pass over the data with lr · step_factor; an exception may leave it incomplete."""

    @abstractmethod
    def undo_epoch(self) -> None:
        """Return to the parameters before the last epoch."""

    @abstractmethod
    def norms(self) -> dict[str, float]:
        """The norm of each of the parameters, also after an incomplete epoch."""

    @abstractmethod
    def loss(self) -> float:
        """The mean loss over a fixed sample of the training data."""

    @abstractmethod
    def user_rows(self, users: Ints) -> Parameters:
        """The parameters of these users, in their order, and of all items."""

    @abstractmethod
    def keep_best(self) -> None:
        """Remember the current parameters as the best ones."""

    @abstractmethod
    def load(self, epoch: int, theta: Parameters, best_epoch: int, best: Parameters | None) -> None:
        """Continue from the parameters after `epoch` epochs; the best ones are those of `best_epoch`."""

    @abstractmethod
    def current(self) -> dict[str, Any]:
        """The arrays of the current parameters, to be saved."""

    @abstractmethod
    def best(self) -> dict[str, Any]:
        """The arrays of the best parameters, to be saved; empty if there are none."""

    @abstractmethod
    def finish(self) -> Parameters:
        """End training; return the best parameters, or the current ones if there are no best ones."""

    def features(self) -> ItemFeatures | None:
        """The content of items with the trained vectors of its features; None without content."""
        return None


class ThreadTrainer(Trainer):
    """All parameters in the memory of this process, trained by its threads."""

    def __init__(self, task: TrainingTask) -> None:
        indptr, item, group_starts = task.groups
        self.pool = ThreadPoolExecutor(thread_count(task.n_threads))
        self.task, self.theta = task, task.start(0, task.data.n_users)
        self.label: Ints | None = None  # (n_items,) position of each item in theta; None: original order
        self.kept: Parameters | None = None
        self.before: list[Floats] = []  # copies of theta before the epoch
        self.shared = None if task.features is None else SharedSteps(task.features)
        self.schedule = Schedule(
            indptr,
            item,
            group_starts,
            task.data.n_items,
            task.partition,
            task.seed,
            self.pool,
            thread_count(task.n_threads),
            task.examples,
        )
        rows = LossRows.of(
            self.schedule, task.representation, *draw_rows(item.size, task.data.n_items, task.seed)
        )
        self.tracker = LossTracker(rows, task.objective)

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    @property
    def n_rows(self) -> int:
        return int(self.schedule.item.size)

    @property
    def user_cuts(self) -> Longs:
        return self.schedule.user_starts

    def prepare_epoch(self, epoch: int) -> None:
        if self.schedule.prepare(epoch):
            self.task.representation.relabel(self.schedule)
            self._relabel(self.schedule.label)
        if not self.before:
            self.before = [np.empty_like(array) for array in self.theta]
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(copy, array)
        if self.shared is not None:
            self.shared.begin_epoch(self.theta, self.schedule.label)

    def run_epoch(self, epoch: int, step_factor: float) -> None:
        schedule, representation = self.schedule, self.task.representation
        key, hyper = schedule.epoch_key(epoch), scale_steps(self.task.hyper, step_factor)
        for round_index in range(schedule.n_blocks):
            representation.run_round(schedule, round_index, self.theta, hyper, key)
            if self.shared is not None and self.shared.is_due(round_index, schedule.n_blocks):
                self.shared.share(self.theta)

    def undo_epoch(self) -> None:
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(array, copy)
        if self.shared is not None:
            self.shared.undo_epoch()

    def norms(self) -> dict[str, float]:
        schedule = self.schedule
        cuts = dict.fromkeys(BY_USER, schedule.user_starts)
        cuts |= dict.fromkeys(BY_ITEM, schedule.partition.item_starts(schedule.n_items))
        return {name: norm(block_squares(getattr(self.theta, name), at)) for name, at in cuts.items()}

    def loss(self) -> float:
        values = self.tracker.rows.user_values(self.task.representation, self.theta)
        return self.tracker.loss(values, self.theta, self.schedule.label)

    def user_rows(self, users: Ints) -> Parameters:
        theta = self._unlabeled()
        return theta._replace(**{name: take_users(getattr(theta, name), users) for name in BY_USER})

    def keep_best(self) -> None:
        theta = self._unlabeled()
        own = {name: getattr(theta, name).copy() for name in BY_USER}
        self.kept = freeze(theta._replace(**own))
        if self.shared is not None:
            self.shared.keep_best()

    def load(self, epoch: int, theta: Parameters, best_epoch: int, best: Parameters | None) -> None:
        self.theta, self.kept, self.label = theta, best, None

    def current(self) -> dict[str, Any]:
        return self._unlabeled()._asdict()

    def best(self) -> dict[str, Any]:
        return {} if self.kept is None else self.kept._asdict()

    def finish(self) -> Parameters:
        if self.kept is not None:
            return self.kept
        self._relabel(None)
        return freeze(self.theta)

    def features(self) -> ItemFeatures | None:
        return None if self.shared is None else self.shared.finish()

    def _unlabeled(self) -> Parameters:
        """The parameters with items in their original order; users are not copied."""
        if self.label is None:
            return self.theta
        label = self.label
        # np.take is ten times as fast as array[label]
        by_item = {
            name: np.take(array, label, axis=0) if array.size else array.copy()
            for name, array in self.theta._asdict().items()
            if name in BY_ITEM
        }
        return self.theta._replace(**by_item)

    def _relabel(self, label: Ints | None) -> None:
        """Move the items to their new labels, or to their original order; in place, to save memory."""
        relabel_items(self.theta, self.label, label)
        self.label = label


def scale_steps(hyper: Hyperparameters[np.float32], factor: float) -> Hyperparameters[np.float32]:
    """The hyperparameters with another step size."""
    return hyper._replace(lr=np.float32(hyper.lr * factor))


def relabel_items(theta: Parameters, old: Ints | None, new: Ints | None) -> None:
    """Move the items from the old labels to the new ones, in place; None: the original order."""
    target = np.arange(theta.item.shape[0], dtype=np.int32)  # new position of each row
    if old is not None:
        target[old] = target.copy()  # to the original order
    if new is not None:
        target = new[target]
    for name, array in theta._asdict().items():
        if name in BY_ITEM and array.size:
            permute_rows(array.reshape(target.size, -1), target, np.empty(target.size, np.bool_))


def take_users(array: Floats, users: Ints) -> Floats:
    """The rows of these users; nothing if the model does not have the parameter."""
    return array[users] if array.size else array


def block_squares(array: Floats, cuts: Longs) -> list[float]:
    """The sum of squares of each block of rows; NaN stays NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = (array[low:high].reshape(-1) for low, high in pairwise(cuts.tolist())) if array.size else ()
        return [float(np.dot(values, values)) for values in blocks]


def norm(squares: list[float]) -> float:
    """The root of the sum, which is exact: the same bits for every engine."""
    return float(math.fsum(squares) ** 0.5)
