"""Kernels of GFCF: scores along the paths item – user – item, and orthonormal columns."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Floats, Ints, Longs

DEPENDENT = 1e-7  # share of a squared norm below which a column is a combination of those before it
DIAGONAL, MAX_SWEEPS = 1e-24, 30  # squared share off the diagonal at which rotations end, and at most


class WeightedRows(NamedTuple):
    """A sparse matrix by rows."""

    indptr: Longs  # (n + 1,)
    columns: Ints  # (n_entries,)
    values: Floats  # (n_entries,)


@kernel
def follow_paths(
    queries: WeightedRows,  # (n, n_items)
    by_item: WeightedRows,  # (n_items, n_users)
    by_user: WeightedRows,  # (n_users, n_items), the same matrix transposed
    out: Floats,  # (n, n_items), to which queries @ by_item @ by_user is added
) -> None:
    """Multiply without the item–item matrix."""
    n_users = by_user.indptr.size - 1
    weight, touched = np.zeros(n_users, np.float32), np.empty(n_users, np.int32)
    is_touched = np.zeros(n_users, np.bool_)
    for row in range(queries.indptr.size - 1):
        n = 0
        for entry in range(queries.indptr[row], queries.indptr[row + 1]):
            item, amount = queries.columns[entry], queries.values[entry]
            for at in range(by_item.indptr[item], by_item.indptr[item + 1]):
                user = by_item.columns[at]
                if not is_touched[user]:
                    is_touched[user] = True
                    touched[n] = user
                    n += 1
                weight[user] += amount * by_item.values[at]
        for place in range(n):
            user = touched[place]
            amount = weight[user]
            weight[user], is_touched[user] = 0, False
            for at in range(by_user.indptr[user], by_user.indptr[user + 1]):
                out[row, by_user.columns[at]] += amount * by_user.values[at]


@kernel
def orthonormalize(
    gram: Doubles,  # (n, n) Y'Y
    change: Floats,  # (n, n), replaced by T: the columns of Y·T are orthonormal, dependent ones are 0
) -> None:
    """Gram and Schmidt's method from the inner products alone."""
    n = gram.shape[0]
    upper, inverse = np.zeros((n, n)), np.zeros((n, n))
    for j in range(n):
        rest = gram[j, j]
        for k in range(j):
            rest -= upper[k, j] * upper[k, j]
        if rest > DEPENDENT * gram[j, j] and rest > 0:
            root = np.sqrt(rest)
            upper[j, j] = root
            for c in range(j + 1, n):
                upper[j, c] = gram[j, c]
            for k in range(j):
                factor = upper[k, j]
                if factor != 0:
                    for c in range(j + 1, n):
                        upper[j, c] -= factor * upper[k, c]
            for c in range(j + 1, n):
                upper[j, c] /= root
            inverse[j, j] = 1 / root  # row j holds column j of T
            for k in range(j):
                factor = upper[k, j] / root
                if factor != 0:
                    for c in range(k + 1):
                        inverse[j, c] -= factor * inverse[k, c]
    for j in range(n):
        for k in range(n):
            change[k, j] = inverse[j, k]


@kernel
def diagonalize(
    matrix: Doubles,  # (n, n) symmetric, replaced by one whose diagonal holds the eigenvalues
    vectors: Doubles,  # (n, n), replaced by the eigenvectors, one per row
) -> None:
    """Jacobi's rotations until the matrix is diagonal; LAPACK's bits depend on its number of threads."""
    n = matrix.shape[0]
    vectors[:] = 0
    for k in range(n):
        vectors[k, k] = 1
    for _ in range(MAX_SWEEPS):
        rest, total = 0.0, 0.0
        for p in range(n):
            total += matrix[p, p] * matrix[p, p]
            for q in range(p):
                rest += matrix[p, q] * matrix[p, q]
        if rest <= DIAGONAL * total:
            break
        for p in range(n - 1):
            for q in range(p + 1, n):
                if matrix[p, q] == 0:
                    continue
                theta = (matrix[q, q] - matrix[p, p]) / (2 * matrix[p, q])
                tangent = (1.0 if theta >= 0 else -1.0) / (abs(theta) + np.sqrt(theta * theta + 1))
                cosine = 1 / np.sqrt(tangent * tangent + 1)
                sine = tangent * cosine
                for k in range(n):
                    a, b = matrix[k, p], matrix[k, q]
                    matrix[k, p], matrix[k, q] = cosine * a - sine * b, sine * a + cosine * b
                for k in range(n):
                    a, b = matrix[p, k], matrix[q, k]
                    matrix[p, k], matrix[q, k] = cosine * a - sine * b, sine * a + cosine * b
                    a, b = vectors[p, k], vectors[q, k]
                    vectors[p, k], vectors[q, k] = cosine * a - sine * b, sine * a + cosine * b
