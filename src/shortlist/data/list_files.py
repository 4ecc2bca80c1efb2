"""Parse tables of ranked lists: group rows by user, sort and check them; build such tables."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.ragged import starts
from shortlist.data.columns import (
    REQUIRED,
    ColumnNames,
    DataSource,
    check_distinct,
    find_column,
    match_columns,
)
from shortlist.data.files import check_converted, explain_json_error, open_sources
from shortlist.data.ids import IdMap, id_series
from shortlist.data.interactions import encode
from shortlist.errors import DataError
from shortlist.kernels.rows import find_repeated_item
from shortlist.types import Floats, Ints, Longs

if TYPE_CHECKING:
    from shortlist.data.lists import RankedLists


NUMBERS = ("rank", "score", "probability", "propensity", "boundary")
IDS_ONLY = ColumnNames(timestamp="", weight="", basket_id="", item_name="")
NATIVE = (
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    *(pl.Float32, pl.Float64),
)
FORMATS = (".parquet", ".csv", ".jsonl")


class ListTable(NamedTuple):
    """A parsed table; rows without an item (empty lists) are not in `shown`."""

    users: IdMap  # in the order of their first rows
    item_ids: IdMap
    indptr: Longs  # (n_lists + 1,)
    items: Ints  # (n_shown,)
    shown: pl.DataFrame  # (n_shown,) rows, best first within a list
    first: pl.DataFrame  # (n_lists,) each user's first row


def parse_lists(frame: pl.DataFrame, item_ids: IdMap | None) -> ListTable:
    """Group a table by user and sort each list by rank, else by descending score, else keep its order."""
    if not isinstance(frame, pl.DataFrame):
        raise DataError(
            f"a table of lists must be a polars table, got a {type(frame).__name__}; convert it first."
        )
    roles = match_columns(frame.columns, IDS_ONLY)
    frame = frame.rename({roles[role]: role for role in REQUIRED})
    if frame["user_id"].null_count() or (
        frame["user_id"].dtype == pl.String and (frame["user_id"] == "").any()
    ):
        raise DataError("user_id must be filled in every row of a list table, got a null; drop those rows.")
    frame = frame.with_columns(_parse_numbers(frame, name) for name in NUMBERS if name in frame.columns)
    users, number = _encode_in_order(frame["user_id"])
    frame, number = _sort(frame, number)
    filled = frame["item_id"].is_not_null()
    shown, list_of_row = (
        (frame, number) if filled.all() else (frame.filter(filled), number[filled.to_numpy()])
    )
    found, items = _encode_items(shown["item_id"], item_ids)
    indptr = starts(np.bincount(list_of_row, minlength=len(users)))
    repeated = find_repeated_item(indptr, items, np.full(len(found), -1, np.int32))
    if repeated >= 0:
        raise DataError(
            f"a list must not contain an item twice, got {shown['item_id'][repeated]!r} twice for user "
            f"{shown['user_id'][repeated]!r}; drop the duplicate."
        )
    first_rows = np.searchsorted(number, np.arange(len(users)))
    return ListTable(users, found, indptr, items, shown, frame[pl.Series(first_rows)])


def describe_columns(names: list[str]) -> str:
    """The columns of a list table in one line: those used, those not used, and what sorts the lists."""
    roles = match_columns(names, IDS_ONLY)
    key = next((name for name in ("rank", "score") if name in names), None)
    used = {*roles.values(), *NUMBERS, "reason", "length"}
    unused = tuple(name for name in names if name not in used)
    order = "in the order of the rows" if key is None else f"sorted by {key}"
    return f"{DataSource('lists', roles, unused).describe()}; {order}"


def _parse_numbers(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as numbers; text is converted."""
    column = frame[name]
    if column.dtype in NATIVE:
        return column
    try:
        numbers = column.cast(pl.Float64, strict=False)
    except pl.exceptions.PolarsError:
        numbers = pl.Series(name, [None] * len(column), dtype=pl.Float64)
    invalid = column.filter(numbers.is_null() & column.is_not_null())
    if len(invalid):
        got = repr(invalid.to_list()[0])[:60]
        raise DataError(f"{name} must be a number in a list table, got {got}; correct the column.")
    return numbers


def _encode_in_order(column: pl.Series) -> tuple[IdMap, Ints]:
    """A map of the distinct ids in the order of their first rows, and the dense index of every row."""
    ids, code = encode(column)
    if (code[1:] >= code[:-1]).all():
        return ids, code
    first = np.empty(len(ids), np.int64)
    first[code[::-1]] = np.arange(code.size)[::-1]  # the last write is the first row
    order = np.argsort(first)
    position = np.empty(len(ids), np.int32)
    position[order] = np.arange(len(ids), dtype=np.int32)
    return IdMap(ids.to_ids(order)), position[code]


def _sort(frame: pl.DataFrame, number: Ints) -> tuple[pl.DataFrame, Ints]:
    """Rows sorted by user, then by rank or score; most tables are sorted already and are not copied."""
    key = next((name for name in ("rank", "score") if name in frame.columns), None)
    same, next_user = number[1:] == number[:-1], number[1:] > number[:-1]
    if key is not None and frame[key].null_count() == 0:
        values = frame[key].to_numpy()
        same &= values[1:] >= values[:-1] if key == "rank" else values[1:] <= values[:-1]
    elif key is not None:
        same[:] = False
    if (next_user | same).all():
        return frame, number
    frame = frame.with_columns(pl.Series("number", number))
    by = ["number"] if key is None else ["number", key]
    descending = [False] if key is None else [False, key == "score"]
    frame = frame.sort(by, descending=descending, nulls_last=True, maintain_order=True)
    return frame, frame["number"].to_numpy()


