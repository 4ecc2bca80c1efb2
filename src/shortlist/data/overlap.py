"""Detect truth that a model was trained on: a cutoff or a metric from such rows promises too much."""

from collections.abc import Iterable

import numpy as np

from shortlist.core.calls import warn
from shortlist.core.ragged import take_rows
from shortlist.data.id_map import UNKNOWN
from shortlist.data.interactions import Interactions

MAX_ROWS = 2_000  # rows of the truth that are looked up
MIN_SHARE = 0.01  # a smaller share may be chance, such as two orders of an item on one day
MIN_ROWS = 20  # without times, so few rows may be chance


def warn_if_trained_on(
    histories: Iterable[Interactions | None], truth: Interactions, consequence: str
) -> None:
    """Issue a DataWarning if `truth` has rows that one of the histories contains."""
    share = max((overlap_share(one, truth) for one in histories if one is not None), default=0.0)
    if share > MIN_SHARE:
        warn(
            f"{share:.0%} of the rows of truth are also in the data that the model was trained on, so "
            f"{consequence}; fit the model without these rows, such as on split.train."
        )


def overlap_share(trained: Interactions, truth: Interactions) -> float:
    """The share of the rows of `truth` that `trained` contains.

    Rows are the same if user, item and time are; an item that was bought again later is another row. Without
    times, a repeat looks like the same row. Then only a truth that `trained` contains as a whole
    counts.
    """
    rows = np.unique(np.linspace(0, truth.n_rows - 1, min(truth.n_rows, MAX_ROWS)).astype(np.int64))
    if not rows.size or trained.users.values.dtype.is_integer() != truth.users.values.dtype.is_integer():
        return 0.0
    user = trained.users.align(truth.users)[truth.user[rows]]
    item = trained.items.align(truth.items)[truth.item[rows]]
    known = np.flatnonzero((user != UNKNOWN) & (item != UNKNOWN))
    indptr, at = take_rows(trained.indptr, user[known].astype(np.int64))
    number = np.repeat(np.arange(known.size), np.diff(indptr))
    same = trained.item[at] == item[known][number]
    timed = trained.time is not None and truth.time is not None
    if trained.time is not None and truth.time is not None:
        same &= trained.time[at] == truth.time[rows][known][number]
    share = np.unique(number[same]).size / rows.size
    return share if timed or (share == 1 and rows.size >= MIN_ROWS) else 0.0
