"""Ranked lists of users: built, read from files, shown and written; candidates of any ranker."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.charts import Figure, length_chart
from shortlist.core.files import atomic_write
from shortlist.core.options import Count, check_value
from shortlist.core.ragged import Ragged, row_lengths
from shortlist.core.tables import html
from shortlist.data.columns import (
    REQUIRED,
    DataSource,
    find_column,
    match_columns,
    plain_name,
    to_polars,
)
from shortlist.data.files import (
    check_converted,
    detect_format,
    read_plain_table,
)
from shortlist.data.ids import IdMap, encode, id_series
from shortlist.data.interactions import Interactions
from shortlist.data.items import ItemGroups, check_group_limits, skip_items
from shortlist.data.read_options import ColumnNames, without_options
from shortlist.errors import DataError
from shortlist.kernels.rows import find_repeated_item, starts
from shortlist.types import Doubles, Floats, Ints, Longs


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

    def _repr_html_(self) -> str:
        columns: dict[str, Iterable[Any]] = {"rank": range(1, len(self) + 1), "item": map(str, self.items)}
        if self.probabilities is not None:
            columns |= {"probability": (f"{value:.1%}" for value in self.probabilities)}
        else:
            columns |= {"score": map(float, self.scores)}
        table = pl.DataFrame({name: list(values) for name, values in columns.items()})
        end = "" if self.reason is None else f"; it ends because {REASON_TEXT[self.reason]}"
        return html(table, f"{len(self)} items for user {self.user_id}{end}")


Codes: TypeAlias = npt.NDArray[np.uint8]
NUMBERS = ("rank", "score", "probability", "boundary")
IDS_ONLY = ColumnNames(timestamp="", weight="", basket_id="", item_name="")
FORMATS = (".parquet", ".csv", ".jsonl")

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
    "all_candidates": "all candidates that the cutoff considered are in the list",
    "below_price": "the next item is worth less than items that others are shown instead",
    "item_limit": "the next item is shown to as many users as its limit allows",
    "group_limit": "the list has as many items of the next item's group as the limit allows",
    "contact_limit": "as many users as the limit allows are worth more",
    "contact_cost": "the list would earn less than the contact costs",
    "size_limit": "more items would exceed the size that a list may have",
    "none_relevant": "probably no candidate is relevant",
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
    codes = frame["reason"].cast(pl.String).replace_strict(REASON_CODE, default=None, return_dtype=pl.UInt8)
    if codes.null_count():
        unknown = frame["reason"].filter(codes.is_null())[0]
        raise DataError(f"reason must be one of {', '.join(REASONS)}, got {unknown!r}; correct the column.")
    return codes.to_numpy().copy()


@dataclass(frozen=True, eq=False)
class RankedLists(Ragged):
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
    source
        Fingerprint of the model that made the lists; None for lists from elsewhere.
    origin
        The interactions that the model had learned from when it made the lists. It is not written to files.
    sizes
        (n_shown,) size of each item, such as the tokens of a passage; see `with_sizes`. It is not written to
        files.

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

    per_element: ClassVar[tuple[str, ...]] = ("items", "scores", "probabilities", "sizes")
    per_row: ClassVar[tuple[str, ...]] = ("boundary", "reason", "expected_sizes")

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
    source: str | None = None
    origin: Interactions | None = None
    sizes: Doubles | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"origin": None}  # a copy for another process must not carry all interactions

    def __post_init__(self) -> None:
        shown, n_lists = int(self.indptr[-1]) if self.indptr.size else -1, len(self.users)
        groups = ((self.per_element, shown), (self.per_row, n_lists), (("indptr",), n_lists + 1))
        for names, expected in (*groups, (("item_names",), len(self.item_ids))):
            for name in names:
                values = getattr(self, name)
                got = expected if values is None else len(values)
                if got != expected:
                    raise DataError(
                        f"{name} must have {expected} values, got {got}; pass arrays of matching sizes."
                    )

    def __repr__(self) -> str:
        return (
            f"RankedLists({len(self):,} lists, {self.items.size:,} items, {self.cover_ratio:.0%} not empty)"
        )

    def _repr_html_(self) -> str:
        table = self[:5].to_frame(names=True).filter(pl.col("rank") <= 5)
        return html(table, repr(self), max(self.items.size, len(self)))

    def plot(self, *, longest: int = 20) -> Figure:
        """Draw how many users have a list of 0, 1, 2 … items.

        Parameters
        ----------
        longest
            Longer lists share the last bar.

        Returns
        -------
        Figure
            Notebooks show it; `save` writes it as SVG.

        Examples
        --------
        >>> sl.Popularity().fit(sl.load_dataset("sample")).recommend(N=5).plot()
        Figure('List lengths of 300 users')
        """
        check_value(Count, longest=longest)
        last = min(longest, int(self.lengths.max(initial=1)))
        counts = np.bincount(np.minimum(self.lengths, last + 1), minlength=last + 2).tolist()
        title = f"List lengths of {len(self):,} users"
        return Figure(title, length_chart(title, counts, 0))

    @property
    def cover_ratio(self) -> float:
        """Fraction of lists with at least one item."""
        return float((self.lengths > 0).mean()) if len(self) else 0.0

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
        shown = slice(int(self.indptr[number]), int(self.indptr[number + 1]))
        bound = None if self.boundary is None else float(self.boundary[number])
        return RankedList(
            user_id=self.users.values[number],
            items=self.item_ids.to_ids(self.items[shown]).to_list(),
            scores=self.scores[shown],
            probabilities=None if self.probabilities is None else self.probabilities[shown],
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
        return replace(self, users=IdMap(self.users.to_ids(index)), **self._at_rows(index))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return the lists of all parts; a column that only some parts have is NaN in the others.

        Parameters
        ----------
        parts
            At least one; items and names are those of the first.
        """
        if len(parts) == 1:
            return parts[0]
        users = IdMap(pl.concat([part.users.values for part in parts]))
        return replace(parts[0], users=users, **cls._joined(parts))

    def reorder(self, order: Longs) -> Self:
        """Return lists of the same lengths with their items in another order.

        Parameters
        ----------
        order
            (n_shown,) where each item was; every list keeps its items.
        """
        return self.with_columns(**self._select(self.per_element, order))

    def with_columns(self, **columns: Any) -> Self:
        """Return lists with other arrays of the same sizes; unlike `dataclasses.replace` it checks nothing.

        Parameters
        ----------
        **columns
            New arrays by name.
        """
        changed = object.__new__(type(self))
        vars(changed).update(vars(self) | columns)
        return changed

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
        lengths = np.minimum(np.maximum(limit, 0), self.lengths)
        rows = self.positions < np.repeat(lengths, self.lengths)
        reason = self.reason if reason is None else reason
        return replace(self, indptr=starts(lengths), reason=reason, **self._select(self.per_element, rows))

    def limit_groups(self, max_per_group: Mapping[str, int], items: Any) -> Self:
        """Return the lists without items beyond the limits of their groups; nothing else changes.

        Apply it between ranking and cutting: a skipped item does not take a place.

        Parameters
        ----------
        max_per_group
            Field of `items` → how many items of one group a list may contain, such as {"category": 2}. Items
            without a value belong to no group.
        items
            `Items`, or a table with one row per item.

        Raises
        ------
        ConfigError
            If a limit or a field is invalid.

        Examples
        --------
        >>> import polars as pl
        >>> table = pl.DataFrame({"user_id": [1, 1, 1], "item_id": ["a", "b", "c"], "rank": [1, 2, 3]})
        >>> items = pl.DataFrame({"item_id": ["a", "b", "c"], "family": ["x", "x", "y"]})
        >>> sl.RankedLists.from_frame(table).limit_groups({"family": 1}, items)[1].items
        ['a', 'c']
        """
        fields = check_group_limits(max_per_group)
        limits = ItemGroups.of(items, self.item_ids, list(fields)).limits(fields)
        rows, lengths = skip_items(self.indptr, self.items, limits)
        return replace(self, indptr=starts(lengths), **self._select(self.per_element, rows))

    def with_sizes(self, sizes: Mapping[Any, float]) -> Self:
        """Return the lists with the size of each item, for cutoffs that limit the size of a list.

        Parameters
        ----------
        sizes
            Item id → size of the item, such as the tokens of a passage.

        Raises
        ------
        DataError
            If an item has no size, or a size is not a positive number.

        Examples
        --------
        >>> import polars as pl
        >>> table = pl.DataFrame({"query_id": [1, 1], "doc_id": ["a", "b"], "rank": [1, 2]})
        >>> sl.RankedLists.from_frame(table).with_sizes({"a": 120, "b": 80}).sizes.tolist()
        [120.0, 80.0]
        """
        of_item = np.full(len(self.item_ids), np.nan)
        row = self.item_ids.lookup(list(sizes))
        values = np.array(list(sizes.values()), np.float64)
        of_item[row[row >= 0]] = values[row >= 0]
        shown = of_item[self.items]
        wrong = np.flatnonzero(~((shown > 0) & (shown < np.inf)))
        if wrong.size:
            item = self.item_ids.values[int(self.items[wrong[0]])]
            raise DataError(
                f"sizes must be positive numbers for all candidates, got {shown[wrong[0]]:g} for item "
                f"{item!r:.60}; correct it."
            )
        return replace(self, sizes=shown)

    def to_frame(self, *, names: bool = False) -> pl.DataFrame:
        """Return a polars table with one row per item; an empty list is one row of rank 0 without an item.

        Parameters
        ----------
        names
            Whether to add the column item_name, if item names are known.

        Returns
        -------
        Columns user_id, rank, item_id, score, probability, length, boundary, reason[, item_name].
        """
        lengths = self.lengths
        n_rows = np.maximum(lengths, 1)
        number = np.repeat(np.arange(len(self)), n_rows)
        filled = np.repeat(lengths > 0, n_rows)
        rank = np.zeros(number.size, np.int32)
        rank[filled] = self.positions + 1
        at = np.full(number.size, -1, np.int64)
        at[filled] = np.arange(self.items.size)
        place = pl.Series(at).replace(-1, None)

        def shown(values: pl.Series) -> pl.Series:
            return values.gather(place)

        probability = np.full(self.items.size, np.nan) if self.probabilities is None else self.probabilities
        per_list = self.summary()[pl.Series(number)]
        columns: dict[str, Any] = {
            "user_id": per_list["user_id"],
            "rank": rank,
            "item_id": shown(self.item_ids.to_ids(self.items)),
            "score": shown(pl.Series(self.scores)),
            "probability": shown(pl.Series(probability).fill_nan(None)),
            "length": per_list["length"],
            "boundary": per_list["boundary"],
            "reason": per_list["reason"],
        }
        if names and self.item_names is not None:
            columns["item_name"] = shown(self.item_names.gather(pl.Series(self.items)))
        return pl.DataFrame(columns)

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
    @without_options()
    def from_frame(cls, frame: Any, item_ids: IdMap | None = None) -> Self:
        """Build from a table with columns user_id, item_id, and optionally rank, score and others.

        Parameters
        ----------
        frame
            A polars (also lazy), pandas or Arrow table with one row per item, as `to_frame` returns. Columns
            may have common aliases, such as query_id, doc_id and relevance. Lists are sorted by rank, else by
            descending score, else kept as they are. Users keep the order of their first rows. A row without
            item is an empty list.
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
        frame = name_columns(collect_table(frame))
        match_columns(frame.columns, IDS_ONLY)  # DataError if a column is missing
        user_id = frame["user_id"]
        if user_id.null_count() or (user_id.dtype == pl.String and (user_id == "").any()):
            raise DataError(
                "user_id must be filled in every row of a list table, got a null; drop those rows."
            )
        frame = frame.with_columns(_parse_numbers(frame, name) for name in NUMBERS if name in frame.columns)
        users, number = _encode_in_order(user_id)
        frame, number = _sort_lists(frame, number)
        first = frame[pl.Series(np.searchsorted(number, np.arange(len(users))))]  # of each list
        filled = frame["item_id"].is_not_null()
        shown, number = frame.filter(filled), number[filled.to_numpy()]
        item_ids, items = _encode_items(shown["item_id"], item_ids)
        indptr = starts(np.bincount(number, minlength=len(users)))
        repeated = find_repeated_item(indptr, items, np.full(len(item_ids), -1, np.int32))
        if repeated >= 0:
            raise DataError(
                f"a list must not contain an item twice, got {shown['item_id'][repeated]!r} twice for user "
                f"{shown['user_id'][repeated]!r}; drop the duplicate."
            )
        return cls(
            users=users,
            item_ids=item_ids,
            indptr=indptr,
            items=items,
            scores=_parse_scores(shown, indptr),
            probabilities=_parse_optional(shown, "probability", np.float64),
            boundary=_parse_optional(first, "boundary", np.float32),
            reason=parse_reasons(first),
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


# Of lists of other libraries, compared as those of the readers: RePlay, ranx, TREC and search engines.
LIST_ALIASES = {
    "user_id": "useridx queryid qid query topicid topic",
    "item_id": "itemidx docid docno documentid document doc passageid passage pid corpusid",
    "rank": "ranking position",
    "score": "scores relevance rating prediction predictions predicted pred similarity",
}


def collect_table(frame: Any) -> pl.DataFrame:
    """Any table as a polars table; item ids that pandas made floats, as some are missing, become integers."""
    table = to_polars(frame, "lists")
    name = find_list_column("item_id", table.columns)
    if name is not None and table[name].dtype.is_float():
        ids = table[name].fill_nan(None)
        whole = ids.cast(pl.Int64, strict=False)
        if whole.cast(pl.Float64).eq_missing(ids.cast(pl.Float64)).all():
            table = table.with_columns(whole)
    return table


def find_list_column(role: str, names: list[str]) -> str | None:
    """The column of a list table with this role, by the names of the readers or of other libraries."""
    column = find_column(role, names) if role in REQUIRED else role if role in names else None
    if column is not None:
        return column
    aliases = LIST_ALIASES[role].split()
    return next((name for alias in aliases for name in names if plain_name(name) == alias), None)


def name_columns(frame: pl.DataFrame, roles: Iterable[str] = LIST_ALIASES) -> pl.DataFrame:
    """The table with conventional names of these roles: user, item, rank and score."""
    columns = {role: find_list_column(role, frame.columns) for role in roles}
    return frame.rename({name: role for role, name in columns.items() if name is not None and name != role})


def describe_columns(names: list[str]) -> str:
    """The columns of a list table in one line: those used, those not used, and what sorts the lists."""
    columns = {role: name for role in LIST_ALIASES if (name := find_list_column(role, names)) is not None}
    roles = match_columns(names, IDS_ONLY._replace(**{role: columns.get(role) for role in REQUIRED}))
    used = {*columns.values(), *NUMBERS, "reason", "length"}
    unused = tuple(name for name in names if name not in used)
    key = columns.get("rank", columns.get("score"))
    order = "in the order of the rows" if key is None else f"sorted by {key}"
    return f"{DataSource('lists', roles, unused).describe()}; {order}"


def _parse_numbers(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column as numbers; text is converted."""
    column = frame[name]
    if column.dtype.is_float() or (column.dtype.is_integer() and column.dtype != pl.Int128):
        return column
    try:
        numbers = column.cast(pl.Float64, strict=False)
    except pl.exceptions.PolarsError:
        numbers = pl.Series(name, [None] * len(column), dtype=pl.Float64)
    invalid = column.filter(numbers.is_null() & column.is_not_null())
    if len(invalid):
        got = repr(invalid.to_list()[0])[:60]
        raise DataError(f"{name} must be a number in a list table, got {got}; correct the column.")
    return numbers


