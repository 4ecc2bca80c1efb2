"""fit_to_folder: rows divided by user, and models in shards, without a cluster."""

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.core.engine import ThreadEngine
from shortlist.data import user_ranges
from shortlist.data.aliases import ColumnNames
from shortlist.data.range_files import ReadOptions
from shortlist.data.user_ranges import divide_files
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.models.factorization.shards import join_shards, shard_paths
from tests.models.cases import bits, crowd, model

ANY = ColumnNames(None, None, None, None, None, None)
COLUMNS = ["indptr", "item", "baskets", "user_baskets", "time", "weight"]


def write_files(folder, frame, n_files=5, seed=0):
    """Shuffled rows in several Parquet files."""
    folder.mkdir()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    for number in range(n_files):
        shuffled[number::n_files].write_parquet(folder / f"part-{number}.parquet")
    return sorted(folder.glob("*.parquet"))


def table(**columns):
    """Generated rows with string ids, and some columns."""
    rng = np.random.default_rng(3)
    n = 3000
    user, item = rng.integers(200, size=n), rng.integers(50, size=n)
    ids = {"user_id": [f"u{one}" for one in user], "item_id": [f"i{one % 37}x{one}" for one in item]}
    known = {
        "timestamp": rng.integers(1_600_000_000, 1_600_900_000, size=n) // 86_400 * 86_400,
        "weight": rng.integers(-1, 4, size=n).astype(np.float32),
        "basket_id": rng.integers(1000, size=n),
        "item_name": [f"name {one}" if one % 3 else None for one in item],
    }
    return pl.DataFrame(ids | {name: known[name] for name in columns})


@pytest.mark.filterwarnings("ignore::shortlist.errors.DataWarning")
@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"timestamp": 1},
        {"timestamp": 1, "weight": 1},
        {"basket_id": 1},
        {"timestamp": 1, "basket_id": 1, "weight": 1, "item_name": 1},
    ],
)
def test_ranges_hold_the_rows_of_one_machine(columns, tmp_path, monkeypatch):
    monkeypatch.setattr(user_ranges, "RANGE_ROWS", 500)
    paths = write_files(tmp_path / "files", table(**columns))
    whole = sl.read_interactions(tmp_path / "files")
    found = divide_files(paths, ReadOptions(ANY), tmp_path / "rows", ThreadEngine(), "files")
    assert found.range_starts.size > 4
    assert (found.n_users, found.n_items, found.n_rows) == (whole.n_users, whole.n_items, whole.n_rows)
    assert found.row_starts.tolist() == whole.item_sets[0].tolist()
    joined = found.users(0, found.n_users).interactions(found.items, found.item_names, None)
    assert joined.fingerprint == whole.fingerprint
    for name in COLUMNS:
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name
    assert joined.users == whole.users
    if "item_name" in columns:
        assert joined.item_names.equals(whole.item_names)
    low, high = 33, 151
    indptr, items = found.users(low, high).item_sets()
    first, last = whole.item_sets[0][[low, high]]
    assert items.tolist() == whole.item_sets[1][first:last].tolist()
    assert indptr.tolist() == (whole.item_sets[0][low : high + 1] - first).tolist()


def test_files_of_other_types_are_refused(tmp_path):
    paths = write_files(tmp_path / "files", table(timestamp=1), 2)
    other = pl.read_parquet(paths[1]).with_columns(timestamp=pl.col("timestamp") * 1000)
    other.write_parquet(paths[1])
    with pytest.raises(DataError, match=r"unit of timestamp milliseconds instead of seconds; cast"):
        divide_files(paths, ReadOptions(ANY), tmp_path / "rows", ThreadEngine(), "files")


def test_one_process_writes_one_shard(tmp_path):
    write_files(tmp_path / "files", crowd().to_frame())
    folder = sl.fit_to_folder(model("BPRMF", n_epochs=2), tmp_path / "files", tmp_path / "model")
    assert [path.name for path in folder.iterdir()] == ["shard-00000-of-00001.shortlist"]
    one, whole = (
        sl.load_model(folder),
        model("BPRMF", n_epochs=2).fit(sl.read_interactions(tmp_path / "files")),
    )
    assert bits(one) == bits(whole)
    assert one.fingerprint_ == whole.fingerprint_
    with pytest.raises(DataError, match="must be a new or empty folder"):
        sl.fit_to_folder(model("BPRMF"), tmp_path / "files", tmp_path / "model")


def test_incomplete_folders_are_refused(tmp_path):
    model("BPRMF", n_epochs=1).fit(crowd()).save(shard_paths(tmp_path, 2)[1])
    with pytest.raises(ModelFileError, match=r"shard-00000-of-00002\.shortlist is missing"):
        sl.load_model(tmp_path)
    models = [model("BPRMF", n_epochs=1).fit(crowd()), model("BPRMF", n_epochs=2).fit(crowd())]
    with pytest.raises(ModelFileError, match="shards of one model"):
        join_shards(models, tmp_path)


@pytest.mark.parametrize("name", ["DKBPRMF", "HRM", "Popularity"])
def test_other_models_are_refused_on_a_cluster(name, tmp_path):
    class Elsewhere(ThreadEngine.__base__):
        def open_trainer(self, task):
            raise AssertionError

        def map(self, function, tasks):
            raise AssertionError

    with pytest.raises(ConfigError, match="model must be BPRMF, LogMF, CRRMF or DKBPRMF with boundary"):
        sl.fit_to_folder(model(name), tmp_path, tmp_path / "model", engine=Elsewhere())
