"""Experiments: users split between arms, what happened after their lists, and the comparison of the arms.

An arm is a model with options of a request. A user belongs to the arm that a hash of the experiment's name
and the user id says, on every worker and after every restart. The first list of a user in an experiment is an
exposure. When its window has passed, the outcome is computed from all lists and events of the user in the
window, and stored. The comparison reads nothing but these outcomes, which can be computed again from the log.
"""

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import polars as pl
import sqlalchemy as sa

from shortlist.errors import ConfigError
from shortlist.evaluation.experiment import ExperimentReport, evaluate_experiment
from shortlist.serve.activations import ModelVersion
from shortlist.serve.deployment import Deployment
from shortlist.serve.outcomes import read_timelines
from shortlist.serve.store import Change, EventStore
from shortlist.serve.tables import exposures, lists

STARTED, ENDED = "experiment", "experiment end"  # kinds of changes
TURN_SECONDS = 5.0  # between two looks for windows that have passed
SETTLE_SECONDS = 60.0  # events of a window may arrive a little later
USERS_AT_ONCE = 2_000
REPORT_SECONDS = 20.0  # how long a comparison is kept
DAY = 86_400.0
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
COVARIATES = ["log_events_before"]

ExperimentMetric = Literal["hits", "hits_per_item", "value", "f1", "empty"]
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

    def describe(self) -> str:
        """The arm in a few words."""
        model = "the model in service" if self.model is None else self.model
        if self.version is not None:
            name = "" if self.model else f"{self.version.model}, "
            model += f" ({name}file {self.version.checksum[:8]})"
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{model}, {options or 'its cutoff'}"


@dataclass(frozen=True)
class LiveExperiment:
    """Arms, how they are compared, and when it ran.

    `gain` is what a hit earns, `cost` what a shown item costs, `contact_cost` what a list with items costs.
    """

    name: str
    arms: tuple[Arm, ...]
    metric: ExperimentMetric = "hits"
    window_days: float = 7.0
    gain: float = 1.0
    cost: float = 0.0
    contact_cost: float = 0.0
    guardrails: Mapping[str, float] = field(default_factory=dict)
    smallest_effect: float | None = None
    confidence: float = 0.95
    started: float = 0.0
    ended: float | None = None
    note: str = ""  # why it ended, unless somebody stopped it
    is_recorded: bool = False  # by release 0.3: its outcomes stay, its counts of earlier events are not used

    def __post_init__(self) -> None:
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
        for metric in (self.metric, *self.guardrails):
            if metric not in metrics:
                raise ConfigError(
                    f"a metric must be one of {', '.join(metrics)}, got {metric[:60]!r}; choose one."
                )
        if not 0 < self.window_days <= 365:
            raise ConfigError(f"window_days must be above 0 and at most 365, got {self.window_days}.")

    @classmethod
    def from_dict(cls, name: str, values: Mapping[str, Any], started: float, end: Change | None) -> Self:
        """The experiment that `to_dict` described."""
        arms = []
        for arm in values["arms"]:
            version = arm["version"] and ModelVersion(*arm["version"])
            arms.append(Arm(**{**arm, "version": version}))
        ending = {} if end is None else {"ended": end.at, **end.content}
        return cls(**{**values, "arms": tuple(arms), "name": name, "started": started, **ending})

    def to_dict(self) -> dict[str, Any]:
        """All but the name and how it began and ended."""
        beside = ("name", "started", "ended", "note", "is_recorded")
        return {key: value for key, value in asdict(self).items() if key not in beside}

    @property
    def window(self) -> float:
        """Seconds after the first list in which events count."""
        return self.window_days * DAY

    def assign(self, key: str) -> Arm:
        """The arm of a user or session; the same on every machine."""
        digest = hashlib.blake2b(f"{self.name}\0{key}".encode(), digest_size=8).digest()
        place, end = int.from_bytes(digest) / 2**64, 0.0
        for arm in self.arms:
            end += arm.share
            if place < end:
                return arm
        return self.arms[-1]

    def freeze(self, deployment: Deployment) -> Self:
        """The experiment with its models and cutoffs as they are now: what is replaced changes no arm."""
        arms = []
        for arm in self.arms:
            version, options = deployment.find_version(arm.model), dict(arm.options)
            if arm.model is not None and version is not None:
                deployment.keep(arm.model, version.checksum)
            if options.get("cutoff", "auto") not in ("auto", "boundary"):
                options["cutoff"] = deployment.find_cutoff(options["cutoff"])
            arms.append(replace(arm, version=version, options=options))
        return replace(self, arms=tuple(arms))

    @cached_property
    def versions(self) -> list[ModelVersion]:
        """The models of the arms."""
        return [arm.version for arm in self.arms if arm.version is not None]


