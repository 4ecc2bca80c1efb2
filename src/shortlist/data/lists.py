"""RankedLists: the lists of many users, of different lengths."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.files import atomic_write
from shortlist.core.ragged import starts, take_rows
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.list_files import FORMATS, build_frame, numeric_column, parse_lists, read_table, scores_of
from shortlist.data.notebook import html_table, to_pandas
from shortlist.errors import DataError
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class RankedList:
    """The list of one user, best item first.

    Parameters
    ----------
    user_id
        The user.
    items
        Item ids, best first.
    scores
        (n,) score of each item.
    probabilities
        (n,) probability that each item is relevant, if the model predicts it.
    boundary
        The score at which the list ends, for models with a boundary.
    reason
        Why the list ends, one of `shortlist.data.lists.REASONS`.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"user_id": ["ann", "ann"], "item_id": ["milk", "tea"], "rank": [1, 2]})
    >>> sl.RankedLists.from_frame(table)["ann"].items
    ['milk', 'tea']
    """

    user_id: Any
    items: list[Any]
    scores: Floats
    probabilities: Doubles | None
    boundary: float | None
    reason: str | None

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        shown = ", ".join(repr(item)[:40] for item in self.items[:5]) + (", …" if len(self) > 5 else "")
        user = repr(self.user_id)[:40]
        return f"RankedList(user {user}, {len(self)} items: [{shown}], reason={self.reason!r})"


Codes: TypeAlias = npt.NDArray[np.uint8]

REASON_TEXT = {
    "top_n": "the same number of items for every user",
    "boundary": "the next item scores below this user's boundary",
    "max_items": "the maximum length is reached",
    "min_items": "filled up to the minimum length",
    "utility": "one more item would lower the expected utility of the list",
    "value": "one more item would cost more than its expected value",
    "guarantee": "the guarantee allows no more",
    "threshold": "the next item scores below the threshold",
    "no_candidate_above_boundary": "no item scores above this user's boundary",
    "no_candidates": "no candidates are left",
    "unknown_user": "unknown user",
    "fallback": "this user has no list, so the most popular items are shown",
    "below_floor": "even the best list has too low an expected utility",
    "all_candidates": "all candidates that the stopping rule considered are in the list",
}
REASONS = tuple(REASON_TEXT)  # the code of a reason is its position
REASON_CODE = {reason: code for code, reason in enumerate(REASONS)}


def reason_names(codes: Codes | None, n_lists: int) -> pl.Series:
    """(n_lists,) names of the reasons; nulls if lists have none."""
    if codes is None:
        return pl.Series([None] * n_lists, dtype=pl.String)
    return pl.Series(REASONS).gather(pl.Series(codes.astype(np.uint32)))


def parse_reasons(frame: pl.DataFrame) -> Codes | None:
    """Codes of the column `reason`; None if the column is absent or has nulls."""
    if "reason" not in frame.columns or frame["reason"].null_count():
        return None
    names = frame["reason"].to_list()
    unknown = sorted(set(names) - set(REASONS))
    if unknown:
        raise DataError(
            f"reason must be one of {', '.join(REASONS)}, got {unknown[0]!r}; correct the column."
        )
    return np.array([REASON_CODE[name] for name in names], np.uint8)


@dataclass(frozen=True, eq=False)
class RankedLists:
    """The lists of many users, of different lengths; empty lists are included.

    Parameters
    ----------
    users
        User ids; list number i belongs to the user at position i.
    item_ids
        Item ids, in the order of the dense indices.
    indptr
        (n_lists + 1,) start of each list.
    items
        (n_shown,) dense item indices, best first within a list.
    scores
        (n_shown,) score of each item.
    probabilities
        (n_shown,) probability that each item is relevant.
    boundary
        (n_lists,) score at which each list ends, NaN for none.
    reason
        (n_lists,) why each list ends, as positions in `REASONS`.
    expected_sizes
        (n_lists,) predicted number of relevant items, such as the size of the next basket.
    item_names
        (n_items,) display names, in the order of `item_ids`.
    propensities
        (n_shown,) probability that the item was shown: 1, or less for items that were added to explore.
    source
        Fingerprint of the model that made the lists; None for lists from elsewhere.
    origin
        The interactions that the model had learned from when it made the lists. It is not written to files.

    Raises
    ------
    DataError
        If the sizes of the arrays do not fit.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"user_id": [1, 1, 2], "item_id": ["a", "b", None], "rank": [1, 2, 0]})
    >>> lists = sl.RankedLists.from_frame(table)
    >>> lists.lengths.tolist()
    [2, 0]
    """

    users: IdMap
    item_ids: IdMap
    indptr: Longs
    items: Ints
    scores: Floats
    probabilities: Doubles | None = None
    boundary: Floats | None = None
    reason: Codes | None = None
    expected_sizes: Doubles | None = None
    item_names: pl.Series | None = None
    propensities: Doubles | None = None
    source: str | None = None
    origin: Interactions | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"origin": None}  # a copy for another process must not carry all interactions

    def __post_init__(self) -> None:
        n, n_items = len(self.users), len(self.item_ids)
        shown = int(self.indptr[-1]) if self.indptr.size else -1
        sizes = {
            "indptr": (self.indptr.size, n + 1),
            "items": (self.items.size, shown),
            "scores": (self.scores.size, shown),
            "probabilities": (shown if self.probabilities is None else self.probabilities.size, shown),
            "propensities": (shown if self.propensities is None else self.propensities.size, shown),
            "boundary": (n if self.boundary is None else self.boundary.size, n),
            "reason": (n if self.reason is None else self.reason.size, n),
            "expected_sizes": (n if self.expected_sizes is None else self.expected_sizes.size, n),
            "item_names": (n_items if self.item_names is None else len(self.item_names), n_items),
        }
        for name, (got, expected) in sizes.items():
            if got != expected:
                raise DataError(
                    f"{name} must have {expected} values, got {got}; pass arrays of matching sizes."
                )

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return (
            f"RankedLists({len(self):,} lists, {self.items.size:,} items, {self.cover_ratio:.0%} not empty)"
        )

    def _repr_html_(self) -> str:
        table = self[:5].to_frame(names=True).filter(pl.col("rank") <= 5)
        return html_table(repr(self), table, max(self.items.size, len(self)))

    @property
    def lengths(self) -> Ints:
        """(n_lists,) length of each list."""
        return np.diff(self.indptr).astype(np.int32)

    @property
    def cover_ratio(self) -> float:
        """Fraction of lists with at least one item."""
        return float((self.lengths > 0).mean()) if len(self) else 0.0

    @property
    def positions(self) -> Ints:
        """(n_shown,) position of each item within its list, from 0."""
        first = np.repeat(self.indptr[:-1], np.diff(self.indptr))
        return (np.arange(self.items.size) - first).astype(np.int32)

    @property
    def explored(self) -> Bools:
        """(n_lists,) whether items were added to the list to explore."""
        if self.propensities is None:
            return np.zeros(len(self), np.bool_)
        added = np.concatenate([[0], np.cumsum(self.propensities < 1)])
        return np.diff(added[self.indptr]) > 0

    def reason_of(self, number: int) -> str | None:
        """Return why a list ends.

        Parameters
        ----------
        number
            Position of the user in `users`.
        """
        return None if self.reason is None else REASONS[int(self.reason[number])]

    def at(self, number: int) -> RankedList:
        """Return list number `number`.

        Parameters
        ----------
        number
            Position of the user in `users`.
        """
        part = slice(int(self.indptr[number]), int(self.indptr[number + 1]))
        bound = None if self.boundary is None else float(self.boundary[number])
        return RankedList(
            user_id=self.users.values[number],
            items=self.item_ids.to_ids(self.items[part]).to_list(),
            scores=self.scores[part],
            probabilities=None if self.probabilities is None else self.probabilities[part],
            boundary=None if bound is None or np.isnan(bound) else bound,
            reason=self.reason_of(number),
        )

    @overload
    def __getitem__(self, user_id: slice) -> Self: ...
    @overload
    def __getitem__(self, user_id: Any) -> RankedList: ...
    def __getitem__(self, user_id: Any) -> RankedList | Self:
        """Return the list of a user id, or the lists of a slice of list numbers."""
        if isinstance(user_id, slice):
            return self.take(np.arange(len(self))[user_id])
        return self.at(self.users.index(user_id, "user id"))

    def __iter__(self) -> Iterator[RankedList]:
        return (self.at(number) for number in range(len(self)))

    def take(self, numbers: npt.ArrayLike) -> Self:
        """Return the lists at these numbers, in this order.

        Parameters
        ----------
        numbers
            Positions in `users`.
        """
        index = np.asarray(numbers, np.int64)
        indptr, rows = take_rows(self.indptr, index)
        return replace(
            self,
            users=IdMap(self.users.to_ids(index)),
            indptr=indptr,
            items=self.items[rows],
            scores=self.scores[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            propensities=None if self.propensities is None else self.propensities[rows],
            boundary=None if self.boundary is None else self.boundary[index],
            reason=None if self.reason is None else self.reason[index],
            expected_sizes=None if self.expected_sizes is None else self.expected_sizes[index],
        )

    def head(self, lengths: npt.ArrayLike, reason: Codes | None = None) -> Self:
        """Return the first items of each list.

        Parameters
        ----------
        lengths
            (n_lists,) maximum length of each list, or one number for all.
        reason
            (n_lists,) new reasons, as positions in `REASONS`. None keeps the old ones.

        Raises
        ------
        DataError
            If `lengths` is neither a number nor an array of one number per list.
        """
        limit = np.asarray(lengths, np.int64)
        if limit.ndim and limit.shape != (len(self),):
            raise DataError(
                f"lengths must be one number or one per list ({len(self)}), got shape {limit.shape}; "
                "pass one of these."
            )
        limit = np.broadcast_to(limit, (len(self),))
        kept = np.minimum(np.maximum(limit, 0), np.diff(self.indptr))
        rows = self.positions < np.repeat(kept, np.diff(self.indptr))
        return replace(
            self,
            indptr=starts(kept),
            items=self.items[rows],
            scores=self.scores[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            propensities=None if self.propensities is None else self.propensities[rows],
            reason=self.reason if reason is None else reason,
        )

    def to_frame(self, *, names: bool = False) -> pl.DataFrame:
        """Return a polars table with one row per item; an empty list is one row of rank 0 without an item.

        Parameters
        ----------
        names
            Whether to add the column item_name, if item names are known.

        Returns
        -------
        Columns user_id, rank, item_id, score, probability, length, boundary, reason[, propensity, item_name].
        """
        return build_frame(self, names)

    def to_pandas(self, *, names: bool = False) -> "pandas.DataFrame":
        """Return `to_frame` as a pandas table; needs pandas and pyarrow.

        Parameters
        ----------
        names
            As in `to_frame`.
        """
        return to_pandas(self.to_frame(names=names))

    def summary(self) -> pl.DataFrame:
        """Return a polars table with one row per list: user_id, length, boundary, reason."""
        boundary = np.full(len(self), np.nan, np.float32) if self.boundary is None else self.boundary
        return pl.DataFrame(
            {
                "user_id": self.users.values,
                "length": self.lengths,
                "boundary": pl.Series(boundary).fill_nan(None),
                "reason": reason_names(self.reason, len(self)),
            }
        )

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, item_ids: IdMap | None = None) -> Self:
        """Build from a table with columns user_id, item_id, and optionally rank, score and others.

        Parameters
        ----------
        frame
            One row per item, as `to_frame` returns. Lists are sorted by rank, else by descending score, else
            kept as they are. Users keep the order of their first rows. A row without item is an empty list.
        item_ids
            Item ids of the dense indices. None uses the sorted ids of the table.

        Raises
        ------
        DataError
            If a column is missing, a value is invalid, or a list contains an item twice.

        Examples
        --------
        >>> import polars as pl
        >>> table = pl.DataFrame({"user_id": [1, 1], "item_id": ["a", "b"], "score": [0.2, 0.9]})
        >>> sl.RankedLists.from_frame(table)[1].items
        ['b', 'a']
        """
        found = parse_lists(frame, item_ids)
        return cls(
            users=found.users,
            item_ids=found.item_ids,
            indptr=found.indptr,
            items=found.items,
            scores=scores_of(found.shown, found.indptr),
            probabilities=numeric_column(found.shown, "probability", np.float64),
            propensities=numeric_column(found.shown, "propensity", np.float64),
            boundary=numeric_column(found.first, "boundary", np.float32),
            reason=parse_reasons(found.first),
        )

    def write(self, path: str | Path) -> Path:
        """Write the lists to a file in one atomic step.

        Parameters
        ----------
        path
            File that ends in .parquet, .csv or .jsonl.

        Returns
        -------
        The path.

        Raises
        ------
        DataError
            If the extension is unknown, or the file cannot be written.
        """
        target = Path(path)
        if target.suffix not in FORMATS:
            raise DataError(
                f"a file of lists must end in {', '.join(FORMATS)}, got {target.name!r}; choose one of these."
            )
        frame = self.to_frame()
        writers: tuple[Any, ...] = (frame.write_parquet, frame.write_csv, frame.write_ndjson)
        with atomic_write(target) as temporary:
            writers[FORMATS.index(target.suffix)](temporary)
        return target

    @classmethod
    def read(cls, path: str | Path, item_ids: IdMap | None = None) -> Self:
        """Read a file that `write` wrote, or any table with the same columns.

        Parameters
        ----------
        path
            File that ends in .parquet, .csv or .jsonl.
        item_ids
            Item ids of the dense indices. None uses the sorted ids of the file.

        Raises
        ------
        DataError
            If the file cannot be read as lists.
        """
        return cls.from_frame(read_table(Path(path), item_ids), item_ids)


def find_propensities(lists: RankedLists, shown: RankedLists) -> Doubles:
    """(n_candidates,) probability with which each item of `lists` was shown to its user; 0 if it was not."""
    if not isinstance(shown, RankedLists):
        raise DataError(
            f"shown must be the RankedLists that users saw, got {type(shown).__name__}; pass the lists from "
            "recommend, or RankedLists.from_frame(table)."
        )
    user, item = shown.users.align(lists.users), shown.item_ids.align(lists.item_ids)
    n_items = max(len(shown.item_ids), 1)
    owner = np.repeat(np.arange(len(shown), dtype=np.int64), np.diff(shown.indptr))
    seen = owner * n_items + shown.items
    order = np.argsort(seen)
    rows = np.repeat(user.astype(np.int64), np.diff(lists.indptr))
    columns = item[lists.items].astype(np.int64)
    keys = np.where((rows == UNKNOWN) | (columns == UNKNOWN), -1, rows * n_items + columns)
    at = np.minimum(np.searchsorted(seen, keys, sorter=order), max(seen.size - 1, 0))
    propensity = np.ones(seen.size) if shown.propensities is None else shown.propensities
    if not seen.size:
        return np.zeros(keys.size)
    found = order[at]
    return np.where(seen[found] == keys, propensity[found], 0.0)
