"""Training on a Ray cluster compared with threads, in one run, and the bytes and memory that it needs.

    python benchmarks/scale.py            # 13 million rows, 27,000 items
    python benchmarks/scale.py --quick    # one million rows, 5,000 items; results not comparable
    python benchmarks/scale.py --part memory    # or speed, or overhead

All runs train BPRMF on the same generated interactions, with one thread per worker: threads in one process,
one worker, two workers on one node, two nodes with one worker each. Updates per second = rows / seconds of
an epoch without the start of the workers; the best epoch, because other programs may use the machine. For
the same reason, the processor time of an epoch, of all processes that train, is given as well.
The bytes that workers received are compared with the formula in docs/scale.md. Memory is measured with the
same number of rows per worker and one, two and three workers. Training from files: scale_files.py.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's spelling
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import numpy as np
import ray
from machine import describe, save_results
from ray.cluster_utils import Cluster
from ray_processes import worker_pids
from scipy.sparse import csr_array
from train import SHAPES, generate

import shortlist as sl
from shortlist.models.factorization.training import Progress
from shortlist.scale import trainer as ray_trainer

FACTORS, EPOCHS = 64, 5
STORE = 400 << 20


def build_data(shape: str) -> sl.Interactions:
    """Generated interactions."""
    n_users, n_items, n_rows = SHAPES[shape]
    return to_interactions(*generate(n_users, n_items, n_rows), n_users, n_items)


def to_interactions(indptr: np.ndarray, item: np.ndarray, n_users: int, n_items: int) -> sl.Interactions:
    """Interactions of a matrix of ones."""
    values = np.ones(item.size, np.float32)
    return sl.Interactions.from_csr(csr_array((values, item, indptr), shape=(n_users, n_items)))


@contextmanager
def start_nodes(*cpus: int):
    """A cluster of nodes with these numbers of CPUs, on this machine."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": cpus[0], "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        for number in cpus[1:]:
            cluster.add_node(num_cpus=number, object_store_memory=STORE)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


class Watch:
    """Collects the speed of each epoch, and what the trainer counted."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.bytes: list[int] = []
        self.memory: dict[int, float] = {}
        self.cpu: list[float] = []  # seconds of the processes that train, since they started
        self.trainer: ray_trainer.RayTrainer | None = None

    def __call__(self, progress: Progress) -> None:
        self.rates.append(progress.updates_per_second)
        pids = [os.getpid()] if self.trainer is None else worker_pids()
        self.cpu.append(sum(map(cpu_of, pids)))
        if self.trainer is not None:
            self.bytes.append(self.trainer.bytes_received)
            self.memory |= {pid: peak_of(pid) for pid in pids}


def cpu_of(pid: int | str) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(pid: int) -> float:
    """Peak resident MiB of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def train(
    data: sl.Interactions,
    watch: Watch,
    n_threads: int,
    engine: sl.RayEngine | None,
    progress: Callable[[Progress], None] | None = None,
    n_epochs: int = EPOCHS,
) -> sl.BPRMF:
    """Fit once; the trainer is noted while it runs."""
    exact = ray_trainer.RayTrainer.__init__

    def noted(self, *args: object) -> None:
        exact(self, *args)
        watch.trainer = self

    ray_trainer.RayTrainer.__init__ = noted
    try:
        model = sl.BPRMF(negative_draws=1, n_factors=FACTORS, n_epochs=n_epochs, tol=0, n_threads=n_threads)
        return model.fit(data, engine=engine, progress=progress or watch)
    finally:
        ray_trainer.RayTrainer.__init__ = exact


def digest(model: sl.BPRMF) -> str:
    """A digest of the learned parameters."""
    return sha256(b"".join(array.tobytes() for array in model._state.parameters)).hexdigest()


def summarize(name: str, watch: Watch, model: sl.BPRMF, expected: str, began: float) -> dict[str, object]:
    """One line of results; the first epoch, which compiles or loads kernels, is left out."""
    row: dict[str, object] = {
        "run": name,
        "million_updates_per_second": max(watch.rates[1:]) / 1e6,
        "median_million_updates_per_second": statistics.median(watch.rates[1:]) / 1e6,
        "cpu_seconds_per_epoch": min(np.diff(watch.cpu).tolist()),
        "seconds": time.perf_counter() - began,
        "same_bits": digest(model) == expected,
        "bytes_per_epoch": statistics.median(watch.bytes) if watch.bytes else 0,
        "worker_mib": sorted(watch.memory.values()),
    }
    print(
        {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()},
        flush=True,
    )
    return row


