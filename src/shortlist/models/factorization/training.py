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
from shortlist.core.estimator import FILE_ERRORS, MAX_WHOLE, describe_error
from shortlist.core.serialization import Artifact, check_replaceable, load_artifact, save_artifact
from shortlist.errors import ConfigError
from shortlist.kernels.mf import Parameters
from shortlist.models.factorization.parameters import freeze, load_parameters
from shortlist.models.factorization.step_size import MAX_HALVINGS, StepSize, has_moderate_norms
from shortlist.models.factorization.trainer import Trainer
from shortlist.models.factorization.validation import Evaluator

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
