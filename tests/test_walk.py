"""How many files a newcomer opens to follow a table to a list, a command or a request."""

import sys
from pathlib import Path

import pytest

import shortlist as sl
from shortlist.cli import main

PACKAGE = str(Path(sl.__file__).parent)


def files_of(call):
    """Return the files of the package whose functions a warm call enters."""
    call()
    entered = set()

    def record(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(before)
    return entered


@pytest.fixture
def events(tmp_path):
    rows = (f"u{k % 7},i{k * k % 11},{1600000000 + k * 86400}\n" for k in range(80))
    (tmp_path / "events.csv").write_text("user_id,item_id,timestamp\n" + "".join(rows))
    return tmp_path / "events.csv"


def test_from_a_table_to_a_list(events):
    def walk():
        sl.Popularity().fit(sl.read_interactions(events)).recommend(["u1"], N=5)

    files = files_of(walk)
    assert len(files) <= 14, sorted(files)


def test_recommend_on_the_command_line(events, capsys):
    model = events.with_name("model.shortlist")
    sl.Popularity().fit(sl.read_interactions(events)).set_cutoff(sl.cutoff.FixedN(N=5)).save(model)
    files = files_of(lambda: main(["recommend", str(model), "--user", "u1"]))
    assert "user u1: 5 items" in capsys.readouterr().out
    assert len(files) <= 22, sorted(files)


def test_the_recorder_sees_a_file(events):
    assert files_of(lambda: sl.read_interactions(events)) >= {"/data/files.py", "/data/interactions.py"}
