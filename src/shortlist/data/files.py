"""Read interactions from files and databases."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from shortlist.data.columns import (
    REQUIRED,
    ColumnNames,
    Missing,
    NegativeWeights,
    ReadOptions,
    Table,
    check_distinct,
    match_columns,
)
from shortlist.data.interactions import Interactions, check_trainable
from shortlist.data.sources import (
    FORMATS,
    SEPARATORS,
    Format,
    check_encoding,
    check_json_ids,
    explain_errors,
    find_sources,
    open_sources,
    parse_integers,
)
from shortlist.data.sql import SCHEME, read_sql
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri

SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

NUMBER = re.compile(r"^-?\d+(\.\d+)?(_duplicated_\d+)?$")  # polars renames duplicate columns


def read_interactions(
    source: str | Path | Sequence[str | Path],
    *,
    user_id: str | None = None,
    item_id: str | None = None,
    timestamp: str | None = None,
    weight: str | None = None,
    basket_id: str | None = None,
    item_name: str | None = None,
    time_format: str | None = None,
    negative_weights: NegativeWeights = "drop",
    min_rating: float | None = None,
    missing: Missing = "error",
    format: Format | None = None,  # noqa: A002  the usual name of this option
    separator: str | None = None,
    header: Sequence[str] | None = None,
    encoding: str | None = None,
    query: str | None = None,
    table: str | None = None,
    training: bool = True,
) -> Interactions:
    """Read interactions from files or a database.

    Parameters
    ----------
    source
        File (CSV, TSV, Parquet, JSON Lines, RecBole; also .gz or .zst), folder, glob pattern, list of files,
        or database URI such as "sqlite:///shop.db".
    user_id, item_id, timestamp, weight, basket_id, item_name
        Column names. None finds the column by its conventional name or a common alias such as `customer_id`;
        "" ignores an optional column. Models use weights if their `weighting` is not "none".
    time_format
        Format of timestamps that are neither numbers nor ISO 8601, such as "%d.%m.%Y".
    negative_weights
        Whether to drop rows with a negative weight, such as returns, with a warning, or to keep them.
    min_rating
        The lowest weight that counts as liked. Rows below it are negative feedback: they are dropped, or kept
        with the (negative) distance from `min_rating` as weight, as `negative_weights` says.
    missing
        Whether a row without a user or an item, such as the order of a guest, is an error, or dropped and
        counted in `source`.
    format
        File format, for files without a known extension.
    separator
        Field separator of a text file.
    header
        Column names of a text file that has no header line.
    encoding
        Encoding of a text file, such as "latin-1", "cp1252" or "utf-16"; None: UTF-8. The whole file is read
        into memory.
    query, table
        SQL query or table name; a database needs exactly one of them.
    training
        Whether to reject data with fewer than two users or items.

    Returns
    -------
    Interactions

    Raises
    ------
    DataError
        If the source cannot be read, a required column is missing, or a value is invalid.
    ConfigError
        If options contradict each other.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("events.csv").write_text("user,item,date\\nann,milk,2024-05-01\\nbob,tea,2024-05-02\\n")
    >>> sl.read_interactions("events.csv")
    Interactions(2 rows, 2 users, 2 items, 2 baskets)
    """
    names = ColumnNames(user_id, item_id, timestamp, weight, basket_id, item_name)
    options = ReadOptions(names, time_format, negative_weights, min_rating, missing).check()
    if isinstance(source, str) and SCHEME.match(source):
        label = source.partition(":")[0] + " database"
        check_encoding(label, encoding)
        return _build(lambda: _query(source, query, table, options, label), label, training)
    if query is not None or table is not None:
        raise ConfigError(
            "query and table need a database such as sqlite:///shop.db, got "
            f"{redact_uri(source)[:80]!r}; omit them."
        )
    paths, kind, label = find_sources(source, format)

    def scan_table() -> Table:
        scan = _scan(sources, kind, separator, header)
        rows: pl.LazyFrame | pl.DataFrame = scan
        if kind == "jsonl":
            rows = check_json_ids(paths, scan, names)
        elif kind in SEPARATORS:
            rows = _parse_text(scan, names)
        return _open_table(rows, options, label, whole=scan, columnar=kind == "parquet")

    with explain_errors(paths, kind, separator):
        sources = open_sources(paths, kind, encoding)
        return _build(scan_table, label, training)


def _query(uri: str, query: str | None, table: str | None, options: ReadOptions, label: str) -> Table:
    """The table of a query, or the needed columns of a table of a database."""
    names: list[str] = []  # of all columns, if only those needed are fetched

    def needed(columns: list[str]) -> list[str]:
        names.extend(columns)
        return list(match_columns(check_distinct(columns), options.names).values())

    rows = read_sql(uri, query, table, needed)
    whole = pl.LazyFrame(schema=dict.fromkeys(names, pl.Null)) if names else None
    return _open_table(rows, options, label, whole=whole)


def _open_table(
    rows: Any, options: ReadOptions, label: str, *, whole: pl.LazyFrame | None, columnar: bool = False
) -> Table:
    """A table without the rows that have no user or no item, if they are to be dropped."""
    dropped = None
    if options.missing == "drop":  # otherwise an error follows when the ids are read
        rows, dropped = _drop_missing(rows, options.names)
    table = Table(rows, options, columnar=columnar, label=label, whole=whole)
    if dropped is not None:
        table.note(dropped)
    return table


def _drop_missing(rows: Any, given: ColumnNames) -> tuple[Any, str | None]:
    """(the rows with a user and an item, a sentence on the others); polars tables, lazy or not."""
    schema = rows.collect_schema()
    roles = match_columns(schema.names(), given)
    is_filled = pl.lit(True)
    for role in REQUIRED:
        column = pl.col(roles[role])
        is_filled &= column.is_not_null()
        if schema[roles[role]] == pl.String:
            is_filled &= column != ""
    n_rows, n_filled = rows.lazy().select(pl.len(), n_filled=is_filled.sum()).collect().row(0)
    if n_rows == n_filled:
        return rows, None
    names = " or ".join(repr(roles[role]) for role in REQUIRED)
    if not n_filled:
        raise DataError(
            f"{n_rows:,} of {n_rows:,} rows have no {names}, which leaves none; check the columns."
        )
    return rows.filter(
        is_filled
    ), f"{n_rows - n_filled:,} of {n_rows:,} rows have no {names} and were dropped."


def _build(open_table: Callable[[], Table], label: str, training: bool) -> Interactions:
    """Interactions, or an error that names the source."""
    try:
        data = Interactions.from_table(open_table())
        if training:
            check_trainable(data)
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None
    return data


def _parse_text(frame: pl.LazyFrame, given: ColumnNames) -> pl.DataFrame:
    """The needed columns of a text table; ids that are all written as integers become integers."""
    roles = match_columns(frame.collect_schema().names(), given)
    text = frame.select(list(roles.values())).collect()
    return text.with_columns([parse_integers(text[roles[role]]) for role in REQUIRED])


def _scan(sources: Any, kind: str, separator: str | None, header: Sequence[str] | None) -> pl.LazyFrame:
    """A lazy table over what `open_sources` returned; only headers are read."""
    if kind == "parquet":
        return pl.scan_parquet(sources, glob=False)
    if kind == "jsonl":
        return pl.scan_ndjson(sources, infer_schema_length=None)
    if kind not in SEPARATORS:
        raise ConfigError(f"format must be one of {sorted(set(FORMATS.values()))}, got {kind!r}; choose one.")
    separator = separator or SEPARATORS[kind]
    if len(separator.encode()) != 1:
        raise ConfigError(f"separator must be one ASCII character, got {separator!r}; pass ',' or ';'.")
    # Read as text until the roles of the columns are known: 007 is not 7, and errors can name the row.
    frame = pl.scan_csv(
        sources,
        glob=False,
        separator=separator,
        infer_schema=False,
        has_header=header is None,
        new_columns=list(header) if header else None,
        quote_char=None if kind == "inter" else '"',
    )
    if header is None:
        _check_header(frame.collect_schema().names(), separator)
    return frame


def _check_header(names: list[str], separator: str) -> None:
    """Raise DataError if the header has another separator, repeats a name, is a row of data, or not UTF-8."""
    if any("\0" in name for name in names):
        raise DataError(
            "the file must be UTF-8 text, got UTF-16 or binary; pass encoding='utf-16' "
            "(--encoding utf-16), or convert it.",
            parameter="encoding",
        )
    if len(names) > 1 and all(NUMBER.match(name) for name in names):
        raise DataError(
            f"the first line must name the columns, got {', '.join(names[:4])}; "
            "pass header=['user_id', 'item_id', …] for a file without a header."
        )
    check_distinct(names)
    other = max((mark for mark in SEPARATOR_NAMES if mark != separator), key=names[0].count)
    if len(names) == 1 and other in names[0]:
        marks = SEPARATOR_NAMES.get(separator, repr(separator))
        raise DataError(
            f"the columns must be separated by {marks}, got a header separated by {SEPARATOR_NAMES[other]} "
            f"({names[0]!r}); pass separator={other!r}.",
            parameter="separator",
        )
