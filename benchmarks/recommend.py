"""Lists per second, compared with implicit's `recommend` and the plain matrix product in one run.

python benchmarks/recommend.py            # a few minutes, writes benchmarks/results/recommend.json
python benchmarks/recommend.py --quick    # seconds, small sizes, writes nothing
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import RESULTS, describe, save_results
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from shortlist.core.threads import set_threads
from shortlist.data.interactions import Interactions
from shortlist.models.factorization.mf import DKBPRMF
from shortlist.models.precomputed import PrecomputedScores
from shortlist.models.two_stage.trees import TreeEnsemble, TreeParams, fit_trees

N_THREADS, N_FACTORS, N = 2, 64, 20
ROUNDS = 7
PARTS = ("items_27k", "items_1m", "memory", "trees")
BATCH = 256  # users per plain product: larger batches only wait for memory
# lists that end at the learned boundary, of scores that are a plain product
PLAIN: dict[str, Any] = {"boundary": "learned", "repeat_decay": None, "trend_half_life": None}


def sales(n_users: int, n_items: int, n_rows: int, seed: int = 0) -> csr_matrix:
    """Generate sales: Zipf popularity, and users who prefer a few of many topics."""
    rng = np.random.default_rng(seed)
    n_topics = 200
    popularity = 1.0 / np.arange(1, n_items + 1) ** 0.9
    common = 1.0 / np.arange(1, n_topics + 1) ** 0.8
    topic = rng.choice(n_topics, n_items, p=common / common.sum())
    by_topic = np.argsort(topic, kind="stable")
    starts = np.searchsorted(topic[by_topic], np.arange(n_topics + 1))
    mass = np.concatenate([[0.0], np.cumsum(popularity[by_topic])])
    activity = rng.pareto(1.5, n_users) + 0.3
    rows = np.maximum(3, activity / activity.sum() * n_rows).astype(np.int64)
    user = np.repeat(np.arange(n_users), np.minimum(rows, 2000))
    likes = rng.choice(n_topics, (n_users, 5), p=common / common.sum())
    drawn = likes[user, rng.integers(0, 5, user.size)]
    drawn = np.where(rng.random(user.size) < 0.2, -1, drawn)  # a fifth of all sales follows no topic
    low, high = (
        np.where(drawn < 0, 0.0, mass[starts[drawn]]),
        np.where(drawn < 0, mass[-1], mass[starts[drawn + 1]]),
    )
    place = np.searchsorted(mass, low + rng.random(user.size) * (high - low), side="right") - 1
    item = by_topic[np.clip(place, 0, n_items - 1)]
    matrix = csr_matrix((np.ones(user.size, np.float32), (user, item)), shape=(n_users, n_items))
    matrix.data[:] = 1.0
    return matrix


def time_in_turns(*tasks: Callable[[int], Any]) -> tuple[Any, Any]:
    """Run the tasks in turns; return (ROUNDS, n_tasks) wall seconds on all threads, CPU seconds on one.

    CPU seconds are more reliable on a busy machine, because threads that wait for each other, as in a matrix
    product, suffer most from other load.
    """
    wall, cpu = np.empty((ROUNDS, len(tasks))), np.empty((ROUNDS, len(tasks)))
    for clock, n_threads, spent in ((time.perf_counter, N_THREADS, wall), (time.process_time, 1, cpu)):
        set_threads(n_threads)
        for turn in range(ROUNDS):
            for number, task in enumerate(tasks):
                start = clock()
                task(n_threads)
                spent[turn, number] = clock() - start
    set_threads(N_THREADS)
    return wall, cpu


def compare_rates(name: str, theirs: int, wall: Any, cpu: Any, n_users: int) -> dict[str, float]:
    """Compare the first task with another one; ratios are medians over the rounds."""
    return {
        f"{name}_users_per_second": n_users / float(wall[:, theirs].min()),
        f"ratio_to_{name}": float(np.median(wall[:, theirs] / wall[:, 0])),
        f"one_thread_cpu_ratio_to_{name}": float(np.median(cpu[:, theirs] / cpu[:, 0])),
    }


def bare_product(users: Any, items: Any) -> Callable[[int], None]:
    """Return a task that computes the matrix product in batches that reuse their memory."""
    out, right = np.empty((BATCH, len(items)), np.float32), items.T

    def run(n_threads: int) -> None:
        with threadpool_limits(n_threads, "blas"):
            for start in range(0, len(users), BATCH):
                part = users[start : start + BATCH]
                np.matmul(part, right, out=out[: len(part)])

    return run


def trained_als(matrix: csr_matrix, iterations: int) -> Any:
    """Train implicit's ALS."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=N_FACTORS, iterations=iterations, alpha=10, random_state=1, num_threads=N_THREADS
    )
    with threadpool_limits(1, "blas"):
        model.fit(matrix, show_progress=False)
    return model


