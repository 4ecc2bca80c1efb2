"""Interactions: which user interacted with which item, when, and in which basket."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.calls import warn
from shortlist.data.aliases import ColumnNames
from shortlist.data.columns import Table, tuples_to_frame
from shortlist.data.data_source import DataSource
from shortlist.data.grouping import (
    build_arrays,
    concat_rows,
    filter_rows,
    first_names,
    group_by_user,
    rows_of_baskets,
    rows_of_matrix,
    rows_of_table,
)
from shortlist.data.id_map import IdMap
from shortlist.data.interaction_rows import InteractionRows
from shortlist.data.negative_rows import NegativeWeights, check_options
from shortlist.data.notebook import html_table
from shortlist.errors import DataError
from shortlist.types import Bools, Floats, Ints, Longs


@dataclass(frozen=True, eq=False, repr=False)  # repr is that of InteractionRows
class Interactions(InteractionRows):
    """Interactions of users with items, sorted by user, time, basket and item; immutable.

    Built by `from_frame`, `from_tuples`, `from_csr`, `read_interactions` and `load_dataset`. Equal rows are
    merged and their weights added. Rows of a user with one time (or basket id, if given) form a basket.

    Parameters
    ----------
    users, items
        Ids, in the order of the dense indices.
    indptr, user_baskets
        (n_users + 1,) start of each user's rows, and of each user's baskets.
    item
        (n_rows,) dense item index of each row.
    baskets
        (n_baskets + 1,) start of each basket's rows.
    time
        (n_rows,) microseconds since 1970 UTC.
    weight
        (n_rows,) ratings, quantities or the like; negative for dislikes and returns. Models use them if their
        `weighting` is not "none".
    item_names
        (n_items,) display names.
    duplicates
        Number of rows that were merged into an equal row.
    has_basket_order
        Whether the order of a user's baskets is known, from times or from numbers as basket ids.
    source
        What was read: columns, unused columns and what was dropped. Filters and splits keep it, `concat`
        keeps that of the first part; None for arrays, and for matrices without `min_rating`.

    Examples
    --------
    >>> data = sl.Interactions.from_tuples([("ann", "milk", 1), ("ann", "tea", 2), ("bob", "milk", 1)])
    >>> data
    Interactions(3 rows, 2 users, 2 items, 3 baskets)
    """

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return `data` if it is Interactions, else convert a table or a SciPy users × items matrix.

        Parameters
        ----------
        data
            Interactions, a polars, pandas or Arrow table with conventional column names, or a SciPy matrix.

        Raises
        ------
        DataError
            If the data cannot be converted.
        """
        from scipy.sparse import issparse

        if isinstance(data, cls):
            return data
        if issparse(data):
            return cls.from_csr(data)
        try:
            return cls.from_frame(data)
        except DataError as error:  # its advice may be to pass a column name, which from_frame accepts
            raise DataError(f"Interactions.from_frame: {error}") from None

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user_id: str | None = None,
        item_id: str | None = None,
        timestamp: str | None = None,
        weight: str | None = None,
        basket_id: str | None = None,
        item_name: str | None = None,
        time_format: str | None = None,
        negative_weights: NegativeWeights = "drop",
        min_rating: float | None = None,
    ) -> Self:
        """Build from a polars (also lazy), pandas or Arrow table.

        Parameters
        ----------
        frame
            One row per interaction.
        user_id, item_id, timestamp, weight, basket_id, item_name
            Column names. None finds the column by its conventional name or a common alias such as
            `customer_id`; "" ignores an optional column.
        time_format
            Format of timestamps that are neither numbers nor ISO 8601, such as "%d.%m.%Y".
        negative_weights
            Whether to drop rows with a negative weight, such as returns, with a warning, or to keep them.
        min_rating
            The lowest weight that counts as liked. Rows below it are negative feedback: they are dropped, or
            kept with the (negative) distance from `min_rating` as weight, as `negative_weights` says.
            `source` counts them.

        Raises
        ------
        DataError
            If a required column is missing or a value is invalid.
        ConfigError
            If an option is invalid.

        Examples
        --------
        >>> import polars as pl
        >>> sl.Interactions.from_frame(pl.DataFrame({"customer": ["ann", "bob"], "sku": [7, 8]}))
        Interactions(2 rows, 2 users, 2 items, 2 baskets)
        """
        names = ColumnNames(user_id, item_id, timestamp, weight, basket_id, item_name)
        options: Any = {"negative_weights": negative_weights, "min_rating": min_rating}
        return cls.from_table(Table(frame, names, time_format=time_format, **options))

    @classmethod
    def from_table(cls, table: Table) -> Self:
        """Build from columns that are read one at a time, so that a large file is never in memory as a whole.

        Parameters
        ----------
        table
            A table of the readers.
        """
        found = rows_of_table(table)
        data = cls(
            users=found.users,
            items=found.items,
            item_names=found.item_names,
            has_basket_order=found.has_basket_order,
            source=table.source(),
            **build_arrays(found.rows)._asdict(),
        )
        for doubt in table.doubts:
            warn(doubt)
        return data.compact() if found.dropped else data

    @classmethod
    def from_tuples(
        cls,
        rows: Iterable[tuple[Any, ...]],
        *,
        negative_weights: NegativeWeights = "drop",
        min_rating: float | None = None,
    ) -> Self:
        """Build from tuples of one length: (user_id, item_id[, timestamp[, weight]]).

        Parameters
        ----------
        rows
            The tuples, in any order.
        negative_weights, min_rating
            As in `from_frame`.

        Raises
        ------
        DataError
            If tuples differ in length, or ids differ in type.

        Examples
        --------
        >>> sl.Interactions.from_tuples([("ann", "milk"), ("bob", "tea")]).n_users
        2
        """
        frame = tuples_to_frame(rows)
        return cls.from_frame(frame, negative_weights=negative_weights, min_rating=min_rating)

    @classmethod
    def from_csr(
        cls,
        csr: Any,
        user_ids: Iterable[Any] | None = None,
        item_ids: Iterable[Any] | None = None,
        *,
        negative_weights: NegativeWeights = "drop",
        min_rating: float | None = None,
    ) -> Self:
        """Build from a SciPy users × items matrix.

        Parameters
        ----------
        csr
            Stored nonzero values are interactions; they become weights unless all are 1.
        user_ids, item_ids
            Ids of the rows and columns. None uses row and column numbers.
        negative_weights
            Whether to drop negative values, with a warning, or to keep them.
        min_rating
            As in `from_frame`.

        Raises
        ------
        DataError
            If the number of ids differs from the shape, ids repeat, or a value is not finite.

        Examples
        --------
        >>> import scipy.sparse
        >>> sl.Interactions.from_csr(scipy.sparse.eye_array(3, format="csr"), user_ids=["a", "b", "c"])
        Interactions(3 rows, 3 users, 3 items, 3 baskets)
        """
        check_options(negative_weights, min_rating)
        users, items, rows, note = rows_of_matrix(csr, user_ids, item_ids, negative_weights, min_rating)
        source = None if note is None else DataSource("matrix", notes=(note,))
        return cls(users=users, items=items, source=source, **build_arrays(rows)._asdict())

    @classmethod
    def from_dense(
        cls, users: IdMap, items: IdMap, user: Ints, item: Ints, time: Longs, basket: Ints, weight: Floats
    ) -> Self:
        """Build from columns of dense indices in any order; an absent column has length 0.

        Parameters
        ----------
        users, items
            The id maps.
        user, item
            (n_rows,) dense indices.
        time, basket, weight
            (n_rows,) microseconds since 1970, basket numbers and weights, or arrays of length 0.
        """
        rows = group_by_user(len(users), user, item, time, basket, weight)
        return cls(users=users, items=items, **build_arrays(rows)._asdict())

    def with_item_names(self, item_id: pl.Series, item_name: pl.Series) -> Self:
        """Return the same interactions with display names; an item without a name gets its id.

        Parameters
        ----------
        item_id, item_name
            Ids and their names; unknown ids are ignored, the first name of an id is used.
        """
        return replace(self, item_names=first_names(self.items, self.items.lookup(item_id), item_name))

    def _repr_html_(self) -> str:
        return html_table(
            repr(self), self.where(np.arange(self.n_rows) < 5).to_frame(names=True), self.n_rows
        )

    def where(self, keep: Bools) -> Self:
        """Return the rows marked in `keep`, with all users and items.

        Parameters
        ----------
        keep
            (n_rows,) mask.
        """
        return replace(self, **filter_rows(self, keep)._asdict())

    def concat(self, more: "Interactions") -> Self:
        """Return these rows and `more`; known ids keep their index, new ones follow.

        Parameters
        ----------
        more
            Rows to append.

        Raises
        ------
        DataError
            If only one of the two has times, or weights.
        """
        if (self.time is None) != (more.time is None) or (self.weight is None) != (more.weight is None):
            raise DataError("both tables must have times and weights, or neither; pass the same columns.")
        users, items, rows = concat_rows(self, more)
        data = type(self)(
            users=users,
            items=items,
            has_basket_order=self.has_basket_order and more.has_basket_order,
            source=self.source,
            **build_arrays(rows)._asdict(),
        )
        if self.item_names is None:
            return data
        ids, names = self.items.values, self.item_names
        if more.item_names is not None:
            ids, names = pl.concat([ids, more.items.values]), pl.concat([names, more.item_names])
        return data.with_item_names(ids, names)

    def add_baskets(self, baskets: Mapping[Any, Iterable[Any]]) -> Self:
        """Return these rows and one more basket per user, just after the last event of all users.

        Parameters
        ----------
        baskets
            User id → ids of known items. Users may be new.

        Raises
        ------
        DataError
            If a basket is empty.
        UnknownIdError
            If an item is unknown.

        Examples
        --------
        >>> data = sl.Interactions.from_tuples([("ann", "milk", 1), ("bob", "tea", 2)])
        >>> data.add_baskets({"eve": ["milk", "tea"]})
        Interactions(4 rows, 3 users, 2 items, 3 baskets)
        """
        users, items, rows = rows_of_baskets(self, baskets)
        return self.concat(type(self)(users=users, items=items, **build_arrays(rows)._asdict()))

    def compact(self) -> Self:
        """Return the same rows without the users and items that have none; the others keep their order."""
        has_rows = np.flatnonzero(np.diff(self.indptr))
        occurs = np.bincount(self.item, minlength=self.n_items) > 0
        new_index = np.cumsum(occurs, dtype=np.int32) - 1
        items = np.flatnonzero(occurs)
        return replace(
            self,
            users=IdMap(self.users.to_ids(has_rows)),
            items=IdMap(self.items.to_ids(items)),
            indptr=np.append(self.indptr[has_rows], self.indptr[-1]),
            user_baskets=np.append(self.user_baskets[has_rows], self.user_baskets[-1]),
            item=new_index[self.item].astype(np.int32),
            item_names=None if self.item_names is None else self.item_names.gather(pl.Series(items)),
        )
