"""Ragged lists: checks that must look at every shown item."""

from shortlist.kernels.jit import kernel
from shortlist.types import Ints, Longs


@kernel
def repeat_find(indptr: Longs, items: Ints, stamp: Ints) -> int:
    """Where a list first shows an item for the second time, -1 where none does; stamp (n_items,) all -1."""
    for number in range(indptr.size - 1):
        for at in range(indptr[number], indptr[number + 1]):
            if stamp[items[at]] == number:
                return int(at)
            stamp[items[at]] = number
    return -1
