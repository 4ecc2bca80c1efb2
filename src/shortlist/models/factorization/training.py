"""The training loop: progress, early stopping, detection of divergence, Ctrl-C and checkpoints.

An epoch changes the parameters in place. If Ctrl-C interrupts it, some of them have already changed. The best
parameters on validation data are stored separately; without validation data, the changed parameters are kept.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.checks import check_floats, check_text, check_whole_value
from shortlist.core.estimator import FILE_ERRORS, MAX_WHOLE, describe_error
from shortlist.core.serialization import Artifact, check_replaceable, load_artifact, save_artifact
from shortlist.core.threads import thread_count
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, TrainingError
from shortlist.kernels.mf import TERMS, Hyperparameters, Parameters
from shortlist.kernels.sets import find_members
from shortlist.kernels.strata import permute_rows
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.parameters import freeze, load_parameters
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.schedule import Schedule, UniformExamples, choose_partition
from shortlist.types import Doubles, Floats, Ints

BY_ITEM = ("item", "bias", *(by_item for _, by_item in TERMS))  # parameters in the order of the labels
LOSS_ROWS = 20_000
LOSS = 3  # id of a random stream
MAX_NORM = 1e6  # a longer parameter vector means divergence
CHECKPOINT_SECONDS = 5.0
STOPPED = ("n_epochs", "tol", "patience", "interrupted")
TOL_EPOCHS = 3  # training stops when the loss has changed by less than tol over this many epochs


@dataclass(frozen=True)
class Progress:
    """The state of training after an epoch."""

    epoch: int  # from 1
    n_epochs: int
    loss: float  # on a fixed sample of the training data
    score: float | None  # validation F1 at its best N
    updates_per_second: float


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How long to train, when to stop, and what to report."""

    n_epochs: int
    patience: int
    tol: float
    seed: int
    n_threads: int
    identity: dict[str, Any]  # parameters and data; a checkpoint with another identity is rejected
    checkpoint: Path | None = None
    progress: Callable[[Progress], None] | None = None
    evaluator: Callable[[Parameters], float] | None = None  # validation score; items in their original order


@dataclass(eq=False)
class TrainingState:
    """The state of a training run; a checkpoint stores all of it."""

    theta: Parameters  # items in the order of `label`, or in their original order if it is None
    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best: Parameters | None = None
    best_epoch: int = 0
    stopped: str = "n_epochs"
    label: Ints | None = None  # (n_items,) position of each item in theta
    epoch_complete: bool = True  # False while an epoch is running

    def unlabeled(self) -> Parameters:
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


def train(
    theta: Parameters,
    data: Interactions,
    representation: Representation,
    objective: Objective,
    hyper: Hyperparameters[np.float32],
    options: TrainingOptions,
) -> TrainingState:
    """Train from `theta`, or from the checkpoint, until a stopping criterion is met."""
    state = _load_checkpoint(options, theta) or TrainingState(theta)
    n_threads, lr = thread_count(options.n_threads), float(hyper.lr)
    with ThreadPoolExecutor(n_threads) as pool:
        indptr, item, group_starts = representation.groups(data)
        partition = choose_partition(
            item.size, data.n_users, data.n_items, theta.user.shape[1], representation.min_blocks
        )
        examples = None
        if objective.has_uniform_examples:
            examples = UniformExamples.of(indptr, representation.trained_groups(indptr), objective.alpha)
        schedule = Schedule(
            indptr, item, group_starts, data.n_items, partition, options.seed, pool, n_threads, examples
        )
        tracker = LossTracker(schedule, representation, objective, options.seed)
        last_write = time.monotonic()
        try:
            while state.epoch < options.n_epochs and state.stopped == "n_epochs":
                began = time.perf_counter()
                _run_epoch(state, schedule, representation, hyper)
                _check_norms(state.theta, lr, state.epoch)
                rate = item.size / (time.perf_counter() - began)
                _record_epoch(state, tracker, options)
                if options.progress:
                    score = state.scores[-1] if state.scores else None
                    options.progress(Progress(state.epoch, options.n_epochs, state.losses[-1], score, rate))
                done = state.epoch == options.n_epochs or state.stopped != "n_epochs"
                if options.checkpoint and (done or time.monotonic() - last_write > CHECKPOINT_SECONDS):
                    _save_checkpoint(state, options)
                    last_write = time.monotonic()
        except KeyboardInterrupt:
            if not state.losses:
                raise  # nothing was learned yet, so there is nothing to keep
            if options.checkpoint and state.epoch_complete and len(state.losses) == state.epoch:
                _save_checkpoint(state, options)
            state.stopped = "interrupted"
    if not state.epoch_complete:
        _check_norms(state.theta, lr, state.epoch + 1)
    _relabel(state, None)
    freeze(state.theta)
    return state