def compare(rows: list[dict[str, object]], what: str, name: str, n: int) -> float:
    """A figure of a run divided by that of n threads."""
    found = {row["run"]: row[what] for row in rows}
    return found[name] / found["1 thread" if n == 1 else f"{n} threads"]


def run_speed(shape: str) -> dict[str, object]:
    """Threads and workers with the same number of cores, one after the other, twice."""
    data, rows, expected = build_data(shape), [], ""
    plans = [("1 thread", 1, None, 0), ("2 threads", 2, None, 0)]
    plans += [
        ("1 worker", 1, (2,), 1),
        ("2 workers, 1 node", 1, (2,), 2),
        ("2 workers, 2 nodes", 1, (1, 1), 2),
    ]
    for name, n_threads, cpus, n_workers in plans:
        watch, began = Watch(), time.perf_counter()
        if cpus is None:
            model = train(data, watch, n_threads, None)
        else:
            with start_nodes(*cpus):
                model = train(data, watch, 1, sl.RayEngine(n_workers=n_workers, threads_per_worker=1))
        expected = expected or digest(model)
        rows.append(summarize(name, watch, model, expected, began))
    ratios = {
        name: {
            "wall": compare(rows, "million_updates_per_second", name, n),
            "processor": 1 / compare(rows, "cpu_seconds_per_epoch", name, n),
        }
        for name, *_, n in plans
        if n
    }
    print(ratios, flush=True)
    item_bytes = data.n_items * (FACTORS + 1) * 4  # factors and bias
    return {
        "rows": data.n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "factors": FACTORS,
        "epochs": EPOCHS,
        "formula_bytes_per_epoch": {"1": 0, "2": 2 * item_bytes},
        "share_of_threads": ratios,
        "runs": rows,
    }


def run_memory() -> dict[str, object]:
    """Peak memory of the workers: the same rows per worker with more workers, then more rows per worker."""
    found = []
    for n_workers, n_rows in ((1, 2_000_000), (2, 4_000_000), (3, 6_000_000), (2, 8_000_000)):
        n_users = n_rows // 50
        indptr, item = generate(n_users, 5_000, n_rows)
        data = to_interactions(indptr, item, n_users, 5_000)
        with start_nodes(*[1] * n_workers):
            watch = Watch()
            train(data, watch, 1, sl.RayEngine(n_workers=n_workers, threads_per_worker=1))
        row = {"workers": n_workers, "rows": data.n_rows, "worker_mib": sorted(watch.memory.values())}
        found.append(row)
        print(row, flush=True)
    return {"factors": FACTORS, "items": 5_000, "rows_per_user": 50, "runs": found}


def run_overhead() -> dict[str, object]:
    """What a worker costs beside its steps, on little data: its start, and each turn of an epoch."""
    found: dict[str, object] = {}
    indptr, item = generate(3_000, 10_000, 60_000)
    data = to_interactions(indptr, item, 3_000, 10_000)
    with start_nodes(1, 1):
        for _ in range(2):  # the first fit may compile
            watch, spent = Watch(), []

            def progress(call: Progress, watch: Watch = watch, spent: list[float] = spent) -> None:
                watch(call)
                spent.append(watch.trainer.last_seconds / watch.trainer.partition.n_blocks)

            train(data, watch, 1, sl.RayEngine(n_workers=2, threads_per_worker=1), progress, 30)
            found = {
                "workers": 2,
                "rows": data.n_rows,
                "turns_per_epoch": watch.trainer.partition.n_blocks,
                "milliseconds_per_turn": min(spent) * 1e3,
                "median_milliseconds_per_turn": statistics.median(spent) * 1e3,
                "cpu_seconds_of_a_worker_until_the_first_epoch_ended": watch.cpu[0] / 2,
            }
    print(found, flush=True)
    return found


def main() -> None:
    """Run the parts and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["speed", "memory", "overhead"])
    given = parser.parse_args()
    result: dict[str, object] = {"machine": describe("ray")}
    if given.part in (None, "overhead"):
        result["overhead"] = run_overhead()
    if given.part in (None, "speed"):
        result["speed"] = run_speed("quick" if given.quick else "dense")
    if given.part in (None, "memory"):
        result["memory"] = run_memory()
    if not given.quick:
        save_results("scale" if given.part is None else f"scale_{given.part}", result)


if __name__ == "__main__":
    sys.exit(main())
