"""Tables of scale.md: measurements on a cluster, and the model of its cost applied to larger ones."""

from collections.abc import Iterator
from typing import Any

Rows = Iterator[tuple[str, ...]]
MIB = 2**20
STEP = 57e-9  # seconds of a core per row and epoch, 64 factors
BLOCK_ROWS, ROWS_PER_USER, ITEMS, FACTORS = 10_000_000, 100, 1_000_000, 64
CORES, BYTES_PER_SECOND = 16, 1.1e9  # of a node: cores, network
PROCESS = 410  # MiB of a worker that has hardly any rows: Python, Ray, packages and compiled code


def speed(found: dict[str, Any]) -> Rows:
    """Threads and workers (benchmarks/scale.py --part speed)."""
    runs, shares = found["speed"]["runs"], found["speed"]["share_of_threads"]
    yield (
        "",
        "million updates per second",
        "share of as many threads",
        "by processor time",
        "MB per epoch",
    )
    for run in runs:
        share = shares.get(run["run"])
        yield (
            run["run"],
            f"{run['million_updates_per_second']:.1f}",
            "" if share is None else f"{share['wall']:.0%}",
            "" if share is None else f"{share['processor']:.0%}",
            f"{run['bytes_per_epoch'] / 1e6:.2f}",
        )


def worker_mib(rows: int, workers: int, users: int, items: int, factors: int, each: int) -> float:
    """Memory of a worker by the formula, with `each` bytes per row."""
    own = each * rows / workers + 8 * (factors + 1) * users / workers + 2 * items * 4 * (factors + 1)
    return PROCESS + own / MIB


def files(found: dict[str, Any]) -> Rows:
    """Training from files (benchmarks/scale_files.py)."""
    yield (
        "rows",
        "driver",
        "worker",
        "formula",
        "task that divides",
        "all at once",
        "seconds",
        "processor seconds",
    )
    for run in found["runs"]:
        rows = run["rows"]
        sizes = rows, 2, rows // ROWS_PER_USER, run["items"], run["factors"]
        low, high = worker_mib(*sizes, 12), worker_mib(*sizes, 20)
        names = ("driver_cpu_seconds", "worker_cpu_seconds", "task_cpu_seconds")
        cpu = f"{sum(run[name] for name in names):,.0f}" if all(name in run for name in names) else "unknown"
        yield (
            f"{rows / 1e6:,.0f} million",
            f"{run['driver_peak_mib']:,.0f} MiB",
            f"{max(run['worker_peak_mib']):,.0f} MiB",
            f"{low:,.0f} to {high:,.0f}",
            f"{run['task_peak_mib']:,.0f} MiB",
            f"{run['resident_mib_of_all_at_once']:,.0f} MiB",
            f"{run['seconds_in_all']:,.0f}",
            cpu,
        )


def clusters(found: dict[str, Any]) -> Rows:
    """The model of cost, computed for clusters that were not measured."""
    known = max((run for run in found["runs"] if "task_cpu_seconds" in run), key=lambda run: run["rows"])
    per_row = known["task_cpu_seconds"] / known["rows"]
    yield (
        "interactions",
        "nodes",
        "blocks",
        "computation per epoch",
        "network per epoch and node",
        "memory and store per node",
        "driver",
        "dividing the files, processors",
    )
    for rows in (1e9, 10e9):
        for nodes in (16, 64):
            blocks = int(rows // BLOCK_ROWS)
            turns = -(-blocks // (nodes * CORES))
            item_bytes = ITEMS * 4 * (FACTORS + 1)
            users = rows / ROWS_PER_USER
            copies = 8 * (FACTORS + 1) * users / nodes
            memory = 20 * rows / nodes + 2 * copies + 2 * item_bytes
            driver = 0.4e9 + 12 * users + 2 * item_bytes
            yield (
                f"{rows / 1e9:.0f} billion",
                f"{nodes}",
                f"{blocks:,}",
                f"{turns * BLOCK_ROWS * STEP:.2g} s",
                f"{item_bytes / 1e9:.2f} GB, {item_bytes / BYTES_PER_SECOND:.2f} s",
                f"{memory / 1e9:.1f} GB",
                f"{driver / 1e9:.1f} GB",
                f"{rows * per_row / (nodes * CORES) / 60:.1f} min",
            )
