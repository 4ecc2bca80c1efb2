"""Kernels of a plain matrix: paths item – user – item, rotations, weights of nearest items."""

import numpy as np

from shortlist.kernels.jit import kernel
from shortlist.kernels.simd import row_at
from shortlist.kernels.sparse import SparseRows
from shortlist.kernels.tiles import SIDE, add_tile
from shortlist.types import Floats, Ints, Longs


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
