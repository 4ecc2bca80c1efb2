"""One codec for all that is saved: classes declare what they hold, and saving, loading and checks follow.

A declaration is an annotated field: of a dataclass, of a named tuple, or an attribute that `fit` of an
estimator sets.

    items: Annotated[Floats, Shape("history.n_items", "n_factors"), Within(1e12)]

Sizes are numbers, sums, or names: of fields that were read before, of those around the record, of parameters
of the estimator. A name that nothing has stands for the size of the first array that uses it. Floats are
finite unless a marker allows more. A rule between fields is a method `_check_loaded` of the class.

Kernels trust their arguments: what a file holds reaches one only after it kept its declaration.

A file is in the format of safetensors; nothing is unpickled. Its metadata have one entry, `shortlist`: a JSON
text with its checksum (sha256 of the text with 64 zeros in its place), version, kind, class, params, notes,
library, series, and the sha256 of all arrays.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from operator import ge, gt, le, lt
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import polars as pl
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from shortlist.core.files import atomic_write, check_writable
from shortlist.core.options import (
    Bound,
    Estimator,
    annotations_of,
    check_value,
    describe_rule,
    split_annotation,
)
from shortlist.core.ragged import row_owners
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.kernels.rows import bytes_of

Array = npt.NDArray[Any]
E = TypeVar("E", bound=Estimator)
MAX_COLUMNS = 2**31 - 1  # of a sparse matrix
# what a file whose values have the wrong type or size can raise
FILE_ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


def file_error(name: str, rule: str) -> ModelFileError:
    """The error that an entry of a file breaks a rule."""
    return ModelFileError(f"{name[:80]!a} {rule}; save the model again.")


# ---------------------------------------------------------------------- names that declarations use
class Scope:
    """What a declaration can refer to: sizes and fields so far, attributes of the owner, the scope around."""

    def __init__(self, owner: object = None, outer: "Scope | None" = None) -> None:
        self.owner, self.outer = owner, outer
        self.values: dict[str, Any] = {}

    def find(self, path: str) -> Any:
        """The value of a name such as `n_factors` or `history.n_items`; None if there is none."""
        first, *rest = path.split(".")
        value = self.values.get(first)
        if value is None and self.owner is not None and not first.startswith("_"):
            value = getattr(self.owner, first, None)
        if value is None:
            return None if self.outer is None else self.outer.find(path)
        for name in rest:
            value = getattr(value, name)
        return value

    def match_sizes(self, place: str, sizes: tuple[str, ...], actual: tuple[int, ...]) -> None:
        """Raise ModelFileError unless these are the sizes; a name that stands for nothing yet gets one."""
        expected: list[int | None] = []
        for size, number in zip(sizes, actual, strict=False):
            total, unknown = 0, None
            for term in size.split("+"):
                name = term.strip()
                value = int(name) if name.isdecimal() else self.find(name)
                unknown, total = (name, total) if value is None else (unknown, total + int(value))
            if unknown is not None and number >= total:
                self.values[unknown], total = number - total, number
            expected.append(total)
        if len(sizes) != len(actual) or tuple(expected) != actual:
            n = len(sizes)
            shape = " × ".join(map(str, expected)) if n == len(actual) else f"of {n} dimensions"
            raise file_error(place, f"must have shape {shape}, got {' × '.join(map(str, actual))}")

    def requires(self, markers: tuple[Any, ...]) -> bool:
        """Whether an attribute with these markers must exist."""
        for marker in markers:
            if isinstance(marker, MayBeMissing):
                return False
            if isinstance(marker, When):
                value = self.find(marker.name)
                return value in marker.values if marker.values else bool(value)
        return True


# ---------------------------------------------------------------------- markers
@dataclass(frozen=True, init=False)
class Shape:
    """The sizes of an array, a sparse matrix or a series: `Shape("n_users + 1", 3)`."""

    sizes: tuple[str, ...]

    def __init__(self, *sizes: str | int) -> None:
        object.__setattr__(self, "sizes", tuple(str(size) for size in sizes))

    def check(self, place: str, array: Array, scope: Scope) -> None:
        """Raise ModelFileError unless the array has these sizes."""
        scope.match_sizes(place, self.sizes, array.shape)


@dataclass(frozen=True)  # named tuples of different classes would be equal
class Starts:
    """Where n consecutive ranges start and the last one ends: n + 1 numbers from 0 to the end, ascending."""

    n: str
    end: str

    def check(self, place: str, array: Array, scope: Scope) -> None:
        """Raise ModelFileError unless the array leads from 0 to the end in n steps."""
        scope.match_sizes(place, (f"{self.n} + 1",), array.shape)
        Ascending().check(place, array, scope)
        end = scope.find(self.end)
        if array[0] != 0 or (end is not None and array[-1] != end):
            last = "the end" if end is None else end
            raise file_error(place, f"must lead from 0 to {last}, got {array[0]} to {array[-1]}")
        scope.match_sizes(place, (self.end,), (int(array[-1]),))


@dataclass(frozen=True)
class Ascending:
    """No element is below the one before; strictly: none is equal to it."""

    strict: bool = False

    def check(self, place: str, array: Array, scope: Scope) -> None:
        """Raise ModelFileError unless the array ascends."""
        before, after = array[:-1], array[1:]
        if not (before < after if self.strict else before <= after).all():
            raise file_error(place, "must ascend")


@dataclass(frozen=True)
class Within:
    """The largest absolute value."""

    limit: float


@dataclass(frozen=True)
class Sparse:
    """The type of the values of a sparse matrix."""

    dtype: type[np.generic] | None = np.float32  # None: any


@dataclass(frozen=True)
class MayBeInfinite:
    """Floats may be infinite, but not NaN."""


@dataclass(frozen=True)
class MayBeNaN:
    """Floats may be anything."""


@dataclass(frozen=True)
class DistinctIds:
    """A series of distinct strings or integers, none missing."""


@dataclass(frozen=True)
class Texts:
    """A series of strings, none missing."""


@dataclass(frozen=True)
class When:
    """The attribute exists if another one, or a parameter or property, is true or has one of these values."""

    name: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class MayBeMissing:
    """The attribute need not exist."""


@dataclass(frozen=True)
class NotStored:
    """The field is not saved: it has a default, or follows from the others when the model is loaded."""


class Contents(NamedTuple):
    """The arrays and series of a file, by the place of their field; reading takes them out."""

    arrays: dict[str, Array]
    series: dict[str, pl.Series]


class StoredForm(Protocol):
    """How the values of one annotation are written to a file and read from it."""

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        """The JSON value that stands in the description of the file; arrays and series go to the contents."""

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        """The value; ModelFileError if it breaks its declaration."""


# ---------------------------------------------------------------------- plain values, arrays, series
class Plain(NamedTuple):
    """Numbers, texts, truth values, and tuples, lists and dictionaries of them, checked as options are."""

    annotation: Any

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not np.isfinite(value):
            return {"float": str(value)}
        return list(value) if isinstance(value, tuple) else value

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        kind, markers = split_annotation(self.annotation)
        if _is(self.annotation, MayBeInfinite) and packed in ({"float": "inf"}, {"float": "-inf"}):
            number = np.inf if packed == {"float": "inf"} else -np.inf
            if all(COMPARE[bound.name](number, bound.value) for bound in markers if isinstance(bound, Bound)):
                return number
        value: Any = tuple(packed) if isinstance(packed, list) and get_origin(kind) is tuple else packed
        try:
            check_value(self.annotation, value=value)
        except ConfigError:
            raise file_error(place, f"must be {describe_rule(self.annotation, value)}") from None
        return float(value) if kind is float else value


class ArrayForm(NamedTuple):
    """A NumPy array."""

    dtype: np.dtype[Any] | None  # None: any
    markers: tuple[Any, ...]

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        if not isinstance(value, np.ndarray) or self.dtype not in (None, value.dtype):
            got = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise DataError(f"{place} must be an array of {self.dtype}, got {got}; convert it in `_learn`.")
        contents.arrays[place] = value
        return {"array": place}

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        array = contents.arrays.pop(place, None)
        if array is None or packed != {"array": place}:
            raise file_error(place, "is missing")
        check_array(place, array, self.dtype, self.markers, scope)
        return array


def check_array(
    place: str, array: Array, dtype: npt.DTypeLike | None, markers: tuple[Any, ...], scope: Scope
) -> None:
    """Raise ModelFileError unless the array has this type and keeps the rules of the markers."""
    if dtype is not None and array.dtype != np.dtype(dtype):
        raise file_error(place, f"must have type {np.dtype(dtype)}, got {array.dtype}")
    for marker in markers:
        if isinstance(marker, (Shape, Starts, Ascending)):
            marker.check(place, array, scope)
    if array.dtype.kind == "f" and not any(isinstance(marker, MayBeNaN) for marker in markers):
        _check_finite(place, array, markers)
    for marker in markers:
        if isinstance(marker, Bound) and array.size:
            extreme = array.min() if marker.name in ("ge", "gt") else array.max()
            if not COMPARE[marker.name](extreme, marker.value):
                raise file_error(place, f"must be {marker.words} {marker.value:.10g}, got {extreme}")


COMPARE: dict[str, Callable[[Any, Any], Any]] = {"ge": ge, "gt": gt, "le": le, "lt": lt}


def _check_finite(place: str, array: Array, markers: tuple[Any, ...]) -> None:
    """If the sum of squares is small, every element is; it needs one fast pass and no memory."""
    limit: float = min([marker.limit for marker in markers if isinstance(marker, Within)], default=np.inf)
    values = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.dot(values, values))
    if total < np.inf and total <= limit**2:
        return
    allows_infinity = any(isinstance(marker, MayBeInfinite) for marker in markers)
    if np.isnan(values).any() or not (allows_infinity or np.isfinite(values).all()):
        raise file_error(place, "must be finite, got NaN or infinity")
    if np.abs(values).max() > limit:
        raise file_error(place, f"must be at most {limit:g} in size, got {np.abs(values).max():g}")


class MatrixForm(NamedTuple):
    """A sparse matrix by rows, with sorted columns."""

    markers: tuple[Any, ...]

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        from scipy.sparse import csr_array

        if not isinstance(value, csr_array):
            raise DataError(
                f"{place} must be a csr_array, got {type(value).__name__}; convert it in `_learn`."
            )
        if not value.has_canonical_format:
            value = value.copy()
            value.sum_duplicates()
        contents.arrays[f"{place}.indptr"] = value.indptr.astype(np.int64)
        contents.arrays[f"{place}.columns"] = value.indices.astype(np.int32)
        contents.arrays[f"{place}.values"] = value.data
        return {"matrix": list(value.shape)}

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        from scipy.sparse import csr_array

        shape = packed.get("matrix") if isinstance(packed, dict) else None
        if not isinstance(shape, list) or [type(size) for size in shape] != [int, int]:
            raise file_error(place, "must be a sparse matrix")
        n_rows, n_columns = shape
        if not (0 <= n_rows <= MAX_COLUMNS and 0 <= n_columns <= MAX_COLUMNS):
            raise file_error(place, f"must have from 0 to {MAX_COLUMNS} rows and columns")
        names = [f"{place}.{name}" for name in ("indptr", "columns", "values")]
        for name in names:
            if name not in contents.arrays:
                raise file_error(name, "is missing")
        indptr, columns, values = (contents.arrays.pop(name) for name in names)
        inner = Scope(outer=scope)
        inner.values |= {"n_rows": n_rows}
        sparse = next((marker for marker in self.markers if isinstance(marker, Sparse)), Sparse())
        rules = tuple(marker for marker in self.markers if not isinstance(marker, Shape))
        check_array(f"{place}.values", values, sparse.dtype, (Shape("n_entries"), *rules), inner)
        check_array(f"{place}.indptr", indptr, np.int64, (Starts("n_rows", "n_entries"),), inner)
        check_array(f"{place}.columns", columns, np.int32, (Shape("n_entries"),), inner)
        if columns.size and not 0 <= columns.min() <= columns.max() < n_columns:
            raise file_error(f"{place}.columns", f"must be from 0 to {n_columns - 1}")
        row = row_owners(indptr)
        if ((np.diff(columns) <= 0) & (np.diff(row) == 0)).any():
            raise file_error(f"{place}.columns", "must ascend in every row")
        for marker in self.markers:
            if isinstance(marker, Shape):
                scope.match_sizes(place, marker.sizes, (n_rows, n_columns))
        return csr_array((values, columns, indptr), shape=(n_rows, n_columns))


class SeriesForm(NamedTuple):
    """A polars series of ids or texts."""

    markers: tuple[Any, ...]

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        if not isinstance(value, pl.Series):
            raise DataError(f"{place} must be a series, got a {type(value).__name__}; correct `_learn`.")
        contents.series[place] = value
        return {"series": place}

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        series = contents.series.pop(place, None)
        if series is None or packed != {"series": place}:
            raise file_error(place, "is missing")
        for marker in self.markers:
            if isinstance(marker, DistinctIds) and (series.null_count() or series.n_unique() != len(series)):
                raise file_error(place, "must hold distinct ids, none missing")
            if isinstance(marker, Texts) and (series.null_count() or series.dtype != pl.String):
                raise file_error(place, "must hold texts, none missing")
            if isinstance(marker, Shape):
                scope.match_sizes(place, marker.sizes, (len(series),))
        return series


# ---------------------------------------------------------------------- values made of others
class TupleForm(NamedTuple):
    """A tuple of arrays, records or the like; with one form, of any length."""

    forms: tuple[StoredForm, ...]
    any_length: bool

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        return [form.write(entry, at, contents) for form, entry, at in self._entries(value, place)]

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        if not isinstance(packed, list) or not (self.any_length or len(packed) == len(self.forms)):
            raise file_error(place, "must be a list")
        return tuple(
            form.read(entry, at, contents, scope) for form, entry, at in self._entries(packed, place)
        )

    def _entries(self, values: Any, place: str) -> Iterator[tuple[StoredForm, Any, str]]:
        for number, value in enumerate(values):
            yield self.forms[0 if self.any_length else number], value, f"{place}.{number}"


class UnionForm(NamedTuple):
    """One of several forms; the first one that the value has."""

    forms: tuple[StoredForm, ...]

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        error: Exception | None = None
        for form in self.forms:
            try:
                return form.write(value, place, contents)
            except (AttributeError, DataError) as failed:
                error = error or failed
        raise error or DataError(f"{place} cannot be saved.")

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        return self.forms[self._choose(packed)].read(packed, place, contents, scope)

    def _choose(self, packed: Any) -> int:
        """The number of the form that a value has, by its JSON; the first one if it has none."""
        kinds: dict[type, Callable[[Any], bool]] = {
            ArrayForm: lambda value: isinstance(value, dict) and value.keys() == {"array"},
            MatrixForm: lambda value: isinstance(value, dict) and value.keys() == {"matrix"},
            SeriesForm: lambda value: isinstance(value, dict) and value.keys() == {"series"},
            TupleForm: lambda value: isinstance(value, list),
            NoneForm: lambda value: value is None,
            Plain: lambda value: not isinstance(value, (dict, list, NoneType)),
        }
        for number, form in enumerate(self.forms):
            if type(form) in kinds and kinds[type(form)](packed):
                return number
        return 0


class NoneForm(NamedTuple):
    """No value."""

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        if value is not None:
            raise DataError(f"{place} must be None, got a {type(value).__name__}.")

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        if packed is not None:
            raise file_error(place, "must be null")


class RecordForm:
    """A dataclass or a named tuple, whose markers are rules for all fields.

    A class that is saved as another one names it as `stored_as` and has `to_stored` and `from_stored`.
    """

    def __init__(self, kind: Any, markers: tuple[Any, ...] = ()) -> None:
        self.kind, self.record, self.markers = kind, getattr(kind, "stored_as", kind), markers

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        if not isinstance(value, self.kind):
            name = self.kind.__name__
            raise DataError(f"{place} must be a {name}, got a {type(value).__name__}; correct `_learn`.")
        if self.record is not self.kind:
            value = value.to_stored()
        return write_fields(self.record, value, place, contents)

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        values = read_fields(self.record, packed, place, contents, Scope(outer=scope), self.markers)
        record = self.record(**values)
        if hasattr(record, "_check_loaded"):
            record._check_loaded()
        return record if self.record is self.kind else self.kind.from_stored(record)


class EstimatorForm(NamedTuple):
    """An estimator: its class, its parameters, and what `fit` learned."""

    kind: type[Estimator]
    must_be_fitted: bool = True  # parameters need not be

    def write(self, value: Any, place: str, contents: Contents) -> Any:
        if not isinstance(value, self.kind):
            raise DataError(f"{place} must be a {self.kind.__name__}, got a {type(value).__name__}.")
        annotations = annotations_of(type(value))
        params = {
            name: _write_param(param, _join(place, name), contents)
            for name, param in value.get_params().items()
            if not _is(annotations[name], NotStored)
        }
        return {
            "class": type(value).__name__,
            "params": params,
            "fitted": write_learned(value, place, contents),
        }

    def read(self, packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
        if not isinstance(packed, dict) or packed.keys() != {"class", "params", "fitted"}:
            raise file_error(place, f"must be a {self.kind.__name__}")
        found = self.kind.find_class(packed["class"]) if isinstance(packed["class"], str) else None
        if found is None or not issubclass(found, self.kind):
            raise file_error(place, f"must be a {self.kind.__name__}, got {str(packed['class'])[:40]!a}")
        estimator = read_estimator(found, packed["params"], packed["fitted"], place, contents, scope)
        if self.must_be_fitted and not getattr(estimator, "is_ready", is_fitted(estimator)):
            raise file_error(place, f"must be a fitted {found.__name__}")
        return estimator


# ---------------------------------------------------------------------- from annotations to forms
@cache
def form_of(annotation: Any) -> StoredForm:
    """How values of this annotation are saved; TypeError if they cannot be."""
    kind, markers = split_annotation(annotation)
    origin = get_origin(kind)
    if _is_plain(kind):
        return NoneForm() if kind in (None, NoneType) else Plain(annotation)
    if origin in (Union, UnionType):
        parts = sorted(get_args(kind), key=lambda part: part is NoneType)  # the others give the messages
        return UnionForm(tuple(form_of(_annotate(part, markers)) for part in parts))
    if origin is tuple:
        parts = [part for part in get_args(kind) if part is not Ellipsis]
        forms = tuple(form_of(_annotate(part, markers)) for part in parts)
        return TupleForm(forms, any_length=len(parts) < len(get_args(kind)))
    if origin is np.ndarray:
        scalar = get_args(get_args(kind)[1])[0]
        return ArrayForm(None if scalar is Any else np.dtype(scalar), markers)
    from scipy.sparse import csr_array  # takes a tenth of a second to import

    if kind is csr_array:
        return MatrixForm(markers)
    if kind is pl.Series:
        return SeriesForm(markers)
    if isinstance(kind, type) and issubclass(kind, Estimator):
        return EstimatorForm(kind)
    if is_dataclass(kind) or hasattr(kind, "_fields") or hasattr(kind, "stored_as"):
        return RecordForm(kind, markers)
    raise TypeError(
        f"values of {annotation} cannot be saved; declare numbers, texts, arrays, series or records"
    )


def _is_plain(kind: Any) -> bool:
    """Whether JSON holds the values of a type without anything else."""
    kind, origin = split_annotation(kind)[0], get_origin(split_annotation(kind)[0])
    if origin in (Union, UnionType, tuple, list, dict, Mapping):
        return all(part is Ellipsis or _is_plain(part) for part in get_args(kind))
    return origin is Literal or kind in (Any, bool, str, int, float, None, NoneType)


def _annotate(kind: Any, markers: tuple[Any, ...]) -> Any:
    from typing import Annotated

    return Annotated[(kind, *markers)] if markers else kind


def _is(annotation: Any, marker: type) -> bool:
    """Whether an annotation has a marker of this type."""
    return any(isinstance(note, marker) for note in split_annotation(annotation)[1])


@cache
def declared_fields(kind: Any) -> dict[str, Any]:
    """The annotations of the fields of a dataclass or a named tuple that are saved, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    return {name: hints[name] for name in names if not _is(hints[name], NotStored)}


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def write_fields(kind: type, value: Any, place: str, contents: Contents) -> dict[str, Any]:
    """The fields of a record as JSON; arrays and series go to the contents."""
    return {
        name: form_of(annotation).write(getattr(value, name), _join(place, name), contents)
        for name, annotation in declared_fields(kind).items()
    }


