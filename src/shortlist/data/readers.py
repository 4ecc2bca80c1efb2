"""Files and databases in, Interactions out."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from shortlist.data.columns import Table, match
from shortlist.data.filters import enough
from shortlist.data.interactions import Interactions
from shortlist.data.sources import FORMATS, Format, explained, find, is_packed, kind_of, unpacked
from shortlist.data.sql import is_uri, read_sql
from shortlist.errors import ConfigError, DataError

SEPARATORS = {"csv": ",", "tsv": "\t", "inter": "\t"}  # inter: RecBole's atomic file
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

FEW = 1000  # rows that are looked at before all are
NUMBER = re.compile(r"^-?\d+(\.\d+)?(_duplicated_\d+)?$")  # polars renames a column that comes twice


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
    format: Format | None = None,  # noqa: A002  the word everyone expects
    separator: str | None = None,
    header: Sequence[str] | None = None,
    query: str | None = None,
    table: str | None = None,
    training: bool = True,
) -> Interactions:
    """Read a file, folder, glob, list of files, or database URI (with `query` or `table`).

    Columns go by their conventional name or an alias unless named; "" leaves an optional one out.
    Weights (ratings, quantities, …) are kept with the rows; no model uses them.
    `time_format` is for times that are neither numbers nor ISO 8601, such as %d.%m.%Y.
    `header` names the columns of a file that has none. `training` refuses a single user or item.
    """
    given = {
        "user_id": user_id,
        "item_id": item_id,
        "timestamp": timestamp,
        "weight": weight,
        "basket_id": basket_id,
        "item_name": item_name,
    }
    if isinstance(source, str) and is_uri(source):

        def fetched() -> Table:
            rows = read_sql(source, query, table, lambda names: list(match(names, given).values()))
            return Table(rows, given, time_format=time_format)

        return _built(fetched, source.partition("://")[0] + " database", training)
    if query is not None or table is not None:
        raise ConfigError(
            f"query and table belong to a database such as sqlite:///shop.db, got {source!r}; leave them out."
        )
    paths = find(source)
    kind = format or kind_of(paths)
    label = str(paths[0] if len(paths) == 1 or not isinstance(source, (str, Path)) else source)

    def accept_tables() -> Table:
        scan = _scan(paths, kind, separator, header)
        rows = _typed(scan, given) if kind in SEPARATORS else scan
        return Table(rows, given, time_format=time_format, one_by_one=kind == "parquet")

    try:
        return _built(accept_tables, label, training)
    except (pl.exceptions.PolarsError, OSError, EOFError) as error:
        raise explained(error, paths, kind, separator or SEPARATORS.get(kind)) from None


def _built(accept_tables: Callable[[], Table], label: str, training: bool) -> Interactions:
    """Interactions, or an error that names where the rows came from."""
    try:
        data = Interactions.from_table(accept_tables())
        return enough(data) if training else data
    except DataError as error:
        raise DataError(f"{label}: {error}") from None


def _typed(frame: pl.LazyFrame, given: dict[str, str | None]) -> pl.DataFrame:
    """Out of text, the columns that are needed; ids that were all written as integers are integers."""
    roles = match(frame.collect_schema().names(), given)
    text = frame.select(list(roles.values())).collect()
    return text.with_columns([_as_written(text[roles[role]]) for role in ("user_id", "item_id")])


def _as_written(ids: pl.Series) -> pl.Series:
    """Integers, if writing them out again gives the same characters: 007 and +7 stay strings."""
    if len(ids) > FEW and _as_written(ids.head(FEW)).dtype == pl.String:
        return ids
    whole = ids.cast(pl.Int64, strict=False)
    if whole.null_count() != ids.null_count():
        return ids
    odd = (ids.str.starts_with("0") & (ids != "0")) | ids.str.starts_with("+") | ids.str.starts_with("-0")
    return ids if odd.any() else whole


def _scan(paths: list[Path], kind: str, separator: str | None, header: Sequence[str] | None) -> pl.LazyFrame:
    """A lazy table over the files; nothing but headers is read yet."""
    if kind == "parquet":
        if any(map(is_packed, paths)):
            return pl.scan_parquet([unpacked(path) for path in paths])
        return pl.scan_parquet(paths)
    if kind == "jsonl":
        return pl.scan_ndjson(paths, infer_schema_length=None)
    if kind not in SEPARATORS:
        raise ConfigError(f"format must be one of {sorted(set(FORMATS.values()))}, got {kind!r}; choose one.")
    separator = separator or SEPARATORS[kind]
    if len(separator.encode()) != 1:
        raise ConfigError(f"separator must be one ASCII character, got {separator!r}; pass ',' or ';'.")
    # All stays text until it is known which column is what: 007 is not 7, and a bad row keeps its number.
    frame = pl.scan_csv(
        paths,
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
    """Refuse a header cut by the wrong separator, one that is data, and one that is not UTF-8."""
    if any("\0" in name for name in names):
        raise DataError("the file must be UTF-8 text, got UTF-16 or binary; convert it first.")
    if len(names) > 1 and all(NUMBER.match(name) for name in names):
        raise DataError(
            f"the first line must name the columns, got {', '.join(names[:4])}; "
            "pass header=['user_id', 'item_id', …] for a file that has none."
        )
    other = max((mark for mark in NAMES if mark != separator), key=names[0].count)
    if len(names) == 1 and other in names[0]:
        own = NAMES.get(separator, repr(separator))
        raise DataError(
            f"the columns must be separated by {own}, got a header separated by {NAMES[other]} "
            f"({names[0]!r}); pass separator={other!r}."
        )
