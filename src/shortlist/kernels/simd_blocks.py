"""Vector code for scoring and bounding items.

Written as LLVM vector instructions because the compiler may not regroup exact sums and does not turn a loop
of comparisons into a bit mask.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.kernels.jit import exact, ir_inlined
from shortlist.types import Floats

LANES = 8
BLOCK = 64  # items bounded together: the bits of a uint64, and what fits in the vector registers

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
EIGHT, WIDE = ir.VectorType(F32, LANES), ir.VectorType(F32, BLOCK)


def _load(builder: Any, data: Any, at: Any, kind: Any) -> Any:
    """Load consecutive floats that start at data[at]."""
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=4)


def _load_array(context: Any, builder: Any, array_type: Any, array: Any, at: Any, kind: Any) -> Any:
    """Load consecutive floats of a contiguous array, from `at` on."""
    return _load(builder, context.make_array(array_type)(context, builder, array).data, at, kind)


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector with the same float in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


def _dot(_typing: Any, left: Any, right: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        p, q = (builder.inttoptr(address, F32.as_pointer()) for address in args[:2])
        step = ir.Constant(args[2].type, LANES)
        n_vectors = builder.sdiv(args[2], step)
        total = cgutils.alloca_once_value(builder, ir.Constant(EIGHT, [0.0] * LANES))  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, n_vectors) as loop:
            at = builder.mul(loop.index, step)
            product = builder.fmul(_load(builder, p, at, EIGHT), _load(builder, q, at, EIGHT))
            builder.store(builder.fadd(builder.load(total), product), total)
        sums = [builder.extract_element(builder.load(total), ir.Constant(I32, lane)) for lane in range(LANES)]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [builder.fadd(sums[lane], sums[lane + half]) for lane in range(half)]
        last = cgutils.alloca_once_value(builder, sums[0])  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, args[2], start=builder.mul(n_vectors, step)) as loop:
            product = builder.fmul(
                builder.load(builder.gep(p, [loop.index])), builder.load(builder.gep(q, [loop.index]))
            )
            builder.store(builder.fadd(builder.load(last), product), last)
        return builder.load(last)

    return types.float32(types.uintp, types.uintp, types.intp), generate


def _add_block(_typing: Any, items: Any, at: Any, users: Any, user_at: Any, n: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = ir.Constant(args[1].type, 0)
        total = cgutils.alloca_once_value(builder, _load_array(context, builder, sums, args[5], start, WIDE))  # type: ignore[no-untyped-call]
        user = context.make_array(users)(context, builder, args[2]).data
        with cgutils.for_range(builder, args[4]) as loop:
            p = builder.load(builder.gep(user, [builder.add(args[3], loop.index)]))
            place = builder.add(args[1], builder.mul(loop.index, ir.Constant(loop.index.type, BLOCK)))
            q = _load_array(context, builder, items, args[0], place, WIDE)
            product = builder.fmul(splat(builder, p, WIDE), q, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        target = context.make_array(sums)(context, builder, args[5]).data
        builder.store(builder.load(total), builder.bitcast(target, WIDE.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(items, types.intp, users, types.intp, types.intp, sums), generate


def _bound_mask(_typing: Any, sums: Any, tails: Any, at: Any, tail: Any, floor: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        known = _load_array(context, builder, sums, args[0], ir.Constant(args[2].type, 0), WIDE)
        rest = _load_array(context, builder, tails, args[1], args[2], WIDE)
        most = builder.fmul(splat(builder, args[3], WIDE), rest, flags=("contract",))
        bound = builder.fadd(known, most, flags=("contract",))
        # unordered or at least: a NaN bound excludes nothing, so the item stays
        stays = builder.fcmp_unordered(">=", bound, splat(builder, args[4], WIDE))
        return builder.bitcast(stays, I64)

    return types.uint64(sums, tails, types.intp, types.float32, types.float32), generate


def _sum_mask(_typing: Any, left: Any, right: Any, floor: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = (builder.inttoptr(address, WIDE.as_pointer()) for address in args[:2])
        total = builder.fadd(*(builder.load(pointer, align=4) for pointer in pointers))
        stays = builder.fcmp_unordered(">=", total, splat(builder, args[2], WIDE))  # as in _bound_mask
        return builder.bitcast(stays, I64)

    return types.uint64(types.uintp, types.uintp, types.float32), generate


def _lowest_bit(_typing: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _count_bits(_typing: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


_DOT: Any = intrinsic(_dot)
_ADD_BLOCK: Any = intrinsic(_add_block)
_BOUND_MASK: Any = intrinsic(_bound_mask)
_SUM_MASK: Any = intrinsic(_sum_mask)
_LOWEST_BIT: Any = intrinsic(_lowest_bit)
_COUNT_BITS: Any = intrinsic(_count_bits)


@exact
def score(left: int, right: int, n: int, offset: np.float32) -> np.float32:
    """Return offset + the inner product of n floats at two addresses, summed in eight lanes.

    All retrieval scores are computed here, so they agree bit for bit. The arguments are addresses because
    reference counting of two arrays costs more than their product.
    """
    total: np.float32 = _DOT(left, right, n)
    return total + offset


@ir_inlined
def add_block(items: Floats, at: int, users: Floats, user_at: int, n: int, sums: Floats) -> None:
    """Add n dimensions of a block of items, from `at` on, times those of a user to sums (BLOCK,)."""
    _ADD_BLOCK(items, at, users, user_at, n, sums)


@ir_inlined
def bound_mask(sums: Floats, tails: Floats, at: int, tail: np.float32, floor: np.float32) -> np.uint64:
    """Return a mask whose bit j says that sums[j] + tail * tails[at + j] is not below `floor`."""
    mask: np.uint64 = _BOUND_MASK(sums, tails, at, tail, floor)
    return mask


@ir_inlined
def sum_mask(left: int, right: int, floor: np.float32) -> np.uint64:
    """Return a mask of the sums of BLOCK floats at two addresses that are not below `floor`."""
    mask: np.uint64 = _SUM_MASK(left, right, floor)
    return mask


@ir_inlined
def lowest_bit(mask: np.uint64) -> int:
    """Return the position of the lowest bit that is set."""
    place: int = _LOWEST_BIT(mask)
    return place


@ir_inlined
def count_bits(mask: np.uint64) -> int:
    """Return how many bits are set."""
    count: int = _COUNT_BITS(mask)
    return count
