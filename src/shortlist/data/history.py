"""History: the interactions that a model knows, and the events that are added to it without copying them.

A history is a sorted `base` and a few runs of rows that came later. A run lists its rows by user, like the
base, but only of the users it has. `append` adds a run and merges it with the runs before it that are not
larger, so that there are few; when the runs hold a quarter of the rows, they are merged into the base. The
cost of `append` is therefore proportional to the events, and that of `rows_of` to the rows it returns.
"""

import warnings
from collections.abc import Iterable, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.codec import DistinctIds, Shape, Starts, Texts, file_error
from shortlist.core.ragged import row_owners
from shortlist.data.columns import (
    NO_RETURNS,
    NO_TIME,
    NO_WEIGHT,
    DataSource,
    Table,
    tuples_to_frame,
)
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import (
    NO_BASKET,
    GroupedRows,
    Interactions,
    UsersAndItems,
    baskets_follow_time,
    build_arrays,
    filter_column,
    first_names,
    group_by_user,
    keeps_negative,
    rows_of_users,
)
from shortlist.data.read_options import ReadOptions
from shortlist.data.returns import list_returns, subtract_from
from shortlist.errors import DataError, DataWarning, warn
from shortlist.kernels.rows import (
    find_invalid_row,
    find_last_baskets,
    mark_new_rows,
    read_only,
    sort_rows,
    starts,
    take_rows,
)
from shortlist.types import Floats, Ints, Longs

NO_IDS = IdMap.of([])
NO_EVENTS = Interactions(  # without kernels, which would be loaded or compiled with the module
    NO_IDS, NO_IDS, np.zeros(1, np.int64), NO_BASKET.copy(), np.zeros(1, np.int64), np.zeros(1, np.int64)
)
MERGE_SHARE = 4  # the runs are merged into the base when they hold one row of this many


class Events(NamedTuple):
    """Purchases to add to a history, and returns, which are subtracted from it."""

    purchases: Interactions
    returns: pl.DataFrame = NO_RETURNS  # one row each: two returns at one time are two

    @classmethod
    def of(cls, events: Any) -> Self:
        """Events in any form that `fit` accepts, or a list of tuples."""
        if isinstance(events, cls):
            return events
        if isinstance(events, Interactions) or (hasattr(events, "tocsr") and hasattr(events, "nnz")):
            data = Interactions.of(events)
            if data.weight is None or not keeps_negative(data):
                return cls(data)
            is_return = data.weight < 0
            columns = data.user, data.item, NO_TIME if data.time is None else data.time, data.weight
            return cls(data.where(~is_return), list_returns(data.users, data.items, is_return, *columns))
        if isinstance(events, Sized) and len(events) == 0:
            return cls(NO_EVENTS)
        frame = tuples_to_frame(events) if isinstance(events, (list, tuple)) else events
        table = Table(frame, ReadOptions(future=None))
        table.returns_apart = True
        return cls(Interactions.from_table(table), table.returns)

    @classmethod
    def join(cls, batches: Iterable[Self]) -> Self | None:
        """The events of all batches, None without any."""
        events = list(batches)
        if not events:
            return None
        purchases = [batch.purchases for batch in events if batch.purchases.n_rows] or [NO_EVENTS]
        returns = [batch.returns for batch in events if batch.returns.height] or [NO_RETURNS]
        return cls(reduce(Interactions.concat, purchases), pl.concat(returns, how="vertical_relaxed"))

    def before(self, time: int) -> Self:
        """The events before a time."""
        purchases = self.purchases
        if purchases.time is not None:
            purchases = purchases.where(purchases.time < time)
        return self._replace(purchases=purchases, returns=self.returns.filter(pl.col("time") < time))

    def add_to(self, data: Interactions) -> Interactions:
        """The data with the purchases and without what was returned."""
        joined = data.concat(self.purchases) if self.purchases.n_rows else data
        return subtract_from(joined, self.returns)[0] if self.returns.height else joined


