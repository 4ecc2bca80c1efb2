"""fit_to_folder: rows divided by user, and models in shards, without a cluster."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.core.engine import ThreadEngine
from shortlist.core.files import claim_folder
from shortlist.core.shards import shard_paths
from shortlist.data import ranges as user_ranges
from shortlist.data.columns import ReadOptions
from shortlist.data.files import open_each
from shortlist.data.history import History
from shortlist.data.ranges import MemoryRows, divide_files
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.models.factorization import model as dynamic_k
from shortlist.models.factorization.model import collect_statistics, fit_sizes
from shortlist.models.factorization.representation import Trend
from shortlist.models.folders import ROWS
from tests.models.cases import bits, crowd, model

COLUMNS = ["indptr", "item", "baskets", "user_baskets", "time", "weight"]


def write_files(folder, frame, n_files=5, seed=0):
    """Shuffled rows in several Parquet files."""
    folder.mkdir()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    for number in range(n_files):
        shuffled[number::n_files].write_parquet(folder / f"part-{number}.parquet")
    return sorted(folder.glob("*.parquet"))


def divide(paths, folder, kind=None, **options):
    """The rows of files in ranges, read with some options."""
    open_table = open_each(paths, ReadOptions(**options, format=kind))
    return divide_files(paths, open_table, folder, ThreadEngine(), "files")


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
    whole = sl.read_interactions(tmp_path / "files", negative_weights="drop")
    found = divide(paths, tmp_path / "rows", negative_weights="drop")
    assert found.range_starts.size > 4
    assert (found.n_users, found.n_items, found.totals.n_rows) == (whole.n_users, whole.n_items, whole.n_rows)
    assert found.set_starts.tolist() == whole.item_sets[0].tolist()
    joined = found.users(0, found.n_users).interactions(found.items, found.item_names, None)
    assert joined.fingerprint == whole.fingerprint
    totals = History.of(whole).totals
    assert [one.tolist() if isinstance(one, np.ndarray) else one for one in found.totals] == [
        one.tolist() if isinstance(one, np.ndarray) else one for one in totals
    ]
    for name in COLUMNS:
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name
    assert joined.users == whole.users
    if "item_name" in columns:
        assert joined.item_names.equals(whole.item_names)
    in_memory, some = MemoryRows(whole), (33, 151)
    assert found.row_starts.tolist() == in_memory.row_starts.tolist()
    assert found.basket_starts.tolist() == in_memory.basket_starts.tolist()
    one, other = found.users(*some).interactions(found.items), in_memory.users(*some)
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert all(map(np.array_equal, one.item_sets, other.item_sets))


def odd_table():
    """Rows of which some have no user, lie in the future, or are no purchases; two columns name the item."""
    frame = table(timestamp=1, basket_id=1).with_row_index("n")
    return frame.with_columns(
        pl.when(pl.col("n") % 50 == 1).then(None).otherwise("user_id").alias("user_id"),
        pl.when(pl.col("n") % 60 == 2).then(4_000_000_000).otherwise("timestamp").alias("timestamp"),
        event=pl.when(pl.col("n") % 3 == 0).then(pl.lit("view")).otherwise(pl.lit("purchase")),
        product=pl.struct(sku="item_id", product_code=pl.col("item_id") + "c"),
    ).drop("item_id", "n")


def test_files_are_read_with_the_options_of_one_machine(tmp_path):
    paths = write_files(tmp_path / "files", odd_table(), 3)
    views = odd_table().filter(pl.col("event") == "view").head(20)
    views.write_parquet(tmp_path / "files" / "part-0-views.parquet")  # nothing is left of it
    paths = sorted((tmp_path / "files").glob("*.parquet"))
    options = {"where": "event = 'purchase'", "missing": "drop", "future": "drop"}
    whole = sl.read_interactions(tmp_path / "files", **options)
    ranges = divide(paths, tmp_path / "rows", **options)
    found = ranges.users(0, ranges.n_users).interactions(ranges.items)
    assert found.fingerprint == whole.fingerprint
    assert whole.source.columns == ranges.source.columns
    assert (
        f"{3_020 - whole.n_rows - whole.duplicates:,} of 3,020 rows were left out" in ranges.source.notes[0]
    )
    for name, value in (("future", "time in the future"), ("missing", "an id must not be empty")):
        with pytest.raises(DataError, match=value):
            divide(paths, tmp_path / "rows", **options | {name: "error"})
    with pytest.raises(DataError, match="where must leave some rows"):
        divide(paths, tmp_path / "rows", **options | {"where": "event = 'sale'"})
    with pytest.raises(ConfigError, match=r"format must be 'parquet'"):
        divide(paths, tmp_path / "rows", "csv")


def test_files_of_other_types_are_refused(tmp_path):
    paths = write_files(tmp_path / "files", table(timestamp=1), 2)
    other = pl.read_parquet(paths[1]).with_columns(timestamp=pl.col("timestamp") * 1000)
    other.write_parquet(paths[1])
    with pytest.raises(DataError, match=r"unit of timestamp milliseconds instead of seconds; cast"):
        divide(paths, tmp_path / "rows")


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


def split_model(whole, folder, cuts):
    """Save a model in shards with some users each, as the workers of a cluster do."""
    state, history = whole._state, whole._state.history.merged
    folder.mkdir()
    pairs = list(pairwise([0, *cuts, history.n_users]))
    for path, (first, last) in zip(shard_paths(folder, len(pairs)), pairs, strict=True):
        own = whole.clone()
        users = np.arange(first, last, dtype=np.int32)
        rows = state.history.rows_of(users)
        data = sl.Interactions(**{name: getattr(rows, name) for name in ("users", "items", *COLUMNS)})
        parameters = state.parameters._replace(
            user=state.parameters.user[first:last], boundary=state.parameters.boundary[first:last]
        )
        known = replace(History.of(data), counted=state.history.totals)
        own._state = replace(state, history=known, parameters=parameters, trend=own.trend_of(data))
        own.save(path)
    return folder


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_lists_of_shards_are_those_of_the_whole_model(name, tmp_path):
    whole = model(name, n_epochs=2).fit(crowd())
    folder = split_model(whole, tmp_path / "model", [150, 290])
    loaded = sl.load_model(folder)
    assert loaded.fingerprint_ == whole.fingerprint_
    options = {"max_items": 7, "fallback": "popular"}
    calls = []
    lists = sl.recommend_to_folder(
        folder, tmp_path / "lists", users_per_file=100, progress=lambda *one: calls.append(one), **options
    )
    assert len(list(lists.glob("*.parquet"))) == 6
    assert calls[-1] == (6, 6)
    expected = sl.recommend_to_folder(whole, tmp_path / "expected", **options)
    assert pl.read_parquet(sorted(lists.glob("*.parquet"))).equals(
        pl.read_parquet(sorted(expected.glob("*.parquet")))
    )
    first = min(lists.glob("*.parquet"))
    first.unlink()
    sl.recommend_to_folder(folder, lists, users_per_file=100, **options)  # only what is missing
    assert first.exists()
    with pytest.raises(DataError, match="holds the lists of another request"):
        sl.recommend_to_folder(folder, lists, users_per_file=100, N=3)
    with pytest.raises(ConfigError, match="users must be None with the folder of a model"):
        sl.recommend_to_folder(folder, lists, [1, 2])


def test_commands_read_the_folder_of_a_model(tmp_path, capsys):
    whole = model("DKBPRMF", n_epochs=2).fit(crowd())
    folder = split_model(whole, tmp_path / "model", [150])
    assert main(["inspect", str(folder), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["class"], about["shards"], about["users"]) == ("DKBPRMF", 2, whole.users_.values.len())
    assert about["rows"] == crowd().n_rows
    (tmp_path / "few.txt").write_text("1\n2\n3\n")
    flags = ["--N", "2", "--candidates", str(tmp_path / "few.txt")]
    assert main(["recommend", str(folder), "--out", str(tmp_path / "lists"), *flags]) == 0
    found = pl.read_parquet(sorted((tmp_path / "lists").glob("*.parquet")))
    assert set(found["item_id"].drop_nulls().unique()) <= {1, 2, 3}
    assert found["user_id"].n_unique() == whole.users_.values.len()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--out", "model"], "--model must name a factor model"),
        (["--out", "model", "--model", "EASE"], "model must be BPRMF"),
        (["--out", "model", "--model", "BPRMF", "--cutoff", "ExpectedF1"], "--cutoff cannot be combined"),
        (["--out", "model", "--model", "BPRMF", "--coverage", "0.5"], "--coverage cannot be combined"),
        (
            ["--out", "model", "--model", "BPRMF", "--separator", ";"],
            "separator must be None if files",
        ),
        (["--out", "model", "--model", "BPRMF", "--format", "csv"], "format must be 'parquet'"),
        (["--out", "model.shortlist", "--checkpoint", "run"], "--checkpoint needs --ray and a folder"),
        (["--out", "files", "--model", "BPRMF"], "must be a new or empty folder"),
    ],
)
def test_the_command_refuses_what_a_folder_cannot_have(flags, sentence, tmp_path, capsys, monkeypatch):
    write_files(tmp_path / "files", table())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shortlist.cli.fit.build_engine", lambda _: Elsewhere())
    monkeypatch.setattr("shortlist.cli.source.sl.RayEngine", lambda _: None)
    assert main(["fit", "files", "--ray", "auto", *flags]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_cutoff_of_a_folder(tmp_path):
    write_files(tmp_path / "files", crowd().to_frame())
    cutoff = sl.cutoff.FixedN(N=3)
    folder = sl.fit_to_folder(
        model("BPRMF", n_epochs=2), tmp_path / "files", tmp_path / "model", cutoff=cutoff
    )
    loaded = sl.load_model(folder)
    assert loaded.cutoff_.N == 3
    assert loaded.recommend(loaded.users_.values[:5].to_list()).lengths.tolist() == [3] * 5


def test_one_shard_of_any_model_can_be_loaded(tmp_path):
    write_files(tmp_path / "files", crowd().to_frame())
    folder = sl.fit_to_folder(sl.Popularity(), tmp_path / "files", tmp_path / "model")
    assert sl.load_model(folder).recommend(N=2).lengths.min() == 2


def test_incomplete_folders_are_refused(tmp_path):
    model("BPRMF", n_epochs=1).fit(crowd()).save(shard_paths(tmp_path, 2)[1])
    with pytest.raises(ModelFileError, match=r"shard-00000-of-00002\.shortlist is missing"):
        sl.load_model(tmp_path)
    models = [model("BPRMF", n_epochs=1).fit(crowd()), model("BPRMF", n_epochs=2).fit(crowd())]
    with pytest.raises(ModelFileError, match="shards of one model"):
        models[0]._join_shards(models, tmp_path)


class Elsewhere(ThreadEngine.__base__):
    """A cluster that must not be asked to train."""

    def open_trainer(self, task):
        raise AssertionError

    n_tasks = 1

    def map(self, function, tasks):
        return map(function, tasks)


def test_other_models_are_refused_on_a_cluster(tmp_path):
    with pytest.raises(ConfigError, match="model must be BPRMF, LogMF, CRRMF, DKBPRMF, HRM or DKHRM to be"):
        sl.fit_to_folder(sl.Popularity(), tmp_path, tmp_path / "model", engine=Elsewhere())


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("DKBPRMF", {}),
        ("HRM", {"repeat_decay": 0.9, "trend_half_life": 2.0}),
        ("DKHRM", {"repeat_decay": 0.5, "negatives": "uniform"}),
        ("DKBPRMF", {"weighting": "linear"}),
        ("HRM", {"weighting": "log", "trend_half_life": 2.0}),
    ],
)
@pytest.mark.parametrize("most", [100, 1_000_000])
def test_statistics_of_ranges_are_those_of_all_rows(name, changed, most, tmp_path, monkeypatch):
    """Of many users, the same part is drawn to learn the sizes of lists."""
    monkeypatch.setattr(user_ranges, "RANGE_ROWS", 3000)
    monkeypatch.setattr(dynamic_k, "MAX_SIZE_USERS", most)
    frame = crowd().to_frame()
    weights = np.random.default_rng(8).integers(1, 9, len(frame)).astype(np.float64)
    paths = write_files(tmp_path / "files", frame.with_columns(weight=weights))
    one = model(name, **changed)
    whole = sl.read_interactions(tmp_path / "files")
    data = divide(paths, tmp_path / "rows")
    found, in_memory = (
        collect_statistics(one, data, ThreadEngine()),
        collect_statistics(one, MemoryRows(whole)),
    )
    assert found.trained_users == one.trained_users(whole).sum()
    size, expected = fit_sizes(found), fit_sizes(in_memory)
    assert (size is None) == (expected is None) == (not name.startswith("DK"))
    if expected is not None:
        assert size.beta_.tobytes() == expected.beta_.tobytes()
        assert size.dispersion_ == expected.dispersion_
    assert found.repeat_start == in_memory.repeat_start
    assert found.row_starts.tolist() == in_memory.row_starts.tolist()
    if name == "HRM":
        trend = Trend.of(whole, one.trend_half_life)
        assert found.trend.end == trend.end
        for name_, array in found.trend.sales._asdict().items():
            assert np.array_equal(array, getattr(trend.sales, name_)), name_
    if changed.get("negatives") == "uniform":
        groups = one.representation(whole, found).trained_groups
        rows = np.diff(whole.baskets)[groups].sum()
        assert found.examples_per_group == one.alpha * rows / groups.sum()


@pytest.mark.parametrize("columns", [{}, {"timestamp": 1}, {"basket_id": 1}])
def test_models_that_cannot_learn_from_the_rows_are_refused(columns, tmp_path):
    write_files(tmp_path / "files", table(**columns))
    one = model("HRM", trend_half_life=2.0)
    if columns == {"timestamp": 1}:
        with pytest.raises(AssertionError):
            sl.fit_to_folder(one, tmp_path / "files", tmp_path / "model", engine=Elsewhere())
    else:
        with pytest.raises(ConfigError, match="trend_half_life needs timestamps"):
            sl.fit_to_folder(one, tmp_path / "files", tmp_path / "model", engine=Elsewhere())
    assert list((tmp_path / "model").iterdir()) == []


def test_options_that_do_not_fit_are_refused(tmp_path):
    write_files(tmp_path / "files", crowd().to_frame())
    one, files, folder = model("BPRMF", n_epochs=2), tmp_path / "files", tmp_path / "model"
    with pytest.raises(ConfigError, match='valid must be "last_basket" or None'):
        sl.fit_to_folder(one, files, folder, valid="test")
    folder.mkdir()
    with pytest.raises(ConfigError, match="checkpoint must not lie in the folder of the model"):
        sl.fit_to_folder(one, files, folder, checkpoint=folder / "run")
    found = sl.fit_to_folder(one, files, folder, valid="last_basket", checkpoint=tmp_path / "run")
    split = sl.split.last_basket(crowd())
    expected = model("BPRMF", n_epochs=2).fit(split.train_valid, valid=split.test)
    assert sl.load_model(found).valid_scores_ == expected.valid_scores_
    again = sl.fit_to_folder(one, files, folder, valid="last_basket", checkpoint=tmp_path / "run")
    assert bits(sl.load_model(again)) == bits(expected)


def test_two_processes_do_not_fill_one_folder(tmp_path):
    pytest.importorskip("ray")
    write_files(tmp_path / "events", table(timestamp=1))
    rows = tmp_path / "model" / ROWS
    rows.mkdir(parents=True)
    (rows / "item.npy").write_text("of the first process")
    engine = sl.RayEngine("127.0.0.1:1")  # nobody listens there: the folder is checked before
    with claim_folder(tmp_path / "model"), pytest.raises(DataError, match="by two processes"):
        sl.fit_to_folder(sl.BPRMF(), tmp_path / "events", tmp_path / "model", engine=engine)
    assert (rows / "item.npy").read_text() == "of the first process"
    with claim_folder(tmp_path / "model"):  # the claim ends with the process or the block
        pass
