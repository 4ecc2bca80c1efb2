"""Linear models: generalized linear models by Newton's method, and the item–item weights of EASE."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array
from scipy.special import expit

from shortlist.core.estimator import Estimator
from shortlist.errors import DataError, TrainingError
from shortlist.kernels.glm import curvature_sum, hinges_fill, hinges_sum
from shortlist.types import Doubles, Floats

STEPS = 100
SMALLEST_STEP = 1e-6  # of a Newton step that is halved until the loss falls
LARGEST_LINE = 50.0  # keeps exp finite far from the minimum
EDGES = (0.002, 0.998)  # piecewise-linear terms are constant beyond these quantiles: data is scarce there


class Family(NamedTuple):
    """A distribution with its canonical link, as functions of the linear predictor and the mean."""

    loss: Callable[[Doubles, Doubles], Doubles]  # (linear predictor, outcome) → negative log-likelihood
    mean: Callable[[Doubles], Doubles]
    variance: Callable[[Doubles], Doubles]  # of the mean
    link: Callable[[float], float]  # of the overall mean, kept finite


def log_loss(line: Doubles, y: Doubles) -> Doubles:
    """Per row: -log P(y) where P(1) = expit(line)."""
    return np.logaddexp(0.0, line) - y * line


def _logit(share: float) -> float:
    share = float(np.clip(share, 1e-6, 1 - 1e-6))
    return float(np.log(share / (1 - share)))


def _log(mean: float) -> float:
    return float(np.log(max(mean, 1e-3)))


def _exp(line: Doubles) -> Doubles:
    return np.exp(np.minimum(line, LARGEST_LINE))


LOGISTIC = Family(log_loss, expit, lambda p: p * (1 - p), _logit)
POISSON = Family(lambda line, y: _exp(line) - y * line, _exp, lambda mean: mean, _log)


def glm_fit(
    columns: Doubles,  # (n_rows, n_columns), ideally standardized
    y: Doubles,  # (n_rows,)
    family: Family,
    *,
    weight: Doubles | float = 1.0,
    ridge: float = 1e-3,
    tolerance: float = 1e-9,  # of the loss that another step could still gain, to second order
) -> Doubles:
    """(n_columns + 1,) coefficients, intercept first; its tiny penalty only keeps it finite."""
    rows = np.column_stack([np.ones(y.size), columns])
    penalty = np.full(rows.shape[1], ridge)
    penalty[0] = 1e-6
    beta = np.zeros(rows.shape[1])
    beta[0] = family.link(float(np.average(y, weights=np.broadcast_to(weight, y.shape))))
    line = rows @ beta
    loss = float(np.sum(weight * family.loss(line, y)) + 0.5 * penalty @ beta**2)
    for _ in range(STEPS):
        mean = family.mean(line)
        slope = rows.T @ (weight * (mean - y)) + penalty * beta
        curve = np.diag(penalty)
        curvature_sum(rows, weight * family.variance(mean), curve)
        step = np.linalg.solve(curve, slope)
        if not np.isfinite(step).all():
            raise TrainingError("the regression did not converge: scores are too extreme; rescale them.")
        if slope @ step < tolerance:
            break
        size, move = 1.0, rows @ step
        while size > SMALLEST_STEP:  # Newton overshoots only far from the minimum
            new = float(np.sum(weight * family.loss(line - size * move, y)))
            new += float(0.5 * penalty @ (beta - size * step) ** 2)
            if new <= loss:
                break
            size *= 0.5
        else:
            break  # the loss cannot fall any further in floating point
        beta, line, loss = beta - size * step, line - size * move, new
    return beta


@dataclass(kw_only=True, eq=False)
class AdditiveLogistic(Estimator):
    """Log-odds as a sum of one piecewise-linear function per column; linear without quantiles.

    If there are more than `n_rows` rows with outcome 0, a sample of them is used with larger weights.
    """

    quantiles: tuple[float, ...] = ()  # of each column, where its slope may change
    ridge: float = 1.0
    n_rows: int = 100_000
    seed: int = 0

    def fit(self, columns: Doubles, y: Doubles) -> Self:
        """columns (n_rows, n_columns), y (n_rows,) in {0, 1}."""
        share = min(1.0, self.n_rows / max(float((1 - y).sum()), 1.0))
        used = (y > 0) | (np.random.default_rng(self.seed).random(y.size) < share)
        columns, y = columns[used], y[used]
        if self.quantiles:
            self.edges_ = np.quantile(columns, EDGES, axis=0)
            columns = np.clip(columns, *self.edges_)
        knots = [np.unique(np.quantile(column, self.quantiles)) for column in columns.T]
        self.starts_ = np.cumsum([0, *(knot.size for knot in knots)])
        self.knots_ = np.concatenate(knots)
        hinges = np.empty((y.size, columns.shape[1] + self.knots_.size))
        hinges_fill(columns, self.starts_, self.knots_, hinges)
        center, spread = hinges.mean(axis=0), hinges.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        weight = np.where(y > 0, 1.0, 1 / share)
        beta = glm_fit((hinges - center) / scale, y, LOGISTIC, weight=weight, ridge=self.ridge)
        self.slopes_ = np.where(spread > 1e-9, beta[1:] / scale, 0.0)
        self.intercept_ = float(beta[0] - self.slopes_ @ center)
        return self

    def log_odds(self, columns: Doubles) -> Doubles:
        """(n_rows,)."""
        if self.quantiles:
            columns = np.clip(columns, *self.edges_)
        line = np.full(columns.shape[0], self.intercept_)
        hinges_sum(columns, self.starts_, self.knots_, self.slopes_, line)
        return line


def fit_item_weights(taken: csr_array, reg: float) -> Floats:
    """(n_items, n_items) what the row's item adds to the score of the column's; `taken` holds 0 and 1."""
    gram = np.asfortranarray((taken.T @ taken).toarray())
    gram[np.diag_indices_from(gram)] += reg
    weights = _invert(gram)
    weights /= -np.diag(weights)[None, :]
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights, np.float32)


def _invert(gram: Any) -> Any:
    """The inverse of a positive definite matrix, by Cholesky in place."""
    upper, failed = lapack.dpotrf(gram, lower=0, overwrite_a=1)
    if not failed:
        upper, failed = lapack.dpotri(upper, lower=0, overwrite_c=1)
    if failed:
        raise DataError("the item–item matrix is not positive definite; raise reg.")
    inverse = np.triu(upper)
    inverse += np.triu(upper, 1).T
    return inverse
