"""Experiments: users split between arms, what happened after their lists, and the comparison of the arms.

An arm is a model with options of a request. Users take part who had an event before the experiment started.
A user belongs to the arm that a hash of the experiment's salt and the user id says, on every worker and after
every restart. The first list of a user in an experiment is an exposure. When its window has passed, the
outcome is computed from all lists and events of the user in the window, and stored. The comparison reads
nothing but these outcomes, which can be computed again from the log.
"""

import hashlib
import json
import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np
import polars as pl
import sqlalchemy as sa

from shortlist.data.ids import IdMap
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.experiment import (
    SPLIT_ERROR,
    ExperimentReport,
    evaluate_experiment,
    split_evidence,
)
from shortlist.serve.deployment import Deployment, load_activated
from shortlist.serve.options import ExperimentMetric, ExperimentOptions
from shortlist.serve.projections import ModelVersion, erased_after, find_activations, read_timelines
from shortlist.serve.store import Change, EventStore
from shortlist.serve.tables import events, exposures, lists
from shortlist.types import Longs

STARTED, ENDED = "experiment", "experiment end"  # kinds of changes
TURN_SECONDS = 5.0  # between two looks for windows that have passed
SETTLE_SECONDS = 60.0  # events of a window may arrive a little later
USERS_AT_ONCE = 2_000
REPORT_SECONDS = 20.0  # how long a comparison is kept
DAY = 86_400.0
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
COVARIATES = ["log_events_before"]

OUTCOMES = (*get_args(ExperimentMetric), "shown")  # what `measure` returns
OPTIONS = ("N", "cutoff", "min_items", "max_items")  # of a request, that an arm may set


@dataclass(frozen=True, eq=False)
class Arm:
    """One way to make lists."""

    name: str
    share: float  # of the users
    model: str | None = None  # of the folder; None: the one in service
    options: Mapping[str, Any] = field(default_factory=dict)  # of a request
    version: ModelVersion | None = None  # of the model, when the experiment started
    cutoff_checksum: str | None = None  # of the file of its cutoff, then

    @property
    def request_options(self) -> dict[str, Any]:
        """The options with the cutoff as it was when the experiment started."""
        options = dict(self.options)
        return options if self.cutoff_checksum is None else options | {"cutoff": self.cutoff_checksum}

    def describe(self) -> str:
        """The arm in a few words."""
        model = "the model in service" if self.model is None else self.model
        if self.version is not None:
            name = "" if self.model else f"{self.version.model}, "
            model += f" ({name}file {self.version.checksum[:8]})"
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{model}, {options or 'its cutoff'}"


class CommonHistory(NamedTuple):
    """What was known of the users when an experiment started: a model file and the events after it."""

    activation: int  # number of the activation of the model that was in service
    events_until: int  # number of the last event


