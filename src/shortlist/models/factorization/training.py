"""Training: what is trained, the trainer that holds the parameters meanwhile, and the loop over epochs.

The loop reports progress, stops early, shrinks steps after divergence, and writes checkpoints. An epoch
changes the parameters in place. If Ctrl-C interrupts it, some of them have already changed. The best
parameters on validation data are stored separately; without validation data, the changed ones are kept.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shortlist.core.checks import (
    FILE_ERRORS,
    check_float_value,
    check_floats,
    check_text,
    check_whole_value,
    load_error,
)
from shortlist.core.engine import thread_count
from shortlist.core.metrics import f1_at_n
from shortlist.core.params import MAX_WHOLE
from shortlist.core.serialization import Artifact, check_replaceable, load_artifact, save_artifact
from shortlist.data.interactions import Interactions
from shortlist.data.ranges import (
    NO_IDS,
    MemoryRows,
    UserRanges,
    UserSlices,
    load_users,
    number_ids,
    without_rows,
)
from shortlist.errors import ConfigError, TrainingError
from shortlist.kernels.rows import ItemSets, no_sets, starts
from shortlist.kernels.sgd import TERMS, Hyperparameters, Parameters, permute_rows
from shortlist.models.factorization.objective import LossRows, LossTracker, draw_rows, single_precision
from shortlist.models.factorization.parameters import (
    freeze,
    load_parameters,
    mean_user,
    set_untrained_users,
)
from shortlist.models.factorization.representation import Representation, Trend
from shortlist.models.factorization.schedule import (
    Partition,
    Schedule,
    Share,
    UniformExamples,
    choose_partition,
    count_row_visits,
)
from shortlist.recommend.retrieval import select_dense
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

BY_ITEM = ("item", "bias", *(by_item for _, by_item in TERMS))  # parameters in the order of the labels
BY_USER = tuple(name for name in Parameters._fields if name not in BY_ITEM)


class Statistics(NamedTuple):
    """What training must know of all rows before it starts; from memory or from files."""

    row_starts: Longs  # (n_users + 1,) where the rows of each user start, each as often as it is visited
    first_rows: Longs  # (n_users + 1,) the same if every row is visited once
    group_starts: Longs  # (n_users + 1,) where the groups of each user start
    trained_users: int  # users with training pairs
    examples_per_group: float | None = None  # None: no examples are drawn from all items
    visit_scale: float | None = None  # what the amounts of rows are multiplied by; None: one visit each
    repeat_start: float | None = None  # initial weight of the repeat term
    trend: Trend | None = None
    sizes: tuple[Doubles, Ints] | None = None  # examples for the prediction of basket sizes


class TrainingRows(NamedTuple):
    """The rows of some users, as training visits them."""

    indptr: Longs  # (n_groups + 1,)
    item: Ints  # (n_rows,)
    representation: Representation
    examples: UniformExamples | None
    trained: Bools  # (n_users,) whether training has pairs of the user

    def schedule(
        self, task: "TrainingTask", pool: ThreadPoolExecutor, n_threads: int, share: Share | None = None
    ) -> Schedule:
        """Their schedule."""
        indptr, item, group_starts = self.indptr, self.item, self.representation.group_starts
        fixed = task.n_items, task.partition, task.model.seed, pool, n_threads
        return Schedule(indptr, item, group_starts, *fixed, self.examples, share)

    def sample(self, n_items: int, rows: Longs, other: Ints) -> LossRows:
        """What the loss needs of the rows with these numbers."""
        return LossRows.of(self.indptr, self.item, n_items, self.representation, rows, other)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingTask:
    """What to train, from which parameters, and on which rows, which may be in memory or in files."""

    model: Any  # a FactorModel that is not fitted
    rows: UserRanges | MemoryRows
    statistics: Statistics  # of these rows
    start: Callable[[int, int], Parameters]  # initial values of users first … last - 1 and of all items

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.rows.n_items

    @cached_property
    def partition(self) -> Partition:
        """How finely users and items are divided."""
        n_rows, kind = int(self.statistics.row_starts[-1]), self.model.representation_class
        return choose_partition(
            n_rows, self.rows.n_users, self.n_items, self.model.n_factors, kind.min_blocks
        )

    def hyper(self, step_factor: float) -> Hyperparameters[np.float32]:
        """The hyperparameters of the steps, with lr · step_factor."""
        hyper = single_precision(self.model._hyperparameters(self.n_items))
        return hyper._replace(lr=np.float32(hyper.lr * step_factor))

    def load(self, users: Interactions | UserSlices, first_row: int) -> TrainingRows:
        """The rows of some users; the first of them has number `first_row` among all rows."""
        data, model, statistics = load_users(users, self.n_items), self.model, self.statistics
        representation: Representation = model.representation(data, statistics)
        indptr, item = representation.indptr, representation.item
        if statistics.visit_scale is not None:
            amounts = representation.amounts(data, model.weight_transform)
            visits = count_row_visits(amounts, statistics.visit_scale, first_row, model.seed)
            indptr, item = starts(visits)[indptr], np.repeat(item, visits)
        examples = None
        if statistics.examples_per_group is not None:
            examples = UniformExamples(representation.trained_groups, statistics.examples_per_group)
        return TrainingRows(indptr, item, representation, examples, model.trained_users(data))

    def without_rows(self) -> "TrainingTask":
        """The task for a worker, which gets its rows separately."""
        none = np.zeros(1, np.int64)
        statistics = self.statistics._replace(row_starts=none, first_rows=none, group_starts=none, sizes=None)
        rows = MemoryRows(without_rows(NO_IDS, number_ids(self.n_items)))
        task = replace(self, statistics=statistics, rows=rows)
        vars(task)["partition"] = self.partition
        return task


class Trainer(ABC):
    """The parameters in training. Item parameters leave it in the original order of the items."""

    n_rows: int  # number of steps of an epoch
    user_cuts: Longs  # the first user of each block, and the number of users
    slow_worker: str | None = None  # who took much longer than the others in the last epoch

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Release what training needed."""

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


