"""Counters of the service: for Prometheus, and per minute in the store for the page."""

import threading
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from shortlist.serve.store import EventStore
from shortlist.serve.tables import counters

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
LENGTHS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
KEPT_MINUTES = 60  # while the store cannot be reached
MAX_LENGTH = 100  # longer lists are counted with this length on the page


class Metrics:
    """All measurements of one worker."""

    def __init__(self, now: Callable[[], float], *, many_workers: bool = False) -> None:
        self._now = now  # the time of the store
        registry = self._registry = CollectorRegistry()
        self._many_workers = many_workers
        self.requests = Counter(
            "shortlist_requests_total",
            "Requests by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "shortlist_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self.lists = Counter("shortlist_lists_total", "Lists that were returned.", registry=registry)
        self.lengths = Histogram(
            "shortlist_list_length", "Items per list.", buckets=LENGTHS, registry=registry
        )
        self.unknown = Counter("shortlist_unknown_users_total", "Lists for unknown users.", registry=registry)
        self.events = Counter("shortlist_events_total", "Events by result.", ["result"], registry=registry)
        self.model_activated = Gauge(
            "shortlist_model_activated_timestamp_seconds",
            "When the model in service was activated.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.events_skipped = Gauge(
            "shortlist_events_skipped",
            "Events that the model in service cannot use.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._lock = threading.Lock()
        self._open_minute = 0
        self._minutes: dict[int, Counts[str]] = {}  # that are not finished or not yet stored

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        counts = {"requests": 1, f"status:{status // 100}xx": 1}
        if route == "/v1/recommend" and status == 200:  # a refusal takes no time
            at = bisect_left(SECONDS, seconds)
            counts[f"seconds:{SECONDS[at] if at < len(SECONDS) else 'more'}"] = 1
        self._add(counts)

    def count_lists(self, lengths: Sequence[int], unknown: int, *, of_arm: bool = False) -> None:
        """Count the lists of a request; the lengths of an arm say nothing about the model in service."""
        self.lists.inc(len(lengths))
        self.unknown.inc(unknown)
        for length in lengths:
            self.lengths.observe(length)
        name = "length of arm" if of_arm else "length"
        by_length = Counts(f"{name}:{min(length, MAX_LENGTH)}" for length in lengths)
        self._add({"lists": len(lengths), "unknown": unknown, **by_length})

    def count_events(self, accepted: int, duplicates: int, rejected: int) -> None:
        """Count the events of a request."""
        results = {"accepted": accepted, "duplicate": duplicates, "rejected": rejected}
        for result, count in results.items():
            self.events.labels(result).inc(count)
        self._add({f"events:{result}": count for result, count in results.items()})

    def minutes(self) -> dict[int, dict[str, float]]:
        """Counts of the current minute so far, and of earlier ones that are not stored yet."""
        with self._lock:
            return {minute: dict(counts) for minute, counts in self._minutes.items()}

    def forget_before(self, minute: int) -> None:
        """Drop finished minutes, which are stored."""
        with self._lock:
            self._open_minute = minute
            self._minutes = {at: counts for at, counts in self._minutes.items() if at >= minute}

    def _add(self, counts: Mapping[str, int]) -> None:
        minute = int(self._now() // 60)
        with self._lock:
            if minute < self._open_minute - KEPT_MINUTES:
                self._open_minute = minute  # the clock was set back
                self._minutes = {at: counts for at, counts in self._minutes.items() if at <= minute}
            minute = max(minute, self._open_minute)  # what is stored for earlier ones is complete
            if minute not in self._minutes:
                self._minutes[minute] = Counts()
                for old in sorted(self._minutes)[:-KEPT_MINUTES]:
                    del self._minutes[old]
            self._minutes[minute].update(counts)

    def text(self) -> bytes:
        """All metrics in the format of Prometheus."""
        registry = self._registry
        if self._many_workers:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def put_counters(store: EventStore, worker: str, minute: int, values: Mapping[str, float]) -> None:
    """Replace the counters of one worker and minute in the store."""
    rows = [
        {"minute": minute, "worker": worker, "name": name, "value": value} for name, value in values.items()
    ]
    if rows:
        insert = store.insert(counters)
        upsert = insert.on_conflict_do_update(
            index_elements=["minute", "worker", "name"], set_={"value": insert.excluded.value}
        )
        with store.begin() as connection:
            connection.execute(upsert, rows)


def counters_since(store: EventStore, minute: int) -> list[Any]:
    """(minute, name, value) summed over workers."""
    total = sa.func.sum(counters.c.value).label("value")
    query = sa.select(counters.c.minute, counters.c.name, total).where(counters.c.minute >= minute)
    return store.rows(
        query.group_by(counters.c.minute, counters.c.name).order_by(counters.c.minute, counters.c.name)
    )
