"""Read interactions from files and databases."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from shortlist.core.options import take_options
from shortlist.data.columns import (
    MATRIX,
    MAX_NAMED,
    PREVIEW_ROWS,
    REQUIRED,
    Table,
    check_distinct,
    column_names,
    match_columns,
    preview_columns,
    settle_names,
    to_polars,
)
from shortlist.data.interactions import Interactions, check_trainable
from shortlist.data.profile import MIN_DOUBTED, with_doubts
from shortlist.data.read_options import ColumnNames, ReadOptions, advise_reading
from shortlist.data.select import flat_types, path_value, select
from shortlist.data.sources import (
    NOT_UTF8,
    SEPARATOR_NAMES,
    SEPARATORS,
    WINDOWS,
    Dialect,
    check_encoding,
    check_json_ids,
    explain_errors,
    find_sources,
    is_encoding_error,
    is_json_array,
    open_sources,
    parse_integers,
    recognize_dialect,
)
from shortlist.data.sql import SCHEME, read_sql
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri

MAX_SPARK_ROWS = 100_000_000  # of a DataFrame that is collected
NUMBER = re.compile(r"^-?\d+(\.\d+)?(_duplicated_\d+)?$")  # polars renames duplicate columns


@take_options(ReadOptions)
def read_interactions(
    source: str | Path | Sequence[str | Path] | Any, *, options: ReadOptions
) -> Interactions:
    """Read interactions from files, a database or a table.

    What was recognized, dropped or is in doubt is kept in `source` of the result, and doubts are warnings.

    Parameters
    ----------
    source
        File (CSV, TSV, Parquet, JSON Lines, RecBole; also .gz or .zst), folder, glob pattern, list of files,
        database URI such as "sqlite:///shop.db", a polars, pandas or Arrow table, or a Spark DataFrame of at
        most 100 million rows.
    user_id, item_id, timestamp, weight, basket_id, item_name
        Column names. None finds the column by its conventional name or a common alias such as `customer_id`;
        "" ignores an optional column. Nested columns are paths: `item.id`, or `items[].item_id`, which gives
        each entry of the list a row. Models use weights if their `weighting` is not "none".
    time_format
        Format of timestamps that are neither numbers nor ISO 8601, such as "%d.%m.%Y". Without it, a format
        is used if it is the only common one that fits all rows.
    negative_weights
        What a negative quantity, such as a return, does: "subtract" it from the latest earlier purchases of
        the same user and item, and remove those of which nothing is left; "drop" the row; or "keep" it as
        negative feedback. Negative ratings are dropped instead of subtracted.
    min_rating
        The lowest weight that counts as liked. Rows below it are negative feedback: they are dropped, or kept
        with the (negative) distance from `min_rating` as weight, as `negative_weights` says.
    missing
        Whether a row without a user or an item, such as the order of a guest, is an error, or dropped and
        counted in `source`.
    where
        Condition in SQL for the rows to read, such as "event = 'purchase' and price > 0"; of several, all
        must be true.
    future
        Whether a time after tomorrow is an error, or such rows are dropped or kept.
    format
        File format, for files without a known extension.
    separator
        Field separator of a text file; None recognizes commas, semicolons, tabs and bars.
    header
        Column names of a text file that has no header line, as "user_id,item_id".
    encoding
        Encoding of a text file, such as "latin-1", "cp1252" or "utf-16". None is UTF-8, or "cp1252" for a
        file that is not UTF-8. Other text than UTF-8 is read into memory as a whole.
    query
        SQL query, which a database needs.
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

    def build(table: Table) -> Interactions:
        data = Interactions.from_table(table)
        if options.training:
            check_trainable(data)
        return with_doubts(data) if options.training and data.n_rows >= MIN_DOUBTED else data

    return _read(source, options, build)


