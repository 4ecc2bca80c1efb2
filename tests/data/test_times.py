"""Timestamps of every format, and errors that name the first invalid row."""

import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.columns import parse_duration, parse_times
from shortlist.errors import ConfigError, DataError

TIME = datetime(2024, 5, 31, 22, 59, 30, tzinfo=UTC)
EPOCH = int(TIME.timestamp())
DAY = int(datetime(2024, 5, 31, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ([EPOCH], EPOCH),
        ([EPOCH * 1_000], EPOCH),
        ([EPOCH * 1_000_000], EPOCH),
        ([EPOCH * 1_000_000_000], EPOCH),
        ([EPOCH + 0.25], EPOCH + 0.25),
        ([Decimal(EPOCH)], EPOCH),
        ([str(EPOCH)], EPOCH),
        ([f"{EPOCH}.5"], EPOCH + 0.5),
        (["2024-05-31"], DAY),
        (["2024/5/31"], DAY),
        ([20240531], DAY),
        (["20240531"], DAY),
        (["2024-05-31T22:59:30"], EPOCH),
        (["2024-05-31 22:59:30.250"], EPOCH + 0.25),
        (["2024-05-31 22:59"], EPOCH - 30),
        (["2024/05/31 22:59:30"], EPOCH),
        (["2024-05-31T22:59:30Z"], EPOCH),
        (["2024-06-01T00:59:30+02:00"], EPOCH),
        (["2024-06-01 00:59:30.5 +0200"], EPOCH + 0.5),
        (["2024-05-31 22:59:30 UTC"], EPOCH),
        ([" 2024-05-31T22:59Z "], EPOCH - 30),
        ([date(2024, 5, 31)], DAY),
        ([TIME.replace(tzinfo=None)], EPOCH),
        ([TIME.astimezone(timezone(timedelta(hours=-7)))], EPOCH),
        ([-5], -5),
    ],
)
def test_formats(values, seconds):
    assert parse_times(pl.Series("when", values * 2)).tolist() == [round(seconds * 1_000_000)] * 2


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_datetimes_of_every_precision(unit):
    series = pl.Series([TIME.replace(tzinfo=None)]).cast(pl.Datetime(unit))
    assert parse_times(series).tolist() == [EPOCH * 1_000_000]


@given(st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1)))
def test_python_iso_strings_round_trip(time):
    expected = round(time.replace(tzinfo=UTC).timestamp() * 1_000_000)
    for text in (time.isoformat(), time.isoformat(" "), time.replace(tzinfo=UTC).isoformat()):
        assert abs(parse_times(pl.Series([text]))[0] - expected) <= 1


@given(st.lists(st.integers(0, 10**11 - 1), min_size=1, max_size=20))
def test_seconds_are_recognized(values):
    if min(values) < 19_000_101:
        assert parse_times(pl.Series(values)).tolist() == [value * 1_000_000 for value in values]


def test_chunks_are_joined_in_order():
    parts = pl.concat([pl.Series([1, 2]), pl.Series([3])], rechunk=False)
    assert parse_times(parts).tolist() == [1_000_000, 2_000_000, 3_000_000]


def test_custom_time_format():
    assert parse_times(pl.Series(["5/31/2024", "6/1/2024"]), "%m/%d/%Y").tolist() == [
        DAY * 1_000_000,
        (DAY + 86_400) * 1_000_000,
    ]
    with pytest.raises(DataError, match="row 2: every time must have the format %m/%d/%Y, got '13/1/2024'"):
        parse_times(pl.Series("d", ["1/1/2024", "13/1/2024"]), "%m/%d/%Y")
    with pytest.raises(ConfigError, match="time_format must be a strftime format"):
        parse_times(pl.Series(["10"]), "%H")


