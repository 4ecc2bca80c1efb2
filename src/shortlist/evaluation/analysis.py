"""Metrics by slice of users or items, and risk against coverage."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from shortlist.core.metrics import Metric
from shortlist.core.tables import html
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.report import RepeatCounts, Report
from shortlist.types import Bools, Doubles, Ints, Longs

# the smallest value of each slice; the last slice has no upper limit
BASKET = (0, 1, 2, 3, 6, 11)
HISTORY = (0, 1, 5, 10, 20, 50, 100)
POPULARITY = 5  # slices of items with equal shares of the interactions, from popular to rare
COLUMNS = ("f1", "ndcg", "precision", "recall", "hits", "length")


def slice_metrics(report: Report, by: str) -> pl.DataFrame:
    """Compute the metrics of a report by slice of users or of items.

    Parameters
    ----------
    report
        A report of `evaluate`. Slices by `history_length` and `popularity` need a report with `history=`.
    by
        `"basket_size"` (relevant items per user), `"history_length"` (earlier interactions per user) or
        `"popularity"` (items, in slices with equal shares of all earlier interactions).

    Returns
    -------
    polars.DataFrame
        One row per slice that is not empty. Slices of users have the number of users, their cover ratio and
        means over all of them. Slices of items have the number of items and how often they were shown, hit
        and relevant.

    Raises
    ------
    ConfigError
        If `by` is none of the three.
    DataError
        If the report has no history.

    Examples
    --------
    >>> from shortlist.evaluation import slice_metrics
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
    >>> report = sl.evaluate({"ann": ["tea"], "bob": ["rice"]}, truth)
    >>> slice_metrics(report, "basket_size").select("slice", "users", "recall").rows()
    [('1', 1, 0.0), ('2', 1, 0.5)]
    """
    if by == "basket_size":
        return _user_slices(report, report.n_relevant, BASKET)
    if by == "history_length":
        return _user_slices(report, _repeats(report).history_lengths, HISTORY)
    if by == "popularity":
        return _item_slices(report)
    raise ConfigError(f"by must be basket_size, history_length or popularity, got {by!r}; choose one.")


def ranges(sizes: Ints, edges: tuple[int, ...]) -> list[tuple[str, Bools]]:
    """(label, (n_users,) mask of its users) of every slice that is not empty; `edges`: smallest values."""
    which = np.searchsorted(edges, sizes, side="right") - 1
    return [(_label(edges, int(k)), which == k) for k in np.unique(which)]


def _repeats(report: Report) -> RepeatCounts:
    if report.repeats is None:
        raise DataError(
            "slices by history length and popularity need a history, got none; pass history= to evaluate."
        )
    return report.repeats


def _user_slices(report: Report, sizes: Ints, edges: tuple[int, ...]) -> pl.DataFrame:
    """Means per slice."""
    slices = ranges(sizes, edges)
    return pl.DataFrame(
        {
            "slice": [label for label, _ in slices],
            "users": [int(who.sum()) for _, who in slices],
            "cover_ratio": [float(report.covered[who].mean()) for _, who in slices],
            **{name: [float(report.values(name)[who].mean()) for _, who in slices] for name in COLUMNS},
        }
    )


def _label(edges: tuple[int, ...], k: int) -> str:
    """A range as text, such as 1, 3–5 or 11+."""
    if k == len(edges) - 1:
        return f"{edges[k]}+"
    last = edges[k + 1] - 1
    return str(last) if last == edges[k] else f"{edges[k]}–{last}"


def _item_slices(report: Report) -> pl.DataFrame:
    """Items from popular to rare; a slice starts where its share of the history starts."""
    counts, items = _repeats(report).popularity, report.items
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    slices = np.minimum(before * POPULARITY // max(int(counts.sum()), 1), POPULARITY - 1)
    which = np.empty(counts.size, np.int64)
    which[order] = slices

    def total(values: Longs) -> Longs:
        return np.bincount(which, values, POPULARITY).astype(np.int64)

    n = np.bincount(which, minlength=POPULARITY)
    shown, hits, relevant = total(items.shown), total(items.hits), total(items.relevant)
    share = 100 // POPULARITY
    table = pl.DataFrame(
        {
            "slice": [f"{share * k}–{share * (k + 1)}% of history" for k in range(POPULARITY)],
            "items": n,
            "items_shown": total((items.shown > 0).astype(np.int64)),
            "shown": shown,
            "hits": hits,
            "relevant": relevant,
            "precision": hits / np.maximum(shown, 1),
            "recall": hits / np.maximum(relevant, 1),
        }
    )
    return table.filter(pl.col("items") > 0)


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage:
    """Risk (1 - mean metric) when only the most confident users get lists, by share of users covered.

    The result of `risk_coverage`.

    Parameters
    ----------
    metric
        The metric that the risk is computed from.
    risk
        Shape (n_users,): risk when the most confident 1, 2, … users get lists.
    area
        Mean risk over all coverages; lower is better.
    area_random
        `area` of a random order of users.
    area_ideal
        `area` of the best possible order of users.

    Examples
    --------
    >>> from shortlist.evaluation import risk_coverage
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> found = risk_coverage(sl.evaluate({"ann": ["tea"], "bob": ["rice"]}, truth), confidence=[0.9, 0.2])
    >>> found
    RiskCoverage(f1: area 0.2500, random 0.5000, ideal 0.2500)
    """

    metric: str
    risk: Doubles
    area: float
    area_random: float
    area_ideal: float

    def curve(self, points: int = 100) -> pl.DataFrame:
        """Risk and mean metric at evenly spaced coverages.

        Parameters
        ----------
        points
            Maximum number of rows.

        Returns
        -------
        polars.DataFrame
            Columns `coverage`, `risk`, and the metric under its own name.

        Examples
        --------
        >>> from shortlist.evaluation import risk_coverage
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> report = sl.evaluate({"ann": ["tea"], "bob": ["rice"]}, truth)
        >>> risk_coverage(report, confidence=[0.9, 0.2]).curve().rows()
        [(0.5, 0.0, 1.0), (1.0, 0.5, 0.5)]
        """
        n = self.risk.size
        at = np.unique(np.maximum(np.round(np.linspace(1 / points, 1, points) * n), 1).astype(np.int64))
        return pl.DataFrame(
            {"coverage": at / n, "risk": self.risk[at - 1], self.metric: 1 - self.risk[at - 1]}
        )

    def __repr__(self) -> str:
        areas = f"area {self.area:.4f}, random {self.area_random:.4f}, ideal {self.area_ideal:.4f}"
        return f"RiskCoverage({self.metric}: {areas})"

    def _repr_html_(self) -> str:
        return html(self.curve(10), repr(self))


def risk_coverage(report: Report, metric: str = "f1", confidence: Doubles | None = None) -> RiskCoverage:
    """Measure how well confidence predicts list quality: risk when only the most confident users get lists.

    Users of equal confidence are covered in random order: the curve is the mean over all such orders. Empty
    lists come last.

    Parameters
    ----------
    report
        A report of `evaluate`.
    metric
        A metric between 0 and 1, such as `"f1"` or `"ndcg"`.
    confidence
        Shape (n_users,), in the order of `report.users`. By default the probability of each list's first
        item, or its score if the lists have no probabilities.

    Returns
    -------
    RiskCoverage
        The risk at every coverage, and the areas under the curve.

    Raises
    ------
    ConfigError
        If the metric is unknown or not between 0 and 1.
    DataError
        If `confidence` has another shape.

    Examples
    --------
    >>> from shortlist.evaluation import risk_coverage
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> report = sl.evaluate({"ann": ["tea"], "bob": ["rice"]}, truth)
    >>> risk_coverage(report, confidence=[0.2, 0.9]).area
    0.75
    """
    values = report.values(metric)
    if metric in Metric.registry and not Metric.registry[metric].is_share:
        raise ConfigError(f"metric must lie between 0 and 1 to be a risk, got {metric!r}; choose f1 or ndcg.")
    given = report.confidence if confidence is None else np.asarray(confidence, np.float64)
    if given.shape != values.shape:
        raise DataError(
            f"confidence must hold one value per user ({values.size}), got shape {given.shape}; "
            "follow the order of report.users."
        )
    risk = _risk(values, np.where(report.covered & ~np.isnan(given), given, -np.inf))
    return RiskCoverage(
        metric=metric,
        risk=risk,
        area=float(risk.mean()),
        area_random=float(1 - values.mean()),
        area_ideal=float(_risk(values, values).mean()),
    )


def _risk(values: Doubles, confidence: Doubles) -> Doubles:
    """(n_users,) expected risk when the most confident 1, 2, … users are covered."""
    order = np.argsort(-confidence, kind="stable")
    ranked, level = values[order], confidence[order]
    starts = np.flatnonzero(np.concatenate([[True], level[1:] != level[:-1]]))
    sizes = np.diff(np.append(starts, level.size))
    mean = np.repeat(np.add.reduceat(ranked, starts) / sizes, sizes)  # of the users of equal confidence
    return 1 - np.cumsum(mean) / np.arange(1, level.size + 1)
