"""The training loop people can live with: progress, stopping, divergence, Ctrl-C, checkpoints.

An epoch changes the parameters in place. One that Ctrl-C breaks off has changed some of them: what was best
on validation data is kept apart; without such data, the parameters are kept as they stand.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.serialization import Artifact, check_replaceable, load_artifact, save_artifact
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, TrainingError
from shortlist.kernels.mf import TERMS, Parameters, Rates
from shortlist.kernels.sets import sets_hold
from shortlist.kernels.strata import rows_permute
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.schedule import Schedule, choose_cut, thread_count
from shortlist.types import Doubles, Floats, Ints

BY_ITEM = (
    "item",
    "bias",
    *(by_item for _, by_item in TERMS),
)  # parameters that follow the labels of the items
LOSS_ROWS = 20_000
LOSS = 3  # name of a random stream
TOO_LARGE = 1e6
CHECKPOINT_SECONDS = 5.0
CALM = 3  # epochs in a row without a change of the loss worth naming


@dataclass(frozen=True)
class Progress:
    """What is known after an epoch."""

    epoch: int  # from 1
    n_epochs: int
    loss: float  # on a fixed sample of the training data
    score: float | None  # validation F1 at its best N
    updates_per_second: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to train and when to stop."""

    n_epochs: int
    patience: int
    tol: float
    seed: int
    n_threads: int
    identity: dict[str, Any]  # parameters and data; a checkpoint of another identity is refused
    checkpoint: Path | None = None
    progress: Callable[[Progress], None] | None = None
    judge: Callable[[Parameters], float] | None = None  # validation score; items in their own order


@dataclass(eq=False)
class Run:
    """Where a training run stands; all of it goes into a checkpoint."""

    theta: Parameters  # items in the order of `label`, or in their own where it is None
    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best: Parameters | None = None
    best_epoch: int = 0
    stopped: str = "n_epochs"
    label: Ints | None = None  # (n_items,) where each item stands in theta
    whole: bool = True  # False while an epoch is under way

    def own(self) -> Parameters:
        """The parameters with items in their own order; users are not copied."""
        if self.label is None:
            return self.theta
        label = self.label
        # ten times as fast as array[label]
        kept = {
            name: np.take(array, label, axis=0) if array.size else array.copy()
            for name, array in self.theta._asdict().items()
            if name in BY_ITEM
        }
        return self.theta._replace(**kept)


def train(
    theta: Parameters,
    data: Interactions,
    representation: Representation,
    objective: Objective,
    rates: Rates,
    plan: Plan,
) -> Run:
    """Descend from `theta` until done; the best state is in the result."""
    run = _resumed(plan) or Run(theta)
    with ThreadPoolExecutor(thread_count(plan.n_threads)) as pool:
        indptr, item, group_at = representation.groups(data)
        cut = choose_cut(
            item.size, data.n_users, data.n_items, theta.user.shape[1], representation.least_blocks
        )
        schedule = Schedule(indptr, item, group_at, data.n_items, cut, plan.seed, pool)
        meter = LossTracker(schedule, representation, objective, plan.seed)
        last_write = time.monotonic()
        try:
            while run.epoch < plan.n_epochs and run.stopped == "n_epochs":
                began = time.perf_counter()
                _epoch(run, schedule, representation, rates)
                _check(run.theta, float(rates.lr), run.epoch)
                rate = item.size / (time.perf_counter() - began)
                _note(run, meter, plan)
                if plan.progress:
                    score = run.scores[-1] if run.scores else None
                    plan.progress(Progress(run.epoch, plan.n_epochs, run.losses[-1], score, rate))
                done = run.epoch == plan.n_epochs or run.stopped != "n_epochs"
                if plan.checkpoint and (done or time.monotonic() - last_write > CHECKPOINT_SECONDS):
                    _write(run, plan)
                    last_write = time.monotonic()
        except KeyboardInterrupt:
            if not run.losses:
                raise  # nothing was learned, so there is nothing to keep
            if plan.checkpoint and run.whole and len(run.losses) == run.epoch:
                _write(run, plan)
            run.stopped = "interrupted"
    if not run.whole:
        _check(run.theta, float(rates.lr), run.epoch + 1)
    _relabel(run, None)
    frozen(run.theta)
    return run


def _epoch(run: Run, schedule: Schedule, representation: Representation, rates: Rates) -> None:
    """One pass over the data, in place."""
    if schedule.enter(run.epoch):
        representation.enter(schedule)
        _relabel(run, schedule.label)
    run.whole = False
    word = schedule.word(run.epoch)
    for turn in range(schedule.n_blocks):
        representation.run_round(schedule, turn, run.theta, rates, word)
    run.epoch += 1
    run.whole = True


def _relabel(run: Run, label: Ints | None) -> None:
    """Bring the items into the order of new labels, or into their own; in place, for factors may be large."""
    place = np.arange(run.theta.item.shape[0], dtype=np.int32)  # of what stands in each row now
    if run.label is not None:
        place[run.label] = place.copy()  # back to its own
    if label is not None:
        place = label[place]
    for name in BY_ITEM:
        array = getattr(run.theta, name)
        if array.size:
            rows_permute(array.reshape(place.size, -1), place, np.empty(place.size, np.bool_))
    run.label = label


