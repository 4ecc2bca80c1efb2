"""How long users wait for TwoStage, for `sl.fit` and for lists, and how the cost grows with the data.

    python benchmarks/waiting.py --part growth --rows 2  # millions of generated rows
    python benchmarks/waiting.py --part fit --data online-retail
    python benchmarks/waiting.py --part agreement --data lastfm --folder DATA

Parts: `growth`: fit TwoStage on 0.5 to 20 million generated rows, and its peak memory; `lists`: lists of 20
for many users at one time, on one thread and on two; `fit`: `sl.fit` on generated and published data, with
the F1 of its lists on a test set that took no part; `full`: the same if all models are fitted on all users,
with random settings; `agreement`: the F1 of `sl.fit` as a share of that of the best model, each model fitted
alone with its default settings. A model that has less than 95% of the best one's F1 with the first seed is
not fitted with the others. The test set is the last basket of each user, or a fifth of each user's items
where few users return. `ml-1m-plain` is MovieLens-1M without its times: a matrix of a million pairs. DATA
holds lastfm and citeulike-t, each with interactions.parquet, users in the first column and items in the
second.
Every measurement runs in a process of its own, after a small run that compiles. Times are processor seconds,
because other programs may use the machine. results/waiting.json keeps what was measured, part by part.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
from machine import RESULTS, describe, peak_mib, reset_peak, save_results

MILLION = 1_000_000
PARTS = ("lists", "growth", "fit", "full", "agreement")
ROWS = {"lists": [0.5], "growth": [0.5, 2.0, 5.0, 20.0], "fit": [0.1, 1.0, 10.0]}  # millions
PUBLISHED = ["online-retail", "complete-journey", "ml-1m", "ml-1m-plain"]  # and the matrices, with --folder
DATA = {
    "lists": ["online-retail", "ta-feng"],
    "fit": ["sample", *PUBLISHED],
    "full": PUBLISHED,
    "agreement": PUBLISHED,
}
MATRICES = ("lastfm", "citeulike-t")
MAX_USERS = 20_000
N_SEEDS = 3
CLOSE = 0.95  # share of the best F1 of the first seed from which a model is fitted with the other seeds
MODELS = ("PersonalFrequency", "TIFUKNN", "EASE", "GFCF", "ALS", "MatrixBlend", "DKHRM", "TwoStage")


def generate_shop(n_rows: int, n_items: int = 20_000, seed: int = 0) -> object:
    """A year of purchases: 25 rows per user, baskets of about 5, 40% repeats, three liked groups of items."""
    import polars as pl

    import shortlist as sl

    rng, n_users = np.random.default_rng(seed), n_rows // 25
    owner = np.repeat(np.arange(n_users), rng.geometric(0.2, n_users))
    sizes = 1 + rng.poisson(4, owner.size)
    user, basket = np.repeat(owner, sizes)[:n_rows], np.repeat(np.arange(owner.size), sizes)[:n_rows]
    second = np.floor(rng.random(owner.size) * 365) * 86_400 + rng.integers(28_800, 72_000, owner.size)
    second = second[np.lexsort((second, owner))]
    n, per_group = user.size, n_items // 200
    group = rng.integers(0, 200, (n_users, 3))[user, rng.integers(0, 3, n)]
    item = group * per_group + (per_group * rng.random(n) ** 3).astype(np.int64)
    popular = rng.random(n) < 0.2
    item[popular] = (n_items * rng.random(int(popular.sum())) ** 4).astype(np.int64)
    first = np.searchsorted(user, np.arange(n_users))[user]
    before = np.searchsorted(basket, basket) - first
    repeats = (rng.random(n) < 0.4) & (before > 0)
    source = np.arange(n)
    source[repeats] = (first + rng.random(n) * before).astype(np.int64)[repeats]
    while (source[source] != source).any():  # a repeat of a repeat
        source = source[source]
    frame = {"user_id": user, "item_id": item[source], "timestamp": second[basket].astype(np.int64)}
    return sl.Interactions.from_frame(pl.DataFrame(frame))


# ------------------------------------------------------------------ one measurement, in its own process
def load(name: str, folder: str = ".") -> object:
    import polars as pl

    import shortlist as sl

    if name[0].isdigit():
        return generate_shop(int(float(name) * MILLION))
    if name == "ml-1m-plain":
        table = sl.load_dataset("ml-1m").to_frame().select("user_id", "item_id")
    elif name in MATRICES:
        table = pl.read_parquet(f"{folder}/{name}/interactions.parquet")
        table = table.select(user_id=table.columns[0], item_id=table.columns[1])
    else:
        return sl.load_dataset(name)
    return sl.Interactions.from_frame(table.unique(maintain_order=True))


def measure_two_stage(data: object) -> dict[str, float]:
    """TwoStage.fit with its defaults; the memory is what it needs above the data."""
    import shortlist as sl

    before, start = reset_peak(), time.process_time()
    sl.TwoStage().fit(data)
    seconds = time.process_time() - start
    return {
        "rows": data.n_rows,
        "seconds": seconds,
        "microseconds_per_row": 1e6 * seconds / data.n_rows,
        "peak_mib": peak_mib() - before,
    }


def measure_lists(data: object) -> dict[str, float]:
    """Lists of 20 for many users just after the last event; the trees are those of the defaults."""
    import shortlist as sl

    model = sl.TwoStage(n_snapshots=4000).fit(data)
    users = data.users.values[:MAX_USERS]
    model.recommend(users[:1], N=20)
    start = time.process_time()
    model.recommend(users, N=20)
    seconds = time.process_time() - start
    start, began = time.process_time(), time.perf_counter()
    sl.set_threads(2)
    model.recommend(users, N=20)
    return {
        "users": len(users),
        "seconds": seconds,
        "users_per_processor_second": len(users) / seconds,
        "seconds_on_two_threads": time.process_time() - start,
        "wall_seconds_on_two_threads": time.perf_counter() - began,
    }


def measure_full(data: object) -> dict[str, object]:
    """The search without stages: every model and setting on all users."""
    from shortlist.auto import choice

    choice.SAMPLES = (data.n_rows, data.n_rows)
    return measure_fit(data)


def measure_fit(
    data: object, models: object = None, seed: int = 0, budget: str = "default"
) -> dict[str, object]:
    """`sl.fit` on all but the test set, and the F1 of its lists there."""
    import shortlist as sl
    from shortlist.split import last_basket, random_items, users_return

    split = last_basket(data) if users_return(data) else random_items(data, seed=seed)
    start = time.process_time()
    model = sl.fit(split.train_valid, models=models, seed=seed, budget=budget)
    seconds = time.process_time() - start
    users = split.test.users.to_ids(split.test.active_users)
    lists = model.recommend(users, at=split.test)
    held_out = model.selection_.held_out or {}
    return {
        "seconds": seconds,
        "model": type(model).__name__,
        "validation_f1": model.selection_.models[0]["score"],
        "held_out_f1": held_out.get("score"),
        "test_f1": sl.evaluate(lists, split.test).mean("f1"),
    }


def measure(part: str, name: str, folder: str, model: str | None, seed: int) -> dict[str, object]:
    """Compile on a small sample, then measure; a model alone is fitted with its default settings."""
    import shortlist as sl

    sl.set_threads(1)
    small, data = sl.load_dataset("sample"), load(name, folder)
    if part in ("lists", "growth"):
        sl.TwoStage(n_rounds=5, n_bags=1, n_snapshots=500).fit(small).recommend(N=5)
        return measure_lists(data) if part == "lists" else measure_two_stage(data)
    sl.fit(small if data.time is not None else sl.Interactions.from_csr(small.to_csr()), models=model)
    if part == "full":
        return measure_full(data)
    return measure_fit(data, model, seed, "default" if model is None else "quick")


# ------------------------------------------------------------------ all of them
def run_alone(part: str, name: str, folder: str, model: str = "", seed: int = 0) -> dict[str, object]:
    """Measure in a process of its own; empty if the model cannot be fitted on this data."""
    done = subprocess.run(
        [sys.executable, __file__, "--part", part, "--folder", folder, "--measure", name, model, str(seed)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=not model,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}


def run_best(part: str, name: str, repeats: int, folder: str) -> dict[str, object]:
    """The fastest of `repeats` runs."""
    best = min((run_alone(part, name, folder) for _ in range(repeats)), key=lambda row: row["seconds"])
    print(part, name, {k: round(v, 4) if isinstance(v, float) else v for k, v in best.items()}, flush=True)
    return best


def run_agreement(name: str, folder: str) -> dict[str, object]:
    """The F1 of the chosen model as a share of that of the best model, each fitted alone."""
    rows, models = [], MODELS
    for seed in range(N_SEEDS):
        chosen = run_alone("fit", name, folder, seed=seed)
        fitted = {model: run_alone("fit", name, folder, model, seed) for model in models}
        alone = {model: row["test_f1"] for model, row in fitted.items() if row}
        best = max(alone, key=alone.get)
        share = min(chosen["test_f1"] / alone[best], 1.0)
        rows.append({"seed": seed, **chosen, "best": best, "share": share, "alone": alone})
        print("agreement", name, seed, chosen["model"], best, round(share, 4), alone, flush=True)
        models = [model for model in alone if alone[model] >= CLOSE * alone[best]]
    return {"seconds": sum(row["seconds"] for row in rows), "seeds": rows}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--rows", type=float, action="append", help="millions of generated rows")
    parser.add_argument("--data", action="append", help="a published dataset")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", default=".", help="of lastfm and citeulike-t")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        name, model, seed = given.measure
        print(json.dumps(measure(given.part[0], name, given.folder, model or None, int(seed))))
        return
    kept = RESULTS / "waiting.json"
    results = json.loads(kept.read_text()) if kept.is_file() else {}
    for part in given.part or PARTS:
        wanted = given.rows is not None or given.data is not None
        rows = given.rows or [] if wanted else ROWS.get(part, [])
        names = [*(f"{one:g}" for one in rows), *(given.data or [] if wanted else DATA.get(part, []))]
        for name in names:
            if part == "agreement":
                row = run_agreement(name, given.folder)
            else:
                row = run_best(part, name, given.repeats, given.folder)
            results[part] = results.get(part, {}) | {name: row}
            results["machine"] = describe("lightgbm")
            save_results("waiting", results)


if __name__ == "__main__":
    main()
