"""What came of the lists, in the way in which the cutoff in service was validated.

Validated on buyers: a list is compared with the next basket of its user, if that arrives within a week. Lists
after which nothing happened do not count. Validated on everyone: a list is compared with everything that its
user did within the horizon, possibly nothing, when the horizon is over.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import polars as pl

from shortlist.cutoff.guarantee import Guarantee
from shortlist.cutoff.monitor import GuaranteeMonitor
from shortlist.data.columns import parse_duration
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.serve.deployment import ServedModel
from shortlist.serve.store import EventStore

SETTLE_SECONDS = 60.0  # the events of a basket may arrive in several requests
FUTURE_SECONDS = 3_600.0
WINDOW_SECONDS = 7 * 86_400.0
EVENTS_AT_ONCE = 5_000  # in one step, so that new events wait for it by less than a second
UPDATE_LISTS = 200  # lists with an outcome before the threshold of a guarantee moves
SETTING = "feedback"


@dataclass(frozen=True)
class Outcome:
    """A logged list and the items of the basket that followed it."""

    items: list[str]
    probabilities: list[float] | None
    basket: frozenset[str]
    model: str

    @property
    def precision(self) -> float | None:
        """Share of the shown items that were relevant; None for an empty list."""
        return sum(item in self.basket for item in self.items) / len(self.items) if self.items else None

    @property
    def excess(self) -> float | None:
        """Observed minus predicted share of relevant items."""
        if self.precision is None or self.probabilities is None:
            return None
        return self.precision - sum(self.probabilities) / len(self.probabilities)


class Feedback:
    """Joins events with logged lists and keeps the monitors; its state lives in the store."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._waiting: list[Outcome] = []  # for the next update of a guarantee
        self.is_behind = False  # whether the last step left events for another one

    def step(self, served: ServedModel, at: float | None = None) -> Guarantee | None:
        """Use the events that have settled; return a guarantee whose threshold should be put into service."""
        at = self._store.now() if at is None else at
        stored = self._store.setting(SETTING)
        state = _parse_state(stored, served)
        horizon = find_horizon(served)
        if horizon is not None:
            self._step_everyone(served, at, horizon, stored, state)
            return None
        rows = self._store.events_after(state["seq"], EVENTS_AT_ONCE)
        # an event from the future was received while the clock was wrong
        settled = list(
            takewhile(lambda row: not at - SETTLE_SECONDS < row.received <= at + FUTURE_SECONDS, rows)
        )
        self.is_behind = len(settled) == EVENTS_AT_ONCE
        if not settled:
            return None
        outcomes, used = self._join(settled)
        outcomes = [outcome for outcome in outcomes if outcome.model == served.name]
        state["seq"] = int(settled[-1].seq)
        self._update_monitors(state, outcomes, time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)))
        if not self._store.close_lists(used, SETTING, stored, json.dumps(state)):
            return None  # another worker has used these events
        cutoff = served.model.cutoff_
        if not isinstance(cutoff, Guarantee):
            self._waiting = []
            return None
        self._waiting = [*(earlier for earlier in self._waiting if earlier.model == served.name), *outcomes]
        if len(self._waiting) < UPDATE_LISTS:
            return None
        batch, self._waiting = self._waiting, []
        return cutoff.update(*build_batch(batch, cutoff), shown=True)

    def _step_everyone(
        self, served: ServedModel, at: float, horizon: float, stored: str | None, state: dict[str, Any]
    ) -> None:
        """Use the lists whose horizon is over; a Guarantee, which is tested on baskets, is not among them."""
        outcomes, used = self._join_expired(served.name, at - SETTLE_SECONDS, horizon)
        if not used:
            return
        state["seq"] = self._store.last_event()
        self._update_monitors(state, outcomes, time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)))
        self._store.close_lists(used, SETTING, stored, json.dumps(state))

    def _join_expired(self, model: str, at: float, horizon: float) -> tuple[list[Outcome], list[str]]:
        """The first list of each user whose horizon is over, with what happened in it; ids of used lists.

        Further lists that the user got within that horizon are closed with it: their outcomes overlap.
        """
        expired = self._store.expired_lists(model, at - horizon, EVENTS_AT_ONCE)
        self.is_behind = len(expired) == EVENTS_AT_ONCE
        users = sorted({row.user_id for row in expired})
        if not users:
            return [], []
        logged = self._store.open_lists(users, expired[0].made, at)
        events = self._store.events_of(users, expired[0].made, at)
        outcomes, used = [], []
        for user, rows in logged.items():
            until = 0.0
            for row in rows:
                if row.made < until:
                    used.append(row.list_id)
                elif row.model == model and row.made < at - horizon:
                    until = row.made + horizon
                    basket = {
                        event.item_id for event in events.get(user, ()) if row.made < event.received <= until
                    }
                    outcomes.append(_outcome(row, basket))
                    used.append(row.list_id)
        return outcomes, used

    def monitors(self, served: ServedModel) -> dict[str, GuaranteeMonitor]:
        """The monitors of the model in service, as they are in the store."""
        stored = _parse_state(self._store.setting(SETTING), served)["monitors"]
        return {name: GuaranteeMonitor.from_dict(values) for name, values in stored.items()}

    def events_behind(self, served: ServedModel) -> int:
        """How many stored events have not been compared with lists yet."""
        return self._store.last_event() - int(_parse_state(self._store.setting(SETTING), served)["seq"])

    def _join(self, rows: Sequence[Any]) -> tuple[list[Outcome], list[str]]:
        """The last list of each user before a basket, if it has not been used yet; ids of used lists."""
        baskets: dict[tuple[str, int], list[Any]] = defaultdict(list)
        rows = [row for row in rows if row.weight is None or row.weight >= 0]  # a return is no success
        if not rows:
            return [], []
        for row in rows:
            baskets[row.user_id, row.time].append(row)
        users = sorted({user for user, _ in baskets})
        start = min(row.received for row in rows) - WINDOW_SECONDS
        logged = self._store.open_lists(users, start, max(row.received for row in rows))
        outcomes, used = [], []
        for (user, _), events in sorted(baskets.items(), key=lambda pair: pair[1][0].seq):
            arrived = min(event.received for event in events)
            earlier = [row for row in logged.get(user, ()) if arrived - WINDOW_SECONDS < row.made < arrived]
            if not earlier:
                continue
            logged[user] = [row for row in logged[user] if row not in earlier]
            used += [row.list_id for row in earlier]
            outcomes.append(_outcome(earlier[-1], {event.item_id for event in events}))
        return outcomes, used

    @staticmethod
    def _update_monitors(state: dict[str, Any], outcomes: Sequence[Outcome], at: str) -> None:
        """Add the outcomes to the monitors of the state."""
        for name, values in state["monitors"].items():
            monitor = GuaranteeMonitor.from_dict(values)
            observed: list[float]
            if monitor.guarantee == "empty":
                observed = [float(not outcome.items) for outcome in outcomes]
            elif monitor.guarantee == "calibration":
                observed = [outcome.excess for outcome in outcomes if outcome.excess is not None]
            else:
                empty = 1.0 if monitor.over == "users" else None
                rates = [empty if outcome.precision is None else outcome.precision for outcome in outcomes]
                observed = [rate for rate in rates if rate is not None]
            if observed:
                state["monitors"][name] = monitor.update(np.array(observed), at=at).to_dict()


