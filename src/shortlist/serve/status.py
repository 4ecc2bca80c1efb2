"""What the page shows about the health of the service."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from shortlist.cutoff.monitor import PromiseMonitor
from shortlist.serve.checks import RECENT, check_monitor, last_event, latency, run_checks
from shortlist.serve.deployment import Deployment, Served
from shortlist.serve.observing import sample_users
from shortlist.serve.store import EventStore

MINUTES = 60
SAMPLE_USERS = 1_000  # users whose lists show what the model gives when it is loaded


class Usual(NamedTuple):
    """Lists of a sample of users when the model was loaded."""

    number: int  # of the activation
    lengths: list[int]
    examples: dict[Any, int]  # length by user id: long, short and empty lists


def sample_lists(served: Served) -> Usual:
    """Compute the lists of a sample of users."""
    sample = sample_users(served.model, SAMPLE_USERS)
    lengths = served.model.recommend(sample, n_threads=1).lengths
    order = np.argsort(-lengths, kind="stable")
    shown = order[lengths[order] > 0]
    picked = [] if not shown.size else shown[[0, shown.size // 2, shown.size * 9 // 10, -1]].tolist()
    picked += order[lengths[order] == 0][:1].tolist()
    examples = {sample[at]: int(lengths[at]) for at in picked}
    return Usual(served.number, lengths.tolist(), examples)


def describe_status(
    store: EventStore,
    deployment: Deployment,
    expected_lengths: list[int],
    monitors: Mapping[str, PromiseMonitor],
    *,
    now: float | None = None,
) -> dict[str, Any]:
    """Figures of the last hour and the checks on them."""
    now = time.time() if now is None else now
    minutes = _minutes(store, now)
    total = _total(minutes)
    recent = _total({minute: counts for minute, counts in minutes.items() if minute > now // 60 - RECENT})
    lengths = Counter({int(name[7:]): count for name, count in total.items() if name.startswith("length:")})
    served = deployment.served
    return {
        "now": now,
        "model": {"name": served.name, "loaded": served.loaded, "trained_until": last_event(served)},
        "minutes": [_minute_row(minute, counts) for minute, counts in sorted(minutes.items())],
        "lengths": {
            "now": _shares(lengths),
            "training": _shares(Counter(expected_lengths)),
        },
        "checks": [
            check._asdict()
            for check in (
                *run_checks(total, recent, lengths, expected_lengths, deployment, now),
                *(check_monitor(name, monitor) for name, monitor in monitors.items()),
            )
        ],
        "monitors": {
            name: {
                "promise": monitor.promise,
                "level": monitor.level,
                "points": monitor.trace.select("at", "n", "mean").to_dicts(),
            }
            for name, monitor in monitors.items()
        },
    }


def _minutes(store: EventStore, now: float) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for minute, name, value in store.counters_since(int(now // 60) - MINUTES):
        found[int(minute)][name] += int(value)
    return found


def _total(minutes: dict[int, Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counts in minutes.values():
        total.update(counts)
    return total


def _minute_row(minute: int, counts: Counter[str]) -> dict[str, Any]:
    return {
        "minute": minute * 60,
        "lists": counts["lists"],
        "empty": counts["length:0"],
        "unknown": counts["unknown"],
        "events": counts["events:accepted"],
        "errors": counts["status:5xx"],
        "p50": latency(counts, 0.5),
        "p99": latency(counts, 0.99),
    }


def _shares(lengths: Counter[int]) -> dict[str, float]:
    total = sum(lengths.values())
    return {str(length): count / total for length, count in sorted(lengths.items())} if total else {}