class Experiments:
    """The experiment that runs, the outcomes of its users, and its report."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        store.on_lists.append(self._add_exposures)
        self.running: LiveExperiment | None = None
        self._report: tuple[float, str, dict[str, Any]] = (-math.inf, "", {})

    def follow(self) -> None:
        """Look which experiment runs; every worker does so."""
        latest = self._store.latest_changes((STARTED, ENDED), 1)
        self.running = _parse(latest[0], None) if latest and latest[0].kind == STARTED else None

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
                self._store.add_change(ENDED, name, {"note": ""}, connection)
        self.follow()
        return self._get(name)

    def _get(self, name: str | None) -> LiveExperiment:
        experiment = self.find(name)
        if experiment is None:
            raise ConfigError("there is no such experiment; start one first, or check its name.")
        return experiment

    # ------------------------------------------------------------------ outcomes
    def _add_exposures(self, connection: sa.Connection, rows: Sequence[Any]) -> None:
        """Note the users who are in an experiment for the first time, with the lists that are logged."""
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
        n_users, is_open = 0, exposures.c.outcome.is_(None)
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
        """Drop all outcomes, except those whose lists are deleted or that release 0.3 recorded.

        `step` computes them again.
        """
        ends = self._store.latest_changes((ENDED,), 1_000)
        recorded = [end.name for end in ends if end.content.get("is_recorded")]
        logged = sa.select(lists).where(lists.c.arm.is_not(None)).order_by(lists.c.made, lists.c.list_id)
        with self._store.begin() as connection:
            oldest = connection.scalar(sa.select(sa.func.min(lists.c.made)))
            if oldest is not None:
                kept = sa.delete(exposures).where(exposures.c.experiment.not_in(recorded))
                connection.execute(kept.where(exposures.c.first >= oldest))
                rows = [row for row in connection.execute(logged) if row.arm.split("/")[0] not in recorded]
                self._add_exposures(connection, rows)

    def users(self, name: str) -> list[Any]:
        """The users of an experiment whose outcome is known, in the order of their first lists."""
        return self._store.rows(_of_users(name).where(exposures.c.outcome.is_not(None)))

    def count_users(self, name: str) -> dict[str, int]:
        """Arm → number of users who got a list."""
        query = sa.select(exposures.c.arm, sa.func.count()).where(exposures.c.experiment == name)
        return {str(arm): int(n) for arm, n in self._store.rows(query.group_by(exposures.c.arm))}

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
                    "users": counts.get(arm.name, 0),
                    "complete": complete[arm.name].height,
                    "shown": complete[arm.name]["shown"].mean(),
                    "hits": complete[arm.name]["hits"].mean(),
                }
                for arm in experiment.arms
            ],
            "report": None if report is None else report.to_dict(),
            "summary": f"{summary} It was {experiment.note}." if experiment.note else summary,
        }

    def compare(self, experiment: LiveExperiment) -> ExperimentReport | None:
        """The comparison of the users whose window has passed; None while an arm has none."""
        return self._compare(experiment, self._read_outcomes(experiment))

    def _compare(self, experiment: LiveExperiment, table: pl.DataFrame) -> ExperimentReport | None:
        if set(table["arm"]) != {arm.name for arm in experiment.arms}:
            return None
        covariates = [] if experiment.is_recorded else COVARIATES
        return evaluate_experiment(table, covariates=covariates, **self._options(experiment))

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

    A hit is an item that the user chose after it was on a list; each item counts once. `f1` compares the
    first list with the first basket after it.
    """
    items_of = [json.loads(row.items) for row in lists]
    n_shown, n_contacts = sum(map(len, items_of)), sum(bool(items) for items in items_of)
    shown_at: dict[str, float] = {}
    for row, items in zip(lists, items_of, strict=True):
        for item in items:
            shown_at.setdefault(item, row.made)
    hits = {row.item_id for row in events if shown_at.get(row.item_id, math.inf) <= row.received}
    first = items_of[0] if items_of else []
    basket = {row.item_id for row in events if row.time == events[0].time} if events else set()
    both = len(basket.intersection(first))
    return {
        "hits": float(len(hits)),
        "hits_per_item": min(len(hits) / n_shown, 1.0) if n_shown else 0.0,
        "value": experiment.gain * len(hits)
        - experiment.cost * n_shown
        - experiment.contact_cost * n_contacts,
        "f1": 2 * both / (len(basket) + len(first)) if basket or first else 0.0,
        "empty": float(not first),
        "shown": float(n_shown),
    }