def _encode_in_order(column: pl.Series) -> tuple[IdMap, Ints]:
    """A map of the distinct ids in the order of their first rows, and the dense index of every row."""
    ids, code = encode(column)
    if (code[1:] >= code[:-1]).all():
        return ids, code
    first = np.empty(len(ids), np.int64)
    first[code[::-1]] = np.arange(code.size)[::-1]  # the last write is the first row
    order = np.argsort(first)
    position = np.empty(len(ids), np.int32)
    position[order] = np.arange(len(ids), dtype=np.int32)
    return IdMap(ids.to_ids(order)), position[code]


def _sort_lists(frame: pl.DataFrame, number: Ints) -> tuple[pl.DataFrame, Ints]:
    """Rows sorted by user, then by rank or score; most tables are sorted already and are not copied."""
    key = next((name for name in ("rank", "score") if name in frame.columns), None)
    same, next_user = number[1:] == number[:-1], number[1:] > number[:-1]
    if key is not None and frame[key].null_count() == 0:
        values = frame[key].to_numpy()
        same &= values[1:] >= values[:-1] if key == "rank" else values[1:] <= values[:-1]
    elif key is not None:
        same[:] = False
    if (next_user | same).all():
        return frame, number
    frame = frame.with_columns(pl.Series("number", number))
    by = ["number"] if key is None else ["number", key]
    descending = [False] if key is None else [False, key == "score"]
    frame = frame.sort(by, descending=descending, nulls_last=True, maintain_order=True)
    return frame, frame["number"].to_numpy()


