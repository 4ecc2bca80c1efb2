"""Columns of a table of interactions: found by name or alias, checked and parsed."""

import re
import time
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.data.ids import id_series
from shortlist.data.read_options import ALL_ROWS, ColumnNames, ReadOptions, advise_reading
from shortlist.errors import ConfigError, DataError
from shortlist.text import printable
from shortlist.types import Bools, Floats, Longs

NO_TIME, NO_WEIGHT = np.empty(0, np.int64), np.empty(0, np.float32)
NO_RETURNS = pl.DataFrame(
    schema={"user_id": pl.Null, "item_id": pl.Null, "time": pl.Int64, "weight": pl.Float32}
)


def _expand(words: str) -> str:
    """The words, or those of which "a b + c d" is short: ac ad bc bd."""
    first, plus, second = words.partition(" + ")
    return " ".join(a + b for a in first.split() for b in second.split()) if plus else words


def _read_words() -> dict[str, dict[str, str]]:
    """The words of columns.toml, separated by spaces, by section and name."""
    sections = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        section: {name: " ".join(map(_expand, lines)) for name, lines in names.items()}
        for section, names in sections.items()
    }


WORDS = _read_words()
ALIASES = ColumnNames(**WORDS["aliases"])
SECOND_ALIASES, ROLE_WORDS, ROW_WORDS = WORDS["second_aliases"], WORDS["role_words"], WORDS["row_words"]
TYPE_SUFFIX = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole writes the type into the header
TIME_UNIT = re.compile(r"(?<=.)(ms|us|ns|utc|gmt)$")  # timestamp_ms, created_at_utc
TIME_WORDS = set(ROLE_WORDS.pop("timestamp").split())
# 2024-05-01 13:45, 1.5.2024, 5/1/24 1:45 PM, 01-May-2024, May 1, 2024
MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = (
    rf"^\s*(\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,2}}[ -]{MONTH}[ -]\d{{2,4}}|"
    rf"{MONTH}[ -]\d{{1,2}}(, ?| |-)\d{{2,4}})([T ,].*)?$"
)
FIRST_EPOCH = 1e8  # seconds: 1973; smaller numbers are not taken for times
YEAR_1900 = -2_208_988_800_000_000  # microseconds since 1970
DAYS = (19000101, 21001231)  # a column within this range is YYYYMMDD; as seconds it would be August 1970
# The size of an epoch number determines its unit: seconds stay below 1e11 until the year 5138.
UNITS = (  # (absolute values from, below, name, microseconds)
    (0.0, 1e11, "seconds", 1_000_000),
    (1e11, 1e14, "milliseconds", 1_000),
    (1e14, 1e17, "microseconds", 1),
    (1e17, 2.0**63, "nanoseconds", 0),
)
# %.f also accepts no fraction. The first row determines the format; all rows must have it.
TIME_FORMATS = (
    (r"^\d{4}-\d{1,2}-\d{1,2}$", "%Y-%m-%d"),
    (r"^\d{4}/\d{1,2}/\d{1,2}$", "%Y/%m/%d"),
    (r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?$", "%Y-%m-%dT%H:%M:%S%.f"),
    (r"^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?(\.\d+)?$", "%Y-%m-%d %H:%M:%S%.f"),
    (r"^\d{4}/\d\d?/\d\d? \d\d?:\d\d(:\d\d)?(\.\d+)?$", "%Y/%m/%d %H:%M:%S%.f"),
)
ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?\s?(Z|UTC|[+-]\d\d:?\d\d)$"
NUMBER = r"^[+-]?\d+(\.\d*)?([eE][+-]?\d+)?$"
DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # seconds
MAX_SECONDS = 10**11  # as for epoch seconds; more would overflow microseconds


def named_columns(options: ReadOptions) -> ColumnNames:
    """The columns that the caller named."""
    return ColumnNames(*(getattr(options, role) for role in ColumnNames._fields))


def row_conditions(options: ReadOptions) -> tuple[str, ...]:
    """The conditions that rows must fulfill."""
    conditions = options.where if isinstance(options.where, tuple) else (options.where,)
    return tuple(condition for condition in conditions if condition is not None and condition != ALL_ROWS)


def plain_name(name: str) -> str:
    """A column name without case, accents, punctuation and RecBole type."""
    return re.sub(r"[^a-z0-9]", "", _fold(TYPE_SUFFIX.sub("", name)).lower())


def _fold(text: str) -> str:
    """A text without accents."""
    if text.isascii():
        return text
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


def is_alias(name: str, role: str) -> bool:
    """Whether a column name is an alias of a role; times may end in their unit, and a list has none."""
    if name.endswith("[]"):
        return False
    plain, aliases = plain_name(name), ALIASES._asdict()[role].split()
    return plain in aliases or (role == "timestamp" and TIME_UNIT.sub("", plain) in aliases)


def is_second_alias(name: str, role: str) -> bool:
    """Whether a column has the role if no other has: an e-mail address, or the last name of a path."""
    tail = re.split(r"[.\]]", name)[-1]
    return plain_name(name) in SECOND_ALIASES.get(role, "").split() or (tail != name and is_alias(tail, role))


def name_words(name: str) -> list[str]:
    """The words of a column name in lower case: purchasedAt and PURCHASED_AT are purchased, at."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", _fold(TYPE_SUFFIX.sub("", name)))
    return re.findall(r"[a-z]+|\d+", split.lower())


def belongs_to_other_role(name: str, role: str) -> bool:
    """Whether the name shows that the column holds something else, such as an order number for a user."""
    if any(is_alias(name, other) for other in ALIASES._fields if other != role):
        return True
    words = set(name_words(name))
    if words & set(ROLE_WORDS.get(role, "").split()):
        return False
    others = " ".join(words_of_role for other, words_of_role in ROLE_WORDS.items() if other != role)
    return bool(words & set(others.split())) or has_time_name(name)


def has_time_name(name: str) -> bool:
    """Whether the words of a column name are those of a time."""
    words = name_words(name)
    return bool(TIME_WORDS & set(words)) or (len(words) > 1 and words[-1] in ("at", "on"))


def looks_like_time(values: pl.Series) -> bool:
    """Whether the first values of a column are dates, or epoch numbers under the name of a time."""
    if values.dtype in (pl.Date, pl.Datetime):
        return True
    filled = values.drop_nulls()
    if not len(filled):
        return values.len() == 0 and has_time_name(values.name)  # a database: only the name is known
    if filled.dtype == pl.String and filled.str.contains(DATE).all():
        return True
    if not has_time_name(values.name) or not (filled.dtype == pl.String or filled.dtype.is_numeric()):
        return False
    numbers = filled.cast(pl.Float64, strict=False)
    if numbers.null_count():
        return False
    return bool((numbers >= FIRST_EPOCH).all() or numbers.is_between(*DAYS).all())


@dataclass(frozen=True)
class DataSource:
    """Where interactions come from: the column of each role, the unused columns, and notes.

    Parameters
    ----------
    label
        File, folder, kind of database or name of the dataset.
    columns
        Role → column, for the roles that were found among user_id, item_id, timestamp, weight, basket_id and
        item_name.
    unused
        Columns that were not read.
    notes
        What was changed, dropped or is in doubt, one sentence each.
    doubts
        The notes that are also warnings; saved models keep them as notes.
    has_ratings
        Whether weights are ratings, so that a negative one is a dislike and not a return.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"customer": ["ann", "bob"], "sku": [7, 8], "price": [1.5, 2.0]})
    >>> sl.Interactions.from_frame(table).source.describe()
    'columns: user_id = customer, item_id = sku; not used: price'
    """

    label: str
    columns: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = field(default=(), compare=False)
    has_ratings: bool = False

    def describe(self) -> str:
        """Return the columns in one line: which were used and which were not."""
        used = ", ".join(f"{role} = {_short(name)}" for role, name in self.columns.items())
        shown = ", ".join(map(_short, self.unused[:MAX_SHOWN]))
        more = f" and {len(self.unused) - MAX_SHOWN} more" if len(self.unused) > MAX_SHOWN else ""
        return f"columns: {used}; not used: {shown or 'none'}{more}"


MAX_PREVIEWED = 20  # columns
MAX_SHOWN = 12  # unused columns that are listed
RATINGS = ("rating", "ratings", "stars", "score")  # plain names of weights that are no quantities
ALLOWED_FUTURE = 86_400  # seconds: a time without zone may be ahead of UTC


def _short(name: str) -> str:
    """A column name of bounded length, without control characters."""
    text = printable(name)
    return text if len(text) <= 40 else text[:39] + "…"


REQUIRED = ("user_id", "item_id")
DROP_ROWS = (
    "name a column without empty values, such as the e-mail, or filter the table; or drop these rows, "
    f"such as guests' orders, by {advise_reading(missing='drop')}"
)
PREVIEW_ROWS = 2000  # of the unused columns, to find times, events, states and sessions
KIND_WORDS, PURCHASES, OTHER_EVENTS, VOID_STATES, FLAG_WORDS = (
    ROW_WORDS[name].split() for name in ("kind", "purchase", "other_event", "void", "flag")
)
FLAG_WORDS += VOID_STATES
TRUE_VALUES, FALSE_VALUES = (set(ROW_WORDS[name].split()) for name in ("true", "false"))
MAX_KINDS = 30  # different values of a column that says what a row is
SINGLE_ITEMS = 0.9  # share of baskets with one item that is in doubt if a column looks like a session


class ReturnTotals(NamedTuple):
    """What returns did: how many were matched with purchases, and how many of these vanished or shrank."""

    matched: int
    removed: int
    reduced: int


class Table:
    """The columns of a table of interactions; each can be read once; its memory is then released."""

    def __init__(
        self,
        frame: Any,
        options: ReadOptions,
        *,
        columnar: bool = False,
        label: str = "table",
        whole: pl.LazyFrame | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        """`columnar` collects a lazy table one column at a time: good for Parquet, wasteful for text.

        `whole` has all columns of the source if `frame` has only the needed ones.
        """
        self.returns_apart = False  # True: returns are neither subtracted nor rows, but listed in `returns`
        self.returns = NO_RETURNS
        self.options, self.label = options, label
        names = column_names(frame if whole is None else whole)
        self.roles = match_columns(names, named_columns(options))
        self.unused = tuple(name for name in names if name not in self.roles.values())
        if options.min_rating is not None and "weight" not in self.roles:
            raise DataError(
                "min_rating needs a column of ratings, got a table without one; name it by "
                f"{advise_reading(weight='…')}.",
                parameter="min_rating",
            )
        self.is_late = np.zeros(0, np.bool_)  # (n_rows,) rows to drop because of their time, once it is read
        self.notes = list(notes)
        self.doubts: list[str] = []  # notes that are also warnings
        self.sessions: list[str] = []  # unused columns that may be baskets
        if "timestamp" not in self.roles and options.timestamp != "" and self.unused:
            self._find_times(frame if whole is None else whole)
        self._find_kinds(frame if whole is None else whole)
        self._lazy = frame if columnar else None
        self._frame = None if columnar else _collect(frame, list(self.roles.values()))

    def _find_times(self, frame: Any) -> None:
        """Doubt that a table has no times if an unused column looks like one."""
        preview = preview_columns(frame, list(self.unused))
        times = [name for name in self.unused if looks_like_time(preview[name])]
        if times:
            listed = " and ".join(map(repr, times[:3]))
            looks = f"column {listed} looks like a time and is"
            if len(times) > 1:
                looks = f"columns {listed} look like times and are"
            self.doubt(
                f"{looks} not used; if it is when the user interacted, use "
                f"{advise_reading(timestamp=times[0])}, otherwise {advise_reading(timestamp='')}."
            )

    def _find_kinds(self, frame: Any) -> None:
        """Doubt that all rows are purchases if an unused column has events, states or flags that are none."""
        sessions = set(ROLE_WORDS["basket_id"].split())
        words = {name: set(name_words(name)) for name in self.unused}
        named = [name for name in self.unused if words[name] & {*KIND_WORDS, *FLAG_WORDS, *sessions}]
        preview = preview_columns(frame, named[:MAX_PREVIEWED]) if named else pl.DataFrame()
        for column in preview:
            text = _plain_values(column)
            if not len(text):
                continue
            name, conditions = column.name, row_conditions(self.options)
            is_settled = self.options.where == ALL_ROWS or any(name in text for text in conditions)
            advice = None if is_settled else _advise_where(column, text, words[name])
            if advice is not None:
                values = ", ".join(text.value_counts(sort=True).to_series(0).head(4).to_list())
                self.doubt(
                    f"column {name!r} ({values}) is not used and says that some rows are no purchases; "
                    f"keep the others by {advise_reading(where=advice)}, or all by "
                    f"{advise_reading(where=ALL_ROWS)}."
                )
            if words[name] & sessions and 1 < text.n_unique() < 0.8 * len(text):
                self.sessions.append(name)

    def doubt_baskets(self, n_baskets: int, n_rows: int) -> None:
        """Doubt baskets of one item if an unused column looks like a session or an order."""
        is_settled = "basket_id" in self.roles or self.options.basket_id == ""
        if self.sessions and not is_settled and n_baskets >= SINGLE_ITEMS * n_rows:
            name = self.sessions[0]
            self.doubt(
                f"{n_baskets:,} baskets have {n_rows:,} rows, because rows form a basket only if their "
                f"times are equal, and column {name!r} is not used; if it is the order or session, use "
                f"{advise_reading(basket_id=name)}, otherwise {advise_reading(basket_id='')}."
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
        notes, doubts = tuple(self.notes), tuple(self.doubts)
        return DataSource(self.label, dict(self.roles), self.unused, notes, doubts, self.has_ratings)

    def ids(self, role: str) -> pl.Series | None:
        """The ids of an optional column, without nulls."""
        if role not in self.roles:
            return None
        advice = f"fill or drop these rows; or ignore the column by {advise_reading(**{role: ''})}"
        return _check_ids(self._take(role), advice)

    def required_ids(self, role: str) -> pl.Series:
        """The ids of a column that `match_columns` guarantees."""
        return _check_ids(self._take(role), DROP_ROWS)

    def times(self) -> Longs:
        """(n_rows,) microseconds since 1970 UTC; (0,) without times."""
        if "timestamp" not in self.roles:
            return NO_TIME
        column, time_format = self._take("timestamp"), self.options.time_format
        if time_format is None and column.dtype == pl.String:
            time_format = guess_time_format(column)
            if time_format is not None:
                self.note(
                    f"the times in column {column.name!r} were read as {time_format}, the only format that "
                    "fits all of them."
                )
        times = parse_times(column, time_format)
        self._doubt_early(times)
        self.is_late = is_future(times)
        if self.options.future is None:
            self.is_late[:] = False
        if self.is_late.any():
            self._note_future(times)
        return times

    def _doubt_early(self, times: Longs) -> None:
        """Doubt times before 1900, which are often what stands for a missing time."""
        n_early = int((times < YEAR_1900).sum())
        if n_early:
            self.doubt(
                f"{n_early:,} of {times.size:,} rows have a time before 1900 (column "
                f"{self.roles['timestamp']!r}), which is probably a missing one; correct or drop these rows."
            )

    def _note_future(self, times: Longs) -> None:
        """Add a note on times in the future; DataError if they are not allowed."""
        late, name = np.flatnonzero(self.is_late), self.roles["timestamp"]
        days = [str(datetime.fromtimestamp(min(times[row] / 1e6, 2e11), UTC).date()) for row in late[:3]]
        listed = ", ".join(f"row {row + 1:,} ({day})" for row, day in zip(late, days, strict=False))
        rows = f"{late.size:,} of {times.size:,} rows have a time in the future (column {name!r}: {listed}"
        rows += ", …)" if late.size > len(days) else ")"
        if self.options.future == "error" or (self.options.future == "drop" and late.size == times.size):
            raise DataError(
                f"a time must not lie in the future, which would move the lists of all users: {rows}; "
                f"correct the rows; or drop or keep them by {advise_reading(future='drop')} or "
                f"{advise_reading(future='keep')}.",
                parameter="future",
            )
        if self.options.future == "drop":
            return self.note(f"{rows} and were dropped.")
        self.is_late = np.zeros(times.size, np.bool_)
        return self.note(f"{rows} and were kept.")

    def weights(self) -> Floats:
        """(n_rows,) finite weights, negative below `min_rating`; (0,) without weights."""
        if "weight" not in self.roles:
            return NO_WEIGHT
        column = self._take("weight")
        numbers, note = parse_numbers(column) if column.dtype == pl.String else (column, None)
        if note is not None:
            self.note(note)
        weight, least = _check_weights(numbers, column), self.options.min_rating
        return weight if least is None else np.where(weight < least, weight - np.float32(least), weight)

    @property
    def has_ratings(self) -> bool:
        """Whether the weights are ratings, so that a negative one is a dislike and not a return."""
        return self.options.min_rating is not None or plain_name(self.roles.get("weight", "")) in RATINGS

    def note_negative(self, n: int, n_rows: int, outcome: ReturnTotals | None = None) -> None:
        """Add a note on n rows of negative weight; DataError if no row is left."""
        is_rated, is_kept = self.options.min_rating is not None, self.options.negative_weights == "keep"
        rule = f"a rating below {self.options.min_rating:g}" if is_rated else "a negative weight"
        rows = f"{n:,} of {n_rows:,} rows have {rule} (column {self.roles.get('weight')!r})"
        n_removed = (0 if is_kept else n) + (0 if outcome is None else outcome.removed)
        if n and n_removed == n_rows:
            raise DataError(
                f"{rows}, which leaves none; keep them by {advise_reading(negative_weights='keep')}, "
                f"or ignore the weights by {advise_reading(weight='')}.",
                parameter="min_rating" if is_rated else "negative_weights",
            )
        if outcome is not None:
            self.note(
                f"{rows}, such as a return: {outcome.matched:,} were subtracted from the latest earlier "
                f"purchases of the same user and item, of which {outcome.removed:,} were removed and "
                f"{outcome.reduced:,} reduced; {n - outcome.matched:,} without such a purchase were dropped."
            )
        elif is_rated:
            self.note(f"{rows} and were {'kept as negative feedback' if is_kept else 'dropped'}.")
        elif n and is_kept:
            self.note(
                f"{rows} and were kept as negative feedback; models use it if their weighting is not 'none'."
            )
        elif n:
            self.doubt(
                f"{rows}, such as a return or a dislike, and were dropped; the earlier purchase stays; "
                f"to keep these rows: {advise_reading(negative_weights='keep')}."
            )

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


def _plain_values(column: pl.Series) -> pl.Series:
    """The values of a column as short texts in lower case, without those that are empty."""
    if column.dtype.is_nested() or column.dtype == pl.Null:
        return pl.Series(dtype=pl.String)
    text = column.cast(pl.String, strict=False).drop_nulls().str.strip_chars().str.to_lowercase()
    return text.filter(text != "").str.slice(0, 30)


def _advise_where(column: pl.Series, text: pl.Series, words: set[str]) -> str | None:
    """A condition for the rows that are purchases, or None if the column does not say that others are not."""
    name = sql_name(column.name)
    values = text.unique().sort().to_list()
    plain = {value: plain_name(value.removeprefix("wc-")) for value in values}
    original = {str(value).strip().lower(): str(value) for value in column.drop_nulls().unique().to_list()}
    if words & set(FLAG_WORDS):
        if set(values) <= TRUE_VALUES | FALSE_VALUES:
            false = next((value for value in values if value in FALSE_VALUES), "false")
            shown = (
                false
                if column.dtype != pl.String or false[0].isdigit()
                else f"'{original.get(false, false)}'"
            )
            return f"{name} = {shown}" if set(values) & TRUE_VALUES else None
        return f"{name} is null" if column.null_count() > len(column) / 2 else None
    if not words & set(KIND_WORDS) or len(values) > MAX_KINDS:
        return None
    void = [original.get(value, value) for value in values if plain[value] in VOID_STATES]
    if void:
        return f"{name} not in ({', '.join(map(repr, void))})"
    bought = next((value for word in PURCHASES for value in values if plain[value] == word), None)
    if bought is None or not set(OTHER_EVENTS) & set(plain.values()):
        return None
    return f"{name} = {original.get(bought, bought)!r}"


def sql_name(name: str) -> str:
    """A column as `where` may name it: as it is, if it begins with a letter."""
    return name if re.fullmatch(r"[^\W\d][^\"']*", name) else f'"{name}"'


def tuples_to_frame(rows: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    """A table with conventional column names from (user_id, item_id[, timestamp[, weight]]) tuples."""
    table = [tuple(row) for row in rows]
    widths = {len(row) for row in table}
    if not table or len(widths) != 1 or not widths <= {2, 3, 4}:
        got = "no rows" if not table else f"lengths {sorted(widths)[:5]}"
        raise DataError(f"tuples must all be (user, item[, timestamp[, weight]]), got {got}; use one length.")
    columns: dict[str, Any] = dict(zip(ColumnNames._fields, zip(*table, strict=True), strict=False))
    for name in REQUIRED:
        try:
            columns[name] = id_series(columns[name])
        except DataError as error:
            raise DataError(f"{name}, {error}") from None
    try:
        return pl.DataFrame([pl.Series(name, column, strict=False) for name, column in columns.items()])
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"tuples must hold plain values ({_first_line(error)}); convert them.") from None


def match_columns(names: list[str], named: ColumnNames) -> dict[str, str]:
    """Role → column name, for the roles that the table has."""
    roles = {}
    for role, name in named._asdict().items():
        column = find_column(role, names) if name is None else _check_given(role, name, names)
        if column is not None:
            roles[role] = column
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
    any_name: object = name
    if not isinstance(any_name, str):
        raise DataError(f"{role} must be the name of a column, got a {type(name).__name__}; pass a string.")
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
    columns = _find_aliases(role, names)
    if len(columns) > 1:
        listed = " or ".join(map(repr, columns))
        leave = "" if role in REQUIRED else f", or use none by {advise_reading(**{role: ''})}"
        likely = max(columns, key=lambda name: "[]" in name)
        raise DataError(
            f"{role} must match one column, got {listed}; name one by "
            f"{advise_reading(**{role: likely})}{leave}.",
            parameter=role,
        )
    return columns[0] if columns else None


def _find_aliases(role: str, names: list[str]) -> list[str]:
    """The column with the conventional name of this role, or those with an alias."""
    if role in names:
        return [role]
    aliases = [name for name in names if is_alias(name, role)]
    aliases = aliases or [name for name in names if is_second_alias(name, role)]
    return [name for name in aliases if plain_name(name) == role.replace("_", "")] or aliases


def settle_names(
    preview: Callable[[list[str]], pl.DataFrame], names: list[str], options: ReadOptions
) -> tuple[ReadOptions, list[str]]:
    """The options with a choice between several aliases of a role, and notes, if the first rows show one.

    Empty columns are left out, and for baskets those that differ in every row. The first of the others is
    chosen if all of them tell the same rows apart, such as an id and a code of the same product.
    """
    notes, named = [], named_columns(options)
    for role, name in named._asdict().items():
        aliases = _find_aliases(role, names) if name is None else []
        if len(aliases) < 2 or any("[]" in other for other in aliases):
            continue
        values = [preview([other]).to_series() for other in aliases]
        why = {column.name: "is empty" for column in values if not len(_plain_values(column))}
        if role == "basket_id" and any(column.n_unique() < len(column) for column in values):
            rows = (column.name for column in values if column.n_unique() == len(column))
            why = dict.fromkeys(rows, "differs in every row") | why
        left = [column for column in values if column.name not in why]
        together = pl.DataFrame(left)
        n_different = together.n_unique()
        has_evidence = len(left) == 1 or n_different < together.height
        if left and has_evidence and all(column.n_unique() == n_different for column in left):
            name = left[0].name
            why |= {column.name: "tells the same rows apart" for column in left[1:]}
            listed = ", ".join(f"{other!r} {reason}" for other, reason in why.items())
            named = named._replace(**{role: name})
            notes.append(f"{role} is column {name!r}; {listed}.")
    return replace(options, **named._asdict()), notes


def _missing_message(role: str, names: list[str]) -> str:
    """The error message for a missing required column."""
    rule = f"the table must have a column {role!r} (or an alias of it), got none"
    return f"{rule}; {_advice(role, role, names)} Name it by {advise_reading(**{role: '…'})}."


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


def preview_columns(frame: Any, columns: list[str]) -> pl.DataFrame:
    """The first rows of these columns of any table."""
    is_arrow = hasattr(frame, "column_names")
    return _collect(frame.slice(0, PREVIEW_ROWS) if is_arrow else frame.head(PREVIEW_ROWS), columns)


def _collect(frame: Any, columns: list[str]) -> pl.DataFrame:
    """These columns as a polars table."""
    if isinstance(frame, (pl.DataFrame, pl.LazyFrame)) or hasattr(frame, "column_names"):
        return to_polars(frame.select(columns))
    originals = {str(name): name for name in frame.columns}  # pandas allows names that are not strings
    return to_polars(frame[[originals[name] for name in columns]])


def to_polars(frame: Any, what: str = "data") -> pl.DataFrame:
    """A polars, pandas or Arrow table as a polars table; `what` it is, for messages."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__dataframe__")):
        raise DataError(
            f"{what} must be a polars, pandas or Arrow table, got a {type(frame).__name__}; convert it, or "
            "read a file."
        )
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