def find_horizon(served: ServedModel) -> float | None:
    """Seconds within which everyone was validated; None for a model that was validated on buyers."""
    chosen = served.model.selection_
    if chosen is None or chosen.users != "everyone" or chosen.horizon is None:
        return None
    return parse_duration("horizon", chosen.horizon) / 1e6


def _outcome(row: Any, basket: Iterable[str]) -> Outcome:
    """A logged list with what followed it."""
    probabilities = None if row.probabilities is None else json.loads(row.probabilities)
    return Outcome(json.loads(row.items), probabilities, frozenset(basket), row.model)


def _parse_state(text: str | None, served: ServedModel) -> dict[str, Any]:
    """The stored state; monitors start again with another model or another guarantee."""
    state: dict[str, Any] = json.loads(text) if text else {"seq": 0}
    cutoff = served.model.cutoff_
    guarantee = [cutoff.min_precision, cutoff.max_empty] if isinstance(cutoff, Guarantee) else None
    subject = [served.name, guarantee]
    if "promise" in state.get("monitors", ()):  # its name in release 0.2
        state["monitors"]["guarantee"] = state["monitors"].pop("promise")
    if state.get("subject") != subject:
        monitors = {"calibration": GuaranteeMonitor(guarantee="calibration", tolerance=0.02)}
        if isinstance(cutoff, Guarantee):
            monitors["guarantee"] = GuaranteeMonitor.of(cutoff)
        state |= {"subject": subject, "monitors": {k: monitor.to_dict() for k, monitor in monitors.items()}}
    return state


def build_batch(outcomes: Sequence[Outcome], cutoff: Guarantee) -> tuple[RankedLists, Interactions]:
    """The lists and the baskets in the form that a guarantee is updated with; every list has its own user."""
    rows = [
        (number, item, rank)
        for number, outcome in enumerate(outcomes)
        for rank, item in enumerate(outcome.items or [None], 0 if not outcome.items else 1)
    ]
    frame = pl.DataFrame(
        rows, schema={"user_id": pl.Int64, "item_id": pl.String, "rank": pl.Int64}, orient="row"
    )
    lists = RankedLists.from_frame(frame.with_columns(score=-pl.col("rank").cast(pl.Float64)))
    pairs = [(number, item) for number, outcome in enumerate(outcomes) for item in sorted(outcome.basket)]
    truth = Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    return replace(lists, source=cutoff.source_), truth  # made by the model in service
