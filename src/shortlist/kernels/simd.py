"""Vector code: steps of SGD on rows of factors, and sums of blocks of items.

It is written as LLVM vector instructions, because in a loop over two rows the compiler checks at every step
whether they overlap. Rows are passed as addresses, because reference counting of their arrays costs as much
as a step. Only kernels can call these functions.

Lists of `ALS` take 1.9 times the processor time with sums in plain loops (Ta-Feng, Last.fm), those of
`DKHRM` 1.1 times.
"""

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.kernels.jit import inlined
from shortlist.types import Floats

LANES = 8
BLOCK = 64  # items bounded together: what fits in the vector registers
GROUP = 6  # users whose sums are computed together: more would not fit in the registers
LINE = 64  # bytes per cache line
SUMS = 4  # independent partial sums of an inner product, so that additions overlap
FUSED = ("contract",)

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
BYTE = ir.IntType(8).as_pointer()
ADDRESS = types.uintp

Width = tuple[tuple[tuple[()], ...], ...]
FloatPair = tuple[np.float32, np.float32]
Writer = Callable[..., Any]  # writes instructions with a builder; returns the result, or None


def _callable_from_kernels(n_arguments: int, typed: Writer) -> Any:
    """Return an intrinsic: `typed` gets the types of the arguments, returns a signature and a Writer."""

    def define(_typing: Any, *arguments: Any) -> Any:
        kind, write = typed(*arguments)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = write(builder, *args)
            return context.get_dummy_value() if value is None else value

        return kind, generate

    names = [Parameter(f"a{number}", Parameter.POSITIONAL_OR_KEYWORD) for number in range(n_arguments + 1)]
    define.__signature__ = Signature(names)  # type: ignore[attr-defined]
    return intrinsic(define)


def vector_code(result: Any, *kinds: Any) -> Callable[[Writer], Any]:
    """Compile a Writer for arguments of these types."""
    return lambda write: _callable_from_kernels(len(kinds), lambda *_: (result(*kinds), write))


def _load(builder: Any, data: Any, at: Any, kind: Any) -> Any:
    """Load consecutive floats that start at data[at]."""
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=4)


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector with the same float in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


