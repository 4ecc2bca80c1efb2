"""Vector code for scoring and bounding items.

Written as LLVM vector instructions because the compiler may not regroup exact sums and does not turn a loop
of comparisons into a bit mask.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.kernels.jit import exact, ir_inlined

LANES = 8
BLOCK = 64  # items bounded together: the bits of a uint64, and what fits in the vector registers

GROUP = 6  # users whose sums are computed together: more would not fit in the registers
LINE = 64  # bytes per cache line
FUSED = ("contract",)

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
EIGHT, WIDE = ir.VectorType(F32, LANES), ir.VectorType(F32, BLOCK)
BYTE = ir.IntType(8).as_pointer()


def _load(builder: Any, data: Any, at: Any, kind: Any) -> Any:
    """Load consecutive floats that start at data[at]."""
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=4)


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector with the same float in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


def call_prefetch(builder: Any, address: Any, to_write: bool) -> None:
    """Prefetch the cache line of an address into the first-level cache."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE, I32, I32, I32])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [BYTE], kind)
    keep_near, data = ir.Constant(I32, 3), ir.Constant(I32, 1)
    builder.call(fetch, [builder.inttoptr(address, BYTE), ir.Constant(I32, int(to_write)), keep_near, data])


def _group_lanes() -> int:
    """Return how many items a group of users scores in one pass: AVX-512 has twice as many registers."""
    try:
        features = get_host_cpu_features()
    except RuntimeError:  # unknown to the compiler
        return 16
    return 32 if features.get("avx512f") else 16


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


def _add_users(n_users: int, lanes: int) -> Any:
    """Generate the sums of a block for some users; `lanes` items at a time, whose sums stay in registers."""
    kind = ir.VectorType(F32, lanes)

    def typed(
        _typing: Any, items: Any, users: Any, rows: Any, stride: Any, n: Any, start: Any, sums: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item, user, row, first, target = (
                builder.inttoptr(args[place], wanted.as_pointer())
                for place, wanted in ((0, F32), (1, F32), (2, I32), (5, F32), (6, F32))
            )
            numbers = (builder.load(builder.gep(row, [ir.Constant(I32, u)])) for u in range(n_users))
            vectors = [builder.gep(user, [builder.mul(builder.sext(u, I64), args[3])]) for u in numbers]
            with cgutils.for_range(builder, ir.Constant(I64, BLOCK // lanes)) as part:
                at = builder.mul(part.index, ir.Constant(I64, lanes))
                begin = _load(builder, first, at, kind)
                totals = [cgutils.alloca_once_value(builder, begin) for _ in vectors]  # type: ignore[no-untyped-call]
                with cgutils.for_range(builder, args[4]) as loop:
                    place = builder.mul(loop.index, ir.Constant(I64, BLOCK))
                    q = _load(builder, item, builder.add(place, at), kind)
                    for vector, total in zip(vectors, totals, strict=True):
                        p = splat(builder, builder.load(builder.gep(vector, [loop.index])), kind)
                        product = builder.fmul(p, q, flags=FUSED)
                        builder.store(builder.fadd(builder.load(total), product, flags=FUSED), total)
                for number, total in enumerate(totals):
                    place = builder.gep(target, [builder.add(at, ir.Constant(I64, number * BLOCK))])
                    place = builder.bitcast(place, kind.as_pointer())
                    builder.store(builder.load(total), place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.uintp] * 3, types.intp, types.intp, *[types.uintp] * 2), generate

    return typed


def _bound_mask(_typing: Any, sums: Any, tails: Any, tail: Any, floor: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = (builder.inttoptr(address, WIDE.as_pointer()) for address in args[:2])
        known, rest = (builder.load(pointer, align=4) for pointer in pointers)
        length = builder.load(builder.inttoptr(args[2], F32.as_pointer()))
        most = builder.fmul(splat(builder, length, WIDE), rest, flags=FUSED)
        bound = builder.fadd(known, most, flags=FUSED)
        # unordered or at least: a NaN bound excludes nothing, so the item stays
        stays = builder.fcmp_unordered(">=", bound, splat(builder, args[3], WIDE))
        return builder.bitcast(stays, I64)

    return types.uint64(*[types.uintp] * 3, types.float32), generate


def _sum_mask(_typing: Any, left: Any, right: Any, floor: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = (builder.inttoptr(address, WIDE.as_pointer()) for address in args[:2])
        total = builder.fadd(*(builder.load(pointer, align=4) for pointer in pointers))
        stays = builder.fcmp_unordered(">=", total, splat(builder, args[2], WIDE))  # as in _bound_mask
        return builder.bitcast(stays, I64)

    return types.uint64(types.uintp, types.uintp, types.float32), generate


def _prefetch(_typing: Any, row: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = ir.Constant(I64, LINE)
        n_lines = builder.sdiv(builder.add(args[1], ir.Constant(I64, LINE - 1)), line)
        with cgutils.for_range(builder, n_lines) as loop:
            call_prefetch(builder, builder.add(args[0], builder.mul(loop.index, line)), to_write=False)
        return context.get_dummy_value()

    return types.void(types.uintp, types.intp), generate


def _lowest_bit(_typing: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _count_bits(_typing: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


_DOT: Any = intrinsic(_dot)
_ADD_USER: Any = intrinsic(_add_users(1, BLOCK))
_ADD_GROUP: Any = intrinsic(_add_users(GROUP, _group_lanes()))
_BOUND_MASK: Any = intrinsic(_bound_mask)
_SUM_MASK: Any = intrinsic(_sum_mask)
_PREFETCH: Any = intrinsic(_prefetch)
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
def add_block(items: int, users: int, rows: int, stride: int, n: int, start: int, sums: int) -> None:
    """Write start (BLOCK,) plus n dimensions of a block of items times those of a user to sums (BLOCK,).

    All are addresses. The coordinates of the user start at users[stride · rows[0]].
    """
    _ADD_USER(items, users, rows, stride, n, start, sums)


@ir_inlined
def add_block_group(items: int, users: int, rows: int, stride: int, n: int, start: int, sums: int) -> None:
    """Do `add_block` for the users of rows (GROUP,) with sums (GROUP, BLOCK); items are loaded once."""
    _ADD_GROUP(items, users, rows, stride, n, start, sums)


@ir_inlined
def bound_mask(sums: int, tails: int, tail: int, floor: np.float32) -> np.uint64:
    """Return a mask of sums + tail · tails that are not below `floor`: BLOCK, 1 and BLOCK floats."""
    mask: np.uint64 = _BOUND_MASK(sums, tails, tail, floor)
    return mask


@ir_inlined
def sum_mask(left: int, right: int, floor: np.float32) -> np.uint64:
    """Return a mask of the sums of BLOCK floats at two addresses that are not below `floor`."""
    mask: np.uint64 = _SUM_MASK(left, right, floor)
    return mask


@ir_inlined
def prefetch(row: int, n: int) -> None:
    """Prefetch n bytes that will be read soon; nothing is read, so any address is allowed."""
    _PREFETCH(row, n)


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
