"""RayCluster: the workers of one fit on a Ray cluster."""

import logging
import os
import pickle
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import GetTimeoutError

from shortlist.core.engine import FixedFunction
from shortlist.errors import ConfigError
from shortlist.scale.environment import check_address, check_code, code_stamp, worker_environment


class WorkerProcess:
    """Holds one object, made by a function, and calls its methods."""

    def __init__(self, environment: dict[str, str]) -> None:
        os.environ.update(environment)  # before Numba reads it
        self.held: Any = None
        self.kept: dict[str, Any] = {}

    def describe(self) -> tuple[dict[str, str], str, str]:
        """(code stamp, name of the machine, its address)."""
        import ray

        return code_stamp(), socket.gethostname(), ray.util.get_node_ip_address()

    def create(self, factory: Callable[..., Any], *args: Any) -> None:
        """Make the object."""
        self.held = factory(*args)

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the object."""
        return method(self.held, *args)

    def keep(self, name: str, value: Any) -> None:
        """Keep a copy of another worker's value, in case its node is lost."""
        self.kept[name] = value


latest: dict[str, Callable[[Any], Any]] = {}  # the last function that this process called, by name


def run_task(
    environment: dict[str, str], stamp: dict[str, str], name: str, function: list[Any], task: Any
) -> Any:
    """Call the function that a reference stands for, in a process with this environment and the same code."""
    if name in latest:
        return latest[name](task)
    os.environ.update(environment)

    import ray

    check_code(stamp, code_stamp(), socket.gethostname())
    latest.clear()
    data, arrays = ray.get(function[0])
    latest[name] = pickle.loads(data, buffers=arrays)
    return latest[name](task)


START_SECONDS = 120.0
CONTROL = {"control": 1}  # calls of this group run beside the training