def _run_epoch(
    state: TrainingState,
    schedule: Schedule,
    representation: Representation,
    hyper: Hyperparameters[np.float32],
) -> None:
    """Make one pass over the data, in place."""
    if schedule.prepare(state.epoch):
        representation.relabel(schedule)
        _relabel(state, schedule.label)
    state.epoch_complete = False
    key = schedule.epoch_key(state.epoch)
    for round_index in range(schedule.n_blocks):
        representation.run_round(schedule, round_index, state.theta, hyper, key)
    state.epoch += 1
    state.epoch_complete = True


def _relabel(state: TrainingState, label: Ints | None) -> None:
    """Move the items to their new labels, or to their original order; in place, to save memory."""
    target = np.arange(state.theta.item.shape[0], dtype=np.int32)  # new position of each row
    if state.label is not None:
        target[state.label] = target.copy()  # to the original order
    if label is not None:
        target = label[target]
    for name, array in state.theta._asdict().items():
        if name in BY_ITEM and array.size:
            permute_rows(array.reshape(target.size, -1), target, np.empty(target.size, np.bool_))
    state.label = label


def _check_norms(theta: Parameters, lr: float, epoch: int) -> None:
    for name, array in theta._asdict().items():
        values = array.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.dot(values, values)) ** 0.5  # one pass; NaN stays NaN
        if not norm < MAX_NORM:
            raise TrainingError(
                f"training diverged in epoch {epoch}: the norm of {name} reached {norm:.3g}; "
                f"try a smaller lr (it is {lr:g}, try {lr / 4:.2g}) or a larger reg."
            )


def _record_epoch(state: TrainingState, tracker: "LossTracker", options: TrainingOptions) -> None:
    """Record loss and validation score of the last epoch, and decide whether to stop."""
    loss = tracker.loss(state.theta)
    if options.evaluator is not None:
        theta = state.unlabeled()
        state.scores.append(options.evaluator(theta))
    state.losses.append(loss)
    if options.evaluator is not None:
        if state.best is None or state.scores[-1] > max(state.scores[:-1]):
            copied = {name: array.copy() for name, array in theta._asdict().items() if name not in BY_ITEM}
            state.best, state.best_epoch = freeze(theta._replace(**copied)), state.epoch
        elif state.epoch - state.best_epoch >= options.patience:
            state.stopped = "patience"
    elif options.tol > 0 and len(state.losses) > TOL_EPOCHS:
        recent = state.losses[-TOL_EPOCHS - 1 :]
        if max(recent) - min(recent) <= options.tol * abs(recent[0]):
            state.stopped = "tol"


