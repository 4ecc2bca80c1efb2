"""Which column is which: by convention, by alias, or by name; and whether its values can be used."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.times import parse_times
from shortlist.errors import DataError
from shortlist.types import Floats, Longs

# Compared in lower case without punctuation, so userId, USER_ID and "user id:token" are all `userid`.
SPELLINGS = """
user_id: userid user uid username customerid customer custid clientid visitorid memberid accountid
user_id: reviewerid shopperid householdkey householdid
item_id: itemid item iid productid product movieid movie articleid article sku trackid track songid song
item_id: artistid artist bookid book asin parentasin newsid videoid gameid businessid poiid venueid stockcode
timestamp: timestamp time datetime date ts eventtime unixtime unixreviewtime createdat transactiondate
timestamp: transactiondt transactiontime orderdate invoicedate purchasedate tdat day
weight: weight rating ratings stars count quantity qty plays playcount strength
basket_id: basketid basket orderid order invoiceid invoiceno invoice receiptid
item_name: itemname title itemtitle productname movietitle trackname booktitle
"""
ALIASES: dict[str, list[str]] = {}  # role → spellings, the conventional one first
for _role, _spellings in (line.split(": ") for line in SPELLINGS.strip().splitlines()):
    ALIASES.setdefault(_role, []).extend(_spellings.split())
REQUIRED = ("user_id", "item_id")
TYPE_SUFFIX = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole writes the type into the header


@dataclass(frozen=True, eq=False)
class Columns:
    """Clean columns of one length: ids without nulls, finite weights, times that all parse."""

    user_id: pl.Series
    item_id: pl.Series
    time: Longs | None = None  # (n_rows,) microseconds since 1970 UTC
    weight: Floats | None = None  # (n_rows,)
    basket_id: pl.Series | None = None
    item_name: pl.Series | None = None  # may hold nulls: an item without a name is ordinary


class Table:
    """The columns of a table, checked as they are taken; what was taken is let go, to keep memory low."""

    def __init__(
        self,
        frame: Any,
        given: dict[str, str | None],
        *,
        time_format: str | None = None,
        one_by_one: bool = False,
    ) -> None:
        """`one_by_one` reads a lazy table a column at a time: right for Parquet, wasteful for text."""
        unknown = next((role for role in given if role not in ALIASES), None)
        if unknown is not None:
            raise DataError(
                f"a column must be one of {', '.join(ALIASES)}, got {unknown!r}; choose one of them."
            )
        self.roles = match(_names(frame), {role: given.get(role) for role in ALIASES})
        self.time_format = time_format
        self._lazy = frame if one_by_one else None
        self._held = None if one_by_one else _collect(frame, list(self.roles.values()))

    def ids(self, role: str) -> pl.Series | None:
        """IdMap without nulls, if there is such a column."""
        return None if role not in self.roles else _ids(self._take(role))

    def required_ids(self, role: str) -> pl.Series:
        """IdMap of a column that `match` has made sure of."""
        return _ids(self._take(role))

    def times(self) -> Longs | None:
        """(n_rows,) microseconds since 1970 UTC."""
        if "timestamp" not in self.roles:
            return None
        return parse_times(self._take("timestamp"), self.time_format)

    def weights(self) -> Floats | None:
        """(n_rows,) finite."""
        return None if "weight" not in self.roles else _weights(self._take("weight"))

    def labels(self) -> pl.Series | None:
        """Item names; nulls are ordinary."""
        return None if "item_name" not in self.roles else self._take("item_name").cast(pl.String)

    def _take(self, role: str) -> pl.Series:
        name = self.roles[role]
        if self._held is not None:
            series = self._held.drop_in_place(name)
        else:
            series = _collect(self._lazy, [name]).to_series()
        if len(series) == 0:
            raise DataError(
                "a table of interactions must hold at least one row, got a header and nothing below; "
                "check how it was exported."
            )
        return series


def resolve(
    frame: Any,
    *,
    user_id: str | None = None,
    item_id: str | None = None,
    timestamp: str | None = None,
    weight: str | None = None,
    basket_id: str | None = None,
    item_name: str | None = None,
) -> Columns:
    """Find and check the columns of a polars (also lazy), pandas or Arrow table.

    None looks for the conventional name, then the aliases; "" leaves an optional column out.
    """
    table = Table(
        frame,
        {
            "user_id": user_id,
            "item_id": item_id,
            "timestamp": timestamp,
            "weight": weight,
            "basket_id": basket_id,
            "item_name": item_name,
        },
    )
    return Columns(
        user_id=table.required_ids("user_id"),
        item_id=table.required_ids("item_id"),
        time=table.times(),
        weight=table.weights(),
        basket_id=table.ids("basket_id"),
        item_name=table.labels(),
    )


def match(names: list[str], given: dict[str, str | None]) -> dict[str, str]:
    """Role → column, for the roles that have one."""
    roles = {}
    for role, name in given.items():
        found = _find(role, names) if name is None else _given(role, name, names)
        if found is not None:
            roles[role] = found
        elif role in REQUIRED:
            raise DataError(_missing(role, names))
    for role, name in roles.items():
        twin = next((other for other, at in roles.items() if at == name and other != role), None)
        if twin is not None:
            raise DataError(
                f"{role} and {twin} must be different columns, got {name!r} for both; name another."
            )
    return roles


def _plain(name: str) -> str:
    """A column name without case, punctuation and RecBole's type."""
    return re.sub(r"[^a-z0-9]", "", TYPE_SUFFIX.sub("", name).lower())


