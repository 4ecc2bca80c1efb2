"""Logistic regression by Newton's method: a convex problem with few columns needs nothing more."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from shortlist.core.estimator import Estimator
from shortlist.errors import TrainingError
from shortlist.kernels.features import hinges_fill, hinges_sum
from shortlist.kernels.logistic import curvature_sum
from shortlist.types import Doubles

STEPS = 100
EDGES = (0.002, 0.998)  # beyond these quantiles bent lines run level: the last bends rest on few cases


def sigmoid(x: Doubles) -> Doubles:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def log_loss(x: Doubles, y: Doubles) -> Doubles:
    """Per row: -log P(y) when P(1) = sigmoid(x)."""
    return np.logaddexp(0.0, x) - y * x


def logistic_fit(columns: Doubles, y: Doubles, weight: Doubles | float = 1.0, ridge: float = 1e-3) -> Doubles:
    """(n_columns + 1,) coefficients, intercept first and unpenalised but for a trace that keeps it finite.

    columns (n_rows, n_columns), best standardised; y (n_rows,) in {0, 1}.
    """
    rows = np.column_stack([np.ones(y.size), columns])
    penalty = np.full(rows.shape[1], ridge)
    penalty[0] = 1e-6
    beta = np.zeros(rows.shape[1])
    share = float(np.clip(np.average(y, weights=np.broadcast_to(weight, y.shape)), 1e-6, 1 - 1e-6))
    beta[0] = np.log(share / (1 - share))
    line = rows @ beta
    loss = float(np.sum(weight * log_loss(line, y)) + 0.5 * penalty @ beta**2)
    for _ in range(STEPS):
        p = sigmoid(line)
        slope = rows.T @ (weight * (p - y)) + penalty * beta
        curve = np.diag(penalty)
        curvature_sum(rows, weight * p * (1 - p), curve)
        step = np.linalg.solve(curve, slope)
        if slope @ step < 1e-9:  # twice what is left to gain, to second order
            break
        size, move = 1.0, rows @ step
        while size > 1e-6:  # halve until the loss falls: Newton overshoots only far from the minimum
            new = float(np.sum(weight * log_loss(line - size * move, y)))
            new += float(0.5 * penalty @ (beta - size * step) ** 2)
            if new <= loss:
                break
            size *= 0.5
        beta, line, loss = beta - size * step, line - size * move, new
    if not np.isfinite(beta).all():
        raise TrainingError("logistic regression did not converge: scores are too extreme; rescale them.")
    return beta


@dataclass(kw_only=True, eq=False)
class Logistic(Estimator):
    """Log-odds as a sum of one bent line per column; with no knots, of straight ones.

    Irrelevant rows beyond `n_rows` are thinned and the rest weighted up: they are many and much alike.
    """

    quantiles: tuple[float, ...] = ()  # where the lines may bend
    ridge: float = 1.0
    n_rows: int = 100_000
    seed: int = 0

    def learn(self, columns: Doubles, y: Doubles) -> Self:
        """columns (n_rows, n_columns), y (n_rows,) in {0, 1}."""
        share = min(1.0, self.n_rows / max(float((1 - y).sum()), 1.0))
        taken = (y > 0) | (np.random.default_rng(self.seed).random(y.size) < share)
        columns, y = columns[taken], y[taken]
        if self.quantiles:
            self.edges_ = np.quantile(columns, EDGES, axis=0)
            columns = np.clip(columns, *self.edges_)
        knots = [np.unique(np.quantile(column, self.quantiles)) for column in columns.T]
        self.starts_ = np.cumsum([0, *(knot.size for knot in knots)])
        self.knots_ = np.concatenate(knots)
        bent = np.empty((y.size, columns.shape[1] + self.knots_.size))
        hinges_fill(columns, self.starts_, self.knots_, bent)
        center, spread = bent.mean(axis=0), bent.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        beta = logistic_fit((bent - center) / scale, y, np.where(y > 0, 1.0, 1 / share), self.ridge)
        self.slopes_ = np.where(spread > 1e-9, beta[1:] / scale, 0.0)
        self.height_ = float(beta[0] - self.slopes_ @ center)
        return self

    def log_odds(self, columns: Doubles) -> Doubles:
        """(n_rows,)."""
        if self.quantiles:
            columns = np.clip(columns, *self.edges_)
        line = np.full(columns.shape[0], self.height_)
        hinges_sum(columns, self.starts_, self.knots_, self.slopes_, line)
        return line
