"""Compare probabilities with outcomes, and correct them for sampled negatives."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.metrics import calibration_error
from shortlist.cutoff.candidates import label_lists
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.types import Doubles


def correct_prior(probabilities: Doubles, *, negatives: float, base_rate: float) -> Doubles:
    """Undo the effect of sampled negatives on probabilities.

    A model trained with a fixed number of negatives per positive overestimates probabilities: it saw odds of
    1 : `negatives`. For a joint model the input is expit(score - boundary).

    Parameters
    ----------
    probabilities
        Probabilities as the model estimates them.
    negatives
        Negatives per positive in training.
    base_rate
        Share of positives among all user-item pairs that the probabilities should describe.

    Returns
    -------
    numpy.ndarray
        Corrected probabilities.

    Raises
    ------
    ConfigError
        If `negatives` is not positive or `base_rate` is not between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> sl.cutoff.correct_prior(np.array([0.5]), negatives=1, base_rate=0.01).round(3).tolist()
    [0.01]
    """
    if not negatives > 0 or not 0 < base_rate < 1:
        raise ConfigError(
            f"negatives must be positive and base_rate in (0, 1), got {negatives!r} and {base_rate!r}; "
            "pass the values used in training and observed in the data."
        )
    factor = negatives * base_rate / (1 - base_rate)
    return probabilities * factor / (1 - probabilities + probabilities * factor)


class Reliability(NamedTuple):
    """Predicted and observed rates per bin, and the expected calibration error.

    Parameters
    ----------
    table
        One row per bin: low, high, n, predicted, observed.
    ece
        The expected calibration error.
    """

    table: pl.DataFrame
    ece: float


def reliability(
    lists: RankedLists, truth: Interactions, *, n_bins: int = 10, users: Iterable[Any] | None = None
) -> Reliability:
    """Compare the probabilities of candidates with what happened.

    Parameters
    ----------
    lists
        Lists with probabilities.
    truth
        Interactions that happened after the lists were made. Candidates of users without rows are ignored.
    n_bins
        Number of bins with about equally many candidates; equal probabilities share a bin.
    users
        Ids of the users who received a list or were eligible for one. They count even if they interacted with
        nothing.

    Returns
    -------
    Reliability
        `table` with one row per bin (low, high, n, predicted, observed), and `ece`, the expected calibration
        error: the mean distance between predicted and observed rates, weighted by n.

    Raises
    ------
    ConfigError
        If `n_bins` is less than 1.
    DataError
        If the lists have no probabilities, or no user of `truth` has a candidate.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> lists = sl.cutoff.Calibration(method="isotonic").fit(candidates, split.valid).apply(candidates)
    >>> sl.cutoff.reliability(lists, split.valid).ece < 0.01
    True
    """
    if n_bins < 1:
        raise ConfigError(f"n_bins must be at least 1, got {n_bins}; 10 is usual.")
    if lists.probabilities is None:
        raise DataError("reliability needs lists with probabilities, got none; apply a Calibration first.")
    labels = label_lists(lists, truth, users)
    p, y = lists.probabilities[labels.rows], labels.relevant[labels.rows]
    if not p.size:
        raise DataError("reliability needs candidates of users in truth, got none; check the user ids.")
    edges = np.unique(np.quantile(p, np.linspace(0, 1, n_bins + 1)[1:-1]))
    table = (
        pl.DataFrame({"bin": np.searchsorted(edges, p, side="left"), "p": p, "y": y})
        .group_by("bin")
        .agg(
            low=pl.col("p").min(),
            high=pl.col("p").max(),
            n=pl.len(),
            predicted=pl.col("p").mean(),
            observed=pl.col("y").mean(),
        )
        .sort("bin")
        .drop("bin")
    )
    n, predicted, observed = (table[name].to_numpy() for name in ("n", "predicted", "observed"))
    return Reliability(table, calibration_error(n.astype(np.int64), predicted, observed))