class ThreadTrainer(Trainer):
    """All parameters in the memory of this process, trained by its threads."""

    def __init__(self, task: TrainingTask) -> None:
        n_threads = thread_count(task.model.n_threads)
        rows = task.load(task.rows.users(0, task.rows.n_users), 0)
        self.pool, self.representation = ThreadPoolExecutor(n_threads), rows.representation
        self.task, self.theta = task, task.start(0, task.rows.n_users)
        self.label: Ints | None = None  # (n_items,) position of each item in theta; None: original order
        self.kept: Parameters | None = None
        self.before: list[Floats] = []  # copies of theta before the epoch
        self.schedule = rows.schedule(task, self.pool, n_threads)
        self.n_rows, self.user_cuts = int(rows.item.size), self.schedule.user_starts
        sampled = draw_rows(rows.item.size, task.n_items, task.model.seed)
        self.tracker = LossTracker(rows.sample(task.n_items, *sampled), task.model.objective())

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def prepare_epoch(self, epoch: int) -> None:
        if self.schedule.prepare(epoch):
            self.representation.relabel(self.schedule.label)
            self._relabel(self.schedule.label)
        if not self.before:
            self.before = [np.empty_like(array) for array in self.theta]
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(copy, array)

    def run_epoch(self, epoch: int, step_factor: float) -> None:
        schedule, representation = self.schedule, self.representation
        key, hyper = schedule.epoch_key(epoch), self.task.hyper(step_factor)
        for round_index in range(schedule.n_blocks):
            representation.run_round(schedule, round_index, self.theta, hyper, key)

    def undo_epoch(self) -> None:
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(array, copy)

    def norms(self) -> dict[str, float]:
        schedule = self.schedule
        cuts = dict.fromkeys(BY_USER, schedule.user_starts)
        cuts |= dict.fromkeys(BY_ITEM, schedule.partition.item_starts(schedule.n_items))
        return {name: norm(block_squares(getattr(self.theta, name), at)) for name, at in cuts.items()}

    def loss(self) -> float:
        values = self.tracker.rows.user_values(self.representation, self.theta)
        return self.tracker.loss(values, self.theta, self.schedule.label)

    def user_rows(self, users: Ints) -> Parameters:
        theta = self._unlabeled()
        return theta._replace(**{name: take_users(getattr(theta, name), users) for name in BY_USER})

    def keep_best(self) -> None:
        theta = self._unlabeled()
        users = {name: getattr(theta, name).copy() for name in BY_USER}
        self.kept = freeze(theta._replace(**users))

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


def take_users(array: Floats, users: npt.NDArray[np.integer]) -> Floats:
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


MAX_NORM = 1e6  # a longer parameter vector means divergence
# so does a loss that exceeds the lowest one so far, or the one of the initial parameters, by these factors
GROWTH, START_GROWTH = 2.0, 1.1
MAX_HALVINGS = 20


