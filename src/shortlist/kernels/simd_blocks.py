"""Pieces spelled as vectors: the compiler may not regroup exact sums, nor does it see a mask in a loop."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.kernels.jit import exact, folded
from shortlist.types import Floats

LANES = 8
BLOCK = 64  # items bounded together: as many as a word has bits, and as fit into vector registers

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
EIGHT, WIDE = ir.VectorType(F32, LANES), ir.VectorType(F32, BLOCK)


def _load(builder: Any, data: Any, at: Any, kind: Any) -> Any:
    """Neighbouring floats from data[at] on."""
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=4)


def _vector(context: Any, builder: Any, array_type: Any, array: Any, at: Any, kind: Any) -> Any:
    """Neighbouring floats of a contiguous array, from `at` on."""
    return _load(builder, context.make_array(array_type)(context, builder, array).data, at, kind)


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """The same float in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


def _lanes_dot(_typing: Any, left: Any, right: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        p, q = (builder.inttoptr(address, F32.as_pointer()) for address in args[:2])
        step = ir.Constant(args[2].type, LANES)
        whole = builder.sdiv(args[2], step)
        total = cgutils.alloca_once_value(builder, ir.Constant(EIGHT, [0.0] * LANES))  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, whole) as loop:
            at = builder.mul(loop.index, step)
            product = builder.fmul(_load(builder, p, at, EIGHT), _load(builder, q, at, EIGHT))
            builder.store(builder.fadd(builder.load(total), product), total)
        sums = [builder.extract_element(builder.load(total), ir.Constant(I32, lane)) for lane in range(LANES)]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [builder.fadd(sums[lane], sums[lane + half]) for lane in range(half)]
        last = cgutils.alloca_once_value(builder, sums[0])  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, args[2], start=builder.mul(whole, step)) as loop:
            product = builder.fmul(
                builder.load(builder.gep(p, [loop.index])), builder.load(builder.gep(q, [loop.index]))
            )
            builder.store(builder.fadd(builder.load(last), product), last)
        return builder.load(last)

    return types.float32(types.uintp, types.uintp, types.intp), generate


def _block_add(_typing: Any, items: Any, at: Any, users: Any, user_at: Any, n: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = ir.Constant(args[1].type, 0)
        total = cgutils.alloca_once_value(builder, _vector(context, builder, sums, args[5], start, WIDE))  # type: ignore[no-untyped-call]
        user = context.make_array(users)(context, builder, args[2]).data
        with cgutils.for_range(builder, args[4]) as loop:
            p = builder.load(builder.gep(user, [builder.add(args[3], loop.index)]))
            place = builder.add(args[1], builder.mul(loop.index, ir.Constant(loop.index.type, BLOCK)))
            q = _vector(context, builder, items, args[0], place, WIDE)
            product = builder.fmul(splat(builder, p, WIDE), q, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        target = context.make_array(sums)(context, builder, args[5]).data
        builder.store(builder.load(total), builder.bitcast(target, WIDE.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(items, types.intp, users, types.intp, types.intp, sums), generate


def _reach_mask(_typing: Any, sums: Any, tails: Any, at: Any, tail: Any, cut: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        known = _vector(context, builder, sums, args[0], ir.Constant(args[2].type, 0), WIDE)
        rest = _vector(context, builder, tails, args[1], args[2], WIDE)
        most = builder.fmul(splat(builder, args[3], WIDE), rest, flags=("contract",))
        bound = builder.fadd(known, most, flags=("contract",))
        # unordered or at least: a NaN bound says nothing, so the item stays
        stays = builder.fcmp_unordered(">=", bound, splat(builder, args[4], WIDE))
        return builder.bitcast(stays, I64)

    return types.uint64(sums, tails, types.intp, types.float32, types.float32), generate


def _lowest_bit(_typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _bits_count(_typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


_LANES_DOT: Any = intrinsic(_lanes_dot)
_BLOCK_ADD: Any = intrinsic(_block_add)
_REACH_MASK: Any = intrinsic(_reach_mask)
_LOWEST_BIT: Any = intrinsic(_lowest_bit)
_BITS_COUNT: Any = intrinsic(_bits_count)


@exact
def score(left: int, right: int, n: int, offset: np.float32) -> np.float32:
    """The one way any score is made, of n floats each at two addresses: eight running sums, then the rest.

    Addresses, because counting the references of two arrays costs more than their product.
    """
    total: np.float32 = _LANES_DOT(left, right, n)
    return total + offset


@folded
def block_add(items: Floats, at: int, users: Floats, user_at: int, n: int, sums: Floats) -> None:
    """sums (BLOCK,) += n dimensions of a block of items, one after the other from `at`, times a user's."""
    _BLOCK_ADD(items, at, users, user_at, n, sums)


@folded
def reach_mask(sums: Floats, tails: Floats, at: int, tail: np.float32, cut: np.float32) -> np.uint64:
    """Bit j: is sums[j] + tail * tails[at + j] not below `cut`?"""
    mask: np.uint64 = _REACH_MASK(sums, tails, at, tail, cut)
    return mask


@folded
def lowest_bit(word: np.uint64) -> int:
    """The position of the lowest bit set."""
    place: int = _LOWEST_BIT(word)
    return place


@folded
def bits_count(word: np.uint64) -> int:
    """How many bits are set."""
    count: int = _BITS_COUNT(word)
    return count
