"""Erasure of a user from everything that the store holds; the models follow."""

from contextlib import suppress
from typing import NamedTuple

import sqlalchemy as sa

from shortlist.serve.store import EventStore, StoreError
from shortlist.serve.tables import events, lists, metadata

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