@dataclass
class StepSize:
    """How often the step size was halved, and the losses that decide about the next time."""

    halvings: int = 0
    start_loss: float = np.inf  # of the initial parameters
    lowest: float = np.inf  # after any epoch

    @property
    def factor(self) -> float:
        """What the step size is multiplied by."""
        return float(0.5**self.halvings)

    @property
    def is_exhausted(self) -> bool:
        """Whether the step size has been halved as often as is allowed."""
        return self.halvings >= MAX_HALVINGS

    def start(self, norms: Mapping[str, float], loss: float) -> None:
        """Record the loss of the initial parameters."""
        if not self.is_sound(norms, loss):
            raise TrainingError(
                f"training cannot start: the loss of the initial parameters is {loss:.3g}; try init=0.1."
            )
        self.start_loss = self.lowest = loss

    def accept(self, norms: Mapping[str, float], loss: float) -> bool:
        """Whether an epoch stays; if not, the next steps are half as long."""
        if self.is_sound(norms, loss):
            self.lowest = min(self.lowest, loss)
            return True
        self.halvings += 1
        return False

    def is_sound(self, norms: Mapping[str, float], loss: float) -> bool:
        """Whether the parameters are of moderate size, and the loss has not exploded."""
        limit = min(START_GROWTH * self.start_loss, GROWTH * self.lowest)
        return bool(np.isfinite(loss)) and loss <= limit and has_moderate_norms(norms)


def has_moderate_norms(norms: Mapping[str, float]) -> bool:
    """Whether no parameter vector is longer than MAX_NORM or contains NaN."""
    return all(norm < MAX_NORM for norm in norms.values())


