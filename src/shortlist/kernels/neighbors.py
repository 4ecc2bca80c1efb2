"""Scores from the vectors of the nearest users."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs


class SparseRows(NamedTuple):
    """A matrix in compressed rows."""

    starts: Longs  # (n_rows + 1,)
    columns: Ints
    values: Doubles


class KnownVectors(NamedTuple):
    """The vectors of all users."""

    by_user: SparseRows  # (n_users, n_items)
    by_item: SparseRows  # (n_items, n_users)
    norms: Doubles  # (n_users,) squared


@inlined
def _is_further(distance: Doubles, a: int, b: int) -> bool:
    """Whether user a comes after user b; of equally distant users, the one with the higher number."""
    return bool(distance[a] > distance[b] or (distance[a] == distance[b] and a > b))


@inlined
def _move_down(heap: Ints, size: int, distance: Doubles) -> None:
    """Move the root down to where no user below is further away."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _is_further(distance, heap[child + 1], heap[child]):
            child += 1
        if not _is_further(distance, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@inlined
def _move_up(heap: Ints, at: int, distance: Doubles) -> None:
    """Move an entry up to where the one above is further away."""
    while at > 0:
        parent = (at - 1) // 2
        if not _is_further(distance, heap[at], heap[parent]):
            return
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


@kernel
def score_with_neighbors(
    users: SparseRows,  # (n, n_items) vectors to score
    own_numbers: Longs,  # (n,) their numbers in `known`, which are no neighbors; -1: none
    known: KnownVectors,
    n_neighbors: int,
    own_weight: float,
    others_weight: float,
    out: Floats,  # (n, n_items)
) -> None:
    """out = own_weight · (user's vector) + others_weight · (mean vector of the nearest users)."""
    n_users = known.norms.size
    distance, heap = np.empty(n_users), np.empty(n_neighbors, np.int32)
    total = np.empty(out.shape[1])
    for row in range(out.shape[0]):
        distance[:] = known.norms  # the norm of the user's own vector is the same for all
        total[:] = 0.0
        for at in range(users.starts[row], users.starts[row + 1]):
            item, value = users.columns[at], users.values[at]
            total[item] += own_weight * value
            for k in range(known.by_item.starts[item], known.by_item.starts[item + 1]):
                distance[known.by_item.columns[k]] -= 2 * value * known.by_item.values[k]
        size = 0
        for user in range(n_users):
            if user == own_numbers[row]:
                continue
            if size < n_neighbors:
                heap[size] = user
                _move_up(heap, size, distance)
                size += 1
            elif distance[user] < distance[heap[0]]:
                heap[0] = user
                _move_down(heap, size, distance)
        for k in range(size):
            user = heap[k]
            for at in range(known.by_user.starts[user], known.by_user.starts[user + 1]):
                total[known.by_user.columns[at]] += others_weight / size * known.by_user.values[at]
        for item in range(out.shape[1]):
            out[row, item] = total[item]
