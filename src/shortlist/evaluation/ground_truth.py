"""Anyone's lists, brought under one roof with the truth: users and items matched by outside id."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.id_map import IdMap, id_series
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.kernels.metrics import Chunk, Truth, distinct_count, hits_mark
from shortlist.types import Bools, Ints, Longs

Lists = RankedLists | pl.DataFrame | Mapping[Any, Iterable[Any]]
ListsOrChunks = Lists | Iterable[RankedLists]


def as_lists(lists: Lists) -> RankedLists:
    """Lists of any library: ours, a table with user_id and item_id, or {user_id: [item_id, …]}."""
    if isinstance(lists, RankedLists):
        return lists
    if isinstance(lists, pl.DataFrame):
        return RankedLists.from_frame(lists)
    if not isinstance(lists, Mapping):
        raise DataError(
            f"lists must be RankedLists, a polars table or a dict of item ids by user id, got "
            f"{type(lists).__name__}; pass what recommend returns, or convert them."
        )
    shown = [list(items) or [None] for items in lists.values()]  # an empty list is a row without an item
    owner = np.repeat(np.arange(len(shown)), [len(items) for items in shown])
    try:
        user_id, item_id = pl.Series(list(lists)), pl.Series([item for items in shown for item in items])
    except TypeError as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"ids must be all strings or all integers, got a mixture ({reason}); cast them."
        ) from None
    return RankedLists.from_frame(pl.DataFrame({"user_id": user_id.gather(owner), "item_id": item_id}))


def as_chunks(lists: ListsOrChunks) -> Iterator[RankedLists]:
    """The lists in one piece, or in as many as the caller brings; nothing is held longer than needed."""
    if isinstance(lists, (RankedLists, pl.DataFrame, Mapping)) or not isinstance(lists, Iterable):
        yield as_lists(lists)
        return
    for chunk in lists:
        yield as_lists(chunk)


class GroundTruth:
    """The truth laid out for judging: everybody with truth, or asked, has a row, in the order of the ids."""

    def __init__(
        self,
        truth: Interactions | Any,
        history: Interactions | None = None,
        asked: Iterable[Any] | None = None,  # user ids that count whether they took anything or not
    ) -> None:
        truth = Interactions.of(truth)
        if not truth.n_rows:
            raise DataError(
                "truth must hold at least one interaction, got none; pass the test part of a split."
            )
        self.users, self.items = truth.users, truth.items
        if history is not None and history.items is not truth.items:
            self.items = truth.items.union(history.items.values)
        self.of_row = truth.active_users
        if asked is not None:
            ids = id_series(asked)
            self.users = truth.users.union(ids)
            self.of_row = np.union1d(self.of_row, self.users.lookup(ids)).astype(np.int32)
        self.row_of = np.full(len(self.users), -1, np.int32)
        self.row_of[self.of_row] = np.arange(self.of_row.size, dtype=np.int32)
        indptr = np.pad(truth.indptr, (0, len(self.users) - truth.n_users), mode="edge")
        self.truth = Truth(
            indptr[self.of_row],
            indptr[self.of_row + 1],
            truth.item,
            np.full(len(self.items), -1, np.int32),
        )
        self.sizes: Ints = np.zeros(self.of_row.size, np.int32)
        self.taken_of: Longs = np.zeros(len(self.items), np.int64)
        distinct_count(self.truth, self.sizes, self.taken_of)

    @property
    def n_rows(self) -> int:
        """How many users are judged."""
        return int(self.of_row.size)

    @property
    def user_ids(self) -> pl.Series:
        """(n_rows,) outside ids."""
        return self.users.to_ids(self.of_row)

    def rows(self, users: IdMap) -> Ints:
        """(n_users,) the row of each of these users, -1 for one who is not judged."""
        index = match(users, self.users, "users")
        return np.where(index < 0, -1, self.row_of[index]).astype(np.int32)

    def chunk(self, lists: RankedLists) -> Chunk:
        """Lists as the kernels take them."""
        check(lists)
        code, row = match(lists.item_ids, self.items, "items"), self.rows(lists.users)
        sorted_already = bool((row[1:] >= row[:-1]).all())
        order = np.arange(row.size) if sorted_already else np.argsort(row)
        return Chunk(frozen(lists.indptr, np.int64), frozen(lists.items, np.int32), code, row, order)

    def relevant(self, chunk: Chunk) -> Bools:
        """(n_shown,) whether each item of the lists is in its user's truth."""
        relevant = np.zeros(chunk.items.size, np.bool_)
        hits_mark(chunk, self.truth, relevant)
        return relevant

    def n_relevant(self, chunk: Chunk) -> Ints:
        """(n_lists,) size of the truth of each list's user, 0 for a user without a row."""
        return np.where(chunk.row < 0, 0, self.sizes[chunk.row])

    def history(self, history: Interactions) -> Truth:
        """What the judged users had taken before, in the truth's item numbers."""
        user = match(self.users, history.users, "users")[self.of_row]
        start = np.where(user < 0, 0, history.indptr[user])
        end = np.where(user < 0, 0, history.indptr[user + 1])
        item = match(history.items, self.items, "items")[history.item]
        return Truth(start, end, frozen(item, np.int32), np.full(len(self.items), -1, np.int32))


def frozen(array: npt.NDArray[Any], dtype: type) -> npt.NDArray[Any]:
    """The same values, contiguous and read-only, so that kernels are compiled for one kind of array."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def match(ids: IdMap, known: IdMap, what: str) -> Ints:
    """(n_ids,) the index of each id in the other table, -1 where it is not there."""
    if ids is known or (len(ids) == len(known) and ids == known):
        return np.arange(len(ids), dtype=np.int32)
    kinds = ids.values.dtype.is_integer(), known.values.dtype.is_integer()
    if len(ids) and kinds[0] != kinds[1]:
        raise DataError(
            f"ids of {what} must be of one kind on both sides, got {ids.values.dtype} against "
            f"{known.values.dtype}; cast one of them."
        )
    return known.lookup(ids.values)


def check(lists: RankedLists) -> None:
    """Refuse arrays a kernel could not walk safely, and users with two lists."""
    lengths = np.diff(lists.indptr)
    if lists.indptr[0] != 0 or (lengths.size and lengths.min() < 0):
        raise DataError(
            "indptr of lists must start at 0 and never fall; build lists with RankedLists methods."
        )
    if lists.items.size and not 0 <= lists.items.min() <= lists.items.max() < len(lists.item_ids):
        raise DataError(
            f"items of lists must be indices below {len(lists.item_ids)}, got {lists.items.min()} to "
            f"{lists.items.max()}; pass the item table they belong to."
        )
    if lists.users.values.n_unique() != len(lists):
        raise DataError("a user must have one list, got a user with several; keep one of them.")
    p = lists.probabilities
    if p is not None and p.size and not (np.nanmin(p) >= 0 and np.nanmax(p) <= 1):
        raise DataError(
            f"probabilities must lie between 0 and 1, got {np.nanmin(p)} to {np.nanmax(p)}; "
            "calibrate the scores first."
        )