class HistoryRun(NamedTuple):
    """HistoryRun of some users, sorted by user, time, basket and item; an absent column has length 0."""

    users: Ints  # (n,) ascending
    indptr: Longs  # (n + 1,)
    item: Ints  # (n_rows,)
    time: Longs
    basket: Ints  # basket numbers, absent if the rows of a user with one time are one basket
    weight: Floats

    @property
    def user(self) -> Ints:
        """(n_rows,) the user of each row."""
        return self.users[row_owners(self.indptr)]

    def place(self, users: npt.NDArray[np.integer]) -> Longs:
        """(n,) position of each user in `users`, -1: none."""
        at = np.searchsorted(self.users, users)
        is_present = at < self.users.size
        is_present[is_present] = self.users[at[is_present]] == users[is_present]
        return np.where(is_present, at, -1).astype(np.int64)

    def take(self, rows: Longs) -> tuple[Ints, Longs, Ints, Floats]:
        """(item, time, basket, weight) of some rows."""
        return tuple(filter_column(column, rows) for column in self[2:])  # type: ignore[return-value]


class Totals(NamedTuple):
    """Numbers that describe all rows."""

    n_rows: int
    n_pairs: int  # distinct pairs of user and item
    n_baskets: int
    end_time: int
    item_counts: Longs  # (n_items,)

    @classmethod
    def of(cls, data: Interactions) -> Self:
        """The numbers of these rows."""
        return cls(data.n_rows, data.item_sets.items.size, data.n_baskets, data.end_time, data.item_counts)

    def replace_rows(self, before: Interactions, after: Interactions) -> "Totals":
        """The numbers when some users have other rows than before."""
        counts = np.bincount(after.item, minlength=after.n_items)
        counts[: self.item_counts.size] += self.item_counts - np.bincount(
            before.item, minlength=before.n_items
        )
        return Totals(
            self.n_rows + after.n_rows - before.n_rows,
            self.n_pairs + after.item_sets.items.size - before.item_sets.items.size,
            self.n_baskets + after.n_baskets - before.n_baskets,
            max(self.end_time, after.end_time),
            counts,
        )


class NewRows(NamedTuple):
    """The rows that an append added, without those that it had, sorted by user and time."""

    user: Ints
    item: Ints
    time: Longs  # (0,) without times
    weight: Floats  # (0,) without weights
    reweighted: Ints  # users with known rows whose weights changed


@dataclass(frozen=True, eq=False)
class UserRows(Interactions):
    """The rows of some users, with the item counts of the whole history."""

    whole: "History" = field(kw_only=True)

    @property
    def item_counts(self) -> Longs:
        """(n_items,) rows of each item in the whole history."""
        return self.whole.totals.item_counts

    @property
    def mean_basket_size(self) -> float:
        """Rows per basket in the whole history."""
        return self.whole.totals.n_rows / max(self.whole.totals.n_baskets, 1)


MAX_TIME = 2**61  # microseconds: differences of two times do not overflow


class StoredHistory(NamedTuple):
    """The rows of a history in a file."""

    users: Annotated[pl.Series, DistinctIds(), Shape("n_users")]
    items: Annotated[pl.Series, DistinctIds(), Shape("n_items")]
    item: Annotated[Ints, Shape("n_rows")]
    baskets: Annotated[Longs, Starts("n_baskets", "n_rows")]
    indptr: Annotated[Longs, Starts("n_users", "n_rows")]
    user_baskets: Annotated[Longs, Starts("n_users", "n_baskets")]
    time: Annotated[Longs, Shape("n_rows")] | None
    weight: Annotated[Floats, Shape("n_rows")] | None
    item_names: Annotated[pl.Series, Texts(), Shape("n_items")] | None
    has_basket_order: bool
    source: DataSource | None

    @classmethod
    def of(cls, data: Interactions) -> Self:
        """The rows of these interactions; the label of their source is left out, so that equal models are
        equal files."""
        source = None if data.source is None else replace(data.source, label="", doubts=())
        columns = {name: getattr(data, name) for name in cls._fields}
        return cls(**columns | {"users": data.users.values, "items": data.items.values, "source": source})

    def interactions(self) -> Interactions:
        """The rows as interactions."""
        return Interactions(**self._asdict() | {"users": IdMap(self.users), "items": IdMap(self.items)})

    def _check_loaded(self) -> None:
        """Raise ModelFileError if the rows are not sorted, or users and baskets divide them differently."""
        if not self.item.size:
            raise file_error("history.item", "must have at least one row")
        if not np.array_equal(self.baskets[self.user_baskets], self.indptr):
            raise file_error("history.user_baskets", "must divide the rows like indptr")
        times = NO_TIME if self.time is None else self.time
        row = find_invalid_row(self.indptr, self.baskets, self.item, times, len(self.items), MAX_TIME)
        if row >= 0:
            raise file_error(
                "history.item",
                f"must hold indices of items, sorted by user, time and item, got something else in row {row}",
            )


