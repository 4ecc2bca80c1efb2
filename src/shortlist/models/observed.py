"""Events for `observe`: read, checked against the history of the model, and restricted to usable items."""

import warnings
from collections.abc import Sized
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from shortlist.core.calls import warn
from shortlist.data.grouping import NO_BASKET, NO_TIME, NO_WEIGHT
from shortlist.data.history import History
from shortlist.data.id_map import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, DataWarning

NO_IDS = IdMap.of([])
NO_EVENTS = Interactions.from_dense(NO_IDS, NO_IDS, NO_BASKET, NO_BASKET, NO_TIME, NO_BASKET, NO_WEIGHT)


def read_events(events: Any) -> Interactions:
    """Events as Interactions: any form that `fit` accepts, or a list of tuples."""
    if isinstance(events, Interactions) or issparse(events):
        return Interactions.of(events)
    if isinstance(events, Sized) and len(events) == 0:
        return NO_EVENTS
    return Interactions.from_tuples(events) if isinstance(events, (list, tuple)) else Interactions.of(events)


def _drop_negative(events: Interactions) -> Interactions:
    """The events without returns and dislikes, which would count as purchases without their weights."""
    if events.weight is None or not (is_negative := events.weight < 0).any():
        return events
    warn(
        f"{int(is_negative.sum())} of {is_negative.size} events are skipped: their weight is negative, and "
        "the model was fitted without weights; fit it on data with weights."
    )
    return events.where(~is_negative)


def match_events(known: History, events: Interactions, uses_new_items: bool) -> Interactions:
    """The events in the form of the history: with times if it has them, without items it cannot use."""
    if events.n_rows and known.has_times == (events.time is None):
        needed, got = ("no times", "times") if not known.has_times else ("times", "no times")
        raise DataError(
            f"events must have {needed} like the data that the model was fitted on, got {got}; "
            "pass the same columns."
        )
    if not events.n_rows:
        return events
    if known.base.weight is None:
        events = replace(_drop_negative(events), weight=None)
    elif events.weight is None:
        events = replace(events, weight=np.ones(events.n_rows, np.float32))
    if uses_new_items:
        return events
    if events.n_items:
        known.items.check_type(events.items.values[0], "item id")
    is_known = known.items.align(events.items)[events.item] != UNKNOWN
    if not is_known.all():
        n_new = np.unique(events.item[~is_known]).size
        warnings.warn(
            f"{int((~is_known).sum())} of {is_known.size} events are skipped: the model cannot recommend "
            f"their {n_new} new items before it learns them; fit it again or use partial_fit.",
            DataWarning,
            stacklevel=3,
        )
        events = events.where(is_known)
    return events.compact()
