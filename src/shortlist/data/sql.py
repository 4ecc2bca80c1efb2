"""Read tables and queries from a database through ADBC, read-only and without showing the password."""

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import polars as pl

from shortlist.errors import ConfigError, DataError
from shortlist.text import DATABASES, redact

SCHEME = re.compile(rf"^(?:([a-z][a-z0-9+.-]+)://|({DATABASES}):)", re.IGNORECASE)
DRIVERS = {
    "sqlite": "adbc_driver_sqlite.dbapi",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
}
TOKEN = r"(?:[^@/?#\s%]|%[0-9a-f]{2})*"  # % only as an escape
HOST = r"(?:(?:[a-z0-9._-]|%[0-9a-f]{2})*|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?"
POSTGRES = re.compile(
    rf"postgres(?:ql)?://(?:{TOKEN}@)?{HOST}(?:,{HOST})*(?:/{TOKEN})?(?:\?(?:[^@?#\s%]|%[0-9a-f]{{2}})*)?",
    re.IGNORECASE,
)
READS = re.compile(
    r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*(?:select|with|values|table)\b", re.IGNORECASE | re.DOTALL
)
HARMLESS = {"host", "hostaddr", "port", "dbname", "user", "connect_timeout", "sslmode", "application_name"}
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
READ_ONLY_RULE = (
    "a query must only read: one statement that starts with SELECT or WITH; export other results first."
)


def read_sql(
    uri: str, query: str | None, table: str | None, needed: Callable[[list[str]], list[str]]
) -> pl.DataFrame:
    """The rows of a query, or of those columns of a table that `needed` selects from all names."""
    scheme = uri.partition(":")[0].lower()
    if scheme not in DRIVERS:
        raise DataError(
            f"a database must be sqlite:///file.db or postgresql://user@host/name, got {scheme[:40]}://…; "
            "export the table to Parquet, or download the file, and read that."
        )
    if (query is None) == (table is None):
        got = "neither" if query is None else "both"
        message = f"a database needs query='SELECT …' or table='name', got {got}; pass exactly one."
        raise ConfigError(message, parameter="query" if query is None else "table")
    path = _sqlite_file(uri) if scheme == "sqlite" else None
    if path is None and POSTGRES.fullmatch(uri) is None:
        raise DataError(
            f"a PostgreSQL URI must look like postgresql://user:password@host:5432/name, got {scheme}:… in "
            "another form; write special characters of the password as %40 for @, %2F for /, %23 for #, "
            "%25 for % and %20 for a space."
        )
    if table is not None:
        empty = _run(f"SELECT * FROM {quote_table(table)} LIMIT 0", uri, path)
        columns = ", ".join(_select(empty[name]) for name in needed(empty.columns))
        query = f"SELECT {columns} FROM {quote_table(table)}"
    elif query is not None and READS.match(query) is None:  # a PostgreSQL server writes files in COPY … TO
        raise DataError(READ_ONLY_RULE, parameter="query")
    return _run(str(query), uri, path)


def quote_table(table: str) -> str:
    """A quoted table name, with its schema if it has one."""
    return ".".join(map(_quote, table.split(".")))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _select(column: pl.Series) -> str:
    """The SELECT expression of a column; binary columns are cast to text, because a UUID arrives as bytes."""
    name = _quote(column.name)
    return f"CAST({name} AS TEXT) AS {name}" if column.dtype == pl.Binary else name


def _sqlite_file(uri: str) -> Path:
    """The file of a SQLite URI; a missing one is an error, because SQLite would create it."""
    text = re.sub(r"^sqlite:/{0,3}", "", uri, flags=re.IGNORECASE)
    forms = (text, text.rpartition("?")[0], text.partition("?")[0])
    path = next((path for path in map(Path, forms) if os.path.isfile(path)), None)  # noqa: PTH113  never raises
    if path is None:
        shown = "the file" if "@" in text else forms[2]
        raise DataError(
            f"{shown}: no such database; sqlite:///shop.db is a file in this folder, sqlite:////data/shop.db "
            "is an absolute path; check it."
        )
    return path.absolute()


