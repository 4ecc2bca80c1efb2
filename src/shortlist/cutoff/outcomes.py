"""What happened to shown lists, one number per list: precision, empty or not, predicted against observed."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from shortlist.cutoff.candidates import label_lists
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.data.reasons import REASON_CODE
from shortlist.errors import DataError
from shortlist.types import Bools, Doubles

PROMISES = ("precision", "empty", "calibration")
NOT_DECIDED = ("unknown_user", "no_candidates")  # the cutoff had nothing to decide


def list_values(
    lists: RankedLists,
    truth: Interactions | Any,
    users: Iterable[Any] | None,
    promise: str,
    over: str = "covered",
) -> Doubles:
    """(n,) one value per list that counts, in the order of the lists.

    precision: hits / length of users with truth; with over="users" an empty list is 1, else it is left out.
    empty: 1 for an empty list, 0 for another; users for whom nothing could be recommended are left out.
    calibration: observed minus predicted rate of the shown items.
    """
    lists = without_exploration(lists)
    lengths = np.diff(lists.indptr)
    covered = (lengths > 0) & ~_has_reason(lists, ("fallback",))
    if promise == "empty":
        return (~covered)[~_has_reason(lists, NOT_DECIDED)].astype(np.float64)
    if truth is None:
        raise DataError(f"{promise} needs truth, got None; pass what the users interacted with.")
    labels = label_lists(lists, Interactions.of(truth), users)
    safe = np.maximum(lengths, 1)
    precision = np.where(covered, labels.n_retrieved / safe, 1.0)
    if promise == "precision":
        return precision[labels.labeled & (covered if over == "covered" else True)]
    if lists.probabilities is None:
        raise DataError("calibration needs lists with probabilities, got none; calibrate the scores first.")
    total = np.concatenate([[0.0], np.cumsum(lists.probabilities)])
    predicted = np.diff(total[lists.indptr]) / safe
    known = labels.labeled & covered & ~np.isnan(predicted)
    return (precision - predicted)[known]


def without_exploration(lists: RankedLists) -> RankedLists:
    """The lists without the items that were shown for exploration."""
    if lists.propensities is None:
        return lists
    regular = lists.propensities >= 1
    total = np.concatenate([[0], np.cumsum(regular)])
    return lists.head(np.diff(total[lists.indptr]))


def _has_reason(lists: RankedLists, reasons: Iterable[str]) -> Bools:
    """(n_lists,) whether a list ends for one of these reasons."""
    if lists.reason is None:
        return np.zeros(len(lists), np.bool_)
    return np.isin(lists.reason, [REASON_CODE[one] for one in reasons])