@dataclass(frozen=True, eq=False)
class History(UsersAndItems):
    """The interactions that a model knows; never modified, only replaced."""

    stored_as: ClassVar[type] = StoredHistory

    base: Interactions
    users: IdMap
    items: IdMap
    item_names: pl.Series | None
    # (base.n_rows,) basket numbers; absent without `next_basket`
    base_baskets: Ints = field(default_factory=lambda: NO_BASKET)
    next_basket: int | None = None  # None: the rows of a user with one time are one basket
    runs: tuple[HistoryRun, ...] = ()
    counted: Totals | None = None
    # What was returned is subtracted when rows are read, not when they are stored: a purchase that arrives
    # late may be the one that was returned.
    returns: pl.DataFrame = field(default_factory=lambda: NO_RETURNS)

    @classmethod
    def of(cls, data: Interactions) -> Self:
        """The history of these interactions."""
        return cls(data, data.users, data.items, data.item_names)

    def to_stored(self) -> StoredHistory:
        """All rows, as a file holds them."""
        return StoredHistory.of(self.merged)

    @classmethod
    def from_stored(cls, rows: StoredHistory) -> Self:
        """The history in a file."""
        return cls.of(rows.interactions())

    @cached_property
    def merged(self) -> Interactions:
        """All rows, without what was returned."""
        data = self._all_purchases
        return subtract_from(data, self.returns)[0] if self.returns.height else data

    @cached_property
    def _all_purchases(self) -> Interactions:
        if not self.runs:
            return self.base
        everyone = np.arange(self.n_users, dtype=np.int32)
        places = [run.place(everyone) for run in (self._base_rows, *self.runs)]
        arrays = build_arrays(self._gather(places, self.n_users))
        return Interactions(
            self.users, self.items, item_names=self.item_names, source=self.base.source, **arrays
        )

    @cached_property
    def _returning_users(self) -> Ints:
        """(n_returns,) the user of each return, -1: unknown."""
        return self.users.lookup(self.returns["user_id"]) if self.returns.height else np.empty(0, np.int32)

    @cached_property
    def totals(self) -> Totals:
        """Numbers that describe all rows."""
        return Totals.of(self.merged) if self.counted is None else self.counted

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.totals.n_rows

    @property
    def has_times(self) -> bool:
        """Whether rows have times."""
        return self.base.time is not None

    @property
    def end_time(self) -> int:
        """Just after the last event, in microseconds since 1970; 0 without times."""
        return self.totals.end_time

    @property
    def has_repeats(self) -> bool:
        """As in `Interactions`."""
        return self.totals.n_rows - self.totals.n_pairs >= max(1, self.totals.n_rows // 100)

    def rows_of(
        self,
        users: Ints,
        ids: IdMap | None = None,
        before: Longs | None = None,
        whole: "History | None" = None,
    ) -> Interactions:
        """The rows of these users, in their order, without what was returned.

        -1: a user without rows, whose id must be given in `ids`. `before` (n,) leaves out rows at or after a
        time. Item counts are those of `whole`, or of all rows.
        """
        rows = self.purchases_of(users, ids, whole)
        is_theirs = np.isin(self._returning_users, users)
        if is_theirs.any():
            rows = subtract_from(rows, self.returns.filter(pl.Series(is_theirs)))[0]
        if before is None or rows.time is None:
            return rows
        is_visible = rows.time < before[rows.user]
        return rows if is_visible.all() else rows.where(is_visible)

    def purchases_of(
        self, users: Ints, ids: IdMap | None = None, whole: "History | None" = None
    ) -> Interactions:
        """The rows of these users, with what was returned."""
        places = [run.place(users) for run in self.runs]
        if all((place < 0).all() for place in places):
            arrays = rows_of_users(self.base, np.where(users < self.base.n_users, users, UNKNOWN))
        else:
            arrays = build_arrays(self._gather([self._base_rows.place(users), *places], users.size))
        whole = self if whole is None else whole
        ids = IdMap(self.users.to_ids(users)) if ids is None else ids
        return UserRows(ids, self.items, item_names=self.item_names, whole=whole, **arrays)

    def _gather(self, places: list[Longs], n: int) -> GroupedRows:
        """The rows of n users, grouped; places[k] (n,) are their positions in the base and in each run."""
        parts = []
        for rows, place in zip((self._base_rows, *self.runs), places, strict=True):
            at, numbers = take_rows(rows.indptr, place)
            parts.append((row_owners(at).astype(np.int32), *rows.take(numbers)))
        return group_by_user(n, *(np.concatenate(column) for column in zip(*parts, strict=True)))

    @property
    def _base_rows(self) -> HistoryRun:
        """The base in the form of a run."""
        data = self.base
        return HistoryRun(
            np.arange(data.n_users, dtype=np.int32),
            data.indptr,
            data.item,
            _times(data),
            self.base_baskets,
            NO_WEIGHT if data.weight is None else data.weight,
        )

    def with_items(self, items: IdMap, names: pl.Series | None) -> Self:
        """The history over a longer map of items; the new ones have no interactions."""
        counts = np.zeros(len(items), np.int64)
        counts[: self.n_items] = self.totals.item_counts
        return replace(
            self,
            base=replace(self.base, items=items, item_names=names),
            items=items,
            item_names=names,
            counted=self.totals._replace(item_counts=counts),
        )

    def rename_users(self, users: IdMap, erased: pl.Series) -> Self:
        """The history with other ids of the same users; `erased` are the ids that no longer occur."""
        returns = self.returns
        if returns.height:
            ids = users.values.gather(pl.Series(self._returning_users).replace(UNKNOWN, None))
            returns = returns.with_columns(ids.fill_null(returns["user_id"]).alias("user_id"))
        return replace(
            self,
            base=replace(self.base, users=IdMap(users.values.head(self.base.n_users))),
            users=users,
            returns=returns.filter(~pl.col("user_id").is_in(erased.implode())),
        )

    def append(self, events: Events) -> "tuple[History, NewRows | None]":
        """The history with these events, and the new rows; None if returns have changed other rows.

        The events have times and weights exactly if the history has them. The result is that of all events
        at once, however they are divided: see `subtract_returns`.
        """
        purchases, returns = events
        longer, users = self._append(purchases.compact())
        if returns.height or self._was_returned(purchases):
            both = [frame for frame in (self.returns, returns) if frame.height]
            return replace(longer, returns=pl.concat(both, how="vertical_relaxed"), counted=None), None
        ids = IdMap(longer.users.to_ids(users))
        before, after = self.rows_of(users, ids), longer.rows_of(users, ids)
        new = _find_new_rows(users, before, after)
        if not new.item.size and not new.reweighted.size:
            return self, new
        return replace(longer, counted=self.totals.replace_rows(before, after)), new

    def _was_returned(self, purchases: Interactions) -> bool:
        """Whether a user has returned one of the items of these purchases, before or after them."""
        if not self.returns.height:
            return False
        ids = {"user_id": purchases.users.to_ids(purchases.user)}
        pairs = pl.DataFrame(ids | {"item_id": purchases.items.to_ids(purchases.item)})
        return pairs.join(self.returns, on=["user_id", "item_id"], how="semi").height > 0

    def _from_base(self, base: Interactions) -> Self:
        """A history of these purchases over the same users and items."""
        is_numbered = self.next_basket is not None
        return replace(
            self,
            base=base,
            base_baskets=base.basket if is_numbered else NO_BASKET,
            next_basket=base.n_baskets if is_numbered else None,
            runs=(),
            counted=None,
        )

    def _append(self, events: Interactions) -> tuple[Self, Ints]:
        """The history with more rows, and the users who have them."""
        numbered = self._with_numbers(not baskets_follow_time(events))
        users, user_index = _extend(self.users, events.users, events.user, events.time)
        items, item_index = _extend(self.items, events.items, events.item, events.time)
        run, next_basket = numbered._place(events, user_index, item_index)
        names = self.item_names
        if names is not None:
            names = pl.concat([names, _new_names(items, len(names), events)])
        longer = replace(numbered, users=users, items=items, item_names=names, next_basket=next_basket)
        return longer._add_run(run), run.users

    def _with_numbers(self, events_need_them: bool) -> Self:
        """This history with numbered baskets if times (its own, or of the events) do not distinguish them."""
        if self.next_basket is not None or (self.runs and not events_need_them):
            return self
        data = self._all_purchases
        if not events_need_them and baskets_follow_time(data):
            return self
        return replace(self, base=data, base_baskets=data.basket, next_basket=data.n_baskets, runs=())

    def _place(
        self, events: Interactions, user_index: Ints, item_index: Ints
    ) -> tuple[HistoryRun, int | None]:
        """(rows, next_basket): the events as rows over the indices of this history."""
        order = np.argsort(user_index, kind="stable")
        _, numbers = take_rows(events.indptr, order)
        time = NO_TIME if events.time is None else events.time[numbers]
        weight = NO_WEIGHT if events.weight is None else events.weight[numbers]
        at, item = starts(events.user_counts[order]), item_index[events.item[numbers]]
        rows = HistoryRun(user_index[order], at, item, time, NO_BASKET, weight)
        if self.next_basket is None:
            return _sort(rows), None  # new items may be in another order
        basket = events.basket[numbers] + np.int32(self.next_basket)
        if time.size and baskets_follow_time(events):
            joined = np.full(basket.size, -1, np.int32)
            for run in (self._base_rows, *self.runs):
                places = read_only(run.indptr), read_only(run.time), read_only(run.basket)
                find_last_baskets(run.place(rows.user), read_only(time), *places, joined)
            basket = np.where(joined < 0, basket, joined)
        return _sort(rows._replace(basket=basket)), self.next_basket + events.n_baskets

    def _add_run(self, run: HistoryRun) -> Self:
        """Add a run; merge it with the runs before it that are not larger, and all runs with the base."""
        if not run.item.size:
            return self
        if sum(rows.item.size for rows in (*self.runs, run)) * MERGE_SHARE > self.base.n_rows:
            longer = replace(self, runs=(*self.runs, run))
            return longer._from_base(longer._all_purchases)
        runs = list(self.runs)
        while runs and runs[-1].item.size <= 2 * run.item.size:
            run = _merge(runs.pop(), run)
        return replace(self, runs=(*runs, run))


def _extend(ids: IdMap, more: IdMap, row: Ints, time: Longs | None) -> tuple[IdMap, Ints]:
    """(longer map, index of each id of `more`); new ids follow in order of their first time, then sorted."""
    ids.check_new(more.values)
    index = ids.lookup(more.values)
    new = np.flatnonzero(index == UNKNOWN)
    if not new.size:
        return ids, index
    rank = more.values.gather(new).rank("ordinal").to_numpy()
    first = np.zeros(len(more), np.int64)
    if time is not None:
        first[:] = np.iinfo(np.int64).max
        np.minimum.at(first, row, time)
    new = new[np.lexsort((rank, first[new]))]
    index[new] = len(ids) + np.arange(new.size)
    return ids.extend(more.values.gather(new)), index


def _new_names(items: IdMap, n_known: int, events: Interactions) -> pl.Series:
    """The names of the items after the first `n_known`, or their ids."""
    new = IdMap(items.values[n_known:])
    if events.item_names is None:
        return new.values.cast(pl.String)
    return first_names(new, new.lookup(events.items.values), events.item_names)


def _sort(rows: HistoryRun) -> HistoryRun:
    """Sort the rows of each user by time, basket and item."""
    columns: Any = [column.copy() for column in rows[1:]]
    at, item, time, basket, weight = columns
    sort_rows(at, time, basket, item, weight)
    return HistoryRun(rows.users, at, item, time, basket, weight)


def _merge(first: HistoryRun, more: HistoryRun) -> HistoryRun:
    """The rows of both."""
    users = np.union1d(first.users, more.users)
    user = np.concatenate([np.searchsorted(users, rows.user) for rows in (first, more)]).astype(np.int32)
    pairs: Any = zip(first[2:], more[2:], strict=True)
    columns = [np.concatenate(pair) for pair in pairs]
    return _sort(HistoryRun(users, *group_by_user(users.size, user, *columns)))


def _find_new_rows(users: Ints, before: Interactions, after: Interactions) -> NewRows:
    """The rows of users that they did not have before; they have all that they had."""
    is_new = np.empty(after.n_rows, np.bool_)
    columns: Any = before.indptr, before.item, _times(before), after.indptr, after.item, _times(after)
    arrays: Any = [*map(read_only, columns), is_new]
    mark_new_rows(*arrays)
    user, reweighted = users[after.user], users[:0]
    if before.weight is not None and after.weight is not None:
        reweighted = np.unique(user[~is_new][after.weight[~is_new] != before.weight])
    weight = NO_WEIGHT if after.weight is None else after.weight
    return NewRows(
        user[is_new],
        after.item[is_new],
        filter_column(_times(after), is_new),
        filter_column(weight, is_new),
        reweighted,
    )


def _times(data: Interactions) -> Longs:
    return NO_TIME if data.time is None else data.time


def match_events(history: History, events: Events, uses_new_items: bool) -> Events:
    """The events in the form of the history: with times if it has them, without items it cannot use."""
    purchases, returns = events
    for n_rows, has_times in (
        (purchases.n_rows, purchases.time is not None),
        (returns.height, not returns["time"].null_count()),
    ):
        if n_rows and history.has_times != has_times:
            needed, got = ("times", "no times") if history.has_times else ("no times", "times")
            raise DataError(
                f"events must have {needed} like the data that the model was fitted on, got {got}; "
                "pass the same columns."
            )
    purchases, returns = _match_returns(history, purchases, returns)
    if history.base.weight is None:
        purchases = replace(purchases, weight=None)
    elif purchases.weight is None:
        purchases = replace(purchases, weight=np.ones(purchases.n_rows, np.float32))
    if uses_new_items or not purchases.n_rows:
        return Events(purchases, returns)
    history.items.check_type(purchases.items.values[0], "item id")
    is_known = history.items.align(purchases.items)[purchases.item] != UNKNOWN
    if not is_known.all():
        n_new = np.unique(purchases.item[~is_known]).size
        warnings.warn(
            f"{int((~is_known).sum())} of {is_known.size} events are skipped: the model cannot recommend "
            f"their {n_new} new items before it learns them; fit it again.",
            DataWarning,
            stacklevel=3,
        )
        purchases = purchases.where(is_known)
    return Events(purchases.compact(), returns)


def _match_returns(
    history: History, purchases: Interactions, returns: pl.DataFrame
) -> tuple[Interactions, pl.DataFrame]:
    """Returns as the history treats them: subtracted, kept as rows of negative weight, or dislikes."""
    if not returns.height:
        return purchases, returns
    history.users.check_new(returns["user_id"])
    history.items.check_new(returns["item_id"])
    base = history.base
    if base.source is not None and base.source.has_ratings and not keeps_negative(base):
        warn(
            f"{returns.height} events are skipped: their weight is negative, and the weights of the model's "
            "data are ratings; send what users like."
        )
        return purchases, NO_RETURNS
    if not keeps_negative(base):
        return purchases, returns
    rows = returns.with_columns(timestamp=pl.col("time").cast(pl.Datetime("us"))).drop("time")
    frames = [purchases.to_frame(), rows.select(purchases.to_frame().columns)] if purchases.n_rows else [rows]
    return Interactions.from_frame(pl.concat(frames), negative_weights="keep"), NO_RETURNS
