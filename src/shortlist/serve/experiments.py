"""Experiments: users split between arms, what happened after their lists, and the comparison of the arms.

An arm is a model with options of a request. A user belongs to the arm that a hash of the experiment's name
and the user id says, on every worker and after every restart. The first list of a user in an experiment is an
exposure. When its window has passed, the outcome is computed once, from all lists and events of the user in
the window, and stored. The comparison reads nothing but these outcomes.
"""

import hashlib
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import polars as pl

from shortlist.errors import ConfigError
from shortlist.evaluation.experiment import ExperimentReport, evaluate_experiment
from shortlist.serve.deployment import Deployment
from shortlist.serve.store import EventStore, Exposure

TURN_SECONDS = 5.0  # between two looks for windows that have passed
SETTLE_SECONDS = 60.0  # events of a window may arrive a little later
USERS_AT_ONCE = 2_000
REPORT_SECONDS = 20.0  # how long a comparison is kept
DAY = 86_400.0
LOGGED_LISTS = 200_000  # that are read from the log at once
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
    checksum: str | None = None  # of the model file

    def describe(self) -> str:
        """The arm in a few words."""
        model = "the model in service" if self.model is None else self.model
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
    def from_json(cls, name: str, text: str, started: float, ended: float | None) -> Self:
        """The experiment that `to_json` described."""
        values = json.loads(text)
        arms = []
        for arm in values.pop("arms"):  # release 0.3 knew other options
            options = {key: value for key, value in arm.pop("options").items() if key in OPTIONS}
            arms.append(Arm(**arm, options=options))
        return cls(name=name, arms=tuple(arms), started=started, ended=ended, **values)

    def to_json(self) -> str:
        """All but the name and the times."""
        values = asdict(self)
        return json.dumps({key: values[key] for key in values if key not in ("name", "started", "ended")})

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

    def with_files(self, deployment: Deployment) -> Self:
        """The experiment with the checksums of its models: a file that is replaced changes no arm."""
        checksums = {name: deployment.find_checksum(name) for name in self.models}
        for name, checksum in checksums.items():
            deployment.keep(name, checksum)
        arms = (replace(arm, checksum=checksums.get(arm.model or "")) for arm in self.arms)
        return replace(self, arms=tuple(arms))

    @cached_property
    def models(self) -> dict[str, str | None]:
        """Model and checksum of the arms that name one."""
        return {arm.model: arm.checksum for arm in self.arms if arm.model is not None}


class Experiments:
    """The experiment that runs, the outcomes of its users, and its report."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self.running: LiveExperiment | None = None
        self._report: tuple[float, str, dict[str, Any]] = (-math.inf, "", {})

    def follow(self) -> None:
        """Look which experiment runs; every worker does so."""
        self.running = self.find(None, running=True)

    def find(self, name: str | None, *, running: bool = False) -> LiveExperiment | None:
        """The experiment of this name; without one, the latest."""
        row = self._store.experiment(name, running=running)
        return None if row is None else LiveExperiment.from_json(*row)

    def start(self, experiment: LiveExperiment) -> LiveExperiment:
        """Begin; ConfigError if another one runs or the name was used before."""
        evaluate_experiment(
            {"arm": [arm.name for arm in experiment.arms], experiment.metric: 0.0}
            | dict.fromkeys(experiment.guardrails, 0.0),
            **self._options(experiment),
        )  # refuses what the comparison would refuse later
        self._store.start_experiment(experiment.name, experiment.to_json(), self._store.now())
        self.follow()
        return self._get(experiment.name)

    def stop(self, name: str) -> LiveExperiment:
        """End it: users are no longer split; outcomes whose window is open are still awaited."""
        experiment = self._get(name)
        self._store.stop_experiment(name, self._store.now())
        self.follow()
        return experiment

    def _get(self, name: str | None) -> LiveExperiment:
        experiment = self.find(name)
        if experiment is None:
            raise ConfigError("there is no such experiment; start one first, or check its name.")
        return experiment

    # ------------------------------------------------------------------ outcomes
    def step(self, at: float | None = None) -> int:
        """Store the outcomes of users whose window has passed; return their number."""
        at = self._store.now() if at is None else at
        n_users = 0
        for row in self._store.open_experiments():
            experiment = LiveExperiment.from_json(*row)
            settle = min(SETTLE_SECONDS, experiment.window)
            exposures = self._store.open_exposures(
                experiment.name, at - experiment.window - settle, USERS_AT_ONCE
            )
            if exposures:
                outcomes = self._outcomes(experiment, exposures)
                self._store.save_outcomes(experiment.name, outcomes, at)
                n_users += len(outcomes)
        return n_users

    def _outcomes(self, experiment: LiveExperiment, exposures: Sequence[Exposure]) -> dict[str, str]:
        """User id → JSON of the outcome."""
        users = [exposure.user_id for exposure in exposures]
        start = min(exposure.first for exposure in exposures)
        end = max(exposure.first for exposure in exposures) + experiment.window
        lists, events = defaultdict(list), defaultdict(list)
        for row in self._store.lists_of_users(users, start, end):
            lists[row.user_id].append(row)
        for row in self._store.events_of_users(users, start, end):
            events[row.user_id].append(row)
        outcomes = {}
        for exposure in exposures:
            last = exposure.first + experiment.window
            shown = [
                row
                for row in lists[exposure.user_id]
                if row.arm == f"{experiment.name}/{exposure.arm}" and exposure.first <= row.made < last
            ]
            later = [row for row in events[exposure.user_id] if exposure.first <= row.received < last]
            outcomes[exposure.user_id] = json.dumps(measure(experiment, shown, later))
        return outcomes

    def count_users(self) -> dict[tuple[str, str], int]:
        """(name, arm) of the running experiment → users who got a list."""
        running = self.running
        counts = {} if running is None else self._store.count_exposures(running.name)
        return {(running.name if running else "", arm): n for arm, n in counts.items()}

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
        counts = self._store.count_exposures(experiment.name)
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
            "summary": _waiting(experiment) if report is None else report.summary(),
        }

    def compare(self, experiment: LiveExperiment) -> ExperimentReport | None:
        """The comparison of the users whose window has passed; None while an arm has none."""
        return self._compare(experiment, self._read_outcomes(experiment))

    def _compare(self, experiment: LiveExperiment, table: pl.DataFrame) -> ExperimentReport | None:
        if set(table["arm"]) != {arm.name for arm in experiment.arms}:
            return None
        return evaluate_experiment(table, covariates=COVARIATES, **self._options(experiment))

    def _read_outcomes(self, experiment: LiveExperiment) -> pl.DataFrame:
        """One row per user whose window has passed: arm, day, what was known before, and the outcome."""
        rows = self._store.outcomes(experiment.name)
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
