"""Find the columns of a table by name, convention or alias, and check their values."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.data.id_map import id_series
from shortlist.data.times import parse_times
from shortlist.errors import DataError
from shortlist.types import Floats, Longs


class ColumnNames(NamedTuple):
    """The name of each column in a table; None finds it by its conventional name or an alias, "" omits it."""

    user_id: str | None = None
    item_id: str | None = None
    timestamp: str | None = None
    weight: str | None = None
    basket_id: str | None = None
    item_name: str | None = None


# Compared in lower case without punctuation: userId, USER_ID and "user id:token" all become `userid`.
# The first alias is the conventional name.
ALIASES = ColumnNames(
    user_id="userid user uid username customerid customer custid clientid visitorid memberid accountid "
    "reviewerid shopperid householdkey householdid",
    item_id="itemid item iid productid product movieid movie articleid article sku trackid track songid song "
    "artistid artist bookid book asin parentasin newsid videoid gameid businessid poiid venueid stockcode",
    timestamp="timestamp time datetime date ts eventtime unixtime unixreviewtime createdat transactiondate "
    "transactiondt transactiontime orderdate invoicedate purchasedate tdat day",
    weight="weight rating ratings stars count quantity qty plays playcount strength",
    basket_id="basketid basket orderid order invoiceid invoiceno invoice receiptid",
    item_name="itemname title itemtitle productname movietitle trackname booktitle",
)
REQUIRED = ("user_id", "item_id")
TYPE_SUFFIX = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole writes the type into the header


class Table:
    """The columns of a table of interactions; each can be read once; its memory is then released."""

    def __init__(
        self,
        frame: Any,
        given: ColumnNames,
        *,
        time_format: str | None = None,
        columnar: bool = False,
    ) -> None:
        """`columnar` collects a lazy table one column at a time: good for Parquet, wasteful for text."""
        self.roles = match_columns(_names(frame), given)
        self.time_format = time_format
        self._lazy = frame if columnar else None
        self._frame = None if columnar else _collect(frame, list(self.roles.values()))

    def ids(self, role: str) -> pl.Series | None:
        """The ids of an optional column, without nulls."""
        return None if role not in self.roles else _check_ids(self._take(role))

    def required_ids(self, role: str) -> pl.Series:
        """The ids of a column that `match_columns` guarantees."""
        return _check_ids(self._take(role))

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
    try:  # ids strictly: 1 and "1" must not become equal
        return pl.DataFrame(
            [
                pl.Series(name, column, strict=name in REQUIRED)
                for name, column in zip(ColumnNames._fields, zip(*table, strict=True), strict=False)
            ]
        )
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"ids must have one type, got a mixture ({_first_line(error)}); cast them.") from None


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


def _plain(name: str) -> str:
    """A column name without case, punctuation and RecBole type."""
    return re.sub(r"[^a-z0-9]", "", TYPE_SUFFIX.sub("", name).lower())


def _check_given(role: str, name: str, names: list[str]) -> str | None:
    """The column that the caller named, or None for ""; its RecBole type may be omitted."""
    if name == "" and role not in REQUIRED:
        return None
    if name in names:
        return name
    typed = [other for other in names if TYPE_SUFFIX.sub("", other) == name]
    if len(typed) == 1:
        return typed[0]
    message = f"{role} must name a column of the table, got {name!r}; {_advice(name, names)}"
    raise DataError(message, parameter=role)


def find_column(role: str, names: list[str]) -> str | None:
    """The column with the conventional name of this role, or with an alias; ambiguity is an error."""
    if role in names:
        return role
    aliases = ALIASES._asdict()[role].split()
    found = [name for name in names if _plain(name) in aliases]
    exact = [name for name in found if _plain(name) == aliases[0]]
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
    return f"{rule}; {_advice(role, names)} Pass {role}='…' to name it."


def _advice(name: str, names: list[str]) -> str:
    """Similar column names, or all of them."""
    plain = {_plain(other): other for other in names}
    near = [plain[key] for key in get_close_matches(_plain(name), plain, n=2, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    return f"the columns are {shown}." if names else "the table has no columns."


def _names(frame: Any) -> list[str]:
    """Column names of any table, without collecting it."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect_schema().names()
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)  # Arrow, then the others
    if names is None or not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__dataframe__")):
        raise DataError(
            "interactions must be a polars, pandas or Arrow table or a SciPy matrix, got "
            f"{type(frame).__name__}; use read_interactions, Interactions.from_tuples or from_csr."
        )
    return [str(name) for name in names]


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


def _check_ids(series: pl.Series) -> pl.Series:
    """Strings or integers, without nulls."""
    if series.null_count():
        row = int(series.is_null().arg_max() or 0) + 1
        raise DataError(
            f"column {series.name!r}, row {row}: an id must not be empty, got null; drop or fill such rows."
        )
    try:
        return id_series(series)
    except DataError as error:
        raise DataError(f"column {series.name!r}: {error}") from None


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
        raise DataError(
            f"column {series.name!r}, row {row + 1}: a weight must be a finite number, "
            f'got {series[row]!r}; drop such rows, or pass weight="" to use none.',
            parameter="weight",
        )
    return np.array(weight.to_numpy(), np.float32)
