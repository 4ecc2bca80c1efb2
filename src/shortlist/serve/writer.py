"""Groups what concurrent requests write into the event store."""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from shortlist.serve.store import EventStore, ListRow, RowError, StoreAwayError, StoreError

MAX_LISTS = 100_000  # logged lists that wait for the store; more are counted and dropped
LISTS_EVERY = 0.5  # seconds; larger groups touch fewer pages per list
LISTS_AT_ONCE = 2_500
MAX_WAITING = 64  # requests that wait for a database that is away; it answers further ones at once
AGAIN_SECONDS = 0.1  # between two tries

Rows = Sequence[Mapping[str, Any]]


class EventBatch(NamedTuple):
    """The events of a request, who waits for them, and until when."""

    rows: Rows
    future: "Future[int]"
    until: float


class StoreWriter:
    """Groups what concurrent requests write; events are confirmed after the commit, lists are not.

    While the database does not answer, as when it restarts, events wait for it for `patience` seconds.
    """

    def __init__(self, store: EventStore, patience: float = 0.0) -> None:
        self._store, self._patience = store, patience
        self._is_away = False
        self._events: deque[EventBatch] = deque()
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
            if self._is_away and len(self._events) >= MAX_WAITING:
                raise StoreError("the event store cannot be reached; repeat the request in a few seconds.")
            self._events.append(EventBatch(rows, future, time.monotonic() + self._patience))
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

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        closed = False
        while not closed:
            with self._wake:
                if not self._events and not self._closed:
                    self._wake.wait(LISTS_EVERY)
                closed = self._closed
                waiting = [self._events.popleft() for _ in range(len(self._events))]
            self._write_events(waiting)
            if self._is_away:
                time.sleep(AGAIN_SECONDS)
            else:
                self._write_lists(everything=closed)

    def _write_events(self, waiting: list[EventBatch]) -> None:
        """Store the events of several requests; if one cannot be stored, the others are."""
        waiting = [b for b in waiting if b.future.running() or b.future.set_running_or_notify_cancel()]
        self._is_away = False
        if not waiting:
            return
        try:
            counts = self._store.add_events([batch.rows for batch in waiting])
        except StoreAwayError as error:
            self._wait_for_store(waiting, error)
            return
        except Exception as error:  # whatever it is, the requests must be answered
            is_row = isinstance(error, RowError) or not isinstance(error, StoreError)
            for rows, future, _ in waiting:
                try:
                    if not is_row or len(waiting) == 1:
                        raise error
                    future.set_result(self._store.add_events([rows])[0])
                except Exception as cause:
                    future.set_exception(cause)
            return
        for batch, count in zip(waiting, counts, strict=True):
            batch.future.set_result(count)

    def _wait_for_store(self, waiting: list[EventBatch], error: StoreAwayError) -> None:
        """Keep events that may still wait for the database; answer the others."""
        with self._wake:
            n_kept = 0 if self._closed else MAX_WAITING
            at = time.monotonic()
            late = [batch for batch in waiting if at >= batch.until]
            kept = [batch for batch in waiting if at < batch.until]
            self._events.extendleft(reversed(kept[:n_kept]))
            self._is_away = bool(kept)
        for batch in (*late, *kept[n_kept:]):
            batch.future.set_exception(error)

    def _write_lists(self, *, everything: bool) -> None:
        """Write lists; those that cannot be written now are kept, those that never can are dropped."""
        at_once = LISTS_AT_ONCE
        while self._lists:
            rows = [self._lists.popleft() for _ in range(min(len(self._lists), at_once))]
            try:
                self._store.add_lists(rows)
            except Exception as error:  # no row may stop the thread
                if isinstance(error, StoreError) and not isinstance(error, RowError):
                    self._lists.extendleft(reversed(rows))
                    return
                at_once = max(len(rows) // 8, 1)  # until the bad row is alone
                if len(rows) > 1:
                    self._lists.extendleft(reversed(rows))
                else:
                    self.lists_dropped += 1
                continue
            at_once = min(2 * at_once, LISTS_AT_ONCE)
            if not everything and self._events:
                return
