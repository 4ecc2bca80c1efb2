"""Interactions: which user interacted with which item, when, and in which basket."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.options import Whole, check_value, take_options
from shortlist.core.ragged import ItemSets
from shortlist.core.tables import html
from shortlist.core.threads import PARALLEL_ROWS, rows_thread_count, run_each
from shortlist.data.columns import NO_TIME as NO_TIME
from shortlist.data.columns import NO_WEIGHT as NO_WEIGHT
from shortlist.data.columns import (
    DataSource,
    ReturnTotals,
    Table,
    tuples_to_frame,
)
from shortlist.data.ids import IdMap, encode
from shortlist.data.read_options import NegativeWeights, ReadOptions, TableOptions, advise_reading
from shortlist.data.returns import list_returns, subtract_returns
from shortlist.errors import DataError, warn
from shortlist.kernels.rows import (
    build_sets,
    bytes_of,
    fill_user_starts,
    find_baskets,
    group_rows,
    merge_duplicates,
    sort_rows,
    starts,
    take_rows,
)
from shortlist.types import Bools, Floats, Ints, Longs

if TYPE_CHECKING:
    from scipy.sparse import csr_array


NO_BASKET = np.empty(0, np.int32)
AnyColumn = TypeVar("AnyColumn", bound=npt.NDArray[Any])
ID_BATCH = 1 << 16  # ids that are hashed at once


class GroupedRows(NamedTuple):
    """Columns grouped by user; an absent column has length 0."""

    indptr: Longs  # (n_users + 1,)
    item: Ints
    time: Longs
    basket: Ints
    weight: Floats


def group_by_user(
    n_users: int, user: Ints, item: Ints, time: Longs, basket: Ints, weight: Floats
) -> GroupedRows:
    """Copy the columns so that the rows of each user are contiguous."""
    indptr = np.zeros(n_users + 1, np.int64)
    fill_user_starts(user, indptr)
    rows = GroupedRows(indptr, *map(np.empty_like, (item, time, basket, weight)))
    next_row = indptr[:-1].copy()  # where the next row of each user goes

    def move(users: tuple[int, int]) -> None:  # each thread reads all rows and copies those of its users
        first, last = users
        group_rows(user, first, next_row[first:last], item, time, basket, weight, *rows[1:])

    _run_blocks(move, indptr, 1)
    return rows


def build_arrays(rows: GroupedRows) -> dict[str, Any]:
    """Sort each user's rows, merge duplicates and find baskets; the array fields of Interactions.

    `rows` is modified.
    """
    indptr, item, time, basket, weight = rows

    def sort(users: tuple[int, int]) -> None:
        sort_rows(indptr[users[0] : users[1] + 1], time, basket, item, weight)

    _run_blocks(sort, indptr, 4)
    keep = np.empty(item.size, np.bool_)
    duplicates = merge_duplicates(indptr, time, basket, item, weight, keep)
    if duplicates:
        indptr = filter_starts(indptr, keep)
        item, time, basket, weight = (filter_column(column, keep) for column in rows[1:])  # type: ignore[assignment]
    user_baskets = np.zeros(indptr.size, np.int64)
    first = keep[: item.size]
    find_baskets(indptr, time, basket, first, user_baskets)
    return {
        "indptr": indptr,
        "item": item,
        "baskets": np.append(np.flatnonzero(first), first.size),
        "user_baskets": user_baskets,
        "time": time if time.size else None,
        "weight": weight if weight.size else None,
        "duplicates": duplicates,
    }


def _run_blocks(function: Callable[[tuple[int, int]], None], indptr: Longs, blocks_per_thread: int) -> None:
    """Call the function on (first, end) of blocks of users with about equally many rows, in any order."""
    n_rows = int(indptr[-1])
    if n_rows < PARALLEL_ROWS:
        function((0, indptr.size - 1))
        return
    n_blocks = blocks_per_thread * rows_thread_count(n_rows)
    cuts = np.searchsorted(indptr, np.linspace(0, n_rows, n_blocks + 1)[1:-1])
    edges = [0, *cuts.tolist(), indptr.size - 1]
    run_each(function, [(first, end) for first, end in pairwise(edges) if first < end], n_rows)


def filter_column(column: AnyColumn, keep: npt.NDArray[Any]) -> AnyColumn:
    """The entries at a mask or at positions; an absent column, of length 0, stays absent."""
    return column[keep] if column.size else column


def filter_starts(starts: Longs, keep: Bools) -> Longs:
    """Where groups start after the elements not in `keep` are removed."""
    before = np.zeros(keep.size + 1, np.int64)
    np.cumsum(keep, out=before[1:])
    return before[starts]


def _encode_baskets(table: Table, ids: pl.Series, *, has_times: bool) -> tuple[Ints, bool]:
    """(n_rows,) basket numbers, and whether their order is known: from times, or from numbers as ids."""
    if has_times:
        return encode(ids)[1], True
    name = table.roles["basket_id"]
    if ids.dtype == pl.String and ids.str.contains(r"^\d{1,18}$").all():
        numbers = ids.cast(pl.Int64)
        ids = numbers if numbers.n_unique() == ids.n_unique() else ids  # 7 and 007 are two baskets
    if ids.dtype == pl.String:
        table.doubt(
            f"the order of the baskets is unknown: there are no times, and column {name!r} holds strings; "
            f"name the times by {advise_reading(timestamp='…')}, or ignore baskets by "
            f"{advise_reading(basket_id='')}."
        )
        return encode(ids)[1], False
    table.note(f"there are no times; the baskets of a user are ordered by the number in column {name!r}.")
    return encode(ids)[1], True


def _settle_negative(
    table: Table, user: Ints, item: Ints, time: Longs, weight: Floats
) -> tuple[Bools, Floats]:
    """(n_rows,) which rows to keep, and their weights: negative ones are subtracted, dropped or kept."""
    keep, negative = np.ones(user.size, np.bool_), weight < 0
    if table.returns_apart and not table.has_ratings:
        return ~negative, weight
    outcome = None
    if negative.any() and table.options.negative_weights != "keep":
        keep = ~negative
        if table.options.negative_weights == "subtract" and not table.has_ratings:
            left, keep, is_matched = subtract_returns(user, item, time, weight)
            removed, reduced = ((weight >= 0) & mask for mask in (~keep, keep & (left < weight)))
            weight, outcome = (
                left,
                ReturnTotals(*(int(mask.sum()) for mask in (is_matched, removed, reduced))),
            )
    table.note_negative(int(negative.sum()), weight.size, outcome)
    return keep, weight


def _clean_matrix(matrix: Any, negative_weights: NegativeWeights) -> "csr_array":
    """A copy of a SciPy users × items matrix without zeros and dropped values."""
    from scipy.sparse import csr_array

    try:
        csr = csr_array(matrix, copy=True)
    except (TypeError, ValueError):
        csr = None
    if csr is None or csr.ndim != 2:
        raise DataError(
            f"a matrix of interactions must be a SciPy users × items matrix, got a {type(matrix).__name__}; "
            "use scipy.sparse.csr_array."
        )
    is_negative = csr.data < 0
    if is_negative.any() and negative_weights != "keep":
        csr.data[is_negative] = 0
        warn(
            f"{int(is_negative.sum()):,} negative values of the matrix, such as returns or dislikes, were "
            "dropped; Interactions.from_csr(…, negative_weights='keep') keeps them."
        )
    csr.eliminate_zeros()
    return csr


def rows_of_users(data: "Interactions", users: Ints) -> dict[str, Any]:
    """The arrays of the rows of these users, in their order; -1: a user without rows."""
    indptr, rows = take_rows(data.indptr, users)
    user_baskets, baskets = take_rows(data.user_baskets, users)
    return {
        "indptr": indptr,
        "item": data.item[rows],
        "baskets": starts(data.baskets[baskets + 1] - data.baskets[baskets]),
        "user_baskets": user_baskets,
        "time": None if data.time is None else data.time[rows],
        "weight": None if data.weight is None else data.weight[rows],
    }


def baskets_follow_time(data: "Interactions") -> bool:
    """Whether a basket is all rows of a user with equal times (without times, all rows of a user)."""
    first, counts = np.empty(data.n_rows, np.bool_), np.zeros(data.n_users + 1, np.int64)
    time = NO_TIME if data.time is None else data.time
    return find_baskets(data.indptr, time, NO_BASKET, first, counts) == data.n_baskets


def earliest_basket_times(user: Ints, basket: Ints, time: Longs) -> Longs:
    """(n_rows,) the earliest time of each row's basket: all rows of a basket share one time."""
    if basket.size == 0 or time.size == 0:
        return time
    frame = pl.DataFrame({"user": user, "basket": basket, "time": time})
    return frame.select(pl.col("time").min().over("user", "basket"))["time"].to_numpy()


