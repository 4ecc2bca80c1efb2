"""Deletes logged lists and counters that are older than the settings allow."""

from shortlist.serve.store import EventStore

DAY_SECONDS = 86_400
LISTS_AT_ONCE = 2_000  # so that events wait for no long transaction


class Retention:
    """Once a day, one of the workers deletes what is too old, in small steps; events stay."""

    def __init__(self, store: EventStore, days: int) -> None:
        self._store, self._days = store, days
        self._day = -1  # the latest day on which this worker looked
        self._has_more = False

    def step(self, now: float) -> int:
        """Delete some of what is too old; return the number of lists."""
        day = int(now // DAY_SECONDS)
        if day != self._day:
            self._has_more = self._store.claim("retention turn", day)
            self._day = day
        if not self._has_more:
            return 0
        removed = self._store.remove_old(now - self._days * DAY_SECONDS, LISTS_AT_ONCE)
        self._has_more = removed == LISTS_AT_ONCE
        return removed
