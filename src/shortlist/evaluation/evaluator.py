"""evaluate and compare: lists of any model and truth in, a report or a comparison out."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from shortlist.core.calls import explain_call
from shortlist.core.engine import Engine, check_engine
from shortlist.core.estimator import check_fraction, check_whole, short_repr
from shortlist.data.interactions import Interactions
from shortlist.data.list_tables import list_parts
from shortlist.data.overlap import warn_if_trained_on
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.accumulator import MetricAccumulator
from shortlist.evaluation.comparison import Comparison
from shortlist.evaluation.exposure import ExposureReport, evaluate_shown
from shortlist.evaluation.gains import WEIGHTED_METRICS, GainSums, WeightedReport
from shortlist.evaluation.ground_truth import LIST_TYPES, GroundTruth, Lists, ListsOrChunks, as_chunks
from shortlist.evaluation.report import METRICS, Report
from shortlist.evaluation.significance import paired_test
from shortlist.evaluation.timed_report import TimedReport
from shortlist.types import Doubles


@overload
def evaluate(
    lists: ListsOrChunks,
    truth: Interactions | Any,
    *,
    history: Interactions | Any = None,
    users: Iterable[Any] | None = None,
    max_items: int = 20,
    gains: None = None,
    shown: None = None,
    engine: Engine | None = None,
) -> Report: ...
@overload
def evaluate(
    lists: ListsOrChunks,
    truth: Interactions | Any,
    *,
    history: Interactions | Any = None,
    users: Iterable[Any] | None = None,
    max_items: int = 20,
    gains: Literal["weight"],
    shown: None = None,
    engine: Engine | None = None,
) -> WeightedReport: ...
@overload
def evaluate(lists: RankedLists, truth: Interactions | Any, *, shown: RankedLists) -> ExposureReport: ...
@explain_call
def evaluate(
    lists: ListsOrChunks,
    truth: Interactions | Any,
    *,
    history: Interactions | Any = None,
    users: Iterable[Any] | None = None,
    max_items: int = 20,
    gains: Literal["weight"] | None = None,
    shown: RankedLists | None = None,
    engine: Engine | None = None,
) -> Report | ExposureReport:
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
        Ids of users who count even if they have no truth. Their metrics are 0 with or without a list.
    max_items
        Length of the longest list that would ever be shown. Every user's NDCG and average precision are
        normalized by the ideal list of this length.
    gains
        "weight" adds `weighted_ndcg` and `weighted_recall`, in which a hit gains the weight of the item in
        the truth, such as the quantity; a `WeightedReport` is returned.
    shown
        The lists that users saw, if `truth` is only known for shown items; `lists` are then `RankedLists`,
        the same or others. `history`, `users`, `max_items`, `gains` and `engine` are not used.
    engine
        Where to evaluate a folder of Parquet files: None or `ThreadEngine()` in this process, `RayEngine(…)`
        on a cluster, one file per task, with the same figures to the last bit. Other lists are evaluated in
        this process.

    Returns
    -------
    Report
        Metrics per user, and their means over all users and over covered users. With `shown`, an
        `ExposureReport`: precision and calibration, and why the other metrics cannot be estimated.

    Raises
    ------
    DataError
        If the truth is empty, no list belongs to an evaluated user, a user has two lists, or ids of lists and
        truth have different types.
    ConfigError
        If `max_items` is below 1, or `gains` is unknown or needs weights that the truth does not have.

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
    """
    check_whole(1, max_items=max_items)
    if gains not in (None, "weight"):
        raise ConfigError(f"gains must be None or 'weight', got {short_repr(gains)}; choose one.")
    if shown is not None:
        if not isinstance(lists, RankedLists):
            raise DataError("lists must be RankedLists if shown is given; use RankedLists.from_frame(table).")
        return evaluate_shown(lists, truth, shown)
    history = None if history is None else Interactions.of(history)
    truth = Interactions.of(truth)
    ground = GroundTruth(truth, history, users)
    weighted = None if gains is None else GainSums(ground, max_items)
    metrics = MetricAccumulator(ground, history, max_items, weighted)
    if isinstance(lists, (str, Path)) and Path(lists).is_dir():
        parts = check_engine(engine).map(metrics.evaluate_file, list_parts(Path(lists)))
    else:
        check_engine(engine)
        parts = map(metrics.evaluate, as_chunks(lists))
    for number, part in enumerate(parts):
        metrics.add(part)
        if number == 0:
            warn_if_trained_on((part.origin,), truth, "the metrics are too high")
    return metrics.report()


@explain_call
def compare(
    results: Mapping[str, Lists | Report | Sequence[Lists | Report]],
    truth: Interactions | Any = None,
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = ("f1", "ndcg"),
    max_items: int = 20,
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
        Metrics to test; the first one is shown with its interval.
    max_items
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
    baseline = next(iter(results)) if baseline is None else baseline
    if baseline not in results:
        raise ConfigError(f"baseline must be one of {', '.join(results)}, got {baseline!r}; choose one.")
    wanted: object = metrics
    named = isinstance(wanted, Sequence) and not isinstance(wanted, str) and len(wanted) > 0
    if not named or not all(one in (*METRICS, *WEIGHTED_METRICS) for one in map(str, metrics)):
        raise ConfigError(
            f"metrics must be a list of some of {', '.join(METRICS)}, got {metrics!r:.60}; choose from them."
        )
    check_fraction(level=level)
    check_whole(1, resamples=resamples, max_items=max_items)
    truth = None if truth is None else Interactions.of(truth)
    reports = {name: _reports(name, one, truth, max_items) for name, one in results.items()}
    first = reports[baseline][0]
    for name, runs in reports.items():
        if not all(_same_lists(run, first) for run in runs):
            raise DataError(
                "models must be evaluated on the same users with the same max_items, got others for "
                f"{name!r}; evaluate all of them on one truth."
            )
    found = {
        (name, metric): paired_test(
            _per_user(runs, metric),
            _per_user(reports[baseline], metric),
            groups=first.groups if isinstance(first, TimedReport) else None,
            resamples=resamples,
            level=level,
            seed=seed,
        )
        for name, runs in reports.items()
        if name != baseline
        for metric in metrics
    }
    return Comparison(reports, baseline, tuple(metrics), level, found)


def _same_lists(one: Report, other: Report) -> bool:
    """Whether two reports are on the same users, and at the same times if they have times."""
    if not one.user_ids.equals(other.user_ids) or one.max_items != other.max_items:
        return False
    if not (isinstance(one, TimedReport) and isinstance(other, TimedReport)):
        return type(one) is type(other)
    return np.array_equal(one.times, other.times)


def _reports(name: str, given: Any, truth: Interactions | None, max_items: int) -> list[Report]:
    """One report per run."""
    runs = [given] if isinstance(given, (Report, *LIST_TYPES)) else list(given)
    if not runs:
        raise DataError(f"model {name!r} must have at least one run, got none; leave the model out.")
    if truth is None and not all(isinstance(run, Report) for run in runs):
        raise ConfigError(
            f"truth is needed to evaluate the lists of {name!r}, got none; pass truth or reports."
        )
    return [run if isinstance(run, Report) else evaluate(run, truth, max_items=max_items) for run in runs]


def _per_user(runs: list[Report], metric: str) -> Doubles:
    """(n_users,) mean over runs."""
    total: Doubles = np.sum([run.values(metric) for run in runs], axis=0)
    return total / len(runs)
