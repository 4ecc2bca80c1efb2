"""`cut`: candidates of any ranker and what happened in, lists of the right length and their gain out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shortlist.auto.cutoff_choice import (
    FIXED,
    HeldOutLists,
    SelectedCutoff,
    SelectionData,
    choose_without_each_fold,
    compare_cutoffs,
    confirm,
    default_cutoffs,
    resolve_metric,
)
from shortlist.core.metrics import Metric, Money
from shortlist.core.options import take_options
from shortlist.core.task_options import CutOptions, WhoCounts
from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.candidates import is_table, top_candidates
from shortlist.cutoff.expected import ExpectedValue
from shortlist.cutoff.prompt import PromptCutoff
from shortlist.cutoff.threshold import FixedN
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.labeled import label_lists
from shortlist.data.lists import RankedLists, collect_table, name_columns
from shortlist.data.rankings import read_candidate_table, read_candidates, read_judgments, read_outcomes
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import Comparison, PairedTest, Report, compare, evaluate, fixed_n_curve
from shortlist.types import Ints

N_FOLDS = 5
FEW_USERS = 2_000  # up to here, and without a history, the choice itself uses five folds, else two
MIN_USERS = 20
MAX_USERS = 20_000  # that cross-validation uses; the selected cutoff is fitted on all
MAX_CANDIDATES = 300  # per user, unless the caller says otherwise
MONOTONE = ("platt", "isotonic")  # calibrations that keep the order of the scores


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
    money
        What a shown item earns and costs, if that was given.
    everyone
        Whether users without any relevant item count.
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
    money: Money | None = None
    everyone: bool = False
    lists: RankedLists | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def comparison(self) -> Comparison:
        """Lists of this cutoff against the best fixed N, on users they were not fitted on, with tests."""
        return self._compare({"best fixed N": self.fixed, "cutoff": self.tested})

    def _compare(self, kinds: dict[str, RankedLists]) -> Comparison:
        max_items = _longest(self.candidates)
        users = self.candidates.users.values if self.everyone else None
        reports = {
            name: replace(evaluate(lists, self.truth, users=users, max_items=max_items), money=self.money)
            for name, lists in kinds.items()
        }
        return compare(reports, metrics=(self.metric,), max_items=max_items)

    @property
    def report(self) -> Report:
        """Evaluation of the cross-validated lists."""
        return self.comparison.reports["cutoff"][0]

    @property
    def gain(self) -> float:
        """Change of the mean metric over the best fixed N, as a fraction; NaN unless that scores above 0."""
        return self._relative(self.comparison.results["cutoff", self.metric].difference)

    @property
    def gain_interval(self) -> tuple[float, float]:
        """95% interval of `gain`, by a paired bootstrap over users."""
        test = self.comparison.results["cutoff", self.metric]
        return self._relative(test.low), self._relative(test.high)

    def _relative(self, difference: float) -> float:
        fixed = self.comparison.reports["best fixed N"][0].mean(self.metric)
        return difference / fixed if fixed > 0 else float("nan")

    @cached_property
    def curve(self) -> pl.DataFrame:
        """Mean metrics of every fixed N over the same users."""
        longest = _longest(self.candidates)
        users = self.candidates.users.values if self.everyone else None
        money = {} if self.money is None else {"gain": self.money.gain, "cost": self.money.cost}
        lengths = range(1, longest + 1)
        return fixed_n_curve(self.candidates, self.truth, lengths, max_items=longest, users=users, **money)

    @cached_property
    def order_effect(self) -> PairedTest:
        """What the order of the lists alone changes: the same lengths in the order of the ranker."""
        by_score = self.candidates.head(self.tested.lengths)
        return self._compare({"by score": by_score, "shown": self.tested}).results["shown", self.metric]

    @cached_property
    def abstention(self) -> "Abstention":
        """How often lists were left empty, with and without a relevant candidate."""
        has_relevant = label_lists(self.candidates, self.truth).n_retrieved > 0
        is_empty = self.tested.lengths == 0
        return Abstention(
            n_empty=int(is_empty.sum()),
            n_without=int((~has_relevant).sum()),
            n_right=int((is_empty & ~has_relevant).sum()),
            n_lists=is_empty.size,
        )

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
        lengths = self.tested.lengths
        lines = [
            f"Cutoff: {self.name}",
            self._describe_gain(),
            f"List lengths: {lengths.min()} to {lengths.max()}, median {np.median(lengths):.0f}",
        ]
        if isinstance(self.cutoff, PromptCutoff) and self.cutoff.min_relevant:
            lines.append(str(self.abstention))
        if self.tested.sizes is not None and self.fixed.sizes is not None:
            totals = [float(sizes.sum()) / lengths.size for sizes in (self.tested.sizes, self.fixed.sizes)]
            lines.append("Mean size of a list: {:,.0f}, of the best fixed N {:,.0f}".format(*totals))
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _describe_gain(self) -> str:
        """The metric of users whom the cutoff has not seen, and its difference to the best fixed N."""
        metric, test = Metric.registry[self.metric], self.comparison.results["cutoff", self.metric]
        score = f"{metric.title[0].upper()}{metric.title[1:]} {metric.text(self.report.mean(self.metric))}"
        if metric.needs_money:
            gain, low, high = (metric.text(value, "+") for value in (test.difference, test.low, test.high))
        else:
            gain, low, high = (f"{value:+.1%}" for value in (self.gain, *self.gain_interval))
        return (
            f"{score} on users it was not fitted on, {gain} over the best fixed N (95% interval {low} to "
            f"{high}; {self.report.n_users:,} users; N = {' or '.join(map(str, self.fixed_lengths))})"
        )

    def __repr__(self) -> str:
        return f"CutResult({self.name}; {self.gain:+.1%} over the best fixed N)"


@dataclass(frozen=True)
class Abstention:
    """How often lists were left empty, on users the cutoff was not fitted on.

    Parameters
    ----------
    n_lists
        Number of lists.
    n_without
        Lists without a relevant candidate.
    n_empty
        Lists that were left empty.
    n_right
        Empty lists that had no relevant candidate.
    """

    n_lists: int
    n_without: int
    n_empty: int
    n_right: int

    @property
    def precision(self) -> float:
        """Fraction of the empty lists that had no relevant candidate; NaN without empty lists."""
        return self.n_right / self.n_empty if self.n_empty else float("nan")

    @property
    def recall(self) -> float:
        """Fraction of the lists without a relevant candidate that were left empty; NaN if all have one."""
        return self.n_right / self.n_without if self.n_without else float("nan")

    @property
    def false_rate(self) -> float:
        """Fraction of the lists with a relevant candidate that were left empty."""
        return (self.n_empty - self.n_right) / max(self.n_lists - self.n_without, 1)

    def __str__(self) -> str:
        rates = (
            f"Left empty: {self.n_right:,} of {self.n_without:,} lists without a relevant candidate"
            f"{f' ({self.recall:.0%})' if self.n_without else ''} and {self.n_empty - self.n_right:,} of "
            f"{self.n_lists - self.n_without:,} others ({self.false_rate:.1%})"
        )
        return f"{rates}; {self.precision:.0%} of the empty lists are right" if self.n_empty else rates


@take_options(CutOptions)
def cut(
    candidates: Any,
    truth: Any,
    new: Any = None,
    *,
    history: Any = None,
    new_history: Any = None,
    options: CutOptions,
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
        file, or `{query: {item: relevance}}`. Judgments of 0 or below, and items without any, are not
        relevant.
    new
        Candidates to cut, in any of the same forms.
    history
        Interactions known when `candidates` were ranked. They improve probabilities and basket sizes.
    new_history
        Interactions known when `new` was ranked; `history` if left out.
    metric
        Metric to maximize: "f1", "ndcg" or "value". By default "value" if gain and cost are given, or if all
        `cutoffs` are `ExpectedValue`, else "f1".
    gain, cost
        What a shown item earns if the user takes it, and costs if not, in one unit.
    users
        None: users with at least one relevant item in the truth count. "everyone": all users with candidates
        count. Choose this if lists go to users who may take nothing, or if queries may have no answer.
    keep_order
        Compare only cutoffs that leave the order of the ranker. Otherwise lists are in the order of their
        probabilities, which may differ.
    sizes
        Size of each item, such as its tokens: a column of the candidates, or a mapping from item id.
    max_size
        Limit of the sizes of the items of a list; see `cutoff.PromptCutoff`.
    min_relevant
        Lists in which any candidate is relevant with a lower probability stay empty; see
        `cutoff.PromptCutoff`. It needs `users="everyone"`.
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
    >>> lists = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> table = lists.to_frame().to_pandas()
    >>> result = sl.cut(table[["user_id", "item_id", "score"]], split.valid, new=table)
    >>> result.gain > 0, len(set(result.lists.lengths.tolist())) > 1
    (True, True)
    """
    _check_together(options)
    (truth, assessed), history = read_judgments(truth), None if history is None else read_outcomes(history)
    lists = _read(candidates, truth if history is None else history, options.sizes)
    metric, money = _check_aim(options)
    n, notes = _count_candidates(lists, options.n_candidates)
    cutoffs = _list_cutoffs(options, n, lists, metric, money, history is not None)
    counted = _find_labeled(lists, truth, options.users)
    notes += _describe_judgments(lists.head(n), counted, truth, assessed)
    used = counted[np.linspace(0, counted.size - 1, min(counted.size, MAX_USERS)).astype(np.int64)]
    sampled = lists.take(used)
    if used.size < counted.size:
        notes += (f"{used.size:,} of {counted.size:,} users were used to choose and to test the cutoff",)
    everyone = options.users == "everyone"
    data = SelectionData(sampled, truth, history, metric, money, sampled.users.values if everyone else None)
    choice, tested = _choose(data, cutoffs, n)
    if choice.name == FIXED:
        notes += (choice.reason,)
    learned_from = sampled if used.size == counted.size else lists
    fitted = choice.cutoff.fit(
        learned_from, truth, history=history, users=lists.users.values if everyone else None
    )
    result = CutResult(
        name=choice.name,
        cutoff=fitted,
        metric=metric,
        scores=choice.scores,
        candidates=tested.candidates,
        truth=truth.where(np.isin(truth.user, truth.users.align(sampled.users))),
        tested=tested.chosen,
        fixed=tested.fixed,
        fixed_lengths=tested.fixed_lengths,
        money=money,
        everyone=everyone,
    )
    ranked = fitted.with_probabilities(result.candidates, history=history)
    if (ranked.items != result.candidates.items).any():
        notes += (_describe_order(result),)
    if new is None:
        return replace(result, notes=notes)
    later = history if new_history is None else read_outcomes(new_history)
    ended = fitted.apply(_read(new, truth if later is None else later, options.sizes), history=later)
    return replace(result, lists=ended, notes=notes)


