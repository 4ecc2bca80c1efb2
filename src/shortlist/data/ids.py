"""IdMap: the ids of users or items, and their dense indices."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from threading import Lock
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.threads import run_each
from shortlist.errors import DataError, UnknownIdError
from shortlist.kernels.rows import look_up_codes, mark_present
from shortlist.types import Ints, Longs

UNKNOWN = -1
MAX_CHUNKS = 64  # parts of a series that was extended, before it is copied into one
_EXTENDING = Lock()


@dataclass(frozen=True, eq=False)
class IdMap:
    """A two-way map between ids and dense indices; the index of an id is its position in `values`.

    Parameters
    ----------
    values
        Distinct ids, strings or integers. `IdMap.of` accepts any iterable and checks that ids are distinct.

    Examples
    --------
    >>> ids = sl.IdMap.of(["ann", "bob"])
    >>> ids.index("bob")
    1
    >>> ids.lookup(["bob", "eve"]).tolist()
    [1, -1]
    """

    values: pl.Series  # (n,)

    def __post_init__(self) -> None:
        if self.values.dtype != pl.String and not self.values.dtype.is_integer():
            raise DataError(f"ids must be strings or integers, got {self.values.dtype}; cast the column.")

    @classmethod
    def of(cls, ids: Iterable[Any]) -> Self:
        """Build a map that keeps the order of `ids`.

        Parameters
        ----------
        ids
            Strings or integers, each at most once.

        Raises
        ------
        DataError
            If an id repeats, or ids are neither strings nor integers.

        Examples
        --------
        >>> len(sl.IdMap.of([7, 3, 5]))
        3
        """
        series = id_series(ids)
        if series.n_unique() != len(series):
            raise DataError("ids must be distinct, got a repeated one; remove it.")
        return cls(series)

    def __len__(self) -> int:
        return self.size

    @cached_property
    def size(self) -> int:
        """Number of ids."""
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and self.values.equals(other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(value)[:40] for value in self.values.head(3).to_list())
        return f"IdMap({len(self):,} ids: {shown}{', …' if len(self) > 3 else ''})"

    def __contains__(self, value: object) -> bool:
        return self.positions.get(value, len(self)) < len(self)

    @cached_property
    def positions(self) -> dict[Any, int]:
        """Id → dense index; shared with longer maps, so indices of len(self) or more mean unknown."""
        return {value: index for index, value in enumerate(self.values.to_list())}

    def lookup(self, ids: Iterable[Any], kind: str = "id") -> Ints:
        """Return the dense index of each id.

        Parameters
        ----------
        ids
            Ids in any order, known or not.
        kind
            What the ids are called in messages, such as "user id".

        Returns
        -------
        (n,) indices, -1 for an unknown id.

        Raises
        ------
        UnknownIdError
            If an id is an integer and these are strings, or the reverse.

        Examples
        --------
        >>> sl.IdMap.of([7, 3]).lookup([3, 4]).tolist()
        [1, -1]
        """
        if not isinstance(ids, (pl.Series, np.ndarray)):
            ids = list(ids)
        if len(ids) > 1000:  # a dictionary answers faster, but takes longer to build than a join
            series = id_series(ids)
            self.check_type(series[0], kind)
            if not len(self):
                return np.full(len(series), UNKNOWN, np.int32)
            table = pl.DataFrame({"id": self.values, "at": np.arange(len(self), dtype=np.int32)})
            if series.dtype != self.values.dtype:
                series = series.cast(self.values.dtype, strict=False)
            joined = series.to_frame("id").join(table, on="id", how="left", maintain_order="left")
            return joined["at"].fill_null(UNKNOWN).to_numpy().astype(np.int32)
        values = ids.to_list() if isinstance(ids, pl.Series) else ids
        positions = self.positions
        if not set(map(type, values)) <= {str if self.kind == "string" else int}:  # also NumPy scalars
            for value in values:
                self.check_type(value, kind)
        index = np.array([positions.get(_plain(value), UNKNOWN) for value in values], np.int32)
        return np.where(index < len(self), index, np.int32(UNKNOWN))

    def check_type(self, value: Any, kind: str = "id") -> None:
        """Raise UnknownIdError if a value cannot be one of these ids because of its type.

        Parameters
        ----------
        value
            Any value.
        kind
            As in `lookup`.
        """
        if not len(self) or id_kind(value) == self.kind:
            return
        types = "strings" if self.kind == "string" else "integers"
        raise UnknownIdError(f"{kind}s are {types}, got {_describe(value)}; {self._advice(value)}.")

    @cached_property
    def kind(self) -> str:
        """The type of the ids: "string" or "integer"."""
        return "string" if self.values.dtype == pl.String else "integer"

    def _advice(self, value: Any) -> str:
        if self.kind == "string" and id_kind(value) == "integer":
            return f"pass {str(value)!r}"
        if self.kind == "integer" and isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
            return f"pass {int(value)}"
        return f"pass {'a string' if self.kind == 'string' else 'an integer'}, such as {self.values[0]!r:.60}"

    def align(self, other: "IdMap") -> Ints:
        """Return the index in this map of each id of another map.

        Parameters
        ----------
        other
            The map to look up.

        Returns
        -------
        (len(other),) indices, -1 for unknown ids.
        """
        if other is self or (len(other) == len(self) and other == self):
            return np.arange(len(self), dtype=np.int32)
        if other.kind != self.kind:
            return np.full(len(other), UNKNOWN, np.int32)
        return self.lookup(other.values)

    def index(self, value: Any, kind: str = "id") -> int:
        """Return the dense index of one id.

        Parameters
        ----------
        value
            A known id.
        kind
            As in `lookup`.

        Raises
        ------
        UnknownIdError
            If the id is unknown; the message names similar ids.

        Examples
        --------
        >>> sl.IdMap.of(["ann", "bob"]).index("ann")
        0
        """
        self.check_type(value, kind)
        position = self.positions.get(_plain(value), len(self))
        if position < len(self):
            return position
        hint = f"none of the {len(self):,} known ids is similar."
        if self.kind == "string":
            near = get_close_matches(str(value), self.values.head(100_000).to_list(), n=3)
            hint = f"did you mean {', '.join(map(repr, near))}?" if near else hint
        raise UnknownIdError(f"unknown {kind} {repr(value)[:80]}; {hint}")

    def to_ids(self, indices: Ints | Longs) -> pl.Series:
        """Return the ids at dense indices.

        Parameters
        ----------
        indices
            Dense indices.

        Examples
        --------
        >>> sl.IdMap.of(["ann", "bob"]).to_ids([1, 0]).to_list()
        ['bob', 'ann']
        """
        return self.values.gather(pl.Series(indices))

    def union(self, ids: Iterable[Any]) -> "IdMap":
        """Return a map with these ids, followed by the new ones in sorted order; known ids keep their index.

        Parameters
        ----------
        ids
            Ids to add; known ones are ignored.

        Raises
        ------
        DataError
            If the new ids are strings and the known ones integers, or the reverse.

        Examples
        --------
        >>> sl.IdMap.of(["m", "a"]).union(["z", "a", "b"]).values.to_list()
        ['m', 'a', 'b', 'z']
        """
        more = id_series(ids).unique()
        if len(more) == 0:
            return self
        self.check_new(more)
        new = more.filter(pl.Series(self.lookup(more) == UNKNOWN)).sort()
        return IdMap(pl.concat([self.values, new.cast(self.values.dtype)])) if len(new) else self

    def check_new(self, ids: pl.Series) -> None:
        """Raise DataError if the ids are strings and the known ones integers, or the reverse.

        Parameters
        ----------
        ids
            New ids.
        """
        if ids.dtype.is_integer() != self.values.dtype.is_integer():
            raise DataError(
                f"new ids must have the type of the known ones ({self.values.dtype}), got {ids.dtype}; "
                "cast them."
            )

    def extend(self, new: pl.Series) -> "IdMap":
        """Return a map with these ids, followed by new ones, in time proportional to the new ones.

        Parameters
        ----------
        new
            Distinct unknown ids, in the order of their indices.
        """
        if not len(new):
            return self
        self.check_new(new)
        n, added = len(self), new.cast(self.values.dtype)
        with _EXTENDING:
            positions = self.positions
            if len(positions) > n:  # another map was extended from this one: the dictionary is its own
                positions = {value: index for index, value in enumerate(self.values.to_list())}
            positions.update(zip(added.to_list(), range(n, n + len(added)), strict=True))
        values = pl.concat([self.values, added], rechunk=False)
        extended = IdMap(values.rechunk() if values.n_chunks() > MAX_CHUNKS else values)
        vars(extended)["positions"] = positions
        return extended

    def __getstate__(self) -> dict[str, Any]:
        return {"values": self.values}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def id_kind(value: Any) -> str | None:
    """The type of an id, "string" or "integer"; None if the value cannot be an id."""
    if isinstance(value, str):
        return "string"
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return "integer" if is_integer else None


def _describe(value: Any) -> str:
    """A value with its type, for messages."""
    kind = {"string": "the string", "integer": "the integer"}.get(
        id_kind(value) or "", f"a {type(value).__name__},"
    )
    return f"{kind} {str(value) if id_kind(value) == 'integer' else repr(_plain(value))[:60]}"


def _plain(value: Any) -> Any:
    """A NumPy scalar as a Python value."""
    return value.item() if isinstance(value, np.generic) else value


def is_id_list(value: Any) -> bool:
    """Whether a value may be a collection of ids: not a text, one value, a dictionary or a table."""
    if isinstance(value, (str, bytes, Mapping)) or type(value).__name__ == "DataFrame":
        return False
    return isinstance(value, Iterable) and not (isinstance(value, np.ndarray) and value.ndim != 1)


def id_series(ids: Iterable[Any]) -> pl.Series:
    """Ids as a series of strings or integers without nulls; categories become strings."""
    series = _as_series(ids)
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if len(series) == 0 and series.dtype == pl.Null:
        series = series.cast(pl.Int64)
    if series.dtype != pl.String and not series.dtype.is_integer():
        raise DataError(f"ids must be strings or integers, got {str(series.dtype)[:60]}; cast the column.")
    if series.null_count():
        raise DataError("an id must be a string or an integer, got null; remove it.")
    return series


def _as_series(ids: Iterable[Any]) -> pl.Series:
    """Ids as a series; a list of several types is refused, because 1, True and "1" would become equal."""
    if isinstance(ids, pl.Series):
        return ids
    if not is_id_list(ids):
        raise DataError(
            f"ids must be a list of strings or integers, got a {type(ids).__name__}; pass a list."
        )
    values = ids if isinstance(ids, np.ndarray) else list(ids)
    if isinstance(values, list) or values.dtype == object:
        kind = id_kind(values[0]) if len(values) else None
        for row, value in enumerate(values, start=1):
            if kind is None or id_kind(value) != kind:
                raise DataError(
                    f"row {row}: ids must be strings or integers, all of one type, got "
                    f"{type(value).__name__} {repr(value)[:60]}; cast them."
                )
    try:
        return pl.Series(values)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise DataError("ids must be strings or integers below 2**64; cast them.") from None


# A lookup table over the whole range encodes integers fastest, if it has at most this many entries per row.
MAX_SPREAD = 8


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