def _given(role: str, name: str, names: list[str]) -> str | None:
    if name == "" and role not in REQUIRED:
        return None
    if name in names:
        return name
    typed = [other for other in names if TYPE_SUFFIX.sub("", other) == name]
    if len(typed) == 1:
        return typed[0]
    raise DataError(f"{role} must name a column of the table, got {name!r}; {_advice(name, names)}")


def _find(role: str, names: list[str]) -> str | None:
    if role in names:
        return role
    found = [name for name in names if _plain(name) in ALIASES[role]]
    exact = [name for name in found if _plain(name) == ALIASES[role][0]]
    found = exact or found
    if len(found) > 1:
        listed = " or ".join(map(repr, found))
        leave = "" if role in REQUIRED else f', or {role}="" to use neither'
        raise DataError(f"one column must be the {role}, got {listed}; pass {role}={found[0]!r}{leave}.")
    return found[0] if found else None


def _missing(role: str, names: list[str]) -> str:
    """The sentence for a required column that is not there."""
    rule = f"a table of interactions must have a column {role!r} (or an alias of it), got none"
    return f"{rule}; {_advice(role, names)} Pass {role}='…' to name it."


def _advice(name: str, names: list[str]) -> str:
    """Did you mean, or what there is."""
    plain = {_plain(other): other for other in names}
    near = [plain[key] for key in get_close_matches(_plain(name), plain, n=2, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    return f"the columns are {shown}." if names else "the table has no columns at all."


def _names(frame: Any) -> list[str]:
    """Column names of any table, without loading it."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect_schema().names()
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)  # Arrow, then the others
    if names is None or not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__dataframe__")):
        raise DataError(
            "interactions must come as a polars, pandas or Arrow table or a SciPy matrix, got "
            f"{type(frame).__name__}; build them with shortlist.read, Interactions.from_tuples or from_csr."
        )
    return [str(name) for name in names]


def _collect(frame: Any, wanted: list[str]) -> pl.DataFrame:
    """Only the columns that are needed, as a polars table of our own."""
    if isinstance(frame, pl.LazyFrame):
        return frame.select(wanted).collect()
    if isinstance(frame, pl.DataFrame):
        return frame.select(wanted)
    if hasattr(frame, "column_names"):
        return _converted(frame.select(wanted))
    own = {str(name): name for name in frame.columns}  # pandas allows names that are not strings
    return _converted(frame[[own[name] for name in wanted]])


def _converted(frame: Any) -> pl.DataFrame:
    try:
        return pl.DataFrame(frame)
    except ImportError:
        raise DataError("a pandas table needs the package pyarrow to be read; install it with pip.") from None
    except Exception as error:  # Arrow and pandas raise classes that we do not import
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"every column must hold one type, got a mixture ({said}); cast the column to strings."
        ) from None


def _ids(series: pl.Series) -> pl.Series:
    """IdMap without nulls, strings or integers."""
    if series.null_count():
        row = int(series.is_null().arg_max() or 0) + 1
        raise DataError(
            f"column {series.name!r}, row {row}: an id must not be empty, got null; drop or fill such rows."
        )
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        return series.cast(pl.String)
    if series.dtype != pl.String and not series.dtype.is_integer():
        raise DataError(
            f"column {series.name!r}: ids must be strings or integers, got {series.dtype}; cast the column."
        )
    return series


def _weights(series: pl.Series) -> Floats:
    """Finite 32-bit weights."""
    if series.dtype != pl.String and not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise DataError(
            f"column {series.name!r}: weights must be numbers, got {series.dtype}; "
            'name another column as weight, or pass weight="" to use none.'
        )
    source = series.str.strip_chars() if series.dtype == pl.String else series
    weight = source.cast(pl.Float32, strict=False)
    bad = weight.is_null() | ~weight.is_finite().fill_null(False)
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise DataError(
            f"column {series.name!r}, row {row + 1}: a weight must be a finite number, "
            f'got {series[row]!r}; drop such rows, or pass weight="" to use none.'
        )
    return np.array(weight.to_numpy(), np.float32)
