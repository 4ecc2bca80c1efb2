"""Reading from SQLite and from a PostgreSQL server that the tests start."""

import sqlite3
import traceback
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from shortlist.data.files import read_interactions
from shortlist.data.sql import SCHEME
from shortlist.errors import ConfigError, DataError, ShortlistError
from tests.postgres import started
from tests.test_text import URIS

pytest.importorskip("adbc_driver_postgresql", reason="the extra 'sql' is not installed")

ROWS = [("ann", 7, 1_700_000_000, 1.0), ("ann", 8, 1_700_000_060, 0.5), ("bob", 7, 1_700_000_000, 2.0)]


def error_of(*args, error=DataError, **given):
    with pytest.raises(error) as caught:
        read_interactions(*args, **given)
    return str(caught.value)


def test_uris_are_distinguished_from_paths():
    assert SCHEME.match("sqlite:///a.db")
    assert SCHEME.match("postgresql://user@host/name")
    assert not SCHEME.match("data/a.csv")
    assert not SCHEME.match(r"C:\data\a.csv")


class TestSQLite:
    @pytest.fixture
    def uri(self, tmp_path):
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            connection.execute(
                "CREATE TABLE events (customer_id TEXT, product_id INT, ts INT, weight REAL, memo BLOB)"
            )
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, NULL)", ROWS)
            connection.execute("CREATE TABLE gaps AS SELECT NULL AS user_id, 1 AS item_id")
        connection.close()
        return f"sqlite:///{tmp_path}/shop.db"

    def test_table(self, uri):
        data = read_interactions(uri, query="SELECT * FROM events")
        assert data.users.values.to_list() == ["ann", "bob"]
        assert data.items.values.to_list() == [7, 8]
        assert data.weight.tolist() == [1.0, 0.5, 2.0]

    def test_query_with_names(self, uri):
        data = read_interactions(
            uri,
            query="SELECT customer_id AS who, product_id AS what FROM events",
            user_id="who",
            item_id="what",
        )
        assert data.n_rows == 3
        assert data.time is None

    def test_relative_uri_is_a_file_in_the_current_folder(self, uri, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert read_interactions("sqlite:///shop.db", query="SELECT * FROM events").n_rows == 3

    def test_unknown_database_is_not_created(self, tmp_path):
        message = error_of(f"sqlite:///{tmp_path}/none.db", query="SELECT * FROM events")
        assert "none.db: no such database" in message
        assert not (tmp_path / "none.db").exists()

    def test_file_that_is_not_a_database(self, tmp_path):
        (tmp_path / "text.db").write_text("hello" * 1000)
        assert "sqlite database: the query failed" in error_of(
            f"sqlite:///{tmp_path}/text.db", query="SELECT * FROM events"
        )

    def test_unknown_table_and_wrong_query(self, uri):
        assert "no such table: event" in error_of(uri, query="SELECT * FROM event")
        assert "syntax error" in error_of(uri, query="SELECT FROM WHERE")

    def test_columns_are_checked_as_in_files(self, uri):
        assert error_of(uri, query="SELECT * FROM events", weight="wt").startswith(
            "sqlite database: weight must name a column"
        )
        assert "column 'user_id', row 1: an id must not be empty" in error_of(uri, query="SELECT * FROM gaps")

    def test_a_query_is_required(self, uri):
        assert "a database needs a query" in error_of(uri, error=ConfigError)

    def test_conditions_and_missing_ids_as_in_files(self, uri):
        data = read_interactions(uri, query="SELECT * FROM events", where="product_id = 7", training=False)
        assert data.n_rows == 2
        query = "SELECT * FROM gaps UNION SELECT 'ann', 1 UNION SELECT 'bob', 2"
        assert read_interactions(uri, query=query, missing="drop").n_rows == 2


WRITES = [
    "DELETE FROM events",
    "ATTACH 'new.db' AS other",
    "VACUUM INTO 'new.db'",
    "SELECT * FROM events; DELETE FROM events",
    "WITH old AS (SELECT 1) DELETE FROM events",
    "INSERT INTO events DEFAULT VALUES RETURNING *",
    "PRAGMA user_version = 3",
    "CREATE TEMP TABLE copy AS SELECT 1",
    "/* SELECT */ UPDATE events SET product_id = 1",
    "",
]


@pytest.mark.parametrize("query", WRITES)
def test_a_query_cannot_write_to_sqlite(tmp_path, monkeypatch, query):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute("CREATE TABLE events (customer_id, product_id)")
        database.execute("INSERT INTO events VALUES ('ann', 7), ('bob', 8)")
    before = Path("shop.db").read_bytes()
    assert "a query must only read" in error_of("sqlite:///shop.db", query=query)
    assert [path.name for path in Path().iterdir()] == ["shop.db"]
    assert Path("shop.db").read_bytes() == before


@pytest.mark.parametrize("name", ["shop[1].db", "what?.db", "a*b.db", "100%.db", "a b#c.db"])
def test_name_of_a_sqlite_file_is_literal(tmp_path, name):
    with closing(sqlite3.connect(tmp_path / name)) as database, database:
        database.execute("CREATE TABLE events (user_id, item_id)")
        database.execute("INSERT INTO events VALUES ('ann', 7), ('bob', 8)")
    assert read_interactions(f"sqlite:///{tmp_path}/{name}", query="SELECT * FROM events").n_rows == 2
    assert read_interactions(f"sqlite:///{tmp_path}/{name}?mode=ro", query="SELECT * FROM events").n_rows == 2


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("given", [{"query": "SELECT 1"}, {}])
def test_no_error_shows_a_password(uri, given):
    with pytest.raises(ShortlistError) as caught:
        read_interactions(uri.replace("@host", "@localhost:1"), **given)
    shown = "".join(traceback.format_exception(caught.value))
    assert "ter2" not in str(caught.value)
    assert "ter2" not in shown


def test_unknown_scheme_is_rejected_without_its_password():
    message = error_of("mysql://me:secret@host/shop", query="SELECT * FROM events")
    assert "got mysql://…" in message
    assert "secret" not in message


def test_error_for_a_missing_driver_says_what_to_install(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("shortlist.data.sql.import_module", absent)
    assert "pip install adbc-driver-postgresql" in error_of("postgresql://localhost:1/shop", query="SELECT 1")


@pytest.fixture(scope="module")
def server():
    """URI of a new server with the tables below."""
    with started(SCHEMA) as uri:
        yield uri


SCHEMA = """
CREATE SCHEMA shop;
CREATE TABLE shop.events (customer_id text, product_id bigint, bought timestamptz, qty integer, memo jsonb);
INSERT INTO shop.events VALUES
    ('ann', 7, '2024-01-01 01:00+01', 1, '{}'), ('ann', 8, '2024-01-01 00:01+00', 2, NULL),
    ('bob', 7, '2024-01-02 00:00+00', 3, '{}'), ('bob', 7, '2024-01-02 00:00+00', 4, NULL);
CREATE SEQUENCE numbers;
CREATE TABLE days (user_id integer, item_id varchar(9), date date, weight double precision);
CREATE TABLE odd (user_id uuid, item_id smallint, timestamp numeric, weight numeric(6, 2));
INSERT INTO odd VALUES ('00000000-0000-0000-0000-00000000000a', 1, 1700000000, 0.25),
    ('00000000-0000-0000-0000-00000000000b', 2, 1700000060.5, 1);
INSERT INTO days VALUES (1, 'a', '2024-01-01', 0.5), (2, 'b', '2024-01-02', 'NaN');
"""


class TestPostgreSQL:
    def test_table_in_a_schema(self, server):
        data = read_interactions(server, query="SELECT * FROM shop.events", timestamp="bought")
        assert data.users.values.to_list() == ["ann", "bob"]
        assert (data.n_rows, data.duplicates) == (3, 1)
        assert data.weight.tolist() == [1.0, 2.0, 7.0]
        assert pl.Series(data.time).cast(pl.Datetime("us")).dt.to_string("%F %T").to_list() == [
            "2024-01-01 00:00:00",
            "2024-01-01 00:01:00",
            "2024-01-02 00:00:00",
        ]

    def test_query(self, server):
        data = read_interactions(server, query="SELECT user_id, item_id, date FROM days")
        assert data.users.values.to_list() == [1, 2]
        assert data.items.values.to_list() == ["a", "b"]
        assert data.time[1] - data.time[0] == 86_400_000_000

    def test_other_types(self, server):
        data = read_interactions(server, query="SELECT user_id::text, item_id, timestamp, weight FROM odd")
        assert data.users.values[0] == "00000000-0000-0000-0000-00000000000a"
        assert data.weight.tolist() == [0.25, 1.0]
        assert data.time.tolist() == [1_700_000_000_000_000, 1_700_000_060_500_000]

    def test_error_for_an_invalid_weight_names_the_row(self, server):
        assert "column 'weight', row 2: a weight must be a finite number, got nan" in error_of(
            server, query="SELECT * FROM days"
        )

    def test_unknown_database(self, server):
        message = error_of(server.replace("/postgres?", "/warehouse?"), query="SELECT * FROM days")
        assert "cannot connect to the database" in message
        assert 'database "warehouse" does not exist' in message

    def test_unknown_host(self):
        message = error_of("postgresql://me:secret@localhost:1/shop", query="SELECT * FROM days")
        assert "cannot connect to the database" in message
        assert "secret" not in message

    @pytest.mark.parametrize(
        "query",
        [
            "DELETE FROM days",
            "DELETE FROM days RETURNING *",
            "WITH gone AS (DELETE FROM days RETURNING *) SELECT * FROM gone",
            "SELECT nextval('numbers')",
            "COPY days TO '/nowhere/x.csv'",
            "SET TRANSACTION READ WRITE",
        ],
    )
    def test_a_query_cannot_write(self, server, query):
        assert "a query must only read" in error_of(server, query=query)
        assert read_interactions(server, query="SELECT * FROM days", weight="").n_rows == 2

    def test_two_statements_are_refused(self, server):
        assert "multiple commands" in error_of(server, query="SELECT 1; DELETE FROM days")

    @pytest.mark.parametrize(
        "more",
        [
            "&sslpassword=hunter2&none=1",
            "&options=-c%20hunter2%3D1",
            "&options=-c%20hunt%65r2%3D1",
            "&x=hunter2",
        ],
    )
    def test_errors_of_the_driver_do_not_show_secrets(self, server, more):
        uri = server.replace("shop@", "shop:hunter2@") + more
        message = error_of(uri, query="SELECT * FROM days")
        assert "cannot connect to the database" in message
        assert "hunter2" not in message

    def test_wrong_query_and_table(self, server):
        assert "syntax error" in error_of(server, query="SELECT FROM WHERE")
        assert 'relation "nothing" does not exist' in error_of(server, query="SELECT * FROM nothing")
