"""Brackets, stars and question marks in file names are literal."""

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.data.files import read_interactions
from shortlist.errors import DataError

NAMES = ["ev[1]", "a*b", "what?", "[ab]", "x[!y]", "~nobody", "**", "{a,b}", "100%", "a#b", "ü ", "-x"]
WRITERS = {
    ".csv": pl.DataFrame.write_csv,
    ".parquet": pl.DataFrame.write_parquet,
    ".jsonl": pl.DataFrame.write_ndjson,
}


def frame(user):
    return pl.DataFrame({"user_id": [user, "other"], "item_id": ["x", "y"]})


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A folder with files that patterns would match."""
    monkeypatch.chdir(tmp_path)
    for name in ("ev1", "aXb", "whatX", "a", "xz", "b"):
        for suffix, write in WRITERS.items():
            write(frame("wrong"), tmp_path / f"{name}{suffix}")
    return tmp_path


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("name", NAMES)
def test_the_very_file_is_read(workdir, name, suffix):
    WRITERS[suffix](frame("right"), workdir / f"{name}{suffix}")
    for source in (f"{name}{suffix}", workdir / f"{name}{suffix}", [f"{name}{suffix}"]):
        assert read_interactions(source).users.values.to_list() == ["other", "right"]
    assert sl.RankedLists.read(f"{name}{suffix}").users.values.to_list() == ["right", "other"]


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("name", NAMES)
def test_folders_with_such_names(workdir, name, suffix):
    (workdir / name).mkdir()
    WRITERS[suffix](frame("right"), workdir / name / f"a[1]{suffix}")
    for source in (name, f"{name}/a[1]{suffix}", f"{name}/*{suffix}", workdir / name / f"a*{suffix}"):
        assert read_interactions(source).users.values.to_list() == ["other", "right"]


def test_a_pattern_works_if_no_file_has_its_name(workdir):
    assert read_interactions("ev[0-9].csv").n_rows == 2
    assert read_interactions("what?.parquet").n_rows == 2
    with pytest.raises(DataError, match="a pattern must match at least one file"):
        read_interactions("none[0-9].csv")


@pytest.mark.parametrize("name", NAMES)
def test_models_and_lists_are_written_to_the_very_path(workdir, name):
    model = sl.Popularity().fit(frame("right"))
    (workdir / "ev1.shortlist").write_bytes(b"other")
    path = f"{name}.shortlist"
    model.save(path)
    assert (workdir / path).is_file()
    assert sl.load_model(path).users_.values.to_list() == ["other", "right"]
    for suffix in WRITERS:
        model.recommend(N=1).write(f"lists {name}{suffix}")
        assert len(sl.RankedLists.read(f"lists {name}{suffix}")) == 2
    model.recommend_to_file(f"big {name}.parquet", N=1)
    assert len(sl.RankedLists.read(f"big {name}.parquet")) == 2
    assert (workdir / "ev1.shortlist").read_bytes() == b"other"


def test_a_model_path_is_never_a_pattern(workdir):
    sl.Popularity().fit(frame("right")).save("shop1")
    with pytest.raises(sl.errors.ModelFileError, match="no saved model at"):
        sl.load_model("shop[1]")


@pytest.mark.parametrize("name", NAMES[:4])
class TestOtherFiles:
    """Each file has a neighbor whose name the name would match as a pattern."""

    def test_candidates(self, workdir, name, capsys):
        sl.Popularity().fit(sl.Interactions.from_tuples([("u", "x"), ("v", "y"), ("w", "z")])).save("m")
        for wrong in ("ev1", "aXb", "whatX", "a"):
            (workdir / f"{wrong}.txt").write_text("y\n")
        (workdir / f"{name}.txt").write_text("z\n")
        command = ["recommend", "m", "--user", "u", "--N", "3", "--json", "--candidates", f"{name}.txt"]
        assert main(command) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert found["items"] == ["z"]

    def test_reports(self, workdir, name, capsys):
        (workdir / "ev1.html").write_text("other")
        command = ["fit", "sample", "--model", "PersonalFrequency", "--out", "m"]
        assert main([*command, "--report", f"{name}.html"]) == 0
        assert "<html" in (workdir / f"{name}.html").read_text(encoding="utf-8")
        assert (workdir / "ev1.html").read_text() == "other"