@dataclass(frozen=True)
class LiveExperiment(ExperimentOptions):
    """Arms, how they are compared, and when it ran."""

    name: str
    arms: tuple[Arm, ...]
    salt: str = ""  # random: the arm of an id is unknown before the start
    history: CommonHistory | None = None
    started: float = 0.0
    ended: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [self.name, *(arm.name for arm in self.arms)]
        for name in names:
            if not NAME.fullmatch(name):
                raise ConfigError(
                    f"a name must be 1 to 60 letters, digits, - or _, got {name[:60]!r}; choose another one."
                )
        if not 2 <= len(self.arms) <= 10 or len(set(names[1:])) < len(self.arms):
            raise ConfigError(f"an experiment needs 2 to 10 arms with names of their own, got {names[1:]}.")
        shares = [arm.share for arm in self.arms]
        if not all(0 < share < 1 for share in shares) or abs(math.fsum(shares) - 1) > 1e-9:
            raise ConfigError(
                f"the shares of the arms must be above 0 and add up to 1, got {shares}; correct them."
            )
        for arm in self.arms:
            unknown = [name for name in arm.options if name not in OPTIONS]
            if unknown:
                raise ConfigError(
                    f"arm {arm.name!r} may set {', '.join(OPTIONS)}, got {unknown[0][:60]!r}; remove it."
                )
        metrics = get_args(ExperimentMetric)
        for metric in self.guardrails:
            if metric not in metrics:
                raise ConfigError(
                    f"guardrails must be of {', '.join(metrics)}, got {metric[:60]!r}; choose one."
                )

    @classmethod
    def from_dict(cls, name: str, values: Mapping[str, Any], started: float, end: Change | None) -> Self:
        """The experiment that `to_dict` described."""
        arms = []
        for arm in values["arms"]:
            version = arm["version"] and ModelVersion(*arm["version"])
            arms.append(Arm(**{**arm, "version": version}))
        history = values["history"] and CommonHistory(*values["history"])
        beside = {"arms": tuple(arms), "history": history, "name": name, "started": started}
        return cls(**{**values, **beside, "ended": None if end is None else end.at})

    def to_dict(self) -> dict[str, Any]:
        """All but the name and how it began and ended."""
        beside = ("name", "started", "ended")
        return {key: value for key, value in asdict(self).items() if key not in beside}

    @property
    def window(self) -> float:
        """Seconds after the first list in which events count."""
        return self.window_days * DAY

    def assign(self, key: str) -> Arm:
        """The arm of a user or session; the same on every machine."""
        digest = hashlib.blake2b(f"{self.name}{self.salt}\0{key}".encode(), digest_size=8).digest()
        place, end = int.from_bytes(digest) / 2**64, 0.0
        for arm in self.arms:
            end += arm.share
            if place < end:
                return arm
        return self.arms[-1]

    def freeze(self, deployment: Deployment) -> Self:
        """The experiment with models, cutoffs and users as they are now: what is replaced changes nothing."""
        arms = []
        for arm in self.arms:
            version, cutoff = deployment.find_version(arm.model), arm.options.get("cutoff", "auto")
            if arm.model is not None and version is not None:
                deployment.keep(arm.model, version.checksum)
            checksum = None if cutoff in ("auto", "boundary") else deployment.keep_cutoff(cutoff)
            arms.append(replace(arm, version=version, cutoff_checksum=checksum))
        history = CommonHistory(*deployment.latest_event())
        return replace(self, arms=tuple(arms), salt=secrets.token_hex(8), history=history)

    @cached_property
    def versions(self) -> list[ModelVersion]:
        """The models of the arms."""
        return [arm.version for arm in self.arms if arm.version is not None]


@dataclass(frozen=True)
class Participants:
    """The users of an experiment, and how many events each had before it started, whatever happens later."""

    experiment: str
    users: IdMap  # of texts
    n_events: Longs  # (n_users,)
    last_erased: int  # users who were erased up to this change are not among them

    @classmethod
    def load(cls, store: EventStore, folder: Path, experiment: LiveExperiment) -> "Participants | None":
        """Count the events of the model file and of the log; None if nothing was noted at the start."""
        if experiment.history is None:
            return None
        number, until = experiment.history
        activation = next(iter(find_activations(store, 1, number=number)), None)
        if activation is None:
            raise DataError(
                f"the activation {number}, which {experiment.name!r} started with, is not known any more; "
                "stop the experiment."
            )
        known = load_activated(folder, activation).history_
        erased = erased_after(store, activation.erased_until)
        in_file = pl.DataFrame({"user_id": known.users.values.cast(pl.String), "n": np.diff(known.indptr)})
        in_file = in_file.filter(~pl.col("user_id").is_in([user.user_id for user in erased]))
        since = sa.select(events.c.user_id, sa.func.count()).group_by(events.c.user_id)
        since = since.where(events.c.seq > activation.events_until, events.c.seq <= until)
        logged = pl.DataFrame(list(map(tuple, store.rows(since))), schema=in_file.schema, orient="row")
        table = pl.concat([in_file, logged]).filter(pl.col("n") > 0).group_by("user_id").sum()
        last = erased[-1].number if erased else activation.erased_until
        return cls(experiment.name, IdMap(table["user_id"]), table["n"].to_numpy(), last)

    def count(self, user_ids: Sequence[str]) -> list[int]:
        """How many events each of these users had; 0 for who takes no part."""
        counts: list[int] = np.append(self.n_events, 0)[self.users.lookup(user_ids)].tolist()
        return counts

    def without_erased(self, store: EventStore) -> "Participants":
        """The same without users who were erased since."""
        erased = erased_after(store, self.last_erased)
        if not erased:
            return self
        is_left = ~self.users.values.is_in([user.user_id for user in erased])
        users, n_events = IdMap(self.users.values.filter(is_left)), self.n_events[is_left.to_numpy()]
        return replace(self, users=users, n_events=n_events, last_erased=erased[-1].number)