# ---------------------------------------------------------------------- sums of retrieval
def sum_block(n_users: int, lanes: int) -> Any:
    """Compile the sums of a block of items for some users: `lanes` items at a time stay in registers.

    The arguments are the addresses of items, users and rows, the stride of the users, the number n of
    dimensions, and the addresses of start and sums. What is written to sums (n_users, BLOCK) is start
    (BLOCK,) plus n dimensions of the items times those of each user, which start at users[stride · row].
    """
    kind = ir.VectorType(F32, lanes)

    @vector_code(types.void, *[ADDRESS] * 3, types.intp, types.intp, *[ADDRESS] * 2)
    def add(
        builder: Any, items: Any, users: Any, rows: Any, stride: Any, n: Any, start: Any, sums: Any
    ) -> None:
        item, user, first, target = (
            builder.inttoptr(address, F32.as_pointer()) for address in (items, users, start, sums)
        )
        row = builder.inttoptr(rows, I32.as_pointer())
        numbers = (builder.load(builder.gep(row, [ir.Constant(I32, u)])) for u in range(n_users))
        vectors = [builder.gep(user, [builder.mul(builder.sext(u, I64), stride)]) for u in numbers]
        with cgutils.for_range(builder, ir.Constant(I64, BLOCK // lanes)) as piece:
            at = builder.mul(piece.index, ir.Constant(I64, lanes))
            begin = _load(builder, first, at, kind)
            totals = [cgutils.alloca_once_value(builder, begin) for _ in vectors]  # type: ignore[no-untyped-call]
            with cgutils.for_range(builder, n) as loop:
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

    return add


def _group_lanes() -> int:
    """Return how many items a group of users scores in one pass: AVX-512 has twice as many registers."""
    try:
        features = get_host_cpu_features()
    except RuntimeError:  # unknown to the compiler
        return 16
    return 32 if features.get("avx512f") else 16


add_block: Any = sum_block(1, BLOCK)
add_block_group: Any = sum_block(GROUP, _group_lanes())  # loads the items once for all users


@vector_code(types.int64, types.uint64)
def lowest_bit(builder: Any, mask: Any) -> Any:
    """Return the position of the lowest bit that is set."""
    return builder.cttz(mask, ir.Constant(ir.IntType(1), 0))


# ---------------------------------------------------------------------- steps on rows of factors
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


def _row_code(n_rows: int, n_numbers: int, result: Any, write_for: Callable[[int], Writer]) -> Any:
    """Compile code for addresses of rows, then floats, then a width, which decides about the code."""

    def typed(*arguments: Any) -> Any:
        kinds = *[ADDRESS] * n_rows, *[types.float32] * n_numbers, arguments[-1]
        return result(*kinds), write_for(_size(arguments[-1]))

    return _callable_from_kernels(n_rows + n_numbers + 1, typed)


def _step(n_rows: int) -> Callable[[Writer], Any]:
    """Compile a step on rows that do not overlap: the formula returns the new values of the first of them.

    Its arguments are the builder, the rows and the other numbers; a width follows them in calls.
    """

    def decorate(formula: Writer) -> Any:
        def write_for(n_factors: int) -> Writer:
            def write(builder: Any, *args: Any) -> None:
                for at, kind in _pieces(n_factors):
                    places = [_pointer(builder, row, at, kind) for row in args[:n_rows]]
                    old = [builder.load(place, align=4) for place in places]
                    numbers = [splat(builder, number, kind) for number in args[n_rows:-1]]
                    for place, value in zip(places, formula(builder, *old, *numbers), strict=False):
                        builder.store(value, place, align=4)

            return write

        return _row_code(n_rows, len(signature(formula).parameters) - n_rows - 1, types.void, write_for)

    return decorate


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


def _write_dot(n_factors: int) -> Writer:
    def write(builder: Any, left: Any, right: Any, _width: Any) -> Any:
        sums: dict[tuple[int, int], Any] = {}
        for number, (at, kind) in enumerate(_pieces(n_factors)):
            p, q = (builder.load(_pointer(builder, row, at, kind), align=4) for row in (left, right))
            product, name = builder.fmul(p, q, flags=FUSED), (kind.count, number % SUMS)
            sums[name] = builder.fadd(sums[name], product, flags=FUSED) if name in sums else product
        totals: dict[int, Any] = {}
        for (lanes, _), vector in sums.items():
            totals[lanes] = builder.fadd(totals[lanes], vector) if lanes in totals else vector
        result = ir.Constant(F32, 0.0)
        for total in totals.values():
            result = builder.fadd(result, _lane_sum(builder, total))
        return result

    return write


def _write_prefetch(n_factors: int) -> Writer:
    def write(builder: Any, row: Any, _width: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [BYTE, I32, I32, I32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [BYTE], kind)
        to_write, keep_near, data = ir.Constant(I32, 1), ir.Constant(I32, 3), ir.Constant(I32, 1)
        for at in range(0, 4 * n_factors, LINE):
            address = builder.inttoptr(builder.add(row, ir.Constant(row.type, at)), BYTE)
            builder.call(fetch, [address, to_write, keep_near, data])

    return write


# row_dot(left, right, width): the inner product of two rows, always summed in the same order
row_dot: Any = _row_code(2, 0, types.float32, _write_dot)
# prefetch_row(row, width): prefetch a row that will be written soon; any address is allowed
prefetch_row: Any = _row_code(1, 0, types.void, _write_prefetch)


@inlined
def row_at(table: Floats, row: int | np.integer) -> np.uintp:
    """Return the address of one row of a contiguous (n, n_factors) table."""
    return np.uintp(table.ctypes.data) + np.uintp(row) * np.uintp(4 * table.shape[1])


def _combine(builder: Any, a: Any, x: Any, b: Any, y: Any) -> Any:
    """Return a·x + b·y; which product is rounded is written down, or it would depend on the code around."""
    kind = a.type
    name, signature = f"llvm.fmuladd.v{kind.count}f32", ir.FunctionType(kind, [kind] * 3)
    fused = cgutils.get_or_insert_function(builder.module, signature, name)  # type: ignore[no-untyped-call]
    return builder.call(fused, [a, x, builder.fmul(b, y)])


# In the formulas, b is the builder, c the context, and kp, kq, kr are the shrink factors of p, q, r.
@_step(3)
def step_pair(b: Any, p: Any, q: Any, r: Any, step: Any, kp: Any, kq: Any, kr: Any) -> tuple[Any, ...]:
    """Set p, q, r to shrink · old value + step · (q - r, p, -p), all from the old values."""
    away = b.fmul(step, p, flags=FUSED)
    return (
        _combine(b, kp, p, step, b.fsub(q, r)),
        b.fadd(b.fmul(kq, q, flags=FUSED), away, flags=FUSED),
        b.fsub(b.fmul(kr, r, flags=FUSED), away, flags=FUSED),
    )


@_step(2)
def step_one(b: Any, p: Any, q: Any, step: Any, kp: Any, kq: Any) -> tuple[Any, ...]:
    """Set p, q to shrink · old value + step · (q, p), both from the old values."""
    return _combine(b, kp, p, step, q), _combine(b, step, p, kq, q)


@_step(2)
def add_row(b: Any, p: Any, q: Any, scale: Any) -> tuple[Any, ...]:
    """Add scale · q to p."""
    return (b.fadd(p, b.fmul(scale, q, flags=FUSED), flags=FUSED),)


@_step(2)
def keep_larger(b: Any, p: Any, q: Any) -> tuple[Any, ...]:
    """Set p to the elementwise maximum of p and q."""
    return (b.select(b.fcmp_ordered(">=", p, q), p, q),)


def _weights(b: Any, p: Any, context: Any, base: Any, gain: Any) -> tuple[Any, Any]:
    """Return the weights of user and context: base, plus gain where the user is larger, and the rest to 1."""
    ones, zeros = (ir.Constant(p.type, [value] * p.type.count) for value in (1.0, 0.0))
    larger = b.select(b.fcmp_ordered(">=", p, context), ones, zeros)
    weight = b.fadd(base, b.fmul(gain, larger))
    return weight, b.fsub(ones, weight)


@_step(3)
def blend_rows(b: Any, h: Any, p: Any, c: Any, base: Any, gain: Any) -> tuple[Any, ...]:
    """Set h to w·p + (1 - w)·c, where w is base, plus gain where p is larger."""
    weight, rest = _weights(b, p, c, base, gain)
    return (_combine(b, weight, p, rest, c),)


@_step(5)
def step_hybrid_pair(
    b: Any, p: Any, gradient: Any, q: Any, r: Any, c: Any, step: Any, kp: Any, kq: Any, kr: Any, base: Any,
    gain: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Do `step_pair` with the blend of p and c instead of p; c is only read, its gradient is added to."""
    weight, rest = _weights(b, p, c, base, gain)
    away = b.fmul(step, _combine(b, weight, p, rest, c), flags=FUSED)
    update = b.fmul(step, b.fsub(q, r), flags=FUSED)
    return (
        _combine(b, kp, p, weight, update),
        b.fadd(gradient, b.fmul(rest, update, flags=FUSED), flags=FUSED),
        b.fadd(b.fmul(kq, q, flags=FUSED), away, flags=FUSED),
        b.fsub(b.fmul(kr, r, flags=FUSED), away, flags=FUSED),
    )


@_step(4)
def step_hybrid_one(
    b: Any, p: Any, gradient: Any, q: Any, c: Any, step: Any, kp: Any, kq: Any, base: Any, gain: Any
) -> tuple[Any, ...]:
    """Do `step_one` with the blend of p and c instead of p; c is only read, its gradient is added to."""
    weight, rest = _weights(b, p, c, base, gain)
    update = b.fmul(step, q, flags=FUSED)
    return (
        _combine(b, kp, p, weight, update),
        b.fadd(gradient, b.fmul(rest, update, flags=FUSED), flags=FUSED),
        _combine(b, kq, q, step, _combine(b, weight, p, rest, c)),
    )
