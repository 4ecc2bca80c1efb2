"""Linear models: generalized linear models by Newton's method, and the item–item weights of EASE."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np

from shortlist.core.codec import Shape, Starts, When
from shortlist.core.options import FITTED, Count, Estimator, Fraction, NotNegative, Seed
from shortlist.core.special import expit
from shortlist.errors import DataError, TrainingError
from shortlist.kernels.glm import (
    add_curvature,
    add_gradient,
    add_hinges,
    fill_hinges,
    multiply_rows,
    solve_positive,
)
from shortlist.types import Doubles, Floats, Longs

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_STEPS = 100
MIN_STEP = 1e-6  # share of a Newton step, which is halved until the loss falls
ROUNDING = 1e-14  # share of the loss that sums of many rows may be off
MAX_ETA = 50.0  # keeps exp finite far from the minimum
EDGES = (0.002, 0.998)  # piecewise-linear terms are constant beyond these quantiles, where data is scarce


class Family(NamedTuple):
    """A distribution with its canonical link; eta is the linear predictor."""

    loss: Callable[[Doubles, Doubles], Doubles]  # (eta, outcome) → negative log-likelihood
    mean: Callable[[Doubles], Doubles]  # eta → mean
    variance: Callable[[Doubles], Doubles]  # mean → variance
    link: Callable[[float], float]  # mean → eta, kept finite


def log_loss(eta: Doubles, y: Doubles) -> Doubles:
    """Per row: -log P(y) where P(1) = expit(eta)."""
    return np.logaddexp(0.0, eta) - y * eta


def _logit(share: float) -> float:
    share = float(np.clip(share, 1e-6, 1 - 1e-6))
    return float(np.log(share / (1 - share)))


def _log(mean: float) -> float:
    return float(np.log(max(mean, 1e-3)))


def _exp(eta: Doubles) -> Doubles:
    return np.exp(np.minimum(eta, MAX_ETA))


LOGISTIC = Family(log_loss, expit, lambda p: p * (1 - p), _logit)
POISSON = Family(lambda eta, y: _exp(eta) - y * eta, _exp, lambda mean: mean, _log)


def newton(
    start: Doubles,  # (n_problems, n_params)
    loss: Callable[[Doubles], Doubles],  # parameters → (n_problems,)
    derivatives: Callable[[Doubles], tuple[Doubles, Doubles]],  # → (n_problems, n_params), (…, n_params)
    *,
    tolerance: float = 1e-9,  # stop when no step would lower a loss by more, to second order
) -> Doubles:
    """Minimize convex functions, one per row; a step is halved while it would raise its loss."""
    params, before = start, loss(start)
    for _ in range(MAX_STEPS):
        gradient, hessian = derivatives(params)
        step = np.empty_like(gradient)
        solve_positive(hessian, gradient, step)
        if not np.isfinite(step).all():
            raise TrainingError("the regression did not converge: scores are too extreme; rescale them.")
        if (gradient * step).sum(axis=1).max(initial=0.0) < tolerance:
            break
        size = np.ones(len(params))
        while True:  # Newton overshoots only far from the minimum
            after = loss(params - size[:, None] * step)
            grows = ~(after <= before + ROUNDING * np.abs(before)) & (size > 0)
            if not grows.any():
                break
            size[grows] = np.where(size[grows] > MIN_STEP, 0.5 * size[grows], 0.0)
        if not size.any():
            break  # no loss can fall any further in floating point
        params, before = params - size[:, None] * step, after
    return params


def linear_predictor(columns: Doubles, beta: Doubles) -> Doubles:
    """(n_rows,) intercept beta[0] plus columns (n_rows, n_columns) times the other coefficients."""
    eta = np.empty(len(columns))
    multiply_rows(np.ascontiguousarray(columns), beta[1:], eta)
    eta += beta[0]
    return eta


def glm_fit(
    columns: Doubles,  # (n_rows, n_columns), ideally standardized
    y: Doubles,  # (n_rows,)
    family: Family,
    *,
    weight: Doubles | float = 1.0,
    ridge: float = 1e-3,
    tolerance: float = 1e-9,
) -> Doubles:
    """(n_columns + 1,) coefficients, intercept first; the intercept has a tiny penalty to keep it finite."""
    rows = np.ascontiguousarray(np.column_stack([np.ones(y.size), columns]))
    penalty = np.full(rows.shape[1], ridge, np.float64)
    penalty[0] = 1e-6

    def loss(beta: Doubles) -> Doubles:
        losses = weight * family.loss(linear_predictor(columns, beta[0]), y)
        return np.array([losses.sum() + 0.5 * (penalty * beta[0] ** 2).sum()])

    def derivatives(beta: Doubles) -> tuple[Doubles, Doubles]:
        mean = family.mean(linear_predictor(columns, beta[0]))
        gradient, hessian = penalty * beta, np.diag(penalty)[None].copy()
        add_gradient(rows, weight * (mean - y), gradient[0])
        add_curvature(rows, weight * family.variance(mean), hessian[0])
        return gradient, hessian

    start = np.zeros((1, rows.shape[1]))
    start[0, 0] = family.link(float(np.average(y, weights=np.broadcast_to(weight, y.shape))))
    beta: Doubles = newton(start, loss, derivatives, tolerance=tolerance)[0]
    return beta


@dataclass(kw_only=True, eq=False)
class AdditiveLogistic(Estimator):
    """Log-odds as a sum of one piecewise-linear function per column; linear without quantiles.

    If there are more than `n_rows` rows with outcome 0, a sample of them is used with larger weights.
    """

    quantiles: tuple[Fraction, ...] = ()  # of each column, where its slope may change
    ridge: NotNegative = 1.0
    n_rows: Count = 100_000
    seed: Seed = 0

    knots_: Annotated[Doubles, Shape("n_knots")] = FITTED
    starts_: Annotated[Longs, Starts("n_columns", "n_knots")] = FITTED
    edges_: Annotated[Doubles, Shape(2, "n_columns"), When("quantiles")] = FITTED
    slopes_: Annotated[Doubles, Shape("n_columns + n_knots")] = FITTED
    intercept_: float = FITTED

    def fit(self, columns: Doubles, y: Doubles) -> Self:
        """Fit to columns (n_rows, n_columns) and outcomes y (n_rows,) in {0, 1}."""
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
        fill_hinges(columns, self.starts_, self.knots_, hinges)
        center, spread = hinges.mean(axis=0), hinges.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        weights = np.where(y > 0, 1.0, 1 / share)
        beta = glm_fit((hinges - center) / scale, y, LOGISTIC, weight=weights, ridge=self.ridge)
        self.slopes_ = np.where(spread > 1e-9, beta[1:] / scale, 0.0)
        self.intercept_ = float(beta[0] - (self.slopes_ * center).sum())
        return self

    @property
    def n_columns(self) -> int:
        """Number of columns that it was fitted to."""
        return int(self.starts_.size) - 1

    def log_odds(self, columns: Doubles) -> Doubles:
        """(n_rows,) log-odds of outcome 1."""
        if self.quantiles:
            columns = np.clip(columns, *self.edges_)
        eta = np.full(columns.shape[0], self.intercept_)
        add_hinges(columns, self.starts_, self.knots_, self.slopes_, eta)
        return eta


def fit_item_weights(matrix: "csr_array", reg: float) -> Floats:
    """(n_items, n_items) weights of EASE: what item i adds to the score of item j; `matrix` holds 0 and 1."""
    gram = np.asfortranarray((matrix.T @ matrix).toarray())
    gram[np.diag_indices_from(gram)] += reg
    weights = _invert(gram)
    weights /= -np.diag(weights)[None, :]
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights, np.float32)


def _invert(gram: Any) -> Any:
    """The inverse of a positive definite matrix, by Cholesky in place."""
    from scipy.linalg import lapack  # takes a tenth of a second to import

    upper, failed = lapack.dpotrf(gram, lower=0, overwrite_a=1)
    if not failed:
        upper, failed = lapack.dpotri(upper, lower=0, overwrite_c=1)
    if failed:
        raise DataError("the item–item matrix is not positive definite; raise reg.")
    inverse = np.triu(upper)
    inverse += np.triu(upper, 1).T
    return inverse
