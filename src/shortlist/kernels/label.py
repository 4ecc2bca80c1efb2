"""Which candidates are in the user's set, by binary search in ascending sets."""

from shortlist.kernels.jit import kernel
from shortlist.types import Bools, Ints, Longs


@kernel
def rows_label(
    indptr: Longs,  # (n_lists + 1,)
    candidates: Ints,  # (n_candidates,) items in the numbering of the sets; -1: unknown there
    user: Ints,  # (n_lists,) whose set; -1: nobody's
    set_indptr: Longs,  # (n_users + 1,)
    sets: Ints,  # (n_members,) ascending per user
    inside: Bools,  # (n_candidates,) set where the candidate is in the user's set
) -> None:
    """Mark the candidates that are members."""
    for number in range(user.size):
        if user[number] < 0:
            continue
        first, end = set_indptr[user[number]], set_indptr[user[number] + 1]
        for at in range(indptr[number], indptr[number + 1]):
            low, high = first, end
            while low < high:
                middle = (low + high) // 2
                if sets[middle] < candidates[at]:
                    low = middle + 1
                else:
                    high = middle
            inside[at] = low < end and sets[low] == candidates[at]
