"""Lists per second: ours against implicit's `recommend` and the bare matrix product, in one run.

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

from shortlist.core.trees import TreeEnsemble, TreeParams, fit_trees
from shortlist.data.interactions import Interactions
from shortlist.models.factorization.mf import DKBPRMF
from shortlist.models.precomputed import PrecomputedScores
from shortlist.recommend import prepare, recommend, recommend_to
from shortlist.recommend import retriever as finder_module

N_THREADS, N_FACTORS, N = 2, 64, 20
ROUNDS = 3
PARTS = ("items_27k", "items_1m", "repeat_decay", "trees")
BATCH = 256  # users of one bare product: larger ones only wait for memory


def sales(n_users: int, n_items: int, n_rows: int, seed: int = 0) -> csr_matrix:
    """Popularity by Zipf's law; every user has a few tastes, some tastes are common and some rare."""
    rng = np.random.default_rng(seed)
    n_tastes = 200
    popularity = 1.0 / np.arange(1, n_items + 1) ** 0.9
    common = 1.0 / np.arange(1, n_tastes + 1) ** 0.8
    taste = rng.choice(n_tastes, n_items, p=common / common.sum())
    by_taste = np.argsort(taste, kind="stable")
    starts = np.searchsorted(taste[by_taste], np.arange(n_tastes + 1))
    mass = np.concatenate([[0.0], np.cumsum(popularity[by_taste])])
    activity = rng.pareto(1.5, n_users) + 0.3
    rows = np.maximum(3, activity / activity.sum() * n_rows).astype(np.int64)
    user = np.repeat(np.arange(n_users), np.minimum(rows, 2000))
    likes = rng.choice(n_tastes, (n_users, 5), p=common / common.sum())
    drawn = likes[user, rng.integers(0, 5, user.size)]
    drawn = np.where(rng.random(user.size) < 0.2, -1, drawn)  # a fifth of all sales follows no taste
    low, high = (
        np.where(drawn < 0, 0.0, mass[starts[drawn]]),
        np.where(drawn < 0, mass[-1], mass[starts[drawn + 1]]),
    )
    place = np.searchsorted(mass, low + rng.random(user.size) * (high - low), side="right") - 1
    item = by_taste[np.clip(place, 0, n_items - 1)]
    matrix = csr_matrix((np.ones(user.size, np.float32), (user, item)), shape=(n_users, n_items))
    matrix.data[:] = 1.0
    return matrix


def race(*tasks: Callable[[int], Any]) -> tuple[list[float], list[float]]:
    """Seconds of each task(n_threads), run in turns, the quickest of its turns.

    First by the clock on all threads; then in processor time on one. On a busy machine trust the second:
    threads that wait for each other, as those of a matrix product do, lose more to neighbours than others.
    """
    wall, cpu = [np.inf] * len(tasks), [np.inf] * len(tasks)
    for clock, n_threads, best in ((time.perf_counter, N_THREADS, wall), (time.process_time, 1, cpu)):
        for _ in range(ROUNDS):
            for number, task in enumerate(tasks):
                start = clock()
                task(n_threads)
                best[number] = min(best[number], clock() - start)
    return wall, cpu


def bare_product(users: Any, items: Any) -> Callable[[int], None]:
    """The product alone, in batches that reuse their memory."""
    out, right = np.empty((BATCH, len(items)), np.float32), items.T

    def run(n_threads: int) -> None:
        with threadpool_limits(n_threads, "blas"):
            for start in range(0, len(users), BATCH):
                part = users[start : start + BATCH]
                np.matmul(part, right, out=out[: len(part)])

    return run


def trained_als(matrix: csr_matrix, iterations: int) -> Any:
    """implicit's ALS."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=N_FACTORS, iterations=iterations, alpha=10, random_state=1, num_threads=N_THREADS
    )
    with threadpool_limits(1, "blas"):
        model.fit(matrix, show_progress=False)
    return model


def trained_bpr(matrix: csr_matrix, iterations: int) -> Any:
    """implicit's BPR; its last column is the item bias, so one factor fewer gives as many columns."""
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


def wrapped(model: Any, train: Interactions) -> PrecomputedScores:
    """implicit's factors under our contract, read-only so that the index is built once."""
    pair = tuple(np.array(side, np.float32) for side in (model.user_factors, model.item_factors))
    for side in pair:
        side.flags.writeable = False
    return PrecomputedScores(scores=pair).fit(train)


