"""GuaranteeMonitor: an alarm when a guaranteed mean no longer holds, however often one looks."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.options import Confidence, Probability, check_value
from shortlist.cutoff.guarantee import Guarantee, GuaranteeName, Over, list_values
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.types import Doubles

N_BETS = 10
LARGEST_BET = 0.9  # as a share of the bet that could lose everything; each further bet is half as large


def bet_sizes(lowest: float) -> Doubles:
    """(N_BETS,) bet sizes for values that are never below `lowest` < 0."""
    return LARGEST_BET / -lowest * np.exp2(-np.arange(N_BETS, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Evidence:
    """The capital of all bets; never modified, only replaced."""

    log_capital: Doubles  # (n_bets,) of the series that have started
    log_best: Doubles  # (n_bets,) of the best single series
    best_start: tuple[int, ...]  # (n_bets,) batch at which it started
    n_batches: int = 0

    @classmethod
    def start(cls, n_bets: int) -> Self:
        """The evidence before the first batch."""
        none = np.full(n_bets, -np.inf)
        return cls(none, none, (0,) * n_bets)

    def add(self, log_growth: Doubles) -> Self:
        """The evidence after one batch; log_growth: (n_bets,) sum of log(1 + b · z) over its values."""
        t = self.n_batches + 1
        log_share = -np.log(t) - np.log(t + 1)
        restarts = log_share >= self.log_best
        starts = tuple(t if new else old for new, old in zip(restarts, self.best_start, strict=True))
        return replace(
            self,
            log_capital=np.logaddexp(self.log_capital, log_share) + log_growth,
            log_best=np.maximum(self.log_best, log_share) + log_growth,
            best_start=starts,
            n_batches=t,
        )

    @property
    def log_e_value(self) -> float:
        """log of the total capital, of which 1 was there at the start."""
        started = np.logaddexp.reduce(self.log_capital) - np.log(self.log_capital.size)
        return float(np.logaddexp(started, -np.log(self.n_batches + 1)))

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON; None for the logarithm of 0."""
        logs = {"log_capital": self.log_capital, "log_best": self.log_best}
        entries: dict[str, Any] = {
            name: [None if value == -np.inf else float(value) for value in values]
            for name, values in logs.items()
        }
        return {**entries, "best_start": list(self.best_start), "n_batches": self.n_batches}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        capital, best = (
            np.array([-np.inf if entry is None else float(entry) for entry in values[name]])
            for name in ("log_capital", "log_best")
        )
        return cls(
            capital, best, tuple(int(entry) for entry in values["best_start"]), int(values["n_batches"])
        )


def log_growth(values: Doubles, bets: Doubles) -> Doubles:
    """(n_bets,) sum over the values z of log(1 + b · z)."""
    return np.array([np.log1p(bet * values).sum() for bet in bets])


MAX_TRACE = 512  # updates kept for the plot; older ones are thinned
MAX_LABEL = 80  # characters


@dataclass(frozen=True)
class Update:
    """One update of a monitor."""

    number: int
    at: str
    n: int  # values
    mean: float | None
    log_e_value: float


@dataclass(frozen=True, eq=False)
class MonitorState:
    """What a monitor has seen; never modified, only replaced."""

    evidence: Evidence
    n_values: int = 0
    total: float = 0.0
    log_peak: float = 0.0  # largest log e-value so far
    starts: tuple[str, ...] = ()  # label of `Evidence.best_start`, one per bet
    alarm_at: str | None = None
    since: str | None = None
    trace: tuple[Update, ...] = ()


