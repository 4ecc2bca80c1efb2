"""Training speed compared with implicit and cornac, in one run, with the quality of each.

    python benchmarks/train.py            # about half an hour on two cores; mostly implicit's LMF
    python benchmarks/train.py --part dense
    python benchmarks/train.py --quick    # one minute, small data, results not comparable

Each library runs in its own process, on the same generated interactions, with the same number of factors,
epochs, threads and held-out items. On the dense data the BPR models run in turns, REPEATS times; the run with
the median processor time is kept, with the range of the ratios to implicit in one turn. Updates per second =
interactions × epochs / seconds of `fit`; on a busy machine, compare the updates per processor second. Memory
is the increase of the peak after the CSR matrix and the compiled code are loaded, so it includes copies of
the rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from machine import RESULTS, describe, peak_mib, reset_peak, save_results

FACTORS = 64
THREADS = 2
TOPICS = 64
REPEATS = 3
N_EVALUATED = 20_000  # users with a held-out item

SHAPES = {  # users, items, rows
    "dense": (138_000, 27_000, 17_000_000),
    "sparse": (107_000, 1_280_000, 6_400_000),
    "quick": (20_000, 5_000, 1_000_000),
}
SIZES = [SHAPES["quick"], (63_000, 18_000, 7_500_000), SHAPES["dense"]]  # for the range of ratios


class Spent(NamedTuple):
    """Wall seconds, processor seconds (more reliable on a busy machine), and additional MiB."""

    wall: float
    processor: float
    mib: float


class Timer:
    """A timer that starts when created; memory is counted from `size` on, if given."""

    def __init__(self, size: float | None = None) -> None:
        self.size = reset_peak() if size is None else size
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> Spent:
        wall, processor = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
        return Spent(wall, processor, peak_mib() - self.size)


def generate(n_users: int, n_items: int, n_rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return (indptr, items): log-normal users, Zipf items, each user prefers a few topics."""
    rng = np.random.default_rng(seed)
    activity = rng.lognormal(0, 1.1, n_users)
    lengths = np.clip(activity / activity.sum() * n_rows, 5, n_items // (4 * TOPICS) * 8).astype(np.int64)
    user = np.repeat(np.arange(n_users), lengths)
    own = rng.integers(TOPICS, size=(n_users, 4))
    topic = own[user, rng.integers(4, size=user.size)]
    off_topic = rng.random(user.size) < 0.15
    topic[off_topic] = rng.integers(TOPICS, size=int(off_topic.sum()))
    per_topic = n_items // TOPICS
    weight = 1 / np.arange(1, per_topic + 1) ** 0.8
    rank = np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(user.size)).astype(np.int64)
    item = np.minimum(rank, per_topic - 1) * TOPICS + topic
    key = np.unique(user * n_items + item)
    user, item = key // n_items, (key % n_items).astype(np.int32)
    return np.searchsorted(user, np.arange(n_users + 1)).astype(np.int64), item


