"""ExposureReport: what truth about shown items says about lists, and what it cannot say."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy.special import betaincinv  # scipy.stats, which has the same, takes long to import

from shortlist.core.metrics import Metric, calibration_error
from shortlist.core.params import check_number
from shortlist.core.tables import plain
from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists, find_propensities
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.ground_truth import GroundTruth
from shortlist.evaluation.report import bin_rates
from shortlist.kernels.rows import sum_rows
from shortlist.types import Bools, Doubles, Ints

UNKNOWN_RELEVANT = "needs the relevant items that were not shown; truth about shown items lacks them"
NO_PROPENSITY = "some items of the lists were never shown to their users; show them, or log with explore="


@dataclass(frozen=True, eq=False, repr=False)
class ExposureReport:
    """Evaluation of lists when the truth is only known for items that were shown.

    Precision and calibration can be estimated. Recall, F1, NDCG and average precision cannot: they depend on
    relevant items that were not shown. `not_estimable` says so, and `mean` refuses to return a number.

    Parameters
    ----------
    user_ids
        Ids of the users who have a list and were shown one. All arrays below have one value per user.
    lengths
        Length of the evaluated list.
    hits, unseen
        Hits among its items that were shown, and number of items that were not shown to the user.
    weighted_hits
        Hits divided by the probability with which the item was shown.
    n_added
        Items that exploration adds to a list; 0 without exploration.
    probabilities, outcomes, weights
        Shape (n_seen,): predicted probability, whether it was a hit, and 1 / propensity of the evaluated
        items that were shown; empty for lists without probabilities.

    Examples
    --------
    >>> shown = sl.PersonalFrequency().fit(sl.load_dataset("sample")).recommend(["u1", "u2"], N=4)
    >>> truth = sl.Interactions.from_tuples([("u1", shown["u1"].items[0])])
    >>> report = sl.evaluate_shown(shown, truth, shown)
    >>> report.precision
    0.125
    >>> sorted(report.not_estimable)
    ['average_precision', 'calibration_error', 'f1', 'ndcg', 'ndcg_paper', 'recall']
    """

    user_ids: pl.Series
    lengths: Ints
    hits: Ints
    unseen: Ints
    weighted_hits: Doubles
    n_added: int
    probabilities: Doubles
    outcomes: Bools
    weights: Doubles

    @property
    def n_users(self) -> int:
        """Number of users who have a list and were shown one."""
        return int(self.lengths.size)

    @property
    def covered(self) -> Bools:
        """Shape (n_users,): whether the evaluated list has any items."""
        return self.lengths > 0

    @property
    def cover_ratio(self) -> float:
        """Share of users whose evaluated list has any items."""
        return float(self.covered.mean())

    @property
    def unseen_share(self) -> float:
        """Share of the evaluated items that were not shown to their user."""
        return float(self.unseen.sum() / max(int(self.lengths.sum()), 1))

    @cached_property
    def precision(self) -> float | None:
        """Mean precision over covered users; None if it cannot be estimated.

        Exact if every item was shown. Else the Horvitz–Thompson estimate with the propensities of the log,
        which is unbiased if exploration could have shown every item of the lists.
        """
        return None if "precision" in self.not_estimable else self._over_covered(self.weighted_hits)

    @property
    def precision_bounds(self) -> tuple[float, float]:
        """Mean precision over covered users if no unseen item is relevant, and if all of them are."""
        return self._over_covered(self.hits), self._over_covered(self.hits + self.unseen)

    def _over_covered(self, hits: Any) -> float:
        on = self.covered
        return float((hits[on] / self.lengths[on]).mean()) if on.any() else float("nan")

    @cached_property
    def not_estimable(self) -> dict[str, str]:
        """Metrics that cannot be estimated, and why."""
        reasons = dict.fromkeys(_metrics_of_all_relevant(), UNKNOWN_RELEVANT)
        if not self.covered.any():
            reasons["precision"] = "no evaluated list has items"
        elif self.unseen.any() and self.unseen.max() > self.n_added:
            reasons["precision"] = NO_PROPENSITY
        if not self.probabilities.size:
            reasons["calibration_error"] = "needs lists with probabilities of which some items were shown"
        return reasons

    def mean(self, metric: str) -> float:
        """Return the mean of a metric over covered users.

        Parameters
        ----------
        metric
            "precision" or "length".

        Returns
        -------
        float
            The mean.

        Raises
        ------
        DataError
            If the metric cannot be estimated from shown items.
        ConfigError
            If the metric is unknown.

        Examples
        --------
        >>> shown = sl.PersonalFrequency().fit(sl.load_dataset("sample")).recommend(["u1", "u2"], N=4)
        >>> truth = sl.Interactions.from_tuples([("u1", shown["u1"].items[0])])
        >>> sl.evaluate_shown(shown, truth, shown).mean("length")
        4.0
        """
        if metric in self.not_estimable:
            raise DataError(f"{metric} cannot be estimated: it {self.not_estimable[metric]}."[:300])
        if metric == "precision" and self.precision is not None:
            return self.precision
        if metric == "length":
            return float(self.lengths[self.covered].mean())
        raise ConfigError(f"metric must be precision or length, got {metric!r:.60}; choose one.")

    @cached_property
    def calibration(self) -> pl.DataFrame | None:
        """Predicted probability and observed hit rate of shown items in bins; None without probabilities."""
        if not self.probabilities.size:
            return None
        order = np.argsort(self.probabilities, kind="stable")
        p, y, w = self.probabilities[order], self.outcomes[order], self.weights[order]
        names = ("weight", "predicted", "observed")
        return pl.DataFrame(dict(zip(names, bin_rates(w, w * p, w * y), strict=True)))

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error of shown items; None for lists without probabilities."""
        if self.calibration is None:
            return None
        return calibration_error(*(self.calibration[name].to_numpy() for name in self.calibration.columns))

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates and the reasons for missing ones, ready for JSON.

        Returns
        -------
        dict
            Metrics that cannot be estimated are None, and `not_estimable` says why.

        Examples
        --------
        >>> shown = sl.PersonalFrequency().fit(sl.load_dataset("sample")).recommend(["u1", "u2"], N=4)
        >>> truth = sl.Interactions.from_tuples([("u1", shown["u1"].items[0])])
        >>> sl.evaluate_shown(shown, truth, shown).to_dict()["recall"] is None
        True
        """
        estimates: dict[str, Any] = {
            "users": self.n_users,
            "cover_ratio": self.cover_ratio,
            "unseen_share": self.unseen_share,
            "precision": self.precision,
            "precision_bounds": self.precision_bounds if self.covered.any() else None,
            "calibration_error": self.calibration_error,
        }
        return {**estimates, **dict.fromkeys(_metrics_of_all_relevant()), "not_estimable": self.not_estimable}

    def __repr__(self) -> str:
        precision = "unknown" if self.precision is None else f"{self.precision:.4f}"
        return (
            f"ExposureReport({self.n_users:,} users, precision {precision}, {self.cover_ratio:.0%} covered)"
        )

    def __str__(self) -> str:
        low, high = self.precision_bounds
        estimates = {"precision": self.precision, "calibration_error": self.calibration_error}
        rows = {name: value for name, value in estimates.items() if value is not None}
        lines = [
            plain(pl.DataFrame({"metric": list(rows), "estimate": list(rows.values())})),
            f"{self.n_users:,} users, {self.cover_ratio:.1%} covered, {self.unseen_share:.1%} of items not "
            f"shown; precision between {low:.4f} and {high:.4f}",
        ]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.not_estimable.items():
            reasons.setdefault(reason, []).append(name)
        return "\n".join([*lines, *(f"not estimated: {', '.join(n)} ({why})" for why, n in reasons.items())])


def _metrics_of_all_relevant() -> list[str]:
    """Metrics that depend on relevant items whether they were shown or not."""
    return [name for name, metric in Metric.registry.items() if metric.needs_all_relevant]


def evaluate_shown(lists: RankedLists, truth: Interactions | Any, shown: RankedLists) -> ExposureReport:
    """Evaluate lists with truth that is only known for items that users were shown.

    Parameters
    ----------
    lists
        The lists to evaluate: those that users saw, or others for the same users.
    truth
        What users took of what they were shown.
    shown
        The lists that users saw, with propensities if some of them ran longer at random (`explore=`).

    Returns
    -------
    ExposureReport
        Precision and calibration, and why the other metrics cannot be estimated.

    Raises
    ------
    DataError
        If lists are not `RankedLists`, or none of them belongs to a user who was shown something.

    Examples
    --------
    >>> log = sl.Popularity().fit(sl.load_dataset("sample")).recommend(N=5)
    >>> clicks = sl.Interactions.from_tuples([(user, log[user].items[0]) for user in log.users.values])
    >>> round(sl.evaluate_shown(log, clicks, log).precision, 6)
    0.2
    """
    if not isinstance(lists, RankedLists):
        raise DataError(
            f"lists must be RankedLists, got a {type(lists).__name__}; use RankedLists.from_frame(table)."
        )
    propensities = find_propensities(lists, shown)
    ground = GroundTruth(truth, None, lists.users.values)
    chunk = ground.chunk(lists)
    seen = propensities > 0
    relevant = ground.relevant(chunk) & seen
    was_shown = shown.users.align(lists.users) != UNKNOWN
    if not was_shown.any():
        raise DataError(
            f"lists must belong to users who were shown something, got {len(lists)} lists of other users; "
            "check the user ids."
        )
    weights = np.divide(1.0, propensities, where=seen, out=np.zeros(seen.size))

    def per_list(values: Any) -> Any:
        return sum_rows(lists.indptr, values)[was_shown]

    rows = seen & np.repeat(was_shown, np.diff(lists.indptr))
    p = lists.probabilities
    rows = rows & ~np.isnan(p) if p is not None else np.zeros(seen.size, np.bool_)
    added = np.zeros(shown.items.size) if shown.propensities is None else shown.propensities < 1
    n_added = sum_rows(shown.indptr, added).max(initial=0)
    return ExposureReport(
        user_ids=lists.users.to_ids(np.flatnonzero(was_shown)),
        lengths=np.diff(lists.indptr)[was_shown].astype(np.int32),
        hits=per_list(relevant).astype(np.int32),
        unseen=per_list(~seen).astype(np.int32),
        weighted_hits=per_list(relevant * weights),
        n_added=int(n_added),
        probabilities=np.empty(0) if p is None else p[rows],
        outcomes=relevant[rows],
        weights=weights[rows],
    )


def evaluate_tails(
    shown: RankedLists,
    truth: Interactions | Any,
    *,
    gain: float = 1.0,
    cost: float = 0.0,
    confidence: float = 0.95,
) -> pl.DataFrame:
    """Estimate what one more item would earn, from lists that ran longer at random.

    Some lists of `recommend(explore=…)` are followed by a few items that the cutoff had left out. Which lists
    is decided at random, so the hits among these items say what longer lists would bring, position by
    position, without a second group of users.

    Parameters
    ----------
    shown
        Lists as they were shown, with propensities.
    truth
        What their users chose.
    gain, cost
        What a shown item earns if the user takes it, and what every shown item costs.
    confidence
        Probability that the exact interval of a position contains its rate.

    Returns
    -------
    polars.DataFrame
        One row per position after the end of a list: `position`, `n` items shown there, `rate` of hits with
        `low` and `high`, and `value`, what one more item earns on average, with `value_low` and `value_high`.

    Raises
    ------
    DataError
        If no list ran longer.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> model = sl.PersonalFrequency().fit(split.train)
    >>> shown = model.recommend(N=5, explore=sl.Exploration(share=0.5), filter_seen=False)
    >>> sl.evaluate_tails(shown, split.valid, cost=0.1)["position"].to_list()
    [1, 2, 3, 4, 5]
    """
    check_number(0, gain=gain, cost=cost)
    check_number(0.5, confidence=confidence)
    added = np.zeros(0, np.bool_) if shown.propensities is None else shown.propensities < 1
    if not added.any():
        raise DataError(
            "tails need lists that ran longer at random, got none; make them with recommend(explore=0.05), "
            "or set `explore` in the service."
        )
    ground = GroundTruth(truth, None, shown.users.values)
    relevant = ground.relevant(ground.chunk(shown))
    before = np.concatenate([[0], np.cumsum(added)])
    position = (before[1:] - np.repeat(before[shown.indptr[:-1]], np.diff(shown.indptr)))[added]
    n, hits = np.bincount(position)[1:], np.bincount(position, relevant[added])[1:]
    error = (1 - confidence) / 2
    low = np.where(hits > 0, betaincinv(hits, n - hits + 1, error), 0.0)  # Clopper and Pearson, 1934
    high = np.where(hits < n, betaincinv(hits + 1, n - hits, 1 - error), 1.0)
    rates = {"rate": hits / n, "low": low, "high": high}
    values = {name.replace("rate", "value"): gain * rate - cost for name, rate in rates.items()}
    return pl.DataFrame(
        {
            "position": np.arange(1, n.size + 1),
            "n": n,
            **rates,
            "value": values["value"],
            "value_low": values["low"],
            "value_high": values["high"],
        }
    )