def read_fields(
    kind: type, packed: Any, place: str, contents: Contents, scope: Scope, markers: tuple[Any, ...] = ()
) -> dict[str, Any]:
    """The fields of a record by name, which all must be there; they are in the scope of those that follow.

    Each keeps the rules of the markers of its record, too.
    """
    declared = declared_fields(kind)
    check_names(place, packed, declared, declared)
    for name, annotation in declared.items():
        form = form_of(_annotate(annotation, markers))
        scope.values[name] = form.read(packed[name], _join(place, name), contents, scope)
    return {name: scope.values[name] for name in declared}


def check_names(place: str, packed: Any, required: Any, allowed: Any) -> None:
    """Raise ModelFileError unless these are the names of an object."""
    if not isinstance(packed, dict):
        raise file_error(place or "the description", "must be an object")
    for name in required:
        if name not in packed:
            raise file_error(_join(place, name), "is missing")
    for name in packed:
        if name not in allowed:
            raise file_error(_join(place, name), "is unknown")


# ---------------------------------------------------------------------- the file
FORMAT, VERSION = "shortlist", 3
START = f'{{"__metadata__":{{"{FORMAT}":'.encode()  # every file has these bytes after the length
OLD_START = b'{"__metadata__":{"format":"shortlist"'  # of version 2
ZEROS = "0" * 64
MAX_HEADER, MAX_ARRAYS, MAX_DEPTH = 16 << 20, 10_000, 16
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")
DTYPES = {"BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4"}
DTYPES |= {"I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"}
CODES = {np.dtype(text): code for code, text in DTYPES.items()}
INTEGERS = {
    str(t): t for t in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
}
DESCRIPTION = {
    "checksum": str,
    "version": int,
    "kind": str,
    "class": str,
    "params": dict,
    "notes": dict,
    "library": str,
    "series": dict,
    "sha256": str,
}
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Artifact:
    """Contents of one file; `kind` is model, cutoff, … and `name` the class that can restore it."""

    kind: str
    name: str
    params: dict[str, Any]
    arrays: Mapping[str, Any]
    series: Mapping[str, pl.Series] = field(default_factory=dict)  # strings or integers, nulls allowed
    notes: dict[str, Any] = field(default_factory=dict)


