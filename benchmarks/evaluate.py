"""Evaluation of a million lists, compared with ranx in one run.

    python benchmarks/evaluate.py            # about three minutes on two cores
    python benchmarks/evaluate.py --quick    # half a minute, a hundred thousand lists

Each library runs in its own process on the same generated lists of 20 items and truths of 1 to 9 items.
Compilation is not timed. ranx computes seven metrics and is measured twice: on padded arrays, its fastest
input, where users must already be in the same order on both sides; and from tables of ids, on a tenth of the
users. shortlist computes all its metrics and matches users by id: from objects, with users in the same order
and shuffled, and from tables.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, peak_mib, save_results

LENGTH, MAX_TRUTH, ITEMS, CHUNK = 20, 9, 50_000, 20_000
METRICS = ["hits", "precision", "recall", "f1", f"ndcg@{LENGTH}", "map", "mrr"]


def generate(n_users: int, length: int = LENGTH, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (n_users, length) items shown, (n_users, MAX_TRUTH) items in the truth and (n_users,) sizes."""
    rng = np.random.default_rng(seed)

    def rows(width: int) -> np.ndarray:  # distinct within a row: popular items first, with a random step
        start = (rng.random(n_users) ** 3 * ITEMS).astype(np.int64)[:, None]
        step = rng.integers(1, 40, n_users)[:, None]
        return ((start + step * np.arange(width)) % ITEMS).astype(np.int32)

    shown = rows(length)
    truth_items = rows(MAX_TRUTH) + ITEMS  # only every third item is among those shown
    for column in range(1, MAX_TRUTH, 3):
        truth_items[:, column] = shown[
            np.arange(n_users), rng.integers(0, length // 3, n_users) * 3 + column // 3
        ]
    return shown, truth_items, rng.integers(1, MAX_TRUTH + 1, n_users)


def tables(
    shown: np.ndarray, truth_items: np.ndarray, sizes: np.ndarray, shuffled: bool = False
) -> tuple[Any, Any]:
    """Return the same as polars tables of ids."""
    import polars as pl

    n, length = shown.shape
    user = np.random.default_rng(1).permutation(n) if shuffled else np.arange(n)
    lists = pl.DataFrame(
        {
            "user_id": np.repeat(user, length),
            "item_id": shown.ravel(),
            "score": np.tile(-np.arange(length, dtype=np.float32), n),
        }
    )
    real = np.arange(MAX_TRUTH) < sizes[:, None]
    truth = pl.DataFrame({"user_id": np.repeat(user, sizes), "item_id": truth_items[real]})
    return lists, truth


def time_best(work: Any, repeats: int = 3) -> tuple[float, Any]:
    """Return the seconds of the fastest of a few runs, and the last result."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        found = work()
        best = min(best, time.perf_counter() - start)
    return best, found


def cpu_time(work: Any) -> float:
    """Return the processor seconds of all threads, which do not depend on other load."""
    start = time.process_time()
    work()
    return time.process_time() - start


def run_shortlist(n_users: int) -> dict[str, Any]:
    import shortlist as sl

    lists_table, truth_table = tables(*generate(n_users))
    small = tables(*generate(2000))
    sl.evaluate(small[0], sl.Interactions.from_frame(small[1]), max_items=LENGTH)
    whole, _ = time_best(
        lambda: sl.evaluate(lists_table, sl.Interactions.from_frame(truth_table), max_items=LENGTH), repeats=2
    )
    truth = sl.Interactions.from_frame(truth_table)
    lists = sl.RankedLists.from_frame(lists_table)
    seconds, report = time_best(lambda: sl.evaluate(lists, truth, max_items=LENGTH))
    cpu = cpu_time(lambda: sl.evaluate(lists, truth, max_items=LENGTH))
    lists_table, truth_table = tables(*generate(n_users), shuffled=True)
    truth, lists = sl.Interactions.from_frame(truth_table), sl.RankedLists.from_frame(lists_table)
    shuffled, _ = time_best(lambda: sl.evaluate(lists, truth, max_items=LENGTH))
    figures = {name: report.mean(name) for name in ("f1", "ndcg", "average_precision", "reciprocal_rank")}
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "seconds_shuffled": shuffled,
        "seconds_from_tables": whole,
        "peak_mib": peak_mib(),
        **figures,
    }


def run_ranx_arrays(n_users: int) -> dict[str, Any]:
    import ranx

    def arrays(n: int) -> tuple[np.ndarray, np.ndarray]:
        shown, truth_items, sizes = generate(n)
        counts = np.arange(MAX_TRUTH) < sizes[:, None]
        score = np.broadcast_to(-np.arange(LENGTH, dtype=np.float64), shown.shape)
        return np.stack([truth_items, counts], 2).astype(np.float64), np.stack([shown, score], 2)

    ranx.evaluate(*arrays(2000), METRICS)
    qrels, run = arrays(n_users)
    seconds, found = time_best(lambda: ranx.evaluate(qrels, run, METRICS))
    cpu = cpu_time(lambda: ranx.evaluate(qrels, run, METRICS))
    figures = {name: float(v) for name, v in found.items()}
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_mib": peak_mib(), **figures}


def run_ranx_tables(n_users: int) -> dict[str, Any]:
    import polars as pl
    import ranx

    def frames(n: int) -> tuple[Any, Any]:
        lists, truth = tables(*generate(n))
        lists, truth = (t.with_columns(pl.col("user_id", "item_id").cast(pl.String)) for t in (lists, truth))
        texts = {"user_id": object, "item_id": object}  # ranx accepts no other string type
        return (
            truth.with_columns(score=pl.lit(1, pl.Int64)).to_pandas().astype(texts),
            lists.with_columns(pl.col("score").cast(pl.Float64)).to_pandas().astype(texts),
        )

    def build(truth: Any, lists: Any) -> tuple[Any, Any]:
        names = {"q_id_col": "user_id", "doc_id_col": "item_id", "score_col": "score"}
        return ranx.Qrels.from_df(truth, **names), ranx.Run.from_df(lists, **names)

    ranx.evaluate(*build(*frames(2000)), METRICS)
    given = frames(n_users)
    building, (qrels, run) = time_best(lambda: build(*given), repeats=1)
    seconds, found = time_best(lambda: ranx.evaluate(qrels, run, METRICS), repeats=1)
    figures = {name: float(v) for name, v in found.items()}
    return {"seconds": seconds, "seconds_from_tables": building + seconds, "peak_mib": peak_mib(), **figures}


def run_stream(n_users: int, length: int) -> dict[str, Any]:
    """Measure the peak memory beyond the truth when lists arrive in batches."""
    from scipy.sparse import csr_matrix

    import shortlist as sl

    items = sl.IdMap.of(range(2 * ITEMS))

    def chunk(start: int) -> Any:
        n = min(CHUNK, n_users - start)
        shown = generate(n, length, seed=start)[0]
        return sl.RankedLists(
            users=sl.IdMap.of(range(start, start + n)),
            item_ids=items,
            indptr=np.arange(0, n * length + 1, length),
            items=shown.ravel(),
            scores=np.zeros(n * length, np.float32),
        )

    _, truth_items, sizes = generate(n_users)
    real = np.arange(MAX_TRUTH) < sizes[:, None]
    truth = sl.Interactions.from_csr(
        csr_matrix(
            (
                np.ones(int(sizes.sum()), np.float32),
                truth_items[real],
                np.concatenate([[0], np.cumsum(sizes)]),
            ),
            shape=(n_users, 2 * ITEMS),
        )
    )
    sl.evaluate(iter([chunk(0)]), truth)
    before = peak_mib()
    start = time.perf_counter()
    sl.evaluate((chunk(k) for k in range(0, n_users, CHUNK)), truth)
    return {
        "seconds_with_generating": time.perf_counter() - start,
        "peak_mib_beyond_first_chunk": peak_mib() - before,
        "mib_of_the_lists_if_held": n_users * length * 8 / 2**20,
    }


def run_alone(name: str, *args: int) -> dict[str, Any]:
    """Run one library in its own process."""
    command = [sys.executable, str(Path(__file__)), "--only", name, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


RUNS = {
    "shortlist": run_shortlist,
    "ranx_arrays": run_ranx_arrays,
    "ranx_tables": run_ranx_tables,
    "stream": run_stream,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="LIBRARY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        name, *numbers = given.only
        print(json.dumps(RUNS[name](*map(int, numbers))))
        return
    n = 100_000 if given.quick else 1_000_000
    ours, arrays = run_alone("shortlist", n), run_alone("ranx_arrays", n)
    few, ours_few = run_alone("ranx_tables", n // 10), run_alone("shortlist", n // 10)
    for name, theirs in {"f1": "f1", "ndcg": f"ndcg@{LENGTH}", "average_precision": "map"}.items():
        assert abs(ours[name] - arrays[theirs]) < 1e-9, (name, ours[name], arrays[theirs])
    streams = {f"{length} items per list": run_alone("stream", n, length) for length in (20, 100)}
    ratios = {
        "ranx on arrays / shortlist on objects": arrays["seconds"] / ours["seconds"],
        "ranx on arrays / shortlist on objects, processor time": arrays["cpu_seconds"] / ours["cpu_seconds"],
        "ranx on arrays / shortlist on objects, users shuffled": arrays["seconds"] / ours["seconds_shuffled"],
        "ranx on its objects / shortlist on objects": few["seconds"] / ours_few["seconds"],
        "ranx from tables / shortlist from tables": few["seconds_from_tables"]
        / ours_few["seconds_from_tables"],
    }
    print(f"{n:,} lists: shortlist {ours['seconds']:.2f} s, ranx on arrays {arrays['seconds']:.2f} s")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.1f}×")
    for name, found in streams.items():
        print(
            f"streamed, {name}: {found['peak_mib_beyond_first_chunk']:.0f} MiB more than one batch needs "
            f"(the lists themselves would take {found['mib_of_the_lists_if_held']:.0f} MiB)"
        )
    result = {
        "lists": n,
        "length": LENGTH,
        "shortlist": ours,
        "ranx_arrays": arrays,
        f"on {n // 10} lists": {"shortlist": ours_few, "ranx": few},
        "ratios": ratios,
        "streamed": streams,
        "machine": describe("ranx"),
    }
    if not given.quick:
        print(f"saved to {save_results('evaluate', result).name}")


if __name__ == "__main__":
    main()
