"""Score vectors of HRM: the user's vector, blended with the pooled items of a context (paper eq. 12-16).

Functions that take a `Blend` get None from matrix factorization, whose score vector is the user's vector.
Numba decides tests of it at compile time, if they stand alone.
"""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import borrowing, inlined, kernel
from shortlist.kernels.parameters import HALF, ONE, ZERO
from shortlist.kernels.simd import (
    FloatPair,
    Width,
    add_row,
    blend_rows,
    keep_larger,
    prefetch_row,
    row_at,
    step_hybrid_one,
    step_hybrid_pair,
    step_one,
    step_pair,
)
from shortlist.kernels.strata import Strata
from shortlist.types import Floats, Ints, Longs


class Contexts(NamedTuple):
    """The items before each group: rows begin[g] … end[g] - 1 of `item`."""

    user: Ints  # (n_groups,) the user of each group
    begin: Longs  # (n_groups,)
    end: Longs  # (n_groups,)
    item: Ints  # (n_rows,) in the labeling of the item factors
    max_pool_items: bool  # pool the items of the context by maximum, else by average
    max_pool_user: bool  # pool user and context by maximum, else by average


class ContextGradients(NamedTuple):
    """The item factors that contexts read in a round, and the gradients that they collect."""

    snapshot: Floats  # (n_items, n_factors) all items before the round
    gradients: Floats  # (n_visits of the round, n_factors) written
    starts: Longs  # (B + 1,) where the visits of each block start in `gradients`


@borrowing
def has_context(contexts: Contexts, group: int) -> bool:
    """Whether a basket has a context; a user's first basket has none."""
    return bool(contexts.begin[group] < contexts.end[group])


@borrowing
def pool_context(contexts: Contexts, group: int, items: Floats, out: Floats, width: Width) -> None:
    """Write the pooled items of a context, the first layer, to `out` (n_factors,)."""
    begin, end, total = contexts.begin[group], contexts.end[group], np.uintp(out.ctypes.data)
    if contexts.max_pool_items:
        for f in range(out.size):  # assigning the array would also compile its error message
            out[f] = items[contexts.item[begin], f]
        for row in range(begin + 1, end):
            keep_larger(total, row_at(items, contexts.item[row]), width)
        return
    scale = ONE / np.float32(end - begin)
    out[:] = ZERO
    for row in range(begin, end):
        add_row(total, row_at(items, contexts.item[row]), scale, width)


@borrowing
def user_pooling(max_pool_user: bool) -> FloatPair:
    """Return (base, gain) of the second layer, which weigh the user against the context; see `blend_rows`."""
    return (ZERO, ONE) if max_pool_user else (HALF, ZERO)


class ContextRound(NamedTuple):
    """The contexts of a round, in the order of the item factors, and what they collect."""

    contexts: Contexts
    collected: ContextGradients


class ContextCell(NamedTuple):
    """The same for one block and one range of items."""

    contexts: Contexts
    snapshot: Floats  # (n_items, n_factors) all items before the round
    gradients: Floats  # (n_visits, n_factors) gradients of the contexts; written


class Blend(NamedTuple):
    """Addresses of the rows of one visit, and the weights of its user against its context."""

    vector: np.uintp  # the score vector; written
    context: np.uintp  # the pooled items
    gradient: np.uintp  # of the context; added to
    base: np.float32
    gain: np.float32


@inlined
def context_cell(round_of: ContextRound, first: int, last: int) -> ContextCell:
    """Return the contexts of visits first … last - 1."""
    collected = round_of.collected
    return ContextCell(round_of.contexts, collected.snapshot, collected.gradients[first:last])


@borrowing
def blend_visit(cell: ContextCell, visit: int, group: int, scratch: Floats, width: Width) -> Blend:
    """Pool the context of a visit; `scratch` (2, n_factors) holds its vectors."""
    cell.gradients[visit] = ZERO
    if has_context(cell.contexts, group):
        pool_context(cell.contexts, group, cell.snapshot, scratch[1], width)
    base, gain = user_pooling(cell.contexts.max_pool_user)
    return Blend(row_at(scratch, 0), row_at(scratch, 1), row_at(cell.gradients, visit), base, gain)


