"""Parse timestamps in common formats to microseconds since 1970 UTC."""

import re
from datetime import timedelta

import numpy as np
import polars as pl

from shortlist.errors import ConfigError, DataError
from shortlist.types import Longs

# The size of an epoch number determines its unit: seconds stay below 1e11 until the year 5138.
UNITS = ((1e11, "seconds", 1_000_000), (1e14, "milliseconds", 1_000), (1e17, "microseconds", 1))
DAYS = (19000101, 21001231)  # a column within this range is YYYYMMDD; as seconds it would be August 1970
# %.f also accepts no fraction. The first row determines the format; all rows must have it.
FORMATS = (
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


def parse_times(series: pl.Series, time_format: str | None = None) -> Longs:
    """(n_rows,) from epoch numbers, ISO strings, dates or datetimes; a time without zone is UTC.

    `time_format` is the strftime format of other strings, such as %m/%d/%Y.
    """
    if series.null_count():
        row = int(series.is_null().arg_max() or 0) + 1
        raise DataError(
            f"column {series.name!r}, row {row}: a timestamp must not be empty, got null in "
            f"{series.null_count():,} of {len(series):,} rows; fill or drop such rows, or pass "
            'timestamp="" to ignore times.',
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


def number_unit(low: float, high: float) -> str:
    """What `parse_times` takes a column of numbers between these for: days, or the unit of the largest."""
    return "days" if DAYS[0] <= low and high <= DAYS[1] else _unit(max(abs(low), abs(high)))[1]


def parse_duration(name: str, value: str | timedelta) -> int:
    """Microseconds of a timedelta or of a text such as 12h, 1d or 2w; `name` is the argument's."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    else:
        found = re.fullmatch(r"(\d{1,12})([smhdw])", str(value).strip())
        seconds = 0.0 if found is None else float(int(found[1]) * DURATION_UNITS[found[2]])
    if not 1e-6 <= seconds <= MAX_SECONDS:
        raise ConfigError(
            f"{name} must be a positive duration: a timedelta, or a whole number with s, m, h, d or w, "
            f"got {repr(value)[:40]}; write '1d'."
        )
    return round(seconds * 1e6)


def _row_error(series: pl.Series, bad: pl.Series, rule: str, tried: str | None = None) -> DataError:
    """The error for the first row marked in `bad`; `tried` is the format that was passed."""
    row = int(bad.arg_max() or 0)
    formats = [repr(one) for one in suggest_formats(str(series[row])) if one != tried]
    advice = f"time_format={' or '.join(formats)}" if formats else "their format as time_format"
    return DataError(
        f"column {series.name!r}, row {row + 1}: {rule}, got {series[row]!r}; "
        f"correct or drop such rows, or pass {advice}.",
        parameter="time_format",
    )


def suggest_formats(text: str) -> list[str]:
    """Formats that fit a date with the year last, such as 31.12.2024 08:30; day first, then month first."""
    found = re.fullmatch(r"(\d\d?)([./-])(\d\d?)\2(\d{4}|\d\d)(T|\s*)(\d\d?:\d\d(:\d\d)?)?", text.strip())
    if found is None:
        return []
    first, mark, second, year, gap, clock, seconds = found.groups()
    time = "" if clock is None else f"{gap}%H:%M" + ("" if seconds is None else ":%S")
    dates = []
    if int(second) <= 12:
        dates.append(f"%d{mark}%m{mark}")
    if int(first) <= 12 and mark != ".":  # dots separate only dates with the day first
        dates.append(f"%m{mark}%d{mark}")
    return [f"{date}%{'Y' if len(year) == 4 else 'y'}{time}" for date in dates]


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
    _, unit, factor = _unit(float(series[0]))
    if len({_unit(size)[1] for size in _extremes(series, low, high)}) > 1:
        size = series.cast(pl.Float64).abs()
        below, above = _bounds(unit)
        raise _row_error(
            shown, (size < below) | (size >= above), f"all times must be in one unit ({unit} in row 1)"
        )
    if max(abs(low), abs(high)) >= 2.0**63:
        size = series.cast(pl.Float64).abs()
        raise _row_error(shown, size >= 2.0**63, "a timestamp must be a number below 2^63")
    if unit == "nanoseconds":
        return (series.cast(pl.Int64) // 1_000).to_numpy()
    if series.dtype.is_float():
        return (series.cast(pl.Float64) * factor).round().cast(pl.Int64).to_numpy()
    times, done = np.empty(len(series), np.int64), 0
    for chunk in series.get_chunks():  # not rechunked: that would be a copy
        np.multiply(chunk.to_numpy(), factor, out=times[done : done + len(chunk)], casting="unsafe")
        done += len(chunk)
    return times


def _extremes(series: pl.Series, low: float, high: float) -> tuple[float, float]:
    """The smallest and the largest absolute value."""
    if low >= 0:
        return low, high
    size = series.cast(pl.Float64).abs()
    return float(size.min()), float(size.max())  # type: ignore[arg-type]


def _unit(value: float) -> tuple[float, str, int]:
    return next((unit for unit in UNITS if abs(value) < unit[0]), (np.inf, "nanoseconds", 0))


def _bounds(unit: str) -> tuple[float, float]:
    """The range of absolute values that have this unit."""
    edges = [0.0, *(edge for edge, _, _ in UNITS), np.inf]
    at = ["seconds", "milliseconds", "microseconds", "nanoseconds"].index(unit)
    return edges[at], edges[at + 1]


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
    for pattern, time_format in FORMATS:
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
