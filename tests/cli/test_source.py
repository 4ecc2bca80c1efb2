"""fit → recommend → evaluate from CSV, Parquet folder, SQLite and PostgreSQL: same rows, same lists."""

import json
import sqlite3
import tempfile
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from tests.postgres import started

FIT = ["--model", "PersonalFrequency", "--test", "held.parquet", "--out", "shop.shortlist", "--json"]


@pytest.fixture(scope="module")
def events():
    """The sample as a table, where every user has at least three baskets."""
    return sl.load_dataset("sample").to_frame()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run_all(capsys, *source):
    """(fingerprint of the data, evaluation) after all three commands."""
    capsys.readouterr()
    assert main(["fit", *map(str, source), *FIT]) == 0
    about = json.loads(capsys.readouterr().out)
    assert main(["recommend", "shop.shortlist", "--out", "lists.parquet"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "lists.parquet", "held.parquet", "--json"]) == 0
    return about["data"], json.loads(capsys.readouterr().out)


@pytest.fixture
def expected(events, here, capsys):
    events.write_csv("events.csv")
    found = run_all(capsys, "events.csv")
    assert found[1]["users"] == 300
    assert found[1]["all"]["f1"] > 0.15
    return found


def test_a_folder_of_parquet(events, expected, capsys):
    Path("parts/year=2024").mkdir(parents=True)
    for part in range(3):
        name = Path("parts/year=2024", f"{part}.parquet")
        events.filter(pl.int_range(pl.len()) % 3 == part).write_parquet(name)
    Path("parts/_SUCCESS").touch()
    assert run_all(capsys, "parts") == expected


def test_sqlite(events, expected, capsys):
    pytest.importorskip("adbc_driver_sqlite", reason="the extra 'sql' is not installed")
    with sqlite3.connect("shop.db") as connection:
        connection.execute("CREATE TABLE events (user_id TEXT, item_id TEXT, timestamp TEXT)")
        rows = events.select("user_id", "item_id", pl.col("timestamp").dt.to_string("%F %T")).rows()
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
    connection.close()
    assert run_all(capsys, "sqlite:///shop.db", "--table", "events") == expected


def test_postgresql(events, expected, capsys):
    pytest.importorskip("adbc_driver_postgresql", reason="the extra 'sql' is not installed")
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        events.select("user_id", "item_id", "timestamp").write_csv(file.name)
        Path(file.name).chmod(0o644)
        schema = "CREATE TABLE events (user_id text, item_id text, timestamp timestamp)"
        with started(schema, f"\\copy events from '{file.name}' csv header") as uri:
            assert run_all(capsys, uri, "--table", "events") == expected
            assert run_all(capsys, uri, "--query", "SELECT * FROM events ORDER BY item_id") == expected
