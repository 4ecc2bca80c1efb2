"""Lists on Spark: those of one machine, bit for bit, with any number of partitions and lost workers."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shortlist as sl
import shortlist.spark.lists
from shortlist.cli import main
from shortlist.cli.spark import open_session
from shortlist.data.files import collect_arrow
from shortlist.errors import ConfigError, DataError

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed; pip install pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of Spark itself
]
N_PARTITIONS = 3


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Two executors, which are processes of their own; a task is tried four times."""
    from pyspark.sql import SparkSession

    home = Path(pyspark.__file__).parent
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["SPARK_WORKER_DIR"] = str(tmp_path_factory.mktemp("workers"))
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m").config("spark.executor.memory", "512m")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", str(N_PARTITIONS)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def split():
    return sl.split.last_basket(sl.load_dataset("sample"))


@pytest.fixture(scope="module")
def model(split):
    return sl.PersonalFrequency().fit(split.train)


@pytest.fixture(scope="module")
def lists(model, split):
    """Candidates of all users, with probabilities."""
    top = model.recommend(N=30, filter_seen=False)
    calibrated = sl.cutoff.Calibration().fit(top, split.valid).apply(top)
    return calibrated if calibrated.probabilities is not None else top


def to_spark(spark, frame, folder):
    """A table as a DataFrame."""
    path = folder / "table.parquet"
    frame.write_parquet(path)
    return spark.read.parquet(str(path))


def rows_of(lists):
    """Rows by user and rank, of RankedLists or of a DataFrame."""
    frame = lists.to_frame() if isinstance(lists, sl.RankedLists) else pl.DataFrame(collect_arrow(lists))
    return frame.sort("user_id", "rank")


@pytest.mark.parametrize(
    ("module", "name"), [("shortlist.spark.lists", "pyspark"), ("shortlist.spark.task", "numba")]
)
def test_an_import_does_not_import_what_may_be_missing_or_needs_an_environment(module, name):
    code = f"import sys, {module}; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


CUTOFFS = {
    name: kind
    for name, kind in sorted(sl.cutoff.Cutoff.classes().items())
    if kind.__module__.startswith("shortlist.")
}


@pytest.mark.parametrize("name", CUTOFFS)
def test_cut_is_that_of_one_machine(name, spark, lists, split, tmp_path):
    settings = {"Guarantee": {"min_precision": 0.05}, "Boundary": {"t": float(np.median(lists.scores))}}
    cutoff = CUTOFFS[name](**settings.get(name, {})).fit(lists, split.valid)
    table = lists.to_frame().select("user_id", "item_id", "score", "probability")
    expected = rows_of(cutoff.apply(sl.RankedLists.from_frame(table)))
    assert expected["length"].max() > 0
    df = to_spark(spark, table.sample(fraction=1, shuffle=True, seed=3), tmp_path)
    assert rows_of(sl.spark.cut(df, cutoff)).equals(expected)


def test_one_partition_or_rows_that_are_divided_by_user_already(spark, lists, split, tmp_path):
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid)
    table = lists.to_frame().select("user_id", "item_id", "score")
    expected = rows_of(cutoff.apply(sl.RankedLists.from_frame(table)))
    df = to_spark(spark, table, tmp_path)
    assert sl.spark.cut(df, cutoff).rdd.getNumPartitions() == N_PARTITIONS
    assert rows_of(sl.spark.cut(df.coalesce(1), cutoff)).equals(expected)
    divided = sl.spark.cut(df.repartition(2, "user_id"), cutoff)
    assert divided._jdf.queryExecution().toString().count("Exchange hashpartitioning") <= 2  # one per plan
    assert divided.rdd.getNumPartitions() == 2
    assert rows_of(divided).equals(expected)


@pytest.mark.parametrize("name", ["TwoStage", "EASE", "ALS", "GFCF", "DKBPRMF"])
def test_recommend_is_that_of_one_machine(name, spark, split, tmp_path):
    kind = getattr(sl, name)
    model, table = kind(**kind.warmup_params).fit(split.train), split.train.to_frame()
    df = to_spark(spark, table.sample(fraction=1, shuffle=True, seed=1), tmp_path)
    found = rows_of(sl.spark.recommend(df, model, N=5))
    assert found.equals(rows_of(model.recommend(history=table, N=5)))


