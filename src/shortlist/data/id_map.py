"""IdMap: the ids of users or items, and their dense indices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.errors import DataError, UnknownIdError
from shortlist.types import Ints, Longs

UNKNOWN = -1
ID_TYPES = (str, int, np.integer, type(None))  # None is reported as a missing id


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
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and self.values.equals(other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(one)[:40] for one in self.values.head(3).to_list())
        return f"IdMap({len(self):,} ids: {shown}{', …' if len(self) > 3 else ''})"

    def __contains__(self, value: object) -> bool:
        return value in self.positions

    @cached_property
    def positions(self) -> dict[Any, int]:
        """Id → dense index."""
        return {value: index for index, value in enumerate(self.values.to_list())}

    def lookup(self, ids: Iterable[Any]) -> Ints:
        """Return the dense index of each id.

        Parameters
        ----------
        ids
            Ids in any order, known or not.

        Returns
        -------
        (n,) indices, -1 for an unknown id.

        Examples
        --------
        >>> sl.IdMap.of([7, 3]).lookup([3, 4]).tolist()
        [1, -1]
        """
        if not isinstance(ids, (pl.Series, np.ndarray)):
            ids = list(ids)
        if len(ids) > 1000:  # a dictionary answers faster, but takes longer to build than a join
            wanted = id_series(ids)
            if wanted.dtype.is_integer() != self.values.dtype.is_integer():
                return np.full(len(wanted), UNKNOWN, np.int32)
            table = pl.DataFrame({"id": self.values, "at": np.arange(len(self), dtype=np.int32)})
            if wanted.dtype != self.values.dtype:
                wanted = wanted.cast(self.values.dtype, strict=False)
            found = wanted.to_frame("id").join(table, on="id", how="left", maintain_order="left")
            return found["at"].fill_null(UNKNOWN).to_numpy().astype(np.int32)
        values = ids.to_list() if isinstance(ids, pl.Series) else ids
        positions = self.positions
        try:
            return np.array([positions.get(_plain(one), UNKNOWN) for one in values], np.int32)
        except TypeError:
            raise DataError(
                "ids must be strings or integers, got a list or another collection; pass one list of ids."
            ) from None

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
        return self.lookup(other.values)

    def index(self, value: Any) -> int:
        """Return the dense index of one id.

        Parameters
        ----------
        value
            A known id.

        Raises
        ------
        UnknownIdError
            If the id is unknown; the message names similar ids.

        Examples
        --------
        >>> sl.IdMap.of(["ann", "bob"]).index("ann")
        0
        """
        found = self.positions.get(_plain(value))
        if found is not None:
            return found
        kind = "a string" if self.values.dtype == pl.String else "an integer"
        hint = f"each of the {len(self):,} known ids is {kind}."
        if isinstance(value, str) and self.values.dtype == pl.String:
            near = get_close_matches(value, self.values.head(100_000).to_list(), n=3)
            hint = f"did you mean {', '.join(map(repr, near))}?" if near else hint
        raise UnknownIdError(f"unknown id {repr(value)[:80]}; {hint}")

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
        if more.dtype.is_integer() != self.values.dtype.is_integer():
            raise DataError(
                f"new ids must have the type of the known ones ({self.values.dtype}), got {more.dtype}; "
                "cast them."
            )
        new = more.filter(pl.Series(self.lookup(more) == UNKNOWN)).sort()
        return IdMap(pl.concat([self.values, new.cast(self.values.dtype)])) if len(new) else self


def _plain(value: Any) -> Any:
    """A NumPy scalar as a Python value."""
    return value.item() if isinstance(value, np.generic) else value


def is_id_list(value: Any) -> bool:
    """Whether a value may be a collection of ids: not a text, one value, a dictionary or a table."""
    if isinstance(value, (str, bytes, Mapping)) or type(value).__name__ == "DataFrame":
        return False
    return isinstance(value, Iterable) and not (isinstance(value, np.ndarray) and value.ndim != 1)


def id_series(ids: Iterable[Any]) -> pl.Series:
    """Ids as a series of strings or integers; categories become strings."""
    if isinstance(ids, pl.Series):
        series = ids
    elif not is_id_list(ids):
        raise DataError(
            f"ids must be a list of strings or integers, got a {type(ids).__name__}; pass a list."
        )
    else:
        values = ids if isinstance(ids, np.ndarray) else list(ids)
        kinds = {type(one) for one in values} if isinstance(values, list) or values.dtype == object else set()
        other = sorted(kind.__name__ for kind in kinds if not issubclass(kind, ID_TYPES))
        if other:
            raise DataError(f"ids must be strings or integers, got a {other[0]}; pass one list of ids.")
        try:
            series = pl.Series(values)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0][:100]
            raise DataError(
                f"ids must be all strings or all integers, got others ({reason}); cast them."
            ) from None
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if len(series) == 0 and series.dtype == pl.Null:
        series = series.cast(pl.Int64)
    if series.dtype != pl.String and not series.dtype.is_integer():
        raise DataError(f"ids must be strings or integers, got {series.dtype}; cast the column.")
    return series
