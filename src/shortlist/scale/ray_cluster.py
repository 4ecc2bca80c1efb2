"""RayCluster: the workers of one fit on a Ray cluster."""

import os
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from shortlist.errors import ConfigError
from shortlist.scale.actor import WorkerProcess
from shortlist.scale.code_stamp import code_stamp, find_difference

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
        fitting = sum(one // threads for one in cpus)
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
        for stamp, host, _ in described:
            difference = find_difference(code_stamp(), stamp)
            if difference:
                self.stop_workers()
                raise ConfigError(
                    f"all nodes must run the same code, but {host} has {difference}; "
                    "install the same versions on every node."
                )
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
        self.get([worker.create.remote(factory, *own) for worker, own in pairs])

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


def worker_environment(n_threads: int) -> dict[str, str]:
    """Environment variables of worker processes: they use the driver's cache of compiled code."""
    names = ("NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT")
    known = {name: os.environ[name] for name in names if name in os.environ}
    return known | {"OMP_NUM_THREADS": str(n_threads)}