@borrowing
def prefetch_context(cell: ContextCell, group: int, width: Width) -> None:
    """Prefetch the items of the next context."""
    for row in range(cell.contexts.begin[group], cell.contexts.end[group]):
        prefetch_row(row_at(cell.snapshot, cell.contexts.item[row]), width)


@borrowing
def score_vector(p: np.uintp, blend: Blend | None, width: Width) -> np.uintp:
    """Return the address of the vector that scores items: the user's, or a blend with the context."""
    if blend is None:
        return p
    blend_rows(blend.vector, p, blend.context, blend.base, blend.gain, width)
    return blend.vector


@borrowing
def move_one(
    p: np.uintp,
    q: np.uintp,
    blend: Blend | None,
    step: np.float32,
    kp: np.float32,
    kq: np.float32,
    width: Width,
) -> None:
    """Step on a user and an item; kp and kq are their shrink factors."""
    if blend is None:
        step_one(p, q, step, kp, kq, width)
    else:
        step_hybrid_one(p, blend.gradient, q, blend.context, step, kp, kq, blend.base, blend.gain, width)


@borrowing
def move_pair(
    p: np.uintp,
    q: np.uintp,
    r: np.uintp,
    blend: Blend | None,
    step: np.float32,
    kp: np.float32,
    kq: np.float32,
    kr: np.float32,
    width: Width,
) -> None:
    """Step on a user and two items: toward q, away from r."""
    if blend is None:
        step_pair(p, q, r, step, kp, kq, kr, width)
    else:
        context, base, gain = blend.context, blend.base, blend.gain
        step_hybrid_pair(p, blend.gradient, q, r, context, step, kp, kq, kr, base, gain, width)


@kernel
def apply_context_gradients(
    low: int,  # only items low … high - 1 are updated, so that threads can share the work
    high: int,
    round_index: int,
    strata: Strata,
    contexts: Contexts,
    collected: ContextGradients,
    items: Floats,  # (n_items, n_factors), updated in place
    width: Width,
) -> None:
    """Apply the gradients of the contexts after a round, in an order that does not depend on the threads."""
    snapshot, gradients, starts = collected
    n_blocks, n_factors = strata.n_blocks, items.shape[1]
    n_ranges = (strata.cells.size - 1) // n_blocks
    for b in range(n_blocks):
        begin = strata.cells[b * n_ranges + (b + round_index) % n_blocks * (n_ranges // n_blocks)]
        for number in range(starts[b + 1] - starts[b]):
            group, gradient = strata.groups[begin + number], gradients[starts[b] + number]
            first, last = contexts.begin[group], contexts.end[group]
            if first == last:
                continue
            scale = ONE / np.float32(last - first)
            if not contexts.max_pool_items:
                for row in range(first, last):
                    item = contexts.item[row]
                    if low <= item < high:
                        add_row(row_at(items, item), row_at(gradients, starts[b] + number), scale, width)
                continue
            for f in range(n_factors):
                best = contexts.item[first]
                for row in range(first + 1, last):
                    if snapshot[contexts.item[row], f] > snapshot[best, f]:
                        best = contexts.item[row]
                if low <= best < high:
                    items[best, f] += gradient[f]


@kernel
def hybrid_vectors(
    user_factors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    contexts: Contexts,  # one group per vector
    out: Floats,  # (n_groups, n_factors) written
    width: Width,
) -> None:
    """Write the score vector of each group; without a context it is the user's vector."""
    pooled = np.empty(out.shape[1], np.float32)
    base, gain = user_pooling(contexts.max_pool_user)
    context = np.uintp(pooled.ctypes.data)
    for number in range(contexts.user.size):
        if contexts.begin[number] == contexts.end[number]:
            for f in range(out.shape[1]):
                out[number, f] = user_factors[contexts.user[number], f]
            continue
        pool_context(contexts, number, item_factors, pooled, width)
        user = row_at(user_factors, contexts.user[number])
        blend_rows(row_at(out, number), user, context, base, gain, width)
