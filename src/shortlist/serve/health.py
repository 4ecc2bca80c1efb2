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
    expected: list[int],
    deployment: Deployment,
    now: float,
) -> list[Check]:
    """All checks on the counts of the last hour."""
    return [
        _check_store(deployment),
        _check_activation(deployment),
        _check_lists(total, recent),
        _check_errors(total),
        _check_latency(total),
        _check_empty(lengths, expected),
        _check_lengths(lengths, expected),
        _check_unknown(total),
        _check_events(total, deployment),
        _check_age(deployment.served, now),
    ]


def _too_few(name: str, counted: str, detail: str) -> Check:
    """A check without a status: a share of a few lists, requests or events says nothing."""
    return Check(name, UNKNOWN, f"too few {counted}", f"{detail} A status needs {MIN_COUNT}.", "")


def _grade(value: float, ok: float, bad: float) -> str:
    """The state of a figure that should be small."""
    return OK if value < ok else WARNING if value < bad else BAD


def _counted(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


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


def _check_lists(total: Counter[str], recent: Counter[str]) -> Check:
    before = total["lists"] - recent["lists"]
    stopped = before >= MIN_COUNT and not recent["lists"]
    return Check(
        "Lists",
        BAD if stopped else OK if total["lists"] >= MIN_COUNT else UNKNOWN,
        f"{recent['lists'] / RECENT:,.1f} per minute",
        f"{_counted(total['lists'], 'list')} within the last hour, {recent['lists']:,} of them in the last "
        f"{RECENT} minutes.",
        "Check that the shop still calls POST /v1/recommend, that its token is valid, and that "
        "/ready answers.",
    )


def _check_errors(total: Counter[str]) -> Check:
    name, n = "Failed requests", total["requests"]
    detail = f"{total['status:5xx']:,} of {_counted(n, 'request')} failed within the last hour."
    if n < MIN_COUNT:
        return _too_few(name, "requests", detail)
    share = total["status:5xx"] / n
    return Check(
        name,
        _grade(share, 0.001, 0.01),
        f"{share:.2%}",
        detail,
        "Look for the request ids with level error in the log.",
    )


def _check_latency(total: Counter[str]) -> Check:
    slow = latency(total, 0.99)
    n = sum(count for name, count in total.items() if name.startswith("seconds:"))
    if slow is None or n < MIN_COUNT:
        return _too_few("Latency", "requests", f"{_counted(n, 'request')} for lists within the last hour.")
    return Check(
        "Latency",
        OK if slow <= 0.1 else WARNING if slow <= 0.5 else BAD,
        f"{slow * 1000:,.0f} ms",
        f"99% of the requests for lists were answered within {slow * 1000:,.0f} ms.",
        "Start more workers, ask for fewer users per request, or choose a faster model.",
    )


def _check_empty(lengths: Counter[int], expected: list[int]) -> Check:
    n = sum(lengths.values())
    if n < MIN_COUNT or not expected:
        return _too_few("Empty lists", "lists", f"{_counted(n, 'list')} within the last hour.")
    share, usual = lengths[0] / n, expected.count(0) / len(expected)
    difference = abs(share - usual)
    return Check(
        "Empty lists",
        _grade(difference, 0.1, 0.25),
        f"{share:.0%}",
        f"{share:.0%} of the lists are empty; with the model as loaded it was {usual:.0%}.",
        "If users are unknown, send their events. If the users changed, fit the model again.",
    )


def _check_lengths(lengths: Counter[int], expected: list[int]) -> Check:
    n = sum(lengths.values())
    if n < MIN_COUNT or not expected:
        return _too_few("List lengths", "lists", f"{_counted(n, 'list')} within the last hour.")
    top = max([*lengths, *expected])
    now_share = np.cumsum([lengths[length] / n for length in range(top + 1)])
    usual = np.cumsum(np.bincount(expected, minlength=top + 1) / len(expected))
    distance = float(np.abs(now_share - usual).max())
    mean = sum(length * count for length, count in lengths.items()) / n
    return Check(
        "List lengths",
        _grade(distance, 0.15, 0.3),
        f"{mean:.1f} items",
        f"The distribution of lengths differs by {distance:.0%} from the one of the model as loaded.",
        "Compare the two histograms. A large difference means other users or other candidates than before.",
    )


def _check_unknown(total: Counter[str]) -> Check:
    name, n = "Unknown users", total["lists"]
    detail = (
        f"{total['unknown']:,} of {_counted(n, 'list')} had a user or session that the model does not know."
    )
    if n < MIN_COUNT:
        return _too_few(name, "lists", detail)
    share = total["unknown"] / n
    return Check(
        name,
        _grade(share, 0.05, 0.3),
        f"{share:.0%}",
        detail,
        "Check the ids that are sent, send events of new users, or pass their history in the request.",
    )


def _check_events(total: Counter[str], deployment: Deployment) -> Check:
    name, accepted, rejected = "Events", total["events:accepted"], total["events:rejected"]
    n, skipped = accepted + rejected, deployment.served.n_skipped
    detail = f"{_counted(rejected, 'event')} of {n:,} {'was' if rejected == 1 else 'were'} rejected."
    if skipped:
        verb = "has values" if skipped == 1 else "have values"
        detail += f" {_counted(skipped, 'stored event')} {verb} that the model cannot use."
    if n < MIN_COUNT and not rejected:
        return _too_few(name, "events", detail)
    share = rejected / n if n >= MIN_COUNT else 0.0
    return Check(
        name,
        BAD if share >= 0.1 else WARNING if rejected else OK,
        f"{accepted:,} an hour",
        detail,
        "The answer to POST /v1/events names the reason of each rejection.",
    )


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
    days = (now - last) / DAY_SECONDS
    return Check(
        "Age of the data",
        _grade(days, 2, 14),
        f"{days:,.1f} days",
        f"The last event that the model knows is {days:,.1f} days old.",
        "Send events to POST /v1/events, and refit the model with `shortlist service refit`.",
    )


def latency(counts: Counter[str], share: float) -> float | None:
    """Seconds within which this share of the requests was answered, rounded up to a bucket."""
    bounds = [*SECONDS, float("inf")]
    sizes = [counts[f"seconds:{bound}"] for bound in SECONDS] + [counts["seconds:more"]]
    if not sum(sizes):
        return None
    reached = np.cumsum(sizes) >= share * sum(sizes)
    bound = bounds[int(np.argmax(reached))]
    return bound if bound < float("inf") else SECONDS[-1]


def last_event(served: ServedModel) -> float | None:
    """Seconds since 1970 of the last event that the model knows."""
    users = served.model.users_.values.head(1)
    history = served.model.build_request(users).source  # the whole, without copying it
    return history.end_time / 1e6 if history.has_times else None


MINUTES = 60
SAMPLE_USERS = 1_000  # users whose lists show what the model gives when it is loaded


class ReferenceLists(NamedTuple):
    """Lists of a sample of users when the model was loaded."""

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
            "training": _shares(Counter(expected_lengths)),
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
    return {
        "minute": minute * 60,
        "lists": counts["lists"],
        "empty": counts["length:0"] + counts["length of arm:0"],
        "unknown": counts["unknown"],
        "events": counts["events:accepted"],
        "errors": counts["status:5xx"],
        "p50": latency(counts, 0.5),
        "p99": latency(counts, 0.99),
    }


def _shares(lengths: Counter[int]) -> dict[str, float]:
    total = sum(lengths.values())
    return {str(length): count / total for length, count in sorted(lengths.items())} if total else {}
