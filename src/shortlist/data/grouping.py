"""The arrays of Interactions: rows grouped by user, sorted by time, without duplicates, in baskets."""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.array_parts import ArrayParts, parts_of
from shortlist.core.calls import warn
from shortlist.core.ragged import starts, take_rows
from shortlist.core.threads import rows_thread_count, run_each
from shortlist.data.id_map import IdMap, id_series, is_id_list
from shortlist.data.negative_rows import describe_rows, select_rows, subtract_min_rating
from shortlist.errors import DataError
from shortlist.kernels.group import (
    fill_basket_starts,
    fill_user_starts,
    find_baskets,
    group_rows,
    look_up_codes,
    mark_present,
    merge_duplicates,
    sort_rows,
)
from shortlist.types import Bools, Floats, Ints, Longs

if TYPE_CHECKING:
    from shortlist.data.columns import Table
    from shortlist.data.interaction_rows import InteractionRows
    from shortlist.data.interactions import Interactions

NO_TIME, NO_BASKET, NO_WEIGHT = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
# A lookup table over the whole range encodes integers fastest, if it has at most this many entries per row.
MAX_SPREAD = 8
ID_BATCH = 1 << 16  # ids that are hashed at once


class GroupedRows(NamedTuple):
    """Columns grouped by user; an absent column has length 0."""

    indptr: Longs  # (n_users + 1,)
    item: Ints
    time: Longs
    basket: Ints
    weight: Floats


class InteractionArrays(NamedTuple):
    """The array fields of Interactions."""

    indptr: Longs
    item: Ints
    baskets: Longs
    user_baskets: Longs
    time: Longs | None
    weight: Floats | None
    duplicates: int


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

    run_each(move, _blocks(indptr, rows_thread_count(item.size)), item.size)
    return rows


def build_arrays(rows: GroupedRows) -> InteractionArrays:
    """Sort each user's rows by time, merge duplicates and find baskets; `rows` is modified."""
    _sort(rows)
    indptr, item, time, basket, weight = rows
    keep = np.empty(item.size, np.bool_)
    duplicates = merge_duplicates(indptr, time, basket, item, weight, keep)
    if duplicates:
        indptr, item = filter_starts(indptr, keep), item[keep]
        time = time[keep] if time.size else time
        basket = basket[keep] if basket.size else basket
        weight = weight[keep] if weight.size else weight
    user_baskets = np.zeros(indptr.size, np.int64)
    first = keep[: item.size]
    baskets = np.empty(find_baskets(indptr, time, basket, first, user_baskets) + 1, np.int64)
    fill_basket_starts(first, baskets)
    return InteractionArrays(
        indptr=indptr,
        item=item,
        baskets=baskets,
        user_baskets=user_baskets,
        time=time if time.size else None,
        weight=weight if weight.size else None,
        duplicates=duplicates,
    )


def _sort(rows: GroupedRows) -> None:
    """Sort each user's rows in place; users are independent, so threads sort blocks of users."""
    indptr, item, time, basket, weight = rows

    def sort(users: tuple[int, int]) -> None:
        sort_rows(indptr[users[0] : users[1] + 1], time, basket, item, weight)

    run_each(sort, _blocks(indptr, 4 * rows_thread_count(item.size)), item.size)


def _blocks(indptr: Longs, n_blocks: int) -> list[tuple[int, int]]:
    """(first, end) users of blocks with about equally many rows."""
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], n_blocks + 1)[1:-1])
    edges = [0, *cuts.tolist(), indptr.size - 1]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def filter_starts(starts: Longs, keep: Bools) -> Longs:
    """Where groups start after the elements not in `keep` are removed."""
    before = np.zeros(keep.size + 1, np.int64)
    np.cumsum(keep, out=before[1:])
    return before[starts]


class TableRows(NamedTuple):
    """The rows of a table, grouped by user."""

    users: IdMap
    items: IdMap
    item_names: pl.Series | None
    rows: GroupedRows
    has_basket_order: bool
    dropped: int  # rows with negative weights