def trained_bpr(matrix: csr_matrix, iterations: int) -> Any:
    """Train implicit's BPR; its last column is the item bias, so one factor fewer gives as many columns."""
    from implicit.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors=N_FACTORS - 1,
        iterations=iterations,
        learning_rate=0.05,
        random_state=1,
        num_threads=N_THREADS,
    )
    with threadpool_limits(1, "blas"):
        model.fit(matrix, show_progress=False)
    return model


def random_factors(matrix: csr_matrix) -> Any:
    """Return an untrained model of implicit with random normal factors: the spectrum is flat."""
    from implicit.als import AlternatingLeastSquares

    rng, model = np.random.default_rng(2), AlternatingLeastSquares(factors=N_FACTORS)
    model.user_factors, model.item_factors = (
        rng.standard_normal((n, N_FACTORS), np.float32) for n in matrix.shape
    )
    return model


def wrapped(model: Any, train: Interactions) -> PrecomputedScores:
    """Wrap implicit's factors as a model; read-only, so that the index is built once."""
    pair = tuple(np.array(side, np.float32) for side in (model.user_factors, model.item_factors))
    for side in pair:
        side.flags.writeable = False
    return PrecomputedScores(scores=pair).fit(train)


def top_n(model: Any, matrix: csr_matrix, train: Interactions, n_users: int) -> dict[str, float]:
    """Measure top-20 lists without seen items on both sides, and whether the lists agree."""
    rng = np.random.default_rng(7)
    users = np.sort(rng.choice(matrix.shape[0], n_users, replace=False))
    ours, rows = wrapped(model, train), matrix[users]
    start = time.process_time()
    ours.prepare()
    index_seconds = time.process_time() - start
    ours.recommend(users[:256], N=N)

    def quick(_: int) -> None:
        ours.recommend(users, N=N, filter_seen=True)

    def peer(n_threads: int) -> None:
        model.num_threads = n_threads
        with threadpool_limits(1, "blas"):  # as implicit recommends; it uses its own threads
            model.recommend(users, rows, N=N, filter_already_liked_items=True)

    bare = bare_product(model.user_factors[users], model.item_factors)
    wall, cpu = time_in_turns(quick, peer, bare)
    return {
        "users_per_second": n_users / float(wall[:, 0].min()),
        "one_thread_cpu_us_per_user": 1e6 * float(np.median(cpu[:, 0])) / n_users,
        **compare_rates("implicit", 1, wall, cpu, n_users),
        **compare_rates("bare_product", 2, wall, cpu, n_users),
        "index_seconds": index_seconds,
        "recall": recall(ours, users[:16], N=N),
    }


def recall(model: Any, users: Any, **options: Any) -> float:
    """Compute the share of lists that are the same as without the index, when every item is scored."""
    quick = model.recommend(users, **options)
    vectors, items, bias, cache = model.score(model.build_request(users)).factors
    index, cache.index = cache.index, None
    try:
        full = model.recommend(users, **options)  # too few users to build an index
    finally:
        cache.index = index
    plain = vectors.astype(np.float64) @ items.T.astype(np.float64) + (0 if bias is None else bias)
    at = np.repeat(np.arange(len(users)), np.diff(full.indptr))
    if not np.allclose(plain[at, full.items], full.scores, rtol=1e-4, atol=1e-5):
        raise SystemExit("the scores of the lists are not the scores of the model")
    same = [quick.at(n).items == full.at(n).items for n in range(len(users))]
    return float(np.mean(same))


