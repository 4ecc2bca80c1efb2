"""What is read of a table: nested columns become flat ones, and conditions in SQL select rows."""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl

from shortlist.data.columns import (
    match_columns,
    parse_numbers,
)
from shortlist.data.read_options import ColumnNames
from shortlist.errors import ConfigError, DataError
from shortlist.text import short_repr

MAX_CONDITION = 2000  # characters
FUNCTIONS = "in and or not lower upper trim length abs coalesce cast between"
KEYWORDS = f"{FUNCTIONS} is null like true false as case when then else end"
QUOTED = r"""("[^"]*"|'(?:[^']|'')*')"""


class SelectedRows(NamedTuple):
    """A table with one flat column per name, and only the rows that fulfill all conditions."""

    rows: pl.LazyFrame
    names: list[str]  # of all columns, also those in `rows` that are not needed
    roles: dict[str, Any]  # role → column
    notes: list[str]


def flat_types(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, pl.DataType]]:
    """Names and types of all columns: fields of a struct are `item.id`, those in a list `items[].id`."""
    for name, kind in schema.items():
        path = f"{prefix}{name}"
        while isinstance(kind, (pl.List, pl.Array)):
            path, kind = f"{path}[]", kind.inner
        if isinstance(kind, pl.Struct):
            yield from flat_types(kind.to_schema(), f"{path}.")
        else:
            yield path, kind


def select(frame: pl.LazyFrame, named: ColumnNames, conditions: tuple[str, ...]) -> SelectedRows:
    """Flatten nested columns and keep the rows that fulfill all conditions."""
    names = [name for name, _ in flat_types(frame.collect_schema())]
    roles = match_columns(names, named)
    parsed = [(text, parse_condition(text, names)) for text in conditions]
    needed = {*roles.values(), *(name for _, condition in parsed for name in condition.meta.root_names())}
    rows, notes = _flatten(frame, sorted(needed))
    for text, condition in parsed:
        rows = _filter(rows, condition, text, notes)
    names = [name for name in names if name in roles.values() or name not in needed]  # others are unused
    return SelectedRows(rows, names, roles, notes)


def _flatten(frame: pl.LazyFrame, needed: list[str]) -> tuple[pl.LazyFrame, list[str]]:
    """The needed columns under their flat names; lists that they pass through become rows."""
    lists = sorted(
        {name[: at.end()] for name in needed for at in re.finditer(r"\[\]", name)},
        key=lambda path: (len(path), path),
    )
    notes, columns = [], frame.collect_schema().names()
    for outer, inner in pairwise(lists):
        if not inner.startswith(outer):
            raise DataError(
                f"columns may come from one list only, got {outer!r} and {inner!r}; export one of them as a "
                "table of its own, or name other columns."
            )
    for path in lists:
        frame = frame.with_columns(path_value(path[:-2], columns).alias(path))
        n_empty = frame.select((pl.col(path).list.len().fill_null(0) == 0).sum()).collect().item()
        if n_empty:
            notes.append(f"{n_empty:,} rows with an empty list {path[:-2]!r} were dropped.")
        frame = frame.explode(path).filter(pl.col(path).is_not_null())
    return frame.select(path_value(name, columns).alias(name) for name in needed), notes


def path_value(path: str, columns: Collection[str]) -> pl.Expr:
    """The value at a path; what stands before its last list is a column already, as are `columns`."""
    if path in columns:
        return pl.col(path)
    head, mark, tail = path.rpartition("[].")
    if path.endswith("[]"):
        return pl.col(path)
    first, *fields = tail.split(".")
    value = pl.col(head + "[]").struct.field(first) if mark else pl.col(first)
    for field in fields:
        value = value.struct.field(field)
    return value


def parse_condition(text: str, names: list[str]) -> pl.Expr:
    """The expression of a condition in SQL; nothing is evaluated, and only its columns are read."""
    any_text: object = text
    if not isinstance(any_text, str) or not text.strip() or len(text) > MAX_CONDITION:
        raise _condition_error(short_repr(text), f"at most {MAX_CONDITION:,} characters of SQL")
    columns = [name for name in names if re.match(r"[^\W\d]", name) and '"' not in name]
    columns = [name for name in columns if name.lower() not in KEYWORDS.split()]
    listed = "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))
    # a column may have spaces or the name of a function, or be a path
    path = rf"{QUOTED}|(?<![\w$.\]])({listed or '$^'})(?![\w$.\[(])"
    quoted = re.sub(path, lambda match: f'"{match[2]}"' if match[2] else match[0], text)
    bare = re.sub(r"""'(?:[^']|'')*'|"[^"]*\"""", " ", quoted)
    for call in re.findall(r"(\w+)\s*\(", bare):
        if call.lower() not in FUNCTIONS.split():
            raise _condition_error(
                f"{call}(…)", "no functions but lower, upper, trim, length, abs and coalesce"
            )
    try:
        expression = pl.sql_expr(quoted)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _condition_error(short_repr(text), str(error).splitlines()[0][:100]) from None
    roots = expression.meta.root_names()
    unknown = next((name for name in roots if name not in names), None)
    if unknown is not None or not roots:
        listed = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
        raise _condition_error(
            repr(unknown) if unknown else short_repr(text), f"columns of the table: {listed}"
        )
    return expression


def _condition_error(got: str, rule: str) -> ConfigError:
    return ConfigError(
        f"where must be a condition in SQL ({rule}), got {got}; write \"event = 'purchase'\", texts in "
        "single quotes.",
        parameter="where",
    )


def _filter(rows: pl.LazyFrame, condition: pl.Expr, text: str, notes: list[str]) -> pl.LazyFrame:
    """The rows for which the condition is true; texts that are all numbers are compared as numbers."""
    columns = list(dict.fromkeys(condition.meta.root_names()))
    values = rows.select(columns).collect()
    numbers = [_as_numbers(values[name]) for name in columns]
    try:
        is_kept = values.with_columns(numbers).select(condition.alias("kept"))["kept"]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0][:100]
        raise _condition_error(short_repr(text), f"{reason}; text in 'quotes', numbers without") from None
    if is_kept.dtype != pl.Boolean or len(is_kept) != values.height:
        raise _condition_error(short_repr(text), "true or false for every row")
    n_kept = int(is_kept.fill_null(False).sum())
    if not n_kept:
        seen = "; ".join(f"{name}: {_examples(values[name])}" for name in columns[:3])
        raise DataError(
            f"where must leave some rows, got none of {values.height:,} by {text[:70]!r}; values are {seen}.",
            parameter="where",
        )
    notes.append(
        f"{values.height - n_kept:,} of {values.height:,} rows are not where {text[:80]} and were dropped."
    )
    return rows.collect().filter(is_kept.fill_null(False)).lazy()


def _as_numbers(column: pl.Series) -> pl.Series:
    """A column of texts that are all numbers, as numbers."""
    if column.dtype != pl.String:
        return column
    number = parse_numbers(column)[0].cast(pl.Float64, strict=False)
    return number.alias(column.name) if number.null_count() == column.null_count() < len(column) else column


def _examples(column: pl.Series) -> str:
    """The most frequent values of a column."""
    counts = column.drop_nulls().value_counts(sort=True).head(5)
    return ", ".join(short_repr(value) for value in counts.to_series(0).to_list())
