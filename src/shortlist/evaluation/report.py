"""Report: metrics of every evaluated user, and the summaries computed from them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import polars as pl

from shortlist.core.charts import Figure, length_chart
from shortlist.core.metrics import PER_USERS, ListSums, ListValue, Metric, Money, calibration_error
from shortlist.core.tables import html, plain
from shortlist.data.columns import parse_duration
from shortlist.data.ids import IdMap
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.significance import PairedTest, bootstrap_means, paired_test
from shortlist.kernels.snapshot_features import DAY
from shortlist.types import Bools, Doubles, Ints, Longs

View = Literal["all", "covered"]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 10
TITLES = {"all": "all users", "covered": "covered users"}


def money_row(test: PairedTest) -> dict[str, float]:
    """What was earned, or earned more than a baseline, per 1,000 users, with its interval."""
    return {
        "per_1000_users": test.difference * PER_USERS,
        "low": test.low * PER_USERS,
        "high": test.high * PER_USERS,
    }


def bin_rates(weight: Doubles, predicted: Doubles, observed: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Weight, mean prediction and observed rate in bins of about equal weight, from ordered sums (n,) each.

    A sum belongs to the bin of its middle, so that bins are unions of sums.
    """
    middle = np.cumsum(weight) - weight / 2
    bins = np.minimum((middle * BINS / max(weight.sum(), 1)).astype(np.int64), BINS - 1)
    totals: Doubles = np.array([np.bincount(bins, sums, BINS) for sums in (weight, predicted, observed)])
    n, predictions, hits = totals[:, totals[0] > 0]
    return n, predictions / n, hits / n


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """How many evaluated users were shown each item, had it as a hit, and have it in their truth."""

    ids: IdMap
    shown: Longs  # (n_items,)
    hits: Longs  # (n_items,)
    relevant: Longs  # (n_items,)
    n_unknown: int  # shown items that neither truth nor history contains

    @property
    def coverage(self) -> float:
        """Share of the catalog that was shown to any user."""
        return (int((self.shown > 0).sum()) + self.n_unknown) / (len(self.ids) + self.n_unknown)


@dataclass(frozen=True, eq=False)
class RepeatCounts:
    """Interactions before the lists were made, and how far lists and truth repeat them."""

    history_lengths: Ints  # (n_users,) earlier interactions
    popularity: Longs  # (n_items,) earlier interactions of all users
    relevant: Ints  # (n_users,) truth items that the user's history contains
    shown: Ints  # (n_users,) shown items that the user's history contains
    hits: Ints  # (n_users,) hits that the user's history contains