def save_artifact(path: str | Path, artifact: Artifact) -> Path:
    """Write the file beside `path` and move it there in one step."""
    target = Path(path)
    check_replaceable(target)
    arrays = join_arrays(artifact.arrays, artifact.series)
    arrays = {name: _plain_array(name, array) for name, array in sorted(arrays.items())}
    metadata = {FORMAT: _describe(artifact, hash_arrays(arrays))}
    with atomic_write(target) as temporary, temporary.open("wb") as file:
        file.write(save(arrays, metadata))  # save_file would replace the file, and with it its lock and mode
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(target.parent)
    return target


def join_arrays(arrays: Mapping[str, Any], series: Mapping[str, pl.Series]) -> dict[str, Any]:
    """All arrays of a file, those that hold the series included."""
    joined = dict(arrays)
    for name, column in series.items():
        joined |= {f"series.{name}.{piece}": array for piece, array in _split_series(column).items()}
    return joined


def check_replaceable(target: Path) -> None:
    """Raise DataError if something exists at `target` that this module did not write."""
    if not os.path.lexists(target):
        return
    start = b""
    with suppress(OSError):
        if target.is_file():
            with target.open("rb") as file:
                start = file.read(8 + len(OLD_START))[8:]
    if not start.startswith((START, OLD_START)):
        raise DataError(f"{target} exists and is not a saved model; choose another path.")


