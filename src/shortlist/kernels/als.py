"""Alternating least squares in blocks of dimensions (iALS++; Rendle et al., 2021).

Given the vectors v of the items, the vector w of a user minimizes

    Σ c (t − w·v)² over the user's items + w'Gw + penalty · ‖w‖²,    G = weight of all pairs · Σ v v'.

A block of SIDE dimensions of w is solved exactly while the others stay; a sweep visits all blocks. The
matrices of the blocks are factorized once for all sweeps.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.simd import FloatPair, Width, add_row, row_at, row_dot
from shortlist.kernels.tiles import CHUNK, SIDE, add_upper_tile, scale_part
from shortlist.types import Floats, Ints, Longs

ZERO, ONE = np.float32(0), np.float32(1)
BLOCK_BYTES = np.uintp(4 * SIDE)
SMALLEST = np.float32(1e-20)  # pivot


class ConfidenceRows(NamedTuple):
    """Sparse rows: the items of users, or the users of items."""

    indptr: Longs  # (n + 1,)
    columns: Ints  # (n_pairs,)
    confidence: Floats  # (n_pairs,) c if the target t is 1, −c if it is 0


class FixedSide(NamedTuple):
    """The vectors that stay while the others are solved."""

    vectors: Floats  # (n_columns, width), width a multiple of SIDE
    gram: Floats  # (width, width) G


class RowPairs(NamedTuple):
    """One sparse row."""

    columns: Ints  # (n,)
    confidence: Floats  # (n,)


class SolveScratch(NamedTuple):
    """Memory for one vector at a time."""

    systems: Floats  # (n_blocks, SIDE, SIDE) the factorized matrices of the blocks
    panel: Floats  # (CHUNK, SIDE) rows of a block, times the root of their confidence
    residual: Floats  # (longest row,) target minus score
    right: Floats  # (1, SIDE)
    step: Floats  # (1, SIDE) change of a block


@inlined
def _factorize(system: Floats, width: Width) -> None:
    """Replace the upper triangle of a (SIDE, SIDE) matrix by U with U'U = matrix, its diagonal by 1 / U."""
    for j in range(SIDE):
        inverse = ONE / np.sqrt(max(system[j, j], SMALLEST))
        for c in range(SIDE):
            system[j, c] *= inverse
        system[j, j] = inverse
        for r in range(j + 1, SIDE):
            add_row(row_at(system, r), row_at(system, j), -system[j, r], width)


@inlined
def _solve(system: Floats, right: Floats, step: Floats, width: Width) -> None:
    """Write the solution to step (1, SIDE) and overwrite right (1, SIDE).

    What is below the diagonal of the system is undefined: it is multiplied by 0, or the product is unused.
    """
    for j in range(SIDE):
        step[0, j] = right[0, j] * system[j, j]
        add_row(row_at(right, 0), row_at(system, j), -step[0, j], width)
    for j in range(SIDE):
        right[0, j] = step[0, j]
        step[0, j] = ZERO
    for back in range(SIDE):
        j = SIDE - 1 - back
        step[0, j] = (right[0, j] - row_dot(row_at(system, j), row_at(step, 0), width)) * system[j, j]


@inlined
def _prepare_blocks(
    pairs: RowPairs, fixed: FixedSide, penalty: np.float32, scratch: SolveScratch, width: Width
) -> None:
    """Factorize the matrix of every block."""
    n, panel = pairs.columns.size, scratch.panel
    for b in range(scratch.systems.shape[0]):
        system = scratch.systems[b]
        for r in range(SIDE):
            for c in range(SIDE):
                system[r, c] = fixed.gram[b * SIDE + r, b * SIDE + c]
            system[r, r] += penalty
        for first in range(0, n, CHUNK):
            size = min(CHUNK, n - first)
            for k in range(size):
                other = row_at(fixed.vectors, pairs.columns[first + k]) + np.uintp(b) * BLOCK_BYTES
                scale_part(row_at(panel, k), other, np.sqrt(abs(pairs.confidence[first + k])))
            add_upper_tile(row_at(panel, 0), SIDE, size, row_at(system, 0), SIDE)
        _factorize(system, width)


