"""What the page shows about the health of the service."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.threads import limit_threads
from shortlist.serve.deployment import Deployment, ServedModel
from shortlist.serve.events import spread_users
from shortlist.serve.metrics import SECONDS, counters_since
from shortlist.serve.store import EventStore

OK, WARNING, BAD, UNKNOWN = "ok", "warning", "bad", "unknown"
MIN_COUNT = 50  # lists, requests or events within the hour, for a status of their shares
RECENT = 10  # minutes without a list that are suspicious if lists were usual before
DAY_SECONDS = 86_400


class Check(NamedTuple):
    """One line of the health view."""

    name: str
    state: str
    value: str
    sentence: str
    action: str


def run_checks(
    total: Counter[str],
    recent: Counter[str],
    lengths: Counter[int],
    usual: list[int],
    deployment: Deployment,
    now: float,
) -> list[Check]:
    """All checks on the counts of the last hour; `usual`: lengths of lists of the model itself."""
    n_lists, n_requests, n_lengths = total["lists"], total["requests"], sum(lengths.values())
    return [
        _check_store(deployment),
        _check_activation(deployment),
        _check_lists(n_lists, recent["lists"]),
        _check_share(
            "Failed requests",
            "requests",
            total["status:5xx"],
            n_requests,
            (0.001, 0.01),
            f"{total['status:5xx']:,} of {_counted(n_requests, 'request')} failed within the last hour.",
            "Look for the request ids with level error in the log.",
        ),
        _check_latency(total),
        *_check_lengths(lengths, n_lengths, usual),
        _check_share(
            "Unknown users",
            "lists",
            total["unknown"],
            n_lists,
            (0.05, 0.3),
            f"{total['unknown']:,} of {_counted(n_lists, 'list')} had a user or session that the model does "
            "not know.",
            "Check the ids that are sent, send events of new users, or pass their history in the request.",
        ),
        _check_events(total, deployment),
        _check_age(deployment.served, now),
    ]


def _grade(value: float, limits: tuple[float, float]) -> str:
    """The state of a figure that should be small."""
    return OK if value < limits[0] else WARNING if value < limits[1] else BAD


def _counted(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _too_few(name: str, counted: str, sentence: str) -> Check:
    """A check without a status: a share of a few lists, requests or events says nothing."""
    return Check(name, UNKNOWN, f"too few {counted}", f"{sentence} A status needs {MIN_COUNT}.", "")


def _check_share(
    name: str, counted: str, some: int, n: int, limits: tuple[float, float], sentence: str, action: str
) -> Check:
    """A share of what was counted, which should be small."""
    if n < MIN_COUNT:
        return _too_few(name, counted, sentence)
    digits = 2 if limits[0] < 0.01 else 0
    return Check(name, _grade(some / n, limits), f"{some / n:.{digits}%}", sentence, action)


def _check_store(deployment: Deployment) -> Check:
    age = deployment.seconds_since_look
    state = OK if age < 5 and deployment.store_error is None else BAD if age > 30 else WARNING
    return Check(
        "Event store",
        state,
        "reachable" if state == OK else f"last read {age:,.0f} s ago",
        deployment.store_error or ("Events reach the model." if state == OK else "New events do not arrive."),
        "Check that the database runs and that its disk is not full. Lists are still served.",
    )


def _check_activation(deployment: Deployment) -> Check:
    problem = deployment.activation_error
    return Check(
        "Model",
        OK if problem is None else WARNING,
        deployment.served.name,
        "The latest activated model is served." if problem is None else f"{problem} It is tried again.",
        "Activate it again on a server that has the file, or activate another model.",
    )


def _check_lists(n: int, n_recent: int) -> Check:
    stopped = n >= MIN_COUNT and not n_recent
    return Check(
        "Lists",
        BAD if stopped else OK if n >= MIN_COUNT else UNKNOWN,
        f"{n_recent:,} in {RECENT} minutes",
        f"{_counted(n, 'list')} within the last hour, {n_recent:,} of them in the last {RECENT} minutes.",
        "Check that the shop still calls POST /v1/recommend, that its token is valid, and that "
        "/ready answers.",
    )


def _check_latency(total: Counter[str]) -> Check:
    slow = latency(total, 0.99)
    n = sum(count for name, count in total.items() if name.startswith("seconds:"))
    if slow is None or n < MIN_COUNT:
        return _too_few("Latency", "requests", f"{_counted(n, 'answer')} within the last hour.")
    value = f"{slow * 1000:,.0f} ms" if slow < float("inf") else f"more than {SECONDS[-1]} s"
    return Check(
        "Latency",
        _grade(slow, (0.101, 0.501)),
        value,
        f"99% of the lists were answered within {value}."
        if slow < float("inf")
        else f"More than 1% of the lists took {value}.",
        "Start more workers, ask for fewer users per request, or choose a faster model.",
    )


def _check_lengths(lengths: Counter[int], n: int, usual: list[int]) -> list[Check]:
    """Whether lists are empty, and as long, as often as those of the model itself."""
    if n < MIN_COUNT or not usual:
        text = f"{_counted(n, 'list')} within the last hour."
        return [_too_few(name, "lists", text) for name in ("Empty lists", "List lengths")]
    top = max([*lengths, *usual])
    now_share = np.cumsum([lengths[length] / n for length in range(top + 1)])
    usual_share = np.cumsum(np.bincount(usual, minlength=top + 1) / len(usual))
    distances = np.abs(now_share - usual_share)
    at, mean = int(distances.argmax()), sum(length * count for length, count in lengths.items()) / n
    others = f"of the lists of the model for {len(usual):,} of its users"
    return [
        Check(
            "Empty lists",
            _grade(float(distances[0]), (0.1, 0.25)),
            f"{now_share[0]:.0%}",
            f"{now_share[0]:.0%} of the lists are empty; {others}, {usual_share[0]:.0%} are.",
            "If users are unknown, send their events. If the users changed, fit the model again.",
        ),
        Check(
            "List lengths",
            _grade(float(distances[at]), (0.15, 0.3)),
            f"{mean:.1f} items",
            f"{now_share[at]:.0%} of the lists have at most {_counted(at, 'item')}; {others}, "
            f"{usual_share[at]:.0%} have.",
            "Compare the two histograms. A large difference means other users, candidates or options of "
            "requests.",
        ),
    ]


def _check_events(total: Counter[str], deployment: Deployment) -> Check:
    accepted, rejected = total["events:accepted"], total["events:rejected"]
    n, skipped = accepted + rejected, deployment.served.n_skipped
    detail = f"{_counted(rejected, 'event')} of {n:,} {'was' if rejected == 1 else 'were'} rejected."
    if skipped:
        verb = "has values" if skipped == 1 else "have values"
        detail += f" {_counted(skipped, 'stored event')} {verb} that the model cannot use."
    action = "The answer to POST /v1/events names the reason of each rejection."
    if n < MIN_COUNT and not rejected:
        return _too_few("Events", "events", detail)
    state = BAD if n >= MIN_COUNT and rejected / n >= 0.1 else WARNING if rejected else OK
    return Check("Events", state, f"{accepted:,} in an hour", detail, action)


def _check_surroundings(token_problem: str | None, refused: str | None, *, has_jumped: bool) -> list[Check]:
    """What is only worth a line when it is wrong: a refit, the clock and the token file."""
    checks = []
    if refused:
        sentence = f"The latest refit kept the model in service: {refused}."
        action = "Refit again when more events have arrived, or activate a model yourself."
        checks.append(Check("Refit", WARNING, "refused", sentence, action))
    if has_jumped:
        sentence = "The clock of this machine has jumped within the last ten minutes."
        action = "Set the clock. Until it goes evenly, no window closes and no old list is deleted."
        checks.append(Check("Clock", WARNING, "jumped", sentence, action))
    if token_problem is not None:
        action = "Correct the file; `shortlist service token` adds lines to it."
        checks.append(Check("Tokens", WARNING, "not readable", token_problem, action))
    return checks


def _check_age(served: ServedModel, now: float) -> Check:
    last = last_event(served)
    if last is None:
        return Check("Age of the data", UNKNOWN, "no times", "The data of the model has no times.", "")
    days = max(now - last, 0) / DAY_SECONDS
    return Check(
        "Age of the data",
        _grade(days, (2, 14)),
        f"{days:,.1f} days",
        f"The last event that the model knows is {days:,.1f} days old.",
        "Send events to POST /v1/events, and refit the model with `shortlist service refit`.",
    )


def latency(counts: Counter[str], share: float) -> float | None:
    """Seconds within which this share of the lists was answered, rounded up to a bucket; may be infinite."""
    bounds = [*SECONDS, float("inf")]
    sizes = [counts[f"seconds:{bound}"] for bound in SECONDS] + [counts["seconds:more"]]
    if not sum(sizes):
        return None
    reached = np.cumsum(sizes) >= share * sum(sizes)
    return bounds[int(np.argmax(reached))]


def last_event(served: ServedModel) -> float | None:
    """Seconds since 1970 of the last event that the model knows."""
    users = served.model.users_.values.head(1)
    history = served.model.build_request(users).source  # the whole, without copying it
    return history.end_time / 1e6 if history.has_times else None


MINUTES = 60
SAMPLE_USERS = 1_000  # users whose lists show what the model gives when it is loaded


class ReferenceLists(NamedTuple):
    """Lists of the model for a sample of its users, with its own cutoff."""

    number: int  # of the activation
    lengths: list[int]


@limit_threads(1)
def compute_reference(served: ServedModel) -> ReferenceLists:
    """Compute the lists of a sample of users."""
    sample = spread_users(served.model, SAMPLE_USERS)
    return ReferenceLists(served.number, served.model.recommend(sample).lengths.tolist())


def describe_status(
    store: EventStore,
    deployment: Deployment,
    expected_lengths: list[int],
    token_problem: str | None = None,
) -> dict[str, Any]:
    """Figures of the last hour and the checks on them."""
    now = store.now()
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
            "model": _shares(Counter(expected_lengths)),
        },
        "checks": [
            check._asdict()
            for check in (
                *run_checks(total, recent, lengths, expected_lengths, deployment, now),
                *_check_surroundings(
                    token_problem,
                    store.snapshot("refit"),
                    has_jumped=store.has_jumped,
                ),
            )
        ],
    }


def _minutes(store: EventStore, now: float) -> dict[int, Counter[str]]:
    minutes: dict[int, Counter[str]] = defaultdict(Counter)
    for minute, name, value in counters_since(store, int(now // 60) - MINUTES):
        if minute <= now // 60:  # not of a clock that was wrong
            minutes[int(minute)][name] += int(value)
    return minutes


def _total(minutes: dict[int, Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counts in minutes.values():
        total.update(counts)
    return total


def _minute_row(minute: int, counts: Counter[str]) -> dict[str, Any]:
    slow = latency(counts, 0.99)
    return {
        "minute": minute * 60,
        "lists": counts["lists"],
        "events": counts["events:accepted"],
        "p99": None if slow is None else min(slow, SECONDS[-1]),
    }


def _shares(lengths: Counter[int]) -> dict[str, float]:
    total = sum(lengths.values())
    return {str(length): count / total for length, count in sorted(lengths.items())} if total else {}