def _choose(
    data: SelectionData, cutoffs: Mapping[str, Cutoff], n_candidates: int
) -> tuple[SelectedCutoff, HeldOutLists]:
    """The cutoff, not fitted, and the lists of users who took no part in choosing it.

    The fixed N is kept unless the choice beats it on these users.
    """
    n_inner = N_FOLDS if len(data.lists) <= FEW_USERS and data.history is None else 2
    default = FIXED if FIXED in cutoffs else None
    choice = compare_cutoffs(data, cutoffs, n_inner, default)
    tested = choose_without_each_fold(data, cutoffs, N_FOLDS, n_inner, default)
    if choice.name != FIXED and FIXED in cutoffs:
        longest = _longest(tested.candidates)
        values = (data.values(part, longest) for part in (tested.chosen, tested.fixed))
        choice = confirm(choice, cutoffs[FIXED], *values)
    if choice.name == FIXED:
        tested = tested._replace(candidates=data.lists.head(n_candidates), chosen=tested.fixed)
    return choice, tested


def _check_together(options: CutOptions) -> None:
    """Raise ConfigError for options that do not go together."""
    if options.sizes is not None and options.max_size is None:
        raise ConfigError(
            "sizes need a limit, got no max_size; pass both, such as sizes='tokens', max_size=4000.",
            parameter="max_size",
        )
    if options.min_relevant and options.users != "everyone":
        raise ConfigError(
            'min_relevant needs users="everyone", got None; otherwise queries without an answer '
            "are left out.",
            parameter="users",
        )


