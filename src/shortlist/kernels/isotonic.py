"""Isotonic regression: pool adjacent violators."""

from shortlist.kernels.jit import kernel
from shortlist.types import Doubles, Longs


@kernel
def violators_pool(total: Doubles, weight: Doubles, first: Longs) -> int:
    """Merge neighbours until means rise; blocks fill the fronts of all three, their number is returned.

    total, weight (n,): sums and counts per distinct score, ascending; first (n,): where a block begins.
    """
    blocks = 0
    for at in range(total.size):
        t, w, start = total[at], weight[at], at
        while blocks and total[blocks - 1] * w >= t * weight[blocks - 1]:
            blocks -= 1
            t += total[blocks]
            w += weight[blocks]
            start = first[blocks]
        total[blocks], weight[blocks], first[blocks] = t, w, start
        blocks += 1
    return blocks
