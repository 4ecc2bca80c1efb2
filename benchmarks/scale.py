"""Training on a Ray cluster compared with threads, in one run, and the bytes and memory that it needs.

    python benchmarks/scale.py            # 13 million rows, 27,000 items
    python benchmarks/scale.py --quick    # one million rows, 5,000 items; results not comparable
    python benchmarks/scale.py --part memory

All runs train BPRMF on the same generated interactions, with one thread per worker: threads in one process,
one worker, two workers on one node, two nodes with one worker each. Updates per second = rows / seconds of
an epoch without the start of the workers; the median over epochs. The bytes that workers received are
compared with the formula in docs/scale.md.
"""

import argparse
import os
import statistics
import sys
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's spelling
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import numpy as np
import ray
from machine import describe, save_results
from ray.cluster_utils import Cluster
from train import SHAPES, generate

import shortlist as sl
from shortlist.models.factorization.training import Progress
from shortlist.scale import ray_trainer

FACTORS, EPOCHS = 64, 9
STORE = 400 << 20


def build_data(shape: str) -> sl.Interactions:
    """Generated interactions."""
    from scipy.sparse import csr_array

    n_users, n_items, n_rows = SHAPES[shape]
    indptr, item = generate(n_users, n_items, n_rows)
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
        self.trainer: ray_trainer.RayTrainer | None = None

    def __call__(self, progress: Progress) -> None:
        self.rates.append(progress.updates_per_second)
        if self.trainer is not None:
            self.bytes.append(self.trainer.bytes_received)
            for pid in worker_pids():
                self.memory[pid] = peak_of(pid)


def worker_pids() -> list[int]:
    """The processes of the workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.joinpath("cmdline").read_bytes().startswith(b"ray::WorkerProcess"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def peak_of(pid: int) -> float:
    """Peak resident MiB of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def train(data: sl.Interactions, watch: Watch, n_threads: int, engine: sl.RayEngine | None) -> sl.BPRMF:
    """Fit once; the trainer is noted while it runs."""
    exact = ray_trainer.RayTrainer.__init__

    def noted(self, *args: object) -> None:
        exact(self, *args)
        watch.trainer = self

    ray_trainer.RayTrainer.__init__ = noted
    try:
        model = sl.BPRMF(n_factors=FACTORS, n_epochs=EPOCHS, tol=0, n_threads=n_threads)
        return model.fit(data, engine=engine, progress=watch)
    finally:
        ray_trainer.RayTrainer.__init__ = exact


def digest(model: sl.BPRMF) -> str:
    """A digest of the learned parameters."""
    return sha256(b"".join(array.tobytes() for array in model._state.parameters)).hexdigest()


def summarize(name: str, watch: Watch, model: sl.BPRMF, expected: str, began: float) -> dict[str, object]:
    """One line of results; the first epoch, which compiles or loads kernels, is left out."""
    row: dict[str, object] = {
        "run": name,
        "million_updates_per_second": statistics.median(watch.rates[1:]) / 1e6,
        "best_million_updates_per_second": max(watch.rates[1:]) / 1e6,
        "seconds": time.perf_counter() - began,
        "same_bits": digest(model) == expected,
        "bytes_per_epoch": statistics.median(watch.bytes) if watch.bytes else 0,
        "worker_mib": sorted(watch.memory.values()),
    }
    print({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()})
    return row


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
    item_bytes = data.n_items * (FACTORS + 1) * 4  # factors and bias
    return {
        "rows": data.n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "factors": FACTORS,
        "epochs": EPOCHS,
        "formula_bytes_per_epoch": {"1": 0, "2": 2 * item_bytes},
        "runs": rows,
    }


def run_memory() -> dict[str, object]:
    """Peak memory of the workers while the other worker's share grows: the rows of one user block double."""
    found = []
    for n_rows in (500_000, 1_000_000, 2_000_000):
        indptr, item = generate(40_000, 5_000, n_rows)
        from scipy.sparse import csr_array

        data = sl.Interactions.from_csr(
            csr_array((np.ones(item.size, np.float32), item, indptr), shape=(40_000, 5_000))
        )
        with start_nodes(1, 1):
            watch = Watch()
            train(data, watch, 1, sl.RayEngine(n_workers=2, threads_per_worker=1))
        found.append({"rows": data.n_rows, "worker_mib": sorted(watch.memory.values())})
        print(found[-1])
    return {"runs": found}


def main() -> None:
    """Run the parts and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["speed", "memory"])
    given = parser.parse_args()
    result: dict[str, object] = {"machine": describe("ray")}
    if given.part != "memory":
        result["speed"] = run_speed("quick" if given.quick else "dense")
    if given.part != "speed":
        result["memory"] = run_memory()
    if not given.quick and given.part is None:
        save_results("scale", result)


if __name__ == "__main__":
    sys.exit(main())
