"""fit → recommend → evaluate from CSV, Parquet folder, SQLite and PostgreSQL: same rows, same lists."""

import json
import sqlite3
import tempfile
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.arguments import BY_NAME, Reading, read_source
from shortlist.errors import DataError
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
    assert main(["evaluate", "lists.parquet", "--truth", "held.parquet", "--json"]) == 0
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
    with sqlite3.connect("shop.db") as connection:
        connection.execute("CREATE TABLE events (user_id TEXT, item_id TEXT, timestamp TEXT)")
        rows = events.select("user_id", "item_id", pl.col("timestamp").dt.to_string("%F %T")).rows()
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
    connection.close()
    assert run_all(capsys, "sqlite:///shop.db", "--query", "SELECT * FROM events") == expected


def test_postgresql(events, expected, capsys):
    pytest.importorskip("adbc_driver_postgresql", reason="the extra 'sql' is not installed")
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        events.select("user_id", "item_id", "timestamp").write_csv(file.name)
        Path(file.name).chmod(0o644)
        schema = "CREATE TABLE events (user_id text, item_id text, timestamp timestamp)"
        with started(schema, f"\\copy events from '{file.name}' csv header") as uri:
            assert run_all(capsys, uri, "--query", "SELECT * FROM events ORDER BY item_id") == expected


ORDERS = "order_no,customer,sku,purchased_at,qty,price\n" + "".join(
    f"{10 * user + n},c{user},s{(user + n) % 5},2024-05-{n + 1:02d},{-1 if n == 4 else 1},2\n"
    for user in range(20)
    for n in range(6)
)
MAPPING = (
    "columns: user_id = customer, item_id = sku, timestamp = purchased_at, weight = qty, basket_id = order_no"
    "; not used: price\n"
)
RETURNS = "note: 20 of 120 rows have a negative weight (column 'qty')"


class TestWhatWasRead:
    def test_every_command_says_it_on_stderr(self, here, capsys):
        Path("orders.csv").write_text(ORDERS)
        train = ["--model", "PersonalFrequency", "--out", "shop.shortlist", "--json"]
        assert main(["fit", "orders.csv", "--test", "held.csv", *train]) == 0
        out, err = capsys.readouterr()
        assert err.count(MAPPING) == 1
        assert err.count(RETURNS) == 1
        assert "columns" in json.loads(out)
        assert main(["inspect", "shop.shortlist", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["columns"]
        assert f"columns: {shown}\n" == MAPPING
        assert main(["recommend", "shop.shortlist", "--out", "lists.csv"]) == 0
        capsys.readouterr()
        words = ["evaluate", "lists.csv", "--truth", "held.csv", "--history", "orders.csv"]
        assert main([*words, "--json"]) == 0
        out, err = capsys.readouterr()
        json.loads(out)
        assert "lists.csv: 20 lists" in err
        assert "sorted by rank" in err
        assert "columns: user_id = user_id, item_id = item_id, timestamp = timestamp" in err
        assert MAPPING in err
        assert main(["evaluate", "lists.csv", "--truth", "orders.csv"]) == 0
        assert MAPPING in capsys.readouterr().err

    def test_returns_can_be_kept(self, here, capsys):
        Path("orders.csv").write_text(ORDERS)
        assert (
            main(["fit", "orders.csv", "--quick", "--model", "Popularity", "--negative_weights", "keep"]) == 0
        )
        err = capsys.readouterr().err
        assert "orders.csv: 120 rows" in err
        assert "and were kept" in err

    def test_unused_time_names_the_flag(self, here, capsys):
        Path("orders.csv").write_text(ORDERS.replace("purchased_at", "purchased"))
        assert main(["fit", "orders.csv", "--quick", "--model", "Popularity"]) == 0
        assert "--timestamp purchased" in capsys.readouterr().err
        assert (
            main(["fit", "orders.csv", "--quick", "--model", "Popularity", "--timestamp", "purchased"]) == 0
        )
        assert "looks like a time" not in capsys.readouterr().err

    def test_order_numbers_without_times_are_refused_if_they_are_no_numbers(self, here, capsys):
        rows = [line.split(",") for line in ORDERS.splitlines()]
        Path("orders.csv").write_text(
            "".join(f"A{row[0]},{row[1]},{row[2]}\n" for row in rows).replace("Aorder", "order")
        )
        assert main(["fit", "orders.csv", "--model", "Popularity"]) == 2
        err = capsys.readouterr().err
        assert "last_basket needs the order of the baskets" in err
        assert "--timestamp" in err

    def test_unknown_candidates_are_a_warning_without_a_place_in_the_code(self, here, capsys):
        Path("orders.csv").write_text(ORDERS)
        assert main(["fit", "orders.csv", "--model", "Popularity"]) == 0
        Path("stock.txt").write_text("s1\ns2\nnew\n")
        capsys.readouterr()
        assert main(["recommend", "model.shortlist", "--user", "c1", "--candidates", "stock.txt"]) == 0
        assert capsys.readouterr().err == (
            "warning: 1 of 3 item ids in `candidates` are unknown to the model and are ignored, "
            "such as 'new'.\n"
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop.db", "read sqlite:///shop.db by --query 'SELECT …'"),
        ("shop.XLSX", "save the sheet as CSV"),
        ("shop.shortlist", "it is a saved model"),
        ("shop.dat", "rename it"),
    ],
)
def test_files_of_another_kind_get_advice(here, capsys, name, words):
    Path(name).write_text("user_id,item_id\na,b\n")
    assert main(["fit", name]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("Shopper Hash,SKU\nann,tea\n", "--user_id"),
        ("user,item,qty\nann,tea,\n", "--weight"),
        ("user,item,date\nann,tea,1/5/2024\n", "--time_format"),
    ],
)
def test_errors_about_a_file_name_the_flag(here, capsys, text, flag):
    Path("orders.csv").write_text(text)
    assert main(["fit", "orders.csv"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("shortlist: orders.csv: ")
    assert f" {flag} " in error


@pytest.mark.usefixtures("here")
def test_guests_and_another_encoding(capsys):
    Path("shop.csv").write_text("user,item\nZoë,tea\n,jam\nbob,jam\n", encoding="cp1252")
    with pytest.raises(DataError, match="--missing drop"):
        read_source("shop.csv", BY_NAME)
    data = read_source("shop.csv", Reading(missing="drop"))
    assert data.users.values.to_list() == ["Zoë", "bob"]
    printed = " ".join(capsys.readouterr().err.split())
    assert "1 of 3 rows have no 'user' or 'item' and were dropped." in printed
    assert "not UTF-8 and was read as cp1252" in printed
