"""Read interactions from files and databases."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from shortlist.data.aliases import ColumnNames
from shortlist.data.columns import REQUIRED, Table, check_distinct, match_columns
from shortlist.data.filters import check_trainable
from shortlist.data.interactions import Interactions
from shortlist.data.json_ids import check_json_ids
from shortlist.data.missing_rows import Missing, check_missing, select_known
from shortlist.data.negative_rows import NegativeWeights
from shortlist.data.sources import (
    FORMATS,
    Format,
    check_encoding,
    detect_format,
    explain_read_error,
    find_files,
    open_sources,
)
from shortlist.data.sql import is_uri, read_sql
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri

SEPARATORS = {"csv": ",", "tsv": "\t", "inter": "\t"}  # inter: atomic file of RecBole
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

PREVIEW_ROWS = 1000  # checked first, because most columns of strings can be recognized by them
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
    given = ColumnNames(user_id, item_id, timestamp, weight, basket_id, item_name)
    check_missing(missing)
    if isinstance(source, str) and is_uri(source):
        label = source.partition(":")[0] + " database"
        check_encoding(label, encoding)

        def query_table() -> Table:
            names: list[str] = []  # of all columns, if only those needed are fetched

            def needed(found: list[str]) -> list[str]:
                names.extend(found)
                return list(match_columns(check_distinct(found), given).values())

            rows, dropped = select_known(read_sql(source, query, table, needed), given, missing)
            found = Table(
                rows,
                given,
                time_format=time_format,
                negative_weights=negative_weights,
                min_rating=min_rating,
                label=label,
                whole=pl.LazyFrame(schema=dict.fromkeys(names, pl.Null)) if names else None,
            )
            return _noted(found, dropped)

        return _build(query_table, label, training)
    if query is not None or table is not None:
        raise ConfigError(
            "query and table need a database such as sqlite:///shop.db, got "
            f"{redact_uri(source)[:80]!r}; omit them."
        )
    paths = find_files(source)
    kind = format or detect_format(paths)
    label = str(paths[0] if len(paths) == 1 or not isinstance(source, (str, Path)) else source)

    def scan_table() -> Table:
        scan = _scan(sources, kind, separator, header)
        rows = _parse_text(scan, given) if kind in SEPARATORS else scan
        if kind == "jsonl":
            rows = check_json_ids(paths, scan, given)
        rows, dropped = select_known(rows, given, missing)
        found = Table(
            rows,
            given,
            time_format=time_format,
            columnar=kind == "parquet",
            negative_weights=negative_weights,
            min_rating=min_rating,
            label=label,
            whole=scan,
        )
        return _noted(found, dropped)

    try:
        sources = open_sources(paths, kind, encoding)
        return _build(scan_table, label, training)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise explain_read_error(error, paths, kind, separator or SEPARATORS.get(kind)) from None


def _noted(table: Table, sentence: str | None) -> Table:
    """The table with a note."""
    if sentence is not None:
        table.note(sentence)
    return table


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


def parse_integers(ids: pl.Series) -> pl.Series:
    """Integers if every id is a canonical integer, else the strings: 007 and +7 stay strings."""
    if len(ids) > PREVIEW_ROWS and parse_integers(ids.head(PREVIEW_ROWS)).dtype == pl.String:
        return ids
    whole = ids.cast(pl.Int64, strict=False)
    if whole.null_count() != ids.null_count():
        return ids
    unusual = (ids.str.starts_with("0") & (ids != "0")) | ids.str.starts_with("+") | ids.str.starts_with("-0")
    return ids if unusual.any() else whole


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
        own = SEPARATOR_NAMES.get(separator, repr(separator))
        raise DataError(
            f"the columns must be separated by {own}, got a header separated by {SEPARATOR_NAMES[other]} "
            f"({names[0]!r}); pass separator={other!r}.",
            parameter="separator",
        )