def _read(source: Any, options: ReadOptions, build: Callable[[Table], Interactions]) -> Interactions:
    """Open the table of a source and build something from it; errors name the source."""
    if isinstance(source, str) and SCHEME.match(source):
        label = source.partition(":")[0] + " database"
        check_encoding(label, options.encoding)
        return _build(
            build,
            lambda: _open_scan(read_sql(source, options.query).lazy(), options, label, "table", []),
            label,
        )
    is_table = (
        isinstance(source, pl.LazyFrame) or hasattr(source, "columns") or hasattr(source, "column_names")
    )
    if options.query is not None:
        raise ConfigError(
            "query needs a database such as sqlite:///shop.db, got "
            f"{'a table' if is_table else redact_uri(source)[:80]!r}; omit it.",
            parameter="query",
        )
    if is_table:
        return _build(build, lambda: _open_frame(source, options), "table")
    paths, kind, label = find_sources(source, options.format)
    check_encoding(kind, options.encoding)

    def read(dialect: Dialect) -> Interactions:
        sources = open_sources(paths, kind, dialect.encoding)

        def scan_table() -> Table:
            is_array = kind == "jsonl" and is_json_array(paths[0])
            scan = _scan(sources, kind, dialect, options.header, is_array=is_array)
            return _open_scan(scan, options, label, kind, paths, dialect.notes)

        return _build(build, scan_table, label)

    with explain_errors(paths, kind, options.separator):
        if kind not in SEPARATORS:
            return read(Dialect(""))
        dialect = recognize_dialect(paths[0], kind, options.separator, options.encoding)
        try:
            return read(dialect)
        except pl.exceptions.PolarsError as error:
            if dialect.encoding is not None or not is_encoding_error(error):
                raise
        return read(dialect._replace(encoding=WINDOWS, notes=(*dialect.notes, NOT_UTF8)))


def _open_scan(
    scan: pl.LazyFrame,
    options: ReadOptions,
    label: str,
    kind: str,
    paths: list[Path],
    notes: tuple[str, ...] = (),
) -> Table:
    """The table of files, nested or flat."""
    names, is_nested = _flat_names(scan)
    chosen, recognized = settle_names(partial(_preview, scan), names, options.names)
    parsed = options.with_names(chosen)
    notes = (*notes, *recognized)
    rows: pl.LazyFrame | pl.DataFrame = scan
    whole = scan
    if options.conditions or is_nested:
        rows, names, roles, more = select(scan, chosen, options.conditions)
        whole, parsed = _with_names(scan, names), options.with_names(chosen._replace(**roles))
        notes = (*notes, *more)
    if kind == "jsonl":
        rows = check_json_ids(paths, rows.lazy(), parsed.names)
    elif kind in SEPARATORS:
        rows = _parse_text(rows.lazy(), parsed.names)
    table = _open_table(rows, parsed, label, whole=whole, columnar=kind == "parquet" and rows is scan)
    table.notes[:0] = notes
    return table


def _flat_names(scan: pl.LazyFrame) -> tuple[list[str], bool]:
    """The names of all columns, and whether some are nested."""
    schema = scan.collect_schema()
    is_nested = any(isinstance(kind, (pl.Struct, pl.List, pl.Array)) for kind in schema.dtypes())
    return list(dict(flat_types(schema))) if is_nested else schema.names(), is_nested


def _preview(scan: pl.LazyFrame, names: list[str]) -> pl.DataFrame:
    """The first values of some columns that are not in lists."""
    columns = scan.collect_schema().names()
    return scan.head(PREVIEW_ROWS).select(path_value(name, columns).alias(name) for name in names).collect()


def _open_frame(frame: Any, options: ReadOptions) -> Table:
    """The table of a polars, pandas or Arrow table, or of a Spark DataFrame."""
    if is_spark_frame(frame):
        return _open_spark(frame, options)
    names = column_names(frame)
    if isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        scan = frame.lazy()
    elif not options.conditions and options.missing == "error":
        chosen, notes = settle_names(partial(preview_columns, frame), names, options.names)
        table = Table(frame, options.with_names(chosen))  # which converts only the columns that it needs
        table.notes[:0] = notes
        return table
    else:
        scan = to_polars(frame).lazy()
    return _open_scan(scan, options, "table", "table", [])


def _open_spark(df: Any, options: ReadOptions) -> Table:
    """The table of a Spark DataFrame; only the columns that are needed are collected, if these are plain."""
    names = check_distinct(df.columns)
    is_plain = not any(kind.startswith(("struct", "array", "map")) for _, kind in df.dtypes)
    if is_plain and not options.conditions:
        preview = pl.DataFrame(collect_arrow(df.limit(PREVIEW_ROWS)))
        chosen, notes = settle_names(partial(preview_columns, preview), names, options.names)
        needed = match_columns(names, chosen).values()
        rows = collect_arrow(spark_columns(df, dict(zip(needed, needed, strict=True))), MAX_SPARK_ROWS)
        options = options.with_names(chosen)
        table = _open_table(pl.DataFrame(rows), options, "table", whole=preview.lazy())
        table.notes[:0] = notes
        return table
    scan = pl.DataFrame(collect_arrow(df, MAX_SPARK_ROWS)).lazy()
    return _open_scan(scan, options, "table", "table", [])