class GuaranteeMonitor:
    """Raise an alarm when a guaranteed mean no longer holds.

    If the guarantee holds, the probability that the monitor ever raises an alarm is at most `false_alarms`,
    however often it is updated and looked at. The alarm names the update since which the guarantee seems
    broken, and stays until a new monitor is made. Memory does not grow with the number of updates.

    Parameters
    ----------
    level
        The guaranteed level: the smallest mean precision, or the largest share of empty lists. Not used for
        "calibration".
    guarantee
        What is guaranteed. "precision": the mean precision is at least `level`. "empty": the share of empty
        lists is at most `level`. "calibration": predicted probabilities and observed rates of shown items
        agree up to `tolerance`.
    over
        For "precision": "covered" users, or all "users", where an empty list has precision 1.
    false_alarms
        The largest probability of an alarm while the guarantee holds.
    tolerance
        For "calibration": how far the mean prediction and the observed rate may differ.

    Raises
    ------
    ConfigError
        If a parameter is invalid.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024. Shin,
    Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", 2022.
    Ville, "Étude critique de la notion de collectif", 1939.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> monitor = sl.GuaranteeMonitor(0.3)
    >>> for day in range(30):
    ...     rate = 0.35 if day < 20 else 0.15
    ...     monitor = monitor.update(rng.random(200) < rate, at=f"day {day}")
    >>> monitor.status, monitor.since
    ('alarm', 'day 20')
    """

    def __init__(
        self,
        level: float | None = None,
        *,
        guarantee: str = "precision",
        over: str = "covered",
        false_alarms: float = 0.05,
        tolerance: float = 0.01,
    ) -> None:
        check_value(GuaranteeName, guarantee=guarantee)
        check_value(Over, over=over)
        if guarantee == "calibration":
            if level is not None:
                raise ConfigError(
                    "level is not used with guarantee='calibration', got one; leave it out and set tolerance."
                )
        else:
            check_value(Confidence, level=level)
        check_value(Confidence, false_alarms=false_alarms)
        check_value(Probability, tolerance=tolerance)
        self.level, self.guarantee, self.over = level, guarantee, over
        self.false_alarms, self.tolerance = false_alarms, tolerance
        lowest = {"precision": (level or 0.0) - 1, "empty": -(level or 0.0), "calibration": -1 - tolerance}
        self._bets = bet_sizes(lowest[guarantee])
        n_bets = self._bets.size * (2 if guarantee == "calibration" else 1)
        self._state = MonitorState(Evidence.start(n_bets), starts=("",) * n_bets)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, guarantee: Guarantee, *, false_alarms: float = 0.05) -> Self:
        """Build the monitor of a guarantee.

        Parameters
        ----------
        guarantee
            The guarantee, whose level is watched.
        false_alarms
            The largest probability of an alarm while the guarantee holds.

        Returns
        -------
        GuaranteeMonitor
            A monitor without updates.

        Examples
        --------
        >>> sl.GuaranteeMonitor.of(sl.cutoff.Guarantee(max_empty=0.2))
        GuaranteeMonitor(share of empty lists at most 20.0%): no data yet
        """
        if guarantee.max_empty is not None:
            return cls(guarantee.max_empty, guarantee="empty", false_alarms=false_alarms)
        if guarantee.min_precision is None:
            raise ConfigError(
                "a monitor watches precision or empty lists, got a guarantee of recall: shown lists do not "
                "tell what was left out; fit the guarantee again on complete lists."
            )
        return cls(guarantee.min_precision, over=guarantee.over, false_alarms=false_alarms)

    def update(
        self,
        values: RankedLists | Any,
        truth: Interactions | Any = None,
        *,
        users: Iterable[Any] | None = None,
        shown: bool = False,
        at: Any = None,
    ) -> Self:
        """Add what happened since the last update.

        Parameters
        ----------
        values
            The lists as they were shown, or one number per list: its precision, whether it was empty, or the
            observed minus the predicted rate of its items.
        truth
            What the users interacted with, if lists are given. Not needed for "empty".
        users
            Ids of users who count even if they interacted with nothing, if lists are given.
        shown
            Whether `truth` is what is known about the shown items. Then all users with a list count.
        at
            A label, such as the date; the number of the update by default.

        Returns
        -------
        GuaranteeMonitor
            The monitor itself.

        Raises
        ------
        DataError
            If a value is out of range, or truth or probabilities are missing.

        Examples
        --------
        >>> sl.GuaranteeMonitor(0.2, guarantee="empty").update([0, 0, 1, 0], at="2011-11-01").status
        'holds'
        """
        if isinstance(values, RankedLists):
            users = values.users.values if shown and users is None else users
            observed = list_values(values, truth, users, self.guarantee, self.over)
        else:
            observed = self._check_values(values)
        with self._lock:
            self._state = self._next(self._state, observed, at)
        return self

    def _check_values(self, values: Any) -> Doubles:
        """(n,) the values as numbers in their range."""
        try:
            observed = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            observed = np.full(1, np.nan)
        low = -1.0 if self.guarantee == "calibration" else 0.0
        if observed.ndim != 1 or not ((observed >= low) & (observed <= 1)).all():
            raise DataError(
                f"values must be RankedLists or a list of numbers from {low:g} to 1, got something else; "
                "pass one number per list."
            )
        return observed

    def _next(self, state: MonitorState, observed: Doubles, at: Any) -> MonitorState:
        """The state after one batch."""
        evidence = state.evidence.add(self._growth(observed))
        number = evidence.n_batches
        label = str(number if at is None else at)[:MAX_LABEL]
        starts = tuple(
            label if start == number else old
            for start, old in zip(evidence.best_start, state.starts, strict=True)
        )
        log_e = evidence.log_e_value
        alarm = log_e >= -np.log(self.false_alarms)
        alarm_at, since = state.alarm_at, state.since
        if alarm and alarm_at is None:
            alarm_at, since = label, starts[int(np.argmax(evidence.log_best))]
        mean = float(observed.mean()) if observed.size else None
        trace = (*state.trace, Update(number, label, observed.size, mean, log_e))
        return replace(
            state,
            evidence=evidence,
            n_values=state.n_values + observed.size,
            total=state.total + float(observed.sum()),
            log_peak=max(state.log_peak, log_e),
            starts=starts,
            alarm_at=alarm_at,
            since=since,
            trace=trace if len(trace) <= MAX_TRACE else trace[1::2],
        )

    def _growth(self, observed: Doubles) -> Doubles:
        """(n_bets,) log growth of each bet; a shortfall makes it positive."""
        if self.guarantee == "calibration":
            sides = (observed - self.tolerance, -observed - self.tolerance)
            return np.concatenate([log_growth(side, self._bets) for side in sides])
        level = self.level or 0.0
        return log_growth(level - observed if self.guarantee == "precision" else observed - level, self._bets)

    @property
    def status(self) -> str:
        """ "no data", "holds" or "alarm"."""
        state = self._state
        return "alarm" if state.alarm_at is not None else "holds" if state.n_values else "no data"

    @property
    def alarm_at(self) -> str | None:
        """Label of the update that raised the alarm."""
        return self._state.alarm_at

    @property
    def since(self) -> str | None:
        """Label of the update since which the guarantee seems to be broken; None without an alarm."""
        return self._state.since

    @property
    def mean(self) -> float | None:
        """Mean of all values so far."""
        state = self._state
        return state.total / state.n_values if state.n_values else None

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value: the probability of so much evidence at any time if the guarantee holds."""
        return float(np.exp(-max(self._state.log_peak, 0.0)))

    @property
    def trace(self) -> pl.DataFrame:
        """One row per update: number, at, n, mean, log_e_value. At most 512; older ones are thinned."""
        columns: dict[str, Any] = {
            "number": pl.Int64,
            "at": pl.String,
            "n": pl.Int64,
            "mean": pl.Float64,
            "log_e_value": pl.Float64,
        }
        return pl.DataFrame([vars(update) for update in self._state.trace], schema=columns)

    def summary(self) -> str:
        """Describe the state in one sentence.

        Returns
        -------
        str
            What is guaranteed, what was seen, and whether there is an alarm.

        Examples
        --------
        >>> sl.GuaranteeMonitor(0.3).update([1, 0, 0, 1]).summary()
        'mean precision at least 30.0%: holds after 1 update with 4 lists, mean 50.0%, p = 1'
        """
        state, mean = self._state, self.mean
        if mean is None:
            return f"{self._target()}: no data yet"
        n = state.evidence.n_batches
        seen = f"{n:,} update{'s' if n > 1 else ''} with {state.n_values:,} lists, mean {mean:.1%}"
        if state.alarm_at is None:
            return f"{self._target()}: holds after {seen}, p = {self.p_value:.2g}"
        return (
            f"{self._target()}: broken since {state.since}, alarm at {state.alarm_at}; {seen}, "
            f"p = {self.p_value:.2g} (false alarms at most {self.false_alarms:.1%})"
        )

    def _target(self) -> str:
        if self.guarantee == "calibration":
            return f"predicted and observed rates within {self.tolerance:.1%}"
        if self.guarantee == "empty":
            return f"share of empty lists at most {self.level:.1%}"
        return f"mean precision at least {self.level:.1%}"

    def __repr__(self) -> str:
        target, _, state = self.summary().partition(": ")
        return f"GuaranteeMonitor({target}): {state}"

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters and the state, ready for JSON.

        Returns
        -------
        dict
            What `from_dict` reads.

        Examples
        --------
        >>> monitor = sl.GuaranteeMonitor(0.3).update([1, 0, 0, 1])
        >>> sl.GuaranteeMonitor.from_dict(monitor.to_dict()).mean
        0.5
        """
        state = self._state
        plain = {name: value for name, value in vars(state).items() if name not in ("evidence", "trace")}
        return {
            "params": {
                name: vars(self)[name] for name in ("level", "guarantee", "over", "false_alarms", "tolerance")
            },
            "state": {**plain, "starts": list(state.starts), "evidence": state.evidence.to_dict()},
            "trace": [vars(update) for update in state.trace],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a monitor from what `to_dict` returned.

        Parameters
        ----------
        values
            The dictionary, also after a round trip through JSON.

        Returns
        -------
        GuaranteeMonitor
            A monitor that continues where the other one was.

        Raises
        ------
        DataError
            If it is not such a dictionary.

        Examples
        --------
        >>> import json
        >>> text = json.dumps(sl.GuaranteeMonitor(0.3).update([0, 1]).to_dict())
        >>> sl.GuaranteeMonitor.from_dict(json.loads(text)).status
        'holds'
        """
        try:
            monitor = cls(**values["params"])
            state = dict(values["state"])
            evidence, starts = Evidence.from_dict(state.pop("evidence")), tuple(state.pop("starts"))
            trace = tuple(Update(**entry) for entry in values["trace"])
            restored = MonitorState(evidence, starts=starts, trace=trace, **state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"a monitor must be a dictionary from to_dict, got something else ({error!r:.80}); "
                "make a new monitor."
            ) from None
        if evidence.log_capital.size != monitor._state.evidence.log_capital.size or len(starts) != len(
            evidence.best_start
        ):
            raise DataError("a monitor must be a dictionary from to_dict, got other sizes; make a new one.")
        monitor._state = restored
        return monitor
