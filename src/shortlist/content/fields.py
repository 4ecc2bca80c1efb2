"""Field: one column of items as sparse features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from shortlist.content.matrices import to_rows
from shortlist.content.words import Strings, WordTable
from shortlist.core.checks import check_array, check_text, check_whole_value, file_error
from shortlist.core.ragged import starts
from shortlist.data.item_columns import KINDS
from shortlist.errors import DataError
from shortlist.kernels.postings import row_norms, scale_rows
from shortlist.types import Doubles, Floats, Longs

PIVOT = 0.85  # share of a text's own length in its normalization (Singhal, Buckley and Mitra, 1996)
N_KNOTS = 11  # numbers and dates are placed between the deciles of all items
WORDS = ("text", "categories", "tags")  # kinds whose features are words of a dictionary


@dataclass(frozen=True, eq=False)
class Field:
    """How the values of one column become features; learned from the items that `fit` sees."""

    name: str
    kind: str
    words: Strings  # the features: words, categories or tags; none for numbers, dates and vectors
    idf: Floats  # (n_words,)
    mean_norm: float  # mean length of a text before normalization
    knots: Doubles  # (n_knots,) of numbers and dates, ascending
    n_features: int

    @classmethod
    def fit(cls, column: pl.Series, kind: str) -> tuple["Field", csr_array]:
        """The field of a column, and the features (n_items, n_features) of its values."""
        none = Strings(np.empty(0, np.uint8), np.zeros(1, np.int64))
        empty, no_knots = np.empty(0, np.float32), np.empty(0)
        if kind == "vector":
            n = int(column.list.len().max() or 0)  # type: ignore[arg-type]
            field = cls(column.name, kind, none, empty, 1.0, no_knots, n)
            return field, field.transform(column)
        if kind in ("numbers", "dates"):
            values = to_numbers(column)
            known = values[np.isfinite(values)]
            knots = np.unique(np.quantile(known, np.linspace(0, 1, N_KNOTS))) if known.size else no_knots
            field = cls(column.name, kind, none, empty, 1.0, knots, knots.size)
            return field, field.transform(column)
        counts, words = _count(column, kind)
        df = np.bincount(counts.indices, minlength=len(words))
        idf = np.log((1 + len(column)) / (1 + df)).astype(np.float32)
        if kind != "text":
            idf = idf + 1  # a category that all items have still says something beside a missing one
        field = cls(column.name, kind, words, idf.astype(np.float32), 1.0, no_knots, len(words))
        weighted = field._weigh(counts)
        norms = _norms(weighted)
        mean = float(norms[norms > 0].mean()) if (norms > 0).any() else 1.0
        field = cls(column.name, kind, words, field.idf, mean, no_knots, len(words))
        return field, field._normalize(weighted)

    def transform(self, column: pl.Series) -> csr_array:
        """(n_items, n_features) the features of values; unknown words are skipped."""
        if self.kind == "vector":
            return _unit_vectors(column, self.n_features)
        if self.kind in ("numbers", "dates"):
            return _interpolate(to_numbers(column), self.knots)
        return self._normalize(self._weigh(_count(column, self.kind, self.words)[0]))

    def _weigh(self, counts: csr_array) -> csr_array:
        """(1 + log count) · idf."""
        values = (1 + np.log(counts.data)) * self.idf[counts.indices]
        return csr_array((values.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)

    def _normalize(self, weighted: csr_array) -> csr_array:
        """Rows divided by their length; long texts by a little less, short ones by a little more."""
        norms = _norms(weighted)
        if self.kind == "text":
            norms = np.where(norms > 0, (1 - PIVOT) * self.mean_norm + PIVOT * norms, 1)
        values = np.empty(weighted.data.size, np.float32)
        scale_rows(to_rows(weighted), 1 / np.where(norms > 0, norms, 1), values)
        return csr_array((values, weighted.indices, weighted.indptr), shape=weighted.shape)

    def labels(self, features: Longs) -> list[str]:
        """What each feature means."""
        if self.kind in ("text", "tags"):
            return self.words.to_list(features)
        if self.kind == "categories":
            return [f"{self.name}: {word}" for word in self.words.to_list(features)]
        if self.kind == "numbers":
            return [f"{self.name} about {self.knots[at]:.4g}" for at in features]
        if self.kind == "dates":
            days = np.asarray(self.knots[features]).astype("datetime64[us]").astype("datetime64[D]")
            return [f"{self.name} about {day}" for day in days]
        return [self.name] * len(features)

    def to_arrays(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, notes) that `from_arrays` reads."""
        arrays = self.words.to_arrays(f"{name}.words") | {
            f"{name}.idf": self.idf,
            f"{name}.knots": self.knots,
        }
        return arrays, {
            "name": self.name, "kind": self.kind, "mean_norm": self.mean_norm, "n_features": self.n_features,
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, Any], notes: Any) -> "Field":
        """The field that was saved; ModelFileError if it is not valid."""
        if not isinstance(notes, dict):
            raise file_error(name, "must be an object")
        kind = check_text(notes, "kind", KINDS)
        n = check_whole_value(notes, "n_features", 0, 2**31 - 1)
        n_words = n if kind in WORDS else 0
        words = Strings.from_arrays(arrays, f"{name}.words", n_words)
        idf = check_array(arrays, f"{name}.idf", np.float32, (n_words,), low=0)
        knots = check_array(
            arrays, f"{name}.knots", np.float64, (n if kind in ("numbers", "dates") else 0,), strict=True
        )
        mean = notes.get("mean_norm")
        if not isinstance(mean, float) or not 0 < mean < 1e30:
            raise file_error(f"{name}.mean_norm", "must be a positive number")
        return cls(check_text(notes, "name"), kind, words, idf, mean, knots, n)


