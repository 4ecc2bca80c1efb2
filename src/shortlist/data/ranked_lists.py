"""RankedLists: many users' lists of different lengths, the empty ones included."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.files import atomic_write
from shortlist.data.id_map import IdMap
from shortlist.data.list_tables import FORMATS, parse, read_table
from shortlist.data.reasons import REASON_TEXT
from shortlist.errors import DataError
from shortlist.types import Doubles, Floats, Ints, Longs

Codes = npt.NDArray[np.uint8]

REASONS = tuple(REASON_TEXT)  # a code is a position in this tuple, and files carry the word
REASON_CODE = {reason: code for code, reason in enumerate(REASONS)}


@dataclass(frozen=True)
class RankedList:
    """One user's list, best first; `reason` says why it stops there."""

    user_id: Any
    items: list[Any]
    scores: Floats
    probabilities: Doubles | None
    boundary: float | None
    reason: str | None

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, eq=False)
class RankedLists:
    """List number i belongs to `users` position i; items are dense indices into `item_ids`."""

    users: IdMap
    item_ids: IdMap
    indptr: Longs  # (n_lists + 1,)
    items: Ints  # (n_shown,) dense items, best first within a list
    scores: Floats  # (n_shown,)
    probabilities: Doubles | None = None  # (n_shown,)
    boundary: Floats | None = None  # (n_lists,) NaN where a user has none
    reason: Codes | None = None  # (n_lists,) positions in REASONS
    expected_sizes: Doubles | None = None  # (n_lists,) how many items the user is expected to take next

    def __post_init__(self) -> None:
        n, shown = len(self.users), int(self.indptr[-1]) if self.indptr.size else -1
        sizes = {
            "indptr": (self.indptr.size, n + 1),
            "items": (self.items.size, shown),
            "scores": (self.scores.size, shown),
            "probabilities": (shown if self.probabilities is None else self.probabilities.size, shown),
            "boundary": (n if self.boundary is None else self.boundary.size, n),
            "reason": (n if self.reason is None else self.reason.size, n),
            "expected_sizes": (n if self.expected_sizes is None else self.expected_sizes.size, n),
        }
        for name, (got, expected) in sizes.items():
            if got != expected:
                raise DataError(
                    f"lists need {expected} values of {name}, got {got}; pass arrays that belong together."
                )

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        shown = f"{self.items.size:,} items shown, {self.cover_ratio:.0%} covered"
        return f"RankedLists({len(self):,} lists, {shown})"

    @property
    def lengths(self) -> Ints:
        """(n_lists,) how many items each user is shown."""
        return np.diff(self.indptr).astype(np.int32)

    @property
    def cover_ratio(self) -> float:
        """Share of lists with at least one item."""
        return float((self.lengths > 0).mean()) if len(self) else 0.0

    @property
    def positions(self) -> Ints:
        """(n_shown,) rank of each shown item within its list, from 0."""
        starts = np.repeat(self.indptr[:-1], np.diff(self.indptr))
        return (np.arange(self.items.size) - starts).astype(np.int32)

    def reason_of(self, number: int) -> str | None:
        """Why list number `number` stops where it does."""
        return None if self.reason is None else REASONS[int(self.reason[number])]

    def at(self, number: int) -> RankedList:
        """List number `number`, with outside ids."""
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
        """One user's list by user id; a slice cuts by list number."""
        if isinstance(user_id, slice):
            return self.take(np.arange(len(self))[user_id])
        return self.at(self.users.index(user_id))

    def __iter__(self) -> Iterator[RankedList]:
        return (self.at(number) for number in range(len(self)))

    def take(self, numbers: npt.ArrayLike) -> Self:
        """The lists at these numbers, in this order."""
        chosen = np.asarray(numbers, np.int64)
        lengths = np.diff(self.indptr)[chosen]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(self.indptr[chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return replace(
            self,
            users=IdMap(self.users.to_ids(chosen)),
            indptr=indptr,
            items=self.items[rows],
            scores=self.scores[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            boundary=None if self.boundary is None else self.boundary[chosen],
            reason=None if self.reason is None else self.reason[chosen],
            expected_sizes=None if self.expected_sizes is None else self.expected_sizes[chosen],
        )

    def head(self, lengths: npt.ArrayLike, reason: Codes | None = None) -> Self:
        """Each list cut to its own length (or all to one); `reason` replaces the old one where given."""
        limit = np.asarray(lengths, np.int64)
        if limit.ndim and limit.shape != (len(self),):
            raise DataError(
                f"lengths must be one number or one per list ({len(self)}), got shape {limit.shape}; mend it."
            )
        limit = np.broadcast_to(limit, (len(self),))
        kept = np.minimum(np.maximum(limit, 0), np.diff(self.indptr))
        rows = self.positions < np.repeat(kept, np.diff(self.indptr))
        return replace(
            self,
            indptr=np.concatenate([[0], np.cumsum(kept)]).astype(np.int64),
            items=self.items[rows],
            scores=self.scores[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            reason=self.reason if reason is None else reason,
        )

    # ------------------------------------------------------------------ tables and files
    def to_frame(self) -> pl.DataFrame:
        """One row per shown item; an empty list is one row of rank 0 without an item.

        Columns: user_id, rank, item_id, score, probability, length, boundary, reason.
        """
        lengths = np.diff(self.indptr)
        rows = np.maximum(lengths, 1)
        number = np.repeat(np.arange(len(self)), rows)
        filled = np.repeat(lengths > 0, rows)
        rank = np.zeros(number.size, np.int32)
        rank[filled] = self.positions + 1
        at = np.zeros(number.size, np.int64)
        at[filled] = np.arange(self.items.size)
        empty = pl.Series(~filled)

        def shown(values: pl.Series) -> pl.Series:
            picked = (
                values.gather(pl.Series(at))
                if len(values)
                else pl.Series([None] * at.size, dtype=values.dtype)
            )
            return picked.set(empty, None) if len(values) else picked

        probability = np.full(self.items.size, np.nan) if self.probabilities is None else self.probabilities
        once = self.summary()
        return pl.DataFrame(
            {
                "user_id": self.users.to_ids(number),
                "rank": rank,
                "item_id": shown(self.item_ids.to_ids(self.items)),
                "score": shown(pl.Series(self.scores)),
                "probability": shown(pl.Series(probability).fill_nan(None)),
                "length": lengths[number].astype(np.int32),
                "boundary": once["boundary"].gather(pl.Series(number)),
                "reason": once["reason"].gather(pl.Series(number)),
            }
        )

    def summary(self) -> pl.DataFrame:
        """One row per list: user_id, length, boundary, reason."""
        boundary = np.full(len(self), np.nan, np.float32) if self.boundary is None else self.boundary
        return pl.DataFrame(
            {
                "user_id": self.users.values,
                "length": self.lengths,
                "boundary": pl.Series(boundary).fill_nan(None),
                "reason": self._reason_words(),
            }
        )

    def _reason_words(self) -> pl.Series:
        """(n_lists,) reasons as words; nulls where lists carry none."""
        if self.reason is None:
            return pl.Series([None] * len(self), dtype=pl.String)
        return pl.Series(REASONS).gather(pl.Series(self.reason.astype(np.uint32)))

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, item_ids: IdMap | None = None) -> Self:
        """From a table with user_id, item_id and rank or score; users keep the order of their first row."""
        found = parse(frame, item_ids)
        return cls(
            users=found.users,
            item_ids=found.item_ids,
            indptr=found.indptr,
            items=found.items,
            scores=_scores(found.shown, found.indptr),
            probabilities=_optional(found.shown, "probability", np.float64),
            boundary=_optional(found.first, "boundary", np.float32),
            reason=_reasons(found.first),
        )

    def write(self, path: str | Path) -> Path:
        """To .parquet, .csv or .jsonl, written beside and renamed into place."""
        target = Path(path)
        if target.suffix not in FORMATS:
            raise DataError(
                f"lists are written as {', '.join(FORMATS)}, got {target.name!r}; change the ending."
            )
        frame = self.to_frame()
        with atomic_write(target) as temporary:
            if target.suffix == ".parquet":
                frame.write_parquet(temporary)
            elif target.suffix == ".csv":
                frame.write_csv(temporary)
            else:
                frame.write_ndjson(temporary)
        return target

    @classmethod
    def read(cls, path: str | Path, item_ids: IdMap | None = None) -> Self:
        """From a file written by `write`, or any table with the same columns."""
        return cls.from_frame(read_table(Path(path), item_ids), item_ids)


def _scores(shown: pl.DataFrame, indptr: Longs) -> Floats:
    """The score column; without one, 0, -1, -2 … down each list, which says no more than the order does."""
    if "score" in shown.columns:
        return shown["score"].cast(pl.Float32).fill_null(np.nan).to_numpy()
    return (np.repeat(indptr[:-1], np.diff(indptr)) - np.arange(len(shown))).astype(np.float32)


def _optional(frame: pl.DataFrame, name: str, dtype: type) -> Any:
    """A numeric column with NaN for null, or None where it is absent or says nothing."""
    if name not in frame.columns or frame[name].null_count() == len(frame):
        return None
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(dtype)


def _reasons(frame: pl.DataFrame) -> Codes | None:
    """Reason words as codes; None where the column is absent or has gaps."""
    if "reason" not in frame.columns or frame["reason"].null_count():
        return None
    words = frame["reason"].to_list()
    strangers = sorted(set(words) - set(REASONS))
    if strangers:
        raise DataError(f"reasons are {', '.join(REASONS)}, got {strangers[0]!r}; correct the column.")
    return np.array([REASON_CODE[word] for word in words], np.uint8)
