"""A Ray cluster of two nodes on this machine, for the tests."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.ray_processes import worker_pids

STORE = 100 << 20  # bytes of a node's object store

needs_ray = [pytest.mark.filterwarnings("ignore")]  # of Ray itself


@contextmanager
def two_nodes():
    """Start nodes with three and two CPUs, and connect: three workers get a thread each, two get two."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's spelling
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_raylet_start_wait_time_s"] = "300"  # noqa: SIM112  # a busy machine, also below
    os.environ["RAY_agent_register_timeout_ms"] = "300000"  # noqa: SIM112
    os.environ["RAY_worker_register_timeout_seconds"] = "300"  # noqa: SIM112
    ray = pytest.importorskip("ray", reason="ray is not installed; pip install ray")
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": STORE}
    head = options | {"num_cpus": 3, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=2, **options)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def no_workers_remain(seconds=30):
    """Whether all workers end within some seconds."""
    deadline = time.monotonic() + seconds
    while worker_pids() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not worker_pids()


def kill_worker(number=0):
    """End one of the workers without notice and wait until it is gone; return whether there was one."""
    pids = worker_pids()
    if not pids:
        return False
    pid = pids[number % len(pids)]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while pid in worker_pids():
        time.sleep(0.01)
    return True


def run_killed(code):
    """Run code in a process of its own, which ends itself without notice."""
    home = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(home), str(home / "src")])},
        timeout=300,
    )
    assert ended.returncode == -signal.SIGKILL


def kill_before(monkeypatch, *methods):
    """Kill a worker just before each of these methods is called next; return the methods still to come."""
    from shortlist.scale.trainer import RayTrainer

    exact, coming = RayTrainer._call, list(methods)

    def call(self, rank, method, *args):
        if rank == len(self.cluster.workers) - 1 and coming and method.__name__ == coming[0]:
            del coming[0]
            assert kill_worker(len(coming))
        return exact(self, rank, method, *args)

    monkeypatch.setattr(RayTrainer, "_call", call)
    return coming
