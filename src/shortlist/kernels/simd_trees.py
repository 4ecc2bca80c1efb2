"""Vector code for splits of trees: one split is compared with the values of several rows at once."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from shortlist.kernels.jit import ir_inlined
from shortlist.kernels.simd_blocks import F32, I32, splat
from shortlist.types import Bits, Floats

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
