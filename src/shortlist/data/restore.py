"""Interactions from the arrays of a file, checked so that no index of them can leave its array."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.checks import check_array, check_ids, check_starts, file_error
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.kernels.group import find_invalid_row

MAX_TIME = 2**61  # microseconds: differences of two times do not overflow
PREFIX = "history."


def restore_interactions(arrays: Mapping[str, Any], series: Mapping[str, Any]) -> Interactions:
    """The interactions in `history.…` and in the series users, items and item_names."""
    users, items = IdMap(check_ids(series, "users")), IdMap(check_ids(series, "items"))
    n_rows = check_array(arrays, f"{PREFIX}item", np.int32, (None,)).size
    baskets = check_array(arrays, f"{PREFIX}baskets", np.int64, (None,))
    if not baskets.size or not n_rows:
        raise file_error(f"{PREFIX}item", "must have at least one row")
    baskets = check_starts(arrays, f"{PREFIX}baskets", baskets.size - 1, n_rows)
    indptr = check_starts(arrays, f"{PREFIX}indptr", len(users), n_rows)
    user_baskets = check_starts(arrays, f"{PREFIX}user_baskets", len(users), baskets.size - 1)
    if not np.array_equal(baskets[user_baskets], indptr):
        raise file_error(f"{PREFIX}user_baskets", "must divide the rows like indptr")
    time, weight = (
        check_array(arrays, PREFIX + name, dtype, (n_rows,)) if PREFIX + name in arrays else None
        for name, dtype in (("time", np.int64), ("weight", np.float32))
    )
    row = find_invalid_row(
        indptr,
        baskets,
        arrays[f"{PREFIX}item"],
        np.empty(0, np.int64) if time is None else time,
        len(items),
        MAX_TIME,
    )
    if row >= 0:
        raise file_error(
            f"{PREFIX}item",
            f"must hold indices of items, sorted by user, time and item, got something else in row {row}",
        )
    return Interactions(
        users=users,
        items=items,
        indptr=indptr,
        item=arrays[f"{PREFIX}item"],
        baskets=baskets,
        user_baskets=user_baskets,
        time=time,
        weight=weight,
        item_names=_item_names(series, len(items)),
    )


def _item_names(series: Mapping[str, Any], n_items: int) -> pl.Series | None:
    names = series.get("item_names")
    if names is not None and (names.dtype != pl.String or len(names) != n_items or names.null_count()):
        raise file_error("item_names", f"must be {n_items} texts, none missing")
    return names