class LossTracker:
    """The loss on a fixed sample of (group, liked item, unseen item), drawn from the seed alone."""

    def __init__(
        self, schedule: Schedule, representation: Representation, objective: Objective, seed: int
    ) -> None:
        self.schedule, self.representation, self.objective = schedule, representation, objective
        rng = np.random.Generator(np.random.PCG64([seed, LOSS]))
        rows = np.sort(rng.choice(schedule.item.size, min(LOSS_ROWS, schedule.item.size), replace=False))
        groups: Ints = (np.searchsorted(schedule.indptr, rows, side="right") - 1).astype(np.int32)
        other = rng.integers(schedule.n_items, size=rows.size, dtype=np.int32)
        seen = np.empty(rows.size, np.bool_)
        find_members(schedule.indptr, schedule.item, groups, other, seen)
        kept = seen if seen.all() else ~seen  # if no sampled item is unseen, use seen ones
        self.groups, self.other, self.liked = groups[kept], other[kept], schedule.item[rows[kept]]
        self.users = representation.group_users(self.groups)
        self.signals = [representation.signals(self.groups, items) for items in (self.liked, self.other)]
        n_liked = schedule.indptr[self.groups + 1] - schedule.indptr[self.groups]
        self.density: Doubles = n_liked / schedule.n_items

    def loss(self, theta: Parameters) -> float:
        """The mean joint loss; items are in the order of schedule.label."""
        label = self.schedule.label
        vectors = self.representation.group_vectors(theta, self.groups)
        boundary = theta.boundary[self.users]
        scores = [
            self._score(theta, vectors, label[items], signals)
            for items, signals in zip((self.liked, self.other), self.signals, strict=True)
        ]
        return self.objective.value(scores[0], scores[1], boundary, self.density)

    def _score(
        self, theta: Parameters, vectors: Floats, items: Any, signals: tuple[Floats | None, ...]
    ) -> Floats:
        score: Floats = np.einsum("nf,nf->n", vectors, theta.item[items])
        if theta.bias.size:
            score += theta.bias[items]
        weights = theta._asdict()
        for (by_user, by_item), signal in zip(TERMS, signals, strict=True):
            if signal is not None:
                score += (weights[by_user][self.users] + weights[by_item][items]) * signal
        return score


def _save_checkpoint(state: TrainingState, options: TrainingOptions) -> None:
    arrays = {f"theta.{name}": array for name, array in state.unlabeled()._asdict().items()}
    if state.best is not None:
        arrays |= {f"best.{name}": array for name, array in state.best._asdict().items()}
    notes = {
        "epoch": state.epoch,
        "losses": state.losses,
        "scores": state.scores,
        "best_epoch": state.best_epoch,
        "stopped": state.stopped,
    }
    assert options.checkpoint is not None
    save_artifact(
        options.checkpoint, Artifact("checkpoint", "TrainingState", options.identity, arrays, notes=notes)
    )


def _load_checkpoint(options: TrainingOptions, start: Parameters) -> TrainingState | None:
    """The state in the checkpoint, if there is one; its arrays have the shapes of `start`."""
    if options.checkpoint is None:
        return None
    check_replaceable(options.checkpoint)
    if not options.checkpoint.exists():
        return None
    parts = load_artifact(options.checkpoint, "checkpoint")
    known, expected = parts.params, options.identity
    if known != expected:
        changed = sorted(name for name in expected if name not in known or known[name] != expected[name])
        raise ConfigError(
            f"the checkpoint {options.checkpoint} belongs to another run ({', '.join(changed)} differ); "
            "pass the same parameters and data, or another checkpoint path."
        )
    try:
        state = _restore_state(parts, start)
    except FILE_ERRORS as error:
        raise describe_error(options.checkpoint, error) from None
    if state.epoch > options.n_epochs:
        raise ConfigError(
            f"n_epochs must be at least {state.epoch}, the epoch of the checkpoint "
            f"{options.checkpoint}, got {options.n_epochs}; raise n_epochs or pass another checkpoint path."
        )

    return state


def _restore_state(parts: Artifact, start: Parameters) -> TrainingState:
    notes = parts.notes
    best_epoch = check_whole_value(notes, "best_epoch", 0, MAX_WHOLE)

    shapes = {name: array.shape for name, array in start._asdict().items()}
    return TrainingState(
        load_parameters(parts.arrays, shapes, "theta."),
        check_whole_value(notes, "epoch", best_epoch, MAX_WHOLE),
        list(check_floats(notes, "losses")),
        list(check_floats(notes, "scores")),
        freeze(load_parameters(parts.arrays, shapes, "best.")) if best_epoch else None,
        best_epoch,
        check_text(notes, "stopped", STOPPED),
    )
