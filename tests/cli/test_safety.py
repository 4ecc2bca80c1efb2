"""Secrets and control characters on the command line."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.text import CONTROL

EVIL = [
    "a\x1b[31mred",
    "b\r\nshortlist: forged",
    "c\u202edrow",
    "[red]d[/red]",
    "e\x9bm",
    "<script>f</script>",
    "g\u2066",
]
COUNTED = ["--model", "PersonalFrequency"]


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """Events whose ids and names contain control characters, in a file and in a database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHORTLIST_TRACEBACK", raising=False)
    rows = [
        {
            "user_id": user,
            "item_id": EVIL[(at + day) % 7],
            "timestamp": day * 86_400,
            "item_name": f"n{EVIL[at]}",
        }
        for user in EVIL
        for day in range(6)
        for at in (day, (day * 3 + 1) % 7)
    ]
    frame = pl.DataFrame([row | {"item_name": f"name {row['item_id']}"} for row in rows]).unique(
        maintain_order=True
    )
    frame.write_parquet("events.parquet")
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute(
            "CREATE TABLE events (user_id TEXT, item_id TEXT, timestamp INTEGER, item_name TEXT)"
        )
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", frame.rows())
    return tmp_path


def run(words, capsys, code=0):
    """Run a command; nothing that it prints may control a terminal."""
    capsys.readouterr()
    assert main(words) == code
    out, err = capsys.readouterr()
    for text in (out, err):
        assert CONTROL.search(text.replace("\n", "")) is None, text
    assert not [line for line in (out + err).splitlines() if line.startswith("shortlist: forged")]
    return out, err


def test_control_characters_of_ids_and_names_are_escaped(workdir, capsys):
    run(
        ["fit", "events.parquet", "--out", "m", "--test", "held.parquet", "--report", "r.html", *COUNTED],
        capsys,
    )
    page = Path("r.html").read_text()
    assert CONTROL.search(page.replace("\n", "").replace("\t", "")) is None
    assert "<script>f" not in page
    out, _ = run(
        ["recommend", "m", *(word for user in EVIL for word in ("--user", user)), "--N", "3"], capsys
    )
    assert r"user a\x1b[31mred" in out
    assert r"user b\r\nshortlist: forged" in out
    assert "user [red]d[/red]" in out
    assert r"user c\u202edrow" in out
    out, _ = run(["recommend", "m", "--json", "--N", "2"], capsys)
    assert {one["user_id"] for one in json.loads(out)} == set(EVIL)
    run(["inspect", "m"], capsys)
    for suffix in ("csv", "parquet", "jsonl"):
        run(["recommend", "m", "--N", "2", "--out", f"l\x1b[1m.{suffix}"], capsys)
        assert set(sl.RankedLists.read(f"l\x1b[1m.{suffix}").users.values) == set(EVIL)  # files keep the ids
    run(["evaluate", "l\x1b[1m.csv", "--truth", "held.parquet"], capsys)
    run(["evaluate", "l\x1b[1m.csv", "x\x1b[2J=l\x1b[1m.jsonl", "--truth", "held.parquet"], capsys)
    run(["evaluate", "l\x1b[1m.csv", "x\x1b[2J=l\x1b[1m.jsonl", "--truth", "held.parquet", "--json"], capsys)


def test_control_characters_in_errors_are_escaped(workdir, capsys):
    for words in (
        ["fit", "no\x1b[31m\nfile.csv"],
        ["fit", "events.parquet", "--user_id", "x\x1b\u202e"],
        ["\x1b[2J"],
        ["recommend", "m\x9b"],
        ["fit", "events.parquet", "--no\x1bflag", "1"],
    ):
        _, err = run(words, capsys, code=2)
        assert err.count("\n") == 1


def test_notebooks_escape_control_characters(workdir):
    data = sl.read_interactions("events.parquet")
    model = sl.PersonalFrequency().fit(data)
    for shown in (data, model.recommend(N=2), model):
        assert CONTROL.search(shown._repr_html_().replace("\n", "")) is None
        assert CONTROL.search(repr(shown)) is None
    assert CONTROL.search(repr(model.recommend(N=2).at(0))) is None


@pytest.mark.parametrize(
    "source", ["sqlite:///shop.db?password=hunter2", "sqlite:///shop.db?x=1&key=hunter2"]
)
def test_the_password_of_a_database_is_nowhere(workdir, capsys, source):
    query = ["--query", "SELECT * FROM events"]
    shown = [
        *run(
            ["fit", source, "--out", "m", "--test", "held.csv", "--report", "r.html", *query, *COUNTED],
            capsys,
        ),
        *run(["fit", source, "--out", "m", "--json", *query, *COUNTED], capsys),
        *run(["fit", source, "--out", "m", "--trials", "2", *query, *COUNTED], capsys),
        *run(["fit", source, "--out", "m", "--query", "SELECT * FROM none", *COUNTED], capsys, code=2),
        *run(["evaluate", source, "--truth", "held.csv"], capsys, code=2),
        *run(["recommend", source], capsys, code=2),
    ]
    assert "sqlite:///shop.db" in "".join(shown)
    assert "hunter2" not in "".join(shown)
    for path in workdir.iterdir():
        assert b"hunter2" not in path.read_bytes(), path
