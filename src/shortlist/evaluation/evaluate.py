"""evaluate and compare: lists of any model and truth in, a report or a comparison out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl

from shortlist.core.metrics import Metric, Money, discounts
from shortlist.core.options import Count, Fraction, check_value, explain_keywords
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.labeled import GroundTruth, LabeledLists, align, label_lists, warn_if_trained_on
from shortlist.data.lists import RankedLists, list_parts
from shortlist.data.rankings import read_candidates
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.comparison import Comparison
from shortlist.evaluation.report import ItemCounts, RepeatCounts, Report, TimedReport, WeightedGains
from shortlist.evaluation.significance import paired_test
from shortlist.kernels.list_metrics import UNIT, ListTotals, add_lists
from shortlist.kernels.rows import read_only, starts, sum_rows
from shortlist.text import short_repr
from shortlist.types import Bools, Doubles, Ints, Longs

DEFAULT_METRICS, MONEY_METRICS = ("f1", "ndcg"), ("value", "f1")
WEIGHTED_METRICS = ("weighted_ndcg", "weighted_recall")


@runtime_checkable
class ArrowTable(Protocol):
    """Tables of pandas, pyarrow, polars, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the table as an Arrow stream."""


Lists = RankedLists | ArrowTable | pl.LazyFrame | Mapping[Any, Iterable[Any]] | str | Path
ListsOrChunks = Lists | Iterable[Lists]
LIST_TYPES = (RankedLists, ArrowTable, pl.LazyFrame, Mapping, str, Path)  # types of `Lists`, for isinstance


def as_chunks(lists: ListsOrChunks) -> Iterator[RankedLists]:
    """The lists in one piece, or piece by piece if the caller passes an iterable."""
    if isinstance(lists, LIST_TYPES) or not isinstance(lists, Iterable):
        yield read_candidates(lists, "lists")
        return
    for chunk in lists:
        yield read_candidates(chunk, "lists")


CELLS = 1024  # resolution of predicted probabilities when calibration is measured
COUNTS = ("hits", "first", "lengths", "repeats_shown", "repeat_hits")  # whole numbers per user
SUMS = ("dcg", "dcg_capped", "precision_sum", "expected_hits", "gain", "gain_dcg", "confidence")
TOTALS = ListTotals._fields[:-3]  # one value per user
PER_USER = ("lengths", "hits", "first", "dcg", "dcg_capped", "precision_sum", "confidence")  # of a Report


def _check_lists(lists: RankedLists) -> None:
    """Raise DataError for arrays that kernels cannot index safely, and for users with two lists."""
    lengths = np.diff(lists.indptr)
    if lists.indptr[0] != 0 or (lengths.size and lengths.min() < 0):
        raise DataError(
            "indptr of lists must start at 0 and never decrease, got other values; use RankedLists methods."
        )
    if lists.items.size and not 0 <= lists.items.min() <= lists.items.max() < len(lists.item_ids):
        raise DataError(
            f"items of lists must be indices below {len(lists.item_ids)}, got {lists.items.min()} to "
            f"{lists.items.max()}; pass the `item_ids` they belong to."
        )
    if lists.users.values.n_unique() != len(lists):
        raise DataError("a user must have one list, got a user with several; remove all but one.")
    p = lists.probabilities
    if p is not None and p.size and not (np.nanmin(p) >= 0 and np.nanmax(p) <= 1):
        raise DataError(
            f"probabilities must lie between 0 and 1, got {np.nanmin(p)} to {np.nanmax(p)}; "
            "calibrate the scores first."
        )


class MetricAccumulator:
    """Adds up metrics over parts of lists; its memory grows with users and items, not with list lengths."""

    def __init__(self, truth: GroundTruth, history: Interactions | None, max_items: int) -> None:
        self.truth, self.max_items, self.history = truth, max_items, history
        self.catalog = truth.items
        if history is not None and history.items is not truth.items:
            self.catalog = truth.items.union(history.items.values)
        self.per_user: dict[str, Any] = {name: np.zeros(truth.n_rows, np.int32) for name in COUNTS}
        self.per_user |= {name: np.zeros(truth.n_rows) for name in SUMS}
        self.per_user["confidence"][:] = np.nan
        self.shown, self.hits = np.zeros((2, len(self.catalog)), np.int64)
        self.cells = np.zeros((CELLS, 3), np.int64)
        self.has_list: Bools = np.zeros(truth.n_rows, np.bool_)
        self.unknown_items: list[pl.Series] = []
        self.n_lists = self.ignored = 0
        self.has_probabilities: bool | None = None
        self.past: GroundTruth | None = None
        if history is not None:
            self.past = GroundTruth(history)
            self.past_user = align(IdMap(truth.user_ids), history.users, "users")

    def add(self, lists: RankedLists) -> None:
        """Add the sums of some lists; a user has one list in all of them."""
        labels, lengths = label_checked(lists, self.truth), lists.lengths
        counted = np.flatnonzero(labels.labeled)
        rows, sums = labels.row[counted], self.per_user
        self._check(rows, lists.probabilities is not None)
        self.has_list[rows] = True
        self.n_lists += len(lists)
        self.ignored += len(lists) - rows.size
        shown, hits = np.zeros((2, len(lists.item_ids)), np.int64)
        add_lists(
            read_only(lists.indptr),
            read_only(lists.items),
            labels.row,
            labels.relevant,
            np.empty(0) if labels.gains is None else labels.gains,
            read_only(np.asarray([] if lists.probabilities is None else lists.probabilities, np.float64)),
            discounts(int(lengths.max(initial=1))),
            self.max_items,
            ListTotals(
                **{name: sums[name] for name in TOTALS}, shown_of=shown, hits_of=hits, cells=self.cells
            ),
        )
        self._add_items(lists.item_ids, shown, hits)
        if self.past is not None:
            user = np.append(self.past_user, np.int32(-1))[labels.row]
            is_repeat = self.past.mark(lists, user)[0]
            sums["repeats_shown"][rows] = sum_rows(lists.indptr, is_repeat)[counted]
            sums["repeat_hits"][rows] = sum_rows(lists.indptr, is_repeat & labels.relevant)[counted]
        filled = counted[lengths[counted] > 0]
        values = lists.scores if lists.probabilities is None else lists.probabilities
        sums["confidence"][labels.row[filled]] = values[lists.indptr[filled]]
        sums["lengths"][rows] = lengths[counted]

    def _add_items(self, item_ids: IdMap, shown: Longs, hits: Longs) -> None:
        """Add how often each item was shown and a hit."""
        code = align(item_ids, self.catalog, "items")
        is_known = code >= 0
        self.shown[code[is_known]] += shown[is_known]
        self.hits[code[is_known]] += hits[is_known]
        unknown = np.flatnonzero(~is_known & (shown > 0))
        if unknown.size:
            self.unknown_items.append(item_ids.to_ids(unknown))

    def _check(self, rows: Ints, has_probabilities: bool) -> None:
        """Raise DataError if a user has a second list, or only some chunks have probabilities."""
        if self.has_list[rows].any():
            raise DataError("a user must have one list, got a user in two chunks; remove one of the lists.")
        if self.has_probabilities not in (None, has_probabilities):
            raise DataError(
                "either all chunks or none must have probabilities, got both kinds; drop the probabilities."
            )
        self.has_probabilities = has_probabilities

    def report(self) -> Report:
        """The report on all chunks added so far."""
        truth, sums = self.truth, self.per_user
        if self.n_lists and not self.has_list.any():
            raise DataError(
                f"lists must belong to the {truth.n_rows} evaluated users, got {self.n_lists} lists of other "
                "users; check that lists and truth use the same user ids."
            )
        n_unknown = pl.concat(self.unknown_items).n_unique() if self.unknown_items else 0
        relevant = np.bincount(truth.sets.item, minlength=len(self.catalog))
        gains = None
        if truth.sets.weight.size:
            total, ideal = truth.ideal_gains(discounts(self.max_items))
            gains = WeightedGains(sums["gain"], total, sums["gain_dcg"], ideal)
        return Report(
            user_ids=truth.user_ids,
            max_items=self.max_items,
            n_relevant=truth.sizes,
            **{name: sums[name] for name in PER_USER},
            expected_hits=sums["expected_hits"] if self.has_probabilities else None,
            cells=self.cells / (1.0, UNIT, 1.0) if self.has_probabilities else None,
            items=ItemCounts(self.catalog, self.shown, self.hits, relevant, n_unknown),
            unlisted=int((~self.has_list).sum()),
            ignored=self.ignored,
            repeats=self._repeats(),
            gains=gains,
        )

    def _repeats(self) -> RepeatCounts | None:
        if self.history is None or self.past is None:
            return None
        item = align(self.history.items, self.catalog, "items")[self.history.item]
        repeated = self.past.mark(self.truth.as_lists(), self.past_user)[0]
        lengths = np.append(np.diff(self.history.indptr), 0).astype(np.int32)
        return RepeatCounts(
            history_lengths=lengths[self.past_user],
            popularity=np.bincount(item, minlength=len(self.catalog)),
            relevant=sum_rows(starts(self.truth.sizes), repeated).astype(np.int32),
            shown=self.per_user["repeats_shown"],
            hits=self.per_user["repeat_hits"],
        )


def evaluated_truth(
    truth: Interactions | Any, users: Iterable[Any] | None = None, *, weighted: bool = False
) -> GroundTruth:
    """The truth without rows of negative weight; DataError if nothing is left."""
    truth = without_negative(Interactions.of(truth))
    if not truth.n_rows:
        raise DataError("truth must hold at least one interaction, got none; pass the test part of a split.")
    if weighted and truth.weight is None:
        raise ConfigError(
            'gains="weight" needs a truth with weights, got one without; name the column with weight=…, '
            "or leave gains out."
        )
    return GroundTruth(truth, users, weighted=weighted)


def label_checked(lists: RankedLists, truth: GroundTruth) -> LabeledLists:
    """The lists with their labels; DataError for lists that cannot be evaluated."""
    _check_lists(lists)
    return truth.label(lists)


@explain_keywords
def evaluate(
    lists: ListsOrChunks,
    truth: Interactions | Any,
    *,
    history: Interactions | Any = None,
    users: Iterable[Any] | Literal["everyone"] | None = None,
    max_items: int = 20,
    gains: Literal["weight"] | None = None,
    gain: float | None = None,
    cost: float | None = None,
) -> Report:
    """Evaluate lists over every user with truth; a user without a list counts as one with an empty list.

    Parameters
    ----------
    lists
        `RankedLists`, a mapping `{user_id: [item_id, …]}`, a polars, pandas or Arrow table with the columns
        `user_id` and `item_id` (optional: `rank` or `score`, `probability`), or the path of a file with such
        a table. A folder of Parquet files, and an iterable of lists, are evaluated one after the other; one
        is in memory at a time.
    truth
        What the users interacted with after the lists were made: `Interactions`, a table, or a SciPy users ×
        items matrix. Rows of negative weight, such as returns, are left out.
    history
        What was known when the lists were made. Adds `repeat_explore` and the slices by history length and
        popularity to the report.
    users
        Ids of users who count even if they have no truth. No item is a hit for them, so that their metrics
        are 0 with or without a list, except `value`: every item shown to them costs. `"everyone"`: all users
        of `history`, or of the lists if there is no history.
    max_items
        Length of the longest list that would ever be shown. Every user's NDCG and average precision are
        normalized by the ideal list of this length.
    gains
        "weight" adds `weighted_ndcg` and `weighted_recall`, in which a hit gains the weight of the item in
        the truth, such as the quantity.
    gain, cost
        What a shown item earns if the user takes it, and costs if not, in one unit. The report then has the
        metric `value`, what each list earned, and begins with what 1,000 users earned. Users who took nothing
        cost, too: name them in `users`.

    Returns
    -------
    Report
        Metrics per user, and their means over all users and over covered users.

    Raises
    ------
    DataError
        If the truth is empty, no list belongs to an evaluated user, a user has two lists, or ids of lists and
        truth have different types.
    ConfigError
        If `max_items` is below 1, `gains` is unknown or needs weights that the truth does not have, or gain
        and cost are invalid.

    Examples
    --------
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
    >>> report = sl.evaluate({"ann": ["tea", "rice"], "bob": []}, truth)
    >>> report
    Report(2 users, F1 0.2500, NDCG 0.3066, 50% covered)
    >>> report.mean("precision", "covered")
    0.5
    >>> sl.evaluate({"ann": ["tea", "rice"]}, truth, users=["cat"]).n_users
    3
    >>> sl.evaluate({"ann": ["tea", "rice"], "bob": []}, truth, gain=2, cost=1).mean("value")
    0.5
    """
    check_value(Count, max_items=max_items)
    money = Money.of(gain, cost)
    if gains not in (None, "weight"):
        raise ConfigError(f"gains must be None or 'weight', got {short_repr(gains)}; choose one.")
    history = None if history is None else Interactions.of(history)
    truth = Interactions.of(truth)
    if isinstance(users, str):
        lists, users = _name_everyone(lists, history, users)
    metrics = MetricAccumulator(evaluated_truth(truth, users, weighted=gains is not None), history, max_items)
    if isinstance(lists, (str, Path)) and Path(lists).is_dir():
        parts: Iterable[RankedLists] = map(RankedLists.read, list_parts(Path(lists)))
    else:
        parts = as_chunks(lists)
    for number, part in enumerate(parts):
        metrics.add(part)
        if number == 0:
            warn_if_trained_on((part.origin,), truth, "the metrics are too high")
    report = metrics.report()
    return report if money is None else replace(report, money=money)


def _name_everyone(
    lists: ListsOrChunks, history: Interactions | None, users: str
) -> tuple[ListsOrChunks, pl.Series]:
    """The lists, and the ids of all users of the history, or of the lists."""
    if users != "everyone":
        raise ConfigError(f"users must be ids or 'everyone', got {short_repr(users)}; pass a list of ids.")
    if history is not None:
        return lists, history.users.to_ids(history.active_users)
    is_folder = isinstance(lists, (str, Path)) and Path(lists).is_dir()
    if is_folder or not isinstance(lists, LIST_TYPES):
        got = "a folder" if is_folder else "several"
        raise ConfigError(
            f"users='everyone' needs the history, or lists in one piece, got {got}; pass history."
        )
    whole = read_candidates(lists, "lists")
    return whole, whole.users.values


@explain_keywords
def compare(
    results: Mapping[str, Lists | Report | Sequence[Lists | Report]],
    truth: Interactions | Any = None,
    *,
    baseline: str | None = None,
    metrics: Sequence[str] | None = None,
    max_items: int = 20,
    users: Iterable[Any] | Literal["everyone"] | None = None,
    gain: float | None = None,
    cost: float | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Evaluate models on the same truth and test each against a baseline.

    Parameters
    ----------
    results
        The lists (anything that `evaluate` accepts in one piece) or the report of each model, by name. A
        sequence of these is several runs of one model: means are over runs, tests use each user's mean.
    truth
        What the users interacted with; not needed if all results are reports.
    baseline
        Name of the model that the others are tested against; the first by default.
    metrics
        Metrics to test; the first one is shown with its interval. By default `f1` and `ndcg`; with gain and
        cost, `value` and `f1`.
    max_items, users, gain, cost
        As in `evaluate`.
    level
        Confidence level of the intervals.
    resamples, seed
        Number and seed of the bootstrap samples.

    Returns
    -------
    Comparison
        A table of means and tests that prints as text and displays as HTML.

    Raises
    ------
    ConfigError
        If there are no results, the baseline or a metric is unknown, or lists are given without `truth`.
    DataError
        If the reports are on different users or with different `max_items`.

    Examples
    --------
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> found = sl.compare({"A": {"ann": ["tea"]}, "B": {"ann": ["tea"], "bob": ["jam"]}}, truth)
    >>> found.tests.select("model", "metric", "difference").rows()
    [('B', 'f1', 0.5), ('B', 'ndcg', 0.5)]
    """
    given: object = results
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"results must be a dictionary from names to lists or reports, got a {type(results).__name__}; "
            "pass {name: lists}."
        )
    if not results:
        raise ConfigError("results must name at least one model, got none; pass {name: lists or report}.")
    money = Money.of(gain, cost)
    baseline = next(iter(results)) if baseline is None else baseline
    if baseline not in results:
        raise ConfigError(f"baseline must be one of {', '.join(results)}, got {baseline!r}; choose one.")
    metrics = _check_metrics(metrics, money)
    check_value(Fraction, level=level)
    check_value(Count, resamples=resamples, max_items=max_items)
    truth = None if truth is None else Interactions.of(truth)
    if users == "everyone":
        users = _users_of_all(results)

    def evaluate_run(lists: Lists) -> Report:
        return evaluate(lists, truth, max_items=max_items, users=users)

    reports = {name: _reports(name, runs, truth, evaluate_run) for name, runs in results.items()}
    if money is not None:
        reports = {name: [replace(run, money=money) for run in runs] for name, runs in reports.items()}
    first = reports[baseline][0]
    for name, runs in reports.items():
        if not all(_same_lists(run, first) for run in runs):
            raise DataError(
                "models must be evaluated on the same users with the same max_items, got others for "
                f"{name!r}; evaluate all of them on one truth."
            )
    tests = {
        (name, metric): paired_test(
            _per_user(runs, metric),
            _per_user(reports[baseline], metric),
            groups=first.groups,
            resamples=resamples,
            level=level,
            seed=seed,
        )
        for name, runs in reports.items()
        if name != baseline
        for metric in metrics
    }
    return Comparison(reports, baseline, metrics, level, tests)