COMMA_DECIMALS = r"^[+-]?(\d+|\d{1,3}([. \u00a0\u202f']\d{3})+)(,\d+)?$"  # 1,5 and 1.234,50
POINT_DECIMALS = r"^[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?$"  # 1.5 and 1,234.50


def parse_numbers(series: pl.Series) -> tuple[pl.Series, str | None]:
    """Numbers of a column of texts, which stay texts where they are none, and a note if commas were read.

    A comma is a decimal comma if all values can be read so, unless each is followed by three digits: 1,234
    is a thousand if no other value shows the contrary.
    """
    text = series.str.strip_chars()
    if not text.str.contains(",", literal=True).any():
        return text, None
    filled = text.drop_nulls()
    shape = "decimal commas" if filled.str.contains(COMMA_DECIMALS).all() else ""
    grouped = filled.filter(filled.str.contains(",", literal=True)).str.contains(POINT_DECIMALS).all()
    if grouped and filled.str.contains(POINT_DECIMALS).all():
        shape = "thousands separated by commas"
    if not shape:
        return text, None
    if shape == "decimal commas":
        plain = text.str.replace_all(r"[. \u00a0\u202f']", "").str.replace(",", ".", literal=True)
    else:
        plain = text.str.replace_all(",", "", literal=True)
    example = filled.filter(filled.str.contains(",", literal=True))[0]
    return plain, f"column {series.name!r} has {shape}, such as {example}."


