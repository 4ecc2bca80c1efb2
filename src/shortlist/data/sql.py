"""Read tables and queries from a database through ADBC."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from shortlist.errors import ConfigError, DataError

SCHEME = re.compile(r"^([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
DRIVERS = {
    "sqlite": "adbc_driver_sqlite",
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
}


def is_uri(source: str) -> bool:
    """Whether a source is a URI rather than a path."""
    return SCHEME.match(source) is not None


def read_sql(
    uri: str, query: str | None, table: str | None, needed: Callable[[list[str]], list[str]]
) -> pl.DataFrame:
    """The rows of a query, or of those columns of a table that `needed` selects from all names."""
    scheme = uri.partition("://")[0].lower()
    if scheme not in DRIVERS:
        raise DataError(
            f"a database must be sqlite:///file.db or postgresql://user@host/name, got {scheme}://…; "
            "export the table to Parquet, or download the file, and read that."
        )
    if (query is None) == (table is None):
        got = "neither" if query is None else "both"
        message = f"a database needs query='SELECT …' or table='name', got {got}; pass exactly one."
        raise ConfigError(message, parameter="query" if query is None else "table")
    if scheme == "sqlite":
        _check_file(uri)
    if table is not None:
        empty = _run(f"SELECT * FROM {quote_table(table)} LIMIT 0", uri)
        columns = ", ".join(_select(empty[name]) for name in needed(empty.columns))
        query = f"SELECT {columns} FROM {quote_table(table)}"
    return _run(str(query), uri)


def quote_table(table: str) -> str:
    """A quoted table name, with its schema if it has one."""
    return ".".join(map(_quote, table.split(".")))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _select(column: pl.Series) -> str:
    """The SELECT expression of a column; binary columns are cast to text, because a UUID arrives as bytes."""
    name = _quote(column.name)
    return f"CAST({name} AS TEXT) AS {name}" if column.dtype == pl.Binary else name


def _check_file(uri: str) -> None:
    """Raise DataError for a missing file, because SQLite would create it."""
    path = Path(re.sub(r"^sqlite:/{0,3}", "", uri, flags=re.IGNORECASE).partition("?")[0])
    if not path.is_file():
        raise DataError(
            f"{path}: no such database; sqlite:///shop.db is a file in this folder, sqlite:////data/shop.db "
            "is an absolute path; check it."
        )


def _run(query: str, uri: str) -> pl.DataFrame:
    """Run one query; an error of the driver becomes a DataError without the password."""
    try:
        frame = pl.read_database_uri(query, uri, engine="adbc")
    except ImportError:
        raise DataError(
            "the database needs its ADBC driver, which is not installed; pip install 'shortlist[sql]'."
        ) from None
    except Exception as error:  # each driver has its own classes, which are not imported here
        message = re.sub(r"://[^@\s]*@", "://…@", " ".join(str(error).split()))
        if "connect" in message.lower() or "unable to open" in message.lower():
            raise DataError(
                f"cannot connect to the database, got {message[:200]!r}; check host, name and password."
            ) from None
        raise DataError(
            f"the query failed, got {message[:200]!r}; correct the query or table name."
        ) from None
    return frame.with_columns([_unwrap(column) for column in frame])


def _unwrap(column: pl.Series) -> pl.Series:
    """The plain values of a polars extension type, in which PostgreSQL numerics arrive."""
    wrapping = getattr(pl, "BaseExtension", ())  # older polars has no extension types
    return column.ext.storage() if isinstance(column.dtype, wrapping) else column
