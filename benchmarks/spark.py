"""Spark: how many users a sample needs, the same lists on 1, 2 and 4 executors, and what Spark costs.

    python benchmarks/spark.py --part curve --users 128000 --model EASE --folder shop
    python benchmarks/spark.py --part identical
    python benchmarks/spark.py --part speed --users 1000000
    python benchmarks/spark.py --part allocate

Needs Java 17 and the extra `spark`. Processor seconds are those of the Java process and of the Python workers
together, and of each alone; wall seconds say little if other programs use the machine.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pyspark
from machine import RESULTS, describe

import shortlist as sl
from shortlist.auto.sample import OutsideUsers
from shortlist.auto.validation import hold_out
from shortlist.data.files import collect_arrow

CANDIDATES, ITEMS, ROWS, FACTORS, LENGTH = 50, 5000, 10, 32, 10
MODELS = ("TwoStage", "EASE", "ALS", "GFCF", "DKBPRMF")
SETTINGS = {"Guarantee": {"min_precision": 0.05}, "Boundary": {"t": 0.05}}


def open_session(master, **settings):
    """A session with separate logs, bound to this machine."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
    }
    builder = SparkSession.builder.master(master)
    for name, value in (options | {f"spark.{name}": value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def started_processes() -> dict[int, tuple[bytes, float]]:
    """Command and processor seconds, with those of ended children, of the processes of this process."""
    parents, found, tick = {}, {}, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = folder.joinpath("stat").read_text(), folder.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        parents[int(folder.name)] = int(fields[1])
        found[int(folder.name)] = command, sum(map(int, fields[11:15])) / tick
    return {pid: found[pid] for pid in found if pid != os.getpid() and descends(pid, parents)}


def descends(pid: int, parents: dict[int, int]) -> bool:
    """Whether this process started a process, directly or not."""
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def seconds_by_kind():
    """Processor seconds of the processes that this process started, by kind: java and python."""
    totals = {"java": 0.0, "python": 0.0}
    for command, seconds in started_processes().values():
        totals["java" if b"java" in command.split(b"\0")[0] else "python"] += seconds
    return totals


class Measure:
    """Wall and processor seconds of a block of code."""

    def __enter__(self):
        self.began, self.before, self.own = time.perf_counter(), seconds_by_kind(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall = time.perf_counter() - self.began
        self.processor = {kind: n - self.before[kind] for kind, n in seconds_by_kind().items()}
        self.processor["driver"] = time.process_time() - self.own

    def report(self, rows, users):
        total = sum(self.processor.values())
        return {
            "rows": rows,
            "users": users,
            "wall_seconds": round(self.wall, 1),
            "processor_seconds": {kind: round(n, 1) for kind, n in self.processor.items()}
            | {"all": round(total, 1)},
            "rows_per_wall_second": round(rows / self.wall),
            "rows_per_processor_second": round(rows / total),
            "users_per_processor_second": round(users / total),
        }


def run(df):
    """Compute all rows of a DataFrame and keep none."""
    df.write.format("noop").mode("overwrite").save()


# ---------------------------------------------------------------------- how many users are enough
SHOP_USERS, N_OUTSIDE, N_ITEMS, N_KINDS, N_DAYS = 2_000_000, 8000, 2000, 40, 300
SMALLEST, LARGEST, SMALL_GAIN = 1000, 128_000, 0.005


def generate_shop(n_users, seed=1):
    """Orders of a shop whose items come and go: users like a few kinds of items and buy some again."""
    rng = np.random.default_rng(seed)
    kind, start = rng.integers(0, N_KINDS, N_ITEMS), rng.uniform(-200, N_DAYS, N_ITEMS)
    by_kind = [np.flatnonzero(kind == k) for k in range(N_KINDS)]
    appeal = rng.gamma(0.5, size=N_ITEMS)
    n_baskets = 2 + rng.geometric(0.25, n_users)
    tables = []
    for day in range(0, N_DAYS, 10):  # appeal of an item fades after its start; before it there are no sales
        age = day - start
        weight = np.where(age < 0, 0, appeal * np.exp(-np.maximum(age, 0) / 120))
        shares = [weight[items].cumsum() / max(weight[items].sum(), 1e-9) for items in by_kind]
        buyers = np.flatnonzero(rng.random(n_users) < n_baskets / (N_DAYS / 10))
        liked_kinds = np.random.default_rng(seed + 1).integers(0, N_KINDS, (n_users, 3))[buyers]
        size = 1 + rng.poisson(1.5, buyers.size)
        user = np.repeat(np.arange(buyers.size), size)
        chosen = liked_kinds[user, rng.integers(0, 3, user.size)]
        item = np.empty(user.size, np.int64)
        for k in range(N_KINDS):
            rows = np.flatnonzero(chosen == k)
            places = np.searchsorted(shares[k], rng.random(rows.size))
            item[rows] = by_kind[k][np.minimum(places, by_kind[k].size - 1)]
        tables.append(pl.DataFrame({"user_id": buyers[user], "item_id": item, "timestamp": day}))
    table = pl.concat(tables)
    earlier = table.sample(fraction=0.25, seed=seed)  # bought again ten days later
    again = earlier.with_columns(pl.col("timestamp") + 10).filter(pl.col("timestamp") < N_DAYS)
    time = pl.from_epoch(pl.col("timestamp") * 86_400 + 1_600_000_000)
    return pl.concat([table, again]).unique(maintain_order=True).with_columns(time)


def read_shop(folder):
    """The users of a sample and those outside it, of a shop that is generated once for all models."""
    path, user = folder / "shop.parquet", pl.col("user_id")
    if not path.exists():  # users are independent of each other: the first ones are a sample
        folder.mkdir(parents=True, exist_ok=True)
        shop = generate_shop(SHOP_USERS)
        shop.filter((user < LARGEST) | (user >= SHOP_USERS - N_OUTSIDE)).write_parquet(path)
    return pl.read_parquet(path)


def curve(n_users, name, folder):
    """The score of users outside by the number of users that a model has learned from, doubled each time."""
    sl.set_threads(1)
    table, user, runs = read_shop(folder), pl.col("user_id"), []
    for has_dates in (True,) if name == "TwoStage" else (True, False):  # TwoStage needs baskets
        rows = table
        if not has_dates:
            rows = table.select("user_id", "item_id").unique(maintain_order=True)
        data = sl.read_interactions(rows.filter(user < n_users), training=False)
        others = sl.read_interactions(rows.filter(user >= LARGEST), training=False)
        outside = OutsideUsers(hold_out(others))
        order = np.random.default_rng(0).permutation(data.active_users)
        run = {"model": name, "dates": has_dates, "rows": data.n_rows, "f1": {}, "processor_seconds": {}}
        size, n_flat = SMALLEST, 0
        while size <= n_users and n_flat < 2:  # two doublings that gain little, as one may by chance
            began, score = time.process_time(), max(run["f1"].values(), default=0.0)
            model = getattr(sl, name)().fit(data.where(np.isin(data.user, order[:size])).compact())
            run["processor_seconds"][size] = round(time.process_time() - began, 1)
            run["f1"][size] = round(outside.score(model, sl.cutoff.ExpectedF1()), 5)
            n_flat = n_flat + 1 if run["f1"][size] < (1 + SMALL_GAIN) * score else 0
            print(name, has_dates, size, run["f1"][size], run["processor_seconds"][size], flush=True)
            size *= 2
        runs.append(run)
    about = {"users": SHOP_USERS, "items": N_ITEMS, "users_scored": N_OUTSIDE // 2}
    return about | {"small_gain": SMALL_GAIN, "runs": runs}


# ---------------------------------------------------------------------- identical lists
def prepare_sample(folder):
    """Save candidates, orders, five models and every cutoff; return the lists of one process by name."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    orders, expected = split.train.to_frame(), {}
    orders.sample(fraction=1, shuffle=True, seed=4).write_parquet(folder / "orders.parquet")
    for name in MODELS:
        model = getattr(sl, name)().fit(split.train)
        model.save(folder / f"{name}.shortlist")
        expected[name] = model.recommend(history=orders, N=5)
    top = sl.PersonalFrequency().fit(split.train).recommend(N=30, filter_seen=False)
    top = sl.cutoff.Calibration().fit(top, split.valid).apply(top)
    table = top.to_frame().select("user_id", "item_id", "score", "probability")
    table.sample(fraction=1, shuffle=True, seed=3).write_parquet(folder / "candidates.parquet")
    for name, kind in sl.cutoff.Cutoff.classes().items():
        cutoff = kind(**SETTINGS.get(name, {})).fit(top, split.valid)
        cutoff.save(folder / f"cut-{name}.shortlist")
        expected[f"cut-{name}"] = cutoff.apply(sl.RankedLists.from_frame(table))
    for name, lists in expected.items():
        lists.to_frame().sort("user_id", "rank").write_parquet(folder / f"{name}.expected")
    return sorted(expected)


def compare(folder, n_executors):
    """Whether the lists of this many executors are those of one process; with two, one of them is killed."""
    os.environ["SPARK_WORKER_DIR"] = str(folder / "workers")
    session = open_session(
        f"local-cluster[{n_executors},1,1024]",
        **{"executor.memory": "512m", "sql.adaptive.enabled": "false", "sql.shuffle.partitions": "8"},
    )
    candidates, orders = (
        session.read.parquet(str(folder / f"{n}.parquet")) for n in ("candidates", "orders")
    )
    same = {}
    for path in sorted(folder.glob("*.expected")):
        file = folder / f"{path.stem}.shortlist"
        lists = sl.spark.cut(candidates, file) if path.stem.startswith("cut-") else None
        lists = sl.spark.recommend(orders, file, N=5) if lists is None else lists
        rows = pl.DataFrame(collect_arrow(lists)).sort("user_id", "rank")
        same[path.stem] = rows.equals(pl.read_parquet(path))
        if n_executors == 2 and len(same) == 3:
            os.kill(executor_pids()[0], signal.SIGKILL)
    session.stop()
    return {"same": same}


def executor_pids():
    """The executors that this process started."""
    found = started_processes().items()
    return sorted(pid for pid, (command, _) in found if b"CoarseGrainedExecutorBackend" in command)


def identical():
    """One process per number of executors, because a process has one session."""
    with tempfile.TemporaryDirectory(prefix="shortlist-spark-") as name:
        names = prepare_sample(Path(name))
        print(f"{len(names)} kinds of lists", flush=True)
        runs = {}
        for n in (1, 2, 4):
            words = [sys.executable, __file__, "--executors", str(n), "--folder", name]
            began = time.perf_counter()
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=1800)
            runs[n] = json.loads(done.stdout.splitlines()[-1])
            different = [name for name, same in runs[n]["same"].items() if not same]
            print(
                f"{n} executors: {len(runs[n]['same'])} compared, different: {different}, "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
        return {
            "models": list(MODELS),
            "cutoffs": sorted(sl.cutoff.Cutoff.classes()),
            "different": {
                n: [k for k, same in found["same"].items() if not same] for n, found in runs.items()
            },
            "compared": {n: len(found["same"]) for n, found in runs.items()},
            "killed": "one of the two executors, after the third comparison",
        }


# ---------------------------------------------------------------------- speed
def write_candidates(session, folder, n_users):
    """Candidates of generated users in Parquet files, and a table in buckets by user."""
    from pyspark.sql import functions as sf

    users = session.range(n_users, numPartitions=max(8, n_users // 125_000)).withColumnRenamed(
        "id", "user_id"
    )
    rows = users.select("user_id", sf.explode(sf.sequence(sf.lit(0), sf.lit(CANDIDATES - 1))).alias("k"))
    item = (rows["user_id"] * 7919 + rows["k"] * 1999) % 100_000
    score = (sf.rand(3) / (rows["k"] + 1)).cast("float")
    rows.select("user_id", item.alias("item_id"), score.alias("score")).write.parquet(
        str(folder / "candidates")
    )
    return session.read.parquet(str(folder / "candidates"))


def in_one_process(folder, cutoff):
    """The same work in one process with one thread: read, cut, write to a table."""
    began, n_items = time.process_time(), 0
    for path in sorted((folder / "candidates").glob("*.parquet")):
        n_items += len(cutoff.apply(sl.RankedLists.from_frame(pl.read_parquet(path))).to_frame())
    return time.process_time() - began


def speed_of_cuts(session, folder, n_users):
    """Cut the candidates on Spark, divided by user before and not, and in one process."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    top = sl.PersonalFrequency().fit(split.train).recommend(N=30, filter_seen=False)
    cutoff = sl.cutoff.ExpectedF1().fit(top, split.valid)
    candidates, n_rows = write_candidates(session, folder, n_users), n_users * CANDIDATES
    run(sl.spark.cut(candidates.limit(100_000), cutoff))  # kernels are compiled, workers have started
    results = {}
    with Measure() as measure:
        run(candidates)
    results["read"] = measure.report(n_rows, n_users)
    with Measure() as measure:
        run(sl.spark.cut(candidates, cutoff))
    results["cut"] = measure.report(n_rows, n_users)
    session.sql("drop table if exists candidates")
    buckets = candidates.repartition(16, "user_id").write.bucketBy(16, "user_id").sortBy("user_id")
    buckets.saveAsTable("candidates")
    with Measure() as measure:
        run(sl.spark.cut(session.table("candidates"), cutoff))
    results["cut of a table in buckets"] = measure.report(n_rows, n_users)
    seconds = in_one_process(folder, cutoff)
    results["one process"] = {
        "processor_seconds": round(seconds, 1),
        "rows_per_processor_second": round(n_rows / seconds),
    }
    for name in ("cut", "cut of a table in buckets"):
        results[name]["times_one_process"] = round(results[name]["processor_seconds"]["all"] / seconds, 2)
    return results


def speed_of_recommendations(session, folder, n_users):
    """Recommend to histories, divided by user before and not, with Spark's own method, and in one process."""
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import functions as sf

    users = session.range(n_users, numPartitions=8).withColumnRenamed("id", "user_id")
    pairs = users.select("user_id", sf.explode(sf.sequence(sf.lit(0), sf.lit(ROWS - 1))).alias("k"))
    item = (pairs["user_id"] * 31 + pairs["k"] * pairs["k"] * 977) % ITEMS
    pairs.select("user_id", item.alias("item_id"), sf.lit(1.0).alias("rating")).write.parquet(
        f"{folder}/orders"
    )
    orders = session.read.parquet(f"{folder}/orders")
    als = ALS(rank=FACTORS, maxIter=1, implicitPrefs=True, userCol="user_id", itemCol="item_id", seed=1)
    fitted = als.fit(orders)
    table = pl.read_parquet(f"{folder}/orders/*.parquet").drop("rating")
    sample = sl.read_interactions(table.filter(pl.col("user_id") < 20_000))
    model = sl.ALS(n_factors=FACTORS).fit(sample)
    orders, options = orders.drop("rating"), {"N": LENGTH}
    run(sl.spark.recommend(orders.where("user_id < 1000"), model, **options))
    run(fitted.recommendForUserSubset(users.limit(1000), LENGTH))
    results = {"items": ITEMS, "factors": FACTORS, "length": LENGTH, "rows_per_user": ROWS}
    with Measure() as measure:
        run(fitted.recommendForAllUsers(LENGTH))
    results["recommendForAllUsers"] = measure.report(n_users * ROWS, n_users)
    with Measure() as measure:
        run(sl.spark.recommend(orders, model, **options))
    results["recommend"] = measure.report(n_users * ROWS, n_users)
    session.sql("drop table if exists orders")
    buckets = orders.repartition(16, "user_id").write.bucketBy(16, "user_id").sortBy("user_id")
    buckets.saveAsTable("orders")
    with Measure() as measure:
        run(sl.spark.recommend(session.table("orders"), model, **options))
    results["recommend from a table in buckets"] = measure.report(n_users * ROWS, n_users)
    sl.set_threads(1)
    began = time.process_time()
    for path in sorted(Path(folder, "orders").glob("*.parquet")):
        model.recommend(history=pl.read_parquet(path).drop("rating"), **options).to_frame()
    seconds = time.process_time() - began
    results["one process"] = {
        "processor_seconds": round(seconds, 1),
        "users_per_processor_second": round(n_users / seconds),
    }
    for name in ("recommendForAllUsers", "recommend", "recommend from a table in buckets"):
        results[name]["times_one_process"] = round(results[name]["processor_seconds"]["all"] / seconds, 2)
    return results


def speed(n_users):
    """Both, in one session."""
    with tempfile.TemporaryDirectory(prefix="shortlist-spark-") as name:
        session = open_session(
            "local[2]",
            **{"sql.warehouse.dir": f"{name}/warehouse", "local.dir": f"{name}/local", "driver.memory": "4g"},
        )
        results = {
            "cores": 2,
            "candidates_per_user": CANDIDATES,
            "cut": speed_of_cuts(session, Path(name), n_users),
        }
        shutil.rmtree(Path(name) / "candidates")
        results["recommend"] = speed_of_recommendations(session, name, n_users)
        session.stop()
    return results


def allocate():
    """Allocate 9,000 candidates with the 200 partitions that Spark has by default, and compare."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    top = sl.PersonalFrequency().fit(split.train).recommend(N=30, filter_seen=False)
    top = sl.cutoff.Calibration().fit(top, split.valid).apply(top)
    table = top.to_frame().select("user_id", "item_id", pl.col("probability").round(2))  # many ties
    with tempfile.TemporaryDirectory(prefix="shortlist-spark-") as name:
        table.write_parquet(f"{name}/candidates.parquet")
        df = open_session("local[2]").read.parquet(f"{name}/candidates.parquet")
        results = {"rows": len(table), "partitions": 200, "runs": []}
        for _ in range(2):
            with Measure() as measure:
                offers = sl.spark.allocate(df, budget=100)
                rows = pl.DataFrame(collect_arrow(offers.lists)).sort("user_id", "rank")
            results["runs"].append(measure.report(len(table), table["user_id"].n_unique()))
        expected = sl.allocate(table, budget=100)
        results["same_lists"] = rows.equals(expected.lists.to_frame().sort("user_id", "rank"))
        results["same_price"] = offers.price == expected.prices.item
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["curve", "identical", "speed", "allocate"])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--model", choices=MODELS, default="EASE", help="of --part curve")
    parser.add_argument("--executors", type=int, help="used by --part identical itself")
    parser.add_argument("--folder", type=Path, help="of --part curve, for the generated shop")
    given = parser.parse_args()
    if given.executors is not None:
        print(json.dumps(compare(given.folder, given.executors)))
        return
    parts = {
        "curve": lambda: curve(given.users, given.model, given.folder),
        "identical": identical,
        "speed": lambda: speed(given.users),
        "allocate": allocate,
    }
    part, path = parts[given.part](), RESULTS / "spark.json"
    results = json.loads(path.read_text()) if path.exists() else {}  # other parts may have ended meanwhile
    if given.part == "curve":
        runs = [*results.get("curve", part)["runs"], *part["runs"]]
        by_name = {(run["model"], run["dates"]): run for run in runs}
        part["runs"] = [by_name[key] for key in product(MODELS, (True, False)) if key in by_name]
    results |= {given.part: part, "machine": describe("pyspark", "pyarrow")}
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(part, indent=1))


if __name__ == "__main__":
    main()
