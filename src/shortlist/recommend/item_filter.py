"""Which items may be shown: candidates and exclusions, one set for all users or one for each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.id_map import UNKNOWN, IdMap
from shortlist.errors import ConfigError
from shortlist.kernels.sets import sets_common, sets_join
from shortlist.recommend.index import frozen
from shortlist.recommend.retrieve import Sets
from shortlist.types import Ints, Longs

FEW = 256  # items excluded for all that are cheaper to add to every user's own than to index the rest


@dataclass(frozen=True)
class ItemFilter:
    """The same items for everybody, or some for each user; neither means that nothing was said."""

    shared: Ints | None = None  # ascending, distinct
    own: Mapping[Any, Iterable[Any]] | None = None  # user_id → item ids

    @classmethod
    def of(cls, name: str, given: Any, users: pl.Series, items: IdMap) -> "ItemFilter":
        """From ids for all, a mapping user_id → ids, or one list per asked user; unknown ids do not count."""
        if given is None:
            return cls()
        if isinstance(given, Mapping):
            return cls(own=given)
        if isinstance(given, str):
            raise ConfigError(
                f"{name} must be a collection of item ids, got the string {given!r}; put it in a list."
            )
        listed = given if isinstance(given, pl.Series) else list(given)
        if len(listed) and not isinstance(listed[0], str) and isinstance(listed[0], Iterable):
            if len(listed) != len(users):
                raise ConfigError(
                    f"{name} must hold one list per user ({len(users)}), got {len(listed)}; "
                    "pass a flat list to share it, or a dictionary user_id → item ids."
                )
            return cls(own=dict(zip(users.to_list(), listed, strict=True)))
        return cls(shared=dense(listed, items))

    def sets(self, users: pl.Series, items: IdMap) -> Sets | None:
        """The asked users' own sets; None where there are none."""
        if self.own is None:
            return None
        rows = [list(self.own.get(user_id, ())) for user_id in users.to_list()]
        owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        item = items.lookup(list(chain.from_iterable(rows)))
        known = item != UNKNOWN
        keys = np.unique(owner[known] * len(items) + item[known])  # by user, then item, each once
        lengths = np.bincount(keys // max(len(items), 1), minlength=len(rows))
        return Sets(starts(lengths), (keys % max(len(items), 1)).astype(np.int32))


def starts(lengths: npt.NDArray[np.integer]) -> Longs:
    """(n + 1,) where rows of these lengths start."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def dense(ids: Iterable[Any], items: IdMap) -> Ints:
    """Dense items of the ids that are known, ascending, once."""
    found = np.unique(items.lookup(ids))
    kept: Ints = found[found != UNKNOWN]
    return kept


def rows_of(sets: tuple[Longs, Ints], users: Ints) -> Sets:
    """The sets of these users; an unknown user (-1) has an empty one."""
    indptr, items = sets
    known = np.maximum(users, 0)
    at = starts(
        np.where(users == UNKNOWN, 0, indptr[known + 1] - indptr[known]) if len(indptr) > 1 else 0 * users
    )
    rows = np.repeat(indptr[known] - at[:-1], np.diff(at)) + np.arange(at[-1])
    return Sets(at, items[rows])


def union(a: Sets, b: Sets) -> Sets:
    """Each user's items of either side."""
    at, out = np.empty_like(a.indptr), np.empty(a.items.size + b.items.size, np.int32)
    sets_join(frozen(a.indptr), frozen(a.items), frozen(b.indptr), frozen(b.items), at, out)
    return Sets(at, out[: at[-1]])


def alike(items: Ints, n_users: int) -> Sets:
    """The same set for everybody."""
    return Sets(np.arange(n_users + 1, dtype=np.int64) * items.size, np.tile(items, n_users))


def left_over(shared: Ints | None, own: Sets | None, excluded: Sets, n_items: int) -> Longs:
    """(n_users,) how many candidates are not excluded."""
    n_users = excluded.indptr.size - 1
    if own is not None:
        common = np.empty(n_users, np.int64)
        sets_common(
            frozen(own.indptr), frozen(own.items), frozen(excluded.indptr), frozen(excluded.items), common
        )
        return np.diff(own.indptr) - common
    if shared is None:
        return n_items - np.diff(excluded.indptr)
    member = np.zeros(n_items + 1, np.bool_)
    member[shared] = True
    owner = np.repeat(np.arange(n_users), np.diff(excluded.indptr))
    return shared.size - np.bincount(owner, weights=member[excluded.items], minlength=n_users).astype(
        np.int64
    )