def is_spark_frame(value: Any) -> bool:
    """Whether the value is a Spark DataFrame, without importing pyspark."""
    return type(value).__module__.startswith("pyspark.sql") and hasattr(value, "mapInArrow")


def spark_columns(df: Any, columns: Mapping[str, str]) -> Any:
    """These columns of a Spark DataFrame, named by the keys."""
    quoted = {name: column.replace("`", "``") for name, column in columns.items()}
    return df.select(*(df[f"`{column}`"].alias(name) for name, column in quoted.items()))


def collect_arrow(df: Any, max_rows: int | None = None) -> Any:
    """All rows of a Spark DataFrame as an Arrow table; DataError if there are more than `max_rows`."""
    if max_rows is not None and (n_rows := df.count()) > max_rows:
        raise DataError(
            f"a Spark DataFrame must have at most {max_rows:,} rows to be read into one process, got "
            f"{n_rows:,}; fit on a sample of users with sl.spark.fit, and recommend to all with "
            "sl.spark.recommend."
        )
    if hasattr(df, "toArrow"):
        return df.toArrow()
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.Table.from_batches(df._collect_as_arrow(), to_arrow_schema(df.schema))  # Spark 3.5


def _with_names(scan: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    """A table that has these columns, for the list of unused ones; those in lists are empty."""
    columns = scan.collect_schema().names()
    values = (pl.lit(None) if "[]" in name else path_value(name, columns) for name in names)
    return scan.select(value.alias(name) for value, name in zip(values, names, strict=True))


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


def _build(
    build: Callable[[Table], Interactions], open_table: Callable[[], Table], label: str
) -> Interactions:
    """What is built from a table, or an error that names the source."""
    try:
        return build(open_table())
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None


def _parse_text(frame: pl.LazyFrame, given: ColumnNames) -> pl.DataFrame:
    """The needed columns of a text table; ids that are all written as integers become integers."""
    roles = match_columns(frame.collect_schema().names(), given)
    text = frame.select(list(roles.values())).collect()
    return text.with_columns([parse_integers(text[roles[role]]) for role in REQUIRED])


def _scan(sources: Any, kind: str, dialect: Dialect, header: str | None, *, is_array: bool) -> pl.LazyFrame:
    """A lazy table over what `open_sources` returned; only headers are read."""
    if kind == "parquet":
        return pl.scan_parquet(sources, glob=False)
    if is_array:
        return pl.concat([pl.read_json(entry, infer_schema_length=None) for entry in sources]).lazy()
    if kind == "jsonl":
        return pl.scan_ndjson(sources, infer_schema_length=None)
    separator = dialect.separator
    if len(separator.encode()) != 1:
        raise ConfigError(f"separator must be one ASCII character, got {separator!r}; pass ',' or ';'.")
    # Read as text until the roles of the columns are known: 007 is not 7, and errors can name the row.
    frame = pl.scan_csv(
        sources,
        glob=False,
        separator=separator,
        infer_schema=False,
        has_header=header is None,
        skip_rows=dialect.skipped,
        new_columns=None if header is None else header.split(","),
        quote_char=None if kind == "inter" else '"',
    )
    if header is None:
        _check_header(frame.collect_schema().names(), separator)
    return frame


def _check_header(names: list[str], separator: str) -> None:
    """Raise DataError if the header has another separator, repeats a name, is a row of data, or not UTF-8."""
    if any("\0" in name for name in names):
        raise DataError(
            "the file must be UTF-8 text, got UTF-16 or binary; convert it; or use "
            f"{advise_reading(encoding='utf-16')}.",
            parameter="encoding",
        )
    if len(names) > 1 and all(NUMBER.match(name) for name in names):
        matrix = MATRIX if len(names) > MAX_NAMED else ""
        raise DataError(
            f"the first line must name the columns, got {', '.join(names[:4])}; add a header; or use "
            f"{advise_reading(header='user_id,item_id,…')}.{matrix}",
            parameter="header",
        )
    check_distinct(names)
    other = max((mark for mark in SEPARATOR_NAMES if mark != separator), key=names[0].count)
    if len(names) == 1 and other in names[0]:
        marks = SEPARATOR_NAMES.get(separator, repr(separator))
        raise DataError(
            f"the columns must be separated by {marks}, got a header separated by {SEPARATOR_NAMES[other]} "
            f"({names[0]!r}); use {advise_reading(separator=other)}.",
            parameter="separator",
        )
