"""What happened after a list: the one place that joins lists with later purchases and returns.

Purchases count when they arrive, because the time of an event may be that of another system. A purchase that
is returned within the window is none.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from shortlist.serve.store import EventStore
from shortlist.serve.tables import events, lists


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
