"""Solutions that are computed again as the history grows: which one is known at a time, and a cache."""

from abc import ABC, abstractmethod
from threading import RLock
from typing import Any, Generic, TypeVar

import numpy as np

from shortlist.kernels.item_stats import EventLog
from shortlist.types import Longs

T = TypeVar("T")


class Rolling(ABC, Generic[T]):
    """Solutions after a growing number of baskets, each computed when it is first needed.

    The times of the solutions depend only on the number of earlier baskets, so later events change nothing.
    Safe for concurrent use; cached solutions are not pickled.
    """

    max_cached: int

    def __init__(self, log: EventLog, n_items: int, first: int, growth: float) -> None:
        self.log, self.n_items = log, n_items
        self.times = log.users.time[log.order]
        n_steps = int(np.log(max(log.order.size / first, 1)) / np.log(growth)) + 2
        sizes = np.unique((first * growth ** np.arange(n_steps)).astype(np.int64))
        self.sizes = sizes[sizes <= log.order.size]  # the last one rounded down may be small enough
        self._cache: dict[int, T] = {}
        self._lock = RLock()

    def take_solutions(self, known: "Rolling[T]", until: int) -> None:
        """Take over the solutions of a shorter history from the baskets before `until`."""
        with known._lock:
            found = dict(known._cache)
        for number, solution in found.items():
            if known.times[known.sizes[number - 1] - 1] < until:
                self._cache[number] = self._extend(solution, self.n_items - known.n_items)

    def solutions_before(self, at: Longs) -> Longs:
        """(n,) number of solutions before each time."""
        return np.searchsorted(self.sizes, np.searchsorted(self.times, at), side="right")

    def solution(self, number: int) -> T:
        """The number-th solution; 0: nothing is known yet."""
        if number == 0:
            return self._empty()
        with self._lock:
            if number not in self._cache:
                before = max((known for known in self._cache if known < number), default=0)
                self._make_room({before, self.sizes.size})  # a solution may be counted on from the one before
                found = self._solve(number)
                self._make_room({self.sizes.size})
                self._cache[number] = found
            return self._cache[number]

    def _make_room(self, needed: set[int]) -> None:
        """Forget the oldest cached solutions that are not needed. Most requests need the last one of all."""
        for number in list(self._cache):
            if len(self._cache) >= self.max_cached and number not in needed:
                del self._cache[number]

    @abstractmethod
    def _empty(self) -> T:
        """What is known before the first solution."""

    @abstractmethod
    def _solve(self, number: int) -> T:
        """Compute the number-th solution."""

    @abstractmethod
    def _extend(self, solution: T, more: int) -> T:
        """The same solution for a history with more items."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cache": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())
