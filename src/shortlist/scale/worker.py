"""TrainingWorker: trains consecutive blocks of users; runs in a process of a cluster.

The rows and parameters of its users stay with it during the whole fit; parameters of items travel. In turn t,
block b trains on group (b + t) mod B of the item ranges. A worker with blocks f … l - 1 needs one new group
per turn, the one that block l, the first of its right neighbor, has just finished. So each worker sends one
group to its left neighbor per turn, and no worker waits for all others. A worker with one thread trains its
first block first and its last block last, so that groups travel meanwhile.

With HRM, a step also changes the items of the basket's context, which may lie in any range. The changes are
applied after each turn, in the order of the blocks: each group of items passes through all workers, from the
first to the last, which sends it to all of them.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.data.ranges import UserSlices
from shortlist.kernels.sgd import Parameters
from shortlist.models.factorization.files import Shard
from shortlist.models.factorization.objective import LossRows, UserValues
from shortlist.models.factorization.parameters import block_sums, set_untrained_users
from shortlist.models.factorization.representation import HybridFactors
from shortlist.models.factorization.schedule import Share
from shortlist.models.factorization.training import (
    BY_ITEM,
    BY_USER,
    TrainingTask,
    block_squares,
    take_users,
)
from shortlist.types import Doubles, Floats, Ints, Longs

Address = tuple[str, int]
CONNECT_SECONDS = 120.0


class PeerLostError(Exception):
    """Another worker has ended, or cannot be reached."""


class PeerLinks:
    """The connections of one worker to the others, one for each direction."""

    def __init__(self, rank: int, key: bytes, host: str) -> None:
        self.rank, self.key = rank, key
        self.listener = Listener((host, 0), backlog=256, authkey=key)
        self.incoming: dict[int, Connection] = {}
        self.outgoing: dict[int, Connection] = {}
        self.arrived = threading.Condition()
        # sends in the background, so that two workers cannot wait for each other
        self.sender = ThreadPoolExecutor(1)
        self.sent: list[Future[None]] = []
        self.bytes_received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> Address:
        """Where other workers can connect."""
        host, port = self.listener.address
        return str(host), int(port)

    def connect(self, addresses: list[Address], send_to: Iterable[int], receive_from: Iterable[int]) -> None:
        """Connect to the workers that get something from this one; wait for those that send to it."""
        for rank in send_to:
            try:
                link = Client(addresses[rank], authkey=self.key)
                _send_at_once(link)
                link.send_bytes(self.rank.to_bytes(4, "little"))
            except (OSError, EOFError, AuthenticationError) as error:
                raise PeerLostError(f"worker {rank} cannot be reached: {error}") from None
            self.outgoing[rank] = link
        expected = set(receive_from)
        with self.arrived:
            if not self.arrived.wait_for(lambda: expected <= set(self.incoming), CONNECT_SECONDS):
                raise PeerLostError(f"workers {sorted(expected - set(self.incoming))} did not connect")

    def send(self, rank: int, array: Floats) -> None:
        """Send a copy of the array; return before it has arrived."""
        self.sent = [sending for sending in self.sent if not _succeeded(sending)]
        self.sent.append(self.sender.submit(self._send, rank, array.tobytes()))

    def receive(self, rank: int, out: Floats) -> None:
        """Wait for an array from a worker and write it to `out`, which is contiguous."""
        try:
            size = self.incoming[rank].recv_bytes_into(out.reshape(-1).view(np.uint8).data)
        except (OSError, EOFError) as error:
            raise PeerLostError(f"worker {rank} is gone: {error}") from None
        if size != out.nbytes:
            raise PeerLostError(f"worker {rank} sent {size} bytes instead of {out.nbytes}")
        self.bytes_received += size

    def flush(self) -> None:
        """Wait until everything has been sent."""
        for sending in self.sent:
            sending.result()
        self.sent = []

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self.outgoing[rank].send_bytes(data)
        except OSError as error:
            raise PeerLostError(f"worker {rank} is gone: {error}") from None

    def _accept(self) -> None:
        while True:
            try:
                link = self.listener.accept()
                rank = int.from_bytes(link.recv_bytes(4), "little")
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # not one of the workers, or one that has ended
            except OSError:
                return  # the listener was closed
            with self.arrived:
                self.incoming[rank] = link
                self.arrived.notify_all()


def _succeeded(sending: "Future[None]") -> bool:
    """Whether the array was sent; raises if the receiver is gone."""
    return sending.done() and sending.result() is None


def _send_at_once(link: Connection) -> None:
    """Do not wait for more data before a packet is sent."""
    with socket.socket(fileno=os.dup(link.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


Arrays = dict[str, Floats]


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerTask:
    """What one worker does of a training task."""

    task: TrainingTask  # without rows
    users: Interactions | UserSlices  # its users: their rows, or where they are
    first_row: int  # number of its first row, before rows are repeated
    worker_blocks: tuple[int, ...]  # (n_workers + 1,) first block of each worker
    share: Share
    first_user: int
    last_user: int  # one past the last
    n_threads: int
    loss_rows: Longs  # numbers of its rows in the sample of the loss
    loss_items: Ints  # their other items


class WorkerReport(NamedTuple):
    """What a worker reports before the first epoch, and after each one."""

    items: Arrays  # of the groups of ranges that its blocks will process first
    user_values: UserValues  # of its rows in the sample of the loss
    squares: dict[str, list[float]]  # of its user blocks
    seconds: float  # of computation
    bytes_received: int  # from other workers


class TrainingWorker:
    """Some blocks of users, and a copy of the item parameters."""

    def __init__(self, rank: int, key: bytes, host: str) -> None:
        self.rank, self.links = rank, PeerLinks(rank, key, host)
        self.stopped, self.turn, self.seconds = threading.Event(), 0, 0.0
        self.before: list[Floats] = []  # copies of the parameters before the epoch

    def address(self) -> Address:
        """Where other workers connect."""
        return self.links.address

    def load(self, task: WorkerTask) -> LossRows:
        """Take the rows; make the initial parameters of their users; return its part of the loss sample."""
        rows = task.task.load(task.users, task.first_row)
        self.task, self.representation, self.trained = task, rows.representation, rows.trained
        pool = ThreadPoolExecutor(task.n_threads)
        self.schedule = rows.schedule(task.task, pool, task.n_threads, task.share)
        self.item_starts = task.task.partition.item_starts(task.task.n_items)
        self.theta = task.task.start(task.first_user, task.last_user)
        self.loss_rows = rows.sample(task.task.n_items, task.loss_rows, task.loss_items)
        return self.loss_rows

    def connect(self, addresses: list[Address]) -> None:
        """Open the connections that an epoch needs."""
        n, rank = len(addresses), self.rank
        if n == 1:
            return
        if isinstance(self.representation, HybridFactors):
            last = n - 1
            send_to = {0, rank + 1} if rank < last else set(range(n))
            receive_from = {rank - 1, last} if rank else set(range(n))
            self.links.connect(addresses, (send_to - {rank}) & set(range(n)), (receive_from - {rank}))
        else:
            self.links.connect(addresses, {(rank - 1) % n}, {(rank + 1) % n})

    # ------------------------------------------------------------------ an epoch
    def prepare_epoch(self, epoch: int, items: Arrays | None) -> None:
        """Relabel the items and copy the parameters; `items`, in their original order, replace its own."""
        schedule = self.schedule
        self.seconds = 0.0
        with self._measured():
            if schedule.prepare(epoch):
                self.representation.relabel(schedule.label)
            for name, values in ({} if items is None else items).items():
                array: Floats = getattr(self.theta, name)
                if array.size:
                    array[schedule.label] = values
            if not self.before:
                self.before = [np.empty_like(array) for array in self.theta]
            for copy, array in zip(self.before, self.theta, strict=True):
                np.copyto(copy, array)

    def run_epoch(self, epoch: int, step_factor: float) -> WorkerReport:
        """Make one pass over its rows with lr · step_factor."""
        began, key = self.links.bytes_received, self.schedule.epoch_key(epoch)
        self.stopped.clear()
        self.hyper = self.task.task.hyper(step_factor)
        if isinstance(self.representation, HybridFactors):
            self._run_hybrid(self.representation, key)
        else:
            self._run_ring(key)
        return self.report(began)

    def undo_epoch(self) -> None:
        """Return to the parameters before the epoch."""
        for copy, array in zip(self.before, self.theta, strict=True):
            np.copyto(array, copy)

    def _run_ring(self, key: np.uint64) -> None:
        (first, last), n = self.schedule.own_blocks, self.schedule.n_blocks
        alone = last - first == n
        left, right = (self.rank - 1) % self._n_workers, (self.rank + 1) % self._n_workers
        expected = None  # the group that the right neighbor sends
        together = self.task.n_threads > 1  # threads share all blocks of a turn
        for turn in range(n):
            self.turn = turn
            if expected is not None and (together or last - first == 1):
                self._receive_groups(right, [expected])
                expected = None
            self._run_blocks(turn, (first, last if together else first + 1), key)
            if not alone:
                self._send_groups(left, [(first + turn) % n])
            if not together and last - first > 1:
                self._run_blocks(turn, (first + 1, last - 1), key)
                if expected is not None:
                    self._receive_groups(right, [expected])
                self._run_blocks(turn, (last - 1, last), key)
            expected = None if alone else (last + turn) % n
        if expected is not None:
            self._receive_groups(right, [expected])
        self.links.flush()

    def _run_blocks(self, turn: int, blocks: tuple[int, int], key: np.uint64) -> None:
        if blocks[0] >= blocks[1] or self.stopped.is_set():
            return
        with self._measured():
            self.representation.run_round(self.schedule, turn, self.theta, self.hyper, key, blocks)

    def _run_hybrid(self, representation: HybridFactors, key: np.uint64) -> None:
        schedule, theta = self.schedule, self.theta
        for turn in range(schedule.n_blocks):
            self.turn, collected = turn, None
            if not self.stopped.is_set():
                with self._measured():
                    collected = representation.run_steps(schedule, turn, theta, self.hyper, key)

            def apply(groups: list[int], turn: int = turn, gradients: Any = collected) -> None:
                if gradients is not None:
                    with self._measured():
                        for items in self._runs(groups):
                            representation.apply_gradients(schedule, turn, theta, gradients, items)

            self._pass_through(turn, apply)
        self.links.flush()

    def _pass_through(self, turn: int, apply: Callable[[list[int]], None]) -> None:
        """Apply the gradients of every worker, in their order, to all items."""
        rank, last = self.rank, self._n_workers - 1
        if rank:
            self._send_groups(0, self._groups_of(rank, turn))
        for owner in range(last + 1):
            groups = self._groups_of(owner, turn)
            if rank or owner:
                self._receive_groups(rank - 1 if rank else owner, groups)
            apply(groups)
            for target in [rank + 1] if rank < last else range(last):
                self._send_groups(target, groups)
        if rank < last:
            for owner in range(last + 1):
                self._receive_groups(last, self._groups_of(owner, turn))

    def _groups_of(self, rank: int, turn: int) -> list[int]:
        """The groups of ranges that a worker's blocks process in a turn."""
        cuts, n = self.task.worker_blocks, self.schedule.n_blocks
        return [(block + turn) % n for block in range(cuts[rank], cuts[rank + 1])]

    def _runs(self, groups: list[int]) -> Iterator[tuple[int, int]]:
        """(first, last) of the items of each run of consecutive groups; group 0 may follow the last one."""
        starts, begin = self.item_starts, 0
        for at in range(1, len(groups) + 1):
            if at == len(groups) or groups[at] != groups[at - 1] + 1:
                yield int(starts[groups[begin]]), int(starts[groups[at - 1] + 1])
                begin = at

    def _send_groups(self, rank: int, groups: list[int]) -> None:
        for low, high in self._runs(groups):
            for array in self._item_arrays():
                self.links.send(rank, array[low:high])

    def _receive_groups(self, rank: int, groups: list[int]) -> None:
        for low, high in self._runs(groups):
            for array in self._item_arrays():
                self.links.receive(rank, array[low:high])

    def _item_arrays(self) -> list[Floats]:
        return [array for name, array in self.theta._asdict().items() if name in BY_ITEM and array.size]

    @property
    def _n_workers(self) -> int:
        return len(self.task.worker_blocks) - 1

    def report(self, bytes_before: int = 0) -> WorkerReport:
        """Its part of what the driver needs to know."""
        first, last = self.schedule.own_blocks
        items, users = self.item_starts, self.schedule.user_starts[first : last + 1]
        with self._measured():
            squares = {name: block_squares(array, users) for name, array in self.user_arrays().items()}
            values = self.loss_rows.user_values(self.representation, self.theta)
        return WorkerReport(
            {name: getattr(self.theta, name)[items[first] : items[last]] for name in BY_ITEM},
            values,
            squares,
            self.seconds,
            self.links.bytes_received - bytes_before,
        )

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Add the time of a block of code to the time of computation."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began

    # ------------------------------------------------------------------ parameters of users
    def user_arrays(self) -> Arrays:
        """The parameters of its users."""
        return {name: getattr(self.theta, name) for name in BY_USER}

    def user_rows(self, users: Ints) -> Arrays:
        """The parameters of some of its users, counted from its first one."""
        return {name: take_users(getattr(self.theta, name), users) for name in BY_USER}

    def set_users(self, first_user: int, arrays: Arrays) -> None:
        """Replace the parameters of those of these consecutive users that it has."""
        for name, values in arrays.items():
            array: Floats = getattr(self.theta, name)
            low = max(first_user, self.task.first_user)
            high = min(first_user + len(values), self.task.last_user)
            if array.size and low < high:
                array[low - self.task.first_user : high - self.task.first_user] = values[
                    low - first_user : high - first_user
                ]

    def user_sums(self) -> dict[str, Doubles]:
        """The sum of each parameter over the trained users of each of its blocks."""
        first, last = self.schedule.own_blocks
        return block_sums(self.theta, self.trained, self.schedule.user_starts[first : last + 1])

    def save_shard(self, shard: Shard, path: Path, items: Arrays) -> None:
        """Write the model of its users to a file; `items` are in their original order."""
        assert isinstance(self.task.users, UserSlices)
        parameters = Parameters(**self.user_arrays(), **items)
        self.before = []  # room for the users of the shard
        shard.save(path, self.task.users, set_untrained_users(parameters, self.trained, shard.mean))

    # ------------------------------------------------------------------ called while an epoch runs
    def stop(self) -> None:
        """Make no more steps in this epoch; items are still passed on."""
        self.stopped.set()

    def current_turn(self) -> int:
        """The turn of the epoch that runs."""
        return self.turn