def _encode_items(column: pl.Series, item_ids: IdMap | None) -> tuple[IdMap, Ints]:
    """The item map and the dense index of every row."""
    if item_ids is None:
        return encode(id_series(column))
    items = item_ids.lookup(column)
    if (items < 0).any():
        unknown = column[int(np.argmax(items < 0))]
        raise DataError(
            f"lists must contain known items only, got {unknown!r}; pass the items they were built with."
        )
    return item_ids, items


def list_parts(folder: Path) -> list[Path]:
    """The Parquet files of a folder of lists, in their order."""
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise DataError(f"{folder} must hold Parquet files with lists, got none; check the path.")
    return paths


@without_options()
def read_table(source: Path, item_ids: IdMap | None) -> pl.DataFrame:
    """Read a file of lists; its name is never a pattern."""
    if not source.is_file():
        raise DataError(f"no file of lists at {source}; check the path.")
    if source.suffix not in FORMATS:
        advice = "rename it"
        if source.suffix == ".shortlist":
            advice = f"write the lists of this model first: shortlist recommend {source} --out lists.parquet"
        raise DataError(f"a file of lists must end in {', '.join(FORMATS)}, got {source.name!r}; {advice}.")
    try:
        frame = read_plain_table([source], detect_format([source]), _find_ids)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(
            f"{source} is not a readable {source.suffix} file ({str(error)[:150]}); write it again."
        ) from None
    if source.suffix == ".jsonl":
        check_converted([source], frame, _find_ids(frame.columns))  # 1 and "1" are different ids
    name = find_list_column("item_id", frame.columns)
    if name is not None and item_ids is not None and item_ids.kind == "string":
        frame = frame.with_columns(pl.col(name).cast(pl.String))  # numbers that are texts in other files
    return frame


