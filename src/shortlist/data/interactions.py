"""Interactions: who took what, when, in which basket. The one value every model trains on."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from shortlist.data.columns import Table
from shortlist.data.grouping import Rows, by_user, kept_starts, settled
from shortlist.data.id_map import IdMap, encode, id_series
from shortlist.errors import DataError
from shortlist.kernels.group import baskets_find, sets_build
from shortlist.types import Bools, Floats, Ints, Longs

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NO_TIME, NO_BASKET, NO_WEIGHT = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)


@dataclass(frozen=True, eq=False)
class Interactions:
    """Rows sorted by user, time, basket, item; arrays are read-only; built by `from_*` or `read`."""

    users: IdMap
    items: IdMap
    indptr: Longs  # (n_users + 1,) where each user's rows start
    item: Ints  # (n_rows,) dense item of each row
    baskets: Longs  # (n_baskets + 1,) where each basket's rows start
    user_baskets: Longs  # (n_users + 1,) where each user's baskets start
    time: Longs | None = None  # (n_rows,) microseconds since 1970 UTC
    weight: Floats | None = None  # (n_rows,) kept for whoever asks; no model uses it
    item_names: pl.Series | None = None  # (n_items,) what people call the items
    duplicates: int = 0  # rows folded into an equal (user, item, time) row when this was built

    def __post_init__(self) -> None:
        for array in (self.indptr, self.item, self.baskets, self.user_baskets, self.time, self.weight):
            if array is not None:
                array.flags.writeable = False

    # ------------------------------------------------------------------ building
    @classmethod
    def of(cls, data: Any) -> Self:
        """These very ones, or from a SciPy users × items matrix or a table with the usual column names."""
        from scipy.sparse import issparse

        if isinstance(data, cls):
            return data
        if issparse(data):
            return cls.from_csr(data)
        try:
            return cls.from_frame(data)
        except DataError as error:  # whose advice may be to name a column, which can be done there
            raise DataError(f"Interactions.from_frame: {error}") from None

    @classmethod
    def from_frame(cls, frame: Any, *, time_format: str | None = None, **columns: str | None) -> Self:
        """From a polars, pandas or Arrow table; columns by convention, by alias, or named by keyword.

        Keywords: user_id, item_id, timestamp, weight, basket_id, item_name.
        """
        return cls.from_table(Table(frame, columns, time_format=time_format))

    @classmethod
    def from_table(cls, table: Table) -> Self:
        """From columns taken one after the other, so that a large file is never held whole."""
        users, user = encode(table.required_ids("user_id"))
        items, item = encode(table.required_ids("item_id"))
        named = table.labels()
        names = None if named is None else _first_names(items, item, named)
        basket_id, weight, time = table.ids("basket_id"), table.weights(), table.times()
        basket = NO_BASKET if basket_id is None else encode(basket_id)[1]
        time = NO_TIME if time is None else _moments(user, basket, time)
        rows = by_user(len(users), user, item, time, basket, NO_WEIGHT if weight is None else weight)
        del user, item, time, basket, weight
        return cls(users=users, items=items, item_names=names, **settled(rows)._asdict())

    @classmethod
    def from_tuples(cls, rows: Iterable[tuple[Any, ...]]) -> Self:
        """From (user_id, item_id), (…, timestamp) or (…, timestamp, weight) tuples, all of one length."""
        table = [tuple(row) for row in rows]
        widths = {len(row) for row in table}
        if not table or len(widths) != 1 or not widths <= {2, 3, 4}:
            got = "no rows" if not table else f"lengths {sorted(widths)}"
            raise DataError(
                f"tuples must all be (user, item[, timestamp[, weight]]), got {got}; make them alike."
            )
        names = ("user_id", "item_id", "timestamp", "weight")
        try:  # ids strictly: 1 and "1" must not become the same one
            frame = pl.DataFrame(
                [
                    pl.Series(name, column, strict=name.endswith("_id"))
                    for name, column in zip(names, zip(*table, strict=True), strict=False)
                ]
            )
        except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
            raise DataError(f"ids must be of one type, got a mixture ({error}); cast them.") from None
        return cls.from_frame(frame)

    @classmethod
    def from_csr(
        cls, csr: Any, user_ids: Iterable[Any] | None = None, item_ids: Iterable[Any] | None = None
    ) -> Self:
        """From a SciPy users × items matrix; without ids, row and column numbers are the ids."""
        from scipy.sparse import csr_array

        matrix = csr_array(csr)
        if not matrix.data.all():  # a zero that was stored is still a zero
            matrix = matrix.copy()
            matrix.eliminate_zeros()
        n_users, n_items = matrix.shape
        users = IdMap.of(range(n_users) if user_ids is None else user_ids)
        items = IdMap.of(range(n_items) if item_ids is None else item_ids)
        if (len(users), len(items)) != (n_users, n_items):
            raise DataError(
                f"ids must name every row and column of the {n_users} × {n_items} matrix, "
                f"got {len(users)} user ids and {len(items)} item ids; pass as many as there are."
            )
        weight = np.asarray(matrix.data, np.float32)
        if not np.isfinite(weight).all():
            raise DataError("matrix values must be finite, got NaN or infinity; clean the matrix first.")
        weight = NO_WEIGHT if (weight == 1).all() else weight.copy()
        indptr, item = (
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int32),
        )  # copies: ours to order
        rows = Rows(indptr, item, NO_TIME, NO_BASKET, weight)
        return cls(users=users, items=items, **settled(rows)._asdict())

    @classmethod
    def from_columns(
        cls,
        user_id: pl.Series,
        item_id: pl.Series,
        time: Longs | None = None,
        weight: Floats | None = None,
        basket_id: pl.Series | None = None,
    ) -> Self:
        """From clean columns of one length: no nulls, finite weights, times in microseconds."""
        users, user = encode(user_id)
        items, item = encode(item_id)
        basket = NO_BASKET if basket_id is None else encode(basket_id)[1]
        time = NO_TIME if time is None else _moments(user, basket, time)
        return cls.from_dense(users, items, user, item, time, basket, NO_WEIGHT if weight is None else weight)

    @classmethod
    def from_dense(
        cls, users: IdMap, items: IdMap, user: Ints, item: Ints, time: Longs, basket: Ints, weight: Floats
    ) -> Self:
        """From dense columns in any order; an absent one has length 0."""
        rows = by_user(len(users), user, item, time, basket, weight)
        return cls(users=users, items=items, **settled(rows)._asdict())

    def with_item_names(self, item_id: pl.Series, item_name: pl.Series) -> Self:
        """The same rows, with names for people to read; items without one show their id."""
        return replace(self, item_names=_first_names(self.items, self.items.lookup(item_id), item_name))

    # ------------------------------------------------------------------ reading
    @property
    def n_users(self) -> int:
        """Users in the table, with rows or without."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Items in the table, with rows or without."""
        return len(self.items)

    @property
    def n_rows(self) -> int:
        """Interactions after folding."""
        return int(self.item.size)

    @property
    def n_baskets(self) -> int:
        """Baskets of all users."""
        return int(self.baskets.size) - 1

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return (
            f"Interactions({self.n_rows:,} rows, {self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_baskets:,} baskets)"
        )

    @cached_property
    def user(self) -> Ints:
        """(n_rows,) dense user of each row."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.indptr))

    @cached_property
    def active_users(self) -> Ints:
        """Dense indices of the users that have rows, ascending."""
        return np.flatnonzero(np.diff(self.indptr)).astype(np.int32)

    def to_csr(self) -> "csr_array":
        """Users × items over the same memory; an item taken twice is stored twice, rows are in time order."""
        from scipy.sparse import csr_array

        values = np.ones(self.n_rows, np.float32) if self.weight is None else self.weight
        # SciPy wants both index arrays of one type and would otherwise copy the long one.
        starts = self.indptr.astype(np.int32) if self.n_rows < 2**31 else self.indptr
        return csr_array((values, self.item, starts), shape=(self.n_users, self.n_items), copy=False)

    @cached_property
    def item_sets(self) -> tuple[Longs, Ints]:
        """(indptr, items): every user's distinct items, ascending."""
        if self.time is None and self.n_baskets == self.active_users.size:  # they stand so already
            return self.indptr, self.item
        indptr, items = np.zeros(self.n_users + 1, np.int64), np.empty(self.n_rows, np.int32)
        sets_build(self.indptr, self.item, indptr, items)
        return indptr, items[: indptr[-1]].copy()

    @cached_property
    def has_repeats(self) -> bool:
        """Whether people take an item again: at least one row in a hundred is a repetition."""
        return self.n_rows - int(self.item_sets[0][-1]) >= max(1, self.n_rows // 100)

    @cached_property
    def fingerprint(self) -> str:
        """A stable hash of ids, rows, times, baskets and weights."""
        digest = hashlib.blake2b(digest_size=16)
        for ids in (self.users, self.items):
            kind = "str" if ids.values.dtype == pl.String else "int"
            body = ids.values.cast(pl.String).to_list() if kind == "str" else ids.values.to_list()
            digest.update(f"{kind}{len(ids)}".encode())
            digest.update("\0".join(map(str, body)).encode())
        for array in (self.indptr, self.item, self.baskets, self.time, self.weight):
            digest.update(
                b"-" if array is None else str(array.dtype).encode() + np.ascontiguousarray(array).data
            )
        return digest.hexdigest()

    def item_labels(self, items: Ints) -> list[str]:
        """The names of these items; their ids where there are no names."""
        names = self.items.values.cast(pl.String) if self.item_names is None else self.item_names
        return names.gather(pl.Series(items)).to_list()

    def to_frame(self) -> pl.DataFrame:
        """One row per interaction under the conventional column names."""
        columns: dict[str, pl.Series] = {
            "user_id": self.users.to_ids(self.user),
            "item_id": self.items.to_ids(self.item),
        }
        if self.time is not None:
            columns["timestamp"] = pl.Series(self.time).cast(pl.Datetime("us"))
        if self.weight is not None:
            columns["weight"] = pl.Series(self.weight)
        return pl.DataFrame(columns)

    # ------------------------------------------------------------------ cutting
    def where(self, keep: Bools) -> Self:
        """The rows marked in `keep` (n_rows,), over the same id tables."""
        basket_starts = kept_starts(self.baskets, keep)
        filled = np.diff(basket_starts) > 0
        return replace(
            self,
            indptr=kept_starts(self.indptr, keep),
            item=self.item[keep],
            baskets=np.append(basket_starts[:-1][filled], basket_starts[-1]),
            user_baskets=kept_starts(self.user_baskets, filled),
            time=None if self.time is None else self.time[keep],
            weight=None if self.weight is None else self.weight[keep],
            duplicates=0,
        )

    def concat(self, more: "Interactions") -> Self:
        """These rows and more; ids known here keep their index, new ones follow."""
        if (self.time is None) != (more.time is None) or (self.weight is None) != (more.weight is None):
            raise DataError("rows to add must have times and weights if the known ones have, and only then.")
        users, items = self.users.union(more.users.values), self.items.union(more.items.values)
        user = np.concatenate([self.user, users.lookup(more.users.values)[more.user]])
        item = np.concatenate([self.item, items.lookup(more.items.values)[more.item]])
        time = NO_TIME if self.time is None else np.concatenate([self.time, more.time])
        weight = NO_WEIGHT if self.weight is None else np.concatenate([self.weight, more.weight])
        basket = NO_BASKET
        if not (self._baskets_are_moments() and more._baskets_are_moments()):
            own = np.repeat(np.arange(self.n_baskets), np.diff(self.baskets))
            new = np.repeat(np.arange(more.n_baskets), np.diff(more.baskets)) + self.n_baskets
            basket = np.concatenate([own, new]).astype(np.int32)
        data = self.from_dense(users, items, user, item, time, basket, weight)
        if self.item_names is None:
            return data
        names = self.item_names if more.item_names is None else pl.concat([self.item_names, more.item_names])
        ids = (
            self.items.values
            if more.item_names is None
            else pl.concat([self.items.values, more.items.values])
        )
        return data.with_item_names(ids, names)

    def add_baskets(self, newcomers: Mapping[Any, Iterable[Any]]) -> Self:
        """These rows and, per user id named, one more basket of known items, just after the last event."""
        baskets = {user_id: list(items) for user_id, items in newcomers.items()}
        bare = [user_id for user_id, items in baskets.items() if not items]
        if bare or not baskets:
            who = f"none for {bare[0]!r}" if bare else "no users"
            raise DataError(f"every user must come with at least one item, got {who}; leave such users out.")
        taken = [item for items in baskets.values() for item in items]
        for item_id, place in zip(taken, self.items.lookup(taken), strict=True):
            if place < 0:
                self.items.index(item_id)  # raises, and names the nearest ids
        sizes = [len(items) for items in baskets.values()]
        moment = None if self.time is None else np.full(len(taken), self.time.max() + 1)
        weight = None if self.weight is None else np.ones(len(taken), np.float32)
        owner = id_series(list(baskets)).gather(np.repeat(np.arange(len(sizes)), sizes))
        return self.concat(self.from_columns(owner, id_series(taken), moment, weight))

    def _baskets_are_moments(self) -> bool:
        """Whether rows share a basket just where a user's rows share a time (or, without times, a user)."""
        starts, counts = np.empty(self.n_rows, np.bool_), np.zeros(self.n_users + 1, np.int64)
        time = NO_TIME if self.time is None else self.time
        return baskets_find(self.indptr, time, NO_BASKET, starts, counts) == self.n_baskets

    def compact(self) -> Self:
        """Forget the users and items that have no rows; the others keep their order."""
        has_rows = np.flatnonzero(np.diff(self.indptr))
        taken = np.bincount(self.item, minlength=self.n_items) > 0
        renumber = np.cumsum(taken, dtype=np.int32) - 1
        kept_items = np.flatnonzero(taken)
        return replace(
            self,
            users=IdMap(self.users.to_ids(has_rows)),
            items=IdMap(self.items.to_ids(kept_items)),
            indptr=np.append(self.indptr[has_rows], self.indptr[-1]),
            user_baskets=np.append(self.user_baskets[has_rows], self.user_baskets[-1]),
            item=renumber[self.item].astype(np.int32),
            item_names=None if self.item_names is None else self.item_names.gather(pl.Series(kept_items)),
        )


def _moments(user: Ints, basket: Ints, time: Longs) -> Longs:
    """The time of each row, or of its basket's first row: a basket is one moment."""
    if basket.size == 0:
        return time
    frame = pl.DataFrame({"user": user, "basket": basket, "time": time})
    return frame.select(pl.col("time").min().over("user", "basket"))["time"].to_numpy()


def _first_names(items: IdMap, item: Ints, name: pl.Series) -> pl.Series:
    """(n_items,) the first name given for each item, its id where there is none; item -1 is nobody's."""
    named = pl.DataFrame({"item": item, "name": name}).drop_nulls().unique("item", keep="first")
    own = pl.DataFrame({"item": np.arange(len(items), dtype=np.int32), "id": items.values.cast(pl.String)})
    joined = own.join(named, on="item", how="left", maintain_order="left")
    return joined["name"].fill_null(joined["id"])
