"""The training loop: progress, early stopping, smaller steps after divergence, Ctrl-C and checkpoints.

An epoch changes the parameters in place. If Ctrl-C interrupts it, some of them have already changed. The best
parameters on validation data are stored separately; without validation data, the changed parameters are kept.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.checks import check_float_value, check_floats, check_text, check_whole_value
from shortlist.core.metrics import f1_at_n
from shortlist.core.params import FILE_ERRORS, MAX_WHOLE, describe_error
from shortlist.core.ragged import ItemSets, no_sets
from shortlist.core.serialization import Artifact, check_replaceable, load_artifact, save_artifact
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, TrainingError
from shortlist.kernels.sgd import Parameters
from shortlist.models.factorization.parameters import freeze, load_parameters, mean_user, set_untrained_users
from shortlist.models.factorization.trainer import Trainer
from shortlist.recommend.retrieval import select_dense
from shortlist.types import Bools, Floats, Ints, Longs

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
            part = np.arange(rows.start, rows.stop, dtype=np.int32)
            scores = self.dense_scores(parameters, part, None if self.times is None else self.times[rows])
            hits = select_dense(scores, items, floors[: part.size], self.seen.part(rows), MAX_ITEMS)
            own = self.truth.part(rows)
            owner = np.repeat(np.arange(part.size), np.diff(hits.indptr))
            relevant = np.zeros((part.size, self.n_items), np.bool_)
            relevant[np.repeat(np.arange(part.size), np.diff(own.indptr)), own.items] = True
            n_relevant = np.diff(own.indptr).astype(np.int32)
            totals += f1_at_n(hits.indptr, relevant[owner, hits.items], n_relevant, MAX_ITEMS)
        return float(totals.max() / n)


def sample_users(valid: Interactions, history: Interactions, seed: int) -> tuple[Ints, Longs | None]:
    """(users, prediction times): at most MAX_USERS users of the validation data, ordered by time."""
    if valid.users != history.users or valid.items != history.items:
        raise DataError(
            "validation data must share its id tables with the training data; take both from one split."
        )
    users = valid.active_users
    if not users.size:
        raise DataError("validation data must hold at least one interaction, got none; omit valid.")
    users = draw_users(users, seed)
    if valid.time is None:
        return users, None
    times = valid.time[valid.indptr[users]]
    order = np.argsort(times, kind="stable")
    return users[order], times[order]


def draw_users(users: Ints, seed: int) -> Ints:
    """At most MAX_USERS of these users, ascending."""
    if users.size <= MAX_USERS:
        return users
    rng = np.random.Generator(np.random.PCG64([seed, SAMPLE]))
    return np.sort(rng.choice(users, MAX_USERS, replace=False))


def build_evaluator(
    valid: Interactions,
    history: Interactions,
    dense_scores: Callable[[Interactions], DenseScores],
    seed: int,
    trained: Bools | None = None,  # (n_users,)
) -> Evaluator:
    """The evaluator; `dense_scores` gets the histories of the sampled users.

    Users that are not `trained` are scored with the mean parameters of the sample.

    Seen items are left out unless users repeat items in the data.
    """
    users, times = sample_users(valid, history, seed)
    own = History.of(history).rows_of(users)
    truth = ItemSets(*valid.item_sets).take(users)
    seen = no_sets(users.size) if history.has_repeats else ItemSets(*own.item_sets)
    has_pairs = np.ones(users.size, np.bool_) if trained is None else trained[users]
    return Evaluator(users, times, truth, seen, has_pairs, dense_scores(own), history.n_items)


CHECKPOINT_SECONDS = 5.0
STOPPED = ("n_epochs", "tol", "patience", "interrupted", "step_size")
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


@dataclass(eq=False)
class TrainingState:
    """How far a training run is; a checkpoint stores it beside the parameters."""

    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best_epoch: int = 0
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
                score = state.scores[-1] if state.scores else None
                options.progress(
                    Progress(
                        state.epoch,
                        options.n_epochs,
                        state.losses[-1],
                        score,
                        rate,
                        trainer.slow_worker,
                        lr * state.step_size.factor,
                    )
                )
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
        elif state.epoch - state.best_epoch >= options.patience:
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
    parts = load_artifact(options.checkpoint, "checkpoint")
    known, expected = parts.params, options.identity
    if known != expected:
        changed = sorted(name for name in expected if name not in known or known[name] != expected[name])
        raise ConfigError(
            f"the checkpoint {options.checkpoint} belongs to another run ({', '.join(changed)} differ); "
            "pass the same parameters and data, or another checkpoint path."
        )
    try:
        state, theta, best = _restore_state(parts, options.shapes)
    except FILE_ERRORS as error:
        raise describe_error(options.checkpoint, error) from None
    if state.epoch > options.n_epochs:
        raise ConfigError(
            f"n_epochs must be at least {state.epoch}, the epoch of the checkpoint "
            f"{options.checkpoint}, got {options.n_epochs}; raise n_epochs or pass another checkpoint path."
        )
    trainer.load(state.epoch, theta, state.best_epoch, best)
    return state


def _restore_state(
    parts: Artifact, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[TrainingState, Parameters, Parameters | None]:
    """(state, parameters, best parameters) of a checkpoint."""
    losses = list(check_floats(parts.notes, "losses"))
    # checkpoints of earlier versions have neither
    notes = {"halvings": 0, "start_loss": max(losses, default=0.0)} | parts.notes
    start_loss = check_float_value(notes, "start_loss")
    best_epoch = check_whole_value(notes, "best_epoch", 0, MAX_WHOLE)
    state = TrainingState(
        check_whole_value(notes, "epoch", best_epoch, MAX_WHOLE),
        losses,
        list(check_floats(notes, "scores")),
        best_epoch,
        check_text(notes, "stopped", STOPPED),
        StepSize(
            check_whole_value(notes, "halvings", 0, MAX_HALVINGS), start_loss, min([start_loss, *losses])
        ),
    )
    best = freeze(load_parameters(parts.arrays, shapes, "best.")) if best_epoch else None
    return state, load_parameters(parts.arrays, shapes, "theta."), best