def rows_of_table(table: "Table") -> TableRows:
    """Read, encode and group the columns of a table."""
    users, user = encode(table.required_ids("user_id"))
    items, item = encode(table.required_ids("item_id"))
    labels = table.labels()
    names = None if labels is None else first_names(items, item, labels)
    basket_id, weight, time = table.ids("basket_id"), table.weights(), table.times()
    basket, ordered = (NO_BASKET, True) if basket_id is None else _encode_baskets(table, basket_id, time)
    time, weight = NO_TIME if time is None else time, NO_WEIGHT if weight is None else weight
    weight = subtract_min_rating(weight, table.min_rating)
    keep = select_rows(table, weight)
    if keep is not None:
        user, item, weight = user[keep], item[keep], weight[keep]
        time, basket = (time[keep] if time.size else time), (basket[keep] if basket.size else basket)
    time = basket_times(user, basket, time)
    rows = group_by_user(len(users), user, item, time, basket, weight)
    return TableRows(users, items, names, rows, ordered, 0 if keep is None else int((~keep).sum()))


def _encode_baskets(table: "Table", ids: pl.Series, time: Longs | None) -> tuple[Ints, bool]:
    """(n_rows,) basket numbers, and whether their order is known: from times, or from numbers as ids."""
    if time is not None:
        return encode(ids)[1], True
    name = table.roles["basket_id"]
    if ids.dtype == pl.String and ids.str.contains(r"^\d{1,18}$").all():
        numbers = ids.cast(pl.Int64)
        ids = numbers if numbers.n_unique() == ids.n_unique() else ids  # 7 and 007 are two baskets
    if ids.dtype == pl.String:
        table.doubt(
            f"the order of the baskets is unknown: there are no times, and column {name!r} holds strings; "
            'pass the column with the times, or basket_id="" to ignore baskets.'
        )
        return encode(ids)[1], False
    table.note(f"there are no times; the baskets of a user are ordered by the number in column {name!r}.")
    return encode(ids)[1], True


def rows_of_matrix(
    matrix: Any,
    user_ids: Iterable[Any] | None,
    item_ids: Iterable[Any] | None,
    negative_weights: str,
    min_rating: float | None = None,
) -> tuple[IdMap, IdMap, GroupedRows, str | None]:
    """(users, items, rows, note) of a SciPy users × items matrix; the note is on `min_rating`."""
    from scipy.sparse import csr_array

    try:
        csr = csr_array(matrix)
    except (TypeError, ValueError):
        csr = None
    if csr is None or csr.ndim != 2:
        raise DataError(
            f"a matrix of interactions must be a SciPy users × items matrix, got a {type(matrix).__name__}; "
            "use scipy.sparse.csr_array."
        )
    if not csr.data.all():
        csr = csr.copy()
        csr.eliminate_zeros()
    if min_rating is not None:
        rated = subtract_min_rating(csr.data.astype(np.float32), min_rating)
        csr = csr_array((rated, csr.indices, csr.indptr), shape=csr.shape)
    n, note = int((csr.data < 0).sum()), None
    if min_rating is not None:
        note = describe_rows(n, csr.nnz, min_rating, negative_weights)
    elif n and negative_weights == "drop":
        warn(
            f"{n:,} negative values of the matrix, such as returns or dislikes, were dropped; pass "
            'negative_weights="keep" to keep them.'
        )
    if n and negative_weights == "drop":
        csr = csr.copy()
        csr.data[csr.data < 0] = 0
        csr.eliminate_zeros()
    n_users, n_items = csr.shape
    users = IdMap.of(range(n_users) if user_ids is None else user_ids)
    items = IdMap.of(range(n_items) if item_ids is None else item_ids)
    if (len(users), len(items)) != (n_users, n_items):
        raise DataError(
            f"there must be one id per row and column of the {n_users} × {n_items} matrix, "
            f"got {len(users)} user ids and {len(items)} item ids; pass one for each."
        )
    weight = np.asarray(csr.data, np.float32)
    if not np.isfinite(weight).all():
        raise DataError("matrix values must be finite, got NaN or infinity; clean the matrix first.")
    weight = NO_WEIGHT if (weight == 1).all() else weight.copy()
    indptr, item = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)  # copies, sorted in place later
    return users, items, GroupedRows(indptr, item, NO_TIME, NO_BASKET, weight), note