def test_options_and_a_saved_model(spark, model, lists, split, tmp_path):
    path = model.save(tmp_path / "shop.shortlist")
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid)
    options = {"exclude": {"u1": ["i92"]}, "cutoff": cutoff, "fallback": "popular", "max_items": 3}
    table = split.train.to_frame().rename({"user_id": "customer"})  # names that the readers know
    df = to_spark(spark, table, tmp_path)
    expected = rows_of(model.recommend(history=table, **options))
    assert rows_of(sl.spark.recommend(df, path, **options)).equals(expected)


@pytest.mark.parametrize("users", [None, "everyone"])
def test_evaluate_is_that_of_one_machine(users, spark, lists, split, tmp_path):
    shown = lists.head(5).to_frame()
    truth = split.valid.to_frame().filter(pl.col("user_id") < "u5")
    (tmp_path / "truth").mkdir()
    frames = to_spark(spark, shown, tmp_path), to_spark(spark, truth, tmp_path / "truth")
    money = {} if users is None else {"gain": 2.0, "cost": 0.1}
    expected = sl.evaluate(shown, truth, users=users, max_items=10, **money)
    found = sl.spark.evaluate(*frames, users=users, max_items=10, **money)
    means = dict(zip(found["metric"], found["mean"], strict=True))
    assert "f1" in means
    assert ("value" in means) == bool(money)
    assert means == pytest.approx({name: expected.mean(name) for name in means})
    assert found["users"].unique().to_list() == [expected.n_users]
    error = expected.values("f1").std(ddof=1) / np.sqrt(expected.n_users)
    assert found.filter(pl.col("metric") == "f1")["standard_error"].item() == pytest.approx(error)


def test_fit_learns_from_the_same_users_however_the_table_is_divided(spark, split, tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.auto.sample.SMALLEST", 40)
    table, lines = split.data.to_frame(), []
    df = to_spark(spark, table.sample(fraction=1, shuffle=True, seed=2), tmp_path)
    options = {"users": 150, "models": "PersonalFrequency", "budget": "quick"}
    model = sl.spark.fit(df, **options, progress=lines.append)
    again = sl.spark.fit(to_spark(spark, table, tmp_path).repartition(5), **options)
    assert 100 < model.users_.size < 200
    assert model.history_.fingerprint == again.history_.fingerprint
    assert rows_of(model.recommend(history=table)).equals(rows_of(again.recommend(history=table)))
    assert any(re.search(r"sample: \d+ of 300 users", line) for line in lines)
    assert re.search(r"F1 of \d+ users outside the sample, .* → .*; twice as many users", lines[-1])
    of_sample = table.filter(pl.col("user_id").is_in(model.users_.values.implode()))
    assert sl.read_interactions(of_sample).fingerprint == model.history_.fingerprint  # whole users


@pytest.mark.parametrize(
    ("digits", "options"),
    [
        (1, {"budget": 100}),  # many equal values
        (9, {"budget": 100, "max_items": 2}),
        (9, {"budget": 0}),
        (2, {"cost": 0.05}),
        (2, {"budget": 150, "gain": {f"i{k}": 1.0 + k % 3 for k in range(1, 300)}}),
    ],
)
def test_allocate_is_that_of_one_machine(digits, options, spark, lists, tmp_path):
    table = lists.to_frame().select("user_id", "item_id", pl.col("probability").round(digits))
    if "gain" in options:
        shown = set(table["item_id"].to_list())
        options = options | {"gain": {item: g for item, g in options["gain"].items() if item in shown}}
    df = to_spark(spark, table.sample(fraction=1, shuffle=True, seed=5), tmp_path)
    expected = sl.allocate(table, **options)
    found = sl.spark.allocate(df, **options)
    assert (found.price, found.n_items) == (expected.prices.item, expected.n_items)
    assert rows_of(found.lists).equals(rows_of(expected.lists))


KILLER = '''"""A function whose Python worker, or executor, ends without notice at its first block."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class KilledOnce:
    function: Any
    mark: Path
    victim: str

    def schema(self, source):
        return self.function.schema(source)

    def __call__(self, table):
        lists = self.function(table)
        if not self.mark.exists():
            status = Path(f"/proc/{os.getppid()}/stat").read_text()  # of the daemon that started this worker
            executor = int(status.rpartition(")")[2].split()[1])
            self.mark.write_text(str(executor))
            os.kill(executor if self.victim == "executor" else os.getpid(), signal.SIGKILL)
        return lists
'''


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_changes_nothing(victim, spark, lists, split, tmp_path, monkeypatch):
    module, mark = tmp_path / f"killer_{victim}.py", tmp_path / "killed"
    module.write_text(KILLER)
    spark.sparkContext.addPyFile(str(module))
    killer = import_module(module.stem).KilledOnce
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid)
    table = lists.to_frame().select("user_id", "item_id", "score")
    df = to_spark(spark, table, tmp_path)
    run = shortlist.spark.lists.apply_by_user
    monkeypatch.setattr(
        shortlist.spark.lists,
        "apply_by_user",
        lambda function, rows: run(killer(function, mark, victim), rows),
    )
    rows = rows_of(sl.spark.cut(df, cutoff))
    assert Path(f"/proc/{mark.read_text()}").exists() == (victim == "worker")
    assert rows.equals(rows_of(cutoff.apply(sl.RankedLists.from_frame(table))))


