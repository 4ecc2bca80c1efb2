"""Time and memory of an allocation of generated candidates.

    python benchmarks/allocate_speed.py                  # 1 million users with 100 candidates each
    python benchmarks/allocate_speed.py --users 100000

Each case runs in a process of its own; kernels are compiled before the time is taken. Goals on two cores for
a million users: 20 s for a total alone, 120 s with a limit per item, below 4 GB.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np
import polars as pl
from machine import describe, peak_mib, save_results

import shortlist as sl
from shortlist.data.ids import IdMap
from shortlist.data.lists import RankedLists

N_ITEMS, N_CANDIDATES, BLOCK = 20_000, 100, 10_000
CASES = ("total", "item limits")


def generate(n_users: int) -> RankedLists:
    """Candidates drawn by popularity; users differ in how much they buy."""
    rng = np.random.default_rng(0)
    weights = np.cumsum(1 / np.arange(1, N_ITEMS + 1) ** 0.8)
    items = np.empty((n_users, N_CANDIDATES), np.int32)
    p = np.empty((n_users, N_CANDIDATES))
    for start in range(0, n_users, BLOCK):
        n = min(BLOCK, n_users - start)
        drawn = np.searchsorted(weights, rng.random((n, N_CANDIDATES)) * weights[-1])
        drawn.sort(axis=1)  # move repeated items to the next free one, so that items of a user are distinct
        distinct = np.maximum.accumulate(drawn - np.arange(N_CANDIDATES), axis=1) + np.arange(N_CANDIDATES)
        items[start : start + n] = rng.permuted(distinct % N_ITEMS, axis=1)
        rates = 0.2 + rng.beta(1, 3, (n, 1))
        p[start : start + n] = np.sort(rng.beta(0.5, 8, (n, N_CANDIDATES)) * rates, axis=1)[:, ::-1]
    p = p.reshape(-1)
    return RankedLists(
        users=IdMap(pl.Series(np.arange(n_users))),
        item_ids=IdMap(pl.Series(np.arange(N_ITEMS))),
        indptr=np.arange(n_users + 1) * N_CANDIDATES,
        items=items.reshape(-1),
        scores=p.astype(np.float32),
        probabilities=p,
    )


def run(case: str, n_users: int) -> dict[str, object]:
    """Two items per user on average, at most ten each; with item limits, twice the mean use of an item."""

    def limits(n: int) -> dict[str, int]:
        chosen = {"budget": 2 * n, "max_items": 10}
        return chosen | ({"item_limits": max(4 * n // N_ITEMS, 1)} if case == "item limits" else {})

    sl.allocate(generate(1000), **limits(1000))  # compile
    lists = generate(n_users)
    began, processor = time.perf_counter(), time.process_time()
    result = sl.allocate(lists, **limits(n_users))
    return {
        "case": case,
        "users": n_users,
        "candidates": int(lists.items.size),
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "peak_mib": round(peak_mib()),
        "items": result.n_items,
        "gap": result.gap,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--name", default="allocate_speed")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run(options.case, options.users)))
        sys.exit()
    rows = []
    for case in CASES:
        command = [sys.executable, __file__, "--users", str(options.users), "--case", case]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1], flush=True)
        save_results(options.name, {"machine": describe(), "runs": rows})