@inlined
def _subtract(
    pairs: RowPairs, fixed: FixedSide, vector: np.uintp, shift: np.uintp, residual: Floats, width: Width
) -> None:
    """Subtract the inner products of a block, which starts `shift` bytes after the start of a row."""
    for k in range(pairs.columns.size):
        residual[k] -= row_dot(row_at(fixed.vectors, pairs.columns[k]) + shift, vector, width)


@inlined
def _sweep(
    pairs: RowPairs,
    fixed: FixedSide,
    penalty: np.float32,
    scratch: SolveScratch,
    vectors: Floats,
    u: int,
    width: Width,
) -> FloatPair:
    """Solve all blocks of one vector; return the squared norms of the change and of the vector."""
    change, norm = ZERO, ZERO
    row, vector = row_at(vectors, u), vectors[u]
    right, step, n_blocks = scratch.right, scratch.step, scratch.systems.shape[0]
    for b in range(n_blocks):
        shift = np.uintp(b) * BLOCK_BYTES
        scale_part(row_at(right, 0), row + shift, -penalty)
        scale_part(row_at(step, 0), row + shift, ZERO)
        for f in range(0, n_blocks * SIDE, 2):  # two sums at a time, because each waits for its last result
            add_row(row_at(right, 0), row_at(fixed.gram, f) + shift, -vector[f], width)
            add_row(row_at(step, 0), row_at(fixed.gram, f + 1) + shift, -vector[f + 1], width)
        add_row(row_at(right, 0), row_at(step, 0), ONE, width)
        for k in range(pairs.columns.size):
            amount = abs(pairs.confidence[k]) * scratch.residual[k]
            add_row(row_at(right, 0), row_at(fixed.vectors, pairs.columns[k]) + shift, amount, width)
        _solve(scratch.systems[b], right, step, width)
        add_row(row + shift, row_at(step, 0), ONE, width)
        change += row_dot(row_at(step, 0), row_at(step, 0), width)
        norm += row_dot(row + shift, row + shift, width)
        _subtract(pairs, fixed, row_at(step, 0), shift, scratch.residual, width)
    return change, norm


@kernel
def solve_rows(
    rows: ConfidenceRows,
    fixed: FixedSide,
    penalty: Floats,  # (n,)
    n_sweeps: int,  # at most
    tolerance: np.float32,  # share of its norm by which a vector changes in its last sweep
    width: Width,  # of SIDE
    vectors: Floats,  # (n, width) start values, replaced by the solution
) -> int:
    """Solve the vectors one by one; return the number of sweeps."""
    n_sweeps_done, longest = 0, 0
    for u in range(vectors.shape[0]):
        longest = max(longest, rows.indptr[u + 1] - rows.indptr[u])
    scratch = SolveScratch(
        np.empty((vectors.shape[1] // SIDE, SIDE, SIDE), np.float32),
        np.empty((CHUNK, SIDE), np.float32),
        np.empty(longest, np.float32),
        np.empty((1, SIDE), np.float32),
        np.empty((1, SIDE), np.float32),
    )
    for u in range(vectors.shape[0]):
        entries = slice(rows.indptr[u], rows.indptr[u + 1])
        pairs = RowPairs(rows.columns[entries], rows.confidence[entries])
        row = row_at(vectors, u)
        _prepare_blocks(pairs, fixed, penalty[u], scratch, width)
        for k in range(pairs.columns.size):
            scratch.residual[k] = ONE if pairs.confidence[k] > 0 else ZERO
        for b in range(scratch.systems.shape[0]):
            shift = np.uintp(b) * BLOCK_BYTES
            _subtract(pairs, fixed, row + shift, shift, scratch.residual, width)
        for _ in range(n_sweeps):
            change, norm = _sweep(pairs, fixed, penalty[u], scratch, vectors, u, width)
            n_sweeps_done += 1
            if change <= tolerance * tolerance * norm:
                break
    return n_sweeps_done
