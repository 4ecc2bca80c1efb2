"""Rows of factors as vectors: one step reads each row twice and writes it once, and nothing comes between.

A loop over two rows makes the compiler ask, at every step, whether they overlap; here it is told what to do.
Rows are named by their addresses, because counting the references of their arrays costs as much as a step.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from shortlist.kernels.jit import inlined, ir_inlined
from shortlist.kernels.simd_blocks import F32, I32, I64, LANES, splat
from shortlist.types import Floats

Width = tuple[tuple[()], ...]

SUMS = 4  # running sums of a product, so that one addition need not wait for the last
LINE = 64  # bytes fetched together
FUSED = ("contract",)
BYTE = ir.IntType(8).as_pointer()


def factor_width(n_factors: int) -> Width:
    """The number of factors as a type, and so a constant of the compiled step: one empty tuple for each."""
    return ((),) * n_factors


def _places(n: int) -> Iterator[tuple[int, Any]]:
    """(first, vector type) of the pieces of a row: eights, then what is left by halves."""
    at = 0
    for lanes in (LANES, 4, 2, 1):
        while n - at >= lanes:
            yield at, ir.VectorType(F32, lanes)
            at += lanes


def _piece(builder: Any, row: Any, at: int, kind: Any) -> Any:
    """Where the floats from `at` on stand, as one vector."""
    pointer = builder.inttoptr(row, F32.as_pointer())
    return builder.bitcast(builder.gep(pointer, [ir.Constant(I64, at)]), kind.as_pointer())


def _lane_sum(builder: Any, vector: Any) -> Any:
    """Halves onto each other until one float is left."""
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
        for number, (at, kind) in enumerate(_places(len(width))):
            p, q = (builder.load(_piece(builder, row, at, kind), align=4) for row in args[:2])
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


def _moves(n_rows: int, formula: Callable[..., tuple[Any, ...]]) -> Any:
    """A step on rows that do not overlap: new values of the first of them from all, and from some numbers."""

    def generate_for(width: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            for at, kind in _places(len(width)):
                places = [_piece(builder, row, at, kind) for row in args[:n_rows]]
                old = [builder.load(place, align=4) for place in places]
                numbers = [splat(builder, number, kind) for number in args[n_rows:-1]]
                for place, value in zip(places, formula(builder, *old, *numbers), strict=False):
                    builder.store(value, place, align=4)
            return context.get_dummy_value()

        return generate

    return generate_for


def _mix(builder: Any, a: Any, x: Any, b: Any, y: Any) -> Any:
    """a·x + b·y."""
    return builder.fadd(builder.fmul(a, x, flags=FUSED), builder.fmul(b, y, flags=FUSED), flags=FUSED)


def _pair(
    b: Any, p: Any, q: Any, r: Any, step: Any, keep_p: Any, keep_q: Any, keep_r: Any
) -> tuple[Any, ...]:
    away = b.fmul(step, p, flags=FUSED)
    return (
        _mix(b, keep_p, p, step, b.fsub(q, r)),
        b.fadd(b.fmul(keep_q, q, flags=FUSED), away, flags=FUSED),
        b.fsub(b.fmul(keep_r, r, flags=FUSED), away, flags=FUSED),
    )


def _one(b: Any, p: Any, q: Any, step: Any, keep_p: Any, keep_q: Any) -> tuple[Any, ...]:
    return _mix(b, keep_p, p, step, q), _mix(b, keep_q, q, step, p)


def _add(b: Any, p: Any, q: Any, scale: Any) -> tuple[Any, ...]:
    return (b.fadd(p, b.fmul(scale, q, flags=FUSED), flags=FUSED),)


def _larger(b: Any, p: Any, q: Any) -> tuple[Any, ...]:
    return (b.select(b.fcmp_ordered(">=", p, q), p, q),)


def _weights(b: Any, p: Any, context: Any, base: Any, gain: Any) -> tuple[Any, Any]:
    """The shares of user and context in the hybrid: halves (base ½, gain 0), or all to the larger (0, 1)."""
    one, zero = (ir.Constant(p.type, [value] * p.type.count) for value in (1.0, 0.0))
    larger = b.select(b.fcmp_ordered(">=", p, context), one, zero)
    weight = b.fadd(base, b.fmul(gain, larger))
    return weight, b.fsub(one, weight)


def _blend(b: Any, h: Any, p: Any, context: Any, base: Any, gain: Any) -> tuple[Any, ...]:
    mine, theirs = _weights(b, p, context, base, gain)
    return (_mix(b, mine, p, theirs, context),)


def _hybrid_pair(
    b: Any, p: Any, debt: Any, q: Any, r: Any, c: Any, step: Any, kp: Any, kq: Any, kr: Any, *how: Any
) -> tuple[Any, ...]:
    mine, theirs = _weights(b, p, c, *how)
    away, pull = (
        b.fmul(step, _mix(b, mine, p, theirs, c), flags=FUSED),
        b.fmul(step, b.fsub(q, r), flags=FUSED),
    )
    return (
        _mix(b, kp, p, mine, pull),
        b.fadd(debt, b.fmul(theirs, pull, flags=FUSED), flags=FUSED),
        b.fadd(b.fmul(kq, q, flags=FUSED), away, flags=FUSED),
        b.fsub(b.fmul(kr, r, flags=FUSED), away, flags=FUSED),
    )


def _hybrid_one(
    b: Any, p: Any, debt: Any, q: Any, c: Any, step: Any, kp: Any, kq: Any, *how: Any
) -> tuple[Any, ...]:
    mine, theirs = _weights(b, p, c, *how)
    pull = b.fmul(step, q, flags=FUSED)
    return (
        _mix(b, kp, p, mine, pull),
        b.fadd(debt, b.fmul(theirs, pull, flags=FUSED), flags=FUSED),
        _mix(b, kq, q, step, _mix(b, mine, p, theirs, c)),
    )


def _pair_move(_typing: Any, p: Any, q: Any, r: Any, step: Any, kp: Any, kq: Any, kr: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 3, *[types.float32] * 4, width), _moves(3, _pair)(width)


def _one_move(_typing: Any, p: Any, q: Any, step: Any, kp: Any, kq: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 2, *[types.float32] * 3, width), _moves(2, _one)(width)


def _row_add(_typing: Any, p: Any, q: Any, scale: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 2, types.float32, width), _moves(2, _add)(width)


def _row_larger(_typing: Any, p: Any, q: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 2, width), _moves(2, _larger)(width)


def _hybrid_make(_typing: Any, h: Any, p: Any, c: Any, base: Any, gain: Any, width: Any) -> Any:
    return types.void(*[types.uintp] * 3, *[types.float32] * 2, width), _moves(3, _blend)(width)


def _hybrid_pair_move(
    _typing: Any, p: Any, d: Any, q: Any, r: Any, c: Any, s: Any, kp: Any, kq: Any, kr: Any, b: Any, g: Any,
    width: Any,
) -> Any:  # fmt: skip
    return types.void(*[types.uintp] * 5, *[types.float32] * 6, width), _moves(5, _hybrid_pair)(width)


def _hybrid_one_move(
    _typing: Any, p: Any, d: Any, q: Any, c: Any, s: Any, kp: Any, kq: Any, b: Any, g: Any, width: Any
) -> Any:
    return types.void(*[types.uintp] * 4, *[types.float32] * 5, width), _moves(4, _hybrid_one)(width)


def _row_fetch(_typing: Any, row: Any, width: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [BYTE, I32, I32, I32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [BYTE], kind)
        to_write, keep_near, data = (ir.Constant(I32, number) for number in (1, 3, 1))
        for at in range(0, 4 * len(width), LINE):
            place = builder.inttoptr(builder.add(args[0], ir.Constant(args[0].type, at)), BYTE)
            builder.call(fetch, [place, to_write, keep_near, data])
        return context.get_dummy_value()

    return types.void(types.uintp, width), generate


_ROW_DOT: Any = intrinsic(_row_dot)
_PAIR_MOVE: Any = intrinsic(_pair_move)
_ONE_MOVE: Any = intrinsic(_one_move)
_ROW_FETCH: Any = intrinsic(_row_fetch)
_ROW_ADD: Any = intrinsic(_row_add)
_ROW_LARGER: Any = intrinsic(_row_larger)
_HYBRID_MAKE: Any = intrinsic(_hybrid_make)
_HYBRID_PAIR: Any = intrinsic(_hybrid_pair_move)
_HYBRID_ONE: Any = intrinsic(_hybrid_one_move)


@inlined
def row_at(table: Floats, row: int | np.integer) -> np.uintp:
    """The address of one row of a contiguous (n, n_factors) table."""
    return np.uintp(table.ctypes.data) + np.uintp(row) * np.uintp(4 * table.shape[1])


@ir_inlined
def row_dot(left: np.uintp, right: np.uintp, width: Width) -> np.float32:
    """The inner product of two rows, always summed in the same order."""
    total: np.float32 = _ROW_DOT(left, right, width)
    return total


@ir_inlined
def pair_move(
    p: np.uintp,
    q: np.uintp,
    r: np.uintp,
    step: np.float32,
    keep_p: np.float32,
    keep_q: np.float32,
    keep_r: np.float32,
    width: Width,
) -> None:
    """p, q, r become keep·itself + step · (q - r, p, -p), all from the old values."""
    _PAIR_MOVE(p, q, r, step, keep_p, keep_q, keep_r, width)


@ir_inlined
def one_move(
    p: np.uintp, q: np.uintp, step: np.float32, keep_p: np.float32, keep_q: np.float32, width: Width
) -> None:
    """p, q become keep·itself + step · (q, p), both from the old values."""
    _ONE_MOVE(p, q, step, keep_p, keep_q, width)


@ir_inlined
def row_fetch(row: np.uintp, width: Width) -> None:
    """Ask for a row that will soon be changed; any address will do, nothing is read."""
    _ROW_FETCH(row, width)


@ir_inlined
def row_add(p: np.uintp, q: np.uintp, scale: np.float32, width: Width) -> None:
    """p += scale · q."""
    _ROW_ADD(p, q, scale, width)


@ir_inlined
def row_larger(p: np.uintp, q: np.uintp, width: Width) -> None:
    """p becomes the larger of p and q, factor by factor."""
    _ROW_LARGER(p, q, width)


@ir_inlined
def hybrid_make(
    h: np.uintp, p: np.uintp, context: np.uintp, base: np.float32, gain: np.float32, width: Width
) -> None:
    """h becomes w·p + (1 - w)·context; w is base, plus gain where p is the larger."""
    _HYBRID_MAKE(h, p, context, base, gain, width)


@ir_inlined
def hybrid_pair_move(
    p: np.uintp,
    debt: np.uintp,
    q: np.uintp,
    r: np.uintp,
    context: np.uintp,  # read only
    step: np.float32,
    keep_p: np.float32,
    keep_q: np.float32,
    keep_r: np.float32,
    base: np.float32,
    gain: np.float32,
    width: Width,
) -> None:
    """As `pair_move` with the hybrid in p's place; p takes its share w of the pull, `debt` the rest."""
    _HYBRID_PAIR(p, debt, q, r, context, step, keep_p, keep_q, keep_r, base, gain, width)


@ir_inlined
def hybrid_one_move(
    p: np.uintp,
    debt: np.uintp,
    q: np.uintp,
    context: np.uintp,  # read only
    step: np.float32,
    keep_p: np.float32,
    keep_q: np.float32,
    base: np.float32,
    gain: np.float32,
    width: Width,
) -> None:
    """As `one_move` with the hybrid in p's place."""
    _HYBRID_ONE(p, debt, q, context, step, keep_p, keep_q, base, gain, width)