def rows_of_baskets(
    data: "Interactions", baskets: Mapping[Any, Iterable[Any]]
) -> tuple[IdMap, IdMap, GroupedRows]:
    """(users, items, rows) of one basket of known items per user, just after the last event of `data`."""
    given: object = baskets
    if not isinstance(given, Mapping) or not all(map(is_id_list, given.values())):
        got = "other values" if isinstance(given, Mapping) else f"a {type(given).__name__}"
        raise DataError(
            f"baskets must be a dictionary from user ids to lists of item ids, got {got}; "
            "pass {user_id: [item_id, …]}."
        )
    contents = {user_id: list(items) for user_id, items in baskets.items()}
    empty = [user_id for user_id, items in contents.items() if not items]
    if empty or not contents:
        got = f"none for {repr(empty[0])[:80]}" if empty else "no users"
        raise DataError(f"every user must have at least one item, got {got}; omit users without items.")
    item_ids = [item for items in contents.values() for item in items]
    unknown = data.items.lookup(item_ids, "item id") < 0
    if unknown.any():
        data.items.index(item_ids[int(np.argmax(unknown))], "item id")  # raises and names similar ids
    for user_id in contents:
        data.users.check_type(user_id, "user id")
    sizes = [len(items) for items in contents.values()]
    users, user = encode(id_series(list(contents)).gather(np.repeat(np.arange(len(sizes)), sizes)))
    items, item = encode(id_series(item_ids))
    time = NO_TIME if data.time is None else np.full(item.size, data.time.max() + 1)
    weight = NO_WEIGHT if data.weight is None else np.ones(item.size, np.float32)
    return users, items, group_by_user(len(users), user, item, time, NO_BASKET, weight)


def concat_rows(first: "Interactions", more: "Interactions") -> tuple[IdMap, IdMap, GroupedRows]:
    """(users, items, rows) of both; ids of `first` keep their index."""
    users, items = first.users.union(more.users.values), first.items.union(more.items.values)
    user = np.concatenate([first.user, users.lookup(more.users.values)[more.user]])
    item = np.concatenate([first.item, items.lookup(more.items.values)[more.item]])
    time = NO_TIME if first.time is None else np.concatenate([first.time, more.time])
    weight = NO_WEIGHT if first.weight is None else np.concatenate([first.weight, more.weight])
    basket = NO_BASKET
    if not (baskets_follow_time(first) and baskets_follow_time(more)):
        own = np.repeat(np.arange(first.n_baskets), np.diff(first.baskets))
        new = np.repeat(np.arange(more.n_baskets), np.diff(more.baskets)) + first.n_baskets
        basket = np.concatenate([own, new]).astype(np.int32)
    return users, items, group_by_user(len(users), user, item, time, basket, weight)


def filter_rows(data: "Interactions", keep: Bools) -> InteractionArrays:
    """The arrays of the rows marked in `keep` (n_rows,); baskets that become empty are removed."""
    basket_starts = filter_starts(data.baskets, keep)
    is_filled = np.diff(basket_starts) > 0
    return InteractionArrays(
        indptr=filter_starts(data.indptr, keep),
        item=data.item[keep],
        baskets=np.append(basket_starts[:-1][is_filled], basket_starts[-1]),
        user_baskets=filter_starts(data.user_baskets, is_filled),
        time=None if data.time is None else data.time[keep],
        weight=None if data.weight is None else data.weight[keep],
        duplicates=0,
    )


def rows_of_users(data: "Interactions", users: Ints) -> InteractionArrays:
    """The arrays of the rows of these users, in their order; -1: a user without rows."""
    indptr, rows = take_rows(data.indptr, users)
    user_baskets, baskets = take_rows(data.user_baskets, users)
    return InteractionArrays(
        indptr=indptr,
        item=data.item[rows],
        baskets=starts(data.baskets[baskets + 1] - data.baskets[baskets]),
        user_baskets=user_baskets,
        time=None if data.time is None else data.time[rows],
        weight=None if data.weight is None else data.weight[rows],
        duplicates=0,
    )


