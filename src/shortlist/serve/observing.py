"""Events of the store on their way into a model, and the preparation of a model for requests and events."""

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.errors import ShortlistError
from shortlist.models.base import Recommender
from shortlist.serve.ids import id_column

DAY = 86_400_000_000  # microseconds
TRIAL_USERS = 16  # users whose lists are computed before a model is served


class EventForm(NamedTuple):
    """What the events of a model look like; read once, because its history grows."""

    users: IdMap  # of any time: only the type of the ids counts
    items: IdMap
    has_times: bool
    by_day: bool  # whether the history knows only the day of an event
    has_weights: bool

    @classmethod
    def of(cls, history: Interactions) -> "EventForm":
        """The form of the events in a history."""
        by_day = history.time is not None and not (history.time % DAY).any()
        has_times, has_weights = history.time is not None, history.weight is not None
        return cls(history.users, history.items, has_times, by_day, has_weights)


class EventRow(Protocol):
    """The columns of a stored event that a model needs."""

    @property
    def user_id(self) -> str: ...
    @property
    def item_id(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def weight(self) -> float | None: ...


class TrialRow(NamedTuple):
    """An event that no client sent."""

    user_id: str
    item_id: str
    time: int
    weight: float | None = None


def build_events(rows: Sequence[EventRow], form: EventForm) -> tuple[Interactions | None, int]:
    """Events of the store in the form that the model knows, and how many cannot be converted."""
    times = np.array([row.time for row in rows], np.int64)
    frame = pl.DataFrame(
        {
            "user_id": id_column((row.user_id for row in rows), form.users),
            "item_id": id_column((row.item_id for row in rows), form.items),
        }
    )
    if form.has_times:
        times = times - times % DAY if form.by_day else times
        frame = frame.with_columns(pl.Series("timestamp", times).cast(pl.Datetime("us")))
    if form.has_weights:
        weights = [1.0 if row.weight is None else row.weight for row in rows]
        frame = frame.with_columns(pl.Series("weight", weights))
    valid = frame.drop_nulls(["user_id", "item_id"])
    return (Interactions.from_frame(valid) if valid.height else None), frame.height - valid.height


def with_events(model: Recommender, events: Interactions) -> Recommender:
    """A model that knows the events too, ready for requests; the given one stays as it is.

    Some models compute a part of their state with the first list after an event. That list is computed
    here, so that no request waits for it.
    """
    observed: Recommender = copy(model).observe(events)  # what was learned is shared, so the copy is cheap
    observed.recommend(sample_users(observed, 1), n_threads=1)
    return observed


def warm_up(model: Recommender, form: EventForm) -> None:
    """Compute lists before and after an event, so that everything they need is compiled and prepared."""
    model.prepare()
    model.recommend(sample_users(model, TRIAL_USERS), n_threads=1)
    history = model.history_
    if not history.n_rows:
        return
    user, item = (str(ids.values[0]) for ids in (history.users, history.items))
    time = 0 if history.time is None else int(history.time.max()) + DAY
    events, _ = build_events([TrialRow(user, item, time)], form)
    assert events is not None
    trial = with_events(model, events)
    trial.recommend(sample_users(trial, TRIAL_USERS), n_threads=1)
    with suppress(ShortlistError):  # not every model accepts sessions
        trial.recommend(history={"session": [history.items.values[0]]}, n_threads=1)


def sample_users(model: Recommender, n: int) -> pl.Series:
    """Up to n users, spread evenly over all."""
    users = model.users_.values
    return users.gather_every(max(len(users) // n, 1)).head(n)