def hold_out(indptr: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Take one random item from each of some users: (indptr, item, users, their items)."""
    rng = np.random.default_rng(2)
    users = np.sort(rng.choice(indptr.size - 1, min(N_EVALUATED, (indptr.size - 1) // 2), replace=False))
    at = indptr[users] + (rng.random(users.size) * (indptr[users + 1] - indptr[users])).astype(np.int64)
    keep_row = np.ones(item.size, bool)
    keep_row[at] = False
    less = np.zeros(indptr.size, np.int64)
    less[users + 1] = 1
    return indptr - np.cumsum(less), item[keep_row], users, item[at]


def quality(user: np.ndarray, items: np.ndarray, data: dict[str, np.ndarray]) -> dict[str, float]:
    """Compute the AUC against random unseen items, and the share of held-out items in the first 20 unseen."""
    rng = np.random.default_rng(3)
    users, held, indptr, item = data["users"], data["held"], data["indptr"], data["item"]
    good = np.einsum("nf,nf->n", user[users], items[held])
    other = rng.integers(items.shape[0], size=users.size)
    bad = np.einsum("nf,nf->n", user[users], items[other])
    auc = float(((good > bad) + 0.5 * (good == bad)).mean())
    some, hits = users[:2000], 0
    for start in range(0, some.size, 100):
        part = some[start : start + 100]
        scores = user[part] @ items.T
        for row, u in enumerate(part):
            scores[row, item[indptr[u] : indptr[u + 1]]] = -np.inf
        target = scores[np.arange(part.size), held[start : start + 100]]
        hits += int(((scores > target[:, None]).sum(1) < 20).sum())
    return {"auc": round(auc, 4), "hit_rate_20": round(hits / some.size, 4)}


def measure(name: str, data: dict[str, np.ndarray], n_items: int, epochs: int) -> dict[str, object]:
    """Train one model and evaluate it; compilation happens before the timer starts."""
    from scipy.sparse import csr_matrix

    indptr, item = data["indptr"], data["item"]
    matrix = csr_matrix((np.ones(item.size, np.float32), item, indptr), shape=(indptr.size - 1, n_items))
    if name.startswith("shortlist"):
        spent, user, items = fit_ours(name.split()[1], matrix, epochs)
    elif name.startswith("implicit"):
        spent, user, items = fit_implicit(name.split()[1], matrix, epochs)
    else:
        spent, user, items = fit_cornac(matrix, epochs)
    factors = (user.nbytes + items.nbytes) / 2**20
    return {
        "seconds": round(spent.wall, 3),
        "processor_seconds": round(spent.processor, 3),
        "updates_per_second": round(item.size * epochs / spent.wall),
        "updates_per_processor_second": round(item.size * epochs / spent.processor),
        "grown_mib": round(spent.mib),
        "factors_mib": round(factors),
        "interactions_mib": round((item.nbytes + indptr.nbytes) / 2**20),
        **quality(user, items, data),
    }


def fit_ours(cls: str, matrix: object, epochs: int) -> tuple[Spent, np.ndarray, np.ndarray]:
    import shortlist as sl

    sl.set_threads(THREADS)

    def make(**more: object) -> object:
        base = {"n_factors": FACTORS, "tol": 0.0, "lr": 0.05, "reg": 0.01, "bias": True}
        base |= {"negative_draws": 1}  # plain BPR, as in the other libraries
        return getattr(sl, cls)(**(base | more))

    warm = sl.Interactions.from_csr(matrix[:2000])  # compiles
    make(n_epochs=1).fit(warm)
    size = reset_peak()
    train = sl.Interactions.from_csr(matrix)
    timer = Timer(size)
    model = make(n_epochs=epochs).fit(train)
    spent = timer.read()
    user, items, bias, _ = model.score(model.build_request()).factors
    return spent, np.hstack([user, np.ones((len(user), 1), "f4")]), np.hstack([items, bias[:, None]])


def fit_implicit(cls: str, matrix: object, epochs: int) -> tuple[Spent, np.ndarray, np.ndarray]:
    if cls == "BPR":
        from implicit.bpr import BayesianPersonalizedRanking as Model

        model = Model(
            factors=FACTORS,
            learning_rate=0.05,
            regularization=0.01,
            iterations=epochs,
            num_threads=THREADS,
            random_state=1,
        )
    else:
        from implicit.lmf import LogisticMatrixFactorization as Model

        model = Model(factors=FACTORS, iterations=epochs, num_threads=THREADS, random_state=1)
    timer = Timer()
    model.fit(matrix, show_progress=False)
    return timer.read(), model.user_factors, model.item_factors


def fit_cornac(matrix: object, epochs: int) -> tuple[Spent, np.ndarray, np.ndarray]:
    import cornac

    coo = matrix.tocoo()
    names = {u: u for u in range(matrix.shape[0])}, {i: i for i in range(matrix.shape[1])}
    data = cornac.data.Dataset(*matrix.shape, *names, (coo.row, coo.col, coo.data), seed=1)
    model = cornac.models.BPR(
        k=FACTORS, max_iter=epochs, learning_rate=0.05, lambda_reg=0.01, num_threads=THREADS, seed=1
    )
    timer = Timer()
    model.fit(data)
    spent = timer.read()
    user = np.hstack([model.u_factors, np.ones((matrix.shape[0], 1), "f4")])
    return spent, user, np.hstack([model.i_factors, model.i_biases[:, None]])


def run_alone(name: str, path: str, epochs: int) -> dict[str, object]:
    """Run one library in its own process; report a failure."""
    command = [sys.executable, __file__, "--library", name, "--data", path, "--epochs", str(epochs)]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def cold_start() -> float:
    """Measure how much longer the first fit of BPRMF, DKBPRMF, HRM and DKHRM takes than the second."""
    code = (
        "import time, shortlist as sl\n"
        "data = sl.load_dataset('sample')\n"
        "def once():\n"
        "    began = time.perf_counter()\n"
        "    for m in (sl.BPRMF, sl.DKBPRMF, sl.HRM, sl.DKHRM): m(n_epochs=1).fit(data)\n"
        "    return time.perf_counter() - began\n"
        "first = once(); print(first - once())\n"
    )
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
    return round(float(done.stdout.strip().splitlines()[-1]), 2)


class EpochClock:
    """A progress callback that measures the processor seconds between the ends of epochs."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def __call__(self, progress: object) -> None:
        self.ends.append(time.process_time())

    def least(self) -> float:
        """Return the processor seconds of the fastest epoch but the first."""
        return float(np.diff(self.ends).min())


def hrm_rate(n_users: int, seed: int = 4) -> float:
    """Measure rows per processor second of HRM with twenty baskets of about five items per user."""
    import shortlist as sl

    rng = np.random.default_rng(seed)
    n_rows = n_users * 100
    frame = {
        "user_id": np.repeat(np.arange(n_users), 100),
        "item_id": (rng.zipf(1.3, n_rows) % 10_000).astype(np.int64),
        "timestamp": np.tile(np.repeat(np.arange(20), 5), n_users) * 86_400 + 1_000_000_000,
    }
    import polars as pl

    data = sl.Interactions.from_frame(pl.DataFrame(frame))
    clock = EpochClock()
    sl.set_threads(THREADS)
    sl.HRM(n_factors=FACTORS, n_epochs=6, tol=0.0).fit(data, progress=clock)
    return round(data.n_rows / clock.least())


def growth(sizes: list[int]) -> list[dict[str, float]]:
    """Measure processor nanoseconds per interaction as the data grows; 100 rows per user, items ∝ √rows."""
    from scipy.sparse import csr_matrix

    import shortlist as sl

    sl.set_threads(THREADS)
    found = []
    for n_rows in sizes:
        n_users, n_items = n_rows // 100, int(27_000 * (n_rows / 17_000_000) ** 0.5)
        indptr, item = generate(n_users, max(n_items, 1000), n_rows)
        shape = (n_users, max(n_items, 1000))
        train = sl.Interactions.from_csr(
            csr_matrix((np.ones(item.size, np.float32), item, indptr), shape=shape)
        )
        clock = EpochClock()
        sl.BPRMF(negative_draws=1, n_factors=FACTORS, n_epochs=4, tol=0.0).fit(train, progress=clock)
        ns = 1e9 * clock.least() / item.size
        found.append({"rows": int(item.size), "processor_ns_per_interaction": round(ns, 2)})
        print(f"  {item.size:>12,} rows  {ns:6.1f} processor ns per interaction", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--part", action="append", help="dense, sparse, growth, …; the others stay as they are"
    )
    parser.add_argument("--library", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    if options.library:
        stored = np.load(options.data)
        data = {name: stored[name] for name in ("indptr", "item", "users", "held")}
        print(json.dumps(measure(options.library, data, int(stored["n_items"]), options.epochs)))
        return
    parts = {
        "dense": lambda: compare("dense", options.epochs),
        "sparse": lambda: compare("sparse", options.epochs),
        "hrm_rows_per_processor_second": lambda: hrm_rate(20_000),
        "sizes": compare_sizes,
        "cold_start_seconds": cold_start,
        "growth": lambda: growth([1_000_000, 10_000_000, 100_000_000]),
    }
    if options.quick:
        parts = {
            "quick": lambda: compare("quick", options.epochs),
            "growth": lambda: growth([300_000, 1_000_000]),
        }
    result = json.loads((RESULTS / "train.json").read_text()) if (RESULTS / "train.json").is_file() else {}
    result |= {"machine": describe("implicit", "cornac"), "factors": FACTORS, "threads": THREADS}
    for name in options.part or parts:
        result[name] = parts[name]()
        if isinstance(result[name], float):
            print(f"{name}: {result[name]:,}")
        if not options.quick:
            result.setdefault("load_average", {})[name] = round(os.getloadavg()[0], 1)
            print(save_results("train", result))


def summarize(runs: list[dict[str, object]], peers: list[dict[str, object]]) -> dict[str, object]:
    """Return the run with the median processor time, with its ratio to the peer in the same turns."""
    for run in (*runs, *peers):
        if "failed" in run:
            return {"failed": run["failed"]}
    found = sorted(runs, key=lambda run: run["processor_seconds"])[len(runs) // 2]
    pairs = list(zip(runs, peers, strict=False))  # cornac runs once
    wall = [theirs["seconds"] / run["seconds"] for run, theirs in pairs]
    processor = [theirs["processor_seconds"] / run["processor_seconds"] for run, theirs in pairs]
    return found | {
        "ratio_to_implicit": round(float(np.median(wall)), 2),
        "processor_ratio_to_implicit": round(float(np.median(processor)), 2),
        "processor_ratio_range": [round(min(processor), 2), round(max(processor), 2)],
    }


def compare_sizes(n_runs: int = 2, epochs: int = 3) -> list[dict[str, object]]:
    """How many times as fast as implicit BPRMF is per processor second, for each size and each run."""
    found = []
    for n_users, n_items, n_rows in SIZES:
        indptr, item, users, held = hold_out(*generate(n_users, n_items, n_rows))
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "data.npz")
            np.savez(path, indptr=indptr, item=item, users=users, held=held, n_items=n_items)
            ratios = []
            for _ in range(n_runs):
                ours, theirs = (run_alone(name, path, epochs) for name in ("shortlist BPRMF", "implicit BPR"))
                ratios.append(round(theirs["processor_seconds"] / ours["processor_seconds"], 1))
        found.append({"interactions": int(item.size), "epochs": epochs, "processor_ratios": ratios})
        print(found[-1], flush=True)
    return found


def compare(shape: str, epochs: int) -> dict[str, object]:
    n_users, n_items, n_rows = SHAPES[shape]
    indptr, item, users, held = hold_out(*generate(n_users, n_items, n_rows))
    print(f"{shape}: {n_users:,} users, {n_items:,} items, {item.size:,} interactions, {epochs} epochs")
    names = [
        "implicit BPR",
        "shortlist BPRMF",
        "shortlist DKBPRMF",
        "cornac BPR",
        "implicit LMF",
        "shortlist LogMF",
    ]
    rows: dict[str, object] = {
        "users": n_users,
        "items": n_items,
        "interactions": int(item.size),
        "epochs": epochs,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data.npz")
        np.savez(path, indptr=indptr, item=item, users=users, held=held, n_items=n_items)
        repeats = REPEATS if shape == "dense" else 1
        turns = [{name: run_alone(name, path, epochs) for name in names[:3]} for _ in range(repeats)]
        runs = {name: [turn[name] for turn in turns] for name in names[:3]}
        runs |= {name: [run_alone(name, path, epochs)] for name in names[3:]}
    for name in names:
        peer = "implicit LMF" if "Log" in name or "LMF" in name else "implicit BPR"
        rows[name] = found = summarize(runs[name], runs[peer])
        if "failed" in found:
            print(f"  {name:20} failed: {found['failed']}")
            continue
        print(
            f"  {name:20} {found['updates_per_second'] / 1e6:7.2f} M updates/s  "
            f"{found['ratio_to_implicit']:5.1f} × implicit "
            f"({found['processor_ratio_to_implicit']:.1f} × per processor second, "
            f"{found['processor_ratio_range']})  "
            f"AUC {found['auc']:.3f}  hit rate@20 {found['hit_rate_20']:.3f}  "
            f"+{found['grown_mib']} MiB (factors {found['factors_mib']}, rows {found['interactions_mib']})",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
