"""How many items will the user take next? A log-linear negative binomial on past basket sizes."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from shortlist.core.estimator import Estimator
from shortlist.cutoff.features import match, mean_basket, recent_basket
from shortlist.cutoff.labels import Labels
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.types import Doubles, Ints

STEPS = 50
LARGEST = 250.0  # means beyond this decide nothing: heads are shorter


@dataclass(kw_only=True, eq=False)
class ListSize(Estimator):
    """Counts of truth items: of a user's next list less one, or of those that no candidate met."""

    ridge: float = 1.0

    def learn(self, known: Labels, counts: Ints, history: Interactions | None) -> Self:
        """counts (n_lists,), read where labelled; Poisson regression, then the dispersion by moments."""
        y = counts[known.labelled].astype(np.float64)
        columns = _columns(known.lists, history, known.lists.expected_sizes)[known.labelled]
        center, spread = columns.mean(axis=0), columns.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        beta = _poisson_fit((columns - center) / scale, y, self.ridge)
        self.past_, self.center_, self.scale_, self.beta_ = history is not None, center, scale, beta
        self.told_ = known.lists.expected_sizes is not None
        mean = self.predict(known.lists, history)[known.labelled]
        self.dispersion_ = float(max(((y - mean) ** 2 - mean).sum() / max((mean**2).sum(), 1e-12), 0.0))
        return self

    def predict(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_lists,) expected counts."""
        if self.need("past_") and history is None:
            raise DataError("list sizes were learned from a history and need one again; pass history=.")
        sizes = lists.expected_sizes
        if self.told_ and sizes is None:
            raise DataError(
                "list sizes were learned from lists that foretell them, got lists that do not; "
                "make both with the same model's heads."
            )
        columns = _columns(lists, history if self.past_ else None, sizes if self.told_ else None)
        line: Doubles = self.beta_[0] + ((columns - self.center_) / self.scale_) @ self.beta_[1:]
        return np.exp(np.minimum(line, np.log(LARGEST)))


def _columns(lists: RankedLists, history: Interactions | None, sizes: Doubles | None) -> Doubles:
    """(n_lists, n_features): what the history says, and what the lists foretell themselves."""
    columns = [] if sizes is None else [np.log(np.maximum(sizes, 0.1))]
    if history is not None:
        user = match(lists, history)[0]
        known = np.append(np.diff(history.user_baskets), 0)
        columns += [
            np.log(mean_basket(history, user)),
            np.log(recent_basket(history, user, 0)),
            np.log(recent_basket(history, user, 1)),
            np.log1p(known[user]),
        ]
    return np.column_stack(columns) if columns else np.empty((len(lists), 0))


def _poisson_fit(columns: Doubles, y: Doubles, ridge: float) -> Doubles:
    """(n_columns + 1,) coefficients of log mean, intercept first, by damped Newton steps."""
    rows = np.column_stack([np.ones(y.size), columns])
    penalty = np.full(rows.shape[1], ridge)
    penalty[0] = 1e-6
    beta = np.zeros(rows.shape[1])
    beta[0] = np.log(max(y.mean(), 1e-3))

    def loss(b: Doubles) -> float:
        line = rows @ b
        return float(np.sum(np.exp(np.minimum(line, 50.0)) - y * line) + 0.5 * penalty @ b**2)

    now = loss(beta)
    for _ in range(STEPS):
        mean = np.exp(np.minimum(rows @ beta, 50.0))
        slope = rows.T @ (mean - y) + penalty * beta
        curve = (rows * mean[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        size = 1.0
        while loss(beta - size * step) > now and size > 1e-6:
            size *= 0.5
        if size <= 1e-6:
            break
        beta = beta - size * step
        now = loss(beta)
        if float(np.abs(size * step).max()) < 1e-9:
            break
    return beta
