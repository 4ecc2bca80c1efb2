"""Alternating least squares in a basis where the products of all pairs are diagonal.

Given the vectors v of the items, the vector w of a user minimizes

    Σ c (t − w·v)² over the user's items + Σ g w² + penalty · ‖w‖²,

where diag(g) is the weight of all pairs times Σ v v'.

The vectors are rotated so that the last sum has no mixed terms. A user with few items is then solved exactly
by a system as large as their number (Woodbury's identity), others by conjugate gradients, preconditioned by
the diagonal.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Floats, Ints, Longs

ZERO, ONE = np.float32(0), np.float32(1)
FEW = 24  # pairs up to which a row is solved exactly


class ConfidenceRows(NamedTuple):
    """Sparse rows: the items of users, or the users of items."""

    indptr: Longs  # (n + 1,)
    columns: Ints  # (n_pairs,)
    confidence: Floats  # (n_pairs,) c if the target t is 1, −c if it is 0


class FixedSide(NamedTuple):
    """The vectors that stay while the others are solved."""

    vectors: Floats  # (n_columns, width)
    gram: Floats  # (width,) g


class RowPairs(NamedTuple):
    """One sparse row."""

    columns: Ints  # (n,)
    confidence: Floats  # (n,)


class SolveScratch(NamedTuple):
    """Memory for one vector at a time."""

    panel: Floats  # (FEW, width) vectors of the pairs, divided by the root of the diagonal
    system: Floats  # (FEW, FEW)
    right: Floats  # (FEW,)
    diagonal: Floats  # (width,) g + penalty
    scale: Floats  # (width,) one divided by the diagonal of the whole system, or by its root
    steps: Floats  # (4, width) residual, direction, its product with the system, start


@inlined
def _dot(p: Floats, q: Floats) -> np.float32:
    """Return the inner product of two rows."""
    total = ZERO
    for k in range(p.size):
        total += p[k] * q[k]
    return total


@inlined
def _add(p: Floats, q: Floats, scale: np.float32) -> None:
    """Add scale · q to p."""
    for k in range(p.size):
        p[k] += scale * q[k]


@inlined
def _solve_few(
    pairs: RowPairs,
    fixed: FixedSide,
    scratch: SolveScratch,
    vector: Floats,
) -> None:
    """Solve a row of at most FEW pairs exactly; the vector is 0 before."""
    n, width = pairs.columns.size, fixed.gram.size
    panel, system, right = scratch.panel, scratch.system, scratch.right
    for j in range(width):
        scratch.scale[j] = ONE / np.sqrt(scratch.diagonal[j])
    for a in range(n):
        item = pairs.columns[a]
        for j in range(width):
            panel[a, j] = fixed.vectors[item, j] * scratch.scale[j]
        for b in range(a + 1):
            system[a, b] = _dot(panel[a], panel[b])
        system[a, a] += ONE / abs(pairs.confidence[a])
    for a in range(n):  # Cholesky by rows, and forward substitution; the diagonal holds inverses
        for b in range(a):
            total = system[a, b]
            for c in range(b):
                total -= system[a, c] * system[b, c]
            system[a, b] = total * system[b, b]
        total = system[a, a]
        amount = ONE if pairs.confidence[a] > 0 else ZERO
        for c in range(a):
            total -= system[a, c] * system[a, c]
            amount -= system[a, c] * right[c]
        system[a, a] = ONE / np.sqrt(total)
        right[a] = amount * system[a, a]
    for back in range(n):
        a = n - 1 - back
        right[a] *= system[a, a]
        for c in range(a):
            right[c] -= system[a, c] * right[a]
        _add(vector, panel[a], right[a])
    for j in range(width):
        vector[j] *= scratch.scale[j]


@inlined
def _solve_many(
    pairs: RowPairs,
    fixed: FixedSide,
    n_steps: int,
    tolerance: np.float32,
    scratch: SolveScratch,
    vector: Floats,
) -> int:
    """Improve a vector by conjugate gradients; return the number of steps."""
    width, diagonal, inverse, steps = fixed.gram.size, scratch.diagonal, scratch.scale, scratch.steps
    residual, direction, product = steps[0], steps[1], steps[2]
    for j in range(width):
        residual[j] = -diagonal[j] * vector[j]
        inverse[j] = diagonal[j]
    for k in range(pairs.columns.size):
        item, weight = pairs.columns[k], abs(pairs.confidence[k])
        other = fixed.vectors[item]
        target = ONE if pairs.confidence[k] > 0 else ZERO
        _add(residual, other, weight * (target - _dot(other, vector)))
        for j in range(width):
            inverse[j] += weight * other[j] * other[j]
    now = ZERO
    for j in range(width):
        inverse[j] = ONE / inverse[j]
        direction[j] = residual[j] * inverse[j]
        now += residual[j] * direction[j]
    last = tolerance * tolerance * now
    for step in range(n_steps):
        if now <= last:
            return step
        for j in range(width):
            product[j] = diagonal[j] * direction[j]
        for k in range(pairs.columns.size):
            other = fixed.vectors[pairs.columns[k]]
            _add(product, other, abs(pairs.confidence[k]) * _dot(other, direction))
        length = now / _dot(direction, product)
        _add(vector, direction, length)
        _add(residual, product, -length)
        before, now = now, ZERO
        for j in range(width):
            product[j] = residual[j] * inverse[j]
            now += residual[j] * product[j]
        for j in range(width):
            direction[j] = product[j] + now / before * direction[j]
    return n_steps


@kernel
def solve_rows(
    rows: ConfidenceRows,
    fixed: FixedSide,
    penalty: Floats,  # (n,)
    basis: Floats,  # (width, width) that start values are multiplied by; (0, 0): they are 0
    n_steps: int,  # of conjugate gradients, at most
    tolerance: np.float32,  # share of the preconditioned residual at which they end
    vectors: Floats,  # (n, width) start values, replaced by the solution
) -> int:
    """Solve the vectors one by one; return the number of steps of conjugate gradients."""
    n_done, width = 0, vectors.shape[1]
    scratch = SolveScratch(
        np.empty((FEW, width), np.float32),
        np.empty((FEW, FEW), np.float32),
        np.empty(FEW, np.float32),
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty((4, width), np.float32),
    )
    for u in range(vectors.shape[0]):
        entries = slice(rows.indptr[u], rows.indptr[u + 1])
        pairs = RowPairs(rows.columns[entries], rows.confidence[entries])
        vector = vectors[u]
        for j in range(width):
            scratch.diagonal[j] = fixed.gram[j] + penalty[u]
            scratch.steps[3, j] = vector[j]
            vector[j] = ZERO
        if pairs.columns.size <= FEW:
            _solve_few(pairs, fixed, scratch, vector)
            continue
        for j in range(basis.shape[0]):
            _add(vector, basis[j], scratch.steps[3, j])
        n_done += _solve_many(pairs, fixed, n_steps, tolerance, scratch, vector)
    return n_done
