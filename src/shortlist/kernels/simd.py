"""Vector code for SGD steps on rows of factors.

Each step is written as LLVM vector instructions, because in a loop over two rows the compiler checks at every
step whether they overlap. Rows are passed as addresses, because reference counting of their arrays costs as
much as a step.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.kernels.jit import exact, inlined, ir_inlined
from shortlist.types import Bits, Floats

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


Width = tuple[tuple[tuple[()], ...], ...]
FloatPair = tuple[np.float32, np.float32]
FloatTriple = tuple[np.float32, np.float32, np.float32]

SUMS = 4  # independent partial sums of an inner product, so that additions overlap


def factor_width(n_factors: int) -> Width:
    """Return the number of factors as a type, hence a compile-time constant: its binary digits, lowest first.

    The digit 1 is a tuple of one element, 0 an empty one: few elements, because each costs compile time.
    """
    return tuple(((),) * (n_factors >> place & 1) for place in range(n_factors.bit_length()))


def _size(width: Any) -> int:
    """Return the number of factors that a type stands for."""
    return sum(len(digit) << place for place, digit in enumerate(width))


def _pieces(n: int) -> Iterator[tuple[int, Any]]:
    """Yield (first, vector type) of the pieces of a row: 8 lanes each, the remainder in 4, 2 and 1."""
    at = 0
    for lanes in (LANES, 4, 2, 1):
        while n - at >= lanes:
            yield at, ir.VectorType(F32, lanes)
            at += lanes


def _pointer(builder: Any, row: Any, at: int, kind: Any) -> Any:
    """Return a pointer to the vector of floats that starts at `at`."""
    pointer = builder.inttoptr(row, F32.as_pointer())
    return builder.bitcast(builder.gep(pointer, [ir.Constant(I64, at)]), kind.as_pointer())


def _lane_sum(builder: Any, vector: Any) -> Any:
    """Add the halves of a vector until one float is left."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        low, high = (
            builder.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(I32, half), [*range(start, start + half)])
            )
            for start in (0, half)
        )
        vector = builder.fadd(low, high)
    return builder.extract_element(vector, ir.Constant(I32, 0))


