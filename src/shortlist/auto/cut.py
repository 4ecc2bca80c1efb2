"""`cut`: candidates of any ranker and what happened in, lists of the right length and their gain out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shortlist.auto.cutoff_choice import (
    FIXED,
    SelectionData,
    check_metric,
    choose_without_each_fold,
    compare_cutoffs,
    confirm,
    default_cutoffs,
)
from shortlist.core.metrics import Metric
from shortlist.core.options import Count, check_value
from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.candidates import is_table, top_candidates
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates, read_outcomes
from shortlist.errors import DataError
from shortlist.evaluation import Comparison, Report, compare, evaluate, fixed_n_curve
from shortlist.types import Ints

N_FOLDS = 5
FEW_USERS = 2_000  # up to here, and without a history, the choice itself uses five folds, else two
MIN_USERS = 20
MAX_USERS = 20_000  # that cross-validation uses; the selected cutoff is fitted on all
MAX_CANDIDATES = 300  # per user, unless the caller says otherwise


@dataclass(frozen=True, eq=False)
class CutResult:
    """A fitted cutoff, what it gains on users it was not fitted on, and the lists; the result of `cut`.

    Parameters
    ----------
    name
        Name of the selected cutoff; "fixed N" if no other one was better.
    cutoff
        The selected cutoff, fitted on all users.
    metric
        Metric that was maximized.
    scores
        Mean metric of each cutoff that was tried, in the cross-validation that chose one. The chosen one
        scores a little higher here than in `report`, because it was chosen by these scores.
    candidates
        The candidates of the users who were cross-validated, with the probabilities that the cutoffs of
        the other folds gave them, if they use probabilities.
    truth
        What these users did.
    tested
        Their lists, each ended by a cutoff that was selected and fitted on other users.
    fixed
        Their lists, each ended by the fixed N that was best for other users.
    fixed_lengths
        These N, ascending: the folds of the cross-validation may have different ones.
    lists
        The lists of `new`; None without `new`.
    notes
        What was assumed.
    """

    name: str
    cutoff: Cutoff
    metric: str
    scores: dict[str, float]
    candidates: RankedLists
    truth: Interactions
    tested: RankedLists
    fixed: RankedLists
    fixed_lengths: tuple[int, ...]
    lists: RankedLists | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def comparison(self) -> Comparison:
        """Lists of this cutoff against the best fixed N, on users they were not fitted on, with tests."""
        max_items = _longest(self.candidates)
        kinds = {"best fixed N": self.fixed, "cutoff": self.tested}
        reports = {name: evaluate(lists, self.truth, max_items=max_items) for name, lists in kinds.items()}
        return compare(reports, metrics=(self.metric,), max_items=max_items)

    @property
    def report(self) -> Report:
        """Evaluation of the cross-validated lists."""
        return self.comparison.reports["cutoff"][0]

    @property
    def gain(self) -> float:
        """Change of the mean metric over the best fixed N, as a fraction; NaN if the fixed N scores 0."""
        return self._relative(self.comparison.results["cutoff", self.metric].difference)

    @property
    def gain_interval(self) -> tuple[float, float]:
        """95% interval of `gain`, by a paired bootstrap over users."""
        test = self.comparison.results["cutoff", self.metric]
        return self._relative(test.low), self._relative(test.high)

    def _relative(self, difference: float) -> float:
        fixed = self.comparison.reports["best fixed N"][0].mean(self.metric)
        return difference / fixed if fixed else float("nan")

    @cached_property
    def curve(self) -> pl.DataFrame:
        """Mean metrics of every fixed N over the same users."""
        longest = _longest(self.candidates)
        return fixed_n_curve(self.candidates, self.truth, range(1, longest + 1), max_items=longest)

    @property
    def calibration(self) -> pl.DataFrame | None:
        """Predicted and observed rates of the shown items; None if the cutoff uses no probabilities."""
        return None if self.report.calibration_error is None else self.report.calibration

    def save(self, path: str | Path) -> Path:
        """Save the fitted cutoff, for `sl.cutoff.Cutoff.load`, `shortlist cut --cutoff` and the service.

        Parameters
        ----------
        path
            The file to write.

        Returns
        -------
        pathlib.Path
            The path written.
        """
        return self.cutoff.save(path)

    def __str__(self) -> str:
        title = Metric.registry[self.metric].title
        low, high = self.gain_interval
        lengths = self.tested.lengths
        lines = [
            f"Stopping rule: {self.name}",
            f"{title} {self.report.mean(self.metric):.4f} on users it was not fitted on, {self.gain:+.1%} "
            f"over the best fixed N (95% interval {low:+.1%} to {high:+.1%}; {self.report.n_users:,} users; "
            f"N = {' or '.join(map(str, self.fixed_lengths))})",
            f"List lengths: {lengths.min()} to {lengths.max()}, median {np.median(lengths):.0f}",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"CutResult({self.name}; {self.gain:+.1%} over the best fixed N)"


def cut(
    candidates: Any,
    truth: Any,
    new: Any = None,
    *,
    history: Any = None,
    new_history: Any = None,
    metric: str = "f1",
    n_candidates: int | None = None,
    cutoffs: Mapping[str, Cutoff] | None = None,
) -> CutResult:
    """Choose where ranked lists end, for the candidates of any ranker or search engine.

    Several cutoffs are compared on users they were not fitted on. The fixed N is kept unless another one is
    better by more than one standard error. The gain is then measured by five-fold cross-validation over
    users: in every fold the whole choice is repeated without the users of the fold. The fixed N is kept
    without a gain there, too.

    Parameters
    ----------
    candidates
        Ranked candidates of at least 20 users (or queries) whose outcomes are known: a polars, pandas or
        Arrow table with user, item and score or rank, named as here, in RecTools, RePlay, LensKit, ranx or
        TREC; `RankedLists`; a file; `{query: {item: score}}`; answers of Elasticsearch by query; an array, a
        SciPy matrix or a function `scores(users)`, with the ids of `history` or `truth`.
    truth
        What happened after the ranking: interactions or relevance judgments, as a table, `Interactions`, a
        file, or `{query: {item: relevance}}`. Judgments of 0 or below are not relevant.
    new
        Candidates to cut, in any of the same forms.
    history
        Interactions known when `candidates` were ranked. They improve probabilities and basket sizes.
    new_history
        Interactions known when `new` was ranked; `history` if left out.
    metric
        Metric to maximize: "f1" or "ndcg".
    n_candidates
        Number of top candidates considered per user; by default the longest list, at most 300.
    cutoffs
        Unfitted cutoffs by name, instead of the default ones; see `choose_cutoff`.

    Returns
    -------
    CutResult
        The fitted cutoff, its gain with an interval, and the lists of `new`.

    Raises
    ------
    DataError
        If the tables cannot be read or fewer than 20 users have both candidates and truth.
    ConfigError
        If an option is invalid.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> table = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False).to_pandas()
    >>> result = sl.cut(table[["user_id", "item_id", "score"]], split.valid, new=table)
    >>> result.gain > 0, len(set(result.lists.lengths.tolist())) > 1
    (True, True)
    """
    check_metric(metric)
    truth, history = read_outcomes(truth), None if history is None else read_outcomes(history)
    lists = _read(candidates, truth if history is None else history)
    n, notes = _count_candidates(lists, n_candidates)
    if cutoffs is None:
        cutoffs = default_cutoffs(
            n,
            probabilities=lists.probabilities is not None,
            metric=metric,
            history=history is not None,
            shape=True,
        )
    labeled = _find_labeled(lists, truth)
    sampled = lists.take(
        labeled[np.linspace(0, labeled.size - 1, min(labeled.size, MAX_USERS)).astype(np.int64)]
    )
    if len(sampled) < labeled.size:
        notes += (f"{len(sampled):,} of {labeled.size:,} users were used to choose and to test the cutoff",)
    data = SelectionData(sampled, truth, history, metric)
    n_inner = N_FOLDS if len(sampled) <= FEW_USERS and history is None else 2
    default = FIXED if FIXED in cutoffs else None
    choice = compare_cutoffs(data, cutoffs, n_inner, default)
    tested = choose_without_each_fold(data, cutoffs, N_FOLDS, n_inner, default)
    if choice.name != FIXED and FIXED in cutoffs:
        longest = _longest(tested.candidates)
        values = (data.values(part, longest) for part in (tested.chosen, tested.fixed))
        choice = confirm(choice, cutoffs[FIXED], *values)
    if choice.name == FIXED:
        notes += (choice.reason,)
        tested = tested._replace(candidates=sampled, chosen=tested.fixed, is_reordered=False)
    fitted = choice.cutoff.fit(sampled if len(sampled) == labeled.size else lists, truth, history=history)
    if tested.is_reordered:
        notes += (
            "lists are in the order of their probabilities, not of the scores; this is part of the gain",
        )
    ended = None
    if new is not None:
        later = history if new_history is None else read_outcomes(new_history)
        ended = fitted.apply(_read(new, truth if later is None else later), history=later)
    return CutResult(
        name=choice.name,
        cutoff=fitted,
        metric=metric,
        scores=choice.scores,
        candidates=tested.candidates,
        truth=truth.where(np.isin(truth.user, truth.users.align(sampled.users))),
        tested=tested.chosen,
        fixed=tested.fixed,
        fixed_lengths=tested.fixed_lengths,
        lists=ended,
        notes=notes,
    )


def _read(candidates: Any, ids: Interactions) -> RankedLists:
    """Candidates of any kind; scores without ids have those of the interactions."""
    if isinstance(candidates, str) or is_table(candidates):
        return read_candidates(candidates)
    return top_candidates(candidates, ids=ids, n_candidates=MAX_CANDIDATES)


def _longest(lists: RankedLists) -> int:
    """Length of the longest list, at least 1."""
    return max(int(lists.lengths.max(initial=1)), 1)


def _count_candidates(lists: RankedLists, n_candidates: int | None) -> tuple[int, tuple[str, ...]]:
    """How many candidates of a user are considered, and a note if some are left out."""
    longest = _longest(lists)
    if n_candidates is not None:
        check_value(Count, n_candidates=n_candidates)
        return n_candidates, ()
    if longest <= MAX_CANDIDATES:
        return longest, ()
    return MAX_CANDIDATES, (f"the first {MAX_CANDIDATES} of up to {longest:,} candidates are considered",)


def _find_labeled(lists: RankedLists, truth: Interactions) -> Ints:
    """Numbers of the lists whose user has truth, by user id: the order of the rows changes nothing."""
    if len(lists.users) and truth.n_users:
        truth.users.check_type(lists.users.values[0], "truth: user id")
    row = truth.users.align(lists.users)
    n_relevant = np.append(without_negative(truth).item_sets.lengths, 0)
    numbers = np.flatnonzero((n_relevant[row] > 0) & (lists.lengths > 0))
    if numbers.size < MIN_USERS:
        raise DataError(
            f"cut needs candidates and truth of at least {MIN_USERS} users, got {numbers.size} of "
            f"{len(lists):,} with candidates; check that the ids agree, or use sl.cutoff.FixedN."
        )
    order = lists.users.values.gather(numbers).arg_sort().to_numpy()
    return np.asarray(numbers[order], np.int32)
