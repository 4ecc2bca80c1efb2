"""Tables and queries of a database, through ADBC."""

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
    """Whether a source is an address rather than a path."""
    return SCHEME.match(source) is not None


def read_sql(
    uri: str, query: str | None, table: str | None, needed: Callable[[list[str]], list[str]]
) -> pl.DataFrame:
    """The rows of a query, or of a table's `needed` columns (all names in, those wanted out)."""
    scheme = uri.partition("://")[0].lower()
    if scheme not in DRIVERS:
        raise DataError(
            f"a database must be sqlite:///file.db or postgresql://user@host/name, got {scheme}://…; "
            "export the table to Parquet, or download the file, and read that."
        )
    if (query is None) == (table is None):
        got = "neither" if query is None else "both"
        raise ConfigError(
            f"a database needs either query='SELECT …' or table='name', got {got}; pass one of the two."
        )
    if scheme == "sqlite":
        _check_file(uri)
    if table is not None:
        empty = _run(f"SELECT * FROM {quoted(table)} LIMIT 0", uri)
        query = (
            f"SELECT {', '.join(_asked(empty[name]) for name in needed(empty.columns))} FROM {quoted(table)}"
        )
    return _run(str(query), uri)


def quoted(table: str) -> str:
    """A table name, with its schema if it has one, safe inside a query."""
    return ".".join(map(_quoted_part, table.split(".")))


def _quoted_part(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _asked(column: pl.Series) -> str:
    """A column as it goes into the query; a UUID arrives as bytes unless it is asked for as text."""
    name = _quoted_part(column.name)
    return f"CAST({name} AS TEXT) AS {name}" if column.dtype == pl.Binary else name


def _check_file(uri: str) -> None:
    """SQLite would create a missing file and find no table in it."""
    path = Path(re.sub(r"^sqlite:/{0,3}", "", uri, flags=re.IGNORECASE).partition("?")[0])
    if not path.is_file():
        raise DataError(
            f"{path}: no such database; sqlite:///shop.db is a file in this folder, sqlite:////data/shop.db "
            "an absolute path; check it."
        )


def _run(query: str, uri: str) -> pl.DataFrame:
    """Run one query; whatever the driver raises becomes a sentence without the password."""
    try:
        frame = pl.read_database_uri(query, uri, engine="adbc")
    except ImportError:
        raise DataError(
            "the database needs its ADBC driver, which is not installed; pip install 'shortlist[sql]'."
        ) from None
    except Exception as error:  # each driver has its own classes, none of which we import
        said = re.sub(r"://[^@\s]*@", "://…@", " ".join(str(error).split()))
        if "connect" in said.lower() or "unable to open" in said.lower():
            raise DataError(
                f"the database must answer, got {said[:300]!r}; check host, name and password."
            ) from None
        raise DataError(f"the query failed, got {said[:300]!r}; mend the query or table name.") from None
    return frame.with_columns([_unwrapped(column) for column in frame])


def _unwrapped(column: pl.Series) -> pl.Series:
    """PostgreSQL's numeric arrives as text in a type of its own; the text is all we need."""
    wrapping = getattr(pl, "BaseExtension", ())
    return column.ext.storage() if isinstance(column.dtype, wrapping) else column