def first_names(items: IdMap, item: Ints, name: pl.Series) -> pl.Series:
    """(n_items,) the first name of each item, or its id; rows with item -1 are ignored."""
    named = pl.DataFrame({"item": item, "name": name}).drop_nulls().unique("item", keep="first")
    ids = pl.DataFrame({"item": np.arange(len(items), dtype=np.int32), "id": items.values.cast(pl.String)})
    joined = ids.join(named, on="item", how="left", maintain_order="left")
    return joined["name"].fill_null(joined["id"])


class UsersAndItems:
    """What interactions and a history have in common: users, items and the names of items."""

    users: IdMap
    items: IdMap
    item_names: pl.Series | None

    @property
    def n_users(self) -> int:
        """Number of users, including those without rows."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of items, including those without rows."""
        return len(self.items)

    def item_labels(self, items: Ints) -> list[str]:
        """Return the names of items, or their ids if there are no names.

        Parameters
        ----------
        items
            Dense indices.
        """
        names = self.items.values.cast(pl.String) if self.item_names is None else self.item_names
        return names.gather(pl.Series(items)).to_list()

    def item_label(self, item_id: Any) -> str:
        """Return the name of an item, or its id if it is unknown or there are no names.

        Parameters
        ----------
        item_id
            An item id.
        """
        if self.item_names is None or item_id not in self.items:
            return str(item_id)
        return str(self.item_names[self.items.index(item_id)])


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(UsersAndItems):
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
        keeps that of the first part; None for arrays and matrices.

    Examples
    --------
    >>> data = sl.Interactions.from_tuples([("ann", "milk", 1), ("ann", "tea", 2), ("bob", "milk", 1)])
    >>> data
    Interactions(3 rows, 2 users, 2 items, 3 baskets)
    """

    users: IdMap
    items: IdMap
    indptr: Longs
    item: Ints
    baskets: Longs
    user_baskets: Longs
    time: Longs | None = None
    weight: Floats | None = None
    item_names: pl.Series | None = None
    duplicates: int = 0
    has_basket_order: bool = True
    source: DataSource | None = None

    def __post_init__(self) -> None:
        for array in (self.indptr, self.item, self.baskets, self.user_baskets, self.time, self.weight):
            if array is not None:
                array.flags.writeable = False

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
        return cls.from_frame(data)

    @classmethod
    @take_options(TableOptions)
    def from_frame(cls, frame: Any, *, options: TableOptions) -> Self:
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
            What a negative weight, such as a return, does; as in `read_interactions`.
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
        return cls.from_table(Table(frame, ReadOptions(**vars(options), future=None)))

    @classmethod
    def from_table(cls, table: Table) -> Self:
        """Build from columns that are read one at a time, so that a large file is never in memory as a whole.

        Parameters
        ----------
        table
            A table of the readers.
        """
        users, user = encode(table.required_ids("user_id"))
        items, item = encode(table.required_ids("item_id"))
        labels = table.labels()
        names = None if labels is None else first_names(items, item, labels)
        basket_id, weight, time = table.ids("basket_id"), table.weights(), table.times()
        basket, ordered = NO_BASKET, True
        if basket_id is not None:
            basket, ordered = _encode_baskets(table, basket_id, has_times=time.size > 0)
        keep, weight = _settle_negative(table, user, item, time, weight)
        is_late = table.is_late if table.is_late.any() else np.zeros(keep.size, np.bool_)
        if table.returns_apart and not keep.all():
            table.returns = list_returns(users, items, ~keep & ~is_late, user, item, time, weight)
        keep &= ~is_late
        if drops := not keep.all():
            columns = (filter_column(column, keep) for column in (user, item, time, basket, weight))
            user, item, time, basket, weight = columns  # type: ignore[assignment]
        rows = group_by_user(
            len(users), user, item, earliest_basket_times(user, basket, time), basket, weight
        )
        data = cls(
            users=users,
            items=items,
            item_names=names,
            has_basket_order=ordered,
            **build_arrays(rows),
        )
        table.doubt_baskets(data.n_baskets, data.n_rows)
        if data.duplicates and data.time is None and not basket.size:
            table.note(
                f"{data.duplicates:,} rows repeat a user and an item and were merged, because there are no "
                "times or baskets; if users buy items repeatedly, name such a column by "
                f"{advise_reading(timestamp='…')} or {advise_reading(basket_id='…')}."
            )
        for doubt in table.doubts:
            warn(doubt)
        data = replace(data, source=table.source())
        return data.compact() if drops else data

    @classmethod
    def from_tuples(
        cls, rows: Iterable[tuple[Any, ...]], *, negative_weights: NegativeWeights = "subtract"
    ) -> Self:
        """Build from tuples of one length: (user_id, item_id[, timestamp[, weight]]).

        Parameters
        ----------
        rows
            The tuples, in any order.
        negative_weights
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
        return cls.from_frame(tuples_to_frame(rows), negative_weights=negative_weights)

    @classmethod
    def from_csr(
        cls,
        csr: Any,
        user_ids: Iterable[Any] | None = None,
        item_ids: Iterable[Any] | None = None,
        *,
        negative_weights: NegativeWeights = "drop",
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
        matrix = _clean_matrix(csr, ReadOptions(negative_weights=negative_weights).negative_weights)
        n_users, n_items = matrix.shape
        users = IdMap.of(range(n_users) if user_ids is None else user_ids)
        items = IdMap.of(range(n_items) if item_ids is None else item_ids)
        if (len(users), len(items)) != (n_users, n_items):
            raise DataError(
                f"there must be one id per row and column of the {n_users} × {n_items} matrix, "
                f"got {len(users)} user ids and {len(items)} item ids; pass one for each."
            )
        weight = np.asarray(matrix.data, np.float32)
        if not np.isfinite(weight).all():
            raise DataError("matrix values must be finite, got NaN or infinity; clean the matrix first.")
        weight = NO_WEIGHT if (weight == 1).all() else weight
        indptr, item = np.asarray(matrix.indptr, np.int64), np.asarray(matrix.indices, np.int32)
        rows = GroupedRows(indptr, item, NO_TIME, NO_BASKET, weight)
        return cls(users=users, items=items, **build_arrays(rows))

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
        return cls(users, items, **build_arrays(group_by_user(len(users), user, item, time, basket, weight)))

    @property
    def n_rows(self) -> int:
        """Number of interactions, after duplicates were merged."""
        return int(self.item.size)

    @property
    def n_baskets(self) -> int:
        """Number of baskets of all users."""
        return int(self.baskets.size) - 1

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        ids = f"{self.n_users:,} users, {self.n_items:,} items"
        return f"Interactions({self.n_rows:,} rows, {ids}, {self.n_baskets:,} baskets)"

    @cached_property
    def user(self) -> Ints:
        """(n_rows,) dense user index of each row."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.user_counts)

    @property
    def basket(self) -> Ints:
        """(n_rows,) number of each row's basket, over all users."""
        return np.repeat(np.arange(self.n_baskets, dtype=np.int32), self.basket_sizes)

    @cached_property
    def active_users(self) -> Ints:
        """Dense indices of the users with rows, ascending."""
        return np.flatnonzero(self.user_counts).astype(np.int32)

    @cached_property
    def item_sets(self) -> ItemSets:
        """The distinct items of each user."""
        if self.time is None and self.n_baskets == self.active_users.size:  # already sorted and distinct
            return ItemSets(self.indptr, self.item)
        indptr, items = np.zeros(self.n_users + 1, np.int64), np.empty(self.n_rows, np.int32)
        build_sets(self.indptr, self.item, indptr, items)
        return ItemSets(indptr, items[: indptr[-1]].copy())

    @cached_property
    def has_repeats(self) -> bool:
        """Whether at least 1% of the rows are repeat interactions of a user with an item."""
        return self.n_rows - self.item_sets.items.size >= max(1, self.n_rows // 100)

    @property
    def has_baskets(self) -> bool:
        """Whether any user has more than one basket."""
        return self.n_baskets > self.active_users.size

    @property
    def user_counts(self) -> Longs:
        """(n_users,) rows of each user."""
        return np.diff(self.indptr)

    @property
    def basket_counts(self) -> Longs:
        """(n_users,) baskets of each user."""
        return np.diff(self.user_baskets)

    @property
    def basket_sizes(self) -> Longs:
        """(n_baskets,) rows of each basket."""
        return np.diff(self.baskets)

    @cached_property
    def item_counts(self) -> Longs:
        """(n_items,) rows of each item."""
        return np.bincount(self.item, minlength=self.n_items)

    @property
    def mean_basket_size(self) -> float:
        """Rows per basket; 1 without baskets."""
        return self.n_rows / self.n_baskets if self.n_baskets else 1.0

    @cached_property
    def fingerprint(self) -> str:
        """A stable hash of ids, rows, times, baskets and weights."""
        digest = hashlib.blake2b(digest_size=16)
        for ids in (self.users, self.items):
            kind = "str" if ids.values.dtype == pl.String else "int"
            digest.update(f"{kind}{len(ids)}".encode())
            for start in range(0, len(ids), ID_BATCH):
                text = "\0".join(map(str, ids.values[start : start + ID_BATCH].to_list()))
                digest.update(("\0" * bool(start) + text).encode())
        for column in (self.indptr, self.item, self.baskets, self.time, self.weight):
            digest.update(b"-" if column is None else str(column.dtype).encode())
            if column is not None:
                digest.update(bytes_of(column))
        return digest.hexdigest()

    @cached_property
    def end_time(self) -> int:
        """Just after the last event, in microseconds since 1970; 0 without times."""
        return 0 if self.time is None or not self.n_rows else int(self.time.max()) + 1

    def to_csr(self) -> "csr_array":
        """Return a SciPy users × items matrix that shares the arrays.

        Returns
        -------
        Values are the weights, or 1. Repeated items are stored repeatedly; a row's items are in time order.

        Examples
        --------
        >>> sl.Interactions.from_tuples([("ann", "milk"), ("bob", "tea")]).to_csr().toarray().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        from scipy.sparse import csr_array

        values = np.ones(self.n_rows, np.float32) if self.weight is None else self.weight
        # SciPy copies index arrays of different types, so convert the short one.
        starts = self.indptr.astype(np.int32) if self.n_rows < 2**31 else self.indptr
        return csr_array((values, self.item, starts), shape=(self.n_users, self.n_items), copy=False)

    def to_frame(self, *, names: bool = False) -> pl.DataFrame:
        """Return a polars table with one row per interaction.

        Parameters
        ----------
        names
            Whether to add the column item_name, if item names are known.

        Returns
        -------
        Columns user_id, item_id and, if present, timestamp, weight and item_name.

        Examples
        --------
        >>> sl.Interactions.from_tuples([("ann", "milk")]).to_frame().rows()
        [('ann', 'milk')]
        """
        columns = {"user_id": self.users.to_ids(self.user), "item_id": self.items.to_ids(self.item)}
        if self.time is not None:
            columns["timestamp"] = pl.Series(self.time).cast(pl.Datetime("us"))
        if self.weight is not None:
            columns["weight"] = pl.Series(self.weight)
        if names and self.item_names is not None:
            columns["item_name"] = self.item_names.gather(pl.Series(self.item))
        return pl.DataFrame(columns)

    def with_item_names(self, item_id: pl.Series, item_name: pl.Series) -> Self:
        """Return the same interactions with display names; an item without a name gets its id.

        Parameters
        ----------
        item_id, item_name
            Ids and their names; unknown ids are ignored, the first name of an id is used.
        """
        return replace(self, item_names=first_names(self.items, self.items.lookup(item_id), item_name))

    def _repr_html_(self) -> str:
        head = self.where(np.arange(self.n_rows) < 5).to_frame(names=True)
        return html(head, repr(self), self.n_rows)

    def where(self, keep: Bools) -> Self:
        """Return the rows marked in `keep`, with all users and items.

        Parameters
        ----------
        keep
            (n_rows,) mask.
        """
        basket_starts = filter_starts(self.baskets, keep)
        is_filled = np.diff(basket_starts) > 0
        return replace(
            self,
            indptr=filter_starts(self.indptr, keep),
            item=self.item[keep],
            baskets=np.append(basket_starts[:-1][is_filled], basket_starts[-1]),
            user_baskets=filter_starts(self.user_baskets, is_filled),
            time=None if self.time is None else self.time[keep],
            weight=None if self.weight is None else self.weight[keep],
            duplicates=0,
        )

    def keep_frequent(
        self,
        *,
        users_per_item: int = 0,
        items_per_user: int = 0,
        count: Literal["rows", "distinct"] = "rows",
        core: bool = False,
    ) -> Self:
        """Return the rows without items that have too few users, then without users who have too few items.

        Parameters
        ----------
        users_per_item
            Minimum number of distinct users of an item.
        items_per_user
            Minimum number of items of a user.
        count
            Whether each row of a user counts as an item, or each distinct item counts once.
        core
            Whether to repeat until nothing changes (k-core). One pass, as in the paper, may leave an item
            below its minimum when its users are dropped.

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
        >>> data.keep_frequent(users_per_item=10, items_per_user=10).n_users <= data.n_users
        True
        """
        check_value(Whole, users_per_item=users_per_item, items_per_user=items_per_user)
        check_value(Literal["rows", "distinct"], count=count)
        left = self
        while True:
            n_before = left.n_rows
            n_users = np.bincount(left.item_sets.items, minlength=left.n_items)
            left = left.where(n_users[left.item] >= users_per_item)
            n_items = left.user_counts if count == "rows" else left.item_sets.lengths
            left = left.where(n_items[left.user] >= items_per_user)
            if left.n_rows == 0:
                raise DataError(
                    f"the filter must leave some rows, got none of {self.n_users:,} users with "
                    f"users_per_item={users_per_item}, items_per_user={items_per_user}; lower the minimum, "
                    "or use more data."
                )
            if not core or left.n_rows == n_before:
                return left.compact()

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
        users, items = self.users.union(more.users.values), self.items.union(more.items.values)
        user = np.concatenate([self.user, users.lookup(more.users.values)[more.user]])
        item = np.concatenate([self.item, items.lookup(more.items.values)[more.item]])
        time = NO_TIME if self.time is None else np.concatenate([self.time, more.time])
        weight = NO_WEIGHT if self.weight is None else np.concatenate([self.weight, more.weight])
        basket = NO_BASKET
        if not (baskets_follow_time(self) and baskets_follow_time(more)):
            basket = np.concatenate([self.basket, more.basket + np.int32(self.n_baskets)])
        data = replace(
            type(self).from_dense(users, items, user, item, time, basket, weight),
            has_basket_order=self.has_basket_order and more.has_basket_order,
            source=self.source,
        )
        if self.item_names is None:
            return data
        ids, names = self.items.values, self.item_names
        if more.item_names is not None:
            ids, names = pl.concat([ids, more.items.values]), pl.concat([names, more.item_names])
        return data.with_item_names(ids, names)

    def compact(self) -> Self:
        """Return the same rows without the users and items that have none; the others keep their order."""
        has_rows = self.active_users
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


def in_last_basket(data: Interactions) -> Bools:
    """(n_rows,) whether a row is in the last basket of a user who has at least two."""
    is_last = np.zeros(data.n_baskets, np.bool_)
    is_last[data.user_baskets[1:][data.basket_counts >= 2] - 1] = True
    return is_last[data.basket]


def without_negative(data: Interactions) -> Interactions:
    """The rows without negative weight: returns and dislikes are not what a user wanted."""
    if data.weight is None or not keeps_negative(data):
        return data
    return data.where(data.weight >= 0)


def keeps_negative(data: Interactions) -> bool:
    """Whether the data has rows of negative weight."""
    return data.weight is not None and bool((data.weight < 0).any())


def check_trainable(data: Interactions) -> None:
    """Raise DataError if the data has fewer than two users or items."""
    n_items = np.count_nonzero(np.bincount(data.item))
    for what, active in (("user", data.active_users.size), ("item", n_items)):
        if active < 2:
            raise DataError(
                f"interactions must have at least two {what}s, got {active}; "
                f"check that the {what}_id column is the right one, or use more data."
            )
