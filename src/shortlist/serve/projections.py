"""What follows from the log: what was activated, who was erased, and what happened after a list.

Purchases count when they arrive, because the time of an event may be that of another system. A purchase that
is returned within the window is none.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import sqlalchemy as sa

from shortlist.serve.store import EventStore, StoreError
from shortlist.serve.tables import events, lists, metadata

ACTIVATION = "activation"  # kind of changes
MAX_ACTIVATIONS = 1_000  # that are looked at


class ModelVersion(NamedTuple):
    """A model as it is, whatever becomes of the file with its name."""

    model: str
    checksum: str  # of the model file


class Activation(NamedTuple):
    """A model file that was put into service."""

    number: int
    model: str
    checksum: str  # of the model file
    events_until: int  # events up to this one are in the file
    erased_until: int  # users who were erased up to this change are not in the file
    activated: float
    note: str

    @property
    def version(self) -> ModelVersion:
        """What is served."""
        return ModelVersion(self.model, self.checksum)


def add_activation(
    store: EventStore,
    model: str,
    checksum: str,
    events_until: int,
    note: str,
    erased_until: int = 0,
) -> int:
    """Record which model is served from now on; the number of the activation."""
    content = {"checksum": checksum, "events_until": events_until, "erased_until": erased_until}
    return store.add_change(ACTIVATION, model, content | {"note": note})


def find_activations(
    store: EventStore,
    limit: int = MAX_ACTIVATIONS,
    *,
    model: str | None = None,
    checksum: str | None = None,
    number: int | None = None,
) -> list[Activation]:
    """The latest activations, newest first; of one model, file or number if it is given."""
    some = limit if checksum is None and number is None else MAX_ACTIVATIONS
    activations = (
        Activation(number=change.number, model=change.name, activated=change.at, **change.content)
        for change in store.latest_changes((ACTIVATION,), some, model)
    )
    matching = [
        activation
        for activation in activations
        if checksum in (None, activation.checksum) and number in (None, activation.number)
    ]
    return matching[:limit]


ERASURE = "erasure"  # kind of changes


class ErasedUser(NamedTuple):
    """A user who was erased: what the models knew until this event, and what was deleted here."""

    number: int
    user_id: str
    events_until: int  # later events of the user are kept
    n_events: int = 0
    n_lists: int = 0


def erase_user(store: EventStore, user_id: str) -> ErasedUser:
    """Delete a user from the log and from all projections, and note it for the models.

    What the model files know of the user goes with the next refit.
    """
    with store.begin(in_order=True) as connection:
        last = int(connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0)
        deleted = {
            table.name: connection.execute(sa.delete(table).where(table.c.user_id == user_id)).rowcount
            for table in metadata.sorted_tables
            if "user_id" in table.c
        }
        number = store.add_change(ERASURE, user_id, {"events_until": last}, connection)
    with suppress(StoreError), store.read() as connection:
        if store.is_sqlite:  # the log of SQLite still has the deleted pages
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return ErasedUser(number, user_id, last, deleted[events.name], deleted[lists.name])


def erased_after(store: EventStore, number: int) -> list[ErasedUser]:
    """Users who were erased later, in order."""
    return [
        ErasedUser(change.number, change.name, int(change.content["events_until"]))
        for change in store.changes_after(ERASURE, number)
    ]


class UserTimeline(NamedTuple):
    """Lists and events of one user, in the order in which they were made and in which they arrived."""

    lists: list[Any]
    events: list[Any]

    def purchases(self, start: float, end: float) -> list[Any]:
        """Events from start to end in which the user bought something that was not returned until then."""
        return remove_returned([row for row in self.events if start <= row.received < end])


def read_timelines(
    store: EventStore, user_ids: Iterable[str], start: float, end: float
) -> dict[str, UserTimeline]:
    """What these users were shown and did from start to end, by user."""
    timelines: dict[str, UserTimeline] = defaultdict(lambda: UserTimeline([], []))
    users = sorted(set(user_ids))
    shown = sa.select(lists).where(lists.c.made >= start, lists.c.made < end)
    for row in store.rows(shown.order_by(lists.c.made, lists.c.list_id), users):
        timelines[row.user_id].lists.append(row)
    happened = sa.select(events).where(events.c.received >= start, events.c.received < end)
    for row in store.rows(happened.order_by(events.c.received, events.c.seq), users):
        timelines[row.user_id].events.append(row)
    return timelines


def is_return(row: Any) -> bool:
    """Whether an event takes a purchase back."""
    return row.weight is not None and row.weight < 0


def remove_returned(rows: Sequence[Any]) -> list[Any]:
    """The purchases among events of a user; a return takes back the latest earlier ones of its item."""
    if not any(map(is_return, rows)):
        return list(rows)
    bought: dict[str, list[tuple[Any, float]]] = defaultdict(list)  # what is left of each purchase, by item
    for row in sorted(rows, key=lambda row: (row.time, is_return(row), row.seq)):
        left = bought[row.item_id]
        if not is_return(row):
            left.append((row, 1.0 if row.weight is None else row.weight))
            continue
        amount = -row.weight
        while left and amount > 0:
            purchase, quantity = left.pop()
            if quantity > amount:
                left.append((purchase, quantity - amount))
            amount -= quantity
    numbers = {purchase.seq for left in bought.values() for purchase, _ in left}
    return [row for row in rows if row.seq in numbers]
