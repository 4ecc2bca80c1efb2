"""Events: checked one by one, so that a wrong one does not stop the others, and added to the model."""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from pydantic import ValidationError

from shortlist.core.threads import limit_threads
from shortlist.data.history import Events
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions, keeps_negative
from shortlist.errors import DataError, ShortlistError
from shortlist.models.base import Recommender
from shortlist.serve.schemas import MAX_WEIGHT, EventBody, check_id, describe_problem


def id_column(texts: Iterable[str], ids: IdMap) -> pl.Series:
    """Ids from the event store, in the type of the model; nulls where they cannot be converted."""
    return pl.Series(list(texts), dtype=pl.String).cast(ids.values.dtype, strict=False)


MICROSECONDS = 1_000_000
EARLIEST, LATEST = 0, 4_102_444_800 * MICROSECONDS  # 1970 to 2100
FUTURE_SECONDS = 86_400  # clocks differ, but not by more than a day
MAX_NEW = 10  # unknown items named in an answer


def parse_events(
    given: Sequence[EventBody | ValidationError], model: Recommender, form: "EventForm", received: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows for the store, rejections with reasons); `received` is the time of the store."""
    rows, rejected = [], []
    for index, event in enumerate(given):
        try:
            if isinstance(event, ValidationError):
                raise event
            rows.append(_parse_event(event, model, form, received))
        except (ValidationError, DataError) as error:
            rejected.append({"index": index, "reason": _reason(error)})
    return rows, rejected


def new_items(rows: list[dict[str, Any]], model: Recommender) -> list[str]:
    """The items of events that the model does not know, in order of their first event; at most MAX_NEW."""
    items = list(dict.fromkeys(row["item_id"] for row in rows))
    is_new = model.items_.lookup(id_column(items, model.items_)) < 0
    return [item for item, new in zip(items, is_new, strict=True) if new][:MAX_NEW]


def _parse_event(event: EventBody, model: Recommender, form: "EventForm", received: float) -> dict[str, Any]:
    user = str(check_id(event.user_id, model.users_, "user_id"))
    item = str(check_id(event.item_id, model.items_, "item_id"))
    micros = int(received * MICROSECONDS) if event.time is None else _parse_time(event.time, received)
    for name, text in (("event_id", event.event_id), ("list_id", event.list_id)):
        if text is not None and not text.isprintable():
            raise DataError(f"{name} must have printable characters only; change it.")
    if event.weight is not None and event.weight < form.min_weight:
        raise DataError(
            "weight must be at least 0, because the weights of this model's data are ratings and no "
            "quantities; send what users like."
        )
    return {
        "event_id": event.event_id or _content_id(user, item, micros, event.weight),
        "user_id": user,
        "item_id": item,
        "time": micros,
        "weight": event.weight,
        "list_id": event.list_id,
        "received": received,
    }


def _parse_time(text: str, received: float) -> int:
    """Microseconds since 1970; a time without zone is UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise DataError("time must be ISO 8601, such as 2026-05-01T12:30:00Z; correct it.") from None
    aware = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
    try:
        micros = round(aware.timestamp() * MICROSECONDS)
    except (OverflowError, ValueError):
        micros = -1
    if not EARLIEST <= micros <= min(LATEST, int((received + FUTURE_SECONDS) * MICROSECONDS)):
        raise DataError("time must lie between 1970 and tomorrow; correct it.")
    return micros


def _content_id(user: str, item: str, micros: int, weight: float | None) -> str:
    """The same event sent twice has the same id; a purchase and its return at one time have two."""
    text = f"{len(user)}:{user}{len(item)}:{item}{micros}"
    kind = "return" if weight is not None and weight < 0 else "content"
    return f"{kind}-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def _reason(error: ValidationError | DataError) -> str:
    if isinstance(error, DataError):
        return str(error)[:300]
    rule, hint = describe_problem(error, EventBody, "the event")
    return f"{rule}; {hint}"[:300]


DAY = 86_400_000_000  # microseconds
TRIAL_USERS = 16  # users whose lists are computed before a model is served


