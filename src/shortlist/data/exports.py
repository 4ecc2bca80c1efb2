"""Exports of shop systems and analytics: nested columns, rows that are no purchases, conditions in SQL."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from shortlist.core.params import short_repr
from shortlist.data.columns import (
    ALL_ROWS,
    ColumnNames,
    NoRowsError,
    ReadOptions,
    match_columns,
    parse_numbers,
    plain_name,
)
from shortlist.errors import ConfigError, DataError

Names = Sequence[str]  # plain names of a column, the preferred one first


class Rule(NamedTuple):
    """Rows to drop: what they are, the column that says so, and its words; no words: any value."""

    what: str
    column: Names
    words: str = ""
    keeps: bool = False  # whether rows with one of the words are kept instead
    contains: bool = False  # whether the value may have other words, too


class Export(NamedTuple):
    """What the columns of an export mean."""

    title: str
    signature: Sequence[frozenset[str]]  # plain names; an export has all of one of these sets
    columns: Mapping[str, Names]  # role → columns
    rules: Sequence[Rule] = ()
    instead: Mapping[str, Names] = {}  # role → column that fills its empty values
    refunds: Rule | None = None  # rows whose quantity counts negative
    refunded: Names = ()  # columns with returned parts of the quantity
    first_line: bool = False  # whether only the first line of an order has the columns of the rules


def _read_exports() -> dict[str, Export]:
    """The exports of exports.toml, by name."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for entry in entries.values():
        entry["signature"] = [frozenset(names) for names in entry["signature"]]
        entry["rules"] = [Rule(**rule) for rule in entry["rules"]]
        entry["refunds"] = Rule(**entry["refunds"]) if "refunds" in entry else None
    return {name: Export(**entry) for name, entry in entries.items()}


EXPORTS = _read_exports()
# Values of an id that say that there is none; the first ones only for users.
EMPTY = (("0", "guest", "", "(not set)", "null", "none"), ("", "(not set)", "null", "none"))
MAX_CONDITION = 2000  # characters
FUNCTIONS = "in and or not lower upper trim length abs coalesce cast between"
KEYWORDS = f"{FUNCTIONS} is null like true false as case when then else end"
QUOTED = r"""("[^"]*"|'(?:[^']|'')*')"""


class PreparedTable(NamedTuple):
    """A table with one flat column per name, without the rows that are no interactions."""

    rows: pl.LazyFrame
    names: list[str]  # of all columns, also those in `rows` that are not needed
    options: ReadOptions
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


def prepare(frame: pl.LazyFrame, options: ReadOptions, export: Export | None) -> PreparedTable:
    """Apply what is known of an export, flatten nested columns and keep the rows that `where` selects.

    `options` of the result name the columns that were chosen.
    """
    names, chosen = [name for name, _ in flat_types(frame.collect_schema())], options.names
    if export is not None:
        chosen = _choose_columns(export, names, chosen)
    roles = match_columns(names, chosen)
    where = None if options.where is None or options.where == ALL_ROWS else options.where
    condition = None if where is None else parse_condition(where, names)
    conditioned = [] if condition is None else condition.meta.root_names()
    rules = [
        rule for rule in (export.rules if export else ()) if _first(rule.column, names) not in conditioned
    ]
    needed = {*roles.values(), *conditioned}
    if export is not None:
        columns = [rule.column for rule in (*rules, export.refunds) if rule is not None]
        others = (_first(column, names) for column in (*columns, *export.instead.values()))
        needed |= {name for name in others if name is not None} | {*_all(export.refunded, names)}
    rows, notes = _flatten(frame, sorted(needed))
    if export is not None:
        rows = _apply(export, rules, rows, roles, names, notes)
    if condition is not None and where is not None:
        rows = _filter(rows, condition, where, notes)
    if export is not None:  # guests are no users, and the rules have chosen the rows
        options = replace(options, missing="drop", where=ALL_ROWS)
    names = [name for name in names if name in roles.values() or name not in needed]  # others are unused
    return PreparedTable(rows, names, options.with_names(options.names._replace(**roles)), notes)


def _first(columns: Names, names: list[str]) -> str | None:
    """The first of these columns that the table has."""
    plain = {plain_name(name): name for name in reversed(names)}
    return next((plain[column] for column in columns if column in plain), None)


def _all(columns: Names, names: list[str]) -> list[str]:
    """Those of these columns that the table has."""
    return [name for name in names if plain_name(name) in columns]


