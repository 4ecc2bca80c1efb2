"""Training: the rows, the trainer that holds the parameters meanwhile, and the loop over epochs.

The loop reports progress, stops early, and shrinks steps after divergence. An epoch changes the parameters in
place. If Ctrl-C interrupts it, some of them have already changed. The best parameters on validation data are
stored separately; without validation data, the changed ones are kept.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shortlist.core.metrics import f1_at_n
from shortlist.core.ragged import ItemSets, no_sets
from shortlist.core.threads import open_pool, thread_count
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import TrainingError
from shortlist.kernels.parameters import TERMS, Parameters
from shortlist.kernels.rows import starts
from shortlist.kernels.strata import permute_rows
from shortlist.models.factorization.groups import Groups
from shortlist.models.factorization.objective import LossSample, single_precision
from shortlist.models.factorization.parameters import freeze, mean_user, set_untrained_users
from shortlist.models.factorization.schedule import (
    MAX_MEAN,
    Schedule,
    UniformExamples,
    choose_partition,
    count_row_visits,
)
from shortlist.models.factorization.terms import GrowingTrend
from shortlist.recommend.retrieval import select_dense
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

BY_ITEM = ("item", "bias", *(by_item for _, by_item in TERMS))  # parameters in the order of the labels
BY_USER = tuple(name for name in Parameters._fields if name not in BY_ITEM)


class TrainingRows(NamedTuple):
    """The rows of the data, as training visits them."""

    indptr: Longs  # (n_groups + 1,)
    item: Ints  # (n_rows,)
    groups: Groups
    examples: UniformExamples | None

    @classmethod
    def of(cls, model: Any, groups: Groups) -> Self:
        """Each row as often as its weight says; with examples if the loss draws them from all items."""
        indptr, item, trained = groups.indptr, groups.item, groups.trained
        if groups.amounts is not None:
            amounts = groups.amounts
            visits = count_row_visits(amounts, visit_scale(amounts), model.seed)
            indptr, item = starts(visits)[indptr], np.repeat(item, visits)
        objective, examples = model.objective(), None
        if objective.has_uniform_examples:  # as many as classification steps
            n_groups, n_rows = int(trained.sum()), int(np.diff(indptr)[trained].sum())
            examples = UniformExamples(trained, objective.alpha * n_rows / max(n_groups, 1))
        return cls(indptr, item, groups, examples)


def visit_scale(amounts: Doubles) -> float:
    """What the amounts of rows are multiplied by, so that a row has at most MAX_MEAN visits on average."""
    positive = amounts[amounts > 0]
    return min(1.0, MAX_MEAN / (float(positive.sum()) / positive.size if positive.size else 1.0))


class Trainer:
    """The parameters in training, which the threads of this process share."""

    def __init__(self, model: Any, rows: TrainingRows, theta: Parameters) -> None:
        n_workers, (n_items, n_factors) = thread_count(), theta.item.shape
        groups, objective = rows.groups, model.objective()
        self.pool, self.groups = open_pool(n_workers), groups
        self.model, self.theta = model, theta
        self.label: Ints | None = None  # (n_items,) position of each item in theta; None: original order
        self.kept: Parameters | None = None
        self.before: list[Floats] = []  # copies of theta before the epoch
        self.n_rows, n_users = int(rows.item.size), groups.starts.size - 1
        self.shape = n_users, n_items
        partition = choose_partition(self.n_rows, *self.shape, n_factors, groups.min_blocks)
        fixed = n_items, partition, model.seed, self.pool, n_workers
        self.schedule = Schedule(rows.indptr, rows.item, groups.starts, *fixed, rows.examples)
        self.user_cuts = self.schedule.user_starts  # the first user of each block, and the number of users
        self.sample = LossSample(groups, rows.indptr, rows.item, n_items, objective, model.seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def prepare_epoch(self, epoch: int) -> None:
        """Prepare an epoch, and keep a copy of the parameters so that it can be undone."""
        if self.schedule.prepare(epoch):
            self.groups.relabel(self.schedule.label)
            self._relabel(self.schedule.label)
        if not self.before:
            self.before = [np.empty_like(array) for array in self.theta]
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(copy, array)

    def run_epoch(self, epoch: int, step_factor: float) -> None:
        """Make one pass over the data with lr · step_factor; an exception may leave it incomplete."""
        schedule, groups = self.schedule, self.groups
        hyper = single_precision(self.model._hyperparameters(schedule.n_items))
        hyper, key = hyper._replace(lr=np.float32(hyper.lr * step_factor)), schedule.epoch_key(epoch)
        for round_index in range(schedule.n_blocks):
            groups.run_round(schedule, round_index, self.theta, hyper, key)
        self.sample.objective.pull_boundaries(self.theta.boundary, float(hyper.lr))

    def undo_epoch(self) -> None:
        """Return to the parameters before the last epoch."""
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(array, copy)

    def norms(self) -> dict[str, float]:
        """The norm of each of the parameters, also after an incomplete epoch."""
        schedule = self.schedule
        cuts = dict.fromkeys(BY_USER, schedule.user_starts)
        cuts |= dict.fromkeys(BY_ITEM, schedule.partition.item_starts(schedule.n_items))
        return {name: norm(getattr(self.theta, name), at) for name, at in cuts.items()}

    def loss(self) -> float:
        """The mean loss over a fixed sample of the training data."""
        return self.sample.loss(self.theta, self.schedule.label)

    def user_rows(self, users: Ints) -> Parameters:
        """The parameters of these users, in their order, and of all items in their original order."""
        theta = self._unlabeled()
        return theta._replace(**{name: take_users(getattr(theta, name), users) for name in BY_USER})

    def keep_best(self) -> None:
        """Remember the current parameters as the best ones."""
        theta = self._unlabeled()
        users = {name: getattr(theta, name).copy() for name in BY_USER}
        self.kept = freeze(theta._replace(**users))

    def finish(self) -> Parameters:
        """End training; return the best parameters, or the current ones if there are no best ones."""
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


def norm(array: Floats, cuts: Longs) -> float:
    """The norm, from the exact sum of the squares of each block of rows; NaN stays NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = (array[low:high].reshape(-1) for low, high in pairwise(cuts.tolist())) if array.size else ()
        return float(math.fsum(float(np.dot(values, values)) for values in blocks) ** 0.5)


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


