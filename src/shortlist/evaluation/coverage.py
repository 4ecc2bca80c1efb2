"""Serving only the users one is sure about: how good the lists are at every coverage."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.report import Report
from shortlist.types import Doubles


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Users in order of falling confidence; risk is 1 minus the mean metric of those served so far."""

    metric: str
    risk: Doubles  # (n_users,) when the most confident 1, 2, … are served
    area: float  # mean risk over all coverages: lower is better
    area_random: float  # if the confidence knew nothing
    area_ideal: float  # if it knew the metric itself

    def curve(self, points: int = 100) -> pl.DataFrame:
        """coverage, risk and the mean metric of the served, at evenly spread coverages."""
        n = self.risk.size
        at = np.unique(np.maximum(np.round(np.linspace(1 / points, 1, points) * n), 1).astype(np.int64))
        return pl.DataFrame(
            {"coverage": at / n, "risk": self.risk[at - 1], self.metric: 1 - self.risk[at - 1]}
        )


def risk_coverage(report: Report, metric: str = "f1", confidence: Doubles | None = None) -> RiskCoverage:
    """Serve users from the surest down; `confidence` (n_users,) in the report's order of users.

    By default the probability of the first item, or its score. Empty lists come last. Users of equal
    confidence are served in random order: the curve is the expectation over all such orders.
    """
    if metric in ("hits", "length"):
        raise ConfigError(f"metric must lie between 0 and 1 to be a risk, got {metric!r}; choose f1 or ndcg.")
    values = report.values(metric)
    sure = report.confidence if confidence is None else np.asarray(confidence, np.float64)
    if sure.shape != values.shape:
        raise DataError(
            f"confidence must hold one value per user ({values.size}), got shape {sure.shape}; "
            "follow the order of report.users."
        )
    risk = _risk(values, np.where(report.covered & ~np.isnan(sure), sure, -np.inf))
    return RiskCoverage(
        metric=metric,
        risk=risk,
        area=float(risk.mean()),
        area_random=float(1 - values.mean()),
        area_ideal=float(_risk(values, values).mean()),
    )


def _risk(values: Doubles, confidence: Doubles) -> Doubles:
    """(n_users,) expected risk when the surest 1, 2, … users are served."""
    order = np.argsort(-confidence, kind="stable")
    ranked, sure = values[order], confidence[order]
    starts = np.flatnonzero(np.concatenate([[True], sure[1:] != sure[:-1]]))
    sizes = np.diff(np.append(starts, sure.size))
    level = np.repeat(np.add.reduceat(ranked, starts) / sizes, sizes)  # what a user of this tie brings
    return 1 - np.cumsum(level) / np.arange(1, sure.size + 1)
