"""Writes to the event store from one thread: concurrent requests share a transaction."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from shortlist.serve.store import EventStore, ListRow, StoreError

MAX_LISTS = 100_000  # logged lists that wait for the store; more are counted and dropped
LISTS_EVERY = 0.2  # seconds
LISTS_AT_ONCE = 1_000

Rows = Sequence[Mapping[str, Any]]


class StoreWriter:
    """Groups what concurrent requests write; events are confirmed after the commit, lists are not."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._events: deque[tuple[Rows, Future[int]]] = deque()
        self._lists: deque[ListRow] = deque()
        self.lists_dropped = 0
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def add_events(self, rows: Rows) -> "Future[int]":
        """Store events; the future holds the number of new ones once they are durable."""
        future: Future[int] = Future()
        with self._wake:
            if self._closed:
                raise StoreError("the service is shutting down; repeat the request in a few seconds.")
            self._events.append((rows, future))
            self._wake.notify()
        return future

    def add_lists(self, rows: Sequence[ListRow]) -> None:
        """Log lists within a second."""
        self.lists_dropped += max(len(self._lists) + len(rows) - MAX_LISTS, 0)
        self._lists.extend(rows[: MAX_LISTS - len(self._lists)])

    def close(self) -> None:
        """Write what is waiting, then stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        closed = False
        while not closed:
            with self._wake:
                if not self._events and not self._closed:
                    self._wake.wait(LISTS_EVERY)
                closed = self._closed
                waiting = [self._events.popleft() for _ in range(len(self._events))]
            self._write_events(waiting)
            self._write_lists(everything=closed)

    def _write_events(self, waiting: "list[tuple[Rows, Future[int]]]") -> None:
        waiting = [one for one in waiting if one[1].set_running_or_notify_cancel()]
        if not waiting:
            return
        try:
            counts = self._store.add_events([rows for rows, _ in waiting])
        except Exception as error:  # whatever it is, the requests must be answered
            for _, future in waiting:
                future.set_exception(error)
            return
        for (_, future), count in zip(waiting, counts, strict=True):
            future.set_result(count)

    def _write_lists(self, *, everything: bool) -> None:
        """Lists that cannot be written now are kept for the next round, up to MAX_LISTS."""
        while self._lists:
            rows = [self._lists.popleft() for _ in range(min(len(self._lists), LISTS_AT_ONCE))]
            try:
                self._store.add_lists(rows)
            except StoreError:
                self._lists.extendleft(reversed(rows))
                return
            if not everything and self._events:
                return
