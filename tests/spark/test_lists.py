"""Lists on Spark: those of one machine, bit for bit, with any number of partitions and lost workers."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.data.files import collect_arrow
from shortlist.errors import ConfigError, DataError
from shortlist.spark.lists import open_session
from shortlist.spark.tasks import Task, user_blocks

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed; pip install pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of Spark itself
]
USERS = 60
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
    ("module", "name"), [("shortlist.spark.lists", "pyspark"), ("shortlist.spark.tasks", "numba")]
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


@pytest.mark.parametrize("kind", ["Popularity", "PersonalFrequency", "BPRMF", "EASE"])
def test_recommend_is_that_of_one_machine(kind, spark, split, tmp_path):
    model = getattr(sl, kind)().fit(split.train)
    users = split.train.users.values.to_list()[:USERS]
    df = to_spark(spark, pl.DataFrame({"user_id": [*users, users[0], "stranger"]}), tmp_path)
    expected = rows_of(model.recommend([*users, "stranger"], N=5, fallback="popular"))
    assert rows_of(sl.spark.recommend(df, model, N=5, fallback="popular")).equals(expected)


def test_options_and_all_users(spark, model, lists, split, tmp_path):
    path = model.save(tmp_path / "shop.shortlist")
    options = {"exclude": ["i92"], "cutoff": sl.cutoff.ExpectedF1().fit(lists, split.valid)}
    expected = rows_of(model.recommend(**options))
    assert rows_of(sl.spark.recommend(None, path, **options)).equals(expected)
    sessions = {"s1": ["i1", "i10"], "s2": ["i5"]}
    expected = rows_of(model.recommend(history=sessions, N=3))
    assert rows_of(sl.spark.recommend(None, model, history=sessions, N=3)).equals(expected)
    table = split.train.to_frame()
    expected = rows_of(model.recommend(history=table, N=3))
    found = sl.spark.recommend(None, model, history=to_spark(spark, table, tmp_path), N=3)
    assert rows_of(found).equals(expected)


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


def parent_of(process):
    """The id of the process that started this one."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class KilledOnce:
    """A task whose Python worker, or executor, ends without notice after its first block."""

    def __init__(self, task, mark, victim):
        self.task, self.mark, self.victim = task, mark, victim

    def __call__(self, batches):
        for batch in self.task(batches):
            yield batch
            if not self.mark.exists():
                executor = parent_of(os.getppid())  # which started the daemon that started this worker
                self.mark.write_text(str(executor))
                os.kill(executor if self.victim == "executor" else os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_changes_nothing(victim, spark, lists, split, tmp_path, monkeypatch):
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    mark = tmp_path / "killed"
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid)
    table = lists.to_frame().select("user_id", "item_id", "score")
    df = to_spark(spark, table, tmp_path)
    task_of = Task.of
    monkeypatch.setattr(Task, "of", lambda *args: KilledOnce(task_of(*args), mark, victim))
    rows = rows_of(sl.spark.cut(df, cutoff))
    assert Path(f"/proc/{mark.read_text()}").exists() == (victim == "worker")
    assert rows.equals(rows_of(cutoff.apply(sl.RankedLists.from_frame(table))))


def test_blocks_are_whole_users():
    import pyarrow as pa

    users = np.repeat([3, 5, 5, 7, 9], [1, 4, 40, 3, 2])
    number = np.concatenate([np.arange(n) + 1 for n in np.bincount(users)[np.unique(users)]])
    batches = pa.table({"user_id": users, "shortlist_row": number}).to_batches(max_chunksize=3)
    blocks = list(user_blocks(iter(batches), 6))
    assert len(blocks) > 1
    assert np.concatenate([block["user_id"].to_numpy() for block in blocks]).tolist() == users.tolist()
    ends = [(block["user_id"][0], block["user_id"][-1]) for block in blocks]
    assert all(ends[k][1] != ends[k + 1][0] for k in range(len(ends) - 1))


def test_what_cannot_be_done_is_refused(spark, model, lists, tmp_path):
    df = to_spark(spark, lists.to_frame().select("user_id", "item_id"), tmp_path)
    with pytest.raises(DataError, match="score or a rank"):
        sl.spark.cut(df, sl.cutoff.FixedN(N=3))
    with pytest.raises(DataError, match="probability"):
        sl.spark.allocate(df, budget=3)
    with pytest.raises(ConfigError, match="df must be a Spark DataFrame, got a DataFrame"):
        sl.spark.recommend(lists.to_frame(), model, N=3)
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
    users = table.select("user_id").unique(maintain_order=True).head(USERS)
    tables = {"candidates": table, "customers": users, "events": split.train.to_frame()}
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
            ["recommend", "shop.shortlist", "--users", "customers", "--N", "3"],
            lambda table, model, cutoff: model.recommend(
                table["user_id"].unique(maintain_order=True)[:USERS], N=3
            ),
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
        "does not work with --max_users": ["allocate", "candidates", "--max_users", "3", "--out", "x"],
        "does not work with --user": ["recommend", "shop.shortlist", "--user", "u1", "--out", "x"],
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
