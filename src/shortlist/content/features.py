"""FeatureSpace: the features of all fields side by side, learned from items and applied to new ones."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array, hstack, vstack

from shortlist.core.codec import Ascending, DistinctIds, Shape, Texts, file_error
from shortlist.core.options import Above, AtLeast, AtMost, Choices, Whole
from shortlist.core.ragged import row_owners
from shortlist.data.columns import to_polars
from shortlist.data.history import History
from shortlist.data.ids import UNKNOWN
from shortlist.data.items import KINDS, Items
from shortlist.errors import DataError
from shortlist.kernels.rows import read_only, starts
from shortlist.kernels.sparse import SparseRows, row_norms
from shortlist.types import Doubles, Floats, Ints, Longs

PIVOT = 0.85  # share of a text's own length in its normalization (Singhal, Buckley and Mitra, 1996)
N_KNOTS = 11  # numbers and dates are placed between the deciles of all items
WORDS = ("text", "categories", "tags")  # kinds whose features are words of a dictionary
NO_WORDS = pl.Series([], dtype=pl.String)
VALUES_AT_ONCE = 1 << 14  # texts whose words are in memory together


def resize_matrix(matrix: csr_array, n_rows: int, n_columns: int) -> csr_array:
    """The matrix with more empty rows and columns."""
    if not n_rows and not n_columns:
        return matrix
    indptr = np.append(matrix.indptr, np.full(n_rows, matrix.indptr[-1], matrix.indptr.dtype))
    shape = (matrix.shape[0] + n_rows, matrix.shape[1] + n_columns)
    return csr_array((matrix.data, matrix.indices, indptr), shape=shape)


def to_rows(matrix: csr_array) -> SparseRows:
    """A SciPy matrix as the arrays that kernels read."""
    return SparseRows(
        read_only(matrix.indptr.astype(np.int64)),
        read_only(matrix.indices.astype(np.int32)),
        read_only(matrix.data.astype(np.float32)),
    )


@dataclass(frozen=True, eq=False)
class Field:
    """How the values of one column become features; learned from the items that `fit` sees."""

    name: str
    kind: Annotated[str, Choices(lambda: KINDS)]
    # the features: words, categories or tags; none for numbers, dates and vectors
    words: Annotated[pl.Series, Texts(), DistinctIds(), Shape("n_words")]
    idf: Annotated[Floats, Shape("n_words"), AtLeast(0)]
    mean_norm: Annotated[float, Above(0), AtMost(1e30)]  # mean length of a text before normalization
    knots: Annotated[Doubles, Shape("n_knots"), Ascending(strict=True)]  # of numbers and dates
    n_features: Whole

    @classmethod
    def fit(cls, column: pl.Series, kind: str) -> tuple["Field", csr_array]:
        """The field of a column, and the features (n_items, n_features) of its values."""
        field = cls(column.name, kind, NO_WORDS, np.empty(0, np.float32), 1.0, np.empty(0), 0)
        if kind == "vector":
            field = replace(field, n_features=int(column.list.len().max() or 0))  # type: ignore[arg-type]
            return field, field.transform(column)
        if kind in ("numbers", "dates"):
            values = to_numbers(column)
            values = values[np.isfinite(values)]
            knots = np.unique(np.quantile(values, np.linspace(0, 1, N_KNOTS))) if values.size else values
            field = replace(field, knots=knots, n_features=knots.size)
            return field, field.transform(column)
        counts, words = _count(column, kind)
        df = np.bincount(counts.indices, minlength=len(words))
        idf = np.log((1 + len(column)) / (1 + df)).astype(np.float32)
        if kind != "text":
            idf = idf + 1  # a category that all items have still says something beside a missing one
        field = replace(field, words=words, idf=idf.astype(np.float32), n_features=len(words))
        weighted = field._weigh(counts)
        norms = _norms(weighted)
        mean = float(norms[norms > 0].mean()) if (norms > 0).any() else 1.0
        field = replace(field, mean_norm=mean)
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
        scale = (1 / np.where(norms > 0, norms, 1))[row_owners(weighted.indptr)]
        values = (weighted.data.astype(np.float32, copy=False) * scale).astype(np.float32)
        return csr_array((values, weighted.indices, weighted.indptr), shape=weighted.shape)

    def labels(self, features: Longs) -> list[str]:
        """What each feature means."""
        if self.kind in ("text", "tags"):
            return self.words.gather(features).to_list()
        if self.kind == "categories":
            return [f"{self.name}: {word}" for word in self.words.gather(features)]
        if self.kind == "numbers":
            return [f"{self.name} about {self.knots[at]:.4g}" for at in features]
        if self.kind == "dates":
            days = np.asarray(self.knots[features]).astype("datetime64[us]").astype("datetime64[D]")
            return [f"{self.name} about {day}" for day in days]
        return [self.name] * len(features)

    def _check_loaded(self) -> None:
        """Raise ModelFileError unless there is a word or a knot for each feature, as the kind says."""
        n_words = self.n_features if self.kind in WORDS else 0
        n_knots = self.n_features if self.kind in ("numbers", "dates") else 0
        if (len(self.words), self.knots.size) != (n_words, n_knots):
            raise file_error("space.fields", "must have a word or a knot for each feature")


def _count(column: pl.Series, kind: str, words: pl.Series | None = None) -> tuple[csr_array, pl.Series]:
    """(counts (n_items, n_words), words in alphabetical order); if `words` are given, others are skipped.

    The words of a text are its runs of letters, digits and underscores, in lower case. Categories and tags
    are words as they are; a tag counts once per item.
    """
    learned = pl.DataFrame({"word": NO_WORDS if words is None else words}).with_row_index("number")
    pairs, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for first in range(0, len(column), VALUES_AT_ONCE):
        entries = _list_words(column[first : first + VALUES_AT_ONCE], kind, first)
        if words is None:
            new = entries.select("word").unique().join(learned, on="word", how="anti")
            learned = pl.concat([learned, new.with_row_index("number", len(learned))])
        numbered = entries.join(learned, on="word")
        pair = (numbered["row"] * 2**32 + numbered["number"]).to_numpy()  # sorted faster than two columns
        for parts, values in zip((pairs, counts), np.unique(pair, return_counts=True), strict=True):
            parts.append(values)
    pair = np.concatenate(pairs)
    indptr = starts(np.bincount(pair >> 32, minlength=len(column)))
    columns, values = (pair & (2**32 - 1)).astype(np.int32), np.concatenate(counts).astype(np.float32)
    if words is None:
        words = learned["word"].sort()
        columns = (learned["word"].rank("ordinal").to_numpy() - 1).astype(np.int32)[columns]
    values = np.ones_like(values) if kind == "tags" else values
    matrix = csr_array((values, columns, indptr), shape=(len(column), len(words)))
    matrix.sort_indices()
    return matrix, words


def _list_words(column: pl.Series, kind: str, first: int) -> pl.DataFrame:
    """(row, word) of all words of the values in rows first …, in their order."""
    rows = np.arange(first, first + len(column))
    if kind == "categories":
        return pl.DataFrame({"row": rows, "word": column}).drop_nulls()
    lists = column.str.to_lowercase().str.extract_all(r"\w+") if kind == "text" else column
    return pl.DataFrame({"row": rows, "word": lists}).explode("word").drop_nulls()


def to_numbers(column: pl.Series) -> Doubles:
    """Numbers, or dates in microseconds; NaN where a value is missing."""
    if column.dtype.is_temporal():
        column = column.cast(pl.Datetime("us")).to_physical()
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _interpolate(values: Doubles, knots: Doubles) -> csr_array:
    """A value between two knots has a part of both, in unit length; values outside belong to the end."""
    n = values.size
    filled = np.flatnonzero(np.isfinite(values)) if knots.size else np.empty(0, np.int64)
    clipped = np.clip(values[filled], knots[0], knots[-1]) if knots.size else values[filled]
    left = np.clip(np.searchsorted(knots, clipped, side="right") - 1, 0, max(knots.size - 2, 0))
    right = np.minimum(left + 1, max(knots.size - 1, 0))
    gap = np.where(right > left, knots[right] - knots[left], 1) if knots.size else np.ones(filled.size)
    share = np.where(right > left, (clipped - knots[left]) / gap, 0) if knots.size else np.zeros(filled.size)
    norm = np.hypot(share, 1 - share)
    rows = np.concatenate([filled, filled])
    columns = np.concatenate([left, right])
    data = np.concatenate([(1 - share) / norm, share / norm]).astype(np.float32)
    keep = data > 0
    weights = csr_array((data[keep], (rows[keep], columns[keep])), shape=(n, knots.size))
    weights.sort_indices()
    return weights


def _unit_vectors(column: pl.Series, n_features: int) -> csr_array:
    """Vectors in unit length; no entries where a vector is missing."""
    lengths = column.list.len()
    has_value = np.flatnonzero((lengths.fill_null(0) > 0).to_numpy())
    if has_value.size and set(lengths.gather(has_value).unique()) != {n_features}:
        raise DataError(
            f"column {column.name!r:.60}: vectors must have {n_features} numbers as in fit, "
            "got another length; use the same embedding."
        )
    values = column.gather(has_value).explode().to_numpy().astype(np.float64).reshape(has_value.size, -1)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    values = values / np.where(norms > 0, norms, 1)
    sizes = np.zeros(len(column), np.int64)
    sizes[has_value] = n_features
    columns = np.tile(np.arange(n_features, dtype=np.int32), has_value.size)
    flat = values.astype(np.float32).ravel()
    return csr_array((flat, columns, starts(sizes)), shape=(len(column), n_features))


def _norms(matrix: csr_array) -> Doubles:
    """(n_rows,) Euclidean lengths."""
    norms = np.empty(matrix.shape[0])
    row_norms(to_rows(matrix), norms)
    return norms


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
        return cls(tuple(field for field, _ in pairs)), _join([features for _, features in pairs])

    def read(self, items: Items | Any) -> Items:
        """Items as they are; columns of a table have the kinds of `fit`, whatever its size."""
        if isinstance(items, Items):
            return items
        frame = to_polars(items, "items")
        columns: dict[str, Any] = {}
        for field in self.fields:
            kind = frame.schema.get(field.name)
            if kind is not None and (field.kind != "text" or kind in (pl.String, pl.Categorical, pl.Enum)):
                columns.setdefault(field.kind, []).append(field.name)
        return Items.from_frame(frame, vector=(columns.pop("vector", None) or [None])[0], **columns)

    def transform(self, items: Items) -> csr_array:
        """(n_items, n_features) the features of other items; missing columns are empty."""
        parts: list[Any] = []
        for field in self.fields:
            kind = items.kinds.get(field.name)
            if kind == field.kind:
                parts.append(field.transform(items.table[field.name]))
            elif kind is None and field.name not in items.source.unused:
                parts.append(csr_array((len(items), field.n_features), dtype=np.float32))
            else:
                got = "but was not read" if kind is None else f"got {kind}"
                raise DataError(
                    f"column {field.name!r:.60} must hold {field.kind} as in fit, {got}; name its kind, as "
                    f"in Items.from_frame({field.kind}=['{field.name:.40}'])."
                )
        return _join(parts)

    def values(self, items: Items) -> Doubles:
        """(n_items, n_fields) numbers, and dates in microseconds, as they are; NaN for other fields."""
        values = np.full((len(items), len(self.fields)), np.nan)
        for number, field in enumerate(self.fields):
            if field.kind in ("numbers", "dates") and field.name in items.kinds:
                values[:, number] = to_numbers(items.table[field.name])
        return values

    @cached_property
    def starts(self) -> Longs:
        """(n_fields + 1,) the first feature of each field."""
        return np.concatenate([[0], np.cumsum([field.n_features for field in self.fields])]).astype(np.int64)

    @property
    def n_fields(self) -> int:
        """Number of fields."""
        return len(self.fields)

    @property
    def n_features(self) -> int:
        """Features of all fields."""
        return int(self.starts[-1])

    @cached_property
    def owner(self) -> Ints:
        """(n_features,) the field of each feature."""
        return row_owners(self.starts).astype(np.int32)

    def labels(self, features: Longs) -> list[str]:
        """What each feature means."""
        labels = [""] * len(features)
        owner = self.owner[features]
        for number, field in enumerate(self.fields):
            at = np.flatnonzero(owner == number)
            for place, label in zip(at, field.labels(features[at] - self.starts[number]), strict=True):
                labels[place] = label
        return labels

    def _check_loaded(self) -> None:
        """Raise ModelFileError if there are no fields."""
        if not self.fields:
            raise file_error("space.fields", "must be a list of fields")


def align_rows(matrix: csr_array, rows: Ints) -> csr_array:
    """(rows.size, n_features) the rows at these numbers; -1 gives an empty row."""
    longer = csr_array(
        (matrix.data, matrix.indices, np.append(matrix.indptr, matrix.indptr[-1])),
        shape=(matrix.shape[0] + 1, matrix.shape[1]),
    )  # the last row is empty, and -1 takes it
    return csr_array(longer[np.where(rows < 0, matrix.shape[0], rows)])


def replace_rows(matrix: csr_array, rows: Ints, fresh: csr_array) -> csr_array:
    """The matrix with the rows of another one at these numbers."""
    place = np.arange(matrix.shape[0], dtype=np.int32)
    place[rows] = matrix.shape[0] + np.arange(rows.size, dtype=np.int32)
    return align_rows(csr_array(vstack([matrix, fresh], format="csr")), place)


def aligned_names(items: Items, ids: pl.Series, earlier: pl.Series | None) -> pl.Series | None:
    """Names for these ids: known ones (of the first ids), those of the items, then the ids themselves."""
    if items.names is None and earlier is None:
        return None
    at = items.ids.lookup(ids)
    names = ids.cast(pl.String)
    if items.names is not None:
        fresh = items.names.gather(pl.Series(np.maximum(at, 0)))
        names = pl.select(
            pl.when(pl.lit(pl.Series(at >= 0))).then(pl.lit(fresh)).otherwise(None).fill_null(pl.lit(names))
        ).to_series()
    if earlier is not None:
        names = pl.concat([earlier.rename(names.name), names[len(earlier) :]])
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
