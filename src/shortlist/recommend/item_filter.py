"""ItemFilter: candidates or exclusions, one set for all users or one for each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.ragged import ItemSets, read_only, starts
from shortlist.data.id_map import UNKNOWN, IdMap, is_id_list
from shortlist.errors import ConfigError
from shortlist.kernels.sets import count_common, unite_sets
from shortlist.types import Ints, Longs


@dataclass(frozen=True)
class ItemFilter:
    """The same items for all users, or items per user; an empty filter restricts nothing."""

    shared: Ints | None = None  # ascending, distinct
    own: Mapping[Any, Iterable[Any]] | None = None  # user id → item ids

    @classmethod
    def build(cls, name: str, given: Any, users: pl.Series, items: IdMap) -> "ItemFilter":
        """Build from item ids for all, a mapping user id → item ids, or a list per user; skip unknown ids."""
        if given is None:
            return cls()
        if isinstance(given, Mapping):
            for items_of_user in given.values():
                _check_collection(name, items_of_user)
            return cls(own=given)
        _check_collection(name, given)
        listed = given if isinstance(given, pl.Series) else list(given)
        kinds = {type(listed[0])} if isinstance(listed, pl.Series) and len(listed) else set(map(type, listed))
        nested = [issubclass(kind, Iterable) and not issubclass(kind, (str, bytes)) for kind in kinds]
        if any(nested):
            if not all(nested):
                raise ConfigError(
                    f"{name} must be a list of item ids or a list of lists, got a mixture of both; "
                    "pass one of them."
                )
            for one in listed:
                _check_collection(name, one)
            if len(listed) != len(users):
                raise ConfigError(
                    f"{name} must hold one list per user ({len(users)}), got {len(listed)}; "
                    "pass a flat list to share it, or a dictionary user_id → item ids."
                )
            return cls(own=dict(zip(users.to_list(), listed, strict=True)))
        found = np.unique(items.lookup(listed))
        return cls(shared=found[found != UNKNOWN])

    def sets(self, users: pl.Series, items: IdMap) -> ItemSets | None:
        """The sets of these users; None if the filter is not per user."""
        if self.own is None:
            return None
        rows = [list(self.own.get(user_id, ())) for user_id in users.to_list()]
        owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        item = items.lookup(list(chain.from_iterable(rows)))
        known = item != UNKNOWN
        keys = np.unique(owner[known] * len(items) + item[known])  # by user, then item, each once
        lengths = np.bincount(keys // max(len(items), 1), minlength=len(rows))
        return ItemSets(starts(lengths), (keys % max(len(items), 1)).astype(np.int32))


NO_FILTER = ItemFilter()


def _check_collection(name: str, given: Any) -> None:
    """Raise ConfigError for a single id, whose characters would be read as ids, a table or a dictionary."""
    if not is_id_list(given):
        kind = "string" if isinstance(given, str) else type(given).__name__
        got = f"the {kind} {given!r:.60}" if isinstance(given, (str, bytes, int, float)) else f"a {kind}"
        raise ConfigError(f"{name} must be a collection of item ids, got {got}; put the ids in a list.")


def join_sets(a: ItemSets, b: ItemSets) -> ItemSets:
    """The union of two sets for each user."""
    at, out = np.empty_like(a.indptr), np.empty(a.items.size + b.items.size, np.int32)
    unite_sets(read_only(a.indptr), read_only(a.items), read_only(b.indptr), read_only(b.items), at, out)
    return ItemSets(at, out[: at[-1]])


def count_candidates(shared: Ints | None, own: ItemSets | None, excluded: ItemSets, n_items: int) -> Longs:
    """(n_users,) how many candidates are not excluded."""
    n_users = excluded.indptr.size - 1
    if own is not None:
        common = np.empty(n_users, np.int64)
        count_common(
            read_only(own.indptr),
            read_only(own.items),
            read_only(excluded.indptr),
            read_only(excluded.items),
            common,
        )
        return np.diff(own.indptr) - common
    if shared is None:
        return n_items - np.diff(excluded.indptr)
    member = np.zeros(n_items + 1, np.bool_)
    member[shared] = True
    owner = np.repeat(np.arange(n_users), np.diff(excluded.indptr))
    hits = np.bincount(owner, weights=member[excluded.items], minlength=n_users)
    return shared.size - hits.astype(np.int64)