def _check_metrics(metrics: Sequence[str] | None, money: Money | None) -> tuple[str, ...]:
    """The metrics to test; ConfigError for unknown ones."""
    if metrics is None:
        return DEFAULT_METRICS if money is None else MONEY_METRICS
    wanted: object = metrics
    named = isinstance(wanted, Sequence) and not isinstance(wanted, str) and len(wanted) > 0
    if not named or not all(name in (*Metric.registry, *WEIGHTED_METRICS) for name in map(str, metrics)):
        raise ConfigError(
            f"metrics must be a list of some of {', '.join(Metric.registry)}, got {metrics!r:.60}; "
            "choose from them."
        )
    return tuple(metrics)


def _same_lists(first: Report, other: Report) -> bool:
    """Whether two reports are on the same users, and at the same times if they have times."""
    if not first.user_ids.equals(other.user_ids) or first.max_items != other.max_items:
        return False
    if not (isinstance(first, TimedReport) and isinstance(other, TimedReport)):
        return type(first) is type(other)
    return np.array_equal(first.times, other.times)


def _users_of_all(results: Mapping[str, Any]) -> pl.Series:
    """Ids of all users who have a list in any of the results."""
    runs = [run for given in results.values() for run in _runs(given) if not isinstance(run, Report)]
    if not runs:
        raise ConfigError("users='everyone' needs lists, got reports only; pass it to evaluate.")
    return pl.concat([read_candidates(run, "lists").users.values for run in runs]).unique(maintain_order=True)


