"""A saved model is a folder: model.json, arrays.safetensors, Parquet tables; checksummed, never pickled."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from shortlist.core.files import write_beside
from shortlist.errors import DataError, ModelFileError

FORMAT, VERSION = "shortlist", 1
HEADER, ARRAYS = "model.json", "arrays.safetensors"
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Artifact:
    """What a folder holds; `kind` is model or cutoff, `name` the class that can take it up again."""

    kind: str
    name: str
    params: dict[str, Any]
    arrays: Arrays
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def save_artifact(path: str | Path, parts: Artifact) -> Path:
    """Write the folder beside its place and rename it in; an older model there is replaced in one step."""
    target = Path(path)
    refuse_foreign(target)
    with write_beside(target) as room:
        room.mkdir()
        try:
            save_file({name: np.ascontiguousarray(a) for name, a in parts.arrays.items()}, room / ARRAYS)
            for name, table in parts.tables.items():
                table.write_parquet(room / f"{name}.parquet")
        except (SafetensorError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"cannot write {target}: {error}; free some space or choose another place."
            ) from None
        header = {
            "format": FORMAT,
            "version": VERSION,
            "kind": parts.kind,
            "class": parts.name,
            "params": parts.params,
            "notes": parts.notes,
            "tables": sorted(parts.tables),
            "sha256": {file.name: _hash_file(file) for file in sorted(room.iterdir())},
        }
        header["checksum"] = _hash_header(header)
        (room / HEADER).write_text(json.dumps(header, indent=2, allow_nan=False, default=_plain) + "\n")
    return target


def refuse_foreign(target: Path) -> None:
    """Refuse a path where something stands that we did not write."""
    if target.exists() and not (target / HEADER).is_file():
        raise DataError(f"{target} exists and is not a saved model; choose a path that is free.")


def read_header(path: str | Path) -> dict[str, Any]:
    """model.json, checked for format, version and its own checksum; the big parts are not read."""
    file = Path(path) / HEADER
    if not file.is_file():
        raise ModelFileError(f"no saved model at {path}: {HEADER} is missing; check the path or save again.")
    try:
        header = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{file} cannot be read ({error}); save the model again.") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError(f"{file} does not describe a saved model; check the path.")
    if header.get("version") != VERSION:
        raise ModelFileError(
            f"{file} is of format version {header.get('version')}, this release reads {VERSION}; "
            "save the model again with this release, or install the one that wrote it."
        )
    if header.get("checksum") != _hash_header(header):
        raise ModelFileError(f"{file} was changed after it was written (its checksum differs); save again.")
    return header


def load_artifact(path: str | Path, kind: str) -> Artifact:
    """Read a folder back; every byte is verified first."""
    folder = Path(path)
    header = read_header(folder)
    if header["kind"] != kind:
        raise ModelFileError(f"{folder} holds a {header['kind']}, not a {kind}; load it as what it is.")
    for name, expected in header["sha256"].items():
        file = folder / name
        if not file.is_file():
            raise ModelFileError(f"{folder} is incomplete: {name} is missing; save the model again.")
        if _hash_file(file) != expected:
            raise ModelFileError(f"{file} is damaged or was edited (its checksum differs); save again.")
    try:
        arrays = load_file(folder / ARRAYS)
        tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in header["tables"]}
    except (OSError, SafetensorError, pl.exceptions.PolarsError) as error:
        raise ModelFileError(f"{folder} cannot be read ({error}); save the model again.") from None
    return Artifact(kind, header["class"], header["params"], arrays, tables, header["notes"])


def _hash_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_header(header: dict[str, Any]) -> str:
    body = {key: value for key, value in header.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """NumPy scalars as JSON can hold them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