def _count(column: pl.Series, kind: str, known: Strings | None = None) -> tuple[csr_array, Strings]:
    """(counts (n_items, n_words), words in alphabetical order); with `known` words, no others."""
    if kind != "text":
        return _count_values(column, known)
    table = WordTable() if known is None else WordTable.of(known)
    counts = table.count(column, learn=known is None)
    words, columns = known, counts.columns
    if words is None:
        spelled = pl.Series(table.new_words().to_list(), dtype=pl.String)
        order = spelled.arg_sort().to_numpy()
        words = Strings.of(spelled.gather(order))
        rank = np.empty(order.size, np.int32)
        rank[order] = np.arange(order.size, dtype=np.int32)
        columns = rank[counts.columns]
    found = csr_array((counts.values, columns, counts.indptr), shape=(len(column), len(words)))
    found.sort_indices()
    return found, words


def _count_values(column: pl.Series, known: Strings | None) -> tuple[csr_array, Strings]:
    """Categories, or lists of tags, as counts; a tag counts once per item."""
    frame = pl.DataFrame({"row": np.arange(len(column)), "value": column})
    if column.dtype == pl.List(pl.String):
        frame = frame.explode("value")
    frame = frame.drop_nulls().unique().sort("row", "value")
    if known is None:
        values = frame["value"].unique().sort()
        words = Strings.of(values)
    else:
        words, values = known, pl.Series(known.to_list(), dtype=pl.String)
    numbered = pl.DataFrame({"value": values, "number": np.arange(len(values), dtype=np.int32)})
    found = frame.join(numbered, on="value", how="inner").sort("row", "number")
    indptr = starts(np.bincount(found["row"].to_numpy(), minlength=len(column)))
    columns = found["number"].to_numpy()
    ones = np.ones(columns.size, np.float32)
    return csr_array((ones, columns, indptr), shape=(len(column), len(words))), words


def to_numbers(column: pl.Series) -> Doubles:
    """Numbers, or dates in microseconds; NaN where a value is missing."""
    if column.dtype.is_temporal():
        column = column.cast(pl.Datetime("us")).to_physical()
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _interpolate(values: Doubles, knots: Doubles) -> csr_array:
    """A value between two knots has a part of both, in unit length; values outside belong to the end."""
    n = values.size
    known = np.flatnonzero(np.isfinite(values)) if knots.size else np.empty(0, np.int64)
    clipped = np.clip(values[known], knots[0], knots[-1]) if knots.size else values[known]
    left = np.clip(np.searchsorted(knots, clipped, side="right") - 1, 0, max(knots.size - 2, 0))
    right = np.minimum(left + 1, max(knots.size - 1, 0))
    gap = np.where(right > left, knots[right] - knots[left], 1) if knots.size else np.ones(known.size)
    part = np.where(right > left, (clipped - knots[left]) / gap, 0) if knots.size else np.zeros(known.size)
    norm = np.hypot(part, 1 - part)
    rows = np.concatenate([known, known])
    columns = np.concatenate([left, right])
    data = np.concatenate([(1 - part) / norm, part / norm]).astype(np.float32)
    keep = data > 0
    found = csr_array((data[keep], (rows[keep], columns[keep])), shape=(n, knots.size))
    found.sort_indices()
    return found


def _unit_vectors(column: pl.Series, n_features: int) -> csr_array:
    """Vectors in unit length; no entries where a vector is missing."""
    lengths = column.list.len()
    known = np.flatnonzero((lengths.fill_null(0) > 0).to_numpy())
    if known.size and set(lengths.gather(known).unique()) != {n_features}:
        raise DataError(
            f"column {column.name!r:.60}: vectors must have {n_features} numbers as in fit, "
            "got another length; use the same embedding."
        )
    values = column.gather(known).explode().to_numpy().astype(np.float64).reshape(known.size, -1)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    values = values / np.where(norms > 0, norms, 1)
    sizes = np.zeros(len(column), np.int64)
    sizes[known] = n_features
    columns = np.tile(np.arange(n_features, dtype=np.int32), known.size)
    flat = values.astype(np.float32).ravel()
    return csr_array((flat, columns, starts(sizes)), shape=(len(column), n_features))


def _norms(matrix: csr_array) -> Doubles:
    """(n_rows,) Euclidean lengths."""
    norms = np.empty(matrix.shape[0])
    row_norms(to_rows(matrix), norms)
    return norms