def _runs(given: Any) -> list[Any]:
    return [given] if isinstance(given, (Report, *LIST_TYPES)) else list(given)


def _reports(
    name: str, given: Any, truth: Interactions | None, evaluate_run: Callable[[Lists], Report]
) -> list[Report]:
    """One report per run."""
    runs = _runs(given)
    if not runs:
        raise DataError(f"model {name!r} must have at least one run, got none; leave the model out.")
    if truth is None and not all(isinstance(run, Report) for run in runs):
        raise ConfigError(
            f"truth is needed to evaluate the lists of {name!r}, got none; pass truth or reports."
        )
    return [run if isinstance(run, Report) else evaluate_run(run) for run in runs]


def _per_user(runs: list[Report], metric: str) -> Doubles:
    """(n_users,) mean over runs."""
    total: Doubles = np.sum([run.values(metric) for run in runs], axis=0)
    return total / len(runs)


class AlertReport(NamedTuple):
    """What a sender of alerts wants to know; a request is one user on one day.

    Parameters
    ----------
    n_requests
        Users times days, whether something was sent or not.
    messages
        Items sent.
    useful
        Items sent that the user interacted with.
    relevant
        Items of the candidates' days that users interacted with.
    lists
        Requests with at least one item.
    useless_lists
        Lists sent on a day without any relevant item: each is a mistake.
    empty
        Requests without a list.
    correct_empty
        Requests without a list and without a relevant item.
    f1
        Mean F1 over all requests; an empty list without a relevant item counts 1, any other mistake 0.
    """

    n_requests: int
    messages: int
    useful: int
    relevant: int
    lists: int
    useless_lists: int
    empty: int
    correct_empty: int
    f1: float

    @property
    def useful_share(self) -> float:
        """Useful messages among all messages; 0 if none was sent."""
        return self.useful / max(self.messages, 1)