def check_model_path(target: Path) -> None:
    """Raise DataError, before long training, if no model can be saved at `target`."""
    check_replaceable(target)
    check_writable(target)


def _plain_array(name: str, array: Any) -> Array:
    """The array in C order and little-endian, if its name and type can be stored."""
    if not NAME.fullmatch(name) or array.dtype.newbyteorder("<") not in CODES:
        raise DataError(
            f"array {name!r} of type {array.dtype} cannot be saved; use numbers and a plain name."
        )
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _split_series(series: pl.Series) -> dict[str, Array]:
    """A series as plain arrays: strings as offsets and UTF-8 bytes."""
    parts: dict[str, Array] = {}
    if series.null_count():
        parts["valid"] = series.is_not_null().to_numpy()
        series = series.fill_null("" if series.dtype == pl.String else 0)
    if series.dtype == pl.String:
        sizes = series.str.len_bytes().to_numpy()
        parts["offsets"] = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        parts["bytes"] = np.frombuffer("".join(series.to_list()).encode(), np.uint8)
    elif str(series.dtype) in INTEGERS:
        parts["values"] = series.to_numpy()
    else:
        raise DataError(f"a saved series must hold strings or integers, got {series.dtype}; cast it first.")
    return parts


def hash_arrays(arrays: Mapping[str, Array]) -> str:
    """The sha256 of names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {CODES[array.dtype]} {list(array.shape)}\n".encode())
        digest.update(bytes_of(array))
    return digest.hexdigest()


def _describe(artifact: Artifact, sha256: str) -> str:
    """The JSON text that goes into the file, with its checksum."""
    description = {
        "checksum": ZEROS,
        "version": VERSION,
        "kind": artifact.kind,
        "class": artifact.name,
        "params": artifact.params,
        "notes": artifact.notes,
        "library": library_version(),
        "series": {name: str(series.dtype) for name, series in artifact.series.items()},
        "sha256": sha256,
    }
    text = json.dumps(description, allow_nan=False, default=_as_plain)
    return text.replace(ZEROS, hashlib.sha256(text.encode()).hexdigest(), 1)


@cache
def library_version() -> str:
    """The version of the installed package."""
    try:
        return version("shortlist")
    except PackageNotFoundError:
        return "unknown"


def _sync_folder(folder: Path) -> None:
    """Flush the rename to disk, where the system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _as_plain(value: Any) -> Any:
    """Convert a NumPy scalar for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def read_header(path: str | Path) -> dict[str, Any]:
    """The verified description of a file; the arrays are not read."""
    with _open(Path(path)) as file:
        return {"format": FORMAT, **_read_description(file)}


def load_artifact(path: str | Path, kind: str) -> Artifact:
    """Read a file; every byte is verified before anything is built from it."""
    with _open(Path(path)) as file:
        about = _read_description(file)
        if about["kind"] != kind:
            raise _InvalidError(f"it holds a {about['kind']}, not a {kind}; load it as a {about['kind']}.")
        names = list(file.keys())
        _check_tables(file, names, Path(path).stat().st_size)
        arrays = {name: file.get_tensor(name) for name in names}
        if hash_arrays(arrays) != about["sha256"]:
            raise _InvalidError("it is damaged or was edited (its checksum differs); save the model again.")
        series = {name: _join_series(name, dtype, arrays) for name, dtype in about["series"].items()}
    own_arrays = {name: array for name, array in arrays.items() if not name.startswith("series.")}
    return Artifact(kind, about["class"], about["params"], own_arrays, series, about["notes"])


class _InvalidError(Exception):
    """What is wrong with the file that is being read, without its path."""


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file for reading; whatever is wrong with it becomes one ModelFileError that names it."""
    try:
        if not path.is_file() and path.exists() and not path.is_dir():
            raise _InvalidError("it is not a file; check the path.")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            start = file.read(len(OLD_START))
        if start == OLD_START:
            raise _InvalidError("it is a file of shortlist 0.3; fit again with 0.4.")
        if length > MAX_HEADER or not start.startswith(START):
            raise _InvalidError("it is not a saved model, or it is truncated; check the path.")
        with safe_open(path, "np") as file:
            yield file
    except FileNotFoundError:
        raise ModelFileError(f"no saved model at {path}; check the path.") from None
    except IsADirectoryError:
        raise ModelFileError(f"cannot load {path}: it is a folder; pass the file of a saved model.") from None
    except _InvalidError as error:
        raise ModelFileError(f"cannot load {path}: {error}") from None
    except SafetensorError:
        raise ModelFileError(
            f"cannot load {path}: it is truncated, or its header was edited; save the model again."
        ) from None
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"cannot load {path}: {error.__class__.__name__}; check the file.") from None


