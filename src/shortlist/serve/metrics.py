"""Counters of the service: for Prometheus, and per minute in the store for the page."""

import threading
import time
from bisect import bisect_left
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from shortlist.serve.store import EventStore
from shortlist.serve.tables import counters

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
LENGTHS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
PENDING = 2_000  # requests that are counted at once
KEPT_MINUTES = 60  # while the store cannot be reached
MAX_LENGTH = 100  # longer lists are counted with this length on the page

CountedRequest = tuple[float, str, int, float]  # `perf_counter` when it was answered, route, status, seconds
CountedLists = tuple[int, Sequence[int], int, bool]  # minute, lengths, number of unknown users, of an arm
Row = TypeVar("Row")


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
        self.model_loaded = Gauge(
            "shortlist_model_loaded_timestamp_seconds",
            "When the model was loaded.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.events_skipped = Gauge(
            "shortlist_events_skipped",
            "Events that the model in service cannot use.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._requests: deque[CountedRequest] = deque()
        self._answers: deque[CountedLists] = deque()
        self._fold_lock = threading.Lock()
        self._lock = threading.Lock()
        self._open_minute = 0
        self._minutes: dict[int, Counts[str]] = {}  # that are not finished or not yet stored

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request; it is added to the metrics together with others."""
        self._requests.append((time.perf_counter(), route, status, seconds))
        if len(self._requests) >= PENDING:
            self._fold()

    def count_lists(self, lengths: Sequence[int], unknown: int, *, of_arm: bool = False) -> None:
        """Count the lists of a request; they are added to the metrics together with others."""
        self._answers.append((int(self._now() // 60), lengths, unknown, of_arm))
        if len(self._answers) >= PENDING:
            self._fold()

    def _fold(self) -> None:
        """Add what was counted since the last time; in one go, because each addition takes locks."""
        with self._fold_lock:
            requests = [self._requests.popleft() for _ in range(len(self._requests))]
            answers = [self._answers.popleft() for _ in range(len(self._answers))]
            self._add_requests(requests)
            self._add_lists(answers)

    def _add_requests(self, requests: list[CountedRequest]) -> None:
        """Add answered requests to the metrics and to the counts of their minutes."""
        start = self._now() - time.perf_counter()
        by_minute = [
            (int((start + ended) // 60), route, status, seconds) for ended, route, status, seconds in requests
        ]
        for (minute, route, status), group in _grouped(by_minute, itemgetter(0, 1, 2)):
            self.requests.labels(route, str(status)).inc(len(group))
            observe, times = self.seconds.labels(route).observe, [request[3] for request in group]
            for seconds in times:
                observe(seconds)
            counts = Counts({"requests": len(group), f"status:{status // 100}xx": len(group)})
            if route == "/v1/recommend" and status != 408:  # that one waited for its client
                for at, count in Counts(bisect_left(SECONDS, seconds) for seconds in times).items():
                    counts[f"seconds:{SECONDS[at] if at < len(SECONDS) else 'more'}"] = count
            self._add(counts, minute)

    def _add_lists(self, answers: list[CountedLists]) -> None:
        """Add lists to the metrics and to the counts of their minutes."""
        for (minute, of_arm), group in _grouped(answers, itemgetter(0, 3)):
            lengths, unknown = [n for answer in group for n in answer[1]], sum(answer[2] for answer in group)
            self.lists.inc(len(lengths))
            self.unknown.inc(unknown)
            for length in lengths:
                self.lengths.observe(length)
            counts = Counts({"lists": len(lengths), "items": sum(lengths), "unknown": unknown})
            name = (
                "length of arm" if of_arm else "length"
            )  # the former say nothing about the model in service
            for length, count in Counts(min(n, MAX_LENGTH) for n in lengths).items():
                counts[f"{name}:{length}"] = count
            self._add(counts, minute)

    def count_events(self, accepted: int, duplicates: int, rejected: int) -> None:
        """Count the events of a request."""
        results = {"accepted": accepted, "duplicate": duplicates, "rejected": rejected}
        for result, count in results.items():
            self.events.labels(result).inc(count)
        minute = int(self._now() // 60)
        self._add({f"events:{result}": count for result, count in results.items()}, minute)

    def minutes(self) -> dict[int, dict[str, float]]:
        """Counts of the current minute so far, and of earlier ones that are not stored yet."""
        self._fold()
        with self._lock:
            return {minute: dict(counts) for minute, counts in self._minutes.items()}

    def forget_before(self, minute: int) -> None:
        """Drop finished minutes, which are stored."""
        with self._lock:
            self._open_minute = minute
            self._minutes = {each: counts for each, counts in self._minutes.items() if each >= minute}

    def _add(self, counts: Mapping[str, int], minute: int) -> None:
        with self._lock:
            if minute < self._open_minute - KEPT_MINUTES:
                self._open_minute = minute  # the clock was set back
                self._minutes = {at: kept for at, kept in self._minutes.items() if at <= minute}
            minute = max(minute, self._open_minute)  # what is stored for earlier ones is complete
            if minute not in self._minutes:
                self._minutes[minute] = Counts()
                for old in sorted(self._minutes)[:-KEPT_MINUTES]:
                    del self._minutes[old]
            self._minutes[minute].update(counts)

    def text(self) -> bytes:
        """All metrics in the format of Prometheus."""
        self._fold()
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


def _grouped(rows: list[Row], key: Callable[[Row], Any]) -> Iterator[tuple[Any, list[Row]]]:
    """The rows by key."""
    for value, group in groupby(sorted(rows, key=key), key):
        yield value, list(group)
