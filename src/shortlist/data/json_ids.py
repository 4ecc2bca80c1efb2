"""Ids in JSON Lines files: 1 and "1" are different ids, and objects, lists and booleans are none."""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from shortlist.data.aliases import ColumnNames
from shortlist.data.columns import match_columns
from shortlist.data.compression import decompress, is_compressed
from shortlist.data.id_map import id_kind
from shortlist.errors import DataError

ID_ROLES = ("user_id", "item_id", "basket_id")
# The text of a JSON value that is not a string; polars converts such values if the column also has strings.
BARE = r"^(-?\d|true$|false$|\{|\[)"


def check_json_ids(paths: list[Path], frame: pl.LazyFrame, given: ColumnNames) -> pl.DataFrame:
    """Collect the needed columns; raise DataError for an id of another type than the others."""
    try:
        roles = match_columns(frame.collect_schema().names(), given)
        rows = frame.select(list(roles.values())).collect()
    except pl.exceptions.PolarsError:
        explain_json_error(paths, given)
        raise
    check_converted(paths, rows, [roles[role] for role in ID_ROLES if role in roles])
    return rows


def check_converted(paths: list[Path], rows: pl.DataFrame, names: Iterable[str]) -> None:
    """Raise DataError if a column of strings holds values that are no strings in the files."""
    for name in names:
        if rows[name].dtype == pl.String and rows[name].str.contains(BARE).any():
            _check_column(paths, name)


def explain_json_error(paths: list[Path], given: ColumnNames) -> None:
    """Raise DataError if polars failed because an id has another type than the others."""
    names = next((list(row) for path in paths for _, row in _objects(path)), [])
    roles = match_columns(names, given) if names else {}
    for role in ID_ROLES:
        if role in roles:
            _check_column(paths, roles[role], skip_strings=False)


def _check_column(paths: list[Path], name: str, *, skip_strings: bool = True) -> None:
    """Raise DataError for the first value that is no id, or has another type than the first one."""
    first: Any = None
    for path in paths:
        for number, row in _objects(path, name if skip_strings else None):
            value = row.get(name)
            if value is None:
                continue
            first = ("" if skip_strings else value) if first is None else first
            kind = id_kind(value)
            if kind is None or kind != id_kind(first):
                rule = (
                    "an id must be a string or an integer" if kind is None else "all ids must have one type"
                )
                raise DataError(
                    f"column {name!r}, row {number}: {rule}, got {json.dumps(value)[:60]}, while others are "
                    f"{id_kind(first) or 'other value'}s; write all ids as strings, or all as integers."
                )


def _objects(path: Path, skip_strings_of: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row, object) of the lines of a file; lines whose column is a string can be skipped, which is fast."""
    key = re.escape(json.dumps(skip_strings_of, ensure_ascii=False)).encode()
    bare, present = re.compile(key + rb'\s*:\s*[^"\s]'), re.compile(key + rb"\s*:")
    for number, line in enumerate(_lines(path), start=1):
        if skip_strings_of is not None and bare.search(line) is None and present.search(line) is not None:
            continue
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield number, row


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not."""
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as file:
            yield from file
    elif is_compressed(path):
        yield from decompress(path).splitlines()
    else:
        with path.open("rb") as file:
            yield from file