def _read_description(file: Any) -> dict[str, Any]:
    """What the file says about itself, verified."""
    metadata = file.metadata()
    if metadata.keys() != {FORMAT}:
        raise _InvalidError("its metadata has other entries; save the model again.")
    about = _parse(text := metadata[FORMAT])
    if (number := about.get("version", "missing")) != VERSION:
        raise _InvalidError(
            f"its format version is {str(number)[:20]!a}, this release reads {VERSION}; fit again, or "
            "install the release that wrote it."
        )
    if about.keys() != DESCRIPTION.keys() or any(type(about[key]) is not t for key, t in DESCRIPTION.items()):
        raise _InvalidError("its description has unknown, missing or invalid entries; save the model again.")
    blank = text.replace(about["checksum"], ZEROS, 1)
    if hashlib.sha256(blank.encode()).hexdigest() != about["checksum"]:
        raise _InvalidError(
            "its header is damaged or was edited (its checksum differs); save the model again."
        )
    _check_file_names([about["kind"], about["class"], *about["series"]])
    return about


def _parse(raw: bytes | str) -> dict[str, Any]:
    """A JSON object of bounded depth without duplicate keys."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) != len(entries := dict(pairs)):
            raise ValueError("duplicate key")
        return entries

    def finite(text: str) -> float:
        if not math.isfinite(number := float(text)):
            raise ValueError("not a finite number")
        return number

    try:
        value = json.loads(raw, object_pairs_hook=unique, parse_constant=finite, parse_float=finite)
        if isinstance(value, dict) and _depth(value) <= MAX_DEPTH:
            return value
    except (ValueError, RecursionError):
        pass
    raise _InvalidError("its header is not a plain JSON object; save the model again.")


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _check_tables(file: Any, names: list[str], size: int) -> None:
    """Names, types and shapes; safetensors has checked that the arrays fill the file one after the other."""
    if len(names) > MAX_ARRAYS:
        raise _InvalidError(
            f"it lists {len(names)} arrays, at most {MAX_ARRAYS} are allowed; save the model again."
        )
    _check_file_names(names)
    for name in names:
        entry = file.get_slice(name)
        shape = entry.get_shape()
        if entry.get_dtype() not in DTYPES or len(shape) > 8 or max(shape, default=0) > size:
            raise _InvalidError(f"the entry of array {name[:80]!a} is invalid; save the model again.")


def _check_file_names(names: list[str]) -> None:
    for name in names:
        if not NAME.fullmatch(name):
            raise _InvalidError(f"the name {name[:80]!a} is not allowed; save the model again.")


def _join_series(name: str, dtype: Any, arrays: Arrays) -> pl.Series:
    """The inverse of `_split_series`."""
    parts = {n.rpartition(".")[2]: a for n, a in arrays.items() if n.startswith(f"series.{name}.")}
    valid = parts.pop("valid", None)
    try:
        if dtype == "String":
            offsets, raw = parts["offsets"], parts["bytes"]
            if offsets.dtype != np.int64 or raw.dtype != np.uint8 or offsets[0] or offsets[-1] != raw.size:
                raise ValueError("offsets")
            if (np.diff(offsets) < 0).any():
                raise ValueError("offsets")
            text = raw.tobytes()
            cells = [text[start:end] for start, end in pairwise(offsets.tolist())]
            column = pl.Series(name, cells, pl.Binary).cast(pl.String)
        else:
            column = pl.Series(name, parts["values"])
            if column.dtype != INTEGERS[dtype]:
                raise TypeError("values")
        if valid is not None:
            column = column.to_frame().select(pl.when(pl.Series(valid)).then(pl.col(name))).to_series()
    except (KeyError, IndexError, TypeError, ValueError, pl.exceptions.PolarsError):
        raise _InvalidError(f"its series {name!a} is invalid; save the model again.") from None
    return column


# ---------------------------------------------------------------------- estimators
def _write_param(value: Any, place: str, contents: Contents) -> Any:
    if isinstance(value, Estimator):
        return EstimatorForm(type(value)).write(value, place, contents)
    return Plain(Any).write(value, place, contents)


def _read_param(packed: Any, place: str, contents: Contents, scope: Scope) -> Any:
    if isinstance(packed, list):
        return tuple(packed)
    if isinstance(packed, dict) and packed.keys() == {"float"}:
        return Plain(_annotate(float, (MayBeInfinite(),))).read(packed, place, contents, scope)
    if isinstance(packed, dict):
        return EstimatorForm(Estimator, must_be_fitted=False).read(packed, place, contents, scope)
    return packed


def write_learned(estimator: Estimator, place: str, contents: Contents) -> dict[str, Any]:
    """What `fit` learned as JSON; DataError for an attribute that the class does not declare."""
    declared, packed = estimator._declared(), {}
    for name, value in estimator._learned().items():
        if name not in declared:
            raise DataError(
                f"{type(estimator).__name__}.{name} is not declared, so that it cannot be saved; write "
                f"`{name}: <type> = FITTED` in the class."
            )
        packed[name] = form_of(declared[name]).write(value, _join(place, name), contents)
    return packed


def read_estimator(
    kind: type[E], params: Any, fitted: Any, place: str, contents: Contents, scope: Scope | None = None
) -> E:
    """The estimator of this class with these parameters and with what it learned."""
    check_names(place, params, (), kind.__dataclass_fields__)
    outer = scope or Scope()
    estimator = kind(
        **{name: _read_param(value, _join(place, name), contents, outer) for name, value in params.items()}
    )
    if fitted == {}:
        return estimator
    inner, declared = Scope(estimator, outer), estimator._declared()
    check_names(place, fitted, (), declared)
    for name, annotation in declared.items():
        if name in fitted:
            value = form_of(annotation).read(fitted[name], _join(place, name), contents, inner)
            inner.values[name] = value
    for name, annotation in declared.items():
        if name not in fitted and inner.requires(split_annotation(annotation)[1]):
            raise file_error(_join(place, name), "is missing")
    estimator._restore({name: inner.values[name] for name in declared if name in fitted})
    return estimator


def is_fitted(estimator: Estimator) -> bool:
    """Whether the estimator has all attributes that must exist with its parameters."""
    scope = Scope(estimator)
    return all(
        name in vars(estimator) or not scope.requires(split_annotation(annotation)[1])
        for name, annotation in estimator._declared().items()
    )


def save_estimator(path: str | Path, estimator: Estimator) -> Path:
    """Save parameters and what `fit` learned."""
    contents = Contents({}, {})
    packed = EstimatorForm(type(estimator)).write(estimator, "", contents)
    artifact = Artifact(estimator.kind, packed["class"], packed["params"], *contents, packed["fitted"])
    return save_artifact(path, artifact)


def load_estimator(path: str | Path, kind: type[E]) -> E:
    """Load what `save_estimator` wrote, if it is an object of this class."""
    artifact = load_artifact(path, kind.kind)
    saved_class = kind.find_class(artifact.name)
    if saved_class is None:
        raise ModelFileError(
            f"{path} holds a {artifact.name}, unknown to this version; update shortlist, or import the "
            "package that defines it."
        )
    if not issubclass(saved_class, kind):
        name = saved_class.__name__
        raise ModelFileError(f"{path} holds a {name}, not a {kind.__name__}; use {name}.load.")
    contents = Contents(dict(artifact.arrays), dict(artifact.series))
    try:
        loaded = read_estimator(saved_class, artifact.params, artifact.notes, "", contents)
        for name in (*contents.arrays, *contents.series):
            raise file_error(name, "is unknown")
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {path}: {error}") from None
    except FILE_ERRORS as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]!s}"
        raise ModelFileError(
            f"cannot load {path}: its content is invalid ({reason}); save the model again."
        ) from None
    return loaded
