"""The kind of content in each column of an item table: named by the caller, or recognized by its type."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from shortlist.errors import DataError

KINDS = ("categories", "tags", "text", "numbers", "dates", "vector")  # the keywords of Items.from_frame
MIN_WORDS = 2.0  # mean words per row from which a column of strings is text
MAX_DISTINCT = 0.5  # distinct values per row up to which other strings are categories

Given = Mapping[str, Sequence[str] | str | None]


def assign_kinds(frame: pl.DataFrame, given: Given, item_id: str) -> tuple[dict[str, str], dict[str, str]]:
    """(column → kind, unused column → reason); columns that the caller names are never recognized by type."""
    kinds: dict[str, str] = {}
    for kind, columns in given.items():
        for name in _named(kind, columns):
            if name not in frame.columns or name == item_id:
                listed = ", ".join(map(repr, frame.columns[:12]))
                raise DataError(
                    f"{kind} must name columns other than the id, got {name!r:.60}; columns: {listed}."
                )
            if name in kinds:
                raise DataError(
                    f"column {name!r:.60} must have one kind, got {kinds[name]} and {kind}; name it once."
                )
            kinds[name] = kind
    unused: dict[str, str] = {}
    for name in frame.columns:
        if name == item_id or name in kinds:
            continue
        found, reason = recognize_kind(frame[name])
        if found is None:
            unused[name] = reason
        elif given.get(found) is not None:
            unused[name] = f"other columns were named as {found}"
        else:
            kinds[name] = found
    order = {name: at for at, name in enumerate(frame.columns)}
    return dict(sorted(kinds.items(), key=lambda pair: order[pair[0]])), unused


def _named(kind: str, columns: Sequence[str] | str | None) -> list[str]:
    """The columns that the caller named for a kind."""
    if columns is None:
        return []
    names = [columns] if isinstance(columns, str) else list(columns)
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{kind} must be names of columns, got {columns!r:.60}; pass a list of strings.")
    return names


def recognize_kind(column: pl.Series) -> tuple[str | None, str]:
    """(kind, "") by the type of a column; (None, reason) if no kind fits."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        return _recognize_list(kind.inner)
    if kind.is_temporal() and kind != pl.Duration and kind != pl.Time:
        return "dates", ""
    if kind.is_numeric():
        return "numbers", ""
    if isinstance(kind, pl.Boolean | pl.Categorical | pl.Enum):
        return "categories", ""
    return _recognize_strings(column) if kind == pl.String else (None, f"type {kind}")


def _recognize_list(inner: Any) -> tuple[str | None, str]:
    """The kind of a column of lists."""
    if isinstance(inner, pl.String | pl.Categorical | pl.Enum):
        return "tags", ""
    return ("vector", "") if inner.is_float() else (None, f"a list of {inner}; name it as tags or vector")


def _recognize_strings(column: pl.Series) -> tuple[str | None, str]:
    """The kind of a column of strings."""
    known = column.drop_nulls()
    if not len(known):
        return None, "no values"
    words = known.head(10_000).str.count_matches(r"\w+").mean()
    if isinstance(words, float) and words >= MIN_WORDS:
        return "text", ""
    if known.n_unique() <= max(MAX_DISTINCT * len(known), 1):
        return "categories", ""
    return None, "nearly every item has a value of its own; name it as text or categories"


def convert_column(column: pl.Series, kind: str) -> pl.Series:
    """The column in the one form of its kind: strings, lists of strings, doubles, microseconds or vectors."""
    try:
        if kind in ("text", "categories"):
            return column.cast(pl.String)
        if kind == "tags":
            return column.cast(pl.List(pl.String))
        if kind == "numbers":
            numbers = column.cast(pl.Float64)
            return numbers.set(~numbers.is_finite().fill_null(True), None)
        if kind == "dates":
            return column.cast(pl.Datetime("us"))
        return _convert_vectors(column)
    except pl.exceptions.PolarsError:
        raise DataError(
            f"column {column.name!r:.60} must hold {kind}, got {column.dtype}; convert it, or "
            "name another kind."
        ) from None


def _convert_vectors(column: pl.Series) -> pl.Series:
    """Vectors of one length and finite numbers, or null."""
    vectors = column.cast(pl.List(pl.Float32))
    lengths = vectors.list.len().drop_nulls().unique()
    if len(lengths) > 1:
        raise DataError(
            f"column {column.name!r:.60}: vectors must have one length, got {lengths.sort()[:3].to_list()}; "
            "leave items without a vector null."
        )
    flat = vectors.drop_nulls().explode()
    if flat.null_count() or not flat.is_finite().all():
        raise DataError(
            f"column {column.name!r:.60}: vectors must hold finite numbers, got others; make such rows null."
        )
    return vectors


def check_columns(frame: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """The columns of `frame` in `more`; missing ones are null."""
    return more.select(
        [
            pl.col(name) if name in more.columns else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in frame.schema.items()
        ]
    )


def to_frame(table: Any) -> pl.DataFrame:
    """A polars, pandas or Arrow table as a polars table."""
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, pl.DataFrame):
        return table
    if not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__dataframe__")):
        raise DataError(
            f"items must be a polars, pandas or Arrow table, got a {type(table).__name__}; use read_items "
            "for a file."
        )
    try:
        return pl.DataFrame(table)
    except Exception as error:  # Arrow and pandas raise classes that are not imported here
        text = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
        raise DataError(f"every column must have one type, got a mixture ({text}); cast it.") from None