def _check_aim(options: CutOptions) -> tuple[str, Money | None]:
    """The metric and the money by which cutoffs are assessed; those of the cutoffs if nothing is given."""
    gain, cost = options.gain, options.cost
    if options.metric is None and gain is None and cost is None and options.cutoffs:
        aims = [cutoff for cutoff in options.cutoffs.values() if not isinstance(cutoff, FixedN)]
        amounts = {
            (cutoff.gain, cutoff.cost) if isinstance(cutoff, ExpectedValue) else None for cutoff in aims
        }
        if len(amounts) == 1:
            gain, cost = amounts.pop() or (None, None)
    return resolve_metric(options.metric, gain, cost)


def _list_cutoffs(
    options: CutOptions, n: int, lists: RankedLists, metric: str, money: Money | None, has_history: bool
) -> dict[str, Cutoff]:
    """The cutoffs to compare; with keep_order only those that leave the order of the scores."""
    cutoffs = options.cutoffs
    if cutoffs is None:
        cutoffs = default_cutoffs(
            n,
            probabilities=lists.probabilities is not None,
            metric=metric,
            gain=None if money is None else money.gain,
            cost=None if money is None else money.cost,
            history=has_history,
            shape=metric != "value",
        )
    elif options.keep_order and not all(map(_keeps_order, cutoffs.values())):
        other = next(name for name, cutoff in cutoffs.items() if not _keeps_order(cutoff))
        raise ConfigError(
            f"cutoffs must leave the order of the scores with keep_order=True, got {other!r:.60}; use "
            "calibration='platt' or leave it out.",
            parameter="cutoffs",
        )
    size, least = options.max_size, options.min_relevant
    return {
        name: PromptCutoff(n_candidates=n, cutoff=cutoff, max_size=size, min_relevant=least)
        if size is not None or least
        else cutoff
        for name, cutoff in cutoffs.items()
        if not options.keep_order or _keeps_order(cutoff)
    }


