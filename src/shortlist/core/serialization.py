"""Save models and cutoffs as one safetensors file with a verified description; nothing is unpickled.

The metadata of the file has one entry, `shortlist`: a JSON text with its checksum (sha256 of the text with 64
zeros in its place), version, kind, class, params, notes, library, series, and the sha256 of all arrays.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from shortlist.core.files import atomic_write, check_writable
from shortlist.errors import DataError, ModelFileError
from shortlist.kernels.rows import bytes_of

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
Array = npt.NDArray[Any]
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
    arrays = {name: _check_array(name, array) for name, array in sorted(arrays.items())}
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


def _check_array(name: str, array: Any) -> Array:
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
    if series.dtype == pl.String:
        sizes = series.str.len_bytes().fill_null(0).to_numpy()
        parts["offsets"] = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        parts["bytes"] = np.frombuffer("".join(series.drop_nulls()).encode(), np.uint8)
    elif str(series.dtype) in INTEGERS:
        parts["values"] = series.fill_null(0).to_numpy()
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
    _check_names([about["kind"], about["class"], *about["series"]])
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
    _check_names(names)
    for name in names:
        entry = file.get_slice(name)
        shape = entry.get_shape()
        if entry.get_dtype() not in DTYPES or len(shape) > 8 or max(shape, default=0) > size:
            raise _InvalidError(f"the entry of array {name[:80]!a} is invalid; save the model again.")


def _check_names(names: list[str]) -> None:
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
