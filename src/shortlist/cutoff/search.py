"""Exact search for one number on validation data: every value that changes any list is tried."""

from collections.abc import Sequence

import numpy as np

from shortlist.cutoff.candidates import Labels
from shortlist.data.ranked_lists import RankedLists
from shortlist.kernels.topk import lower_to_running_minimum
from shortlist.types import Doubles, Floats, Ints

TARGETS = ("f1", "ndcg")
TIE = 1e-12  # utilities that differ by less are equal up to the order of summation


def prefix_utilities(labels: Labels, target: str) -> Doubles:
    """(n_candidates,) utility of the list that ends with this candidate; NaN for unlabeled users."""
    return labels.f1() if target == "f1" else labels.ndcg()


def user_utilities(labels: Labels, lengths: Ints, target: str) -> Doubles:
    """(n_labeled,) utility of lists of these lengths for labeled users; 0 for an empty list."""
    ends = labels.lists.indptr[:-1] + lengths - 1
    shown = labels.labeled & (lengths > 0)
    utility = np.zeros(len(labels.lists))
    utility[shown] = prefix_utilities(labels, target)[ends[shown]]
    return utility[labels.labeled]


def best_length(labels: Labels, target: str) -> int:
    """The N with the highest mean over all labeled users; the smaller on ties."""
    utility, position = prefix_utilities(labels, target), labels.lists.positions
    longest = int(np.diff(labels.lists.indptr).max(initial=1))
    total = np.bincount(position[labels.rows], utility[labels.rows], minlength=max(longest, 1))
    last = labels.lists.indptr[1:][labels.labeled] - 1
    last = last[np.diff(labels.lists.indptr)[labels.labeled] > 0]
    # a list with fewer than N candidates counts whole
    ended = np.bincount(position[last] + 1, utility[last], minlength=total.size + 1)[: total.size]
    return first_maximum(np.asarray(total + np.cumsum(ended), np.float64)) + 1


def running_minimum(values: Doubles | Floats, lists: RankedLists) -> Doubles:
    """(n_candidates,) smallest value of the list so far: a list ends at the first value below a threshold."""
    lowest = values.astype(np.float64)
    lower_to_running_minimum(lists.indptr, lowest)
    return lowest


def count_above(values: Doubles, lists: RankedLists, threshold: float | Doubles) -> Ints:
    """(n_lists,) candidates above one threshold, or one per list; values never rise in a list."""
    thresholds = np.repeat(np.broadcast_to(threshold, len(lists)), np.diff(lists.indptr))
    passed = np.concatenate([[0], np.cumsum(values > thresholds)])
    return np.diff(passed[lists.indptr]).astype(np.int32)


def best_threshold(values: Doubles, labels: Labels, target: str) -> float:
    """The threshold with the highest mean utility; the strictest on ties. Values never rise in a list."""
    utility = prefix_utilities(labels, target)
    before = np.concatenate([[0.0], utility[:-1]])
    change = utility - np.where(labels.lists.positions > 0, before, 0.0)
    order = np.argsort(-values[labels.rows], kind="stable")
    ordered = values[labels.rows][order]
    total = np.cumsum(change[labels.rows][order])
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: ordered.size])
    best = first_maximum(np.concatenate([[0.0], total[ends]]))
    if best == 0:
        return np.inf
    end = int(ends[best - 1])
    return midpoint(float(ordered[end]), float(ordered[end + 1]) if end + 1 < ordered.size else -np.inf)


def coverage_threshold(best: Doubles, n_lists: int, coverage: float) -> float:
    """The strictest threshold that keeps `coverage` of all lists non-empty; best: top value of each list."""
    wanted = int(np.ceil(coverage * n_lists - 1e-9))
    if wanted <= 0:
        return np.inf
    if wanted > best.size:
        return -np.inf
    ordered = np.sort(best)[::-1]
    lower = ordered[ordered < ordered[wanted - 1]]
    return midpoint(float(ordered[wanted - 1]), float(lower[0]) if lower.size else -np.inf)


def midpoint(upper: float, lower: float) -> float:
    """A threshold that `upper` exceeds and `lower` does not; halfway if there is a number between them."""
    middle = 0.5 * (upper + lower)
    return middle if np.isfinite(middle) and lower <= middle < upper else lower


def choose_by_standard_error(utilities: Sequence[Doubles]) -> int:
    """Index of the first option, or of the best one that beats it by more than one standard error.

    Each option is an array (n_users,) of utilities of the same users.
    """
    gains = [utility - utilities[0] for utility in utilities]
    clear = [gain.mean() if gain.mean() > gain.std() / np.sqrt(gain.size) else 0.0 for gain in gains]
    return first_maximum(np.array(clear))


def first_maximum(values: Doubles) -> int:
    """Index of the first value that equals the largest up to rounding."""
    return int(np.argmax(values >= values.max() - TIE * max(values.size, 1)))
