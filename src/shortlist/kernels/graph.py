"""Kernels of a plain matrix: paths item – user – item, rotations, eigenvectors, weights of nearest items."""

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.simd import row_at
from shortlist.kernels.sparse import SparseRows
from shortlist.kernels.tiles import SIDE, add_tile
from shortlist.types import Doubles, Floats, Ints, Longs

PRECISION, MAX_ROTATIONS = 1e-16, 60  # relative size of what counts as 0, and steps per eigenvalue


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
def rotate_rows(
    rows: Floats,  # (n, width)
    basis: Floats,  # (width, width)
    out: Floats,  # (n, width), replaced by rows @ basis
) -> None:
    """Multiply, SIDE rows at a time."""
    n, width = rows.shape
    panel, tile = np.zeros((width, SIDE), np.float32), np.empty((SIDE, width), np.float32)
    for start in range(0, n, SIDE):
        size = min(SIDE, n - start)
        for k in range(size):
            for j in range(width):
                panel[j, k] = rows[start + k, j]
        tile[:] = 0
        for q in range(0, width, SIDE):
            shift = np.uintp(4 * q)
            right, target = row_at(basis, 0) + shift, row_at(tile, 0) + shift
            add_tile(row_at(panel, 0), SIDE, right, width, width, target, width)
        for k in range(size):
            for j in range(width):
                out[start + k, j] = tile[k, j]


@inlined
def _rotate_to_diagonal(vectors: Doubles, values: Doubles, beside: Doubles) -> None:
    """Implicit QL steps on a tridiagonal matrix; the rows of the vectors are rotated likewise."""
    n = values.size
    largest = 0.0
    for k in range(n):
        largest = max(largest, abs(values[k]) + abs(beside[k]))
    tiny = 1e-3 * PRECISION * largest
    for low in range(n):
        for _ in range(MAX_ROTATIONS):
            high = low
            while high < n - 1:
                near = abs(values[high]) + abs(values[high + 1])
                if abs(beside[high]) <= PRECISION * near + tiny:
                    break
                high += 1
            if high == low:
                break
            g = (values[low + 1] - values[low]) / (2 * beside[low])
            r = np.sqrt(g * g + 1)
            g = values[high] - values[low] + beside[low] / (g + (r if g >= 0 else -r))
            sine, cosine, shift = 1.0, 1.0, 0.0
            ended = False
            for back in range(high - low):
                i = high - 1 - back
                f, b = sine * beside[i], cosine * beside[i]
                r = np.sqrt(f * f + g * g)
                beside[i + 1] = r
                if r == 0:
                    values[i + 1] -= shift
                    beside[high] = 0
                    ended = True
                    break
                sine, cosine = f / r, g / r
                g = values[i + 1] - shift
                r = (values[i] - g) * sine + 2 * cosine * b
                shift = sine * r
                values[i + 1] = g + shift
                g = cosine * r - b
                upper, lower = vectors[i], vectors[i + 1]
                for j in range(n):
                    x, y = upper[j], lower[j]
                    lower[j] = sine * x + cosine * y
                    upper[j] = cosine * x - sine * y
            if not ended:
                values[low] -= shift
                beside[low] = g
                beside[high] = 0


@inlined
def _reduce_to_tridiagonal(matrix: Doubles, values: Doubles, beside: Doubles, reflections: Doubles) -> None:
    """Householder's reflections, one per row; the matrix is overwritten."""
    n, p = matrix.shape[0], values
    for k in range(n - 2):
        norm = 0.0
        for j in range(k + 1, n):
            norm += matrix[k, j] * matrix[k, j]
        norm = np.sqrt(norm)
        head = matrix[k, k + 1]
        beside[k] = -norm if head >= 0 else norm
        if norm == 0:
            continue
        size = np.sqrt(2 * norm * (norm + abs(head)))
        v = reflections[k]
        for j in range(k + 1, n):
            v[j] = matrix[k, j] / size
        v[k + 1] = (head - beside[k]) / size
        inner = 0.0
        for i in range(k + 1, n):
            p[i] = 0
            for j in range(k + 1, n):
                p[i] += matrix[i, j] * v[j]
            inner += p[i] * v[i]
        for j in range(k + 1, n):
            p[j] -= inner * v[j]
        for i in range(k + 1, n):
            a, b = 2 * v[i], 2 * p[i]
            for j in range(k + 1, n):
                matrix[i, j] -= a * p[j] + b * v[j]
    if n > 1:
        beside[n - 2] = matrix[n - 2, n - 1]
    for k in range(n):
        values[k] = matrix[k, k]


@kernel
def find_eigenvectors(
    matrix: Doubles,  # (n, n) symmetric; replaced by the eigenvectors, one per row
    values: Doubles,  # (n,), replaced by the eigenvalues
) -> None:
    """Reduce to a tridiagonal matrix, then rotate by QL steps; LAPACK's bits depend on its threads."""
    n = matrix.shape[0]
    beside, weight = np.zeros(n), np.empty(n)
    reflections, product = np.zeros((n, n)), np.zeros((n, n))
    _reduce_to_tridiagonal(matrix, values, beside, reflections)
    for k in range(n):
        product[k, k] = 1
    for back in range(n - 2):
        k = n - 3 - back
        v = reflections[k]
        for i in range(k + 1, n):
            weight[i] = 0
        for j in range(k + 1, n):
            for i in range(k + 1, n):
                weight[i] += v[j] * product[j, i]
        for j in range(k + 1, n):
            for i in range(k + 1, n):
                product[j, i] -= 2 * v[j] * weight[i]
    for k in range(n):
        for j in range(n):
            matrix[k, j] = product[j, k]
    _rotate_to_diagonal(matrix, values, beside)


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
