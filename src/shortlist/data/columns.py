"""Find the columns of a table by name, convention or alias, and check their values."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.aliases import (
    ROLE_WORDS,
    TYPE_SUFFIX,
    ColumnNames,
    belongs_to_other_role,
    is_alias,
    looks_like_time,
    name_words,
    plain_name,
)
from shortlist.data.data_source import DataSource
from shortlist.data.id_map import id_kind, id_series
from shortlist.data.negative_rows import NegativeWeights, check_options
from shortlist.data.times import parse_times
from shortlist.errors import DataError
from shortlist.types import Floats, Longs

REQUIRED = ("user_id", "item_id")
DROP_ROWS = (
    "drop these rows, such as guests' orders, with missing='drop' in read_interactions (--missing drop), or "
    "filter the table"
)
PREVIEW_ROWS = 100  # of the unused columns, to find one that looks like a time


class Table:
    """The columns of a table of interactions; each can be read once; its memory is then released."""

    def __init__(
        self,
        frame: Any,
        given: ColumnNames,
        *,
        time_format: str | None = None,
        columnar: bool = False,
        negative_weights: NegativeWeights = "drop",
        min_rating: float | None = None,
        label: str = "table",
        whole: pl.LazyFrame | None = None,
    ) -> None:
        """`columnar` collects a lazy table one column at a time: good for Parquet, wasteful for text.

        `whole` has all columns of the source if `frame` has only the needed ones.
        """
        check_options(negative_weights, min_rating)
        names = column_names(frame if whole is None else whole)
        self.roles = match_columns(names, given)
        self.time_format, self.label = time_format, label
        self.negative_weights, self.min_rating = negative_weights, min_rating
        self.unused = tuple(name for name in names if name not in self.roles.values())
        if min_rating is not None and "weight" not in self.roles:
            raise DataError(
                "min_rating needs a column of ratings, got a table without one; pass weight='…' to name it.",
                parameter="min_rating",
            )
        self.notes: list[str] = []
        self.doubts: list[str] = []  # notes that are also warnings
        if "timestamp" not in self.roles and given.timestamp != "" and self.unused:
            self._find_times(frame if whole is None else whole)
        self._lazy = frame if columnar else None
        self._frame = None if columnar else _collect(frame, list(self.roles.values()))

    def _find_times(self, frame: Any) -> None:
        """Doubt that a table has no times if an unused column looks like one."""
        preview = _collect(_head(frame), list(self.unused))
        found = [name for name in self.unused if looks_like_time(preview[name])]
        if found:
            listed = " and ".join(map(repr, found[:3]))
            looks = (
                "columns {} look like times and are"
                if len(found) > 1
                else "column {} looks like a time and is"
            )
            self.doubt(
                f"{looks.format(listed)} not used; if it is when the user interacted, pass timestamp="
                f'{found[0]!r} (--timestamp {found[0]}), otherwise timestamp="".'
            )

    def note(self, sentence: str) -> None:
        """Keep a sentence about what was done for `Interactions.source`."""
        self.notes.append(sentence)

    def doubt(self, sentence: str) -> None:
        """Keep a note that is also a warning."""
        self.notes.append(sentence)
        self.doubts.append(sentence)

    def source(self) -> DataSource:
        """What was read."""
        return DataSource(self.label, dict(self.roles), self.unused, tuple(self.notes))

    def ids(self, role: str) -> pl.Series | None:
        """The ids of an optional column, without nulls."""
        advice = f'fill or drop these rows, or pass {role}=""'
        return None if role not in self.roles else _check_ids(self._take(role), advice)

    def required_ids(self, role: str) -> pl.Series:
        """The ids of a column that `match_columns` guarantees."""
        return _check_ids(self._take(role), DROP_ROWS)

    def times(self) -> Longs | None:
        """(n_rows,) microseconds since 1970 UTC."""
        if "timestamp" not in self.roles:
            return None
        return parse_times(self._take("timestamp"), self.time_format)

    def weights(self) -> Floats | None:
        """(n_rows,) finite weights."""
        return None if "weight" not in self.roles else _check_weights(self._take("weight"))

    def labels(self) -> pl.Series | None:
        """Item names; they may contain nulls."""
        return None if "item_name" not in self.roles else self._take("item_name").cast(pl.String)

    def _take(self, role: str) -> pl.Series:
        name = self.roles[role]
        if self._frame is not None:
            series = self._frame.drop_in_place(name)
        else:
            series = _collect(self._lazy, [name]).to_series()
        if len(series) == 0:
            raise DataError(
                "a table of interactions must have at least one row, got a header only; "
                "check how it was exported."
            )
        return series


def tuples_to_frame(rows: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    """A table with conventional column names from (user_id, item_id[, timestamp[, weight]]) tuples."""
    table = [tuple(row) for row in rows]
    widths = {len(row) for row in table}
    if not table or len(widths) != 1 or not widths <= {2, 3, 4}:
        got = "no rows" if not table else f"lengths {sorted(widths)[:5]}"
        raise DataError(f"tuples must all be (user, item[, timestamp[, weight]]), got {got}; use one length.")
    columns = dict(zip(ColumnNames._fields, zip(*table, strict=True), strict=False))
    for name in REQUIRED:
        check_id_values(name, columns[name])
    try:
        return pl.DataFrame([pl.Series(name, column, strict=False) for name, column in columns.items()])
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"tuples must hold plain values ({_first_line(error)}); convert them.") from None


def check_id_values(name: str, values: Iterable[Any]) -> None:
    """Raise DataError with the row of the first value that is no id, or has another type than the first."""
    first: tuple[str, Any] | None = None
    for row, value in enumerate(values, start=1):
        kind = id_kind(value)
        if kind is None or value == "":
            got = repr(value)[:60] if kind is None else "an empty string"
            raise DataError(
                f"{name}, row {row}: an id must be a string or an integer, got {got}; drop the row."
            )
        first = (kind, value) if first is None else first
        if kind != first[0]:
            raise DataError(
                f"{name}, row {row}: ids must have one type, got {value!r:.60} after {first[1]!r:.60}; write "
                "all of them as strings, or all as integers."
            )


def match_columns(names: list[str], given: ColumnNames) -> dict[str, str]:
    """Role → column name, for the roles that the table has."""
    roles = {}
    for role, name in given._asdict().items():
        found = find_column(role, names) if name is None else _check_given(role, name, names)
        if found is not None:
            roles[role] = found
        elif role in REQUIRED:
            raise DataError(_missing_message(role, names), parameter=role)
    for role, name in roles.items():
        twin = next((other for other, at in roles.items() if at == name and other != role), None)
        if twin is not None:
            raise DataError(
                f"{role} and {twin} must be different columns, got {name!r} for both; pass another name."
            )
    return roles


def _check_given(role: str, name: str, names: list[str]) -> str | None:
    """The column that the caller named, or None for ""; its RecBole type may be omitted."""
    given: object = name
    if not isinstance(given, str):
        raise DataError(f"{role} must be the name of a column, got a {type(given).__name__}; pass a string.")
    if name == "" and role not in REQUIRED:
        return None
    if name in names:
        return name
    typed = [other for other in names if TYPE_SUFFIX.sub("", other) == name]
    if len(typed) == 1:
        return typed[0]
    message = f"{role} must name a column of the table, got {name!r}; {_advice(role, name, names)}"
    raise DataError(message, parameter=role)


def find_column(role: str, names: list[str]) -> str | None:
    """The column with the conventional name of this role, or with an alias; ambiguity is an error."""
    if role in names:
        return role
    found = [name for name in names if is_alias(name, role)]
    exact = [name for name in found if plain_name(name) == role.replace("_", "")]
    found = exact or found
    if len(found) > 1:
        listed = " or ".join(map(repr, found))
        leave = "" if role in REQUIRED else f', or {role}="" to use neither'
        message = f"{role} must match one column, got {listed}; pass {role}={found[0]!r}{leave}."
        raise DataError(message, parameter=role)
    return found[0] if found else None


def _missing_message(role: str, names: list[str]) -> str:
    """The error message for a missing required column."""
    rule = f"the table must have a column {role!r} (or an alias of it), got none"
    return f"{rule}; {_advice(role, role, names)} Pass {role}='…' to name it."


def _advice(role: str, name: str, names: list[str]) -> str:
    """Columns that can have this role, by their words or a similar name; otherwise all columns."""
    possible = {plain_name(other): other for other in names if not belongs_to_other_role(other, role)}
    words = set(ROLE_WORDS.get(role, "").split())
    near = [other for other in possible.values() if words & set(name_words(other))]
    near += [possible[key] for key in get_close_matches(plain_name(name), possible, n=2, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(map(repr, dict.fromkeys(near[:2])))}?"
    shown = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    return f"the columns are {shown}." if names else "the table has no columns."


def check_distinct(names: list[str]) -> list[str]:
    """Raise DataError if a column name occurs twice; columns without a name may."""
    seen: set[str] = set()
    for name in names:
        original = re.sub(r"_duplicated_\d+$", "", name)  # polars renames the second column
        twice = name in seen or (original != name and original in seen)
        if twice and original:
            raise DataError(
                f"every column must have its own name, got {original!r} twice; rename or remove one of them."
            )
        seen.add(name)
    return names


def column_names(frame: Any) -> list[str]:
    """Column names of any table, without collecting it."""
    if isinstance(frame, pl.LazyFrame):
        return check_distinct(frame.collect_schema().names())
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)  # Arrow, then the others
    if names is None or not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__dataframe__")):
        raise DataError(
            "interactions must be a polars, pandas or Arrow table or a SciPy matrix, got "
            f"{type(frame).__name__}; use read_interactions, Interactions.from_tuples or from_csr."
        )
    return check_distinct([str(name) for name in names])


def _head(frame: Any) -> Any:
    """The first rows of any table."""
    return frame.slice(0, PREVIEW_ROWS) if hasattr(frame, "column_names") else frame.head(PREVIEW_ROWS)


def _collect(frame: Any, wanted: list[str]) -> pl.DataFrame:
    """The wanted columns as a polars table."""
    if isinstance(frame, pl.LazyFrame):
        return frame.select(wanted).collect()
    if isinstance(frame, pl.DataFrame):
        return frame.select(wanted)
    if hasattr(frame, "column_names"):
        return to_polars(frame.select(wanted))
    own = {str(name): name for name in frame.columns}  # pandas allows names that are not strings
    return to_polars(frame[[own[name] for name in wanted]])


def to_polars(frame: Any) -> pl.DataFrame:
    """A pandas or Arrow table as a polars table."""
    try:
        return pl.DataFrame(frame)
    except ImportError:
        raise DataError("reading a pandas table needs the package pyarrow; install it with pip.") from None
    except Exception as error:  # Arrow and pandas raise classes that are not imported here
        raise DataError(
            f"every column must have one type, got a mixture ({_first_line(error)}); cast it to strings."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:150] if str(error) else type(error).__name__


def _check_ids(series: pl.Series, advice: str) -> pl.Series:
    """Strings or integers, none of them empty."""
    empty = series.is_null()
    if not empty.any() and series.dtype == pl.String:
        empty = series == ""
    if empty.any():
        row = int(empty.arg_max() or 0)
        got = "null" if series[row] is None else "an empty string"
        raise DataError(
            f"column {series.name!r}, row {row + 1}: an id must not be empty, got {got} in "
            f"{int(empty.sum()):,} of {len(series):,} rows; {advice}."
        )
    try:
        return id_series(series)
    except DataError as error:
        raise DataError(f"column {series.name!r}, row 1: {error}") from None


def _check_weights(series: pl.Series) -> Floats:
    """Finite 32-bit weights."""
    if series.dtype != pl.String and not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise DataError(
            f"column {series.name!r}: weights must be numbers, got {series.dtype}; "
            'name another column as weight, or pass weight="" to use none.',
            parameter="weight",
        )
    source = series.str.strip_chars() if series.dtype == pl.String else series
    weight = source.cast(pl.Float32, strict=False)
    bad = weight.is_null() | ~weight.is_finite().fill_null(False)
    if bad.any():
        row = int(bad.arg_max() or 0)
        got = "null" if series[row] is None else repr(series[row])
        raise DataError(
            f"column {series.name!r}, row {row + 1}: a weight must be a finite number, got {got} "
            f"({int(bad.sum()):,} of {len(series):,} rows have none); drop or fill such rows, or pass "
            'weight="" to use none, which counts returns as purchases.',
            parameter="weight",
        )
    return np.array(weight.to_numpy(), np.float32)
