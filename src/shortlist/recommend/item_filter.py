"""ItemFilter: candidates or exclusions, one set for all users or one for each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.calls import warn
from shortlist.core.ragged import ItemSets, read_only, starts
from shortlist.data.id_map import UNKNOWN, IdMap, is_id_list
from shortlist.errors import ConfigError, UnknownIdError
from shortlist.kernels.sets import count_common, unite_sets
from shortlist.types import Bools, Ints, Longs


@dataclass(frozen=True)
class ItemFilter:
    """The same items for all users, or items per user; an empty filter restricts nothing."""

    shared: Ints | None = None  # ascending, distinct
    own: Mapping[Any, Ints] | None = None  # user id → known items

    @classmethod
    def build(cls, name: str, given: Any, users: pl.Series, items: IdMap) -> "ItemFilter":
        """Build from item ids for all, a mapping user id → item ids, or a list per user; skip unknown ids."""
        if given is None:
            return cls()
        if isinstance(given, Mapping):
            if len(users):
                for user_id in given:
                    IdMap(users.head(1)).check_type(user_id, f"{name}: user id")
            return cls(own=_own_items(name, given, items))
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
            return cls(own=_own_items(name, dict(zip(users.to_list(), listed, strict=True)), items))
        return cls(shared=np.unique(_known_items(name, listed, items)[0]))

    def sets(self, users: pl.Series, items: IdMap) -> ItemSets | None:
        """The sets of these users; None if the filter is not per user."""
        if self.own is None:
            return None
        empty = np.empty(0, np.int32)
        rows = [self.own.get(user_id, empty) for user_id in users.to_list()]
        owner = np.repeat(np.arange(len(rows)), [row.size for row in rows])
        item = np.concatenate([empty, *rows])
        keys = np.unique(owner * len(items) + item)  # by user, then item, each once
        lengths = np.bincount(keys // max(len(items), 1), minlength=len(rows))
        return ItemSets(starts(lengths), (keys % max(len(items), 1)).astype(np.int32))


NO_FILTER = ItemFilter()


def _own_items(name: str, given: Mapping[Any, Iterable[Any]], items: IdMap) -> dict[Any, Ints]:
    """User id → known items."""
    for items_of_user in given.values():
        _check_collection(name, items_of_user)
    rows = [list(items_of_user) for items_of_user in given.values()]
    found, known = _known_items(name, list(chain.from_iterable(rows)), items)
    ends = np.append(0, np.cumsum(known))[np.cumsum([0, *map(len, rows)])]  # in `found`
    return {user_id: found[ends[at] : ends[at + 1]] for at, user_id in enumerate(given)}


def _known_items(name: str, listed: Any, items: IdMap) -> tuple[Ints, Bools]:
    """(known items, whether each id is known); warn of unknown ids, refuse only unknown candidates."""
    found = items.lookup(listed, f"{name}: item id")
    known: Bools = found != UNKNOWN
    n_unknown = int((~known).sum())
    if n_unknown:
        first = listed[int(np.argmin(known))]
        count = f"{n_unknown:,} of {known.size:,} item ids in `{name}` are unknown to the model"
        if n_unknown == known.size and name == "candidates":
            raise UnknownIdError(f"{count}, such as {first!r:.60}; pass ids of items in the training data.")
        warn(f"{count} and are ignored, such as {first!r:.60}.")
    return found[known], known


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
