"""RayTrainer: trains the factors of a task on the workers of a Ray cluster.

The driver holds the parameters of items. Those of users stay with the workers; every few seconds, a copy of
them goes to the object store of the worker's node and to the next worker. If a worker or a node is lost, all
workers are started again from the last copy, or from the start, and repeat the epochs since then, with the
same result.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from shortlist.core.shards import remove_shards, shard_paths
from shortlist.errors import TrainingError
from shortlist.kernels.rows import ArrayParts
from shortlist.kernels.sgd import Parameters
from shortlist.models.factorization.files import Shard
from shortlist.models.factorization.objective import LossTracker, draw_rows, join_samples
from shortlist.models.factorization.parameters import freeze
from shortlist.models.factorization.schedule import RELABEL_PERIOD, Share, divide_users, draw_labels
from shortlist.models.factorization.training import (
    BY_ITEM,
    BY_USER,
    Trainer,
    TrainingTask,
    block_squares,
    norm,
    take_users,
)
from shortlist.scale.cluster import RayCluster
from shortlist.scale.worker import Arrays, PeerLostError, TrainingWorker, WorkerReport, WorkerTask
from shortlist.types import Doubles, Floats, Ints, Longs


class UserParts(NamedTuple):
    """References to the parameters of users, and the item parameters that belong to them."""

    epoch: int  # number of completed epochs
    items: Arrays  # in their original order
    parts: list[tuple[int, Any]]  # (first user, reference to the arrays)


def store_users(epoch: int, theta: Parameters, first_users: Longs) -> UserParts:
    """Put parameters into the store of the cluster, in a part per worker."""
    by_name, parts = theta._asdict(), []
    for first, last in pairwise(first_users.tolist()):
        users = {name: by_name[name][first:last] for name in BY_USER if by_name[name].size}
        parts.append((first, ray.put(users)))
    return UserParts(epoch, {name: by_name[name] for name in BY_ITEM}, parts)


def arrays_of(source: UserParts, n_users: int, one_user: Parameters) -> dict[str, Any]:
    """Arrays to be written; those of users are fetched part by part. `one_user` shows their shapes."""
    start = one_user._asdict()

    def fetch(name: str) -> Iterator[Floats]:
        for _, arrays in source.parts:
            yield ray.get(arrays)[name]

    users = {
        name: ArrayParts(np.dtype(np.float32), (n_users, *start[name].shape[1:]), partial(fetch, name))
        if start[name].size
        else start[name]
        for name in BY_USER
    }
    return users | source.items


def join_arrays(shares: list[dict[str, Any]]) -> dict[str, Any]:
    """The arrays of all workers, one after the other, by name."""
    return {name: np.concatenate([share[name] for share in shares]) for name in shares[0]}


def gather_users(source: UserParts) -> Parameters:
    """The parameters in the memory of this process."""
    users = join_arrays([ray.get(reference) for _, reference in source.parts])
    none = {name: np.empty(0, np.float32) for name in BY_USER if name not in users}
    items = {name: np.array(array) for name, array in source.items.items()}
    return freeze(Parameters(**users, **none, **items))


SNAPSHOT_SECONDS = 5.0
MAX_LOSSES = 20  # of workers, one after the other, without a completed epoch in between
SLOW = 1.5  # a worker is slow if it computes this many times as long as the others on average
PATIENCE_SECONDS = 30.0  # of waiting for an epoch before those who are behind are named

# a process, or its results
LOST = (RayActorError, WorkerCrashedError, OutOfMemoryError, ObjectLostError, GetTimeoutError)
Result = TypeVar("Result")
logger = logging.getLogger("shortlist")


class RayTrainer(Trainer):
    """The parameters of a task, on the workers of a cluster; they are started when they are first needed."""

    def __init__(self, task: TrainingTask, cluster: RayCluster) -> None:
        self.task, self.cluster, self.partition = task, cluster, task.partition
        row_starts = task.statistics.row_starts
        self.n_items, self.n_rows = task.n_items, int(row_starts[-1])
        self.user_cuts = divide_users(row_starts, self.partition.n_blocks)
        self.items = self._initial_items()
        self.epoch, self.losses = 0, 0
        self.factors: dict[int, float] = {}  # step factor of each epoch
        self.report: list[WorkerReport] | None = None
        self.base: UserParts | None = None  # the parameters that training began with; None: the initial ones
        self.saved: UserParts | None = None  # where lost workers start again; None: the initial parameters
        self.kept: UserParts | None = None  # the best parameters
        self.last_copy, self.last_seconds = time.monotonic(), 0.0
        self.bytes_received = 0  # by workers from workers, in the last epoch
        self.label = np.arange(self.n_items, dtype=np.int32)

    def __exit__(self, *_: object) -> None:
        self.cluster.stop_workers()

    # ------------------------------------------------------------------ workers
    def _start_workers(self) -> None:
        """Start workers with their rows, and bring them to the last copy."""
        n = min(self.cluster.count_workers(), self.partition.n_blocks)
        workers = self.cluster.start_workers(n)
        n = len(workers)
        self.worker_blocks = tuple(np.linspace(0, self.partition.n_blocks, n + 1).astype(int).tolist())
        self.first_users = self.user_cuts[list(self.worker_blocks)]
        key = secrets.token_bytes(32)
        self.cluster.create(TrainingWorker, [(rank, key, self.cluster.ips[rank]) for rank in range(n)])
        sampled = draw_rows(self.n_rows, self.n_items, self.task.model.seed)
        rows = []
        for rank in range(n):  # one after the other: the store of the driver's node holds one share at a time
            rows += self.cluster.get(
                [self._call(rank, TrainingWorker.load, self._worker_task(rank, *sampled))]
            )
        self.tracker = LossTracker(join_samples(rows), self.task.model.objective())
        addresses = self.cluster.get([self._call(rank, TrainingWorker.address) for rank in range(n)])
        self.cluster.get([self._call(rank, TrainingWorker.connect, addresses) for rank in range(n)])
        self.epoch, self.items, self.is_fresh, self.is_dirty = 0, self._initial_items(), True, False
        self.prepared, self.report = -1, None
        if self.saved is not None:
            self.epoch, self.items = self.saved.epoch, dict(self.saved.items)
            self._set_users(self.saved)

    def _initial_items(self) -> Arrays:
        """The item parameters before the first epoch, in their original order."""
        start = self.task.start(0, 0)._asdict()
        return {name: start[name] for name in BY_ITEM}

    def _worker_task(self, rank: int, rows: Any, other: Ints) -> WorkerTask:
        statistics, (first, last) = self.task.statistics, self.worker_blocks[rank : rank + 2]
        users = slice(int(self.user_cuts[first]), int(self.user_cuts[last]))
        first_row, last_row = statistics.row_starts[[users.start, users.stop]].tolist()
        sampled = slice(*np.searchsorted(rows, [first_row, last_row]))
        user_starts = np.clip(self.user_cuts, users.start, users.stop) - users.start
        return WorkerTask(
            task=self.task.without_rows(),
            users=self.task.rows.users(users.start, users.stop),
            first_row=int(statistics.first_rows[users.start]),
            worker_blocks=self.worker_blocks,
            share=Share(first, last, int(statistics.group_starts[users.start]), user_starts),
            first_user=users.start,
            last_user=users.stop,
            n_threads=self.cluster.threads_per_worker,
            loss_rows=rows[sampled] - first_row,
            loss_items=other[sampled],
        )

    def _call(self, rank: int, method: Callable[..., Any], *args: Any) -> Any:
        return self.cluster.workers[rank].call.remote(method, *args)

    def _call_all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """References to the results of all workers, in their order."""
        return [self._call(rank, method, *args) for rank in range(len(self.cluster.workers))]

    def _call_now(self, method: Callable[..., Any]) -> list[Any]:
        """References to the results of all workers, also while they train."""
        now = [worker.call.options(concurrency_group="control") for worker in self.cluster.workers]
        return [control.remote(method) for control in now]

    def _attempt(self, operation: Callable[[], Result], epoch: int | None = None) -> Result:
        """Do something with the workers after this many epochs; start again whenever one is lost."""
        target = self.epoch if epoch is None else epoch
        while True:
            try:
                if not self.cluster.workers:
                    self._start_workers()
                while self.epoch < target:
                    self._run(self.epoch, self.factors[self.epoch])
                    if self.kept is not None and self.kept.epoch == self.epoch:
                        self.kept = self._copy_users("best")
                return operation()
            except LOST as error:
                self._record_loss(error)
            except RayTaskError as error:
                if not isinstance(error.cause, (*LOST, PeerLostError)):
                    raise
                self._record_loss(error)

    def _record_loss(self, error: Exception) -> None:
        """End the remaining workers, so that they are started again."""
        self.losses += 1
        self.cluster.stop_workers()
        if isinstance(error.cause if isinstance(error, RayTaskError) else error, ObjectLostError):
            self.saved = self.base  # the nodes that had the copies are lost
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        if self.losses > MAX_LOSSES:
            raise TrainingError(
                f"training lost workers {self.losses} times without completing an epoch ({reason}); "
                "check the memory of the nodes and `ray status`."
            ) from None
        logger.warning("a worker was lost (%s); starting again from epoch %d", reason, self._saved_epoch)

    @property
    def _saved_epoch(self) -> int:
        return 0 if self.saved is None else self.saved.epoch

    # ------------------------------------------------------------------ training
    def prepare_epoch(self, epoch: int) -> None:
        if epoch and time.monotonic() - self.last_copy > SNAPSHOT_SECONDS:
            self.saved = self._attempt(lambda: self._copy_users("last"), epoch)
            self.last_copy = time.monotonic()
        self.begun = epoch
        self._attempt(lambda: self._prepare(epoch), epoch)

    def run_epoch(self, epoch: int, step_factor: float) -> None:
        self.factors[epoch] = step_factor
        self._attempt(lambda: self._run(epoch, step_factor), epoch)
        self.losses = 0

    def undo_epoch(self) -> None:
        self._attempt(lambda: self._undo(self.begun), self.begun)

    def _prepare(self, epoch: int) -> None:
        items = None
        if self.is_fresh or epoch % RELABEL_PERIOD == 0:
            self.label = draw_labels(self.n_items, self.task.model.seed, epoch)
            items = ray.put(self.items)
        self.items_before = self.items
        self.cluster.get(self._call_all(TrainingWorker.prepare_epoch, epoch, items))
        self.is_fresh, self.prepared = False, epoch

    def _run(self, epoch: int, step_factor: float) -> None:
        began = time.perf_counter()
        if self.prepared != epoch:
            self._prepare(epoch)
        self.is_dirty = True
        calls = self._call_all(TrainingWorker.run_epoch, epoch, step_factor)
        try:
            reports = self._wait(calls)
        except KeyboardInterrupt:
            self.cluster.get(self._call_now(TrainingWorker.stop))
            self._take(self.cluster.get(calls))
            raise
        self._take(reports)
        self.is_dirty, self.epoch = False, epoch + 1
        self.last_seconds = time.perf_counter() - began

    def _undo(self, epoch: int) -> None:
        """Return to the parameters before the last epoch, unless workers were started again since."""
        if self.is_dirty or self.epoch > epoch:
            self.cluster.get(self._call_all(TrainingWorker.undo_epoch))
            self.items, self.epoch, self.is_dirty, self.report = self.items_before, epoch, False, None

    def _wait(self, calls: list[Any]) -> list[WorkerReport]:
        """The results of all workers; the first error ends the wait."""
        waiting, limit = list(calls), max(PATIENCE_SECONDS, 3 * self.last_seconds)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1, timeout=limit)
            self.cluster.get(done)
            if not done:
                self._name_last()
        return self.cluster.get(calls)

    def _name_last(self) -> None:
        """Log which workers are behind in an epoch that takes long."""
        calls = self._call_now(TrainingWorker.current_turn)
        answered, silent = ray.wait(calls, num_returns=len(calls), timeout=5.0)
        turns = {calls.index(call): self.cluster.get([call])[0] for call in answered}
        behind = [calls.index(call) for call in silent] or [min(turns, key=lambda rank: turns[rank])]
        names = ", ".join(self.cluster.name(rank) for rank in behind)
        logger.warning("epoch %d waits for %s", self.epoch + 1, names)

    def _take(self, reports: list[WorkerReport]) -> None:
        """Join what the workers report."""
        joined = join_arrays([report.items for report in reports])
        self.items = {
            name: np.take(array, self.label, axis=0) if array.size else array
            for name, array in joined.items()
        }
        self.labeled, self.report = joined, reports
        self.bytes_received = sum(report.bytes_received for report in reports)
        self.slow_worker = self._find_slow([report.seconds for report in reports])

    def _reports(self) -> list[WorkerReport]:
        """What the workers reported last; before the first epoch, what they report now."""
        if self.report is None:
            self._attempt(self._ask_reports)
        assert self.report is not None
        return self.report

    def _ask_reports(self) -> None:
        if self.prepared != self.epoch:  # workers were started again since
            self._prepare(self.epoch)
        self._take(self.cluster.get(self._call_all(TrainingWorker.report)))

    def _find_slow(self, seconds: list[float]) -> str | None:
        if len(seconds) < 2:
            return None
        slowest = int(np.argmax(seconds))
        others = (sum(seconds) - seconds[slowest]) / (len(seconds) - 1)
        return self.cluster.name(slowest) if seconds[slowest] > SLOW * others else None

    def norms(self) -> dict[str, float]:
        cuts, reports = self.partition.item_starts(self.n_items), self._reports()
        squares = {name: [value for report in reports for value in report.squares[name]] for name in BY_USER}
        squares |= {name: block_squares(self.labeled[name], cuts) for name in BY_ITEM}
        return {name: norm(values) for name, values in squares.items()}

    def loss(self) -> float:
        none = {name: np.empty(0, np.float32) for name in BY_USER}
        values = join_samples([report.user_values for report in self._reports()])
        return self.tracker.loss(values, Parameters(**none, **self.labeled), self.label)

    # ------------------------------------------------------------------ parameters of users
    def user_rows(self, users: Ints) -> Parameters:
        return self._attempt(lambda: self._user_rows(users))

    def _user_rows(self, users: Ints) -> Parameters:
        owners = np.searchsorted(self.first_users, users, side="right") - 1
        ranks = np.unique(owners).tolist()
        numbers = [np.flatnonzero(owners == rank) for rank in ranks]
        calls = [
            self._call(rank, TrainingWorker.user_rows, users[rows] - self.first_users[rank])
            for rank, rows in zip(ranks, numbers, strict=True)
        ]
        order = np.argsort(np.concatenate(numbers))
        joined = join_arrays(self.cluster.get(calls))
        ordered = {name: take_users(array, order) for name, array in joined.items()}
        return Parameters(**ordered, **self.items)

    def _copy_users(self, name: str) -> UserParts:
        """Copy the parameters of users to the store, and to the next worker in case a node is lost.

        The next worker raises an error if a worker was lost before it made its copy; `ray.wait` would not.
        """
        calls = self._call_all(TrainingWorker.user_arrays)
        workers = self.cluster.workers
        self.cluster.get(
            [workers[(at + 1) % len(workers)].keep.remote(name, call) for at, call in enumerate(calls)]
        )
        return UserParts(self.epoch, self.items, list(zip(self.first_users.tolist(), calls, strict=False)))

    def _set_users(self, source: UserParts) -> None:
        """Send each part to the workers that have some of its users."""
        ends = [first for first, _ in source.parts[1:]] + [int(self.user_cuts[-1])]
        for (first, arrays), end in zip(source.parts, ends, strict=True):
            low, high = np.searchsorted(self.first_users, [first, end - 1], side="right") - 1
            ranks = range(low, min(high + 1, len(self.cluster.workers)))
            self.cluster.get([self._call(rank, TrainingWorker.set_users, first, arrays) for rank in ranks])

    def keep_best(self) -> None:
        self.kept = self._attempt(lambda: self._copy_users("best"))

    def load(self, epoch: int, theta: Parameters, best_epoch: int, best: Parameters | None) -> None:
        self.saved = self.base = store_users(epoch, theta, self.user_cuts)
        self.kept = None if best is None else store_users(best_epoch, best, self.user_cuts)
        self.epoch = epoch

    def current(self) -> dict[str, Any]:
        self.saved, self.last_copy = self._attempt(lambda: self._copy_users("last")), time.monotonic()
        return self._arrays(self.saved)

    def best(self) -> dict[str, Any]:
        return {} if self.kept is None else self._arrays(self.kept)

    def _arrays(self, source: UserParts) -> dict[str, Any]:
        return arrays_of(source, int(self.user_cuts[-1]), self.task.start(0, 1))

    def user_sums(self) -> dict[str, Doubles]:
        """The sum of each parameter over the trained users of each block."""
        return join_arrays(self._attempt(self._sum_users))

    def _sum_users(self) -> list[dict[str, Doubles]]:
        self._return_to_best()
        return self.cluster.get(self._call_all(TrainingWorker.user_sums))

    def _return_to_best(self) -> Arrays:
        """Give the workers the best parameters of their users; return those of the items."""
        if self.kept is None:
            return self.items
        self._set_users(self.kept)
        return self.kept.items

    def save_shards(self, shard: Shard, folder: Path) -> list[Path]:
        """Write the model of each worker's users to a file of its own."""
        return self._attempt(lambda: self._save_shards(ray.put(shard), folder))

    def _save_shards(self, shard: Any, folder: Path) -> list[Path]:
        items = ray.put(self._return_to_best())
        paths = shard_paths(folder, len(self.cluster.workers))
        remove_shards(folder)  # of an attempt with more workers
        calls = [
            self._call(rank, TrainingWorker.save_shard, shard, path, items) for rank, path in enumerate(paths)
        ]
        self.cluster.get(calls)
        return paths

    def finish(self) -> Parameters:
        return self._attempt(self._gather)

    def _gather(self) -> Parameters:
        source = self.kept
        if source is None:
            parts = zip(self.first_users.tolist(), self._call_all(TrainingWorker.user_arrays), strict=False)
            source = UserParts(self.epoch, self.items, list(parts))
        return gather_users(source)
