"""Outside ids and dense indices: one table for users, one for items."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.threads import run_each
from shortlist.errors import DataError, UnknownIdError
from shortlist.kernels.group import codes_lookup, presence_mark
from shortlist.types import Ints, Longs

UNKNOWN = -1
# A table over the whole range of integer ids is the fastest encoder while it stays small beside the rows.
SPREAD = 8


@dataclass(frozen=True, eq=False)
class IdMap:
    """Position in `values` is the dense index; ids come out exactly as they went in."""

    values: pl.Series  # (n,) distinct, String or an integer type

    def __post_init__(self) -> None:
        if self.values.dtype != pl.String and not self.values.dtype.is_integer():
            raise DataError(
                f"ids must be strings or integers, got {self.values.dtype}; cast the column first."
            )

    @classmethod
    def of(cls, ids: Iterable[Any]) -> Self:
        """IdMap in the order given; they must be distinct."""
        made = cls(id_series(ids))
        if made.values.n_unique() != len(made.values):
            raise DataError("ids must be distinct, got a repeated one; remove the repetition.")
        return made

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and self.values.equals(other.values)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, outside: object) -> bool:
        return outside in self.positions

    @cached_property
    def positions(self) -> dict[Any, int]:
        """Outside id → dense index."""
        return {outside: index for index, outside in enumerate(self.values.to_list())}

    def lookup(self, ids: Iterable[Any]) -> Ints:
        """Dense indices of the ids; -1 where nobody knows the id."""
        if not isinstance(ids, (pl.Series, np.ndarray)):
            ids = list(ids)
        if len(ids) > 1000:  # a dictionary is quicker to ask, a join is quicker to build
            asked = id_series(ids)
            if asked.dtype.is_integer() != self.values.dtype.is_integer():
                return np.full(len(asked), UNKNOWN, np.int32)
            table = pl.DataFrame({"id": self.values, "at": np.arange(len(self), dtype=np.int32)})
            if asked.dtype != self.values.dtype:
                asked = asked.cast(self.values.dtype, strict=False)
            found = asked.to_frame("id").join(table, on="id", how="left", maintain_order="left")
            return found["at"].fill_null(UNKNOWN).to_numpy().astype(np.int32)
        values = ids.to_list() if isinstance(ids, pl.Series) else ids
        positions = self.positions
        return np.array([positions.get(_plain(one), UNKNOWN) for one in values], np.int32)

    def align(self, other: "IdMap") -> Ints:
        """(len(other),) the index in this table of each id of the other table, -1 where it is unknown."""
        if other is self or (len(other) == len(self) and other == self):
            return np.arange(len(self), dtype=np.int32)
        return self.lookup(other.values)

    def index(self, outside: Any) -> int:
        """The dense index of one id; an unknown one raises and names its nearest neighbours."""
        found = self.positions.get(_plain(outside))
        if found is not None:
            return found
        kind = "a string" if self.values.dtype == pl.String else "an integer"
        hint = f"ids here are {kind} each, {len(self)} in all."
        if isinstance(outside, str) and self.values.dtype == pl.String:
            near = get_close_matches(outside, self.values.head(100_000).to_list(), n=3)
            hint = f"did you mean {', '.join(map(repr, near))}?" if near else hint
        raise UnknownIdError(f"unknown id {outside!r}: it is none of those here; {hint}")

    def to_ids(self, indices: Ints | Longs) -> pl.Series:
        """The outside ids at dense indices."""
        return self.values.gather(pl.Series(indices))

    def union(self, ids: Iterable[Any]) -> "IdMap":
        """These ids, then those of `ids` that are new, sorted; existing positions do not move."""
        asked = id_series(ids).unique()
        if len(asked) == 0:
            return self
        if asked.dtype.is_integer() != self.values.dtype.is_integer():
            raise DataError(
                f"new ids must be of the kind known ({self.values.dtype}), got {asked.dtype}; cast them."
            )
        new = asked.filter(pl.Series(self.lookup(asked) == UNKNOWN)).sort()
        return IdMap(pl.concat([self.values, new.cast(self.values.dtype)])) if len(new) else self


def _plain(outside: Any) -> Any:
    """NumPy scalars as the Python values they stand for."""
    return outside.item() if isinstance(outside, np.generic) else outside


def id_series(ids: Iterable[Any]) -> pl.Series:
    """IdMap as a String or integer series; categories become strings, anything else is refused."""
    series = (
        ids if isinstance(ids, pl.Series) else pl.Series(ids if isinstance(ids, np.ndarray) else list(ids))
    )
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if len(series) == 0 and series.dtype == pl.Null:
        series = series.cast(pl.Int64)
    if series.dtype != pl.String and not series.dtype.is_integer():
        raise DataError(f"ids must be strings or integers, got {series.dtype}; cast them first.")
    return series


def encode(ids: pl.Series) -> tuple[IdMap, Ints]:
    """Sorted distinct ids, and the dense index of every row; nulls must be gone."""
    ids = id_series(ids)
    if ids.dtype.is_integer() and len(ids):
        low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
        if high - low < max(SPREAD * len(ids), 1 << 20) and high < 2**63:
            return _encode_dense(ids, low, high)
    values = ids.unique().sort()
    return IdMap(values), _codes(ids, values)


def _encode_dense(ids: pl.Series, low: int, high: int) -> tuple[IdMap, Ints]:
    """Integers of a narrow range: mark who is there, number the marks, look every row up."""
    table, codes = np.zeros(high - low + 1, np.int32), np.empty(len(ids), np.int32)
    chunks = [chunk.to_numpy() for chunk in ids.get_chunks()]  # as they were read: joining them is a copy
    for chunk in chunks:
        presence_mark(chunk, low, table)
    distinct = np.flatnonzero(table)
    table[distinct] = np.arange(distinct.size, dtype=np.int32)
    starts = np.cumsum([0, *map(len, chunks)])
    run_each(
        lambda at: codes_lookup(chunks[at], low, table, codes[starts[at] : starts[at + 1]]),
        range(len(chunks)),
        len(ids),
    )
    return IdMap(pl.Series(distinct + low).cast(ids.dtype)), codes


def _codes(ids: pl.Series, values: pl.Series) -> Ints:
    """The position of every id in `values`, by one hash join."""
    table = pl.DataFrame({"id": values, "at": np.arange(len(values), dtype=np.int32)})
    joined = ids.to_frame("id").join(table, on="id", how="left", maintain_order="left")
    return joined["at"].to_numpy().astype(np.int32, copy=False)
