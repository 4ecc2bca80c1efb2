"""Filters for interactions."""

from typing import Literal

import numpy as np

from shortlist.core.params import check_whole
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
    """Drop items with too few users, then users with too few items.

    Parameters
    ----------
    data
        Interactions to filter.
    users_per_item
        Minimum number of distinct users of an item.
    items_per_user
        Minimum number of items of a user.
    count
        Whether each row of a user counts as an item, or each distinct item counts once.
    core
        Whether to repeat until nothing changes (k-core). One pass, as in the paper, may leave an item below
        its minimum when its users are dropped.

    Returns
    -------
    Interactions without the dropped users and items.

    Raises
    ------
    DataError
        If nothing is left.
    ConfigError
        If a minimum is negative, or `count` is unknown.

    Examples
    --------
    >>> data = sl.load_dataset("sample")
    >>> sl.filters.minimum(data, users_per_item=10, items_per_user=10).n_users <= data.n_users
    True
    """
    check_whole(0, users_per_item=users_per_item, items_per_user=items_per_user)
    given: object = count
    if not isinstance(given, str) or given not in ("rows", "distinct"):
        raise ConfigError(f"count must be 'rows' or 'distinct', got {count!r:.60}; choose one of them.")
    left = data = Interactions.of(data)
    while True:
        before = left.n_rows
        left = left.where(_users_per_item(left)[left.item] >= users_per_item)
        left = left.where(_items_per_user(left, count)[left.user] >= items_per_user)
        if left.n_rows == 0:
            raise DataError(
                f"the filter must leave some rows, got none of {data.n_users:,} users with users_per_item="
                f"{users_per_item}, items_per_user={items_per_user}; lower the minimum, or use more data."
            )
        if not core or left.n_rows == before:
            return left.compact()


def _users_per_item(data: Interactions) -> Longs:
    """(n_items,) number of distinct users."""
    return np.bincount(data.item_sets[1], minlength=data.n_items)


def _items_per_user(data: Interactions, count: Counting) -> Longs:
    """(n_users,) number of rows or distinct items."""
    return np.diff(data.indptr if count == "rows" else data.item_sets[0])
