"""Find data files, detect their format, and explain why a file cannot be read."""

import csv
import glob
import gzip
import json
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import polars as pl

from shortlist.errors import DataError

Format = Literal["csv", "tsv", "inter", "parquet", "jsonl"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".inter": "inter",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
COMPRESSED = (".gz", ".zst", ".zstd")
KNOWN = ", ".join(FORMATS) + ", each also .gz or .zst"


def find_files(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files of a path, folder or pattern, sorted; at least one."""
    if not isinstance(source, (str, Path)):
        found = [path for one in source for path in find_files(one)]
        if not found:
            raise DataError("a list of files must have at least one entry, got an empty list; add one.")
        return found
    path = Path(source).expanduser()
    if path.is_file():
        return [_check_not_empty(path)]
    if path.is_dir():
        return _files_in(path)
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
    found = sorted(Path(name) for name in names if Path(name).is_file())
    if found:
        return list(map(_check_not_empty, found))
    if glob.has_magic(str(path)):
        raise DataError(
            f"{path}: a pattern must match at least one file, got none; check the folder and the extension."
        )
    raise DataError(f"{path}: no such file; {_suggest(path)}")


def _check_not_empty(path: Path) -> Path:
    if path.stat().st_size == 0:
        raise _empty_error(path)
    return path


def _empty_error(path: Path) -> DataError:
    return DataError(f"{path}: the file is empty; a data file must have at least one row, export it again.")


def _files_in(folder: Path) -> list[Path]:
    """The data files below a folder, without names that start with . or _."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    shown = [path for path in files if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    found = [path for path in shown if _suffix(path) in FORMATS]
    if not found:
        raise DataError(f"{folder}: a folder must hold data files ({KNOWN}), got none; pass the file itself.")
    return list(map(_check_not_empty, found))


def _suggest(path: Path) -> str:
    """Similar names, or the missing folder."""
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist either; check the path."
    near = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "check the path."


def _suffix(path: Path) -> str:
    """The suffix that determines the format, without a compression suffix."""
    plain = Path(path.stem) if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower()


def detect_format(paths: list[Path]) -> Format:
    """The common format of the files, by their suffix."""
    kinds = {FORMATS.get(_suffix(path)) for path in paths}
    if None in kinds:
        other = next(path for path in paths if _suffix(path) not in FORMATS)
        raise DataError(
            f"{other}: a data file must end in one of {KNOWN}, got {other.suffix or 'no extension'!r}; "
            "rename it, or pass format='csv'."
        )
    if len(kinds) > 1:
        listed = ", ".join(sorted(str(kind) for kind in kinds))
        raise DataError(
            f"{paths[0].parent}: all files must have one format, got {listed}; select files with a pattern."
        )
    return next(kind for kind in kinds if kind)


def is_compressed(path: Path) -> bool:
    """Whether the file name has a compression suffix."""
    return path.suffix.lower() in COMPRESSED


def decompress(path: Path) -> bytes:
    """The bytes of a file, compressed or not."""
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as file:
            return file.read()
    if not is_compressed(path):
        return path.read_bytes()
    for module in ("compression.zstd", "zstandard"):  # the first is in the standard library since Python 3.14
        if find_spec(module.partition(".")[0]) is not None:
            return bytes(import_module(module).decompress(path.read_bytes()))
    if find_spec("pyarrow") is not None:
        with import_module("pyarrow").input_stream(path, compression="zstd") as stream:
            return bytes(stream.read())
    raise DataError(
        "a zstd-compressed Parquet file needs the package zstandard; install it, or decompress the file."
    )


def explain_read_error(error: Exception, paths: list[Path], kind: str, separator: str | None) -> DataError:
    """The error of a reader as a DataError that names the file and the problem."""
    path = next((path for path in paths if not _is_readable(path)), paths[0])
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, PermissionError):
        return DataError(f"{path}: no permission to read the file; change its permissions.")
    if is_compressed(path) and not _is_readable(path):
        return DataError(f"{path}: the compressed file is truncated or damaged; download or export it again.")
    if isinstance(error, pl.exceptions.NoDataError) or "empty" in reason.lower():
        return _empty_error(path)
    if kind == "parquet":
        return DataError(f"{path}: the file is not valid Parquet ({reason}); check how it was written.")
    if "utf-8" in reason or "utf8" in reason:
        return DataError(f"{path}: the file must be UTF-8 text, got other bytes; convert it first.")
    if "schema" in reason.lower() and len(paths) > 1:
        return DataError(
            f"{path.parent}: all files must have the same columns, got different ones; read them separately."
        )
    if separator is not None:
        rule = _find_long_row(path, separator) or f"a text table must be well formed, got {reason[:150]!r}"
        return DataError(f"{path}: {rule}; correct the file, or pass another separator.")
    return DataError(f"{path}: {_find_invalid_json(path) or reason[:200]}; correct the file.")


def _is_readable(path: Path) -> bool:
    """Whether a compressed file can be read to its end."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as file:
                while file.read(1 << 20):
                    pass
        elif is_compressed(path):
            pl.read_csv(path, has_header=False, separator="\x01", quote_char=None, infer_schema=False)
        return True
    except (OSError, EOFError, pl.exceptions.PolarsError):
        return False


def _find_long_row(path: Path, separator: str) -> str:
    """A sentence about the first row with more fields than the header, or nothing."""
    if path.suffix.lower() in COMPRESSED[1:]:
        return ""
    with gzip.open(path, "rt") if is_compressed(path) else path.open(newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        width = len(next(rows))
        for number, row in enumerate(rows, start=1):
            if len(row) > width:
                return f"row {number}: a row must have as many fields as the header ({width}), got {len(row)}"
    return ""


def _find_invalid_json(path: Path) -> str:
    """A sentence about the first line that is not a JSON object, or nothing."""
    for number, line in enumerate(decompress(path).splitlines(), start=1):
        try:
            good = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError:
            good = False
        if not good:
            return (
                f"row {number}: every line must be a JSON object, got {line[:60].decode(errors='replace')!r}"
            )
    return ""