def has_short_vectors(norms: Mapping[str, float], n_users: int, n_items: int) -> bool:
    """Whether training has learned little more than biases; it may need many epochs to leave the start."""
    return norms["user"] * norms["item"] / math.sqrt(n_users * n_items) < SHORT


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
            relevant = np.zeros((batch.size, self.n_items), np.bool_)
            relevant[truth.owner, truth.items] = True
            totals += f1_at_n(hits.indptr, relevant[hits.owner, hits.items], truth.lengths, MAX_ITEMS)
        return float(totals.max() / n)


def draw_users(users: Ints, seed: int) -> Ints:
    """At most MAX_USERS of these users, ascending."""
    if users.size <= MAX_USERS:
        return users
    rng = np.random.Generator(np.random.PCG64([seed, SAMPLE]))
    return np.sort(rng.choice(users, MAX_USERS, replace=False))


def build_evaluator(
    model: Any,  # a FactorModel
    valid: Interactions,  # held-out rows over the same ids
    train: Interactions,
    trend: GrowingTrend | None,
) -> Evaluator:
    """The evaluator of a sample of users, ordered by time.

    Users that are not trained are scored with the mean parameters of the sample. Seen items are left out
    unless users repeat items in the data.
    """
    users, times = draw_users(valid.active_users, model.seed), None
    held_rows = History.of(valid).rows_of
    held = held_rows(users)
    if held.time is not None:
        times = held.time[held.indptr[:-1]]
        order = np.argsort(times, kind="stable")
        users, times = users[order], times[order]
        held = held_rows(users)
    history = History.of(train).rows_of(users)

    def dense_scores(theta: Parameters, rows: Ints, times: Longs | None) -> Floats:
        scores: Floats = model.dense_scores(theta, history, trend, rows, times)
        return scores

    seen = no_sets(users.size) if train.has_repeats else history.item_sets
    trained, truth = model.representation.trained_users(history), held.item_sets
    return Evaluator(users, times, truth, seen, trained, dense_scores, history.n_items)


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
    lr: float  # the step size of the next epoch; below the model's lr if larger steps diverged


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How long to train, when to stop, and what to report."""

    n_epochs: int
    patience: int
    tol: float
    progress: Callable[[Progress], None] | None = None
    evaluator: Evaluator | None = None  # of the validation score
    waits: bool = False  # whether patience starts when the vectors have grown


@dataclass(eq=False)
class TrainingState:
    """How far a training run is."""

    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best_epoch: int = 0
    start_epoch: int = 0  # the last one after which the vectors were still short
    stopped: str = "n_epochs"
    step_size: StepSize = field(default_factory=StepSize)
    epoch_complete: bool = True  # False while an epoch is running


def run_epochs(trainer: Trainer, lr: float, options: TrainingOptions) -> TrainingState:
    """Train from the trainer's parameters until a stopping criterion is met."""
    state = TrainingState()
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
                options.progress(Progress(*epochs, loss, score, rate, step))
    except KeyboardInterrupt:
        if not state.losses:
            raise  # nothing was learned yet, so there is nothing to keep
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
        elif options.waits and has_short_vectors(trainer.norms(), *trainer.shape):
            state.start_epoch = state.epoch
        elif state.epoch - max(state.best_epoch, state.start_epoch) >= options.patience:
            state.stopped = "patience"
    elif options.tol > 0 and len(state.losses) > TOL_EPOCHS:
        recent = state.losses[-TOL_EPOCHS - 1 :]
        if max(recent) - min(recent) <= options.tol * abs(recent[0]):
            state.stopped = "tol"
