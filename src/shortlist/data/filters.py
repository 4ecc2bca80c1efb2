"""Leaving out what is too rare to learn from."""

from typing import Literal

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.types import Longs

__all__ = ["minimum"]

Counting = Literal["rows", "distinct"]


def minimum(
    data: Interactions,
    *,
    users_per_item: int = 0,
    items_per_user: int = 0,
    count: Counting = "rows",
    core: bool = False,
) -> Interactions:
    """Drop items with too few users, then users with too few items; `core` repeats until nothing changes.

    One pass is the paper's preprocessing: a user dropped at the end may leave an item below its minimum.
    `count` says how a user's items are counted: every row, or each distinct item once.
    """
    for name, value in (("users_per_item", users_per_item), ("items_per_user", items_per_user)):
        if value < 0:
            raise ConfigError(f"{name} must be at least 0, got {value!r}; 0 asks for nothing.")
    if count not in ("rows", "distinct"):
        raise ConfigError(f"count must be 'rows' or 'distinct', got {count!r}; choose one of the two.")
    left = data
    while True:
        before = left.n_rows
        left = left.where(_users_per_item(left)[left.item] >= users_per_item)
        left = left.where(_items_per_user(left, count)[left.user] >= items_per_user)
        if left.n_rows == 0:
            raise DataError(
                f"no user is left of {data.n_users:,} with users_per_item={users_per_item}, "
                f"items_per_user={items_per_user}; lower the minimum, or bring more data."
            )
        if not core or left.n_rows == before:
            return left.compact()


def enough(data: Interactions) -> Interactions:
    """The same data, refused if it has one user or one item only: there is nothing to choose between."""
    for what, active in (
        ("user", data.active_users.size),
        ("item", np.count_nonzero(np.bincount(data.item))),
    ):
        if active < 2:
            raise DataError(
                f"interactions must hold at least two {what}s to learn from, got {active}; "
                f"check that the {what}_id column is the right one, or bring more data."
            )
    return data


def _users_per_item(data: Interactions) -> Longs:
    """(n_items,) distinct users of every item."""
    return np.bincount(data.item_sets[1], minlength=data.n_items)


def _items_per_user(data: Interactions, count: Counting) -> Longs:
    """(n_users,) rows or distinct items of every user."""
    return np.diff(data.indptr if count == "rows" else data.item_sets[0])
