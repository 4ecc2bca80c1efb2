"""From a file to Interactions, against the same steps in pandas and SciPy.

    python benchmarks/data.py            # about three minutes on two cores
    python benchmarks/data.py --quick    # a tenth of the rows, results not saved

Two files: Ta-Feng as it is published (CSV, string ids, dates by day), and a generated Parquet file of 20
million rows in random order (integer ids, epoch seconds). Three programs, each in its own process;
imports and compilation are not timed:

shortlist     read_interactions(path): id maps, rows by user and time, duplicates merged, baskets, CSR
pandas steps  the same without baskets: drop_duplicates, sort_values, category codes, csr_matrix
pandas short  category codes and csr_matrix only: no order, no times, no merging
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import describe, peak_mib, save_results

ROWS = 20_000_000
PROGRAMS = ("shortlist", "pandas steps", "pandas short")


def generate(path: Path, n_rows: int) -> None:
    """Write 138,000 users and 27,000 items with long tails, twenty years of timestamps, ids with gaps."""
    import polars as pl

    rng = np.random.default_rng(0)
    user = (138_000 * rng.random(n_rows) ** 1.6).astype(np.int64)
    item = (27_000 * rng.random(n_rows) ** 2.5).astype(np.int64)
    frame = pl.DataFrame(
        {
            "user_id": rng.permutation(200_000)[user],
            "item_id": rng.permutation(130_000)[item],
            "timestamp": rng.integers(789_652_009, 1_427_784_002, n_rows),
        }
    )
    frame.write_parquet(path)


def run_shortlist(path: Path) -> dict[str, object]:
    import shortlist as sl

    sl.Interactions.from_tuples([("a", "b", 1), ("b", "c", 2)])
    sl.Interactions.from_tuples([(1, 2, 1), (2, 3, 2)]).to_csr()
    before, began = peak_mib(), (time.perf_counter(), time.process_time())
    data = sl.read_interactions(path, time_format="%m/%d/%Y" if path.suffix == ".csv" else None)
    matrix = data.to_csr()
    return measure(before, began, matrix.shape, matrix.nnz)


def run_pandas(path: Path, short: bool) -> dict[str, object]:
    import pandas as pd
    import pyarrow.parquet  # noqa: F401  otherwise pandas imports it while the clock runs
    from scipy.sparse import csr_matrix

    before, began = peak_mib(), (time.perf_counter(), time.process_time())
    if path.suffix == ".csv":
        names = {"CUSTOMER_ID": "user_id", "PRODUCT_ID": "item_id", "TRANSACTION_DT": "timestamp"}
        names = dict(list(names.items())[:2]) if short else names
        frame = pd.read_csv(path, usecols=list(names), dtype=str, encoding="utf-8-sig").rename(columns=names)
        if not short:
            frame["timestamp"] = pd.to_datetime(frame["timestamp"], format="%m/%d/%Y")
    else:
        frame = pd.read_parquet(path, columns=["user_id", "item_id"] if short else None)
    if not short:
        frame = frame.drop_duplicates(["user_id", "item_id", "timestamp"]).sort_values(
            ["user_id", "timestamp"]
        )
    user, item = frame["user_id"].astype("category"), frame["item_id"].astype("category")
    matrix = csr_matrix((np.ones(len(frame), np.float32), (user.cat.codes, item.cat.codes)))
    return measure(before, began, matrix.shape, matrix.nnz)


def measure(
    before: float, began: tuple[float, float], shape: tuple[int, int], n_stored: int
) -> dict[str, object]:
    """Return wall and CPU seconds, and memory in total and beyond the imports."""
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    peak = peak_mib()
    return {
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_mib": round(peak),
        "grown_mib": round(peak - before),
        "shape": list(shape),
        "stored": n_stored,
    }


def run_alone(program: str, path: Path) -> dict[str, object]:
    """Run one program in its own process."""
    command = [sys.executable, __file__, "--only", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{program} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(title: str, path: Path, repeats: int) -> dict[str, object]:
    """Run every program on one file and keep the fastest of the repeats."""
    runs = {
        name: min((run_alone(name, path) for _ in range(repeats)), key=lambda run: run["seconds"])
        for name in PROGRAMS
    }
    ours = runs["shortlist"]
    assert ours["shape"] == runs["pandas steps"]["shape"], "the programs found different users or items"
    print(title)
    for name, run in runs.items():
        print(
            f"  {name:13} {run['seconds']:7.2f} s, {run['cpu_seconds']:.2f} s cpu, {run['peak_mib']:5} MiB, "
            f"{run['grown_mib']:5} beyond imports; {run['seconds'] / ours['seconds']:5.2f} × our time, "
            f"{run['peak_mib'] / ours['peak_mib']:4.2f} × our memory"
        )
    steps = runs["pandas steps"]
    return {
        "programs": runs,
        "pandas steps / shortlist": {
            key: round(steps[key] / ours[key], 2)
            for key in ("seconds", "cpu_seconds", "peak_mib", "grown_mib")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        name, path = given.only
        result = (
            run_shortlist(Path(path))
            if name == "shortlist"
            else run_pandas(Path(path), name == "pandas short")
        )
        print(json.dumps(result))
        return
    from shortlist.data.datasets import fetch_originals

    n_rows = ROWS // 10 if given.quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        csv = fetch_originals("ta-feng", Path(folder)) / "purchases.csv"
        parquet = Path(folder) / "events.parquet"
        generate(parquet, n_rows)
        result = {
            "ta-feng csv": compare("Ta-Feng, CSV, 817,741 rows", csv, repeats=3),
            "generated parquet": compare(f"generated, Parquet, {n_rows:,} rows", parquet, repeats=1),
            "machine": describe("pandas", "pyarrow"),
            "load_average": round(
                os.getloadavg()[0], 1
            ),  # well above 3: the machine was busy, so compare CPU seconds
        }
    if not given.quick:
        print(f"saved to {save_results('data', result).name}")


if __name__ == "__main__":
    main()
