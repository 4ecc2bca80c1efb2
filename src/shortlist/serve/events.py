"""Events in requests: parsed one by one, so that a wrong one does not stop the others."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
import polars as pl
from pydantic import ValidationError

from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, ShortlistError
from shortlist.models.base import Recommender
from shortlist.serve.gate import RequestError
from shortlist.serve.schemas import EventBody, describe_problem

MAX_ID = 256  # characters


def check_id(value: Any, ids: IdMap, name: str) -> Any:
    """The id in the type of the model.

    A model with integer ids also accepts an integer that is written as a text, because it can mean only one
    id. A model with text ids accepts no integer, because 7 may mean "7" or "007".
    """
    kind = type(value)
    if ids.kind == "integer":
        if kind is str and len(value) <= 20 and _is_plain_integer(value):
            value = int(value)
        if type(value) is int and -(2**63) <= value < 2**63:
            return value
        raise DataError(f"{name} must be an integer, as in the model, got {_shown(value)}; check the id.")
    if kind is str and 0 < len(value) <= MAX_ID and value.isprintable():
        return value
    raise DataError(
        f"{name} must be a text of 1 to {MAX_ID} printable characters, as in the model, got {_shown(value)}; "
        "check the id."
    )


def check_ids(values: Iterable[Any], ids: IdMap, name: str) -> list[Any]:
    """Several ids in the type of the model."""
    return [check_id(value, ids, name) for value in values]


def id_column(texts: Iterable[str], ids: IdMap) -> pl.Series:
    """Ids from the event store, in the type of the model; nulls where they cannot be converted."""
    return pl.Series(list(texts), dtype=pl.String).cast(ids.values.dtype, strict=False)


def _is_plain_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0") and text != "-0"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "…"


MICROSECONDS = 1_000_000
EARLIEST, LATEST = 0, 4_102_444_800 * MICROSECONDS  # 1970 to 2100
FUTURE_SECONDS = 86_400  # clocks differ, but not by more than a day
MAX_NEW = 10  # unknown items named in an answer


def parse_events(
    body: bytes, model: Recommender, limit: int, *, lines: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows for the store, rejections with reasons)."""
    rows, rejected = [], []
    received = time.time()
    for index, event in enumerate(_split(body, limit, lines=lines)):
        try:
            rows.append(_parse_event(event, model, received))
        except (ValidationError, DataError) as error:
            rejected.append({"index": index, "reason": _reason(error)})
    return rows, rejected


def new_items(rows: list[dict[str, Any]], model: Recommender) -> list[str]:
    """The items of events that the model does not know, in order of their first event; at most MAX_NEW."""
    found = list(dict.fromkeys(row["item_id"] for row in rows))
    is_new = model.items_.lookup(id_column(found, model.items_)) < 0
    return [item for item, new in zip(found, is_new, strict=True) if new][:MAX_NEW]


def _split(body: bytes, limit: int, *, lines: bool) -> Iterator[Any]:
    """The events of a body as Python values; a line that is no JSON becomes an exception in its place."""
    try:
        found = (
            [line for line in body.split(b"\n") if line.strip()] if lines else orjson.loads(body)["events"]
        )
        if not isinstance(found, list):
            raise TypeError
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RequestError(
            422,
            "invalid_request",
            'the body must be {"events": […]} or one JSON object per line',
            "set the Content-Type to application/x-ndjson for lines",
        ) from None
    if len(found) > limit:
        raise RequestError(
            422,
            "too_many",
            f"a request may have {limit:,} events, got {len(found):,}",
            "send several requests",
        )
    return iter(found)


def _parse_event(event: Any, model: Recommender, received: float) -> dict[str, Any]:
    if isinstance(event, bytes):
        parsed = EventBody.model_validate_json(event)
    else:
        parsed = EventBody.model_validate(event)
    user = str(check_id(parsed.user_id, model.users_, "user_id"))
    item = str(check_id(parsed.item_id, model.items_, "item_id"))
    micros = int(received * MICROSECONDS) if parsed.time is None else _parse_time(parsed.time, received)
    for name, text in (("event_id", parsed.event_id), ("list_id", parsed.list_id)):
        if text is not None and not text.isprintable():
            raise DataError(f"{name} must have printable characters only; change it.")
    return {
        "event_id": parsed.event_id or _content_id(user, item, micros),
        "user_id": user,
        "item_id": item,
        "time": micros,
        "weight": None if parsed.weight is None else float(parsed.weight),
        "list_id": parsed.list_id,
        "received": received,
    }


def _parse_time(text: str, received: float) -> int:
    """Microseconds since 1970; a time without zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise DataError("time must be ISO 8601, such as 2026-05-01T12:30:00Z; correct it.") from None
    aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    try:
        micros = round(aware.timestamp() * MICROSECONDS)
    except (OverflowError, ValueError):
        micros = -1
    if not EARLIEST <= micros <= min(LATEST, int((received + FUTURE_SECONDS) * MICROSECONDS)):
        raise DataError("time must lie between 1970 and tomorrow; correct it.")
    return micros


def _content_id(user: str, item: str, micros: int) -> str:
    """The same event sent twice has the same id."""
    text = f"{len(user)}:{user}{len(item)}:{item}{micros}"
    return "content-" + hashlib.sha256(text.encode()).hexdigest()[:32]


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
