"""Linear algebra of generalized linear models and of curves of scores, in a fixed order of sums.

A BLAS library would split the same sums by the number of its threads.
"""

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Ints, Longs


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


@inlined
def solve_cholesky(matrix: Doubles, x: Doubles, least: float) -> None:
    """Replace x (n,) by matrix⁻¹ · x; squared pivots are at least `least`, the matrix is overwritten."""
    n = x.size
    for a in range(n):
        for b in range(a + 1):
            total = matrix[a, b]
            for k in range(b):
                total -= matrix[a, k] * matrix[b, k]
            matrix[a, b] = total / matrix[b, b] if b < a else np.sqrt(max(total, least))
        for k in range(a):
            x[a] -= matrix[a, k] * x[k]
        x[a] /= matrix[a, a]
    for a in range(n - 1, -1, -1):
        for k in range(a + 1, n):
            x[a] -= matrix[k, a] * x[k]
        x[a] /= matrix[a, a]


@kernel
def solve_positive(matrices: Doubles, vectors: Doubles, out: Doubles) -> None:
    """out (n, p): solutions of n systems; `matrices` (n, p, p) are overwritten.

    A solution is not finite if its matrix is not positive definite.
    """
    for number in range(matrices.shape[0]):
        for a in range(vectors.shape[1]):
            out[number, a] = vectors[number, a]
        solve_cholesky(matrices[number], out[number], -np.inf)


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


# ---------------------------------------------------------------------- curves of scores and utilities


@kernel
def fill_shapes(indptr: Longs, scores: Doubles, ranks: Longs, out: Doubles) -> None:
    """out (n_lists, ≥ 2 · n_ranks + 1): scores at these ranks, raw and standardized in the list, log length.

    A list that ends earlier has its last score at the later ranks. An empty list has zeros.
    """
    n_ranks = ranks.size
    for number in range(indptr.size - 1):
        row = scores[indptr[number] : indptr[number + 1]]
        n = row.size
        mean, spread = 0.0, 0.0
        for k in range(n):
            mean += row[k]
        mean /= max(n, 1)
        for k in range(n):
            spread += (row[k] - mean) ** 2
        spread = np.sqrt(spread / max(n, 1))
        for j in range(n_ranks):
            value = row[min(ranks[j], n) - 1] if n else 0.0
            out[number, j] = value
            out[number, n_ranks + j] = (value - mean) / spread if spread > 1e-9 * abs(mean) and n else 0.0
        out[number, 2 * n_ranks] = np.log(max(n, 1))


@kernel
def add_curve_products(
    rows: Doubles,  # (n_lists, n_columns)
    indptr: Longs,  # (n_lists + 1,)
    utilities: Doubles,  # (n_candidates,) utility of the list that ends with each candidate
    fold: Ints,  # (n_lists,)
    out: Doubles,  # (n_folds, n_lengths, n_columns)
) -> None:
    """out[f] += utility of every length times the columns, over lists of fold f; short lists count whole."""
    for number in range(indptr.size - 1):
        start, length = indptr[number], indptr[number + 1] - indptr[number]
        if length == 0:
            continue
        total, row = out[fold[number]], rows[number]
        for k in range(total.shape[0]):
            utility = utilities[start + min(k, length - 1)]
            line = total[k]
            for column in range(row.size):
                line[column] += utility * row[column]


@kernel
def find_best_lengths(rows: Doubles, indptr: Longs, weights: Doubles, lengths: Ints) -> None:
    """lengths (n_lists,): where rows · weightsᵀ is largest, the shortest of equals; 0 without candidates.

    weights: (n_lengths, n_columns).
    """
    for number in range(indptr.size - 1):
        longest = min(indptr[number + 1] - indptr[number], weights.shape[0])
        row, best, lengths[number] = rows[number], -np.inf, 0
        for k in range(longest):
            value, line = 0.0, weights[k]
            for column in range(row.size):
                value += row[column] * line[column]
            if value > best:
                best, lengths[number] = value, k + 1
