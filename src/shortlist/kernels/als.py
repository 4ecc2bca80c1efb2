"""Alternating least squares in a basis where the products of all pairs are diagonal.

Given the vectors v of the items, the vector w of a user minimizes

    Σ c (t − w·v)² over the user's items + Σ g w² + penalty · ‖w‖²,

where diag(g) is the weight of all pairs times Σ v v'.

The vectors are rotated so that the last sum has no mixed terms. A user with few items is then solved exactly
by a system as large as their number (Woodbury's identity), others by conjugate gradients, preconditioned by
the diagonal.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.simd import (
    ADDRESS,
    EIGHT,
    F32,
    FUSED,
    I64,
    LANES,
    _lane_sum,
    _load,
    row_at,
    splat,
    vector_code,
)
from shortlist.kernels.tiles import SIDE
from shortlist.types import Floats, Ints, Longs

ZERO, ONE = np.float32(0), np.float32(1)
FEW = 24  # pairs up to which a row is solved exactly
PIECES = SIDE // LANES


class ConfidenceRows(NamedTuple):
    """Sparse rows: the items of users, or the users of items."""

    indptr: Longs  # (n + 1,)
    columns: Ints  # (n_pairs,)
    confidence: Floats  # (n_pairs,) c if the target t is 1, −c if it is 0


class FixedSide(NamedTuple):
    """The vectors that stay while the others are solved."""

    vectors: Floats  # (n_columns, width), width a multiple of SIDE
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


@vector_code(types.float32, ADDRESS, ADDRESS, types.intp)
def dot_blocks(builder: Any, left: Any, right: Any, n_blocks: Any) -> Any:
    """Return the inner product of two rows of n_blocks · SIDE floats."""
    p, q = (builder.inttoptr(address, F32.as_pointer()) for address in (left, right))
    zero = ir.Constant(EIGHT, [0.0] * LANES)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(PIECES)]  # type: ignore[no-untyped-call]
    for total in sums:
        builder.store(zero, total)
    with cgutils.for_range(builder, n_blocks) as loop:
        first = builder.mul(loop.index, ir.Constant(I64, SIDE))
        for number, total in enumerate(sums):
            at = builder.add(first, ir.Constant(I64, number * LANES))
            product = builder.fmul(*(_load(builder, row, at, EIGHT) for row in (p, q)), flags=FUSED)
            builder.store(builder.fadd(builder.load(total), product, flags=FUSED), total)
    values = [builder.load(total) for total in sums]
    while len(values) > 1:
        values = [builder.fadd(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
    return _lane_sum(builder, values[0])


@vector_code(types.void, ADDRESS, ADDRESS, types.float32, types.intp)
def add_blocks(builder: Any, out: Any, row: Any, scale: Any, n_blocks: Any) -> None:
    """Add scale times a row of n_blocks · SIDE floats to another."""
    target, source = (builder.inttoptr(address, F32.as_pointer()) for address in (out, row))
    factor = splat(builder, scale, EIGHT)
    with cgutils.for_range(builder, n_blocks) as loop:
        first = builder.mul(loop.index, ir.Constant(I64, SIDE))
        for number in range(PIECES):
            at = builder.add(first, ir.Constant(I64, number * LANES))
            product = builder.fmul(factor, _load(builder, source, at, EIGHT), flags=FUSED)
            place = builder.bitcast(builder.gep(target, [at]), EIGHT.as_pointer())
            builder.store(builder.fadd(builder.load(place, align=4), product, flags=FUSED), place, align=4)


@inlined
def _solve_few(
    pairs: RowPairs,
    fixed: FixedSide,
    scratch: SolveScratch,
    vector: Floats,
    address: np.uintp,
) -> None:
    """Solve a row of at most FEW pairs exactly; the vector is 0 before."""
    n, width = pairs.columns.size, fixed.gram.size
    n_blocks, panel, system, right = width // SIDE, scratch.panel, scratch.system, scratch.right
    for j in range(width):
        scratch.scale[j] = ONE / np.sqrt(scratch.diagonal[j])
    for a in range(n):
        item = pairs.columns[a]
        for j in range(width):
            panel[a, j] = fixed.vectors[item, j] * scratch.scale[j]
        for b in range(a + 1):
            system[a, b] = dot_blocks(row_at(panel, a), row_at(panel, b), n_blocks)
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
        add_blocks(address, row_at(panel, a), right[a], n_blocks)
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
    address: np.uintp,
) -> int:
    """Improve a vector by conjugate gradients; return the number of steps."""
    width, diagonal, inverse = fixed.gram.size, scratch.diagonal, scratch.scale
    n_blocks, steps = width // SIDE, scratch.steps
    residual, direction, product = row_at(steps, 0), row_at(steps, 1), row_at(steps, 2)
    for j in range(width):
        steps[0, j] = -diagonal[j] * vector[j]
        inverse[j] = diagonal[j]
    for k in range(pairs.columns.size):
        item, weight = pairs.columns[k], abs(pairs.confidence[k])
        other = row_at(fixed.vectors, item)
        target = ONE if pairs.confidence[k] > 0 else ZERO
        add_blocks(residual, other, weight * (target - dot_blocks(other, address, n_blocks)), n_blocks)
        for j in range(width):
            inverse[j] += weight * fixed.vectors[item, j] * fixed.vectors[item, j]
    now = ZERO
    for j in range(width):
        inverse[j] = ONE / inverse[j]
        steps[1, j] = steps[0, j] * inverse[j]
        now += steps[0, j] * steps[1, j]
    last = tolerance * tolerance * now
    for step in range(n_steps):
        if now <= last:
            return step
        for j in range(width):
            steps[2, j] = diagonal[j] * steps[1, j]
        for k in range(pairs.columns.size):
            other = row_at(fixed.vectors, pairs.columns[k])
            amount = abs(pairs.confidence[k]) * dot_blocks(other, direction, n_blocks)
            add_blocks(product, other, amount, n_blocks)
        length = now / dot_blocks(direction, product, n_blocks)
        add_blocks(address, direction, length, n_blocks)
        add_blocks(residual, product, -length, n_blocks)
        before, now = now, ZERO
        for j in range(width):
            steps[2, j] = steps[0, j] * inverse[j]
            now += steps[0, j] * steps[2, j]
        for j in range(width):
            steps[1, j] = steps[2, j] + now / before * steps[1, j]
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
        vector, address = vectors[u], row_at(vectors, u)
        for j in range(width):
            scratch.diagonal[j] = fixed.gram[j] + penalty[u]
            scratch.steps[3, j] = vector[j]
            vector[j] = ZERO
        if pairs.columns.size <= FEW:
            _solve_few(pairs, fixed, scratch, vector, address)
            continue
        for j in range(basis.shape[0]):
            add_blocks(address, row_at(basis, j), scratch.steps[3, j], width // SIDE)
        n_done += _solve_many(pairs, fixed, n_steps, tolerance, scratch, vector, address)
    return n_done
