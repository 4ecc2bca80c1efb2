"""StoredRows: interactions in the form in which a model file keeps them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.checks import check_array, check_whole_value, file_error
from shortlist.data.data_source import source_to_notes
from shortlist.data.history import History, Totals
from shortlist.data.interactions import Interactions
from shortlist.data.restore import MAX_TIME

ARRAYS = ("indptr", "item", "baskets", "user_baskets", "time", "weight")
COUNTS = "history.item_counts"
MAX_COUNT = 2**62


class StoredRows(NamedTuple):
    """Arrays, series and notes of a model file; arrays may be written part by part."""

    arrays: dict[str, Any]
    series: dict[str, pl.Series]
    notes: dict[str, Any]


def store_history(history: History) -> StoredRows:
    """The rows of a history, and its totals if they count the rows of other users too."""
    data = history.merged
    totals = history.counted
    if totals is not None and totals.n_rows == data.n_rows:
        totals = None
    arrays = {name: value for name in ARRAYS if (value := getattr(data, name)) is not None}
    return store_rows(data, arrays, data.fingerprint, data.n_rows, totals)


def store_rows(
    about: Interactions, arrays: Mapping[str, Any], fingerprint: str, n_rows: int, totals: Totals | None
) -> StoredRows:
    """The rows in `arrays`; ids, names and source are those of `about`."""
    series = {"users": about.users.values, "items": about.items.values}
    if about.item_names is not None:
        series["item_names"] = about.item_names
    found = {f"history.{name}": array for name, array in arrays.items()}
    notes = {"data": fingerprint, "rows": n_rows, **source_to_notes(about)}
    if totals is not None:
        found[COUNTS] = totals.item_counts
        notes["totals"] = {name: value for name, value in totals._asdict().items() if name != "item_counts"}
    return StoredRows(found, series, notes)


def restore_totals(arrays: Mapping[str, Any], notes: Mapping[str, Any], data: Interactions) -> Totals | None:
    """The totals of a shard's whole model; None if the file holds all users."""
    found = notes.get("totals")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise file_error("totals", "must be an object")
    counts = check_array(arrays, COUNTS, np.int64, (data.n_items,), low=0, high=MAX_COUNT)
    n_rows, n_pairs, n_baskets = (
        check_whole_value(found, name, 0, MAX_COUNT) for name in ("n_rows", "n_pairs", "n_baskets")
    )
    return Totals(
        n_rows, n_pairs, n_baskets, check_whole_value(found, "end_time", -MAX_TIME, MAX_TIME), counts
    )
