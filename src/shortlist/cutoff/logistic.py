"""Logistic regression by Newton's method: a convex problem with few columns needs nothing more."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from shortlist.cutoff.component import Component
from shortlist.errors import TrainingError
from shortlist.types import Doubles

STEPS = 100


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
    loss = np.sum(weight * log_loss(rows @ beta, y)) + 0.5 * penalty @ beta**2
    for _ in range(STEPS):
        p = sigmoid(rows @ beta)
        slope = rows.T @ (weight * (p - y)) + penalty * beta
        curve = (rows * (weight * p * (1 - p))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        size = 1.0
        while True:  # halve until the loss falls: Newton overshoots only far from the minimum
            new = beta - size * step
            new_loss = np.sum(weight * log_loss(rows @ new, y)) + 0.5 * penalty @ new**2
            if new_loss <= loss or size < 1e-6:
                break
            size *= 0.5
        done = float(np.abs(new - beta).max()) < 1e-9 * (1 + float(np.abs(beta).max()))
        beta, loss = new, new_loss
        if done or size < 1e-6:
            break
    if not np.isfinite(beta).all():
        raise TrainingError("logistic regression did not converge: scores are too extreme; rescale them.")
    return beta


@dataclass(kw_only=True, eq=False)
class Logistic(Component):
    """A line in the log-odds over columns that are centred and scaled first."""

    ridge: float = 1.0

    def learn(self, columns: Doubles, y: Doubles) -> Self:
        """columns (n_rows, n_columns), y (n_rows,) in {0, 1}."""
        self.center_: Doubles = columns.mean(axis=0)
        spread: Doubles = columns.std(axis=0)
        self.scale_ = np.where(spread > 1e-9, spread, 1.0)
        self.beta_ = logistic_fit((columns - self.center_) / self.scale_, y, ridge=self.ridge)
        return self

    def log_odds(self, columns: Doubles) -> Doubles:
        """(n_rows,)."""
        line: Doubles = self.beta_[0] + ((columns - self.center_) / self.scale_) @ self.beta_[1:]
        return line
