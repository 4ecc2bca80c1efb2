"""TimedReport: a report on lists that were made one after the other, each at its own time."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.charts import Figure, Series, line_chart
from shortlist.data.times import parse_duration
from shortlist.errors import ConfigError
from shortlist.evaluation.report import METRICS, Report
from shortlist.kernels.item_stats import DAY
from shortlist.types import Ints, Longs


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TimedReport(Report):
    """Evaluation of one list per user and time; the result of `evaluate_over_time`.

    A `Report` with one value per request: a user who returns is evaluated at every visit. Every request
    counts, and an empty list has metrics of 0. Where a `Report` speaks of users, this report speaks of
    requests: `n_users` is the number of requests, `users` has one row per request.

    Parameters
    ----------
    user_ids
        The user of each request. All arrays have one value per request in this order.
    max_items, n_relevant, lengths, hits, first, dcg, dcg_capped, precision_sum, confidence
        As in `Report`.
    expected_hits, cells, items, unlisted, ignored, repeats
        As in `Report`.
    times
        Shape (n_requests,): when each list was made, in microseconds since 1970 UTC; ascending.
    incomplete
        Number of requests that are left out because the events end before their horizon does.

    Examples
    --------
    >>> split = sl.split.by_time(sl.load_dataset("sample"), "2024-06-01")
    >>> model = sl.PersonalFrequency().fit(split.train_valid)
    >>> report = sl.evaluate_over_time(model, split.test, N=5)
    >>> report.periods("7d").columns
    ['start', 'requests', 'cover_ratio', 'f1', 'ndcg', 'length']
    """

    times: Longs
    incomplete: int = 0

    @classmethod
    def of(cls, report: Report, user_ids: pl.Series, times: Longs, incomplete: int) -> Self:
        """Return a report whose users are numbered requests, with the users and times of the requests.

        Parameters
        ----------
        report
            A report whose `user_ids` are positions in `user_ids` and `times`, in this order.
        user_ids, times, incomplete
            As in the class.
        """
        values = {field.name: getattr(report, field.name) for field in fields(Report)}
        return cls(**values | {"user_ids": user_ids}, times=times, incomplete=incomplete)

    @cached_property
    def users(self) -> pl.DataFrame:
        """One row per request: user, time, and the columns of `Report.users`."""
        table = Report.users.func(self)  # type: ignore[attr-defined]
        found: pl.DataFrame = table.insert_column(1, self._datetimes())
        return found

    @cached_property
    def groups(self) -> Ints:
        """Shape (n_requests,): a number for the user of each request, for `paired_test`."""
        return self.user_ids.rank("dense").to_numpy().astype(np.int32) - 1

    def periods(
        self, every: str | timedelta = "1d", *, metrics: Sequence[str] = ("f1", "ndcg", "length")
    ) -> pl.DataFrame:
        """Means over the requests of each period.

        Parameters
        ----------
        every
            Length of a period: a timedelta, or a number with s, m, h, d or w. The first period starts at
            midnight UTC of the first request's day.
        metrics
            Names from `METRICS`.

        Returns
        -------
        polars.DataFrame
            Columns start, requests, cover_ratio, and one per metric; periods without requests are left out.

        Raises
        ------
        ConfigError
            If the duration or a metric is invalid.

        Examples
        --------
        >>> split = sl.split.by_time(sl.load_dataset("sample"), "2024-06-01")
        >>> model = sl.PersonalFrequency().fit(split.train_valid)
        >>> report = sl.evaluate_over_time(model, split.test, N=5)
        >>> report.periods("7d")["requests"].sum() == report.n_users
        True
        """
        unknown = [name for name in metrics if name not in METRICS]
        if unknown:
            raise ConfigError(f"metrics must be among {', '.join(METRICS)}, got {unknown[0]!r}.")
        period = step_starts(self.times, parse_duration("every", every))
        starts, number, counts = np.unique(period, return_inverse=True, return_counts=True)

        def mean(values: Any) -> Any:
            return np.bincount(number, values) / counts

        return pl.DataFrame(
            {
                "start": pl.Series(starts).cast(pl.Datetime("us")),
                "requests": counts,
                "cover_ratio": mean(self.covered),
                **{name: mean(self.values(name)) for name in metrics},
            }
        )

    def plot_over_time(self, metric: str = "f1", *, every: str | timedelta = "1d") -> Figure:
        """Line chart of a metric by period.

        Parameters
        ----------
        metric
            One of `METRICS`.
        every
            As in `periods`.

        Returns
        -------
        Figure
            An SVG figure that notebooks display; `save(path)` writes it to a file.

        Examples
        --------
        >>> split = sl.split.by_time(sl.load_dataset("sample"), "2024-06-01")
        >>> model = sl.PersonalFrequency().fit(split.train_valid)
        >>> sl.evaluate_over_time(model, split.test, N=5).plot_over_time(every="7d")
        Figure('f1 over time')
        """
        table = self.periods(every, metrics=(metric,))
        start = table["start"].to_physical().to_numpy()
        days = ((start - start[0]) / DAY).tolist()
        title, curve = f"{metric} over time", Series(metric, days, table[metric].to_list(), style=0)
        return Figure(title, line_chart(title, "days since the first list", metric, [curve]))

    def _datetimes(self) -> pl.Series:
        return pl.Series("time", self.times).cast(pl.Datetime("us"))

    def _notes(self) -> list[str]:
        first, last = (np.datetime64(int(time), "us").astype("datetime64[s]") for time in self.times[[0, -1]])
        notes = super()._notes()
        notes[0] = (
            f"{self.n_users:,} lists of {self.user_ids.n_unique():,} users from {first} to {last}, "
            f"{self.cover_ratio:.1%} covered; {self.unlisted:,} of unknown users (counted as empty)"
        )
        if self.incomplete:
            notes.append(f"{self.incomplete:,} lists left out: the events end before their horizon does")
        return notes

    def __repr__(self) -> str:
        means = f"F1 {self.f1:.4f}, NDCG {self.ndcg:.4f}, {self.cover_ratio:.0%} covered"
        return f"TimedReport({self.n_users:,} lists of {self.user_ids.n_unique():,} users, {means})"


def step_starts(times: Longs, every: int, of: Longs | None = None) -> Longs:
    """(n,) start of the step that contains each time; the first starts at midnight UTC of the first day.

    The steps are those of `times`, and the starts those of `of` if it is given.
    """
    origin = int(times.min()) // DAY * DAY
    starts: Longs = origin + ((times if of is None else of) - origin) // every * every
    return starts
