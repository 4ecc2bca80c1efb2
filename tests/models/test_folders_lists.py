"""recommend_to_folder: the lists of recommend in several files, resumable."""

import pickle
from functools import partial

import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import DataError
from shortlist.models.folders import ListFile, _write_lists
from shortlist.recommend.request import RequestOptions
from tests.models.cases import checkerboard, fitted

FILES = [f"part-{number:05}-of-00004.parquet" for number in range(4)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("shortlist.models.base.MAX_BATCH", 8)


def write(folder, name="PersonalFrequency", **options):
    return sl.recommend_to_folder(fitted(name), folder, **{"N": 3, "users_per_file": 5} | options)


def test_the_lists_are_those_of_recommend(tmp_path):
    calls = []
    folder = write(tmp_path / "lists", progress=lambda *call: calls.append(call))
    assert [path.name for path in sorted(folder.glob("*.parquet"))] == FILES  # 5 users are one batch of 8
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    found = pl.concat([pl.read_parquet(folder / name) for name in FILES])
    assert found.equals(fitted("PersonalFrequency").recommend(N=3).to_frame())


def test_finished_files_are_not_written_again(tmp_path):
    folder = write(tmp_path / "lists")
    before = {name: (folder / name).read_bytes() for name in FILES}
    (folder / FILES[2]).unlink()
    stamp = (folder / FILES[0]).stat().st_mtime_ns
    with pytest.raises(DataError, match="holds 3 of 4 files"):
        sl.evaluate(folder, checkerboard())
    calls = []
    write(folder, progress=lambda *call: calls.append(call))
    assert calls == [(4, 4)]
    assert (folder / FILES[0]).stat().st_mtime_ns == stamp
    assert {name: (folder / name).read_bytes() for name in FILES} == before


def test_another_request_is_refused(tmp_path):
    folder = write(tmp_path / "lists")
    for options in ({"N": 4}, {"users": ["u01"]}, {"name": "Popularity"}, {"users_per_file": 20}):
        with pytest.raises(DataError, match="holds the lists of another request"):
            write(folder, **options)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("mine")
    with pytest.raises(DataError, match="got other files"):
        write(tmp_path / "mine")
    with pytest.raises(DataError, match="must be a folder, got a file"):
        write(tmp_path / "mine" / "diary.txt")


@pytest.mark.filterwarnings("ignore::shortlist.errors.DataWarning")
def test_a_folder_is_evaluated_as_its_lists(tmp_path):
    folder = write(tmp_path / "lists")
    lists = fitted("PersonalFrequency").recommend(N=3)
    assert sl.evaluate(folder, checkerboard()).to_dict() == sl.evaluate(lists, checkerboard()).to_dict()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="must hold Parquet files with lists"):
        sl.evaluate(tmp_path / "empty", checkerboard())


@pytest.mark.parametrize(
    "options",
    [
        {"explore": 0.5},
        {"history": {"s": ["i01"], "t": ["i05", "i06"]}},
        {"candidates": {"u01": ["i01", "i02", "i03"]}, "filter_seen": False},
    ],
)
def test_the_work_of_a_node_travels_whole(options, tmp_path):
    """What a cluster sends to a node: the function with the model and the request."""
    model = fitted("PersonalFrequency")
    request = model.plan(None, RequestOptions(N=3, **options)).request
    write_there = pickle.loads(pickle.dumps(partial(_write_lists, model, request)))
    write_there(ListFile(tmp_path / "lists.parquet", 0, 1000))
    lists = model.recommend(N=3, **options)
    assert sl.RankedLists.read(tmp_path / "lists.parquet").to_frame().equals(lists.to_frame())
