"""Linear algebra of generalized linear models: one thread, a fixed order of sums, the same bits everywhere.

A BLAS library would split the same sums by the number of its threads.
"""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Longs


@kernel
def multiply_rows(rows: Doubles, beta: Doubles, out: Doubles) -> None:
    """out (n_rows,) = rows · beta."""
    for row in range(rows.shape[0]):
        total = 0.0
        for column in range(beta.size):
            total += rows[row, column] * beta[column]
        out[row] = total


@kernel
def add_gradient(rows: Doubles, residual: Doubles, out: Doubles) -> None:
    """out (n_columns,) += rowsᵀ · residual; residual (n_rows,)."""
    for row in range(rows.shape[0]):
        for column in range(out.size):
            out[column] += rows[row, column] * residual[row]


@kernel
def solve_positive(matrices: Doubles, vectors: Doubles, out: Doubles) -> None:
    """out (n, p): solutions of n systems, by Cholesky; `matrices` (n, p, p) are overwritten."""
    for number in range(matrices.shape[0]):  # NaN if a matrix is not positive definite
        lower, x = matrices[number], out[number]
        n = x.size
        for a in range(n):
            for b in range(a + 1):
                total = lower[a, b]
                for k in range(b):
                    total -= lower[a, k] * lower[b, k]
                lower[a, b] = total / lower[b, b] if b < a else np.sqrt(total) if total > 0 else np.nan
            x[a] = vectors[number, a]
            for k in range(a):
                x[a] -= lower[a, k] * x[k]
            x[a] /= lower[a, a]
        for a in range(n - 1, -1, -1):
            for k in range(a + 1, n):
                x[a] -= lower[k, a] * x[k]
            x[a] /= lower[a, a]


@kernel
def add_curvature(rows: Doubles, weight: Doubles, out: Doubles) -> None:
    """out (n_columns, n_columns) += rowsᵀ · diag(weight) · rows; weight (n_rows,)."""
    n, n_rows = rows.shape[1], rows.shape[0]
    whole = n_rows - n_rows % 4
    for row in range(0, whole, 4):  # four at once: each sum is read and written once for all of them
        p, q, r, s = rows[row], rows[row + 1], rows[row + 2], rows[row + 3]
        for a in range(n):
            by_p, by_q = weight[row] * p[a], weight[row + 1] * q[a]
            by_r, by_s = weight[row + 2] * r[a], weight[row + 3] * s[a]
            line = out[a]
            for b in range(a + 1):
                line[b] += (by_p * p[b] + by_q * q[b]) + (by_r * r[b] + by_s * s[b])
    for row in range(whole, n_rows):
        x = rows[row]
        for a in range(n):
            line = out[a]
            for b in range(a + 1):
                line[b] += weight[row] * x[a] * x[b]
    for a in range(n):
        for b in range(a):
            out[b, a] = out[a, b]


@kernel
def fill_hinges(columns: Doubles, starts: Longs, knots: Doubles, out: Doubles) -> None:
    """out (n_rows, n_columns + n_knots): each column, then max(column - knot, 0) for its knots."""
    for row in range(columns.shape[0]):
        at = 0
        for j in range(columns.shape[1]):
            out[row, at] = columns[row, j]
            at += 1
            for k in range(starts[j], starts[j + 1]):
                out[row, at] = max(columns[row, j] - knots[k], 0.0)
                at += 1


@kernel
def add_hinges(columns: Doubles, starts: Longs, knots: Doubles, beta: Doubles, out: Doubles) -> None:
    """out (n_rows,) += the columns of `fill_hinges` times beta, without storing them."""
    for row in range(columns.shape[0]):
        at, total = 0, 0.0
        for j in range(columns.shape[1]):
            x = columns[row, j]
            total += beta[at] * x
            at += 1
            for k in range(starts[j], starts[j + 1]):
                if x <= knots[k]:
                    at += starts[j + 1] - k  # knots ascend: x is below the others too
                    break
                total += beta[at] * (x - knots[k])
                at += 1
        out[row] += total