def dynamic(model: DKBPRMF, n_users: int, **options: Any) -> dict[str, float]:
    """Measure lists above the learned boundary and the plain product for the same users."""
    rng = np.random.default_rng(8)
    ids = np.sort(rng.choice(len(model.users_), n_users, replace=False))
    vectors, items, *_ = model.score(model.build_request(ids)).factors
    lists = model.recommend(ids, **options)
    wall, cpu = time_in_turns(lambda _: model.recommend(ids, **options), bare_product(vectors, items))
    return {
        "users_per_second": n_users / float(wall[:, 0].min()),
        "one_thread_cpu_us_per_user": 1e6 * float(np.median(cpu[:, 0])) / n_users,
        **compare_rates("bare_product", 1, wall, cpu, n_users),
        "mean_length": float(lists.lengths.mean()),
        "cover_ratio": lists.cover_ratio,
        "recall": recall(model, ids[:16], **options),
    }


def one_user(model: Any, **options: Any) -> dict[str, float]:
    """Measure the processor milliseconds of a request for one user."""
    rng = np.random.default_rng(9)
    times = []
    for user in rng.choice(len(model.users_), 60, replace=False).tolist():
        start = time.process_time()
        model.recommend([user], **options)
        times.append(1e3 * (time.process_time() - start))
    return {"median_ms": float(np.median(times[10:])), "worst_ms": float(np.max(times[10:]))}


def catalogue(
    n_users: int, n_items: int, n_rows: int, n_users_served: int, n_epochs: int, peers: tuple[str, ...]
) -> dict[str, Any]:
    """Run all measurements for one catalogue size."""
    matrix = sales(n_users, n_items, n_rows)
    train = Interactions.from_csr(matrix)
    sold = np.bincount(matrix.indices, minlength=n_items)
    found: dict[str, Any] = {"n_users": n_users, "n_items": n_items, "n_rows": int(matrix.nnz)}
    # the index skips items without sales, whose vectors are near zero: consider this with the ratios
    found |= {
        "items_never_sold": float((sold == 0).mean()),
        "items_sold_five_times": float((sold >= 5).mean()),
    }
    builders: dict[str, Callable[[], Any]] = {
        "als": lambda: trained_als(matrix, 3),
        "bpr": lambda: trained_bpr(matrix, n_epochs),
        "normal": lambda: random_factors(matrix),
    }
    for peer in peers:
        model = builders[peer]()
        found[f"top_20_{peer}"] = record(peer, top_n(model, matrix, train, n_users_served))
        del model
    for negatives in (10.0, 100.0):  # as in data without repeats, and a stricter boundary
        ours = DKBPRMF(n_factors=N_FACTORS, n_epochs=n_epochs, negatives=negatives, seed=1, **PLAIN).fit(
            train
        )
        ours.prepare()
        name = f"dynamic_negatives_{negatives:.0f}"
        found[name] = record(name, dynamic(ours, n_users_served))
    found["dynamic_max_100"] = record("dynamic_max_100", dynamic(ours, n_users_served, max_items=100))
    found["one_user_dynamic"] = record("one_user_dynamic", one_user(ours))
    found["one_user_dynamic_max_100"] = record("one_user_dynamic_max_100", one_user(ours, max_items=100))
    found["one_user_top_20"] = record("one_user_top_20", one_user(ours, N=N))
    return found


def record(name: str, result: dict[str, float]) -> dict[str, float]:
    """Add the load average to a result and print it."""
    result["load_average"] = os.getloadavg()[0]
    show(result, f"{name}.")
    return result


def memory(n_known: int, n_items: int, n_users_served: int) -> float:
    """Measure the peak megabytes of a fresh process that streams the lists of some of `n_known` users."""
    command = [sys.executable, __file__, "--stream", str(n_known), str(n_items), str(n_users_served)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(out.stdout)


def stream(n_known: int, n_items: int, n_users_served: int) -> None:
    """Print the largest resident size after any batch; run by `memory`."""
    rng = np.random.default_rng(0)
    item = rng.integers(0, n_items, n_known).astype(np.int32)
    matrix = csr_matrix((np.ones(n_known, np.float32), (np.arange(n_known), item)), shape=(n_known, n_items))
    shape = np.exp(-np.arange(N_FACTORS) / 12).astype(np.float32)
    pair = tuple(rng.standard_normal((n, N_FACTORS), np.float32) * shape for n in (n_known, n_items))
    for side in pair:
        side.flags.writeable = False
    model = PrecomputedScores(scores=pair).fit(Interactions.from_csr(matrix))
    sizes = [0.0]

    def record_size(done: int, total: int) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * 4096 / 2**20)

    with tempfile.TemporaryDirectory() as folder:
        users = model.users_.values.head(n_users_served)
        model.recommend_to_file(Path(folder) / "lists.parquet", users, N=10, progress=record_size)
    print(max(sizes))


