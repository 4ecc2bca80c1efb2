"""PromptCutoff: passages, hits or tools within a size, and none where probably none is relevant."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from shortlist.core.codec import Ascending, MayBeMissing, Shape, When, file_error
from shortlist.core.glm import AdditiveLogistic
from shortlist.core.options import FITTED, AtLeast, Positive, Probability
from shortlist.core.special import expit
from shortlist.cutoff.base import CutLists, Cutoff
from shortlist.cutoff.calibration import Calibration, bounded_scores, score_range
from shortlist.cutoff.regression import UtilityRegression, shape_ranks
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import REASON_CODE, RankedLists
from shortlist.errors import DataError
from shortlist.kernels.glm import fill_shapes
from shortlist.types import Bools, Doubles, Ints, Longs

MAX_UNITS = 10_000  # of a limit, in which sizes are counted; finer sizes are rounded up
MIN_EMPTY = 5  # lists without a relevant candidate, fewer teach nothing
RIDGE = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class PromptCutoff(Cutoff):
    """End lists by another cutoff, within a size, and show nothing where probably nothing is relevant.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per list.
    cutoff
        The unfitted cutoff that decides which items are worth showing; None: `UtilityRegression`.
    max_size
        Limit of the sizes of all shown items, such as the tokens of a prompt. If the items that `cutoff`
        shows are larger, the subset with the highest expected gain within the limit is shown: the sum of
        probabilities, or of expected values if `cutoff` has a gain and a cost. The lists must have sizes;
        see `RankedLists.with_sizes`.
    min_relevant
        A list stays empty if the probability that any candidate is relevant is lower. Logistic regression
        predicts it from the scores of the list at ranks 1, 2, 5, 10, …. It learns from lists without a
        relevant candidate, so their users must be named in `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> scores, relevant = np.random.default_rng(0).random((40, 5)), np.arange(20)
    >>> scores[relevant, 0] += 1.0  # the first 20 queries have an answer, and a higher score
    >>> truth = sl.Interactions.from_tuples([(query, 0) for query in range(20)])
    >>> lists = sl.cutoff.top_candidates(scores)
    >>> cut = sl.cutoff.PromptCutoff(min_relevant=0.5).fit(lists, truth, users=range(40))
    >>> bool((cut.apply(lists).lengths[:20] > 0).mean() > (cut.apply(lists).lengths[20:] > 0).mean())
    True
    """

    cutoff: Cutoff | None = None
    max_size: Positive | None = None
    min_relevant: Probability = 0.0

    rule = (
        "Another cutoff decides which items are worth showing. The best of them that fit into the limit are "
        "shown, and nothing if probably no candidate is relevant."
    )

    cutoff_: Cutoff = FITTED
    calibration_: Annotated[Calibration, MayBeMissing()] = FITTED
    low_: Annotated[float, When("min_relevant")] = FITTED
    high_: Annotated[float, When("min_relevant")] = FITTED
    ranks_: Annotated[Longs, Shape("n_ranks"), AtLeast(1), Ascending(strict=True), When("min_relevant")] = (
        FITTED
    )
    answers_: Annotated[AdditiveLogistic, When("min_relevant")] = FITTED

    def _summary(self) -> str:
        return repr(self.cutoff_)

    def _check_loaded(self) -> None:
        if not self.min_relevant:
            return
        if not self.low_ <= self.high_:
            raise file_error("high_", "must not be below low_")
        if self.answers_.n_columns != self.ranks_.size:
            n, columns = self.ranks_.size, self.answers_.n_columns
            raise file_error("answers_", f"must have {n} columns, got {columns}")

    @property
    def uses_probabilities(self) -> bool:
        """Whether the inner cutoff, or the choice within the limit, uses probabilities."""
        return self.max_size is not None or self._inner.uses_probabilities

    @property
    def is_calibrated(self) -> bool:
        """Whether these probabilities were fitted to outcomes."""
        return "calibration_" in vars(self) or self._inner.is_calibrated

    @property
    def reorders(self) -> bool:
        """Whether these probabilities may have another order than the scores."""
        return self._inner.reorders

    @property
    def _inner(self) -> Cutoff:
        """The cutoff that decides which items are worth showing."""
        fitted: Cutoff | None = vars(self).get("cutoff_", self.cutoff)
        return UtilityRegression() if fitted is None else fitted

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        self.cutoff_ = self._inner.clone().set_params(n_candidates=self.n_candidates)
        self.cutoff_._fit_labels(labels, history)
        if self.max_size is not None and not self.cutoff_.uses_probabilities:
            calibration = Calibration(method="platt", n_candidates=self.n_candidates)
            self.calibration_ = calibration.fit_labels(labels, history)
        if self.min_relevant:
            self._fit_answers(labels)

    def _fit_answers(self, labels: LabeledLists) -> None:
        """Learn from the scores of a list whether any candidate is relevant."""
        usable = labels.take(np.flatnonzero(labels.labeled & (labels.lists.lengths > 0)).astype(np.int32))
        has_relevant = usable.n_retrieved > 0
        if int((~has_relevant).sum()) < MIN_EMPTY:
            raise DataError(
                f"min_relevant needs at least {MIN_EMPTY} lists without a relevant candidate to learn from, "
                f"got {int((~has_relevant).sum())}; count queries without an answer, too, with "
                'users="everyone" in sl.cut, or leave min_relevant out.',
                parameter="min_relevant",
            )
        self.low_, self.high_ = score_range(usable.lists)
        self.ranks_ = shape_ranks(int(usable.lists.lengths.max(initial=1)))
        self.answers_ = AdditiveLogistic(ridge=RIDGE).fit(
            self._scores_at_ranks(usable.lists), has_relevant.astype(np.float64)
        )

    def _scores_at_ranks(self, lists: RankedLists) -> Doubles:
        """(n_lists, n_ranks) scores at some ranks; standardized scores hide how well the best one fits."""
        columns = np.empty((len(lists), 2 * self.ranks_.size + 1))
        fill_shapes(lists.indptr, bounded_scores(lists, self.low_, self.high_), self.ranks_, columns)
        return np.ascontiguousarray(columns[:, : self.ranks_.size])

    def answer_probabilities(self, lists: RankedLists) -> Doubles:
        """Compute the probability that a list has at least one relevant candidate.

        Parameters
        ----------
        lists
            Candidates, ordered by score.

        Returns
        -------
        numpy.ndarray
            One probability per list; 0 for a list without candidates.

        Raises
        ------
        NotFittedError
            If `fit` has not been called with `min_relevant` above 0.
        """
        answers: AdditiveLogistic = self.need("answers_")
        return np.where(lists.lengths > 0, expit(answers.log_odds(self._scores_at_ranks(lists))), 0.0)

    def _probabilities(self, lists: RankedLists, history: Interactions | None) -> Doubles | None:
        inner: Cutoff = self.need("cutoff_")
        if "calibration_" in vars(self):
            return self.calibration_.predict(lists, history)
        return inner._probabilities(lists, history)

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        return self.cutoff_._cut(lists, history)

    def _show(self, lists: RankedLists, history: Interactions | None) -> tuple[RankedLists, CutLists]:
        by_score = lists
        lists, cut = super()._show(lists, history)
        reason = self.cutoff_._reasons(lists, cut)
        lengths = cut.lengths
        if self.max_size is not None:
            lists, lengths = self._fit_into_size(lists, lengths, self.max_size)
            reason[lengths < cut.lengths] = REASON_CODE["size_limit"]
        if self.min_relevant:
            is_empty = (self.answer_probabilities(by_score) < self.min_relevant) & (lists.lengths > 0)
            lengths = np.where(is_empty, 0, lengths).astype(np.int32)
            reason[is_empty] = REASON_CODE["none_relevant"]
        return lists, cut._replace(lengths=lengths, reason=reason)

    def _fit_into_size(self, lists: RankedLists, lengths: Ints, limit: float) -> tuple[RankedLists, Ints]:
        """The lists with the best items that fit first, and their number; the others follow."""
        if lists.sizes is None:
            raise DataError(
                "a cutoff with max_size needs the size of each item, got none; pass sizes= to sl.cut, "
                "--sizes to shortlist cut, or sizes to the function of prepare(), or use lists.with_sizes.",
                parameter="sizes",
            )
        params = self.cutoff_.get_params()
        gain, cost = params.get("gain") or 1.0, params.get("cost") or 0.0
        p = lists.probabilities
        assert p is not None
        chosen = lists.positions < np.repeat(lengths, lists.lengths)
        totals = np.bincount(lists.owner, lists.sizes * chosen, len(lists))
        for number in np.flatnonzero(totals > limit):
            rows = slice(int(lists.indptr[number]), int(lists.indptr[number] + lengths[number]))
            worth = p[rows] * gain - (1 - p[rows]) * cost
            chosen[rows] = best_subset(worth, lists.sizes[rows], limit)
        order = np.lexsort((~chosen, lists.owner))
        counts: Ints = np.bincount(lists.owner[chosen], minlength=len(lists)).astype(np.int32)
        return lists.reorder(order), counts


def best_subset(worth: Doubles, sizes: Doubles, limit: float) -> Bools:
    """(n,) the items with the largest total worth whose sizes add up to at most the limit.

    Dynamic programming over the size, exact for whole sizes and limits up to `MAX_UNITS`. Otherwise sizes are
    rounded up to a fraction of the limit, so that the limit holds.
    """
    unit = 1.0 if limit <= MAX_UNITS and (sizes == np.floor(sizes)).all() else limit / MAX_UNITS
    units, n_units = np.ceil(sizes / unit - 1e-9).astype(np.int64), int(limit / unit + 1e-9)
    best, taken = np.zeros(n_units + 1), np.zeros((sizes.size, n_units + 1), np.bool_)
    for item in np.flatnonzero((units <= n_units) & (worth > 0)).tolist():
        with_item = best[: n_units + 1 - units[item]] + worth[item]
        taken[item, units[item] :] = with_item > best[units[item] :]
        best[units[item] :] = np.maximum(with_item, best[units[item] :])
    left, subset = n_units, np.zeros(sizes.size, np.bool_)
    for item in reversed(range(sizes.size)):
        subset[item] = taken[item, left]
        left -= int(units[item]) * bool(subset[item])
    return subset
