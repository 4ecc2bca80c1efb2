"""Online risk control: move a threshold after every batch so that the long-run mean meets a level.

The position s of the threshold is 1 where the promise cannot be broken (nothing is shown, or everything) and
0 at the other end. After a batch with shortfall g in [-1, 1], s becomes max(0, s + step · g). At s >= 1 the
shortfall is not positive, so s never exceeds 1 + step, and for any data the shortfalls of T batches add up
to at most (1 + step - s_1) / step.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shortlist.core.checks import check_float_value, check_names, check_whole_value
from shortlist.core.estimator import check_whole
from shortlist.cutoff.calibration import CalibratedCutoff
from shortlist.cutoff.checks import check_interval
from shortlist.cutoff.outcomes import list_values
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.types import Doubles

ONLINE = ("start_", "position_", "n_updates_", "total_")  # set by `update`
MAX_UPDATES = 2**53


def threshold_at(grid: Doubles, position: float) -> float:
    """The threshold at a position: 1 is +inf (nothing is shown), 0 is -inf (everything), linear between.

    grid: (n_thresholds,) descending thresholds that end with -inf.
    """
    finite = grid[np.isfinite(grid)]
    if position >= 1 or position <= 0 or not finite.size:
        return float(np.inf if position >= 1 else -np.inf)
    return float(np.interp(position, _positions(finite.size), finite[::-1]))


def position_at(grid: Doubles, threshold: float) -> float:
    """The position of a threshold; the inverse of `threshold_at`."""
    finite = grid[np.isfinite(grid)]
    if not np.isfinite(threshold) or not finite.size:
        return float(threshold > 0)
    return float(np.interp(threshold, finite[::-1], _positions(finite.size)))


def _positions(n: int) -> Doubles:
    """(n,) positions of the finite thresholds in ascending order, strictly between 0 and 1."""
    return np.arange(1, n + 1) / (n + 1)


def next_position(position: float, shortfall: float, step: float) -> float:
    """The position after a batch with this shortfall, a share of the largest possible one."""
    return max(0.0, position + step * min(max(shortfall, -1.0), 1.0))


def largest_mean_shortfall(start: float, step: float, n_batches: int, delay: int = 0) -> float:
    """Bound on the mean shortfall of n batches that holds for any data; delay: batches until the feedback."""
    return (1 + step * (1 + delay) - start) / (step * max(n_batches, 1))


@dataclass(kw_only=True, eq=False, repr=False)
class OnlineCutoff(CalibratedCutoff):
    """A promised mean, and a threshold that can be moved after every batch to keep it."""

    min_precision: float | None = None
    max_empty: float | None = None
    over: str = "covered"
    step: float = 0.2

    def _check_params(self) -> None:
        super()._check_params()
        check_interval("step", self.step, low=0, high=1, ends=False, advice="0.2 is usual.")

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if any(name in vars(self) for name in ONLINE):
            check_names([name for name in vars(self) if name in ONLINE], ONLINE)
            check_float_value(vars(self), "start_", 0, 1)
            check_float_value(vars(self), "position_", 0, 1 + self.step)
            n = check_whole_value(vars(self), "n_updates_", 1, MAX_UPDATES)
            check_float_value(vars(self), "total_", 0, n)

    def update(
        self,
        lists: RankedLists,
        truth: Interactions | Any = None,
        *,
        users: Iterable[Any] | None = None,
        shown: bool = False,
    ) -> Self:
        """Move the threshold after a batch of lists, so that the long-run mean meets the level.

        No assumption on the data is needed. The mean over T updates falls short of the level by at most
        `bound(T)`, whatever happens. A batch in which no list has items counts as one that meets the level.

        Parameters
        ----------
        lists
            The lists as they were shown, cut by this guarantee. Items that were shown for exploration do not
            count; lists from a fallback count as empty.
        truth
            What the users interacted with. Not needed with `max_empty`.
        users
            Ids of users who count even if they interacted with nothing.
        shown
            Whether `truth` is what is known about the shown items. Then all users with a list count.

        Returns
        -------
        Guarantee
            A new guarantee with the next threshold; this one stays as it is. Set it with
            `model.set_cutoff(guarantee.update(lists, truth))`.

        Raises
        ------
        DataError
            If `truth` is missing although `min_precision` is promised.

        Examples
        --------
        >>> split = sl.split.last_basket(sl.load_dataset("sample"))
        >>> model = sl.PersonalFrequency().fit(split.train)
        >>> cut = sl.cutoff.Guarantee(min_precision=0.1).fit(model.recommend(N=20), split.valid)
        >>> after = cut.update(model.recommend(cutoff=cut), split.valid)
        >>> after.n_updates_, after.threshold_ < cut.threshold_
        (1, True)
        """
        self._check_params()
        self.need("threshold_")
        self.check_source(lists.source)
        users = lists.users.values if shown and users is None else users
        rate = self.batch_rate(lists, truth, users=users)
        level, scale, safe = self._level()
        rate = safe if rate is None else rate
        shortfall = (level - rate) if self.max_empty is None else (rate - level)
        before = {"start_": self._start(), "position_": self._start(), "n_updates_": 0, "total_": 0.0}
        before |= self.fitted()
        position = next_position(before["position_"], shortfall / scale, self.step)
        end = position if self.max_empty is None else 1 - position
        after = {"position_": position, "threshold_": threshold_at(self.need("grid_"), end)}
        after |= {"n_updates_": before["n_updates_"] + 1, "total_": before["total_"] + rate}
        fresh = self.clone()
        vars(fresh).update(before | after)
        vars(fresh)["promise_"] = fresh._online_promise()
        return fresh

    def bound(self, n_updates: int, *, delay: int = 0) -> float:
        """Compute by how much the mean over updates can fall short of the level, whatever the data.

        Parameters
        ----------
        n_updates
            Number of calls of `update`.
        delay
            Number of updates between showing lists and learning their outcome.

        Returns
        -------
        float
            The largest possible shortfall: (1 + step · (1 + delay) − start) / (step · n_updates) times the
            largest shortfall of one batch. `start` in [0, 1] is where the threshold was before the first
            update; 1 is the safe end.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> split = sl.split.last_basket(sl.load_dataset("sample"))
        >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20)
        >>> cut = sl.cutoff.Guarantee(min_precision=0.1).fit(candidates, split.valid)
        >>> cut.bound(1000) < 0.001
        True
        """
        check_whole(1, n_updates=n_updates)
        check_whole(0, delay=delay)
        return self._level()[1] * largest_mean_shortfall(self._start(), self.step, n_updates, delay)

    def batch_rate(
        self, lists: RankedLists, truth: Interactions | Any = None, *, users: Iterable[Any] | None = None
    ) -> float | None:
        """Compute the promised mean on one batch: the mean precision, or the share of empty lists.

        Parameters
        ----------
        lists, truth, users
            As in `update`.

        Returns
        -------
        float or None
            None if no list counts.

        Examples
        --------
        >>> import polars as pl
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> table = pl.DataFrame({"user_id": ["ann", "ann"], "item_id": ["tea", "rice"], "rank": [1, 2]})
        >>> sl.cutoff.Guarantee(min_precision=0.3).batch_rate(sl.RankedLists.from_frame(table), truth)
        0.5
        """
        promise = "precision" if self.max_empty is None else "empty"
        values = list_values(lists, truth, users, promise, self.over)
        return float(values.mean()) if values.size else None

    def _start(self) -> float:
        """Where the threshold was before the first update; 1 is the safe end."""
        if "start_" in vars(self):
            return float(vars(self)["start_"])
        position = position_at(self.need("grid_"), self.need("threshold_"))
        return position if self.max_empty is None else 1 - position

    def _level(self) -> tuple[float, float, float]:
        """(promised level, largest shortfall of one batch, rate of a batch without any list that counts)."""
        if self.max_empty is not None:
            return self.max_empty, 1 - self.max_empty, 0.0
        level = self.min_precision or 0.0
        return level, level, 1.0

    def _online_promise(self) -> str:
        n, name = self.need("n_updates_"), "precision" if self.max_empty is None else "share of empty lists"
        level, bound, mean = self._level()[0], self.bound(n), self.need("total_") / n
        limit = f"at least {level - bound:.2%}" if self.max_empty is None else f"at most {level + bound:.2%}"
        return (
            f"mean {name} {mean:.2%} over {n:,} updates for a promised {level:.1%}; for any data it is "
            f"{limit} (the bound is {bound:.2%} now and falls like 1 / updates)"
        )