def _row_dot(_typing: Any, left: Any, right: Any, width: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums: dict[tuple[int, int], Any] = {}
        for number, (at, kind) in enumerate(_pieces(_size(width))):
            p, q = (builder.load(_pointer(builder, row, at, kind), align=4) for row in args[:2])
            product, name = builder.fmul(p, q, flags=FUSED), (kind.count, number % SUMS)
            sums[name] = builder.fadd(sums[name], product, flags=FUSED) if name in sums else product
        totals: dict[int, Any] = {}
        for (lanes, _), part in sums.items():
            totals[lanes] = builder.fadd(totals[lanes], part) if lanes in totals else part
        result = ir.Constant(F32, 0.0)
        for total in totals.values():
            result = builder.fadd(result, _lane_sum(builder, total))
        return result

    return types.float32(types.uintp, types.uintp, width), generate


def _update(n_rows: int, formula: Callable[..., tuple[Any, ...]]) -> Any:
    """Generate a step on rows that do not overlap: `formula` returns the new values of the first of them."""

    def generate_for(width: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            for at, kind in _pieces(_size(width)):
                places = [_pointer(builder, row, at, kind) for row in args[:n_rows]]
                old = [builder.load(place, align=4) for place in places]
                numbers = [splat(builder, number, kind) for number in args[n_rows:-1]]
                for place, value in zip(places, formula(builder, *old, *numbers), strict=False):
                    builder.store(value, place, align=4)
            return context.get_dummy_value()

        return generate

    return generate_for


def _combine(builder: Any, a: Any, x: Any, b: Any, y: Any) -> Any:
    """Return a·x + b·y."""
    return builder.fadd(builder.fmul(a, x, flags=FUSED), builder.fmul(b, y, flags=FUSED), flags=FUSED)


# Formulas of the steps: b is the builder, c the context, and kp, kq, kr are the shrink factors of p, q, r.
def _pair(
    b: Any, p: Any, q: Any, r: Any, step: Any, shrink_p: Any, shrink_q: Any, shrink_r: Any
) -> tuple[Any, ...]:
    away = b.fmul(step, p, flags=FUSED)
    return (
        _combine(b, shrink_p, p, step, b.fsub(q, r)),
        b.fadd(b.fmul(shrink_q, q, flags=FUSED), away, flags=FUSED),
        b.fsub(b.fmul(shrink_r, r, flags=FUSED), away, flags=FUSED),
    )


def _one(b: Any, p: Any, q: Any, step: Any, shrink_p: Any, shrink_q: Any) -> tuple[Any, ...]:
    return _combine(b, shrink_p, p, step, q), _combine(b, shrink_q, q, step, p)


def _add(b: Any, p: Any, q: Any, scale: Any) -> tuple[Any, ...]:
    return (b.fadd(p, b.fmul(scale, q, flags=FUSED), flags=FUSED),)


def _larger(b: Any, p: Any, q: Any) -> tuple[Any, ...]:
    return (b.select(b.fcmp_ordered(">=", p, q), p, q),)


def _weights(b: Any, p: Any, context: Any, base: Any, gain: Any) -> tuple[Any, Any]:
    """Return the weights of user and context: both ½ (base ½, gain 0), or 1 for the larger one (0, 1)."""
    one, zero = (ir.Constant(p.type, [value] * p.type.count) for value in (1.0, 0.0))
    larger = b.select(b.fcmp_ordered(">=", p, context), one, zero)
    weight = b.fadd(base, b.fmul(gain, larger))
    return weight, b.fsub(one, weight)


def _blend(b: Any, h: Any, p: Any, context: Any, base: Any, gain: Any) -> tuple[Any, ...]:
    own, rest = _weights(b, p, context, base, gain)
    return (_combine(b, own, p, rest, context),)


def _hybrid_pair(
    b: Any, p: Any, gradient: Any, q: Any, r: Any, c: Any, step: Any, kp: Any, kq: Any, kr: Any, *pooling: Any
) -> tuple[Any, ...]:
    own, rest = _weights(b, p, c, *pooling)
    away, update = (
        b.fmul(step, _combine(b, own, p, rest, c), flags=FUSED),
        b.fmul(step, b.fsub(q, r), flags=FUSED),
    )
    return (
        _combine(b, kp, p, own, update),
        b.fadd(gradient, b.fmul(rest, update, flags=FUSED), flags=FUSED),
        b.fadd(b.fmul(kq, q, flags=FUSED), away, flags=FUSED),
        b.fsub(b.fmul(kr, r, flags=FUSED), away, flags=FUSED),
    )


def _hybrid_one(
    b: Any, p: Any, gradient: Any, q: Any, c: Any, step: Any, kp: Any, kq: Any, *pooling: Any
) -> tuple[Any, ...]:
    own, rest = _weights(b, p, c, *pooling)
    update = b.fmul(step, q, flags=FUSED)
    return (
        _combine(b, kp, p, own, update),
        b.fadd(gradient, b.fmul(rest, update, flags=FUSED), flags=FUSED),
        _combine(b, kq, q, step, _combine(b, own, p, rest, c)),
    )


def _step_pair(_typing: Any, p: Any, q: Any, r: Any, step: Any, kp: Any, kq: Any, kr: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 3, *[types.float32] * 4, width), _update(3, _pair)(width)


def _step_one(_typing: Any, p: Any, q: Any, step: Any, kp: Any, kq: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 2, *[types.float32] * 3, width), _update(2, _one)(width)


def _add_row(_typing: Any, p: Any, q: Any, scale: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 2, types.float32, width), _update(2, _add)(width)


def _keep_larger(_typing: Any, p: Any, q: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 2, width), _update(2, _larger)(width)


def _blend_rows(_typing: Any, h: Any, p: Any, c: Any, base: Any, gain: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 3, *[types.float32] * 2, width), _update(3, _blend)(width)


def _step_hybrid_pair(
    _typing: Any, p: Any, d: Any, q: Any, r: Any, c: Any, s: Any, kp: Any, kq: Any, kr: Any, b: Any, g: Any,
    width: Any,
) -> Any:  # fmt: skip
    return types.void(*[types.uintp] * 5, *[types.float32] * 6, width), _update(5, _hybrid_pair)(width)


def _step_hybrid_one(
    _typing: Any, p: Any, d: Any, q: Any, c: Any, s: Any, kp: Any, kq: Any, b: Any, g: Any, width: Any
) -> Any:
    return types.void(*[types.uintp] * 4, *[types.float32] * 5, width), _update(4, _hybrid_one)(width)


def _prefetch_row(_typing: Any, row: Any, width: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for at in range(0, 4 * _size(width), LINE):
            call_prefetch(builder, builder.add(args[0], ir.Constant(args[0].type, at)), to_write=True)
        return context.get_dummy_value()

    return types.void(types.uintp, width), generate


_ROW_DOT: Any = intrinsic(_row_dot)
_STEP_PAIR: Any = intrinsic(_step_pair)
_STEP_ONE: Any = intrinsic(_step_one)
# without the compiler it does nothing, so that kernels without other vector code run as plain Python
_PREFETCH_ROW: Any = (lambda row, width: None) if config.DISABLE_JIT else intrinsic(_prefetch_row)  # type: ignore[attr-defined]
_ADD_ROW: Any = intrinsic(_add_row)
_KEEP_LARGER: Any = intrinsic(_keep_larger)
_BLEND_ROWS: Any = intrinsic(_blend_rows)
_STEP_HYBRID_PAIR: Any = intrinsic(_step_hybrid_pair)
_STEP_HYBRID_ONE: Any = intrinsic(_step_hybrid_one)


@inlined
def row_at(table: Floats, row: int | np.integer) -> np.uintp:
    """Return the address of one row of a contiguous (n, n_factors) table."""
    return np.uintp(table.ctypes.data) + np.uintp(row) * np.uintp(4 * table.shape[1])


@ir_inlined
def row_dot(left: np.uintp, right: np.uintp, width: Width) -> np.float32:
    """Return the inner product of two rows, always summed in the same order."""
    total: np.float32 = _ROW_DOT(left, right, width)
    return total


@ir_inlined
def step_pair(
    p: np.uintp, q: np.uintp, r: np.uintp, step: np.float32, shrink: FloatTriple, width: Width
) -> None:
    """Set p, q, r to shrink · old value + step · (q - r, p, -p), all from the old values."""
    _STEP_PAIR(p, q, r, step, shrink[0], shrink[1], shrink[2], width)


@ir_inlined
def step_one(p: np.uintp, q: np.uintp, step: np.float32, shrink: FloatPair, width: Width) -> None:
    """Set p, q to shrink · old value + step · (q, p), both from the old values."""
    _STEP_ONE(p, q, step, shrink[0], shrink[1], width)


@ir_inlined
def prefetch_row(row: np.uintp, width: Width) -> None:
    """Prefetch a row that will be written soon; nothing is read, so any address is allowed."""
    _PREFETCH_ROW(row, width)


@ir_inlined
def add_row(p: np.uintp, q: np.uintp, scale: np.float32, width: Width) -> None:
    """Add scale · q to p."""
    _ADD_ROW(p, q, scale, width)


@ir_inlined
def keep_larger(p: np.uintp, q: np.uintp, width: Width) -> None:
    """Set p to the elementwise maximum of p and q."""
    _KEEP_LARGER(p, q, width)


@ir_inlined
def blend_rows(h: np.uintp, p: np.uintp, context: np.uintp, pooling: FloatPair, width: Width) -> None:
    """Set h to w·p + (1 - w)·context. `pooling` is (base, gain): w = base, plus gain where p is larger."""
    _BLEND_ROWS(h, p, context, pooling[0], pooling[1], width)


@ir_inlined
def step_hybrid_pair(
    p: np.uintp,
    gradient: np.uintp,  # of the context, added to
    q: np.uintp,
    r: np.uintp,
    context: np.uintp,  # read only
    step: np.float32,
    shrink: FloatTriple,
    pooling: FloatPair,
    width: Width,
) -> None:
    """Do `step_pair` with the blend of p and the context instead of p, whose gradient both share."""
    _STEP_HYBRID_PAIR(
        p, gradient, q, r, context, step, shrink[0], shrink[1], shrink[2], pooling[0], pooling[1], width
    )


@ir_inlined
def step_hybrid_one(
    p: np.uintp,
    gradient: np.uintp,  # of the context, added to
    q: np.uintp,
    context: np.uintp,  # read only
    step: np.float32,
    shrink: FloatPair,
    pooling: FloatPair,
    width: Width,
) -> None:
    """Do `step_one` with the blend of p and the context instead of p, whose gradient both share."""
    _STEP_HYBRID_ONE(p, gradient, q, context, step, shrink[0], shrink[1], pooling[0], pooling[1], width)


ROWS = 64  # rows compared at once: enough to pay for reading the split
ROW_FLOATS, ROW_WORDS = ir.VectorType(F32, ROWS), ir.VectorType(I32, ROWS)


def _place(context: Any, builder: Any, array_type: Any, array: Any, at: Any, kind: Any) -> Any:
    """Return a pointer to the vector that starts at array[at]."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())


def _remove_leaves(
    _typing: Any, leaves: Any, at: Any, mask: Any, values: Any, values_at: Any, threshold: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, leaves, args[0], args[1], ROW_WORDS)
        row = builder.load(_place(context, builder, values, args[3], args[4], ROW_FLOATS), align=4)
        above = builder.fcmp_ordered(">", row, splat(builder, args[5], ROW_FLOATS))
        known = builder.load(place, align=4)
        rest = builder.and_(known, splat(builder, args[2], ROW_WORDS))
        builder.store(builder.select(above, rest, known), place, align=4)
        return context.get_dummy_value()

    return types.void(leaves, types.intp, types.uint32, values, types.intp, types.float32), generate


_REMOVE_LEAVES: Any = intrinsic(_remove_leaves)


@ir_inlined
def remove_leaves(
    leaves: Bits, at: int, mask: np.uint32, values: Floats, values_at: int, threshold: np.float32
) -> None:
    """Apply the mask to leaves[at + k] if values[values_at + k] is above the threshold, k = 0 … ROWS - 1."""
    _REMOVE_LEAVES(leaves, at, mask, values, values_at, threshold)
