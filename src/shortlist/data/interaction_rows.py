"""InteractionRows: the arrays of Interactions, and what can be read off them."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from shortlist.data.data_source import DataSource
from shortlist.data.grouping import fingerprint
from shortlist.data.id_map import IdMap
from shortlist.data.notebook import to_pandas
from shortlist.kernels.group import build_sets
from shortlist.types import Floats, Ints, Longs

if TYPE_CHECKING:
    import pandas
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class InteractionRows:
    """The fields of `Interactions`, described there; all arrays are read-only."""

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

    @property
    def n_users(self) -> int:
        """Number of users, including those without rows."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of items, including those without rows."""
        return len(self.items)

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
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.indptr))

    @cached_property
    def active_users(self) -> Ints:
        """Dense indices of the users with rows, ascending."""
        return np.flatnonzero(np.diff(self.indptr)).astype(np.int32)

    @cached_property
    def item_sets(self) -> tuple[Longs, Ints]:
        """(indptr, items): the distinct items of each user, ascending."""
        if self.time is None and self.n_baskets == self.active_users.size:  # already sorted and distinct
            return self.indptr, self.item
        indptr, items = np.zeros(self.n_users + 1, np.int64), np.empty(self.n_rows, np.int32)
        build_sets(self.indptr, self.item, indptr, items)
        return indptr, items[: indptr[-1]].copy()

    @cached_property
    def has_repeats(self) -> bool:
        """Whether at least 1% of the rows are repeat interactions of a user with an item."""
        return self.n_rows - int(self.item_sets[0][-1]) >= max(1, self.n_rows // 100)

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
        columns = self.indptr, self.item, self.baskets, self.time, self.weight
        return fingerprint(self.users, self.items, columns)

    @cached_property
    def end_time(self) -> int:
        """Just after the last event, in microseconds since 1970; 0 without times."""
        return 0 if self.time is None or not self.n_rows else int(self.time.max()) + 1

    def item_labels(self, items: Ints) -> list[str]:
        """Return the names of items, or their ids if there are no names.

        Parameters
        ----------
        items
            Dense indices.
        """
        names = self.items.values.cast(pl.String) if self.item_names is None else self.item_names
        return names.gather(pl.Series(items)).to_list()

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

    def to_pandas(self, *, names: bool = False) -> "pandas.DataFrame":
        """Return `to_frame` as a pandas table; needs pandas and pyarrow.

        Parameters
        ----------
        names
            As in `to_frame`.
        """
        return to_pandas(self.to_frame(names=names))
