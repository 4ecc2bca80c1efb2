"""Sorting in kernels: NumPy's sort inside a kernel takes longer to compile than most kernels."""

from shortlist.kernels.jit import inlined
from shortlist.types import Ints, State


@inlined
def sort_ascending(values: Ints | State) -> None:
    """Sort numbers (n,) in place, by Shell's method; rows that are sorted already cost one pass per gap."""
    gap = values.size
    while gap > 1:
        gap = 1 if gap < 5 else gap * 5 // 11  # the ratio recommended by Gonnet and Baeza-Yates
        for start in range(gap, values.size):
            value, at = values[start], start
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
