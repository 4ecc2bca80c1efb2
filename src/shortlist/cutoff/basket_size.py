"""Predicted basket sizes: log-linear negative binomial regression on the user's earlier baskets."""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from shortlist.core.codec import Shape, file_error
from shortlist.core.glm import POISSON, glm_fit, linear_predictor
from shortlist.core.options import FITTED, AtLeast, Estimator, NotNegative
from shortlist.cutoff.calibration import basket_sizes
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError
from shortlist.types import Doubles, Ints

N_HISTORY_COLUMNS = 4
MAX_MEAN = 250.0  # predicted means are limited: no list is that long


@dataclass(kw_only=True, eq=False)
class BasketSize(Estimator):
    """Predicts a count per user: items in the next basket, or relevant items that are not candidates."""

    ridge: NotNegative = 1.0

    uses_history_: bool = FITTED
    uses_expected_sizes_: bool = FITTED
    center_: Annotated[Doubles, Shape("n_columns")] = FITTED
    scale_: Annotated[Doubles, Shape("n_columns"), AtLeast(1e-9)] = FITTED
    beta_: Annotated[Doubles, Shape("n_columns + 1")] = FITTED
    dispersion_: Annotated[float, AtLeast(0)] = FITTED

    def _check_loaded(self) -> None:
        n = N_HISTORY_COLUMNS * self.uses_history_ + self.uses_expected_sizes_
        if self.center_.size != n:
            raise file_error("center_", f"must have {n} columns, got {self.center_.size}")

    def fit(self, labels: LabeledLists, counts: Ints, history: Interactions | None) -> Self:
        """Fit a Poisson regression of counts (n_lists,) of labeled users, and the dispersion around it.

        Users without an expected size, of whom the model knows nothing, are left out.
        """
        columns = _columns(labels.lists, history, labels.lists.expected_sizes)
        used = labels.labeled & ~np.isnan(columns).any(axis=1)
        columns, y = columns[used], counts[used].astype(np.float64)
        self.uses_history_ = history is not None
        self.uses_expected_sizes_ = labels.lists.expected_sizes is not None
        center, spread = columns.mean(axis=0), columns.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        beta = glm_fit((columns - center) / scale, y, POISSON, ridge=self.ridge, tolerance=1e-18)
        self.center_, self.scale_, self.beta_ = center, scale, beta
        mean = self._predict_columns(columns)
        # a negative binomial has variance mean + dispersion · mean²
        excess = float(((y - mean) ** 2 - mean).sum() / max((mean**2).sum(), 1e-12))
        self.dispersion_ = max(excess, 0.0)
        return self

    def predict(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_lists,) expected counts."""
        if self.uses_history_ and history is None:
            raise DataError("the cutoff was fitted with a history and needs one to predict; pass history=.")
        if self.uses_expected_sizes_ and lists.expected_sizes is None:
            raise DataError(
                "the cutoff was fitted on lists with expected_sizes, got lists without them; "
                "pass lists of the same model."
            )
        sizes = lists.expected_sizes if self.uses_expected_sizes_ else None
        return self._predict_columns(_columns(lists, history if self.uses_history_ else None, sizes))

    def _predict_columns(self, columns: Doubles) -> Doubles:
        standardized = np.nan_to_num((columns - self.center_) / self.scale_)  # no expected size: the mean one
        eta = linear_predictor(standardized, self.beta_)
        return np.exp(np.minimum(eta, np.log(MAX_MEAN)))


def _columns(lists: RankedLists, history: Interactions | None, sizes: Doubles | None) -> Doubles:
    """(n_lists, n_features) from the sizes that the model expects and from the history."""
    columns = [] if sizes is None else [np.log(np.maximum(sizes, 0.1))]
    if history is not None:
        columns.append(history_columns(history, history.users.align(lists.users)))
    return np.column_stack(columns) if columns else np.empty((len(lists), 0))


def history_columns(history: Interactions, user: Ints) -> Doubles:
    """(n, N_HISTORY_COLUMNS) the sizes of the user's earlier baskets, and their number."""
    sizes = basket_sizes(history, user)
    np.log(sizes[:, :3], out=sizes[:, :3])
    np.log1p(sizes[:, 3], out=sizes[:, 3])
    return sizes