def top_n(model: Any, matrix: csr_matrix, train: Interactions, n_users: int) -> dict[str, float]:
    """Top 20 without seen items: users per second of both sides, and whether the lists agree."""
    rng = np.random.default_rng(7)
    users = np.sort(rng.choice(matrix.shape[0], n_users, replace=False))
    ours, rows = wrapped(model, train), matrix[users]
    start = time.perf_counter()
    prepare(ours, n_threads=N_THREADS)
    index_seconds = time.perf_counter() - start
    recommend(ours, users[:256], N=N, n_threads=N_THREADS)

    def quick(n_threads: int) -> None:
        recommend(ours, users, N=N, filter_seen=True, n_threads=n_threads)

    def peer(n_threads: int) -> None:
        model.num_threads = n_threads
        with threadpool_limits(1, "blas"):  # as implicit asks; it has threads of its own
            model.recommend(users, rows, N=N, filter_already_liked_items=True)

    bare = bare_product(model.user_factors[users], model.item_factors)
    wall, cpu = race(quick, peer, bare)
    return {
        "users_per_second": n_users / wall[0],
        "implicit_users_per_second": n_users / wall[1],
        "bare_product_users_per_second": n_users / wall[2],
        "ratio_to_implicit": wall[1] / wall[0],
        "ratio_to_bare_product": wall[2] / wall[0],
        "one_thread_cpu_us_per_user": 1e6 * cpu[0] / n_users,
        "one_thread_cpu_ratio_to_implicit": cpu[1] / cpu[0],
        "one_thread_cpu_ratio_to_bare_product": cpu[2] / cpu[0],
        "index_seconds": index_seconds,
        "recall": recall(ours, users[:16], N=N),
    }


def recall(scorer: Any, users: Any, **wishes: Any) -> float:
    """The share of items, scores and places that come out as when every item is scored."""
    quick = recommend(scorer, users, **wishes)
    hurry, finder_module.INDEX_USERS = finder_module.INDEX_USERS, 1 << 60
    kept, finder_module.kept_index = finder_module.kept_index, lambda *_: None
    try:
        full = recommend(scorer, users, **wishes)
    finally:
        finder_module.INDEX_USERS, finder_module.kept_index = hurry, kept
    vectors, items, bias = scorer.factors(scorer.users_.lookup(users))
    plain = vectors.astype(np.float64) @ items.T.astype(np.float64) + (0 if bias is None else bias)
    at = np.repeat(np.arange(len(users)), np.diff(full.indptr))
    if not np.allclose(plain[at, full.items], full.scores, rtol=1e-4, atol=1e-5):
        raise SystemExit("the scores shown are not the scores of the model")
    same = [quick.at(n).items == full.at(n).items for n in range(len(users))]
    return float(np.mean(same))


def dynamic(model: DKBPRMF, n_users: int, **wishes: Any) -> dict[str, float]:
    """Lists above the learned boundary, against the bare product over the same users."""
    rng = np.random.default_rng(8)
    ids = np.sort(rng.choice(len(model.users_), n_users, replace=False))
    vectors, items, _ = model.factors(ids.astype(np.int32))
    lists = recommend(model, ids, n_threads=N_THREADS, **wishes)
    wall, cpu = race(lambda n: recommend(model, ids, n_threads=n, **wishes), bare_product(vectors, items))
    return {
        "users_per_second": n_users / wall[0],
        "bare_product_users_per_second": n_users / wall[1],
        "ratio_to_bare_product": wall[1] / wall[0],
        "one_thread_cpu_us_per_user": 1e6 * cpu[0] / n_users,
        "one_thread_cpu_ratio_to_bare_product": cpu[1] / cpu[0],
        "mean_length": float(lists.lengths.mean()),
        "cover_ratio": lists.cover_ratio,
        "recall": recall(model, ids[:16], **wishes),
    }


def one_user(scorer: Any, **wishes: Any) -> dict[str, float]:
    """Milliseconds for one user alone, through the public function."""
    rng = np.random.default_rng(9)
    times = []
    for user in rng.choice(len(scorer.users_), 60, replace=False).tolist():
        start = time.perf_counter()
        recommend(scorer, [user], n_threads=N_THREADS, **wishes)
        times.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": float(np.median(times[10:])), "worst_ms": float(np.max(times[10:]))}


