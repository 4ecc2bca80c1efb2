"""Fit on a sample of the users of a Spark DataFrame, and measure it on users outside the sample."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from shortlist.auto.fit import Models
from shortlist.auto.fit import fit as fit_in_memory
from shortlist.auto.progress import show_progress
from shortlist.auto.sample import SampleGrowth
from shortlist.auto.validation import hold_out
from shortlist.core.options import Count, check_value, explain_keywords
from shortlist.cutoff.base import Cutoff
from shortlist.data.columns import parse_duration
from shortlist.data.files import read_interactions
from shortlist.data.interactions import Interactions
from shortlist.models.base import Recommender
from shortlist.spark.lists import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTSIDE_USERS = 20_000  # users outside the sample on whom cutoffs are fitted and scores measured
OUTSIDE_SHARE = 0.2  # at most this share of all users


@explain_keywords
def fit(
    df: "DataFrame",
    *,
    users: int = 1_000_000,
    models: Models | None = None,
    metric: str | None = None,
    gain: float | None = None,
    cost: float | None = None,
    cutoff: Cutoff | Literal["auto"] | None = "auto",
    filter_seen: bool | None = None,
    budget: str | int = "default",
    everyone: bool = False,
    horizon: str | timedelta | None = None,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    items: Any = None,
) -> Recommender:
    """Fit a model as `sl.fit` does, on a sample of users, for lists of everybody by `recommend`.

    Users are drawn by a hash of their ids, so that the same table gives the same sample on any cluster. They
    are fitted on the driver. 20,000 users outside the sample, at most a fifth of all, get lists from their
    histories: the cutoff is fitted anew on them, and the score of every other one, with a cutoff from the
    rest, says what lists for unknown users are worth. The chosen model is also fitted on half and on a
    quarter of the sample, to say what a larger sample would gain.

    Parameters
    ----------
    df
        Spark DataFrame of interactions, named as `read_interactions` accepts them.
    users
        Size of the sample. Its rows must fit on the driver: at most 100 million.
    models, metric, gain, cost, cutoff, filter_seen, budget, horizon, seed, items
        As in `sl.fit`.
    everyone
        Whether users to whom nothing happened within `horizon` count too, as with `users="everyone"` of
        `sl.fit`.
    progress
        Callable that receives one line of text per step, with the scores by size of the sample at the end. By
        default, they are shown on a terminal and in a notebook.

    Returns
    -------
    Recommender
        The fitted model, with its cutoff. It knows the histories of the sample only.

    Raises
    ------
    ConfigError
        If an argument is invalid.
    DataError
        If a column is missing, or the data is too small for validation.

    Examples
    --------
    >>> # model = sl.spark.fit(spark.read.parquet("orders"), users=1_000_000)
    >>> # sl.spark.recommend(spark.read.parquet("orders"), model).write.parquet("lists")
    """
    check_value(Count, users=users)
    data, outside, n_all = _draw(read_rows(df), users)
    model = fit_in_memory(
        data,
        models=models,
        metric=metric,
        gain=gain,
        cost=cost,
        cutoff=cutoff,
        filter_seen=filter_seen,
        budget=budget,
        users="everyone" if everyone else None,
        horizon=horizon,
        seed=seed,
        progress=progress,
        items=items,
    )
    with show_progress(progress) as display:
        display.line(f"sample: {data.active_users.size:,} of {n_all:,} users")
        period = None if horizon is None else parse_duration("horizon", horizon)
        holdout = hold_out(outside, seed, "last_basket", period, everyone)
        growth = SampleGrowth.measure(model, data, holdout, filter_seen=filter_seen, seed=seed, items=items)
        display.line(str(growth))
        return model.set_cutoff(growth.cutoff, model.selection_)


def _draw(rows: "DataFrame", n_users: int) -> tuple[Interactions, Interactions, int]:
    """(rows of the sample, rows of users outside it, number of all users)."""
    from pyspark.sql import functions as sf

    hashed = sf.shiftrightunsigned(sf.xxhash64(sf.col("user_id").cast("string")), 11)
    place = hashed / float(1 << 53)  # from 0 to 1, the same for all rows of a user
    n_all = rows.select("user_id").distinct().count()
    share = min(OUTSIDE_SHARE, OUTSIDE_USERS / max(n_all, 1))
    end = min(n_users / max(n_all, 1), 1 - share)
    outside = read_interactions(rows.where((place >= end) & (place < end + share)), training=False)
    return read_interactions(rows.where(place < end)), outside, n_all
