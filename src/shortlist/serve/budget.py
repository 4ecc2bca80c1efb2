"""A budget of shown items per day or week: one counter for all workers, and a price that makes it last.

The counter is a row of the event store. A worker takes a few items at a time from it, in one transaction, so
that workers and restarts together never show more than the budget. The price of `Budget` follows from what is
left and from the lists that are still expected, which are learned from the traffic of the last weeks.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from shortlist.cutoff import Budget
from shortlist.cutoff.base import Cutoff
from shortlist.data.lists import REASON_CODE, RankedLists
from shortlist.serve.clock import now, write_log
from shortlist.serve.store import EventStore, StoreError, counters, metadata
from shortlist.types import Doubles, Longs

HOUR, DAY = 3_600.0, 86_400.0
WEEK = 7 * DAY
MONDAY = 4 * DAY  # 1970-01-05, in seconds
LENGTHS = {"day": DAY, "week": WEEK}
WEEKS_KEPT = 5  # of traffic, from which the pattern of a week is learned
RECENT_HOURS = 3  # whose traffic says how high the level is now
PRIOR_LISTS = 20.0  # how many lists of this hour weigh as much as the level of earlier weeks
SMOOTHING = 0.05  # of the pattern: an hour without lists may have some next week
HORIZON = HOUR  # how far an even pace looks ahead
LEASE_SHARE = 0.001  # of what is left that a worker takes at a time
REFRESH_SECONDS = 1.0

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("start", sa.BigInteger, primary_key=True),  # of the period, seconds since 1970 UTC
    sa.Column("spent", sa.BigInteger, nullable=False),
)


@dataclass
class Traffic:
    """Lists per hour so far, and how many are expected until a later time."""

    hours: dict[int, float] = field(default_factory=dict)  # hour since 1970 → lists

    def pattern(self, time: float) -> Doubles:
        """(168,) lists of each hour of the week, Monday first, relative to their mean; ones if unknown.

        The last day says how high the level is, not what the pattern is. An hour of the week that was not
        seen yet is as the same hour of other days.
        """
        this_hour, sums, counts = int(time // HOUR), np.zeros(168), np.zeros(168)
        first = max(min(self.hours, default=this_hour), this_hour - WEEKS_KEPT * 168)
        for hour in range(first, this_hour - 24):
            sums[_hour_of_week(hour)] += self.hours.get(hour, 0.0)
            counts[_hour_of_week(hour)] += 1
        if not sums.any():
            return np.ones(168)
        mean = sums.sum() / counts.sum()
        by_day, days = sums.reshape(7, 24).sum(axis=0), counts.reshape(7, 24).sum(axis=0)
        usual = np.tile(np.where(days > 0, by_day / np.maximum(days, 1), mean), 7)
        rate = np.where(counts > 0, sums / np.maximum(counts, 1), usual)
        smooth: Doubles = (1 - SMOOTHING) * rate / mean + SMOOTHING
        return smooth

    def level(self, time: float, pattern: Doubles) -> float:
        """Lists per hour of mean traffic: that of the last hours, and little of that of earlier weeks."""
        hour = int(time // HOUR)
        first = max(min(self.hours, default=hour), hour - WEEKS_KEPT * 168)
        before = sum(self.hours.get(at, 0.0) for at in range(first, hour)) / max(hour - first, 1)
        start = max(hour - RECENT_HOURS, first)
        recent = sum(self.hours.get(at, 0.0) for at in range(start, hour + 1))
        weight = _integrate(pattern, start * HOUR, time)
        prior = PRIOR_LISTS if before else 0.0
        return (recent + prior) / max(weight + prior / max(before, 1e-9), 1e-9)

    def expect(self, time: float, end: float) -> float:
        """How many lists are expected from `time` to `end`."""
        pattern = self.pattern(time)
        return self.level(time, pattern) * _integrate(pattern, time, end)


def _hour_of_week(hour: int) -> int:
    return (hour - int(MONDAY // HOUR)) % 168


def _integrate(pattern: Doubles, start: float, end: float) -> float:
    """The sum of the pattern over hours and parts of hours."""
    total, hour = 0.0, int(start // HOUR)
    while hour * HOUR < end:
        seconds = min((hour + 1) * HOUR, end) - max(hour * HOUR, start)
        total += float(pattern[_hour_of_week(hour)]) * seconds / HOUR
        hour += 1
    return total


@dataclass(frozen=True)
class Pace:
    """How a budget is spent over a day or a week (UTC, weeks begin on Monday)."""

    budget: int  # 0: none
    per: str = "day"  # or "week"
    spend: str = "traffic"  # or "even": as lists come, or the same amount in every hour

    def period(self, time: float) -> tuple[float, float]:
        """Start and end of the period."""
        length = LENGTHS[self.per]
        offset = MONDAY if self.per == "week" else 0.0
        start = (time - offset) // length * length + offset
        return start, start + length

    def items_per_list(self, time: float, spent: int, traffic: Traffic) -> float:
        """How many items a list may have on average from now on."""
        start, end = self.period(time)
        until = min(time + HORIZON, end) if self.spend == "even" else end
        share = (until - start) / (end - start) if self.spend == "even" else 1.0
        left = max(self.budget * share - spent, 0.0)
        return left / max(traffic.expect(time, until), 1.0)


class BudgetKeeper:
    """The budget of one service: takes items from the counter, cuts lists that it does not cover."""

    def __init__(self, store: EventStore, pace: Pace, lists_per_week: int = 0) -> None:
        self.store, self.pace, self.lists_per_week = store, pace, lists_per_week
        self._lock = threading.Lock()
        self._start, self._lease = 0.0, 0  # period and items that this worker may still show
        self._traffic, self._read_hour = Traffic(), -1
        self._cutoffs: tuple[Budget, Budget] | None = None  # that of the model, and with the current price
        self._refreshed = -np.inf
        self.spent = 0
        self.price: float | None = None

    # ------------------------------------------------------------------ price
    def follow(self, time: float | None = None) -> None:
        """Read what all workers have spent and the traffic; the next lists get the new price."""
        time = now() if time is None else time
        if time - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = time
        hour = int(time // HOUR)
        first = 0 if self._read_hour < 0 else self._read_hour - 1
        self._traffic.hours |= self._count_lists(max(first, hour - WEEKS_KEPT * 168))
        self._read_hour = hour
        self.spent = self._read_spent(self.pace.period(time)[0])
        self._cutoffs = None

    def cutoff(self, saved: Cutoff | None, time: float | None = None) -> Cutoff | None:
        """The cutoff of the model with the current price; others stay as they are."""
        if not isinstance(saved, Budget) or not self.pace.budget:
            self.price = None
            return saved
        kept = self._cutoffs
        if kept is None or kept[0] is not saved:
            wanted = self.pace.items_per_list(now() if time is None else time, self.spent, self._traffic)
            kept = (saved, saved.with_price(saved.price_at(wanted)))
            self._cutoffs = kept
        self.price = kept[1].price_
        return kept[1]

    # ------------------------------------------------------------------ what lists may show
    def cover(self, made: RankedLists, times: Mapping[Any, int], time: float | None = None) -> RankedLists:
        """The lists as far as the budget covers them; `times` is how often each user's list is shown."""
        time = now() if time is None else time
        ids = made.users.values.to_list()
        n_shown = np.array([times.get(user, 1) for user in ids], np.int64)
        lengths = made.lengths.astype(np.int64)
        limited: Longs = lengths.copy()
        if self.lists_per_week:
            counts = self._lists_of_week([str(user) for user in ids], time)
            over = np.array([counts.get(str(user), 0) >= self.lists_per_week for user in ids], np.bool_)
            limited[over] = 0
        by_user = limited == lengths
        granted = self.take(int((limited * n_shown).sum()), time)
        covered = np.zeros_like(limited)
        for row in range(limited.size):  # in the order of the request
            covered[row] = min(int(limited[row]), granted // max(int(n_shown[row]), 1))
            granted -= int(covered[row] * n_shown[row])
        self.give_back(granted)
        if (covered == lengths).all():
            return made
        assert made.reason is not None
        reason = made.reason.copy()
        reason[~by_user] = REASON_CODE["user_limit"]
        reason[by_user & (covered < lengths)] = REASON_CODE["budget_spent"]
        return replace(made.head(covered), reason=reason)

    def take(self, n: int, time: float) -> int:
        """How many of n items may be shown; they are counted as spent."""
        if not self.pace.budget:
            return n
        with self._lock:
            start = self.pace.period(time)[0]
            if start != self._start:  # what is left of the old period is not for the new one
                self._start, self._lease = start, 0
            if n > self._lease:
                more = max(n - self._lease, int((self.pace.budget - self.spent) * LEASE_SHARE))
                self._lease += self._reserve(int(start), more)
            granted = min(n, self._lease)
            self._lease -= granted
            return granted

    def give_back(self, n: int) -> None:
        """Items that were taken and not shown."""
        if self.pace.budget:
            with self._lock:
                self._lease += n

    def close(self) -> None:
        """Return to the counter what this worker has not shown."""
        with self._lock:
            n, self._lease = self._lease, 0
            if n:
                change = sa.update(budgets).where(budgets.c.start == int(self._start))
                try:
                    with self.store._begin() as connection:
                        connection.execute(change.values(spent=budgets.c.spent - n))
                except StoreError as error:
                    write_log({"level": "error", "task": "budget", "problem": str(error)})

    # ------------------------------------------------------------------ the store
    def _reserve(self, start: int, n: int) -> int:
        """Take up to n items from the counter in one transaction; none if the store cannot be reached."""
        create = self.store._insert(budgets).values({"start": start, "spent": 0})
        row = sa.select(budgets.c.spent).where(budgets.c.start == start).with_for_update()
        try:
            with self.store._begin() as connection:
                connection.execute(create.on_conflict_do_nothing(index_elements=["start"]))
                spent = int(connection.scalar(row) or 0)
                granted = max(min(n, self.pace.budget - spent), 0)
                if granted:
                    connection.execute(
                        sa.update(budgets).where(budgets.c.start == start).values(spent=spent + granted)
                    )
        except StoreError as error:
            write_log({"level": "error", "task": "budget", "problem": str(error)})
            return 0
        self.spent = spent + granted
        return granted

    def _read_spent(self, start: float) -> int:
        query = sa.select(budgets.c.spent).where(budgets.c.start == int(start))
        with self.store._read() as connection:
            return int(connection.scalar(query) or 0)

    def _count_lists(self, first_hour: int) -> dict[int, float]:
        """Hour → lists of all workers, from the counters of the page."""
        query = sa.select(counters.c.minute, sa.func.sum(counters.c.value)).where(
            counters.c.name == "lists", counters.c.minute >= first_hour * 60
        )
        lists_by_hour: dict[int, float] = {}
        with self.store._read() as connection:
            for minute, value in connection.execute(query.group_by(counters.c.minute)):
                lists_by_hour[int(minute) // 60] = lists_by_hour.get(int(minute) // 60, 0.0) + float(value)
        return lists_by_hour

    def _lists_of_week(self, user_ids: Sequence[str], time: float) -> dict[str, int]:
        """User → lists with items in the log of the last seven days."""
        lists_by_user: dict[str, int] = {}
        for row in self.store.lists_of_users(user_ids, time - WEEK, time + 1):
            if row.items != "[]":
                lists_by_user[row.user_id] = lists_by_user.get(row.user_id, 0) + 1
        return lists_by_user

    # ------------------------------------------------------------------ what people see
    @property
    def left(self) -> int:
        """Items that may still be shown in this period, as far as this worker knows."""
        return max(self.pace.budget - self.spent, 0)

    def check(self, time: float | None = None) -> dict[str, str]:
        """What is left and the price, as a row of the page."""
        end = datetime.fromtimestamp(self.pace.period(now() if time is None else time)[1], UTC)
        parts = []
        if self.pace.budget:
            until = f"{end:%Y-%m-%d %H:%M} UTC"
            parts.append(f"{self.left:,} of {self.pace.budget:,} items are left until {until}.")
        if self.price is not None:
            parts.append(f"An item is shown if it is worth more than {self.price:.4g}.")
        elif self.pace.budget:
            parts.append("The cutoff has no price, so the first lists of a period use up the budget.")
        if self.lists_per_week:
            parts.append(f"A user gets at most {self.lists_per_week} lists in seven days.")
        is_out = bool(self.pace.budget) and not self.left
        action = (
            "" if self.price is not None or not self.pace.budget else "Fit the model with --cutoff Budget."
        )
        return {
            "name": "Budget",
            "state": "warning" if is_out else "ok",
            "value": f"{self.left:,} left" if self.pace.budget else f"{self.lists_per_week} a week",
            "sentence": " ".join(parts),
            "action": "Lists stay empty until then; raise the budget if that is too early."
            if is_out
            else action,
        }