def _encode_items(column: pl.Series, item_ids: IdMap | None) -> tuple[IdMap, Ints]:
    """The item map and the dense index of every row."""
    if item_ids is None:
        return encode(id_series(column))
    items = item_ids.lookup(column)
    if (items < 0).any():
        unknown = column[int(np.argmax(items < 0))]
        raise DataError(
            f"lists must contain known items only, got {unknown!r}; pass the items they were built with."
        )
    return item_ids, items


def list_parts(folder: Path) -> list[Path]:
    """The Parquet files of a folder of lists, in their order; a folder that is not complete is refused."""
    found = sorted(folder.glob("*.parquet"))
    if not found:
        raise DataError(f"{folder} must hold Parquet files with lists, got none; check the path.")
    _, _, total = found[0].stem.rpartition("-of-")
    if found[0].name.startswith("part-") and total.isdecimal() and int(total) != len(found):
        raise DataError(
            f"{folder} holds {len(found)} of {int(total)} files; complete it with the command that began it."
        )
    return found


def read_table(source: Path, item_ids: IdMap | None) -> pl.DataFrame:
    """Read a file of lists; its name is never a pattern."""
    if not source.is_file():
        raise DataError(f"no file of lists at {source}; check the path.")
    readers: dict[str, Callable[[Any], pl.DataFrame]] = {
        ".parquet": partial(pl.read_parquet, glob=False),
        ".csv": partial(_read_csv, item_ids=item_ids),
        ".jsonl": partial(_read_jsonl, path=source),
    }
    if source.suffix not in readers:
        advice = "rename it"
        if source.suffix == ".shortlist":
            advice = f"write the lists of this model first: shortlist recommend {source} --out lists.parquet"
        raise DataError(f"a file of lists must end in {', '.join(FORMATS)}, got {source.name!r}; {advice}.")
    try:
        (opened,) = open_sources([source], source.suffix.removeprefix("."))
        return readers[source.suffix](opened)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(
            f"{source} is not a readable {source.suffix} file ({str(error)[:150]}); write it again."
        ) from None


def _read_jsonl(source: Any, path: Path) -> pl.DataFrame:
    """1 and "1" are different ids."""
    try:
        frame = pl.read_ndjson(source, infer_schema_length=None)  # a file may start with empty lists
    except pl.exceptions.PolarsError:
        explain_json_error([path], IDS_ONLY)
        raise
    check_converted([path], frame, [name for role in REQUIRED if (name := find_column(role, frame.columns))])
    return frame


def _read_csv(source: Path | bytes, item_ids: IdMap | None) -> pl.DataFrame:
    """Ids become integers only if all of them are written as integers: 007 stays a string."""
    names = check_distinct(pl.read_csv(source, n_rows=0, glob=False).columns)
    roles = {name: role for role in REQUIRED if (name := find_column(role, names))}
    texts = dict.fromkeys(roles, pl.String)
    frame = pl.read_csv(source, infer_schema_length=None, schema_overrides=texts, glob=False)
    for name, role in roles.items():
        numbers = frame[name].cast(pl.Int64, strict=False)
        known_strings = role == "item_id" and item_ids is not None and item_ids.values.dtype == pl.String
        if not known_strings and numbers.cast(pl.String).eq_missing(frame[name]).all():
            frame = frame.with_columns(numbers)
    return frame


def scores_of(shown: pl.DataFrame, indptr: Longs) -> Floats:
    """The score column; without one, 0, -1, -2 … within each list, which gives the same order."""
    if "score" in shown.columns:
        return shown["score"].cast(pl.Float32).fill_null(np.nan).to_numpy()
    return (np.repeat(indptr[:-1], np.diff(indptr)) - np.arange(len(shown))).astype(np.float32)


def numeric_column(frame: pl.DataFrame, name: str, dtype: type) -> Any:
    """A numeric column with NaN for null, or None if it is absent or all null."""
    if name not in frame.columns or frame[name].null_count() == len(frame):
        return None
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(dtype)


def build_frame(lists: "RankedLists", names: bool) -> pl.DataFrame:
    """The table that RankedLists.to_frame returns."""
    lengths = np.diff(lists.indptr)
    rows = np.maximum(lengths, 1)
    number = np.repeat(np.arange(len(lists)), rows)
    filled = np.repeat(lengths > 0, rows)
    rank = np.zeros(number.size, np.int32)
    rank[filled] = lists.positions + 1
    at = np.zeros(number.size, np.int64)
    at[filled] = np.arange(lists.items.size)
    empty = pl.Series(~filled)

    def shown(values: pl.Series) -> pl.Series:
        picked = (
            values.gather(pl.Series(at)) if len(values) else pl.Series([None] * at.size, dtype=values.dtype)
        )
        return picked.set(empty, None) if len(values) else picked

    probability = np.full(lists.items.size, np.nan) if lists.probabilities is None else lists.probabilities
    per_list = lists.summary()
    frame = pl.DataFrame(
        {
            "user_id": lists.users.to_ids(number),
            "rank": rank,
            "item_id": shown(lists.item_ids.to_ids(lists.items)),
            "score": shown(pl.Series(lists.scores)),
            "probability": shown(pl.Series(probability).fill_nan(None)),
            "length": lengths[number].astype(np.int32),
            "boundary": per_list["boundary"].gather(pl.Series(number)),
            "reason": per_list["reason"].gather(pl.Series(number)),
        }
    )
    if lists.propensities is not None:
        frame = frame.with_columns(shown(pl.Series(lists.propensities)).alias("propensity"))
    if not names or lists.item_names is None:
        return frame
    return frame.with_columns(shown(lists.item_names.gather(pl.Series(lists.items))).alias("item_name"))
