"""FixedN and Threshold: one number for all users, chosen on validation data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from shortlist.core.codec import MayBeInfinite, When
from shortlist.core.metrics import (
    Metric,
    Money,
    check_money,
    first_maximum,
    metrics_of_length,
    sums_at_n,
)
from shortlist.core.options import FITTED, Choices, Whole
from shortlist.core.task_options import Coverage
from shortlist.cutoff.base import (
    CutLists,
    Cutoff,
)
from shortlist.cutoff.calibration import CalibratedCutoff, Calibration
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists, probabilities_of
from shortlist.errors import ConfigError
from shortlist.kernels.retrieval import lower_to_running_minimum
from shortlist.kernels.rows import sum_rows
from shortlist.types import Doubles, Floats, Ints

TARGETS = ("f1", "ndcg")  # metrics whose expectation is computed
On = Literal["score", "probability"]
Target = Annotated[str, Choices(metrics_of_length)]


def user_utilities(labels: LabeledLists, lengths: Ints, target: str, money: Money | None = None) -> Doubles:
    """(n_labeled,) utility of lists of these lengths for labeled users; 0 for an empty list."""
    return Metric.registry[target].values(labels.sums(lengths)._replace(money=money))[labels.labeled]


def best_length(labels: LabeledLists, target: str, money: Money | None = None) -> int:
    """The N with the highest mean over all labeled users; the smaller on ties; 0 if all lose money."""
    longest = int(labels.lists.lengths.max(initial=1))
    truth = labels.relevant, labels.n_relevant
    numbers = np.flatnonzero(labels.labeled)
    sums = sums_at_n(labels.lists.indptr, *truth, longest, numbers=numbers, metrics=(target,), money=money)
    return first_maximum(sums[:, 0]) + 1 if sums.max() >= 0 else 0


def running_minimum(values: Doubles | Floats, lists: RankedLists) -> Doubles:
    """(n_candidates,) smallest value of the list so far: a list ends at the first value below a threshold."""
    lowest = values.astype(np.float64)
    lower_to_running_minimum(lists.indptr, lowest)
    return lowest


def compared_values(lists: RankedLists, on: str) -> Doubles:
    """(n_candidates,) what a threshold is compared with: scores, probabilities or negative ranks."""
    if on == "rank":
        return -lists.positions.astype(np.float64)
    return running_minimum(lists.scores if on == "score" else probabilities_of(lists), lists)


def count_above(values: Doubles, lists: RankedLists, threshold: float | Doubles) -> Ints:
    """(n_lists,) candidates above one threshold, or one per list; values never rise in a list."""
    thresholds = np.repeat(np.broadcast_to(threshold, len(lists)), lists.lengths)
    lengths: Ints = sum_rows(lists.indptr, values > thresholds).astype(np.int32)
    return lengths


def best_threshold(values: Doubles, labels: LabeledLists, target: str, money: Money | None = None) -> float:
    """The threshold with the highest mean utility; the strictest on ties. Values never rise in a list."""
    utility = labels.utilities(target, money)
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
    n_covered = int(np.ceil(coverage * n_lists - 1e-9))
    if n_covered <= 0:
        return np.inf
    if n_covered > best.size:
        return -np.inf
    ordered = np.sort(best)[::-1]
    lower = ordered[ordered < ordered[n_covered - 1]]
    return midpoint(float(ordered[n_covered - 1]), float(lower[0]) if lower.size else -np.inf)


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


def _check_target(target: str, gain: float | None, cost: float | None) -> None:
    """Raise ConfigError for money that a target lacks or does not use."""
    if check_money(target, gain, cost) is not None and not Metric.registry[target].needs_money:
        raise ConfigError(f"gain and cost belong to target='value', got target={target!r}; pass one of them.")


@dataclass(kw_only=True, eq=False, repr=False)
class FixedN(Cutoff):
    """Show every user the top N: the baseline for other cutoffs.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    N
        Length of every list. None chooses the N with the best mean `target` on validation data.
    target
        Metric to maximize: "f1", "ndcg" (against the ideal list of 20 items: a longer list is never worse),
        "ndcg_paper" (against the ideal list of the same length) or "value" (money; 0 items if all lose).
    gain, cost
        For `target="value"`: what a shown item earns if the user takes it, and costs if not.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> sl.cutoff.FixedN().fit(candidates, split.valid).N_
    6
    """

    N: Whole | None = None
    target: Target = "f1"
    gain: float | None = None
    cost: float | None = None

    rule = "All lists have the same length."
    reason = "top_n"
    empty_reason = "top_n"

    N_: Whole = FITTED

    def candidates_needed(self) -> int:
        return max(self.n_candidates, self.N or 0)

    def _check_together(self) -> None:
        _check_target(self.target, self.gain, self.cost)

    @property
    def is_ready(self) -> bool:
        """Whether the length was given or has been fitted."""
        return self.N is not None or super().is_ready

    def _summary(self) -> str:
        return f"N={self.N_}"

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        money = Money.of(self.gain, self.cost)
        self.N_ = best_length(labels, self.target, money) if self.N is None else self.N

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        N = self.need("N_") if self.N is None else self.N
        return CutLists(np.minimum(lists.lengths, N).astype(np.int32))


@dataclass(kw_only=True, eq=False, repr=False)
class ThresholdCutoff(CalibratedCutoff):
    """A cutoff at one threshold for all users, of scores or of probabilities."""

    on: str = "score"

    calibration_: Annotated[Calibration, When("uses_probabilities")] = FITTED

    is_base = True

    @property
    def uses_probabilities(self) -> bool:
        """Whether the threshold is one of probabilities, which the lists then carry."""
        return self.on == "probability"


@dataclass(kw_only=True, eq=False, repr=False)
class Threshold(ThresholdCutoff):
    """Show the items above one threshold; a list ends at the first candidate that is not above it.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities if `on="probability"`: a method of `Calibration` or a `Calibration`.
    on
        What is compared with the threshold: "score" or "probability".
    target
        Metric to maximize on validation data, averaged over all users; see `FixedN`.
    gain, cost
        For `target="value"`, as in `FixedN`.
    coverage
        Choose the strictest threshold that gives this share of users a list, instead of maximizing `target`.
    threshold
        The threshold itself. A threshold on scores needs no `fit`.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Threshold(coverage=0.5).fit(candidates, split.valid)
    >>> bool(cut.apply(candidates).cover_ratio >= 0.4)
    True
    """

    on: On = "score"
    target: Target = "f1"
    gain: float | None = None
    cost: float | None = None
    coverage: Coverage = None
    threshold: float | None = None

    rule = "The list stops at the first item below a threshold that is the same for all users."
    flags = ("coverage",)

    threshold_: Annotated[float, MayBeInfinite()] = FITTED

    def _check_together(self) -> None:
        _check_target(self.target, self.gain, self.cost)

    @property
    def is_ready(self) -> bool:
        """Whether the threshold on scores was given or has been fitted."""
        return (self.on == "score" and self.threshold is not None) or super().is_ready

    def _summary(self) -> str:
        return f"{self.on} > {self.threshold_:.6g}"

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        if self.on == "probability":
            self._calibrate(labels, history)
            labels = self._rank_labels(labels, history)
        lists, values = labels.lists, compared_values(labels.lists, self.on)
        if self.threshold is not None:
            self.threshold_ = float(self.threshold)
        elif self.coverage is not None:
            best = values[lists.indptr[:-1][lists.lengths > 0]]
            self.threshold_ = coverage_threshold(best, len(lists), self.coverage)
        else:
            money = Money.of(self.gain, self.cost)
            self.threshold_ = best_threshold(values, labels, self.target, money)

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        given = self.threshold if self.on == "score" else None
        threshold = self.need("threshold_") if given is None else float(given)
        return CutLists(count_above(compared_values(lists, self.on), lists, threshold))
