"""Events that a model observes, in the form of the rows that it knows."""

import warnings
from dataclasses import replace

import numpy as np
import polars as pl

from shortlist.data.columns import NO_RETURNS
from shortlist.data.events import Events
from shortlist.data.history import History
from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions, keeps_negative
from shortlist.errors import DataError, DataWarning, warn


def match_events(history: History, events: Events, uses_new_items: bool) -> Events:
    """The events in the form of the history: with times if it has them, without items it cannot use."""
    purchases, returns = events
    for n_rows, has_times in (
        (purchases.n_rows, purchases.time is not None),
        (returns.height, not returns["time"].null_count()),
    ):
        if n_rows and history.has_times != has_times:
            needed, got = ("times", "no times") if history.has_times else ("no times", "times")
            raise DataError(
                f"events must have {needed} like the data that the model was fitted on, got {got}; "
                "pass the same columns."
            )
    purchases, returns = _match_returns(history, purchases, returns)
    if history.base.weight is None:
        purchases = replace(purchases, weight=None)
    elif purchases.weight is None:
        purchases = replace(purchases, weight=np.ones(purchases.n_rows, np.float32))
    if uses_new_items or not purchases.n_rows:
        return Events(purchases, returns)
    history.items.check_type(purchases.items.values[0], "item id")
    is_known = history.items.align(purchases.items)[purchases.item] != UNKNOWN
    if not is_known.all():
        n_new = np.unique(purchases.item[~is_known]).size
        warnings.warn(
            f"{int((~is_known).sum())} of {is_known.size} events are skipped: the model cannot recommend "
            f"their {n_new} new items before it learns them; fit it again.",
            DataWarning,
            stacklevel=3,
        )
        purchases = purchases.where(is_known)
    return Events(purchases.compact(), returns)


def _match_returns(
    history: History, purchases: Interactions, returns: pl.DataFrame
) -> tuple[Interactions, pl.DataFrame]:
    """Returns as the history treats them: subtracted, kept as rows of negative weight, or dislikes."""
    if not returns.height:
        return purchases, returns
    history.users.check_new(returns["user_id"])
    history.items.check_new(returns["item_id"])
    base = history.base
    if base.source is not None and base.source.has_ratings and not keeps_negative(base):
        warn(
            f"{returns.height} events are skipped: their weight is negative, and the weights of the model's "
            "data are ratings; send what users like."
        )
        return purchases, NO_RETURNS
    if not keeps_negative(base):
        return purchases, returns
    rows = returns.with_columns(timestamp=pl.col("time").cast(pl.Datetime("us"))).drop("time")
    frames = [purchases.to_frame(), rows.select(purchases.to_frame().columns)] if purchases.n_rows else [rows]
    return Interactions.from_frame(pl.concat(frames), negative_weights="keep"), NO_RETURNS
