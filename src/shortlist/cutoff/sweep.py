"""Choosing one number on validation, exactly: every value that changes any list is tried."""

from collections.abc import Sequence

import numpy as np

from shortlist.cutoff.labels import Labels
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.kernels.topk import lower_to_running_minimum
from shortlist.types import Doubles, Floats, Ints

TARGETS = ("f1", "ndcg")
TIE = 1e-12  # utilities closer than this differ only by the order in which they were added


def utilities(known: Labels, target: str) -> Doubles:
    """(n_candidates,) what the list is worth if it ends with this candidate; NaN where not labelled."""
    if target not in TARGETS:
        raise ConfigError(f"target must be one of {', '.join(TARGETS)}, got {target!r}; choose one.")
    return known.f1() if target == "f1" else known.ndcg()


def user_utilities(known: Labels, lengths: Ints, target: str) -> Doubles:
    """(n_labelled,) what lists of these lengths are worth to labelled users; an empty list is worth 0."""
    ends = known.lists.indptr[:-1] + lengths - 1
    shown = known.labelled & (lengths > 0)
    worth = np.zeros(len(known.lists))
    worth[shown] = utilities(known, target)[ends[shown]]
    return worth[known.labelled]


def mean_utility(known: Labels, lengths: Ints, target: str) -> float:
    """Mean over all labelled users."""
    return float(user_utilities(known, lengths, target).sum() / max(known.labelled.sum(), 1))


def best_length(known: Labels, target: str) -> int:
    """The N that is best on average over all labelled users; the smaller of equals."""
    value, place = utilities(known, target), known.lists.positions
    width = int(np.diff(known.lists.indptr).max(initial=1))
    last = known.lists.indptr[1:][known.labelled] - 1
    total = np.bincount(place[known.rows], value[known.rows], minlength=max(width, 1))
    last = last[np.diff(known.lists.indptr)[known.labelled] > 0]
    # a user with fewer candidates than N keeps the utility of the whole head
    ended = np.bincount(place[last] + 1, value[last], minlength=total.size + 1)[: total.size]
    return first_best(np.asarray(total + np.cumsum(ended), np.float64)) + 1


def falling(values: Doubles | Floats, lists: RankedLists) -> Doubles:
    """(n_candidates,) the smallest value so far: a list ends where it first fails to exceed a threshold."""
    low = values.astype(np.float64)
    lower_to_running_minimum(lists.indptr, low)
    return low


def best_threshold(values: Doubles, known: Labels, target: str) -> float:
    """The best mean utility of {value > threshold}, values falling; the strictest of equals."""
    value = utilities(known, target)
    before = np.concatenate([[0.0], value[:-1]])
    change = value - np.where(known.lists.positions > 0, before, 0.0)
    order = np.argsort(-values[known.rows], kind="stable")
    ordered = values[known.rows][order]
    total = np.cumsum(change[known.rows][order])
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: ordered.size])
    best = first_best(np.concatenate([[0.0], total[ends]]))
    if best == 0:
        return np.inf
    end = int(ends[best - 1])
    return between(float(ordered[end]), float(ordered[end + 1]) if end + 1 < ordered.size else -np.inf)


def coverage_threshold(best: Doubles, n_lists: int, coverage: float) -> float:
    """The strictest that leaves `coverage` of all lists non-empty; best: (n_non_empty,) top values."""
    wanted = int(np.ceil(coverage * n_lists - 1e-9))
    if wanted <= 0:
        return np.inf
    if wanted > best.size:
        return -np.inf
    ordered = np.sort(best)[::-1]
    lower = ordered[ordered < ordered[wanted - 1]]
    return between(float(ordered[wanted - 1]), float(lower[0]) if lower.size else -np.inf)


def between(upper: float, lower: float) -> float:
    """A threshold that lets `upper` pass and `lower` not: halfway where there is a halfway."""
    middle = 0.5 * (upper + lower)
    return middle if np.isfinite(middle) and lower <= middle < upper else lower


def clearly_best(worths: Sequence[Doubles]) -> int:
    """Position of the first, or of the best among those worth more by over a standard error; by user each."""
    gains = [worth - worths[0] for worth in worths]
    clear = [gain.mean() if gain.mean() > gain.std() / np.sqrt(gain.size) else 0.0 for gain in gains]
    return first_best(np.array(clear))


def first_best(values: Doubles) -> int:
    """Position of the first value that equals the largest up to rounding."""
    return int(np.argmax(values >= values.max() - TIE * max(values.size, 1)))
