"""Kernels of item–item models: paths item – user – item, singular vectors, weights of nearest items."""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.kernels.sparse import SparseRows
from shortlist.types import Doubles, Floats, Ints, Longs

DEPENDENT = 1e-7  # share of a squared norm below which a column is a combination of those before it
ORTHOGONAL, MAX_SWEEPS = 1e-9, 30  # cosine of two rows at which they are not rotated, and sweeps at most


@kernel
def follow_paths(
    queries: SparseRows,  # (n, n_items)
    by_item: SparseRows,  # (n_items, n_users)
    by_user: SparseRows,  # (n_users, n_items), the same matrix transposed
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
    matrix: Doubles,  # (n, n) symmetric and positive semidefinite; overwritten
    vectors: Doubles,  # (n, n), replaced by the eigenvectors, one per row
    values: Doubles,  # (n,), replaced by the eigenvalues
) -> None:
    """Rotate pairs of rows until all are orthogonal (Hestenes); LAPACK's bits depend on its threads."""
    n = matrix.shape[0]
    vectors[:] = 0
    for k in range(n):
        vectors[k, k] = 1
    for _ in range(MAX_SWEEPS):
        n_rotated = 0
        for p in range(n - 1):
            for q in range(p + 1, n):
                a, b, c = 0.0, 0.0, 0.0
                for k in range(n):
                    a += matrix[p, k] * matrix[p, k]
                    b += matrix[q, k] * matrix[q, k]
                    c += matrix[p, k] * matrix[q, k]
                if abs(c) <= ORTHOGONAL * np.sqrt(a * b):
                    continue
                n_rotated += 1
                theta = (b - a) / (2 * c)
                tangent = (1.0 if theta >= 0 else -1.0) / (abs(theta) + np.sqrt(theta * theta + 1))
                cosine = 1 / np.sqrt(tangent * tangent + 1)
                sine = tangent * cosine
                for k in range(n):
                    x, y = matrix[p, k], matrix[q, k]
                    matrix[p, k], matrix[q, k] = cosine * x - sine * y, sine * x + cosine * y
                    x, y = vectors[p, k], vectors[q, k]
                    vectors[p, k], vectors[q, k] = cosine * x - sine * y, sine * x + cosine * y
        if not n_rotated:
            break
    for p in range(n):
        values[p] = 0
        for k in range(n):
            values[p] += matrix[p, k] * vectors[p, k]


@kernel
def multiply_sparse(
    rows: SparseRows,  # (n, m)
    dense: Floats,  # (m, width)
    out: Floats,  # (n, width), replaced by rows @ dense
) -> None:
    """Multiply a sparse matrix by a dense one, row by row."""
    for row in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[row, c] = 0
        for at in range(rows.indptr[row], rows.indptr[row + 1]):
            column, value = rows.columns[at], rows.values[at]
            for c in range(out.shape[1]):
                out[row, c] += value * dense[column, c]


@kernel
def solve_neighbors(
    by_item: SparseRows,  # (n_items, n_users) X'
    n_users: int,
    targets: Ints,  # (n,) items whose weights are wanted
    indptr: Longs,  # (n + 1,)
    neighbors: Ints,  # (n_weights,) the items that each target is explained by, without itself
    reg: float,
    out: Floats,  # (n_weights,) written
) -> None:
    """Regress every target on its neighbors: minimize ‖x − X·w‖² + reg·‖w‖².

    Users hold linked lists of their entries in the matrix of the target, so that its inner products are
    summed without an item–item matrix.
    """
    last, widest = np.full(n_users, -1, np.int64), 0
    for t in range(targets.size):
        widest = max(widest, indptr[t + 1] - indptr[t])
    system, right = np.zeros((widest + 1, widest + 1)), np.zeros(widest + 1)
    for t in range(targets.size):
        first, k = indptr[t], indptr[t + 1] - indptr[t]
        n_entries = 0
        for a in range(k + 1):
            item = neighbors[first + a] if a < k else targets[t]
            n_entries += by_item.indptr[item + 1] - by_item.indptr[item]
            for b in range(a + 1):
                system[a, b] = 0
            system[a, a] = reg
        before, place, value = (
            np.empty(n_entries, np.int64),
            np.empty(n_entries, np.int32),
            np.empty(n_entries, np.float32),
        )
        n_entries = 0
        for a in range(k + 1):
            item = neighbors[first + a] if a < k else targets[t]
            for at in range(by_item.indptr[item], by_item.indptr[item + 1]):
                user, amount = by_item.columns[at], by_item.values[at]
                before[n_entries], place[n_entries], value[n_entries] = last[user], a, amount
                last[user] = n_entries
                entry = n_entries
                while entry >= 0:
                    system[a, place[entry]] += np.float64(amount) * np.float64(value[entry])
                    entry = before[entry]
                n_entries += 1
        for a in range(k + 1):
            item = neighbors[first + a] if a < k else targets[t]
            for at in range(by_item.indptr[item], by_item.indptr[item + 1]):
                last[by_item.columns[at]] = -1
        for a in range(k):  # Cholesky by rows, without that of the target
            for b in range(a):
                total = system[a, b]
                for c in range(b):
                    total -= system[a, c] * system[b, c]
                system[a, b] = total / system[b, b]
            total = system[a, a]
            for c in range(a):
                total -= system[a, c] * system[a, c]
            system[a, a] = np.sqrt(total)
        for a in range(k):
            total = system[k, a]
            for c in range(a):
                total -= system[a, c] * right[c]
            right[a] = total / system[a, a]
        for back in range(k):
            a = k - 1 - back
            right[a] /= system[a, a]
            for c in range(a):
                right[c] -= system[a, c] * right[a]
            out[first + a] = right[a]
