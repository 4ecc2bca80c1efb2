"""UtilityRegression: the length with the best utility predicted from the shape of the scores alone."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from shortlist.core.codec import Ascending, MayBeInfinite, Shape, file_error
from shortlist.core.metrics import Metric, metrics_of_length
from shortlist.core.options import FITTED, AtLeast, Choices
from shortlist.cutoff.base import CutLists, Cutoff
from shortlist.cutoff.basket_size import N_HISTORY_COLUMNS, history_columns
from shortlist.cutoff.calibration import bounded_scores, score_range
from shortlist.cutoff.threshold import (
    best_length,
    choose_by_standard_error,
    user_utilities,
)
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError
from shortlist.kernels.glm import (
    add_curvature,
    add_curve_products,
    fill_shapes,
    find_best_lengths,
    solve_positive,
)
from shortlist.types import Doubles, Ints, Longs

RIDGES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)  # per list, on standardized columns; from the strongest
N_FOLDS = 5
MIN_LISTS = 20  # with fewer, the best fixed N is used
LIMIT = 4.0  # standard deviations at which a column is cut off, for scores unlike those seen in `fit`


def shape_ranks(longest: int) -> Longs:
    """Ranks 1, 2, 5, 10, 20, 50, … below the longest list, and its end."""
    ranks = [step * 10**power for power in range(7) for step in (1, 2, 5) if step * 10**power < longest]
    return np.array([*ranks, max(longest, 1)], np.int64)


def targets_without_money() -> list[str]:
    """The metrics that can be predicted: no list is empty, also where each would lose money."""
    return [name for name in metrics_of_length() if not Metric.registry[name].needs_money]


@dataclass(kw_only=True, eq=False, repr=False)
class UtilityRegression(Cutoff):
    """Choose the length with the highest predicted utility, from the shape of the list's scores.

    Ridge regression predicts the utility of every length from the scores at ranks 1, 2, 5, 10, …, raw and
    standardized within the list. The penalty is chosen by five-fold cross-validation over lists. With an
    infinite penalty the method is the best fixed N, and it stays the fixed N unless another penalty is better
    by more than one standard error. No probabilities are needed. If `fit` gets a history, the sizes of each
    user's earlier baskets predict, too. No list is empty.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    target
        Metric to maximize: "f1", "ndcg" or "ndcg_paper"; see `FixedN`.

    References
    ----------
    Bahri, Tay, Zheng, Metzler and Tomkins, "Choppy: Cut Transformer for Ranked List Truncation", SIGIR 2020,
    also predicts the metric of every length from the scores, with a transformer and many more lists.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.UtilityRegression().fit(candidates, split.valid)
    >>> lists = cut.apply(candidates)
    >>> bool((lists.lengths > 0).all())
    True
    """

    target: Annotated[str, Choices(targets_without_money)] = "f1"

    rule = (
        "The scores of the list predict how good it would be at every length. It stops where the prediction "
        "is best."
    )
    reason = "utility"
    empty_reason = "utility"

    low_: float = FITTED
    high_: float = FITTED
    uses_history_: bool = FITTED
    ranks_: Annotated[Longs, Shape("n_ranks"), AtLeast(1), Ascending(strict=True)] = FITTED
    center_: Annotated[Doubles, Shape("n_columns")] = FITTED
    scale_: Annotated[Doubles, Shape("n_columns"), AtLeast(1e-300)] = FITTED
    weights_: Annotated[Doubles, Shape("n_lengths", "n_columns + 1")] = FITTED
    ridge_: Annotated[float, MayBeInfinite(), AtLeast(0)] = FITTED

    def _summary(self) -> str:
        if self.ridge_ == np.inf:
            return f"N={int(self.weights_[:, 0].argmax()) + 1}, because no other length was clearly better"
        history = " and history" if self.uses_history_ else ""
        return f"lengths from scores{history}, ridge {self.ridge_:g}"

    def _check_loaded(self) -> None:
        n = 2 * self.ranks_.size + 1 + N_HISTORY_COLUMNS * self.uses_history_
        if not self.low_ <= self.high_:
            raise file_error("high_", "must not be below low_")
        if self.center_.size != n:
            raise file_error("center_", f"must have {n} columns, got {self.center_.size}")

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        usable = labels.labeled & (labels.lists.lengths > 0)
        labels = labels.take(np.flatnonzero(usable).astype(np.int32))
        lists = labels.lists
        self.low_, self.high_ = score_range(lists)
        self.ranks_ = shape_ranks(int(lists.lengths.max(initial=1)))
        self.uses_history_ = history is not None
        columns = self._columns(lists, history)
        spread = columns.std(axis=0) if len(lists) else np.ones(columns.shape[1])
        self.center_ = columns.mean(axis=0) if len(lists) else np.zeros(columns.shape[1])
        self.scale_ = np.where(spread > 1e-9, spread, 1.0)
        fold = np.arange(len(lists), dtype=np.int32) % N_FOLDS
        products, squares = self._sums(labels, history, fold)
        everything = products.sum(axis=0), squares.sum(axis=0)
        self.ridge_ = np.inf
        if len(lists) >= MIN_LISTS:
            options = (np.inf, *RIDGES)
            utilities = [np.empty(len(lists)) for _ in options]
            for f in range(N_FOLDS):
                held = labels.take(np.flatnonzero(fold == f).astype(np.int32))
                rest = everything[0] - products[f], everything[1] - squares[f]
                rows = self._rows(held.lists, history)
                for option, ridge in enumerate(options):
                    lengths = _best_lengths(rows, held.lists.indptr, _solve(*rest, ridge))
                    utilities[option][fold == f] = user_utilities(held, lengths, self.target)
            self.ridge_ = options[choose_by_standard_error(utilities)]
        self.weights_ = _solve(*everything, self.ridge_)
        if self.ridge_ == np.inf and len(lists):  # exactly the fixed N, whatever the last bits of the curve
            self.weights_[:, 0] -= np.arange(len(self.weights_)) != best_length(labels, self.target) - 1

    def _sums(
        self, labels: LabeledLists, history: Interactions | None, fold: Ints
    ) -> tuple[Doubles, Doubles]:
        """Per fold: (n_lengths, n_columns) columns times utilities, (n_columns, n_columns) their squares."""
        rows, lists = self._rows(labels.lists, history), labels.lists
        products = np.zeros((N_FOLDS, int(self.ranks_[-1]), rows.shape[1]))
        squares = np.zeros((N_FOLDS, rows.shape[1], rows.shape[1]))
        add_curve_products(rows, lists.indptr, labels.utilities(self.target), fold, products)
        for f in range(N_FOLDS):
            block = np.ascontiguousarray(rows[fold == f])
            add_curvature(block, np.ones(len(block)), squares[f])
        return products, squares

    def _columns(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_lists, n_columns) shape of the scores, and sizes of earlier baskets."""
        n_shape = 2 * self.ranks_.size + 1
        columns = np.empty((len(lists), n_shape + N_HISTORY_COLUMNS * self.uses_history_))
        fill_shapes(lists.indptr, bounded_scores(lists, self.low_, self.high_), self.ranks_, columns)
        if self.uses_history_:
            if history is None:
                raise DataError(
                    "the cutoff was fitted with a history and needs one to predict; pass history=."
                )
            columns[:, n_shape:] = history_columns(history, history.users.align(lists.users))
        return columns

    def _rows(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_lists, 1 + n_columns) the intercept and the standardized columns."""
        z = np.clip((self._columns(lists, history) - self.center_) / self.scale_, -LIMIT, LIMIT)
        return np.ascontiguousarray(np.column_stack([np.ones(len(z)), z]))

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        weights = self.need("weights_")
        return CutLists(_best_lengths(self._rows(lists, history), lists.indptr, weights))


def _best_lengths(rows: Doubles, indptr: Any, weights: Doubles) -> Ints:
    lengths = np.zeros(len(rows), np.int32)
    find_best_lengths(rows, indptr, weights, lengths)
    return lengths


def _solve(products: Doubles, squares: Doubles, ridge: float) -> Doubles:
    """(n_lengths, n_columns) coefficients of every length; the intercept is not penalized."""
    n_lists, out = max(float(squares[0, 0]), 1.0), np.zeros_like(products)
    if ridge == np.inf:
        out[:, 0] = products[:, 0] / n_lists
        return out
    penalty = np.full(len(squares), ridge * n_lists)
    penalty[0] = 0.0
    solve_positive(np.repeat((squares + np.diag(penalty))[None], len(out), axis=0), products, out)
    return out