def _run(query: str, uri: str, path: Path | None) -> pl.DataFrame:
    """Run one query read-only; an error of the driver becomes a DataError without the password."""
    try:
        frame = _fetch_postgres(query, uri) if path is None else _fetch_sqlite(query, path)
    except ImportError:
        raise DataError(
            "the database needs its ADBC driver, which is not installed; run pip install "
            "adbc-driver-manager adbc-driver-sqlite adbc-driver-postgresql."
        ) from None
    except DataError:
        raise
    except Exception as error:  # each driver has its own classes, which are not imported here
        raise _explain(error, uri) from None
    return frame.with_columns([_unwrap(column) for column in frame])


def _explain(error: Exception, uri: str) -> DataError:
    """The driver's message in one line, without anything secret in the URI."""
    message = _hide_secrets(" ".join(str(error).split()), uri)
    lower = message.lower()
    if "read-only transaction" in lower or "readonly database" in lower:
        return DataError(f"{READ_ONLY_RULE} The database said {message[:200]!r}.", parameter="query")
    if "connect" in lower or "unable to open" in lower:
        return DataError(
            f"cannot connect to the database, got {message[:200]!r}; check host, name and password."
        )
    return DataError(f"the query failed, got {message[:200]!r}; correct the query or table name.")


def _hide_secrets(message: str, uri: str) -> str:
    """The message without the password and the other secret options of a URI, encoded or not."""
    address, _, options = uri.partition("?")
    before, at, _ = address.partition("://")[2].rpartition("@")
    secrets = [before.partition(":")[2]] if at else []
    secrets += [value for name, value in parse_qsl(options) if name.lower() not in HARMLESS]
    for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
        message = message.replace(secret, "…") if secret else message
    return redact(message)


def _fetch_sqlite(query: str, path: Path) -> pl.DataFrame:
    """Check the query, then run it on a read-only connection."""
    driver = import_module(DRIVERS["sqlite"])
    uri = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        _check_reads(database, query)
    return _fetch(driver.connect(uri), query)


def _check_reads(database: sqlite3.Connection, query: str) -> None:
    """Raise DataError if the query does more than read: ATTACH and VACUUM INTO would create files."""
    actions = set()

    def authorize(action: int, *_: str | None) -> int:
        actions.add(action)
        return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY

    database.set_authorizer(authorize)
    try:
        database.execute(f"EXPLAIN {query}").close()
        allowed = sqlite3.SQLITE_SELECT in actions  # VACUUM asks for nothing before it runs
    except (sqlite3.Error, sqlite3.Warning) as error:
        allowed = actions <= READING and "one statement" not in str(error)
        if allowed:
            raise
    if not allowed:
        raise DataError(READ_ONLY_RULE, parameter="query")


def _fetch_postgres(query: str, uri: str) -> pl.DataFrame:
    """Run the query in a transaction that may not write."""
    connection = import_module(DRIVERS["postgresql"]).connect(uri)
    return _fetch(connection, query, "SET TRANSACTION READ ONLY")


def _fetch(connection: Any, query: str, before: str | None = None) -> pl.DataFrame:
    """The rows of a query; the connection is closed."""
    with connection, connection.cursor() as cursor:
        if before is not None:
            cursor.execute(before)
        cursor.execute(query)
        frame = pl.from_arrow(cursor.fetch_arrow_table())
        with suppress(Exception):  # nothing was written
            connection.rollback()
    assert isinstance(frame, pl.DataFrame)
    return frame


def _unwrap(column: pl.Series) -> pl.Series:
    """The plain values of a polars extension type, in which PostgreSQL numerics arrive."""
    wrapping = getattr(pl, "BaseExtension", ())  # older polars has no extension types
    return column.ext.storage() if isinstance(column.dtype, wrapping) else column
