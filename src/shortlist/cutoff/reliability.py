"""Do probabilities come true? The reliability table and the expected calibration error."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.cutoff.labels import label
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError


class Reliability(NamedTuple):
    """One row per bin, and the mean distance between promise and outcome, weighted by candidates."""

    table: pl.DataFrame  # low, high, n, promised, observed
    ece: float


def reliability(
    lists: RankedLists, truth: Interactions, *, n_bins: int = 10, asked: Iterable[Any] | None = None
) -> Reliability:
    """Candidates of users with truth rows, and of those `asked`, in bins of equal numbers.

    Equal probabilities stay together.
    """
    if n_bins < 1:
        raise ConfigError(f"n_bins must be at least 1, got {n_bins}; 10 is usual.")
    if lists.probabilities is None:
        raise DataError("reliability needs lists with probabilities, got none; apply a calibration first.")
    known = label(lists, truth, asked)
    p, y = lists.probabilities[known.rows], known.relevant[known.rows]
    if not p.size:
        raise DataError(
            "reliability needs candidates of users with truth rows, got none; check the user ids."
        )
    edges = np.unique(np.quantile(p, np.linspace(0, 1, n_bins + 1)[1:-1]))
    table = (
        pl.DataFrame({"bin": np.searchsorted(edges, p, side="left"), "p": p, "y": y})
        .group_by("bin")
        .agg(
            low=pl.col("p").min(),
            high=pl.col("p").max(),
            n=pl.len(),
            promised=pl.col("p").mean(),
            observed=pl.col("y").mean(),
        )
        .sort("bin")
        .drop("bin")
    )
    gap = (table["promised"] - table["observed"]).abs()
    return Reliability(table, float((gap * table["n"]).sum() / p.size))
