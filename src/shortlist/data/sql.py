"""Read a query from SQLite or PostgreSQL, read-only and without showing the password."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import polars as pl

from shortlist.data.read_options import advise_reading
from shortlist.errors import ConfigError, DataError
from shortlist.text import DATABASES, redact

SCHEME = re.compile(rf"^(?:([a-z][a-z0-9+.-]+)://|({DATABASES}):)", re.IGNORECASE)
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
READ_ONLY_RULE = (
    "a query must only read: one statement that starts with SELECT or WITH; export other results first."
)


def read_sql(uri: str, query: str | None) -> pl.DataFrame:
    """The rows of a query; an error of the driver becomes a DataError without the password."""
    if query is None:
        raise ConfigError(
            f"a database needs a query, got none; use {advise_reading(query='SELECT …')}.", parameter="query"
        )
    if READS.match(query) is None:  # a PostgreSQL server writes files in COPY … TO
        raise DataError(READ_ONLY_RULE, parameter="query")
    try:
        with _connect(uri) as connection:
            frame = pl.read_database(query, connection, infer_schema_length=None)
    except ImportError:
        raise DataError(
            "PostgreSQL needs the package adbc-driver-postgresql; run pip install adbc-driver-postgresql."
        ) from None
    except DataError:
        raise
    except Exception as error:  # each driver has its own classes, which are not imported here
        raise _explain(error, uri) from None
    return frame.with_columns([_unwrap(column) for column in frame])


def _connect(uri: str) -> AbstractContextManager[Any]:
    """A connection that can only read; DataError for a URI of another form."""
    scheme = uri.partition(":")[0].lower()
    if scheme == "sqlite":
        path = _sqlite_file(uri)
        return closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True))
    if scheme not in ("postgresql", "postgres"):
        raise DataError(
            f"a database must be sqlite:///file.db or postgresql://user@host/name, got {scheme[:40]}://…; "
            "pass what pl.read_database_uri reads of it, or export the rows to Parquet and read that."
        )
    if POSTGRES.fullmatch(uri) is None:
        raise DataError(
            f"a PostgreSQL URI must look like postgresql://user:password@host:5432/name, got {scheme}:… in "
            "another form; write special characters of the password as %40 for @, %2F for /, %23 for #, "
            "%25 for % and %20 for a space."
        )
    return _connect_postgres(uri)


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


@contextmanager
def _connect_postgres(uri: str) -> Iterator[Any]:
    """A connection in a transaction that may not write."""
    driver = import_module("adbc_driver_postgresql.dbapi")
    with driver.connect(uri) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        yield connection


def _explain(error: Exception, uri: str) -> DataError:
    """The driver's message in one line, without anything secret in the URI."""
    message = _hide_secrets(" ".join(str(error).split()), uri)
    lower = message.lower()
    if any(words in lower for words in ("read-only transaction", "readonly database", "one statement")):
        return DataError(f"{READ_ONLY_RULE} The database said {message[:200]!r}.", parameter="query")
    if "connect" in lower or "unable to open" in lower:
        return DataError(
            f"cannot connect to the database, got {message[:200]!r}; check host, name and password."
        )
    return DataError(f"the query failed, got {message[:200]!r}; correct the query.")


def _hide_secrets(message: str, uri: str) -> str:
    """The message without the password and the other secret options of a URI, encoded or not."""
    address, _, options = uri.partition("?")
    before, at, _ = address.partition("://")[2].rpartition("@")
    secrets = [before.partition(":")[2]] if at else []
    secrets += [value for name, value in parse_qsl(options) if name.lower() not in HARMLESS]
    for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
        message = message.replace(secret, "…") if secret else message
    return redact(message)


def _unwrap(column: pl.Series) -> pl.Series:
    """The plain values of a polars extension type, in which PostgreSQL numerics arrive."""
    wrapping = getattr(pl, "BaseExtension", ())  # older polars has no extension types
    return column.ext.storage() if isinstance(column.dtype, wrapping) else column
