"""What came of the lists, in the way in which the cutoff in service was validated.

Validated on buyers: a list is compared with the next basket of its user, if that arrives within a week. Lists
after which nothing happened do not count. Validated on everyone: a list is compared with everything that its
user did within the horizon, possibly nothing, when the horizon is over.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa

from shortlist.cutoff.guarantee import Guarantee
from shortlist.cutoff.monitor import GuaranteeMonitor
from shortlist.data.columns import parse_duration
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.serve.deployment import ServedModel
from shortlist.serve.outcomes import BASKET_SECONDS, is_return, read_timelines
from shortlist.serve.store import EventStore, slices
from shortlist.serve.tables import lists as lists_table
from shortlist.serve.tables import snapshots

FUTURE_SECONDS = 3_600.0
WINDOW_SECONDS = 7 * 86_400.0
EVENTS_AT_ONCE = 5_000  # in one step, so that new events wait for it by less than a second
UPDATE_LISTS = 200  # lists with an outcome before the threshold of a guarantee moves
SNAPSHOT = "feedback"


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
        stored = self._store.snapshot(SNAPSHOT)
        state = _parse_state(stored, served)
        if state["at"] > at + FUTURE_SECONDS:  # outcomes were counted too early, because the clock was wrong
            self.rebuild()
            return None
        state["at"] = at
        horizon = find_horizon(served)
        if horizon is not None:
            self._step_everyone(served, at, horizon, stored, state)
            return None
        rows = self._store.events_after(state["seq"], EVENTS_AT_ONCE)
        # an event from the future was received while the clock was wrong
        settled = list(
            takewhile(lambda row: not at - BASKET_SECONDS < row.received <= at + FUTURE_SECONDS, rows)
        )
        self.is_behind = len(settled) == EVENTS_AT_ONCE
        if not settled:
            return None
        outcomes, used = self._join(settled)
        outcomes = [outcome for outcome in outcomes if outcome.model == served.name]
        state["seq"] = int(settled[-1].seq)
        self._update_monitors(state, outcomes, time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)))
        if not self._close_lists(used, stored, state):
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
        outcomes, used = self._join_expired(served.name, at - BASKET_SECONDS, horizon)
        if not used:
            return
        state["seq"] = self._store.last_event()
        self._update_monitors(state, outcomes, time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)))
        self._close_lists(used, stored, state)

    def _close_lists(self, list_ids: Sequence[str], before: str | None, state: dict[str, Any]) -> bool:
        """Mark lists whose outcome was counted and store the state, unless another worker did so first."""
        with self._store.begin() as connection:
            if not self._store.replace_snapshot(SNAPSHOT, before, json.dumps(state), connection):
                return False
            for some in slices(list_ids):
                used = sa.update(lists_table).where(lists_table.c.list_id.in_(some)).values(used=True)
                connection.execute(used)
        return True

    def rebuild(self) -> None:
        """Drop all outcomes; `step` counts those of the lists that the log still has."""
        with self._store.begin() as connection:
            connection.execute(sa.update(lists_table).values(used=False))
            connection.execute(sa.delete(snapshots).where(snapshots.c.name == SNAPSHOT))
        self.is_behind = True

    def _join_expired(self, model: str, at: float, horizon: float) -> tuple[list[Outcome], list[str]]:
        """The first list of each user whose horizon is over, with what happened in it; ids of used lists.

        Further lists that the user got within that horizon are closed with it: their outcomes overlap.
        """
        table = lists_table.c
        query = sa.select(lists_table).where(table.model == model, table.made < at - horizon, ~table.used)
        expired = self._store.rows(query.order_by(table.made, table.list_id).limit(EVENTS_AT_ONCE))
        self.is_behind = len(expired) == EVENTS_AT_ONCE
        users = {row.user_id for row in expired if row.user_id is not None}
        timelines = read_timelines(self._store, users, expired[0].made, at) if expired else {}
        outcomes, used = [], [row.list_id for row in expired if row.user_id is None]
        for timeline in timelines.values():
            until = 0.0
            for row in timeline.lists:
                if row.used:
                    continue
                if row.made < until:
                    used.append(row.list_id)
                elif row.model == model and row.made < at - horizon:
                    until = row.made + horizon
                    basket = {event.item_id for event in timeline.purchases(row.made, until)}
                    outcomes.append(_outcome(row, basket))
                    used.append(row.list_id)
        return outcomes, used

    def monitors(self, served: ServedModel) -> dict[str, GuaranteeMonitor]:
        """The monitors of the model in service, as they are in the store."""
        stored = _parse_state(self._store.snapshot(SNAPSHOT), served)["monitors"]
        return {name: GuaranteeMonitor.from_dict(values) for name, values in stored.items()}

    def events_behind(self, served: ServedModel) -> int:
        """How many stored events have not been compared with lists yet."""
        return self._store.last_event() - int(_parse_state(self._store.snapshot(SNAPSHOT), served)["seq"])

    def _join(self, rows: Sequence[Any]) -> tuple[list[Outcome], list[str]]:
        """The last list of each user before a basket, if it has not been used yet; ids of used lists."""
        bought = [row for row in rows if not is_return(row)]
        if not bought:
            return [], []
        arrived = [row.received for row in bought]
        start, end = min(arrived) - WINDOW_SECONDS, max(arrived) + BASKET_SECONDS
        timelines = read_timelines(self._store, {row.user_id for row in bought}, start, end)
        numbers = {int(row.seq) for row in bought}
        joined, used = [], []
        for timeline in timelines.values():
            unused = [row for row in timeline.lists if not row.used]
            for basket in timeline.baskets():
                earlier = [
                    row for row in unused if basket.arrived - WINDOW_SECONDS < row.made < basket.arrived
                ]
                if basket.first_seq in numbers and earlier:
                    unused = [row for row in unused if row not in earlier]
                    used += [row.list_id for row in earlier]
                    joined.append((basket.first_seq, _outcome(earlier[-1], basket.items)))
        return [outcome for _, outcome in sorted(joined, key=lambda pair: pair[0])], used

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
    state: dict[str, Any] = {"seq": 0, "at": 0.0} | (json.loads(text) if text else {})
    cutoff = served.model.cutoff_
    guarantee = [cutoff.min_precision, cutoff.max_empty] if isinstance(cutoff, Guarantee) else None
    subject = [served.name, guarantee]
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