class EventForm(NamedTuple):
    """What the events of a model look like; read once, because its history grows."""

    users: IdMap  # of any time: only the type of the ids counts
    items: IdMap
    has_times: bool
    by_day: bool  # whether the history knows only the day of an event
    has_weights: bool
    min_weight: float  # 0 if the weights are ratings, so that a negative one is no return
    subtracts: bool  # whether returns are subtracted from purchases; otherwise they are rows

    @classmethod
    def of(cls, history: Interactions) -> "EventForm":
        """The form of the events in a history."""
        by_day = history.time is not None and not (history.time % DAY).any()
        has_times, has_weights = history.time is not None, history.weight is not None
        has_negative = keeps_negative(history)
        has_ratings = history.source is not None and history.source.has_ratings
        min_weight = 0.0 if has_ratings and not has_negative else -MAX_WEIGHT
        return cls(history.users, history.items, has_times, by_day, has_weights, min_weight, not has_negative)


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


def build_events(rows: Sequence[EventRow], form: EventForm) -> tuple[Events | None, int]:
    """Events of the store in the form that the model knows, and how many of them cannot be used.

    Whatever is in the store, the other events are not lost: ids of another type, weights beyond the limits
    and whatever else the library refuses are set aside.
    """
    usable = [row for row in rows if _is_usable(row, form)]
    frame = pl.DataFrame(
        {
            "user_id": id_column((row.user_id for row in usable), form.users),
            "item_id": id_column((row.item_id for row in usable), form.items),
        }
    )
    if form.has_times:
        times = np.array([row.time for row in usable], np.int64)
        times = times - times % DAY if form.by_day else times
        frame = frame.with_columns(pl.Series("timestamp", times).cast(pl.Datetime("us")))
    weights = [1.0 if row.weight is None else row.weight for row in usable]
    if form.has_weights or any(weight < 0 for weight in weights):
        frame = frame.with_columns(pl.Series("weight", weights, dtype=pl.Float64))
    frame = frame.drop_nulls(["user_id", "item_id"])
    n_skipped = len(rows) - frame.height
    if not frame.height:
        return None, n_skipped
    if not form.subtracts:
        return Events(Interactions.from_frame(frame, negative_weights="keep")), n_skipped
    events = Events.of(frame)
    if not form.has_weights:
        events = events._replace(purchases=replace(events.purchases, weight=None))
    return events, n_skipped


def _is_usable(row: EventRow, form: EventForm) -> bool:
    """Whether time and weight are within the limits; NaN is not."""
    weight = 1.0 if row.weight is None else row.weight
    if weight >= 0 and not form.has_weights:
        weight = 1.0
    return EARLIEST <= row.time <= LATEST and form.min_weight <= weight <= MAX_WEIGHT


@limit_threads(1)
def with_events(model: Recommender, events: Events) -> Recommender:
    """A model that knows the events too, ready for requests; the given one stays as it is.

    Some models compute a part of their state with the first list after an event. That list is computed
    here, so that no request waits for it.
    """
    observed: Recommender = copy(model).observe(events)  # what was learned is shared, so the copy is cheap
    observed.recommend(spread_users(observed, 1))
    return observed


@limit_threads(1)
def warm_up(model: Recommender) -> None:
    """Compute a few lists, so that everything they need is compiled and prepared."""
    model.prepare()
    model.recommend(spread_users(model, TRIAL_USERS))


@limit_threads(1)
def warm_up_events(model: Recommender, form: EventForm) -> None:
    """The same for lists after an event, and for a session."""
    history = model.history_
    if not history.n_rows:
        return
    user, item = (str(ids.values[0]) for ids in (history.users, history.items))
    time = 0 if history.time is None else int(history.time.max()) + DAY
    events, _ = build_events([TrialRow(user, item, time)], form)
    if events is None:  # the data has times that no event may have
        return
    trial = with_events(model, events)
    trial.recommend(spread_users(trial, TRIAL_USERS))
    with suppress(ShortlistError):  # not every model accepts sessions
        trial.recommend(history={"session": [history.items.values[0]]})


def spread_users(model: Recommender, n: int) -> pl.Series:
    """Up to n users, spread evenly over all."""
    users = model.users_.values
    return users.gather_every(max(len(users) // n, 1)).head(n)