def _choose_columns(export: Export, names: list[str], given: ColumnNames) -> ColumnNames:
    """The columns of an export; those that the caller names take precedence."""
    chosen = {}
    for role, name in given._asdict().items():
        chosen[role] = _first(export.columns.get(role, ()), names) if name is None else name
    if chosen["user_id"] is None:
        listed = ", ".join(export.columns["user_id"])
        raise DataError(
            f"{export.title} must have a column that names the buyer ({listed}), got none; export a report "
            "with it, or pass user_id='…'.",
            parameter="user_id",
        )
    return ColumnNames(**chosen)


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


def _apply(
    export: Export,
    rules: list[Rule],
    rows: pl.LazyFrame,
    roles: Mapping[str, str],
    names: list[str],
    notes: list[str],
) -> pl.LazyFrame:
    """The rows of an export that are purchases, with its rules for missing and returned values."""
    basket = roles.get("basket_id")
    masks = {}
    for rule in rules:
        column = _first(rule.column, names)
        if column is not None:
            value = pl.col(column)
            if export.first_line and basket is not None:
                value = value.drop_nulls().first().over(basket)
            masks[rule.what] = _matches(value, rule)
    dropped: list[pl.Expr] = []
    for what, mask in masks.items():  # a row is counted under the first rule that drops it
        mask = mask.fill_null(False)
        dropped.append((mask & ~pl.any_horizontal(dropped) if dropped else mask).alias(what))
    if dropped:
        counts = rows.select(expression.sum() for expression in dropped).collect().row(0, named=True)
        notes += [f"{n:,} rows {what} were dropped." for what, n in counts.items() if n]
        rows = rows.filter(~pl.any_horizontal(mask.fill_null(False) for mask in masks.values()))
    changes = {}
    for role in ("user_id", "item_id", "basket_id"):
        if (name := roles.get(role)) is not None:
            text = pl.col(name).cast(pl.String)
            empty = text.str.strip_chars().str.to_lowercase().is_in(EMPTY[role != "user_id"])
            value = pl.when(empty).then(None).otherwise(text)
            other = _first(export.instead.get(role, ()), names)
            changes[name] = value if other is None else pl.coalesce(value, pl.col(other).cast(pl.String))
    rows = rows.with_columns(**changes)
    if "weight" not in roles:
        return rows
    return _net_quantity(export, rows.collect(), roles["weight"], names, notes)


def _net_quantity(
    export: Export, rows: pl.DataFrame, weight: str, names: list[str], notes: list[str]
) -> pl.LazyFrame:
    """The rows with what is left of their quantity; refunds are negative."""
    quantity = _as_numbers(rows[weight])
    if quantity.dtype == pl.String and quantity.null_count() < len(quantity):
        return rows.lazy()  # an error follows when it is read
    value = pl.coalesce(pl.col(weight), 1)
    for refunded in _all(export.refunded, names):
        value -= pl.lit(_as_numbers(rows[refunded])).cast(pl.Float64, strict=False).abs().fill_null(0)
    if export.refunds is not None and (column := _first(export.refunds.column, names)) is not None:
        value = pl.when(_matches(pl.col(column), export.refunds)).then(-value).otherwise(value)
    rows = rows.with_columns(quantity.cast(pl.Float64)).with_columns(value.alias(weight))
    is_zero = rows[weight] == 0
    if is_zero.any():
        notes.append(f"{is_zero.sum():,} rows with nothing left of their quantity were dropped.")
    return rows.filter(~is_zero).lazy()


def _matches(value: pl.Expr, rule: Rule) -> pl.Expr:
    """Whether rows are to be dropped by a rule: their value is one of its words, or is not."""
    text = value.cast(pl.String).str.to_lowercase().str.replace_all(r"^wc-|[^a-z0-9]", "")
    if not rule.words:
        return ~text.fill_null("").is_in(("", "null", "none", "0"))
    words = rule.words.split()
    if rule.contains:
        return text.str.contains("|".join(words))
    return ~text.fill_null("").is_in(words) if rule.keeps else text.is_in(words)


def parse_condition(text: str, names: list[str]) -> pl.Expr:
    """The expression of a condition in SQL; nothing is evaluated, and only its columns are read."""
    given: object = text
    if not isinstance(given, str) or not text.strip() or len(text) > MAX_CONDITION:
        raise _condition_error(short_repr(given), f"at most {MAX_CONDITION:,} characters of SQL")
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
        raise NoRowsError(
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