def test_the_example_of_mllib(spark, lists, split, tmp_path):
    from pyspark.ml.recommendation import ALS

    numbers = {name: pl.col(name).str.slice(1).cast(pl.Int64) for name in ("user_id", "item_id")}
    rows = split.train.to_frame().select(**numbers, rating=pl.lit(1.0)).unique()
    als = ALS(rank=4, maxIter=1, implicitPrefs=True, userCol="user_id", itemCol="item_id", seed=1)
    als = als.fit(to_spark(spark, rows, tmp_path))
    earlier = lists.to_frame().select(**numbers, score="score")
    followed = sl.read_interactions(split.valid.to_frame().select(**numbers))
    names = {"als": als, "sl": sl, "earlier_candidates": earlier, "what_followed": followed}
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    (example,) = (
        text for text in re.findall(r"(?s)```python no-run\n(.*?)```", page) if "ForAllUsers" in text
    )
    exec(compile(example, "scale.md", "exec"), names)
    best = pl.DataFrame(collect_arrow(names["best"])).rename({"rating": "score"})
    assert rows_of(names["lists"]).equals(rows_of(names["cutoff"].apply(sl.RankedLists.from_frame(best))))


def test_what_cannot_be_done_is_refused(spark, model, lists, tmp_path):
    df = to_spark(spark, lists.to_frame().select("user_id", "item_id"), tmp_path)
    with pytest.raises(DataError, match="score or a rank"):
        sl.spark.cut(df, sl.cutoff.FixedN(N=3))
    with pytest.raises(DataError, match="probability"):
        sl.spark.allocate(df, budget=3)
    with pytest.raises(ConfigError, match=r"df must be a DataFrame of a SparkSession in this process"):
        sl.spark.recommend(lists.to_frame(), model, N=3)
    with pytest.raises(ConfigError, match="history must be None"):
        sl.spark.recommend(df, model, N=3, history={"u1": ["i1"]})
    with pytest.raises(ConfigError, match="cannot be used"):
        open_session("spark://127.0.0.1:1")


def test_interactions_are_read_from_a_dataframe_that_fits(spark, split, tmp_path, monkeypatch):
    table = split.train.to_frame().with_columns(note=pl.lit("x"))
    df = to_spark(spark, table, tmp_path)
    data = sl.read_interactions(df)
    assert data.to_frame().equals(sl.read_interactions(table).to_frame())
    assert data.source.unused == ("note",)
    first = split.train.items.values[0]
    some = sl.read_interactions(df, where=f"item_id != '{first}'", training=False)
    assert first not in some.items
    monkeypatch.setattr("shortlist.data.files.MAX_SPARK_ROWS", 99)
    with pytest.raises(DataError, match=r"at most 99 rows .* got 10,630; .* sample of users"):
        sl.read_interactions(df)