def frozen(theta: Parameters) -> Parameters:
    """The same arrays, read-only: whoever has built an index over them may keep it."""
    for array in theta:
        array.flags.writeable = False
    return theta


def _check(theta: Parameters, lr: float, epoch: int) -> None:
    for name, array in theta._asdict().items():
        values = array.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            length = float(np.dot(values, values)) ** 0.5  # one pass, and NaN stays NaN
        if not length < TOO_LARGE:
            raise TrainingError(
                f"training diverged in epoch {epoch}: {name} grew to a length of {length:.3g}; "
                f"try a smaller lr (it is {lr:g}, {lr / 4:.2g} may do) or a larger reg."
            )


def _note(run: Run, meter: "LossTracker", plan: Plan) -> None:
    """Measure the epoch just made and decide whether it was the last."""
    loss = meter.loss(run.theta)
    if plan.judge is not None:
        theta = run.own()
        run.scores.append(plan.judge(theta))
    run.losses.append(loss)
    if plan.judge is not None:
        if run.best is None or run.scores[-1] > max(run.scores[:-1]):
            copied = {name: array.copy() for name, array in theta._asdict().items() if name not in BY_ITEM}
            run.best, run.best_epoch = frozen(theta._replace(**copied)), run.epoch
        elif run.epoch - run.best_epoch >= plan.patience:
            run.stopped = "patience"
    elif plan.tol > 0 and len(run.losses) > CALM:
        recent = run.losses[-CALM - 1 :]
        if max(recent) - min(recent) <= plan.tol * abs(recent[0]):
            run.stopped = "tol"


class LossTracker:
    """The loss on one fixed sample of triples, drawn from the seed alone."""

    def __init__(
        self, schedule: Schedule, representation: Representation, objective: Objective, seed: int
    ) -> None:
        self.schedule, self.representation, self.objective = schedule, representation, objective
        rng = np.random.Generator(np.random.PCG64([seed, LOSS]))
        rows = np.sort(rng.choice(schedule.item.size, min(LOSS_ROWS, schedule.item.size), replace=False))
        groups: Ints = (np.searchsorted(schedule.indptr, rows, side="right") - 1).astype(np.int32)
        other = rng.integers(schedule.n_items, size=rows.size, dtype=np.int32)
        held = np.empty(rows.size, np.bool_)
        sets_hold(schedule.indptr, schedule.item, groups, other, held)
        kept = held if held.all() else ~held  # where everybody has everything, any number will do
        self.groups, self.other, self.liked = groups[kept], other[kept], schedule.item[rows[kept]]
        self.users = representation.group_users(self.groups)
        self.signals = [representation.signals(self.groups, items) for items in (self.liked, self.other)]
        taken = schedule.indptr[self.groups + 1] - schedule.indptr[self.groups]
        self.density: Doubles = taken / schedule.n_items

    def loss(self, theta: Parameters) -> float:
        """The mean joint loss; items in the order of schedule.label."""
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
        for (by_user, by_item), signal in zip(TERMS, signals, strict=True):
            if signal is not None:
                score += (getattr(theta, by_user)[self.users] + getattr(theta, by_item)[items]) * signal
        return score


def _write(run: Run, plan: Plan) -> None:
    arrays = {f"theta.{name}": array for name, array in run.own()._asdict().items()}
    if run.best is not None:
        arrays |= {f"best.{name}": array for name, array in run.best._asdict().items()}
    notes = {
        "epoch": run.epoch,
        "losses": run.losses,
        "scores": run.scores,
        "best_epoch": run.best_epoch,
        "stopped": run.stopped,
    }
    assert plan.checkpoint is not None
    save_artifact(plan.checkpoint, Artifact("checkpoint", "Run", plan.identity, arrays, notes=notes))


def _resumed(plan: Plan) -> Run | None:
    if plan.checkpoint is None:
        return None
    check_replaceable(plan.checkpoint)
    if not plan.checkpoint.exists():
        return None
    parts = load_artifact(plan.checkpoint, "checkpoint")
    if parts.params != plan.identity:
        known = parts.params
        changed = sorted(key for key, own in plan.identity.items() if key not in known or known[key] != own)
        raise ConfigError(
            f"the checkpoint {plan.checkpoint} belongs to another run ({', '.join(changed)} differ); "
            "pass the same parameters and data, or another checkpoint path."
        )
    if parts.notes["epoch"] > plan.n_epochs:
        raise ConfigError(
            f"the checkpoint {plan.checkpoint} is in epoch {parts.notes['epoch']}, beyond the n_epochs of "
            f"{plan.n_epochs} asked for; raise n_epochs or pass another checkpoint path."
        )

    def parameters(prefix: str) -> Parameters:
        return Parameters(*(np.require(parts.arrays[f"{prefix}.{n}"], None, "W") for n in Parameters._fields))

    notes = parts.notes
    best = frozen(parameters("best")) if notes["best_epoch"] else None
    return Run(
        parameters("theta"),
        notes["epoch"],
        notes["losses"],
        notes["scores"],
        best,
        notes["best_epoch"],
        notes["stopped"],
    )