def _keeps_order(cutoff: Cutoff) -> bool:
    """Whether lists of the cutoff are in the order of the scores, however it is fitted."""
    calibration = getattr(cutoff, "calibration", None)
    return not cutoff.uses_probabilities or getattr(calibration, "method", calibration) in MONOTONE


def _describe_judgments(
    lists: RankedLists, counted: Ints, truth: Interactions, assessed: Interactions | None
) -> tuple[str, ...]:
    """How many candidates were assessed, and how many lists were left out."""
    notes: tuple[str, ...] = ()
    n_out = len(lists) - counted.size
    if n_out:
        notes += (
            f"{n_out:,} of {len(lists):,} lists were left out: nothing is relevant for them in the truth",
        )
    lists = lists.take(counted)
    in_truth = label_lists(lists, truth if assessed is None else assessed)
    mean, longest = in_truth.n_retrieved.mean(), lists.lengths.mean()
    verb = "in the truth" if assessed is None else "assessed"
    return (
        *notes,
        f"of {longest:,.1f} candidates per list, {mean:,.1f} are {verb}; all others count as not relevant",
    )


def _describe_order(result: CutResult) -> str:
    """What the order by probability changes, with the same lengths."""
    test, metric = result.order_effect, Metric.registry[result.metric]
    change, low, high = (metric.text(value, "+") for value in (test.difference, test.low, test.high))
    verdict = "" if test.low > 0 or test.high < 0 else ", which is not significant"
    return (
        "lists are in the order of their probabilities, not of the scores; with the same lengths, this alone "
        f"changes {metric.title} by {change} (95% interval {low} to {high}){verdict}; keep_order leaves the "
        "order of the ranker"
    )


