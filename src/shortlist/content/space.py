"""FeatureSpace: the features of all fields side by side, learned from items and applied to new ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array, hstack

from shortlist.content.fields import Field, to_numbers
from shortlist.core.checks import file_error
from shortlist.data.history import History
from shortlist.data.id_map import UNKNOWN
from shortlist.data.item_columns import KINDS, to_frame
from shortlist.data.items import Items
from shortlist.errors import DataError
from shortlist.types import Doubles, Ints, Longs


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The fields of items, in the order of their columns; field k owns features starts[k] … starts[k+1]."""

    fields: tuple[Field, ...]

    @classmethod
    def fit(cls, items: Items) -> tuple["FeatureSpace", csr_array]:
        """The space of these items, and their features (n_items, n_features)."""
        pairs = [Field.fit(items.table[name], kind) for name, kind in items.kinds.items()]
        if not sum(field.n_features for field, _ in pairs):
            raise DataError(
                f"items must have content, got none in {items!r:.120}; name the columns, such as "
                "text=['title']."
            )
        return cls(tuple(field for field, _ in pairs)), _join([part for _, part in pairs])

    def read(self, items: Items | Any) -> Items:
        """Items as they are; columns of a table have the kinds of `fit`, whatever its size."""
        if isinstance(items, Items):
            return items
        frame = to_frame(items)
        columns: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for field in self.fields:
            kind = frame.schema.get(field.name)
            if kind is not None and (field.kind != "text" or kind in (pl.String, pl.Categorical, pl.Enum)):
                columns[field.kind].append(field.name)
        return Items.from_frame(
            frame,
            categories=columns["categories"] or None,
            tags=columns["tags"] or None,
            text=columns["text"] or None,
            numbers=columns["numbers"] or None,
            dates=columns["dates"] or None,
            vector=columns["vector"][0] if columns["vector"] else None,
        )

    def transform(self, items: Items) -> csr_array:
        """(n_items, n_features) the features of other items; missing columns are empty."""
        parts = []
        for field in self.fields:
            kind = items.kinds.get(field.name)
            if kind is None and field.name in items.source.unused:
                raise DataError(
                    f"column {field.name!r:.60} must hold {field.kind} as in fit, but was not read; name its "
                    f"kind, as in Items.from_frame({field.kind}=['{field.name:.40}'])."
                )
            if kind is None:
                empty = (np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(len(items) + 1, np.int64))
                parts.append(csr_array(empty, shape=(len(items), field.n_features)))
                continue
            if kind != field.kind:
                raise DataError(
                    f"column {field.name!r:.60} must hold {field.kind} as in fit, got {kind}; name its kind, "
                    f"as in Items.from_frame({field.kind}=['{field.name:.40}'])."
                )
            parts.append(field.transform(items.table[field.name]))
        return _join(parts)

    def values(self, items: Items) -> Doubles:
        """(n_items, n_fields) numbers, and dates in microseconds, as they are; NaN for other fields."""
        found = np.full((len(items), len(self.fields)), np.nan)
        for number, field in enumerate(self.fields):
            if field.kind in ("numbers", "dates") and field.name in items.kinds:
                found[:, number] = to_numbers(items.table[field.name])
        return found

    @cached_property
    def starts(self) -> Longs:
        """(n_fields + 1,) the first feature of each field."""
        return np.concatenate([[0], np.cumsum([field.n_features for field in self.fields])]).astype(np.int64)

    @property
    def n_features(self) -> int:
        """Features of all fields."""
        return int(self.starts[-1])

    @cached_property
    def owner(self) -> Ints:
        """(n_features,) the field of each feature."""
        return np.repeat(np.arange(len(self.fields), dtype=np.int32), np.diff(self.starts))

    def labels(self, features: Longs) -> list[str]:
        """What each feature means."""
        found = [""] * len(features)
        owner = self.owner[features]
        for number, field in enumerate(self.fields):
            at = np.flatnonzero(owner == number)
            for place, label in zip(at, field.labels(features[at] - self.starts[number]), strict=True):
                found[place] = label
        return found

    def to_arrays(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """(arrays, notes) that `from_arrays` reads."""
        arrays: dict[str, Any] = {}
        notes = []
        for number, field in enumerate(self.fields):
            own, said = field.to_arrays(f"field{number}")
            arrays |= own
            notes.append(said)
        return arrays, notes

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], notes: Any) -> "FeatureSpace":
        """The space that was saved; ModelFileError if it is not valid."""
        if not isinstance(notes, list) or not notes:
            raise file_error("fields", "must be a list of fields")
        return cls(tuple(Field.from_arrays(f"field{n}", arrays, said) for n, said in enumerate(notes)))


def align_rows(matrix: csr_array, rows: Ints) -> csr_array:
    """(rows.size, n_features) the rows at these numbers; -1 gives an empty row."""
    longer = csr_array(
        (matrix.data, matrix.indices, np.append(matrix.indptr, matrix.indptr[-1])),
        shape=(matrix.shape[0] + 1, matrix.shape[1]),
    )  # the last row is empty, and -1 takes it
    return csr_array(longer[np.where(rows < 0, matrix.shape[0], rows)])


def aligned_names(items: Items, ids: pl.Series, known: pl.Series | None) -> pl.Series | None:
    """Names for these ids: known ones (of the first ids), those of the items, then the ids themselves."""
    if items.names is None and known is None:
        return None
    at = items.ids.lookup(ids)
    names = ids.cast(pl.String)
    if items.names is not None:
        own = items.names.gather(pl.Series(np.maximum(at, 0)))
        names = pl.select(
            pl.when(pl.lit(pl.Series(at >= 0))).then(pl.lit(own)).otherwise(None).fill_null(pl.lit(names))
        ).to_series()
    if known is not None:
        names = pl.concat([known.rename(names.name), names[len(known) :]])
    return names


def extend_items(history: History, items: Items) -> History:
    """The history with all of these items; names of known items stay."""
    new = items.ids.values.filter(pl.Series(history.items.lookup(items.ids.values) == UNKNOWN))
    if not len(new) and (history.item_names is not None or items.names is None):
        return history
    ids = history.items.extend(new)
    return history.with_items(ids, aligned_names(items, ids.values, history.item_names))


def _join(parts: list[csr_array]) -> csr_array:
    """The features of all fields side by side, columns ascending in every row."""
    joined = csr_array(hstack(parts, format="csr", dtype=np.float32)) if len(parts) > 1 else parts[0]
    joined.sort_indices()
    return joined
