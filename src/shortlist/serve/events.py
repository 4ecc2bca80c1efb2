"""Events in requests: parsed one by one, so that a wrong one does not stop the others."""

import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from shortlist.errors import DataError
from shortlist.models.base import Recommender
from shortlist.serve.bodies import describe_problem
from shortlist.serve.gate import RequestError
from shortlist.serve.ids import check_id, id_column
from shortlist.serve.schemas import EventBody

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