def _check_weights(series: pl.Series, shown: pl.Series) -> Floats:
    """Finite 32-bit weights; `shown` has the original values, for messages."""
    if series.dtype != pl.String and not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise DataError(
            f"column {series.name!r}: weights must be numbers, got {series.dtype}; "
            f"use none by {advise_reading(weight='')}.",
            parameter="weight",
        )
    weight = series.cast(pl.Float32, strict=False)
    bad = weight.is_null() | ~weight.is_finite().fill_null(False)
    if bad.any():
        row = int(bad.arg_max() or 0)
        got = "null" if shown[row] is None else repr(shown[row])
        raise DataError(
            f"column {series.name!r}, row {row + 1}: a weight must be a finite number, got {got} "
            f"({int(bad.sum()):,} of {len(series):,} rows have none); drop or fill such rows; or use no "
            f"weights, which counts returns as purchases, by {advise_reading(weight='')}.",
            parameter="weight",
        )
    return np.array(weight.to_numpy(), np.float32)


def parse_times(series: pl.Series, time_format: str | None = None) -> Longs:
    """(n_rows,) from epoch numbers, ISO strings, dates or datetimes; a time without zone is UTC.

    `time_format` is the strftime format of other strings, such as %m/%d/%Y.
    """
    if series.null_count():
        row = int(series.is_null().arg_max() or 0) + 1
        raise DataError(
            f"column {series.name!r}, row {row}: a timestamp must not be empty, got null in "
            f"{series.null_count():,} of {len(series):,} rows; fill or drop such rows; or ignore "
            f"times by {advise_reading(timestamp='')}.",
            parameter="timestamp",
        )
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype == pl.String:
        return _from_strings(series) if time_format is None else _from_format(series, time_format)
    if series.dtype in (pl.Date, pl.Datetime):
        return series.cast(pl.Datetime("us")).to_physical().to_numpy()
    if series.dtype.is_numeric():
        return _from_numbers(series)
    raise DataError(
        f"column {series.name!r}: timestamps must be epoch numbers, ISO strings, dates or datetimes, "
        f"got {series.dtype}; cast the column first."
    )


