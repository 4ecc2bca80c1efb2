"""Tables of lists, from anywhere: which rows belong together, in which order, whether they can be lists."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from shortlist.data.id_map import IdMap, encode, id_series
from shortlist.errors import DataError
from shortlist.kernels.lists import repeat_find
from shortlist.types import Ints, Longs

NUMBERS = ("rank", "score", "probability", "boundary")
FORMATS = (".parquet", ".csv", ".jsonl")


class ListTable(NamedTuple):
    """A table as lists: rows without an item (empty lists) are gone from `shown`."""

    users: IdMap  # in the order of their first row
    item_ids: IdMap
    indptr: Longs  # (n_lists + 1,)
    items: Ints  # (n_shown,)
    shown: pl.DataFrame  # (n_shown,) rows, best first within a list
    first: pl.DataFrame  # (n_lists,) each user's first row


def parse(frame: pl.DataFrame, item_ids: IdMap | None) -> ListTable:
    """Group a table by user and order it by rank, else by falling score, else as it stands."""
    missing = {"user_id", "item_id"} - set(frame.columns)
    if missing:
        raise DataError(
            f"lists need columns user_id and item_id, got {frame.columns}; add {sorted(missing)}."
        )
    if frame["user_id"].null_count():
        raise DataError("user_id must be filled in every row of a list table, got a null; drop those rows.")
    frame = frame.with_columns(_numbers(frame, name) for name in NUMBERS if name in frame.columns)
    users, number = _by_appearance(frame["user_id"])
    frame, number = _ordered(frame, number)
    filled = frame["item_id"].is_not_null()
    shown, of = (frame, number) if filled.all() else (frame.filter(filled), number[filled.to_numpy()])
    found, items = _items(shown["item_id"], item_ids)
    indptr = np.zeros(len(users) + 1, np.int64)
    np.cumsum(np.bincount(of, minlength=len(users)), out=indptr[1:])
    again = repeat_find(indptr, items, np.full(len(found), -1, np.int32))
    if again >= 0:
        raise DataError(
            f"a list must not hold an item twice, got {shown['item_id'][again]!r} twice for user "
            f"{shown['user_id'][again]!r}; drop the repetition."
        )
    starts = np.searchsorted(number, np.arange(len(users)))
    return ListTable(users, found, indptr, items, shown, frame[pl.Series(starts)])


def _numbers(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as numbers; text that spells them will do."""
    column = frame[name]
    if column.dtype.is_numeric():
        return column
    try:
        numbers = column.cast(pl.Float64, strict=False)
    except pl.exceptions.PolarsError:
        numbers = pl.Series(name, [None] * len(column), dtype=pl.Float64)
    odd = column.filter(numbers.is_null() & column.is_not_null())
    if len(odd):
        raise DataError(f"{name} must hold numbers in a list table, got {odd[0]!r}; mend the column.")
    return numbers


def _by_appearance(column: pl.Series) -> tuple[IdMap, Ints]:
    """Distinct ids in the order of their first row, and the position of every row's id among them."""
    ids, code = encode(column)
    if (code[1:] >= code[:-1]).all():
        return ids, code
    first = np.empty(len(ids), np.int64)
    first[code[::-1]] = np.arange(code.size)[::-1]  # the last write, which is the first row, stays
    order = np.argsort(first)
    position = np.empty(len(ids), np.int32)
    position[order] = np.arange(len(ids), dtype=np.int32)
    return IdMap(ids.to_ids(order)), position[code]


def _ordered(frame: pl.DataFrame, number: Ints) -> tuple[pl.DataFrame, Ints]:
    """Rows by user, then by rank or score; a table in order already, as most are, is not sorted again."""
    key = next((name for name in ("rank", "score") if name in frame.columns), None)
    same, rising = number[1:] == number[:-1], number[1:] > number[:-1]
    if key is not None and frame[key].null_count() == 0:
        values = frame[key].to_numpy()
        same &= values[1:] >= values[:-1] if key == "rank" else values[1:] <= values[:-1]
    elif key is not None:
        same[:] = False
    if (rising | same).all():
        return frame, number
    frame = frame.with_columns(pl.Series("number", number))
    by = ["number"] if key is None else ["number", key]
    falling = [False] if key is None else [False, key == "score"]
    frame = frame.sort(by, descending=falling, nulls_last=True, maintain_order=True)
    return frame, frame["number"].to_numpy()


def _items(column: pl.Series, item_ids: IdMap | None) -> tuple[IdMap, Ints]:
    """The item table and every row's index in it."""
    if item_ids is None:
        return encode(id_series(column))
    items = item_ids.lookup(column)
    if (items < 0).any():
        stranger = column[int(np.argmax(items < 0))]
        raise DataError(
            f"lists must hold known items only, got {stranger!r}; use the item table they were made with."
        )
    return item_ids, items


def read_table(source: Path, item_ids: IdMap | None) -> pl.DataFrame:
    """A file of lists as a table."""
    if not source.is_file():
        raise DataError(f"no file of lists at {source}; check the path.")
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        ".parquet": pl.read_parquet,
        ".csv": partial(_read_csv, item_ids=item_ids),
        ".jsonl": partial(pl.read_ndjson, infer_schema_length=None),  # a file may open with empty lists
    }
    if source.suffix not in readers:
        raise DataError(f"lists are read from {', '.join(FORMATS)}, got {source.name!r}; change the ending.")
    try:
        return readers[source.suffix](source)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{source} is not a readable {source.suffix} file ({error}); write it again."
        ) from None


def _read_csv(source: Path, item_ids: IdMap | None) -> pl.DataFrame:
    """A table whose ids are integers only where every one is spelled as an integer: 007 stays a string."""
    texts = {"user_id": pl.String, "item_id": pl.String}
    frame = pl.read_csv(source, infer_schema_length=None, schema_overrides=texts)
    for name in texts.keys() & set(frame.columns):
        numbers = frame[name].cast(pl.Int64, strict=False)
        known_strings = name == "item_id" and item_ids is not None and item_ids.values.dtype == pl.String
        if not known_strings and numbers.cast(pl.String).eq_missing(frame[name]).all():
            frame = frame.with_columns(numbers)
    return frame