def _find_ids(names: list[str]) -> list[str]:
    """The columns of users and items."""
    return [name for role in REQUIRED if (name := find_list_column(role, names)) is not None]


def _parse_scores(shown: pl.DataFrame, indptr: Longs) -> Floats:
    """The score column; without one, 0, -1, -2 … within each list, which gives the same order."""
    if "score" in shown.columns:
        return shown["score"].cast(pl.Float32).fill_null(np.nan).to_numpy()
    return (np.repeat(indptr[:-1], row_lengths(indptr)) - np.arange(len(shown))).astype(np.float32)


def _parse_optional(frame: pl.DataFrame, name: str, dtype: type) -> Any:
    """A numeric column with NaN for null, or None if it is absent or all null."""
    if name not in frame.columns or frame[name].null_count() == len(frame):
        return None
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(dtype)


def probabilities_of(lists: RankedLists) -> Doubles:
    """(n_candidates,) the probabilities of candidates that a cutoff has ranked."""
    assert lists.probabilities is not None
    return lists.probabilities


def rank_by_probability(lists: RankedLists, n_candidates: int) -> Longs | None:
    """(n_candidates,) the order in which no probability of a list rises; None if none does.

    Candidates after the first `n_candidates` of a list stay behind them, in their order.
    """
    p = lists.probabilities
    if p is None or not ((p[1:] > p[:-1]) & (lists.positions[1:] > 0)).any():
        return None
    is_later = lists.positions >= n_candidates
    return np.lexsort((np.where(is_later, 0.0, -p), is_later, lists.owner))