def fingerprint(users: IdMap, items: IdMap, columns: Iterable[npt.NDArray[Any] | ArrayParts | None]) -> str:
    """A stable hash of ids and of columns: row starts, items, basket starts, times and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for ids in (users, items):
        kind = "str" if ids.values.dtype == pl.String else "int"
        digest.update(f"{kind}{len(ids)}".encode())
        for start in range(0, len(ids), ID_BATCH):
            text = "\0".join(map(str, ids.values[start : start + ID_BATCH].to_list()))
            digest.update(("\0" * bool(start) + text).encode())
    for column in columns:
        digest.update(b"-" if column is None else str(column.dtype).encode())
        for part in () if column is None else parts_of(column):
            digest.update(part)
    return digest.hexdigest()


def in_last_basket(data: "InteractionRows") -> Bools:
    """(n_rows,) whether a row is in the last basket of a user who has at least two."""
    is_last = np.zeros(data.n_baskets, np.bool_)
    is_last[data.user_baskets[1:][np.diff(data.user_baskets) >= 2] - 1] = True
    return np.repeat(is_last, np.diff(data.baskets))


def baskets_follow_time(data: "Interactions") -> bool:
    """Whether a basket is all rows of a user with equal times (without times, all rows of a user)."""
    first, counts = np.empty(data.n_rows, np.bool_), np.zeros(data.n_users + 1, np.int64)
    time = NO_TIME if data.time is None else data.time
    return find_baskets(data.indptr, time, NO_BASKET, first, counts) == data.n_baskets


def basket_times(user: Ints, basket: Ints, time: Longs) -> Longs:
    """(n_rows,) the earliest time of each row's basket: all rows of a basket share one time."""
    if basket.size == 0 or time.size == 0:
        return time
    frame = pl.DataFrame({"user": user, "basket": basket, "time": time})
    return frame.select(pl.col("time").min().over("user", "basket"))["time"].to_numpy()


def first_names(items: IdMap, item: Ints, name: pl.Series) -> pl.Series:
    """(n_items,) the first name of each item, or its id; rows with item -1 are ignored."""
    named = pl.DataFrame({"item": item, "name": name}).drop_nulls().unique("item", keep="first")
    own = pl.DataFrame({"item": np.arange(len(items), dtype=np.int32), "id": items.values.cast(pl.String)})
    joined = own.join(named, on="item", how="left", maintain_order="left")
    return joined["name"].fill_null(joined["id"])


def encode(ids: pl.Series) -> tuple[IdMap, Ints]:
    """A map of the sorted distinct ids, and the dense index of every row; `ids` has no nulls."""
    ids = id_series(ids)
    if ids.dtype.is_integer() and len(ids):
        low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
        if high - low < max(MAX_SPREAD * len(ids), 1 << 20) and high < 2**63:
            return _encode_dense(ids, low, high)
    id_map = IdMap(ids.unique().sort())
    return id_map, id_map.lookup(ids)


def _encode_dense(ids: pl.Series, low: int, high: int) -> tuple[IdMap, Ints]:
    """Encode integers of a narrow range: mark those present, number them, look up every row."""
    table, codes = np.zeros(high - low + 1, np.int32), np.empty(len(ids), np.int32)
    chunks = [chunk.to_numpy() for chunk in ids.get_chunks()]  # not rechunked: that would be a copy
    for chunk in chunks:
        mark_present(chunk, low, table)
    distinct = np.flatnonzero(table)
    table[distinct] = np.arange(distinct.size, dtype=np.int32)
    starts = np.cumsum([0, *map(len, chunks)])
    run_each(
        lambda at: look_up_codes(chunks[at], low, table, codes[starts[at] : starts[at + 1]]),
        range(len(chunks)),
        len(ids),
    )
    return IdMap(pl.Series(distinct + low).cast(ids.dtype)), codes