def _read(candidates: Any, ids: Interactions, sizes: str | Mapping[Any, float] | None) -> RankedLists:
    """Candidates of any kind; scores without ids have those of the interactions."""
    if isinstance(candidates, str | Path) and isinstance(sizes, str):
        candidates = read_candidate_table(Path(candidates))
    if isinstance(candidates, str) or is_table(candidates):
        lists = read_candidates(candidates)
    else:
        lists = top_candidates(candidates, ids=ids, n_candidates=MAX_CANDIDATES)
    if sizes is None:
        return lists
    return lists.with_sizes(read_sizes(candidates, sizes) if isinstance(sizes, str) else sizes)


def read_sizes(candidates: Any, column: str) -> dict[Any, float]:
    """Item id → size, from a column of the candidates."""
    if not is_table(candidates) or isinstance(candidates, Mapping):
        raise ConfigError(
            f"sizes must be a mapping from item id unless the candidates are a table, got {column!r:.60}; "
            "pass {item: size}.",
            parameter="sizes",
        )
    frame = name_columns(collect_table(candidates))
    if column not in frame.columns or not frame[column].dtype.is_numeric():
        numbers = [name for name in frame.columns if frame[name].dtype.is_numeric()]
        raise ConfigError(
            f"sizes must name a column of numbers, got {column!r:.60}; the candidates have "
            f"{', '.join(numbers) or 'none'}.",
            parameter="sizes",
        )
    pairs = frame.select("item_id", column).drop_nulls().unique()
    repeated = pairs.filter(pl.col("item_id").is_duplicated())
    if repeated.height:
        raise DataError(
            f"sizes must be the same in all lists, got several of {repeated['item_id'][0]!r:.60}; give each "
            "text an id of its own."
        )
    return dict(pairs.iter_rows())


def _longest(lists: RankedLists) -> int:
    """Length of the longest list, at least 1."""
    return max(int(lists.lengths.max(initial=1)), 1)


def _count_candidates(lists: RankedLists, n_candidates: int | None) -> tuple[int, tuple[str, ...]]:
    """How many candidates of a user are considered, and a note if some are left out."""
    longest = _longest(lists)
    if n_candidates is not None:
        return n_candidates, ()
    if longest <= MAX_CANDIDATES:
        return longest, ()
    return MAX_CANDIDATES, (f"the first {MAX_CANDIDATES} of up to {longest:,} candidates are considered",)


def _find_labeled(lists: RankedLists, truth: Interactions, users: WhoCounts) -> Ints:
    """Numbers of the lists that count, by user id: the order of the rows changes nothing."""
    if len(lists.users) and truth.n_users:
        truth.users.check_type(lists.users.values[0], "truth: user id")
    row = truth.users.align(lists.users)
    n_relevant = np.append(without_negative(truth).item_sets.lengths, 0)
    has_truth = (n_relevant[row] > 0) & (lists.lengths > 0)
    if int(has_truth.sum()) < MIN_USERS:
        raise DataError(
            f"cut needs candidates and truth of at least {MIN_USERS} users, got {int(has_truth.sum())} of "
            f"{len(lists):,} with candidates; check that the ids agree, or use sl.cutoff.FixedN."
        )
    numbers = np.flatnonzero(has_truth if users is None else lists.lengths > 0)
    order = lists.users.values.gather(numbers).arg_sort().to_numpy()
    return np.asarray(numbers[order], np.int32)