def evaluate_trees(n_rows: int) -> dict[str, Any]:
    """Evaluate trees as in TwoStage on one core, here and in LightGBM; results must be the same bits."""
    import lightgbm

    rng = np.random.default_rng(0)
    columns = rng.standard_normal((n_rows, 48), np.float32)
    columns[:, ::3] = np.floor(2 * columns[:, ::3])
    columns[:, 1::6][rng.random((n_rows, 8)) < 0.5] = np.nan
    odds = np.nan_to_num(columns[:, :12]) @ rng.standard_normal(12) / 2
    params = TreeParams(columns=0.5, rows=0.7)
    text = fit_trees(columns, rng.random(n_rows) < 1 / (1 + np.exp(4 - odds)), None, params)
    ours, theirs = TreeEnsemble(text), lightgbm.Booster(model_str=text.tobytes().decode())
    ours.raw_scores(columns[:100])
    spent: dict[str, list[float]] = {"ours": [], "lightgbm": []}
    for _ in range(ROUNDS):
        start = time.process_time()
        sums = ours.raw_scores(columns)
        middle = time.process_time()
        same = sums == theirs.predict(columns, raw_score=True, num_threads=1)
        assert same.all()
        spent["ours"].append(middle - start)
        spent["lightgbm"].append(time.process_time() - middle)
    each = {name: min(seconds) / n_rows / params.n_rounds * 1e9 for name, seconds in spent.items()}
    return {
        "rows": n_rows,
        "ns_per_row_and_tree": {name: round(value, 1) for name, value in each.items()},
        "ratio_to_lightgbm": round(each["lightgbm"] / each["ours"], 2),
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS, help="measure only this again")
    parser.add_argument("--stream", nargs=3, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    set_threads(N_THREADS)
    if given.stream:
        stream(*given.stream)
        return
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="implicit")
    if given.quick:
        catalogue(3000, 2000, 60_000, 1000, 10, ("als", "bpr", "normal"))
        record("memory", streaming_memory(20_000, 2000, 200_000))
        record("trees", evaluate_trees(20_000))
        return
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "items_27k": lambda: catalogue(60_000, 27_000, 2_500_000, 4096, 15, ("als", "bpr", "normal")),
        "items_1m": lambda: catalogue(60_000, 1_000_000, 4_000_000, 256, 8, ("als",)),
        "memory": lambda: record("memory", streaming_memory(100_000, 27_000, 1_000_000)),
        "trees": lambda: record("trees", evaluate_trees(500_000)),
    }
    before = RESULTS / "recommend.json"
    results = json.loads(before.read_text()) if given.part and before.exists() else {}
    results |= {"machine": describe("implicit", "lightgbm"), "n_threads": N_THREADS, "n_factors": N_FACTORS}
    for name, measure in parts.items():
        if given.part in (None, name):
            results[name] = measure()
            save_results("recommend", results)


def show(results: dict[str, Any], name: str = "") -> None:
    """Print one number per line, with its dotted name."""
    for key, value in results.items():
        if isinstance(value, dict):
            show(value, f"{name}{key}.")
        else:
            print(f"{name}{key:40} {value:,.3f}" if isinstance(value, float) else f"{name}{key:40} {value}")


def streaming_memory(few: int, n_items: int, many: int) -> dict[str, float]:
    """Measure the peak memory of streaming the lists of few and of many users of the same model."""
    low, high = memory(many, n_items, few), memory(many, n_items, many)
    return {"users_few": few, "users_many": many, "mb_few": low, "mb_many": high, "growth": high / low - 1}


if __name__ == "__main__":
    main()
