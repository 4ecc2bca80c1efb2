"""Lists on Spark: those of one machine, bit for bit, with any number of partitions and lost workers."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError

pytest.importorskip("pyspark", reason="pyspark is not installed; pip install pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of Spark itself
    pytest.mark.xdist_group("spark"),
]
USERS = 60


@pytest.fixture(scope="module")
def spark():
    """Up to four Python workers; a task is tried four times."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[4,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g")
    builder = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
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
    frame = (
        lists.to_frame() if isinstance(lists, sl.RankedLists) else pl.DataFrame(sl.spark.collect_arrow(lists))
    )
    return frame.sort("user_id", "rank")


def test_import_of_the_package_does_not_import_pyspark():
    code = (
        "import sys, shortlist as sl; sl.spark; sys.exit('pyspark' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def fitted_cutoff(name, lists, split):
    """A cutoff of the registry, fitted."""
    kinds = sl.cutoff.Cutoff.classes()
    settings = {"Threshold": {"threshold": 0.3}, "Boundary": {}, "Budget": {"items_per_user": 3}}
    settings |= {"Guarantee": {"min_precision": 0.05}, "ExpectedValue": {"gain": 3.0, "cost": 1.0}}
    given = settings.get(name, {})
    try:
        return kinds[name](**given).fit(lists, split.valid)
    except TypeError:
        return kinds[name]().fit(lists, split.valid)


@pytest.mark.parametrize("name", sorted(sl.cutoff.Cutoff.classes()))
def test_cut_is_that_of_one_machine(name, spark, lists, split, tmp_path):
    cutoff = fitted_cutoff(name, lists, split)
    table = lists.to_frame().select("user_id", "item_id", "score", "probability")
    expected = rows_of(cutoff.apply(sl.RankedLists.from_frame(table)))
    assert expected["length"].max() > 0
    df = to_spark(spark, table.sample(fraction=1, shuffle=True, seed=3), tmp_path)
    assert rows_of(sl.spark.cut(df, cutoff)).equals(expected)


@pytest.mark.parametrize("n_partitions", [1, 2, 4])
def test_the_number_of_workers_changes_nothing(n_partitions, spark, lists, model, split, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", str(n_partitions))
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid)
    table = lists.to_frame().select("user_id", "item_id", "score")
    df = to_spark(spark, table, tmp_path)
    found = sl.spark.cut(df, cutoff)
    assert found.rdd.getNumPartitions() == n_partitions
    assert rows_of(found).equals(rows_of(cutoff.apply(sl.RankedLists.from_frame(table))))
    assert rows_of(sl.spark.recommend(df, model, N=4)).equals(rows_of(model.recommend(N=4)))


@pytest.mark.parametrize("kind", ["Popularity", "PersonalFrequency", "BPRMF", "EASE"])
def test_recommend_is_that_of_one_machine(kind, spark, split, tmp_path):
    model = getattr(sl, kind)().fit(split.train)
    users = split.train.users.values.to_list()[:USERS]
    df = to_spark(spark, pl.DataFrame({"user_id": [*users, users[0], "stranger"]}), tmp_path)
    expected = rows_of(model.recommend([*users, "stranger"], N=5, fallback="popular"))
    assert rows_of(sl.spark.recommend(df, model, N=5, fallback="popular")).equals(expected)


def test_options_and_all_users(spark, model, lists, split, tmp_path):
    path = model.save(tmp_path / "shop.shortlist")
    options = {"explore": 0.5, "exclude": ["i92"], "cutoff": sl.cutoff.ExpectedF1().fit(lists, split.valid)}
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
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    table = lists.to_frame().select("user_id", "item_id", pl.col("probability").round(digits))
    if "gain" in options:
        shown = set(table["item_id"].to_list())
        options = options | {"gain": {item: g for item, g in options["gain"].items() if item in shown}}
    df = to_spark(spark, table.sample(fraction=1, shuffle=True, seed=5), tmp_path)
    expected = sl.allocate(table, **options)
    found = sl.spark.allocate(df, **options)
    assert (found.price, found.n_items) == (expected.prices.item, expected.n_items)
    assert rows_of(found.lists).equals(rows_of(expected.lists))


class KilledOnce:
    """A task whose Python worker ends without notice after its first block."""

    def __init__(self, task, mark):
        self.task, self.mark = task, mark

    def __call__(self, batches):
        for batch in self.task(batches):
            yield batch
            if not os.path.exists(self.mark):  # noqa: PTH110
                open(self.mark, "w").close()  # noqa: PTH123
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_python_worker_changes_nothing(spark, lists, split, tmp_path, monkeypatch):
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    mark = str(tmp_path / "killed")
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid)
    table = lists.to_frame().select("user_id", "item_id", "score")
    df = to_spark(spark, table, tmp_path)
    exact = sl.spark.Task.of
    monkeypatch.setattr(sl.spark.Task, "of", lambda *args: KilledOnce(exact(*args), mark))
    found = rows_of(sl.spark.cut(df, cutoff))
    assert os.path.exists(mark)  # noqa: PTH110
    assert found.equals(rows_of(cutoff.apply(sl.RankedLists.from_frame(table))))


def test_blocks_are_whole_users():
    import pyarrow as pa

    users = np.repeat([3, 5, 5, 7, 9], [1, 4, 40, 3, 2])
    batches = pa.table({"user_id": users}).to_batches(max_chunksize=3)
    blocks = list(sl.spark.user_blocks(iter(batches), 6))
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
        sl.spark.open_session("spark://127.0.0.1:1")
