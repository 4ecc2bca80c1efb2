"""Ragged sets: the distinct items of each user, ascending, stored one user after the other."""

from shortlist.kernels.jit import kernel
from shortlist.types import Bools, Ints, Longs


@kernel
def unite_sets(
    a_at: Longs,  # (n_users + 1,)
    a: Ints,  # ascending per user
    b_at: Longs,  # (n_users + 1,)
    b: Ints,  # ascending per user
    out_at: Longs,  # (n_users + 1,) written
    out: Ints,  # (a.size + b.size,) filled from the front
) -> None:
    """Write the union of both sets of each user."""
    end = 0
    out_at[0] = 0
    for user in range(a_at.size - 1):
        i, j = a_at[user], b_at[user]
        while i < a_at[user + 1] or j < b_at[user + 1]:
            from_a = j == b_at[user + 1] or (i < a_at[user + 1] and a[i] <= b[j])
            item = a[i] if from_a else b[j]
            if from_a:
                i += 1
            else:
                j += 1
            if end == out_at[user] or out[end - 1] != item:
                out[end] = item
                end += 1
        out_at[user + 1] = end


@kernel
def find_members(at: Longs, items: Ints, sets: Ints, wanted: Ints, out: Bools) -> None:
    """Write to out (n,) whether set number sets[n] contains the item wanted[n]; sets need not be sorted."""
    for n in range(sets.size):
        out[n] = False
        for row in range(at[sets[n]], at[sets[n] + 1]):
            if items[row] == wanted[n]:
                out[n] = True
                break


@kernel
def count_common(
    a_at: Longs,  # (n_users + 1,)
    a: Ints,  # ascending per user
    b_at: Longs,  # (n_users + 1,)
    b: Ints,  # ascending per user
    out: Longs,  # (n_users,) written
) -> None:
    """Count the items that both sets of each user contain."""
    for user in range(a_at.size - 1):
        i, j, common = a_at[user], b_at[user], 0
        while i < a_at[user + 1] and j < b_at[user + 1]:
            if a[i] == b[j]:
                common += 1
            step = a[i] <= b[j]
            if b[j] <= a[i]:
                j += 1
            if step:
                i += 1
        out[user] = common
