"""Rows without a user or an item, such as the orders of guests: an error, or dropped and counted."""

from typing import Any, Literal

import polars as pl

from shortlist.core.estimator import short_repr
from shortlist.data.aliases import ColumnNames
from shortlist.data.columns import REQUIRED, match_columns
from shortlist.errors import ConfigError, DataError

Missing = Literal["error", "drop"]


def check_missing(missing: Any) -> None:
    """Raise ConfigError unless rows without an id are an error or dropped."""
    if missing not in ("error", "drop"):
        raise ConfigError(
            f"missing must be 'error' or 'drop', got {short_repr(missing)}; choose one.", parameter="missing"
        )


def select_known(rows: Any, given: ColumnNames, missing: Missing) -> tuple[Any, str | None]:
    """(the rows with a user and an item, a sentence on the others); polars tables, lazy or not."""
    if missing == "error":
        return rows, None  # an error follows when the ids are read
    schema = rows.collect_schema()
    roles = match_columns(schema.names(), given)
    known = pl.lit(True)
    for role in REQUIRED:
        column = pl.col(roles[role])
        known &= column.is_not_null()
        if schema[roles[role]] == pl.String:
            known &= column != ""
    counted = rows.lazy().select(n=pl.len(), known=known.sum()).collect()
    n_rows, n_known = counted.row(0)
    if n_rows == n_known:
        return rows, None
    names = " or ".join(repr(roles[role]) for role in REQUIRED)
    if not n_known:
        raise DataError(
            f"{n_rows:,} of {n_rows:,} rows have no {names}, which leaves none; check the columns."
        )
    return rows.filter(known), f"{n_rows - n_known:,} of {n_rows:,} rows have no {names} and were dropped."