def has_short_vectors(norms: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether training has learned little more than biases; it may need many epochs to leave the start."""
    size = norms["user"] * norms["item"] / math.sqrt(shapes["user"][0] * shapes["item"][0])
    return size < SHORT


MAX_USERS = 2000
MAX_ITEMS = 20
BATCH = 256
SAMPLE = 6  # id of a random stream

# (parameters of the sampled users, numbers of users in the sample, their prediction times) -> scores
DenseScores = Callable[[Parameters, Ints, Longs | None], Floats]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """F1 of a fixed sample of users; each list is made at the time of the user's validation basket."""

    users: Ints  # (n,) the sample, ordered by time: the trend is computed once per day
    times: Longs | None  # (n,) prediction times
    truth: ItemSets  # of the sampled users
    seen: ItemSets  # items that the sampled users are not shown
    trained: Bools  # (n,) whether training has pairs of the user
    dense_scores: DenseScores
    n_items: int

    def score(self, parameters: Parameters) -> float:
        """F1 at the best N; the user parameters are those of `users`."""
        totals, n = np.zeros(MAX_ITEMS), self.users.size
        if not self.trained.all():
            means = mean_user(parameters, self.trained, np.array([0, n]))
            parameters = set_untrained_users(parameters, self.trained, means)
        items, floors = np.arange(self.n_items, dtype=np.int32), np.full(BATCH, -np.inf, np.float32)
        for start in range(0, n, BATCH):
            rows = slice(start, min(start + BATCH, n))
            batch = np.arange(rows.start, rows.stop, dtype=np.int32)
            scores = self.dense_scores(parameters, batch, None if self.times is None else self.times[rows])
            hits = select_dense(scores, items, floors[: batch.size], self.seen.part(rows), MAX_ITEMS)
            truth = self.truth.part(rows)
            owner = np.repeat(np.arange(batch.size), np.diff(hits.indptr))
            relevant = np.zeros((batch.size, self.n_items), np.bool_)
            relevant[np.repeat(np.arange(batch.size), np.diff(truth.indptr)), truth.items] = True
            n_relevant = np.diff(truth.indptr).astype(np.int32)
            totals += f1_at_n(hits.indptr, relevant[owner, hits.items], n_relevant, MAX_ITEMS)
        return float(totals.max() / n)


def draw_users(users: Ints, seed: int) -> Ints:
    """At most MAX_USERS of these users, ascending."""
    if users.size <= MAX_USERS:
        return users
    rng = np.random.Generator(np.random.PCG64([seed, SAMPLE]))
    return np.sort(rng.choice(users, MAX_USERS, replace=False))


def build_evaluator(
    users: Ints,  # users with held-out rows
    held_rows: Callable[[Ints], Interactions],  # the held-out rows of some users
    other_rows: Callable[[Ints], Interactions],  # their other rows
    has_repeats: bool,
    dense_scores: Callable[[Interactions], DenseScores],
    seed: int,
    trained_users: Callable[[Interactions], Bools] | None = None,
) -> Evaluator:
    """The evaluator of a sample of users, ordered by time; `dense_scores` gets their histories.

    Users that are not trained are scored with the mean parameters of the sample. Seen items are left out
    unless users repeat items in the data.
    """
    users = draw_users(users, seed)
    held, times = held_rows(users), None
    if held.time is not None:
        times = held.time[held.indptr[:-1]]
        order = np.argsort(times, kind="stable")
        users, times = users[order], times[order]
        held = held_rows(users)
    history = other_rows(users)
    seen = no_sets(users.size) if has_repeats else ItemSets(*history.item_sets)
    trained = np.ones(users.size, np.bool_) if trained_users is None else trained_users(history)
    truth = ItemSets(*held.item_sets)
    return Evaluator(users, times, truth, seen, trained, dense_scores(history), history.n_items)


CHECKPOINT_SECONDS = 5.0
STOPPED = ("n_epochs", "tol", "patience", "interrupted", "step_size")
SHORT = 0.5  # root mean square of ‖user‖ · ‖item‖ up to which scores are little more than biases
TOL_EPOCHS = 3  # training stops when the loss has changed by less than tol over this many epochs


@dataclass(frozen=True)
class Progress:
    """The state of training after an epoch."""

    epoch: int  # from 1
    n_epochs: int
    loss: float  # on a fixed sample of the training data
    score: float | None  # validation F1 at its best N
    updates_per_second: float
    slow_worker: str | None = None  # on a cluster: who took much longer than the others
    lr: float = 0.0  # the step size of the next epoch; below the model's lr if larger steps diverged


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How long to train, when to stop, and what to report."""

    n_epochs: int
    patience: int
    tol: float
    shapes: Mapping[str, tuple[int, ...]]  # of the parameters
    identity: dict[str, Any]  # parameters and data; a checkpoint with another identity is rejected
    checkpoint: Path | None = None
    progress: Callable[[Progress], None] | None = None
    evaluator: Evaluator | None = None  # of the validation score
    waits: bool = False  # whether patience starts when the vectors have grown


@dataclass(eq=False)
class TrainingState:
    """How far a training run is; a checkpoint stores it beside the parameters."""

    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best_epoch: int = 0
    start_epoch: int = 0  # the last one after which the vectors were still short
    stopped: str = "n_epochs"
    step_size: StepSize = field(default_factory=StepSize)
    epoch_complete: bool = True  # False while an epoch is running


def train(trainer: Trainer, lr: float, options: TrainingOptions) -> TrainingState:
    """Train from the trainer's parameters, or from the checkpoint, until a stopping criterion is met."""
    state = _load_checkpoint(options, trainer) or TrainingState()
    last_write = time.monotonic()
    try:
        while state.epoch < options.n_epochs and state.stopped == "n_epochs":
            began = time.perf_counter()
            loss = _run_epoch(state, trainer)
            if loss is None:
                continue
            rate = trainer.n_rows / (time.perf_counter() - began)
            _record_epoch(state, loss, trainer, options)
            if options.progress:
                score, step = state.scores[-1] if state.scores else None, lr * state.step_size.factor
                epochs = state.epoch, options.n_epochs
                options.progress(Progress(*epochs, loss, score, rate, trainer.slow_worker, step))
            done = state.epoch == options.n_epochs or state.stopped != "n_epochs"
            if options.checkpoint and (done or time.monotonic() - last_write > CHECKPOINT_SECONDS):
                _save_checkpoint(state, trainer, options)
                last_write = time.monotonic()
    except KeyboardInterrupt:
        if not state.losses:
            raise  # nothing was learned yet, so there is nothing to keep
        if options.checkpoint and state.epoch_complete and len(state.losses) == state.epoch:
            _save_checkpoint(state, trainer, options)
        state.stopped = "interrupted"
    if not state.epoch_complete and not has_moderate_norms(trainer.norms()):
        trainer.undo_epoch()
    return state


def _run_epoch(state: TrainingState, trainer: Trainer) -> float | None:
    """Make one pass over the data; return the loss, or None if the epoch diverged and was undone."""
    trainer.prepare_epoch(state.epoch)
    if state.step_size.start_loss == np.inf:
        state.step_size.start(trainer.norms(), trainer.loss())
    state.epoch_complete = False
    trainer.run_epoch(state.epoch, state.step_size.factor)
    loss = trainer.loss()
    if state.step_size.accept(trainer.norms(), loss):
        state.epoch += 1
        state.epoch_complete = True
        return loss
    trainer.undo_epoch()
    state.epoch_complete = True
    if state.step_size.is_exhausted:
        state.stopped = "step_size"
    return None


def _record_epoch(state: TrainingState, loss: float, trainer: Trainer, options: TrainingOptions) -> None:
    """Record loss and validation score of the last epoch, and decide whether to stop."""
    if options.evaluator is not None:
        state.scores.append(options.evaluator.score(trainer.user_rows(options.evaluator.users)))
    state.losses.append(loss)
    if options.evaluator is not None:
        if not state.best_epoch or state.scores[-1] > max(state.scores[:-1]):
            trainer.keep_best()
            state.best_epoch = state.epoch
        elif options.waits and has_short_vectors(trainer.norms(), options.shapes):
            state.start_epoch = state.epoch
        elif state.epoch - max(state.best_epoch, state.start_epoch) >= options.patience:
            state.stopped = "patience"
    elif options.tol > 0 and len(state.losses) > TOL_EPOCHS:
        recent = state.losses[-TOL_EPOCHS - 1 :]
        if max(recent) - min(recent) <= options.tol * abs(recent[0]):
            state.stopped = "tol"


def _save_checkpoint(state: TrainingState, trainer: Trainer, options: TrainingOptions) -> None:
    arrays = {f"theta.{name}": array for name, array in trainer.current().items()}
    arrays |= {f"best.{name}": array for name, array in trainer.best().items()}
    notes = {
        "epoch": state.epoch,
        "losses": state.losses,
        "scores": state.scores,
        "best_epoch": state.best_epoch,
        "start_epoch": state.start_epoch,
        "stopped": state.stopped,
        "halvings": state.step_size.halvings,
        "start_loss": state.step_size.start_loss,
    }
    assert options.checkpoint is not None
    save_artifact(
        options.checkpoint, Artifact("checkpoint", "TrainingState", options.identity, arrays, notes=notes)
    )


def _load_checkpoint(options: TrainingOptions, trainer: Trainer) -> TrainingState | None:
    """The state in the checkpoint, if there is one; the trainer continues from its parameters."""
    if options.checkpoint is None:
        return None
    check_replaceable(options.checkpoint)
    if not options.checkpoint.exists():
        return None
    saved = load_artifact(options.checkpoint, "checkpoint")
    identity, expected = saved.params, options.identity
    if identity != expected:
        changed = sorted(
            name for name in expected if name not in identity or identity[name] != expected[name]
        )
        raise ConfigError(
            f"the checkpoint {options.checkpoint} belongs to another run ({', '.join(changed)} differ); "
            "pass the same parameters and data, or another checkpoint path."
        )
    try:
        state, theta, best = _restore_state(saved, options.shapes)
    except FILE_ERRORS as error:
        raise load_error(options.checkpoint, error) from None
    if state.epoch > options.n_epochs:
        raise ConfigError(
            f"n_epochs must be at least {state.epoch}, the epoch of the checkpoint "
            f"{options.checkpoint}, got {options.n_epochs}; raise n_epochs or pass another checkpoint path."
        )
    trainer.load(state.epoch, theta, state.best_epoch, best)
    return state


def _restore_state(
    saved: Artifact, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[TrainingState, Parameters, Parameters | None]:
    """(state, parameters, best parameters) of a checkpoint."""
    losses = list(check_floats(saved.notes, "losses"))
    notes, start_loss = saved.notes, check_float_value(saved.notes, "start_loss")
    best_epoch = check_whole_value(notes, "best_epoch", 0, MAX_WHOLE)
    epoch = check_whole_value(notes, "epoch", best_epoch, MAX_WHOLE)
    state = TrainingState(
        epoch,
        losses,
        list(check_floats(notes, "scores")),
        best_epoch,
        check_whole_value(notes, "start_epoch", 0, epoch),
        check_text(notes, "stopped", STOPPED),
        StepSize(
            check_whole_value(notes, "halvings", 0, MAX_HALVINGS), start_loss, min([start_loss, *losses])
        ),
    )
    best = freeze(load_parameters(saved.arrays, shapes, "best.")) if best_epoch else None
    return state, load_parameters(saved.arrays, shapes, "theta."), best