@pytest.mark.parametrize(
    ("values", "row", "rule"),
    [
        (["2024-05-31", "yesterday"], 2, "all times must have one format"),
        (["yesterday", "2024-05-31"], 1, "an epoch number or ISO 8601"),
        (["31/05/2024"], 1, "an epoch number or ISO 8601"),
        (["2024-05-31", "2024-05-31T10:00:00"], 2, "all times must have one format"),
        (["2024-05-31", "2024-02-30"], 2, "all times must have one format"),
        (["2024-05-31", str(EPOCH)], 2, "all times must have one format"),
        ([str(EPOCH), "2024-05-31"], 2, "all times must have one format"),
        (["2024-05-31T10:00:00", "2024-05-31T10:00:00Z"], 2, "all times must have one format"),
        ([EPOCH, EPOCH, EPOCH * 1000], 3, "all times must be in one unit .seconds in row 1."),
        ([EPOCH * 1000, 0], 2, "all times must be in one unit .milliseconds in row 1."),
        ([float(EPOCH), float("nan")], 2, "finite"),
    ],
)
def test_first_invalid_row_is_named(values, row, rule):
    with pytest.raises(DataError, match=rf"column 'when', row {row}: .*{rule}.*got .*time_format"):
        parse_times(pl.Series("when", values))


@pytest.mark.parametrize("known", [EPOCH, "2024-05-31"])
def test_nulls_are_named_and_counted(known):
    with pytest.raises(
        DataError, match=r"row 2: .* must not be empty, got null in 2 of 4 rows; .*timestamp=''"
    ):
        parse_times(pl.Series("when", [known, None, known, None]))


def test_other_types_are_rejected():
    with pytest.raises(DataError, match="got Boolean; cast the column"):
        parse_times(pl.Series("when", [True]))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43_200),
        ("1d", 86_400),
        ("2w", 1_209_600),
        (timedelta(hours=1), 3600),
    ],
)
def test_durations(value, seconds):
    assert parse_duration("every", value) == seconds * 1_000_000


@pytest.mark.parametrize(
    "value", ["", "d", "1", "-1d", "0d", "1.5d", "1 day", timedelta(0), 7, None, "9" * 12 + "w"]
)
def test_invalid_durations_are_refused(value):
    with pytest.raises(ConfigError, match="every must be a positive duration"):
        parse_duration("every", value)


@pytest.mark.parametrize("value", [1e30, -1e30, 2.0**63])
def test_numbers_beyond_64_bits_are_refused(value):
    with pytest.raises(DataError, match=r"a timestamp must be a number below 2\^63"):
        parse_times(pl.Series("date", [value, value]), None)


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        ("31.12.2024", ["%d.%m.%Y"]),
        ("01.02.2024 8:30", ["%d.%m.%Y %H:%M"]),
        ("12/31/2024", ["%m/%d/%Y"]),
        ("01/02/24 08:30:15", ["%d/%m/%y %H:%M:%S", "%m/%d/%y %H:%M:%S"]),
        ("yesterday", []),
    ],
)
def test_error_suggests_formats_that_fit(text, formats):
    with pytest.raises(DataError) as caught:
        parse_times(pl.Series("date", [text]), None)
    assert [one in str(caught.value) for one in formats] == [True] * len(formats)
    assert ("time_format='%" in str(caught.value)) == bool(formats)
    for one in formats:  # what is suggested works
        assert parse_times(pl.Series("date", [text]), one).size == 1


def test_error_does_not_suggest_the_format_that_was_passed():
    with pytest.raises(DataError, match=r"got '01\.01\.2024'; correct or drop such rows; or use") as caught:
        parse_times(pl.Series("date", ["01.01.2024"]), "%d.%m.%Y %H:%M")
    assert str(caught.value).endswith("time_format='%d.%m.%Y').")


@pytest.mark.parametrize(("first", "n_doubts"), [("0000-01-01", 1), ("1899-12-31", 1), ("1900-01-01", 0)])
def test_years_before_1900_are_doubted(first, n_doubts):
    table = pl.DataFrame({"user_id": ["a", "b"], "item_id": ["x", "y"], "timestamp": [first, "2024-05-01"]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = sl.Interactions.from_frame(table)
    assert [str(warning.message) for warning in caught] == list(data.source.doubts)
    assert sum("before 1900" in doubt for doubt in data.source.doubts) == n_doubts