@pytest.fixture(scope="module")
def folder(lists, model, split, tmp_path_factory):
    """A saved model and cutoff, and folders with candidates and customers."""
    folder = tmp_path_factory.mktemp("files")
    model.save(folder / "shop.shortlist")
    sl.cutoff.ExpectedF1().fit(lists, split.valid).save(folder / "cut.shortlist")
    table = lists.to_frame().select("user_id", "item_id", "score", "probability")
    tables = {"candidates": table, "events": split.train.to_frame()}
    for name, rows in tables.items():
        (folder / name).mkdir()
        rows.write_parquet(folder / name / "rows.parquet")
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["cut", "candidates", "--cutoff", "cut.shortlist"],
            lambda table, model, cutoff: cutoff.apply(sl.RankedLists.from_frame(table)),
        ),
        (
            ["recommend", "shop.shortlist", "--history", "events", "--N", "3"],
            lambda table, model, cutoff: model.recommend(N=3),
        ),
        (
            ["allocate", "candidates", "--budget", "200"],
            lambda table, model, cutoff: sl.allocate(table, budget=200).lists,
        ),
    ],
)
def test_commands_write_folders(words, expected, spark, folder, model, tmp_path, capsys):
    out = tmp_path / "lists"
    words = [str(folder / word) if (folder / word).exists() else word for word in words]
    assert main([*words, "--out", str(out), "--spark", "local[2]", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    table = pl.read_parquet(folder / "candidates/*.parquet")
    cutoff = sl.cutoff.Cutoff.load(folder / "cut.shortlist")
    lists = expected(table, model, cutoff)
    assert (about["lists"], about["items"]) == (len(lists), lists.items.size)
    assert rows_of(spark.read.parquet(str(out))).equals(rows_of(lists))
    assert main([*words, "--out", str(out), "--spark", "local[2]"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_fit_and_evaluate_by_command(spark, folder, tmp_path, capsys):
    words = ["--model", "PersonalFrequency", "--sample", "200", "--spark", "local[2]", "--json"]
    assert main(["fit", str(folder / "events"), "--out", str(tmp_path / "m.shortlist"), *words]) == 0
    assert json.loads(capsys.readouterr().out)["class"] == "PersonalFrequency"
    assert 150 < sl.load_model(tmp_path / "m.shortlist").users_.size < 250
    paths = [str(folder / name) for name in ("candidates", "events")]
    assert main(["evaluate", paths[0], "--truth", paths[1], "--spark", "local[2]", "--json"]) == 0
    means = {row["metric"]: row["mean"] for row in json.loads(capsys.readouterr().out)}
    expected = sl.evaluate(folder / "candidates", sl.read_interactions(folder / "events"))
    assert means["f1"] == pytest.approx(expected.f1)


def test_commands_refuse_what_spark_cannot_do(spark, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    cases = {
        "--spark needs --out with a folder": [
            "cut",
            "candidates",
            "--cutoff",
            "cut.shortlist",
            "--out",
            "x.csv",
        ],
        "--spark needs --cutoff": ["cut", "candidates", "--out", "x"],
        "does not work with --truth": ["cut", "candidates", "--truth", "events", "--out", "x"],
        "does not work with --contacts": ["allocate", "candidates", "--contacts", "3", "--out", "x"],
        "does not work with --user": ["recommend", "shop.shortlist", "--user", "u1", "--out", "x"],
        "--spark needs --history": ["recommend", "shop.shortlist", "--out", "x"],
        "does not work with --quick": ["fit", "events", "--quick"],
        "does not work with --baseline": ["evaluate", "candidates", "--truth", "events", "--baseline", "x"],
        "none must be a folder of Parquet files": ["allocate", "none", "--budget", "3", "--out", "x"],
    }
    for message, words in cases.items():
        assert main([*words, "--spark", "local[2]"]) == 2, words
        assert message in capsys.readouterr().err
    (folder / "twice").mkdir()
    twice = pl.DataFrame({"user_id": ["a", "a"], "item_id": ["x", "x"], "score": [1.0, 0.5]})
    twice.write_parquet(folder / "twice" / "rows.parquet")
    words = ["cut", str(folder / "twice"), "--cutoff", "cut.shortlist", "--out", str(tmp_path / "out")]
    assert main([*words, "--spark", "local[2]"]) == 2
    error = capsys.readouterr().err
    assert "a list must not contain an item twice" in error
    assert "Traceback" not in error