class RayCluster:
    """Processes on the nodes of a cluster, each with one object that the driver calls."""

    def __init__(self, n_workers: int | None, threads_per_worker: int | None) -> None:
        self.wanted, self.wanted_threads = n_workers, threads_per_worker
        self.threads_per_worker = 1
        self.workers: list[Any] = []
        self.hosts: list[str] = []
        self.ips: list[str] = []

    def count_workers(self) -> int:
        """How many workers the nodes can hold now, at most as many as wanted."""
        cpus = node_cpus()
        if not cpus:
            raise ConfigError("the Ray cluster has no node with a CPU; start one with `ray start`.")
        wanted = len(cpus) if self.wanted is None else self.wanted
        threads = self.wanted_threads
        if threads is None:
            threads = max(1, min(min(cpus), sum(cpus) // wanted))
        fitting = sum(n_cpus // threads for n_cpus in cpus)
        if not fitting:
            raise ConfigError(
                f"threads_per_worker must be at most {max(cpus)}, the CPUs of a node, got {threads}."
            )
        self.threads_per_worker = threads
        return min(wanted, fitting)

    def start_workers(self, n: int) -> list[Any]:
        """Start n processes; refuse nodes that run other code."""
        actor = ray.remote(concurrency_groups=CONTROL)(WorkerProcess).options(
            num_cpus=self.threads_per_worker, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self.workers = [actor.remote(worker_environment(self.threads_per_worker)) for _ in range(n)]
        described = self._wait_for([worker.describe.remote() for worker in self.workers])
        self.hosts = [host for _, host, _ in described]
        self.ips = [ip for *_, ip in described]
        try:
            for stamp, host, _ in described:
                check_code(code_stamp(), stamp, host)
        except ConfigError:
            self.stop_workers()
            raise
        return self.workers

    def _wait_for(self, calls: list[Any]) -> list[Any]:
        """The results of calls to new processes; a node that is lost meanwhile ends the wait."""
        needed, deadline = sum(node_cpus()), time.monotonic() + START_SECONDS
        while True:
            done, waiting = ray.wait(calls, num_returns=len(calls), timeout=1.0)
            if not waiting:
                return self.get(done and calls)
            if sum(node_cpus()) < needed or time.monotonic() > deadline:
                raise GetTimeoutError(f"{len(waiting)} of {len(calls)} workers did not start")

    def create(self, factory: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
        """Make the object of each process."""
        pairs = zip(self.workers, arguments, strict=True)
        self.get([worker.create.remote(factory, *argument) for worker, argument in pairs])

    def get(self, references: list[Any]) -> list[Any]:
        """The values of references."""
        return list(ray.get(references))

    def name(self, rank: int) -> str:
        """The name of a worker, for messages."""
        return f"worker {rank + 1} on {self.hosts[rank]}"

    def stop_workers(self) -> None:
        """End all processes."""
        workers, self.workers = self.workers, []
        for worker in workers:
            ray.kill(worker)


def node_cpus() -> list[int]:
    """The number of CPUs of each node that has any."""
    nodes = (node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
    return [int(cpus) for cpus in nodes if cpus >= 1]


Task = TypeVar("Task")
Result = TypeVar("Result")
fixed_functions: WeakKeyDictionary[FixedFunction, tuple[str, str, list[Any]]] = WeakKeyDictionary()
sharing = threading.Lock()
SMALL, LARGE = 1 << 16, 1 << 26  # bytes of an array
TASKS_PER_CPU = 2  # submitted at once, so that no CPU waits for the driver


def connect(address: str | None) -> bool:
    """Connect to the cluster unless this process is connected; return whether a connection was made."""
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"address": "local", "include_dashboard": False}  # not a cluster that happens to run here
    elif not address.startswith("ray://"):
        options["address"] = address
    try:
        if address is not None and ":" in address:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            check_address(host, int(port))  # Ray waits minutes
        ray.init(**(options if "address" in options else {"address": address}))
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"address {address!r} of the Ray cluster cannot be reached: {reason}; start one with `ray start "
            "--head`, or pass None for a cluster on this machine.",
            parameter="address",
        ) from None
    return True


def pack_function(function: Callable[..., Any]) -> tuple[bytes, list[npt.NDArray[np.uint8]]]:
    """A pickled function and its large arrays, which Ray keeps once per node.

    Arrays in the store are read-only. Kernels would be compiled again for those that were not, so they are
    copied by every process, unless they are very large.
    """
    arrays: list[npt.NDArray[np.uint8]] = []

    def is_copied(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL or (not raw.readonly and raw.nbytes < LARGE):
            return True
        arrays.append(np.frombuffer(raw, np.uint8))
        return False

    return ray.cloudpickle.dumps(function, protocol=5, buffer_callback=is_copied), arrays


def _share(function: Callable[..., Any]) -> tuple[str, list[Any]]:
    """A name, and a reference to the function in the store; the same for every call of a `FixedFunction`.

    The reference is in a list, so that Ray does not load the function before the code is compared.
    """
    if not isinstance(function, FixedFunction):
        return secrets.token_hex(8), [ray.put(pack_function(function))]
    session = ray.get_runtime_context().get_job_id()
    with sharing:
        shared = fixed_functions.get(function)
        if shared is None or shared[0] != session:
            shared = fixed_functions[function] = (
                session,
                secrets.token_hex(8),
                [ray.put(pack_function(function))],
            )
    return shared[1], shared[2]


def map_tasks(function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """Call the function on each task on the cluster; results are in order, lost tasks are repeated.

    Large arrays of the function are in the store of each node once. All its processes read them there.
    """
    environment, (name, shared) = worker_environment(1), _share(function)
    remote = ray.remote(run_task).options(num_cpus=1, max_retries=-1)
    waiting: deque[Any] = deque()
    limit = TASKS_PER_CPU * max(1, sum(node_cpus()))
    for task in tasks:
        if len(waiting) >= limit:
            yield ray.get(waiting.popleft())
        waiting.append(remote.remote(environment, code_stamp(), name, shared, task))
    while waiting:
        yield ray.get(waiting.popleft())
