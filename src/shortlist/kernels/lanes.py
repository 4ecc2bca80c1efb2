"""Pieces spelled as vectors: the compiler may not regroup exact sums, nor does it see a mask in a loop."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.kernels.jit import exact
from shortlist.types import Floats

LANES = 8
GROUP = 32  # comparisons answered by one word

F32, I32 = ir.FloatType(), ir.IntType(32)
EIGHT, WIDE = ir.VectorType(F32, LANES), ir.VectorType(F32, GROUP)


def _vector(context: Any, builder: Any, array_type: Any, array: Any, at: Any, kind: Any) -> Any:
    """Load neighbouring floats of a contiguous array, starting at `at`."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=4)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    """The same float in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


def _lanes_dot(_typing: Any, left: Any, row: Any, right: Any, column: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width = builder.extract_value(context.make_array(left)(context, builder, args[0]).shape, 1)
        starts = builder.mul(args[1], width), builder.mul(args[3], width)
        total = cgutils.alloca_once_value(builder, ir.Constant(EIGHT, [0.0] * LANES))  # type: ignore[no-untyped-call]
        step = ir.Constant(width.type, LANES)
        with cgutils.for_range(builder, builder.sdiv(width, step)) as loop:
            at = builder.mul(loop.index, step)
            p = _vector(context, builder, left, args[0], builder.add(starts[0], at), EIGHT)
            q = _vector(context, builder, right, args[2], builder.add(starts[1], at), EIGHT)
            builder.store(builder.fadd(builder.load(total), builder.fmul(p, q)), total)
        sums = [builder.extract_element(builder.load(total), ir.Constant(I32, lane)) for lane in range(LANES)]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [builder.fadd(sums[lane], sums[lane + half]) for lane in range(half)]
        return sums[0]

    return types.float32(left, types.intp, right, types.intp), generate


def _reach_mask(_typing: Any, sums: Any, at: Any, tails: Any, tail_at: Any, tail: Any, cut: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        known = _vector(context, builder, sums, args[0], args[1], WIDE)
        rest = _vector(context, builder, tails, args[2], args[3], WIDE)
        most = builder.fmul(_splat(builder, args[4], WIDE), rest, flags=("contract",))
        bound = builder.fadd(known, most, flags=("contract",))
        # unordered or at least: a NaN bound says nothing, so the item stays
        stays = builder.fcmp_unordered(">=", bound, _splat(builder, args[5], WIDE))
        return builder.bitcast(stays, I32)

    return types.uint32(sums, types.intp, tails, types.intp, types.float32, types.float32), generate


def _lowest_bit(_typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.cttz(args[0], ir.Constant(ir.IntType(1), 0)), ir.IntType(64))

    return types.int64(types.uint32), generate


_LANES_DOT: Any = intrinsic(_lanes_dot)
_REACH_MASK: Any = intrinsic(_reach_mask)
_LOWEST_BIT: Any = intrinsic(_lowest_bit)


@exact
def lanes_dot(left: Floats, row: int, right: Floats, column: int) -> np.float32:
    """left[row] times right[column] over their whole eights: eight running sums, folded in a fixed order."""
    total: np.float32 = _LANES_DOT(left, row, right, column)
    return total


@exact
def reach_mask(
    sums: Floats, at: int, tails: Floats, tail_at: int, tail: np.float32, cut: np.float32
) -> np.uint32:
    """Bit j: is sums[at + j] + tail * tails[tail_at + j] not below `cut`? Both arrays flat."""
    mask: np.uint32 = _REACH_MASK(sums, at, tails, tail_at, tail, cut)
    return mask


@exact
def lowest_bit(word: np.uint32) -> int:
    """The position of the lowest bit set."""
    place: int = _LOWEST_BIT(word)
    return place
