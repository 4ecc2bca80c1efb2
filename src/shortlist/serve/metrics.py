"""Counters of the service: for Prometheus, and per minute in the store for the page."""

import threading
import time
from collections import Counter as Counts
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
LENGTHS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
KEPT_MINUTES = 60  # while the store cannot be reached
MAX_LENGTH = 100  # longer lists are counted with this length on the page


class Metrics:
    """All measurements of one worker."""

    def __init__(self, *, many_workers: bool = False) -> None:
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
        self._lock = threading.Lock()
        self._minutes: dict[int, Counts[str]] = {}  # that are not finished or not yet stored

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        bucket = next((bound for bound in SECONDS if seconds <= bound), "more")
        self._add(
            {
                "requests": 1,
                f"status:{status // 100}xx": 1,
                **({f"seconds:{bucket}": 1} if route == "/v1/recommend" else {}),
            }
        )

    def count_lists(self, lengths: Sequence[int], unknown: int) -> None:
        """Count the lists of a request."""
        self.lists.inc(len(lengths))
        for length in lengths:
            self.lengths.observe(length)
        if unknown:
            self.unknown.inc(unknown)
        found = Counts(f"length:{min(length, MAX_LENGTH)}" for length in lengths)
        self._add({"lists": len(lengths), "items": sum(lengths), "unknown": unknown, **found})

    def count_events(self, accepted: int, duplicates: int, rejected: int) -> None:
        """Count the events of a request."""
        found = {"accepted": accepted, "duplicate": duplicates, "rejected": rejected}
        for result, count in found.items():
            self.events.labels(result).inc(count)
        self._add({f"events:{result}": count for result, count in found.items()})

    def minutes(self) -> dict[int, dict[str, float]]:
        """Counts of the current minute so far, and of earlier ones that are not stored yet."""
        with self._lock:
            return {minute: dict(counts) for minute, counts in self._minutes.items()}

    def forget_before(self, minute: int) -> None:
        """Drop finished minutes, which are stored."""
        with self._lock:
            self._minutes = {one: counts for one, counts in self._minutes.items() if one >= minute}

    def _add(self, counts: dict[str, int]) -> None:
        with self._lock:
            minute = int(time.time() // 60)
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