class WeightedGains(NamedTuple):
    """Hits that count by the weight of the item in the truth; arrays have one value per user."""

    gains: Doubles  # of the hits
    total_gains: Doubles  # of all relevant items
    gain_dcg: Doubles  # of the first max_items
    ideal_gain_dcg: Doubles

    @property
    def metrics(self) -> dict[str, Doubles]:
        """The metrics by name."""
        return {
            "weighted_ndcg": self.gain_dcg / np.where(self.ideal_gain_dcg > 0, self.ideal_gain_dcg, 1.0),
            "weighted_recall": self.gains / np.where(self.total_gains > 0, self.total_gains, 1.0),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Evaluation of lists against truth; the result of `evaluate`.

    Every evaluated user counts. An empty list has metrics of 0 and does not count as covered. `METRICS` names
    the metrics: `f1`, `precision`, `recall`, `average_precision`, `reciprocal_rank`, `hits`, `length`, `ndcg`
    (normalized by the ideal list of `max_items`, so that a short list cannot gain) and `ndcg_paper`
    (normalized by the ideal list of the same length).

    Parameters
    ----------
    user_ids
        Ids of the evaluated users. All arrays below have one value per user in this order.
    max_items
        Length of the longest list that would ever be shown.
    n_relevant
        Distinct items in the user's truth; 0 for users who were only named in `users=`.
    lengths, hits, first
        Length of the list, hits in it, and rank of the first hit (0 without a hit).
    dcg, dcg_capped, precision_sum
        DCG of the list, DCG of its first `max_items`, and sum of the precision at every hit among these.
    confidence
        Probability of the first item, or its score; NaN for an empty list.
    expected_hits
        Sum of the probabilities of the shown items; None for lists without probabilities.
    cells
        Shape (n_cells, 3): shown items, sum of probabilities, and hits by predicted probability, or None.
    items
        Counts per item: `shown`, `hits`, `relevant`, and `coverage` of the catalog.
    unlisted
        Number of evaluated users without a list, counted as empty lists.
    ignored
        Number of lists of users who are not evaluated.
    repeats
        Counts from the history; None if `evaluate` got no history.
    money
        What a shown item earns or costs; adds the metric `value`. None if `evaluate` got no gain and cost.
    gains
        Weights of hits and relevant items; adds the metrics `weighted_ndcg` (gains of the hits, discounted by
        rank, divided by those of the heaviest relevant items in the best order) and `weighted_recall` (share
        of the weight that was hit). None without `gains="weight"`.

    Examples
    --------
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
    >>> report = sl.evaluate({"ann": ["tea", "rice"], "cat": ["jam"]}, truth)
    >>> report.n_users, report.unlisted, report.ignored
    (2, 1, 1)
    >>> report.users.select("user_id", "hits", "f1").rows()
    [('ann', 1, 0.5), ('bob', 0, 0.0)]
    """

    user_ids: pl.Series
    max_items: int
    n_relevant: Ints
    lengths: Ints
    hits: Ints
    first: Ints
    dcg: Doubles
    dcg_capped: Doubles
    precision_sum: Doubles
    confidence: Doubles
    expected_hits: Doubles | None
    cells: Doubles | None
    items: ItemCounts
    unlisted: int
    ignored: int
    repeats: RepeatCounts | None = None
    money: Money | None = None
    gains: WeightedGains | None = None

    @property
    def covered(self) -> Bools:
        """Shape (n_users,): whether the user's list has any items."""
        return self.lengths > 0

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self._metrics)

    def values(self, metric: str) -> Doubles:
        """One metric of every user, 0 for an empty list.

        Parameters
        ----------
        metric
            One of `METRICS`.

        Returns
        -------
        numpy.ndarray
            Shape (n_users,), in the order of `user_ids`.

        Raises
        ------
        ConfigError
            If the metric is unknown.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.evaluate({"ann": ["tea", "rice"]}, truth).values("precision").tolist()
        [0.5, 0.0]
        """
        if metric not in self._metrics:
            raise ConfigError(
                f"metric must be one of {', '.join(self._metrics)}, got {metric!r}; choose one."
            )
        return self._metrics[metric]

    @cached_property
    def _metrics(self) -> dict[str, Doubles]:
        sums = ListSums(*(getattr(self, name) for name in ListSums._fields))
        names = [name for name, metric in Metric.registry.items() if self.money or not metric.needs_money]
        names.sort(key=lambda name: not Metric.registry[name].needs_money)  # money comes first
        metrics = {name: Metric.registry[name].values(sums) for name in names}
        return metrics if self.gains is None else metrics | self.gains.metrics

    @cached_property
    def users(self) -> pl.DataFrame:
        """One row per evaluated user: counts, metrics, confidence, and calibration and repeats if known."""
        columns: dict[str, Any] = {
            "user_id": self.user_ids,
            "relevant": self.n_relevant,
            "length": self.lengths,
            "covered": self.covered,
            "hits": self.hits,
            **{name: values for name, values in self._metrics.items() if name not in ("hits", "length")},
            "confidence": pl.Series(self.confidence).fill_nan(None),
        }
        if self.expected_hits is not None:
            error = np.abs(self.expected_hits - self.hits) / np.maximum(self.lengths, 1)
            columns["expected_hits"] = self.expected_hits
            columns["calibration_error"] = pl.Series(np.where(self.covered, error, np.nan)).fill_nan(None)
        if self.repeats is not None:
            columns["history_length"] = self.repeats.history_lengths
            columns["repeat_hits"] = self.repeats.hits
            columns["explore_hits"] = self.hits - self.repeats.hits
        return pl.DataFrame(columns)

    @property
    def n_users(self) -> int:
        """Number of evaluated users."""
        return int(self.n_relevant.size)

    @property
    def cover_ratio(self) -> float:
        """Share of users whose list has any items."""
        return float(self.covered.mean())

    def harmonic_f1(
        self, view: View = "all", *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
    ) -> tuple[float, float, float]:
        """Harmonic mean of the mean precision and the mean recall, with a bootstrap interval over users.

        `f1` is the mean of the users' F1. The harmonic F1 is larger, above all for lists of different
        lengths: short ones give the precision, long ones the recall.

        Parameters
        ----------
        view
            As in `mean`.
        resamples, level, seed
            As in `paired_test`.

        Returns
        -------
        tuple of float
            The harmonic F1, and the ends of its interval; NaN if no user is covered.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam"), ("bob", "rice")])
        >>> report = sl.evaluate({"ann": ["tea", "rice"], "bob": ["jam"]}, truth)
        >>> round(report.f1, 3), report.harmonic_f1()[0]
        (0.667, 0.75)
        """
        if view not in get_args(View):
            raise ConfigError(f"view must be all or covered, got {view!r}; choose one.")
        users = np.ones(self.n_users, np.bool_) if view == "all" else self.covered
        if not users.any():
            return float("nan"), float("nan"), float("nan")
        both = [self.values(name)[users] for name in ("precision", "recall")]

        def combine(precision: Any, recall: Any) -> Any:
            return 2 * precision * recall / np.maximum(precision + recall, 1e-300)

        low, high = np.quantile(
            combine(*(bootstrap_means(values, resamples, seed) for values in both)),
            [(1 - level) / 2, (1 + level) / 2],
        )
        return float(combine(*(values.mean() for values in both))), float(low), float(high)

    def mean(self, metric: str, view: View = "all") -> float:
        """Mean of a metric over users.

        Parameters
        ----------
        metric
            One of `METRICS`.
        view
            `"all"`: every evaluated user, an empty list counts as 0. `"covered"`: users whose list has items.

        Returns
        -------
        float
            The mean; NaN if no user is covered.

        Raises
        ------
        ConfigError
            If the metric or the view is unknown.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> report = sl.evaluate({"ann": ["tea", "rice"]}, truth)
        >>> report.mean("precision"), report.mean("precision", "covered")
        (0.25, 0.5)
        """
        if view not in get_args(View):
            raise ConfigError(f"view must be all or covered, got {view!r}; choose one.")
        total = float(self.values(metric).sum())
        n = self.n_users if view == "all" else int(self.covered.sum())
        return total / n if n else float("nan")

    def test(self, metric: str, baseline: "Report | None" = None, *, level: float = 0.95) -> PairedTest:
        """Mean of a metric with its interval, or the difference from another report on the same users.

        Parameters
        ----------
        metric
            One of `METRICS`, or `"value"` if gain and cost are known.
        baseline
            Report on the same users; None compares with 0.
        level
            Confidence level of the interval.

        Returns
        -------
        PairedTest
            `difference` is the mean; `low` and `high` are its interval by the bootstrap over users.

        Raises
        ------
        ConfigError
            If the metric is unknown.
        DataError
            If the baseline is on other users.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> report = sl.evaluate({"ann": ["tea", "rice"]}, truth, gain=2, cost=1)
        >>> report.test("value").difference
        0.5
        """
        values = self.values(metric)
        others = np.zeros_like(values) if baseline is None else baseline.values(metric)
        return paired_test(values, others, groups=self.groups, level=level)

    @property
    def groups(self) -> Ints | None:
        """Which values are not independent, for `paired_test`; None: all are."""
        return None

    @property
    def hits_per_100(self) -> float:
        """Hits per 100 shown items, over all lists; 0 if nothing is shown."""
        return 100 * float(self.hits.sum()) / max(int(self.lengths.sum()), 1)

    @property
    def f1(self) -> float:
        """Mean F1 over all users."""
        return self.mean("f1")

    @property
    def ndcg(self) -> float:
        """Mean NDCG over all users, normalized by the ideal list of `max_items`."""
        return self.mean("ndcg")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row per metric: its mean over all users and over covered users."""
        return pl.DataFrame(
            {
                "metric": self.metrics,
                "all": [self.mean(metric) for metric in self.metrics],
                "covered": [self.mean(metric, "covered") for metric in self.metrics],
            }
        )

    @cached_property
    def length_quantiles(self) -> dict[float, float]:
        """Quantiles of the list length over all users, empty lists included."""
        return dict(zip(QUANTILES, map(float, np.quantile(self.lengths, QUANTILES)), strict=True))

    @cached_property
    def calibration(self) -> pl.DataFrame:
        """Predicted probability and observed hit rate in bins of about equally many shown items.

        Raises `DataError` if the lists have no probabilities.
        """
        if self.cells is None:
            raise DataError(
                "calibration needs probabilities, got lists without them; calibrate the scores first."
            )
        shown, predicted, observed = bin_rates(*self.cells.T)
        return pl.DataFrame({"shown": shown.astype(np.int64), "predicted": predicted, "observed": observed})

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error of the shown items; None for lists without probabilities."""
        if self.cells is None or not self.cells[:, 0].any():
            return None
        bins = self.calibration
        return calibration_error(*(bins[name].to_numpy() for name in ("shown", "predicted", "observed")))

    @cached_property
    def repeat_explore(self) -> pl.DataFrame:
        """Shown, hit and relevant items that the user's history contains (repeat) or not (explore).

        Raises `DataError` if `evaluate` got no history.
        """
        if self.repeats is None:
            raise DataError("repeat_explore needs a history, got none; pass history= to evaluate.")
        counts = self.repeats
        repeat = np.array([counts.shown.sum(), counts.hits.sum(), counts.relevant.sum()])
        total = np.array([self.lengths.sum(), self.hits.sum(), self.n_relevant.sum()])
        shown, hits, relevant = np.stack([repeat, total - repeat], axis=1)
        return pl.DataFrame(
            {
                "kind": ["repeat", "explore"],
                "shown": shown,
                "hits": hits,
                "relevant": relevant,
                "precision": hits / np.maximum(shown, 1),
                "recall": hits / np.maximum(relevant, 1),
                "share_of_hits": hits / max(int(total[1]), 1),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything except the per-user table, ready for JSON.

        Returns
        -------
        dict
            Counts, means in both views, length quantiles, calibration error, and repeats if known.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.evaluate({"ann": ["tea"]}, truth).to_dict()["all"]["recall"]
        0.5
        """
        covered = {metric: self.mean(metric, "covered") for metric in self.metrics}
        content: dict[str, Any] = {
            "users": self.n_users,
            "covered_users": int(self.covered.sum()),
            "users_without_list": self.unlisted,
            "lists_ignored": self.ignored,
            "max_items": self.max_items,
            "cover_ratio": self.cover_ratio,
            "item_coverage": self.items.coverage,
            "all": {metric: self.mean(metric) for metric in self.metrics},
            "covered": {name: None if np.isnan(mean) else mean for name, mean in covered.items()},
            "length_quantiles": {f"{q:g}": n for q, n in self.length_quantiles.items()},
            "calibration_error": self.calibration_error,
            "items_shown": int(self.lengths.sum()),
            "hits_per_100_shown": self.hits_per_100,
            "empty_lists": 1 - self.cover_ratio,
        }
        if self.money is not None:
            content["money"] = asdict(self.money) | money_row(self.test("value"))
        if self.repeats is not None:
            content["repeat_explore"] = self.repeat_explore.to_dicts()
        return content

    def plot(self) -> Figure:
        """Histogram of list lengths.

        Returns
        -------
        Figure
            An SVG figure that notebooks display; `save(path)` writes it to a file.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.evaluate({"ann": ["tea"]}, truth).plot()
        Figure('List lengths of 2 users')
        """
        title, mean = f"List lengths of {self.n_users:,} users", self.mean("length")
        counts = np.bincount(np.minimum(self.lengths, self.max_items + 1), minlength=self.max_items + 2)
        place = min(mean, self.max_items + 1.0)
        return Figure(title, length_chart(title, counts.tolist(), 0, mark=(place, f"mean {mean:.1f}")))

    def _notes(self) -> list[str]:
        """Facts beside the table of means."""
        lengths = ", ".join(f"{q:.0%} {n:g}" for q, n in self.length_quantiles.items())
        notes = [
            f"{self.n_users:,} users, {self.cover_ratio:.1%} covered; {self.unlisted:,} without a list "
            f"(counted as empty); {self.ignored:,} lists of other users ignored",
            f"{int(self.lengths.sum()):,} items shown, {self.hits_per_100:.1f} hits per 100 shown",
            f"list length: mean {self.mean('length'):.2f}; quantiles {lengths}",
            f"items: {self.items.coverage:.1%} of the catalog shown",
        ]
        if self.money is not None:
            notes.append(f"{self._earned()} (95% interval); {self.money}")
        if self.calibration_error is not None:
            notes.append(f"calibration error of shown items: {self.calibration_error:.4f}")
        if self.repeats is not None:
            share = self.repeat_explore["share_of_hits"]
            notes.append(f"hits: {share[0]:.1%} repeats, {share[1]:.1%} new to the user")
        return notes

    def _earned(self) -> str:
        """What was earned, with its interval."""
        test = self.test("value")
        low, high = ListValue.text(test.low), ListValue.text(test.high)
        return f"{ListValue.title}: {ListValue.text(test.difference)} [{low}, {high}]"

    def _means(self) -> str:
        """The means that a repr names."""
        earned = "" if self.money is None else f"{ListValue.text(self.mean('value'))} {ListValue.title}, "
        return f"{earned}F1 {self.f1:.4f}, NDCG {self.ndcg:.4f}, {self.cover_ratio:.0%} covered"

    def __repr__(self) -> str:
        return f"Report({self.n_users:,} users, {self._means()})"

    def __str__(self) -> str:
        return "\n".join([plain(self.summary.rename(TITLES)), *self._notes()])

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{note}</li>" for note in self._notes())
        return f"{html(self.summary.rename(TITLES), repr(self))}<ul>{notes}</ul>"


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
    expected_hits, cells, items, unlisted, ignored, repeats, money, gains
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
        timed: pl.DataFrame = table.insert_column(1, self._datetimes())
        return timed

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
        values = {name: self.values(name) for name in metrics}
        period = step_starts(self.times, parse_duration("every", every))
        starts, number, counts = np.unique(period, return_inverse=True, return_counts=True)

        def mean(values: Any) -> Any:
            return np.bincount(number, values) / counts

        return pl.DataFrame(
            {
                "start": pl.Series(starts).cast(pl.Datetime("us")),
                "requests": counts,
                "cover_ratio": mean(self.covered),
                **{name: mean(column) for name, column in values.items()},
            }
        )

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
        return f"TimedReport({self.n_users:,} lists of {self.user_ids.n_unique():,} users, {self._means()})"


def step_starts(times: Longs, every: int, of: Longs | None = None) -> Longs:
    """(n,) start of the step that contains each time; the first starts at midnight UTC of the first day.

    The steps are those of `times`, and the starts those of `of` if it is given.
    """
    origin = int(times.min()) // DAY * DAY
    starts: Longs = origin + ((times if of is None else of) - origin) // every * every
    return starts
