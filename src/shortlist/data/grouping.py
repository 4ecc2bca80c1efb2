"""Rows in any order become rows by user, in time, without repeats, with their baskets found."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shortlist.core.threads import rows_thread_count, run_each
from shortlist.kernels.group import (
    baskets_fill,
    baskets_find,
    repeats_fold,
    rows_group,
    rows_order,
    users_count,
)
from shortlist.types import Bools, Floats, Ints, Longs


class Rows(NamedTuple):
    """Columns grouped by user; an absent one has length 0."""

    indptr: Longs  # (n_users + 1,)
    item: Ints
    time: Longs
    basket: Ints
    weight: Floats


class Settled(NamedTuple):
    """The arrays of Interactions."""

    indptr: Longs
    item: Ints
    baskets: Longs
    user_baskets: Longs
    time: Longs | None
    weight: Floats | None
    duplicates: int


def by_user(n_users: int, user: Ints, item: Ints, time: Longs, basket: Ints, weight: Floats) -> Rows:
    """Bring every user's rows together; the columns that came in are not needed afterwards."""
    indptr = np.zeros(n_users + 1, np.int64)
    users_count(user, indptr)
    rows = Rows(indptr, *map(np.empty_like, (item, time, basket, weight)))
    free = indptr[:-1].copy()

    def move(users: tuple[int, int]) -> None:  # every thread reads all rows and moves those of its users
        first, last = users
        rows_group(user, first, free[first:last], item, time, basket, weight, *rows[1:])

    run_each(move, _blocks(indptr, rows_thread_count(item.size)), item.size)
    return rows


def settled(rows: Rows) -> Settled:
    """Order every user's rows in time, fold equal ones, find the baskets; the rows are used up."""
    _order(rows)
    indptr, item, time, basket, weight = rows
    keep = np.empty(item.size, np.bool_)
    folded = repeats_fold(indptr, time, basket, item, weight, keep)
    if folded:
        indptr, item = kept_starts(indptr, keep), item[keep]
        time = time[keep] if time.size else time
        basket = basket[keep] if basket.size else basket
        weight = weight[keep] if weight.size else weight
    user_baskets = np.zeros(indptr.size, np.int64)
    opens = keep[: item.size]
    baskets = np.empty(baskets_find(indptr, time, basket, opens, user_baskets) + 1, np.int64)
    baskets_fill(opens, baskets)
    return Settled(
        indptr=indptr,
        item=item,
        baskets=baskets,
        user_baskets=user_baskets,
        time=time if time.size else None,
        weight=weight if weight.size else None,
        duplicates=folded,
    )


def _order(rows: Rows) -> None:
    """Users are independent, so blocks of them may go to threads; the result is the same."""
    indptr, item, time, basket, weight = rows

    def order(users: tuple[int, int]) -> None:
        rows_order(indptr[users[0] : users[1] + 1], time, basket, item, weight)

    run_each(order, _blocks(indptr, 4 * rows_thread_count(item.size)), item.size)


def _blocks(indptr: Longs, n_blocks: int) -> list[tuple[int, int]]:
    """(first, last) users of blocks with about as many rows each."""
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], n_blocks + 1)[1:-1])
    edges = [0, *cuts.tolist(), indptr.size - 1]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def kept_starts(starts: Longs, keep: Bools) -> Longs:
    """Where groups start once only the marked elements are left."""
    before = np.zeros(keep.size + 1, np.int64)
    np.cumsum(keep, out=before[1:])
    return before[starts]