def is_future(times: Longs) -> Bools:
    """(n_rows,) whether times lie after tomorrow."""
    return times > (time.time() + ALLOWED_FUTURE) * 1e6


def parse_duration(name: str, value: str | timedelta) -> int:
    """Microseconds of a timedelta or of a text such as 12h, 1d or 2w; `name` is the argument's."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    else:
        match = re.fullmatch(r"(\d{1,12})([smhdw])", str(value).strip())
        seconds = 0.0 if match is None else float(int(match[1]) * DURATION_UNITS[match[2]])
    if not 1e-6 <= seconds <= MAX_SECONDS:
        raise ConfigError(
            f"{name} must be a positive duration: a timedelta, or a whole number with s, m, h, d or w, "
            f"got {repr(value)[:40]}; write '1d'."
        )
    return round(seconds * 1e6)


def _row_error(series: pl.Series, bad: pl.Series, rule: str, tried: str | None = None) -> DataError:
    """The error for the first row marked in `bad`; `tried` is the format that was passed."""
    row = int(bad.arg_max() or 0)
    formats = [time_format for time_format in suggest_formats(str(series[row])) if time_format != tried]
    calls = " or ".join(advise_reading(time_format=time_format) for time_format in formats or ["…"])
    return DataError(
        f"column {series.name!r}, row {row + 1}: {rule}, got {series[row]!r}; "
        f"correct or drop such rows; or use {calls}.",
        parameter="time_format",
    )


def guess_time_format(series: pl.Series) -> str | None:
    """The only suggested format that fits all rows; None for ISO 8601 and numbers, or if none or two fit."""
    filled = series.drop_nulls()
    text = filled.str.strip_chars()
    fitting = [
        time_format
        for time_format in (suggest_formats(text[0]) if len(text) else [])
        if text.str.to_datetime(time_format, strict=False, time_unit="us").null_count() == 0
    ]
    return fitting[0] if len(fitting) == 1 else None


def suggest_formats(text: str) -> list[str]:
    """Formats that fit a date with the year last, such as 31.12.2024 08:30; day first, then month first."""
    match = re.fullmatch(
        rf"(\d\d?|{MONTH})([./ -])(\d\d?|{MONTH})(\2|, ?)(\d{{4}}|\d\d)(T|,?\s*)"
        r"(\d\d?:\d\d(:\d\d)?)?( ?[AaPp][Mm])?",
        text.strip(),
    )
    if match is None:
        return []
    first, mark, second, gap, year, between, clock, seconds, half = match.groups()
    time = "" if clock is None else f"{between}{'%H' if half is None else '%I'}:%M"
    time += ("" if seconds is None else ":%S") + ("" if half is None else half[:-2] + "%p")
    month = next((name for name in (first, second) if name.isalpha()), None)
    orders = [("%d", "%m")] if month is None and int(second) <= 12 else []
    if month is None and int(first) <= 12 and mark != ".":  # dots separate only dates with the day first
        orders.append(("%m", "%d"))
    if month is not None:
        orders = [("%B", "%d") if month == first else ("%d", "%B")]
    return [f"{a}{mark}{b}{gap}%{'Y' if len(year) == 4 else 'y'}{time}" for a, b in orders]


def _from_numbers(series: pl.Series, shown: pl.Series | None = None) -> Longs:
    """Epoch numbers of one unit; `shown` has the original values, for messages."""
    shown = series if shown is None else shown
    if series.dtype.is_decimal():
        series = series.cast(pl.Float64)
    if series.dtype.is_float() and not series.is_finite().all():
        raise _row_error(shown, ~series.is_finite(), "a timestamp must be a finite number")
    low, high = float(series.min()), float(series.max())  # type: ignore[arg-type]
    if DAYS[0] <= low and high <= DAYS[1]:
        days = series.cast(pl.Int64).cast(pl.String).str.to_date("%Y%m%d", strict=False)
        if days.null_count() == 0:
            return days.cast(pl.Datetime("us")).to_physical().to_numpy()
    least, limit, unit, factor = _unit(float(series[0]))
    if {_unit(low), _unit(high)} != {(least, limit, unit, factor)} or max(-low, high) >= limit:
        size = series.cast(pl.Float64).abs()
        rule = f"all times must be in one unit ({unit} in row 1)"
        if max(-low, high) >= UNITS[-1][1]:
            rule = "a timestamp must be a number below 2^63"
        raise _row_error(shown, (size < least) | (size >= limit), rule)
    if unit == "nanoseconds":
        return (series.cast(pl.Int64) // 1_000).to_numpy()
    if series.dtype.is_float():
        return (series.cast(pl.Float64) * factor).round().cast(pl.Int64).to_numpy()
    times, done = np.empty(len(series), np.int64), 0
    for chunk in series.get_chunks():  # not rechunked: that would be a copy
        np.multiply(chunk.to_numpy(), factor, out=times[done : done + len(chunk)], casting="unsafe")
        done += len(chunk)
    return times


def _unit(value: float) -> tuple[float, float, str, int]:
    """The entry of UNITS for a time."""
    return next((unit for unit in UNITS if abs(value) < unit[1]), UNITS[-1])


def _from_strings(series: pl.Series) -> Longs:
    text = series.str.strip_chars()
    first = text.head(1)
    if first.str.contains(NUMBER).item():
        whole = text.cast(pl.Int64, strict=False)
        number = whole if whole.null_count() == 0 else text.cast(pl.Float64, strict=False)
        if number.null_count():
            raise _row_error(series, number.is_null(), "all times must have one format (a number in row 1)")
        return _from_numbers(number, series)
    if first.str.contains(ZONED).item():
        normal = text.str.replace(r"\s?(Z|UTC)$", "+00:00").str.replace(" ", "T", literal=True)
        normal = _with_seconds(normal.str.replace(r"\s", ""))
        return _check_parsed(
            series, normal.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", strict=False, time_unit="us")
        )
    for pattern, time_format in TIME_FORMATS:
        if first.str.contains(pattern).item():
            normal = _with_seconds(text) if "%H" in time_format else text
            return _check_parsed(series, normal.str.to_datetime(time_format, strict=False, time_unit="us"))
    raise _row_error(series, pl.Series([True]), "a timestamp must be an epoch number or ISO 8601")


def _from_format(series: pl.Series, time_format: str) -> Longs:
    try:
        times = series.str.strip_chars().str.to_datetime(time_format, strict=False, time_unit="us")
    except pl.exceptions.PolarsError:
        raise ConfigError(
            f"time_format must be a strftime format with a date, got {time_format!r}; for 31.12.2024 "
            "08:30 write '%d.%m.%Y %H:%M'."
        ) from None
    if times.null_count():
        raise _row_error(
            series, times.is_null(), f"every time must have the format {time_format}", time_format
        )
    return times.to_physical().to_numpy()


def _with_seconds(text: pl.Series) -> pl.Series:
    """Append :00 to times without seconds, in every row if the first row has none."""
    if text.head(1).str.contains(r"\d:\d\d:\d").item():
        return text
    return text.str.replace(r"([T ]\d\d?:\d\d)($|[+-])", "${1}:00${2}")


def _check_parsed(series: pl.Series, times: pl.Series) -> Longs:
    if times.null_count():
        raise _row_error(series, times.is_null(), f"all times must have one format (row 1 is {series[0]!r})")
    return times.to_physical().to_numpy()