class Experiments:
    """The experiment that runs, its users, their outcomes, and its report."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        store.on_lists.append(self._add_exposures)
        self.running: LiveExperiment | None = None
        self.participants: Participants | None = None  # of the running experiment
        self._report: tuple[float, str, dict[str, Any]] = (-math.inf, "", {})

    def follow(self) -> None:
        """Look which experiment runs; every worker does so."""
        latest = self._store.latest_changes((STARTED, ENDED), 1)
        self.running = _parse(latest[0], None) if latest and latest[0].kind == STARTED else None

    def follow_participants(self, folder: Path) -> None:
        """Find out who takes part in the running experiment; a service that shows lists does so."""
        if self.running is None:
            self.participants = None
        elif self.participants is None or self.participants.experiment != self.running.name:
            self.participants = Participants.load(self._store, folder, self.running)
        else:
            self.participants = self.participants.without_erased(self._store)

    def find(self, name: str | None) -> LiveExperiment | None:
        """The experiment of this name; without one, the latest."""
        for started in self._store.latest_changes((STARTED,), 1, name):
            ends = self._store.latest_changes((ENDED,), 1, started.name)
            return _parse(started, ends[0] if ends else None)
        return None

    def start(self, experiment: LiveExperiment) -> LiveExperiment:
        """Begin; ConfigError if another one runs or the name was used before."""
        evaluate_experiment(
            {"arm": [arm.name for arm in experiment.arms], experiment.metric: 0.0}
            | dict.fromkeys(experiment.guardrails, 0.0),
            **self._options(experiment),
        )  # refuses what the comparison would refuse later
        with self._store.begin(in_order=True) as connection:
            self.follow()
            if self.running is not None:
                raise ConfigError(
                    f"a user can be in one experiment only, and {self.running.name!r} runs; stop it before "
                    "you start another one. Arms cannot be changed while an experiment runs."
                )
            if self.find(experiment.name) is not None:
                raise ConfigError(
                    f"an experiment named {experiment.name!r} has ended already; choose another name."
                )
            self._store.add_change(STARTED, experiment.name, experiment.to_dict(), connection)
        self.follow()
        return self._get(experiment.name)

    def stop(self, name: str) -> LiveExperiment:
        """End it: users are no longer split; outcomes whose window is open are still awaited."""
        with self._store.begin(in_order=True) as connection:
            if self._get(name).ended is None:
                self._store.add_change(ENDED, name, {}, connection)
        self.follow()
        return self._get(name)

    def _get(self, name: str | None) -> LiveExperiment:
        experiment = self.find(name)
        if experiment is None:
            raise ConfigError("there is no such experiment; start one first, or check its name.")
        return experiment

    # ------------------------------------------------------------------ outcomes
    def _add_exposures(self, connection: sa.Connection, rows: Sequence[Any]) -> None:
        """Note the first lists of users, also of those without an arm, who take no part."""
        values = []
        for row in rows:
            if row.arm and row.user_id is not None:
                experiment, _, arm = row.arm.partition("/")
                about = {"experiment": experiment, "user_id": row.user_id, "arm": arm}
                values.append(about | {"first": row.made, "n_before": row.n_before or 0})
        if values:
            connection.execute(self._store.insert(exposures).on_conflict_do_nothing(), values)

    def step(self, at: float | None = None) -> int:
        """Store the outcomes of users whose window has passed; return their number."""
        at = self._store.now() if at is None else at
        if self._is_early(at):
            self.rebuild()
        n_users, is_open = 0, sa.and_(exposures.c.outcome.is_(None), exposures.c.arm != "")
        for (name,) in self._store.rows(sa.select(exposures.c.experiment).where(is_open).distinct()):
            experiment = self._get(name)
            before = at - experiment.window - min(SETTLE_SECONDS, experiment.window)
            query = _of_users(name).where(is_open, exposures.c.first < before).limit(USERS_AT_ONCE)
            users = self._store.rows(query)
            if users:
                self._save_outcomes(name, self._outcomes(experiment, users))
            n_users += len(users)
        return n_users

    def _is_early(self, at: float) -> bool:
        """Whether an outcome is stored whose window is open: the clock was wrong for a while."""
        latest = sa.func.max(exposures.c.first)
        query = sa.select(exposures.c.experiment, latest).where(exposures.c.outcome.is_not(None))
        rows = self._store.rows(query.group_by(exposures.c.experiment))
        return any(first > at - self._get(name).window for name, first in rows)

    def _outcomes(self, experiment: LiveExperiment, users: Sequence[Any]) -> dict[str, str]:
        """User id → JSON of the outcome."""
        start = min(user.first for user in users)
        end = max(user.first for user in users) + experiment.window
        timelines = read_timelines(self._store, {user.user_id for user in users}, start, end)
        outcomes = {}
        for user in users:
            last, timeline = user.first + experiment.window, timelines[user.user_id]
            label = f"{experiment.name}/{user.arm}"
            shown = [row for row in timeline.lists if row.arm == label and user.first <= row.made < last]
            bought = timeline.purchases(user.first, last)
            outcomes[user.user_id] = json.dumps(measure(experiment, shown, bought))
        return outcomes

    def _save_outcomes(self, name: str, outcomes: Mapping[str, str]) -> None:
        change = (
            sa.update(exposures)
            .where(exposures.c.experiment == name, exposures.c.user_id == sa.bindparam("user"))
            .values(outcome=sa.bindparam("value"))
        )
        with self._store.begin() as connection:
            connection.execute(change, [{"user": user, "value": value} for user, value in outcomes.items()])

    def rebuild(self) -> None:
        """Drop all outcomes, except those whose lists are deleted; `step` computes them again."""
        logged = sa.select(lists).where(lists.c.arm.is_not(None)).order_by(lists.c.made, lists.c.list_id)
        with self._store.begin() as connection:
            oldest = connection.scalar(sa.select(sa.func.min(lists.c.made)))
            if oldest is not None:
                connection.execute(sa.delete(exposures).where(exposures.c.first >= oldest))
                self._add_exposures(connection, list(connection.execute(logged)))

    def users(self, name: str) -> list[Any]:
        """The users of an experiment whose outcome is known, in the order of their first lists."""
        return self._store.rows(_of_users(name).where(exposures.c.outcome.is_not(None)))

    def count_users(self, name: str) -> dict[str, int]:
        """Arm → number of users who got a list."""
        takes_part = (exposures.c.experiment == name, exposures.c.arm != "")
        query = sa.select(exposures.c.arm, sa.func.count()).where(*takes_part).group_by(exposures.c.arm)
        return {str(arm): int(n) for arm, n in self._store.rows(query)}

    # ------------------------------------------------------------------ the comparison
    def describe(self, name: str | None) -> dict[str, Any]:
        """An experiment with its comparison, for the page and the command line."""
        experiment = self._get(name)
        made, reported, answer = self._report
        if reported != experiment.name or time.monotonic() - made > REPORT_SECONDS:
            answer = self._describe(experiment)
            self._report = (time.monotonic(), experiment.name, answer)
        return answer | {"ended": experiment.ended}

    def _describe(self, experiment: LiveExperiment) -> dict[str, Any]:
        table = self._read_outcomes(experiment)
        report = self._compare(experiment, table)
        summary = _waiting(experiment) if report is None else report.summary()
        limit = f"At most {experiment.max_hits} hits of a user count."
        counts = self.count_users(experiment.name)
        complete = {arm.name: table.filter(arm=arm.name) for arm in experiment.arms}
        return {
            "name": experiment.name,
            "started": experiment.started,
            "metric": experiment.metric,
            "window_days": experiment.window_days,
            "arms": [
                {
                    "name": arm.name,
                    "share": arm.share,
                    "description": arm.describe(),
                    "can_ship": not arm.options,
                    "users": counts.get(arm.name, 0),
                    "complete": complete[arm.name].height,
                    "shown": complete[arm.name]["shown"].mean(),
                    "hits": complete[arm.name]["hits"].mean(),
                }
                for arm in experiment.arms
            ],
            "report": None if report is None else report.to_dict(),
            "summary": " ".join(filter(None, [summary, limit, self._find_invented(experiment)])),
        }

    def _find_invented(self, experiment: LiveExperiment) -> str:
        """A warning if users who take no part prefer an arm, which does not happen by chance."""
        query = sa.select(exposures.c.user_id).where(exposures.c.experiment == experiment.name)
        others = [row.user_id for row in self._store.rows(query.where(exposures.c.arm == ""))]
        arms = [experiment.assign(user_id).name for user_id in others]
        counts = np.array([arms.count(arm.name) for arm in experiment.arms], np.float64)
        shares = np.array([arm.share for arm in experiment.arms])
        if split_evidence(counts, shares, concentration=len(shares)) < -math.log(SPLIT_ERROR):
            return ""
        return (
            f"Somebody invents user ids: the {len(others):,} that were unknown when the experiment started "
            "are not split by the shares of the arms; they take no part."
        )

    def compare(self, experiment: LiveExperiment) -> ExperimentReport | None:
        """The comparison of the users whose window has passed; None while an arm has none."""
        return self._compare(experiment, self._read_outcomes(experiment))

    def _compare(self, experiment: LiveExperiment, table: pl.DataFrame) -> ExperimentReport | None:
        if set(table["arm"]) != {arm.name for arm in experiment.arms}:
            return None
        return evaluate_experiment(table, covariates=COVARIATES, **self._options(experiment))

    def _read_outcomes(self, experiment: LiveExperiment) -> pl.DataFrame:
        """One row per user whose window has passed: arm, day, what was known before, and the outcome."""
        rows = self.users(experiment.name)
        measured = [json.loads(row.outcome or "{}") for row in rows]
        return pl.DataFrame(
            {
                "arm": pl.Series([row.arm for row in rows], dtype=pl.String),
                "day": [int((row.first + experiment.window - experiment.started) // DAY) for row in rows],
                "log_events_before": [math.log1p(row.n_before) for row in rows],
                **{
                    name: pl.Series([outcome[name] for outcome in measured], dtype=pl.Float64, strict=False)
                    for name in OUTCOMES
                },
            }
        )

    @staticmethod
    def _options(experiment: LiveExperiment) -> dict[str, Any]:
        return {
            "metric": experiment.metric,
            "control": experiment.arms[0].name,
            "shares": {arm.name: arm.share for arm in experiment.arms},
            "guardrails": {k: v for k, v in experiment.guardrails.items() if k != experiment.metric},
            "smallest_effect": experiment.smallest_effect,
            "confidence": experiment.confidence,
            "planned_users": experiment.planned_users,
        }


def _parse(started: Change, end: Change | None) -> LiveExperiment:
    return LiveExperiment.from_dict(started.name, started.content, started.at, end)


def _of_users(name: str) -> sa.Select[Any]:
    """The users of an experiment, in the order of their first lists."""
    query = sa.select(exposures).where(exposures.c.experiment == name)
    return query.order_by(exposures.c.first, exposures.c.user_id)


def _waiting(experiment: LiveExperiment) -> str:
    days = f"{experiment.window_days:g} days"
    return f"Not yet: the outcome of a user is complete {days} after the first list."


def measure(experiment: LiveExperiment, lists: Sequence[Any], events: Sequence[Any]) -> dict[str, float]:
    """The outcome of one user: rows of lists and events in the window, each in the order of time.

    A hit is an item that the user chose after it was on a list; each item counts once, and at most `max_hits`
    of them; the value lies within what as many hits earn. `f1` compares the first list with the first basket
    after it.
    """
    items_of = [json.loads(row.items) for row in lists]
    n_shown, n_contacts = sum(map(len, items_of)), sum(bool(items) for items in items_of)
    shown_at: dict[str, float] = {}
    for row, items in zip(lists, items_of, strict=True):
        for item in items:
            shown_at.setdefault(item, row.made)
    chosen = {row.item_id for row in events if shown_at.get(row.item_id, math.inf) <= row.received}
    hits = min(len(chosen), experiment.max_hits)
    value = experiment.gain * hits - experiment.cost * n_shown - experiment.contact_cost * n_contacts
    limit = experiment.max_hits * max(experiment.gain, experiment.cost, experiment.contact_cost)
    first = items_of[0] if items_of else []
    basket = {row.item_id for row in events if row.time == events[0].time} if events else set()
    both = len(basket.intersection(first))
    return {
        "hits": float(hits),
        "hits_per_item": min(len(chosen) / n_shown, 1.0) if n_shown else 0.0,
        "value": min(max(value, -limit), limit),
        "f1": 2 * both / (len(basket) + len(first)) if basket or first else 0.0,
        "empty": float(not first),
        "shown": float(n_shown),
    }