def catalogue(
    n_users: int, n_items: int, n_rows: int, n_asked: int, n_epochs: int, peers: tuple[str, ...]
) -> dict[str, Any]:
    """Everything for one size of catalogue."""
    matrix = sales(n_users, n_items, n_rows)
    train = Interactions.from_csr(matrix)
    sold = np.bincount(matrix.indices, minlength=n_items)
    found: dict[str, Any] = {"n_users": n_users, "n_items": n_items, "n_rows": int(matrix.nnz)}
    # items nobody took have vectors near zero, which a bound skips for nothing: read the ratios with this
    found |= {
        "items_never_sold": float((sold == 0).mean()),
        "items_sold_five_times": float((sold >= 5).mean()),
    }
    for peer in peers:
        model = trained_als(matrix, 3) if peer == "als" else trained_bpr(matrix, n_epochs)
        found[f"top_20_{peer}"] = told(peer, top_n(model, matrix, train, n_asked))
        del model
    for negatives in (10.0, 100.0):  # the default, and a stricter boundary
        ours = DKBPRMF(
            n_factors=N_FACTORS, n_epochs=n_epochs, negatives=negatives, n_threads=N_THREADS, seed=1
        ).fit(train)
        prepare(ours)
        name = f"dynamic_negatives_{negatives:.0f}"
        found[name] = told(name, dynamic(ours, n_asked))
    found["dynamic_max_100"] = told("dynamic_max_100", dynamic(ours, n_asked, max_items=100))
    found["one_user_dynamic"] = told("one_user_dynamic", one_user(ours))
    found["one_user_dynamic_max_100"] = told("one_user_dynamic_max_100", one_user(ours, max_items=100))
    found["one_user_top_20"] = told("one_user_top_20", one_user(ours, N=N))
    return found


def told(name: str, result: dict[str, float]) -> dict[str, float]:
    """The result, with how busy the machine was, and shown at once."""
    result["load_average"] = os.getloadavg()[0]
    show(result, f"{name}.")
    return result


def memory(n_known: int, n_items: int, n_asked: int) -> float:
    """Largest resident megabytes while a fresh process streams lists of `n_asked` of `n_known` users."""
    command = [sys.executable, __file__, "--stream", str(n_known), str(n_items), str(n_asked)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(out.stdout)


def stream(n_known: int, n_items: int, n_asked: int) -> None:
    """What `memory` runs: print the largest size seen after any chunk."""
    rng = np.random.default_rng(0)
    item = rng.integers(0, n_items, n_known).astype(np.int32)
    matrix = csr_matrix((np.ones(n_known, np.float32), (np.arange(n_known), item)), shape=(n_known, n_items))
    shape = np.exp(-np.arange(N_FACTORS) / 12).astype(np.float32)
    pair = tuple(rng.standard_normal((n, N_FACTORS), np.float32) * shape for n in (n_known, n_items))
    for side in pair:
        side.flags.writeable = False
    scorer = PrecomputedScores(scores=pair).fit(Interactions.from_csr(matrix))
    sizes = [0.0]

    def note(done: int, of: int) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * 4096 / 2**20)

    with tempfile.TemporaryDirectory() as room:
        users = scorer.users_.values.head(n_asked)
        recommend_to(Path(room) / "lists.parquet", scorer, users, N=10, n_threads=N_THREADS, progress=note)
    print(max(sizes))


def walk(n_rows: int) -> dict[str, Any]:
    """One core: candidates through the trees of a TwoStage, by us and by LightGBM, to the same bits."""
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
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS, help="measure only this again")
    parser.add_argument("--stream", nargs=3, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.stream:
        stream(*chosen.stream)
        return
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="implicit")
    if chosen.quick:
        catalogue(3000, 2000, 60_000, 1000, 10, ("als", "bpr"))
        told("repeat_decay", flat(20_000, 2000, 200_000))
        told("trees", walk(20_000))
        return
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "items_27k": lambda: catalogue(60_000, 27_000, 2_500_000, 4096, 15, ("als", "bpr")),
        "items_1m": lambda: catalogue(60_000, 1_000_000, 4_000_000, 256, 8, ("als",)),
        "repeat_decay": lambda: told("repeat_decay", flat(100_000, 27_000, 1_000_000)),
        "trees": lambda: told("trees", walk(500_000)),
    }
    before = RESULTS / "recommend.json"
    results = json.loads(before.read_text()) if chosen.part and before.exists() else {}
    results |= {"machine": describe("implicit", "lightgbm"), "n_threads": N_THREADS, "n_factors": N_FACTORS}
    for name, measure in parts.items():
        if chosen.part in (None, name):
            results[name] = measure()
            save_results("recommend", results)


def show(results: dict[str, Any], name: str = "") -> None:
    """One number a line, under its dotted name."""
    for key, value in results.items():
        if isinstance(value, dict):
            show(value, f"{name}{key}.")
        else:
            print(f"{name}{key:40} {value:,.3f}" if isinstance(value, float) else f"{name}{key:40} {value}")


def flat(few: int, n_items: int, many: int) -> dict[str, float]:
    """Peak memory of streaming few and many users of the same model."""
    low, high = memory(many, n_items, few), memory(many, n_items, many)
    return {"users_few": few, "users_many": many, "mb_few": low, "mb_many": high, "growth": high / low - 1}


if __name__ == "__main__":
    main()