def evaluate_alerts(days: Iterable[tuple[RankedLists, Interactions]]) -> AlertReport:
    """Evaluate lists over (user, day) requests, days without any relevant item included.

    Parameters
    ----------
    days
        One pair per day: the lists of everybody who could get one, empty lists included, and the interactions
        of that day with that day's candidates.

    Returns
    -------
    AlertReport

    Raises
    ------
    DataError
        If there are no days.

    Examples
    --------
    >>> import polars as pl
    >>> lists = sl.RankedLists.from_frame(pl.DataFrame({"user_id": ["ann", "bob"], "item_id": ["a", "b"]}))
    >>> truth = sl.Interactions.from_tuples([("ann", "a")])
    >>> report = sl.evaluate_alerts([(lists, truth)])
    >>> report.messages, report.useful, report.useless_lists
    (2, 1, 1)
    """
    days = list(days)
    if not days:
        raise DataError("days must hold at least one pair of lists and truth, got none.")
    sent, wanted, hits = np.concatenate([_count_requests(lists, truth) for lists, truth in days], axis=1)
    empty = sent == 0
    correct = empty & (wanted == 0)
    f1 = np.where(correct, 1.0, 2 * hits / np.maximum(sent + wanted, 1))
    return AlertReport(
        n_requests=sent.size,
        messages=int(sent.sum()),
        useful=int(hits.sum()),
        relevant=int(wanted.sum()),
        lists=int((~empty).sum()),
        useless_lists=int((~empty & (wanted == 0)).sum()),
        empty=int(empty.sum()),
        correct_empty=int(correct.sum()),
        f1=float(f1.mean()),
    )


def _count_requests(lists: RankedLists, truth: Interactions) -> Longs:
    """(3, n_lists) items sent, relevant items, and those of both."""
    labels = label_lists(lists, truth)
    return np.stack([lists.lengths, labels.n_relevant, labels.n_retrieved])
