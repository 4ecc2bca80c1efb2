"""Which files are meant, what format they have, and what went wrong when one could not be read."""

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
PACKED = (".gz", ".zst", ".zstd")
KNOWN = ", ".join(FORMATS) + ", each also .gz or .zst"


def find(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files meant, sorted; at least one."""
    if not isinstance(source, (str, Path)):
        found = [path for one in source for path in find(one)]
        if not found:
            raise DataError("a list of files must name at least one, got an empty list; name one.")
        return found
    path = Path(source).expanduser()
    if path.is_file():
        return [_filled(path)]
    if path.is_dir():
        return _inside(path)
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
    found = sorted(Path(name) for name in names if Path(name).is_file())
    if found:
        return list(map(_filled, found))
    if glob.has_magic(str(path)):
        raise DataError(
            f"{path}: a pattern must match at least one file, got none; check the folder and the ending."
        )
    raise DataError(f"{path}: no such file; {_near(path)}")


def _filled(path: Path) -> Path:
    if path.stat().st_size == 0:
        raise DataError(
            f"{path}: a data file must hold at least one row, got an empty file; export it again."
        )
    return path


def _inside(folder: Path) -> list[Path]:
    """The data files below a folder; what is hidden or begun with _ is bookkeeping."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    shown = [path for path in files if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    found = [path for path in shown if _suffix(path) in FORMATS]
    if not found:
        raise DataError(f"{folder}: a folder must hold data files ({KNOWN}), got none; name the file itself.")
    return list(map(_filled, found))


def _near(path: Path) -> str:
    """Did you mean, or which folder is missing."""
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist either; check the path."
    near = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "check the path."


def _suffix(path: Path) -> str:
    """The ending that tells the format, below any compression."""
    plain = Path(path.stem) if path.suffix.lower() in PACKED else path
    return plain.suffix.lower()


def kind_of(paths: list[Path]) -> Format:
    kinds = {FORMATS.get(_suffix(path)) for path in paths}
    if None in kinds:
        odd = next(path for path in paths if _suffix(path) not in FORMATS)
        raise DataError(
            f"{odd}: a data file must end in one of {KNOWN}, got {odd.suffix or 'no ending'!r}; "
            "rename it, or say format='csv'."
        )
    if len(kinds) > 1:
        listed = ", ".join(sorted(str(kind) for kind in kinds))
        raise DataError(
            f"{paths[0].parent}: all files must be of one format, got {listed}; name them by a pattern."
        )
    return next(kind for kind in kinds if kind)


# ---------------------------------------------------------------------- compression and complaints
def is_packed(path: Path) -> bool:
    """Compressed from outside."""
    return path.suffix.lower() in PACKED


def unpacked(path: Path) -> bytes:
    """The bytes of a file, compressed or not."""
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as file:
            return file.read()
    if not is_packed(path):
        return path.read_bytes()
    for module in ("compression.zstd", "zstandard"):  # the first is Python's own from 3.14 on
        if find_spec(module.partition(".")[0]) is not None:
            return bytes(import_module(module).decompress(path.read_bytes()))
    if find_spec("pyarrow") is not None:
        with import_module("pyarrow").input_stream(path, compression="zstd") as stream:
            return bytes(stream.read())
    raise DataError(
        "a Parquet file in zstd needs the package zstandard; install it, or unpack the file first."
    )


def explained(error: Exception, paths: list[Path], kind: str, separator: str | None) -> DataError:
    """What the reader's failure means, and for which file."""
    path = next((path for path in paths if not _opens(path)), paths[0])
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, PermissionError):
        return DataError(f"{path}: the file must be readable, got no permission; change its rights.")
    if is_packed(path) and not _opens(path):
        return DataError(
            f"{path}: the compressed file must be whole, got one cut short or damaged; fetch it again."
        )
    if isinstance(error, pl.exceptions.NoDataError) or "empty" in said.lower():
        return DataError(
            f"{path}: a data file must hold at least one row, got an empty file; export it again."
        )
    if kind == "parquet":
        return DataError(
            f"{path}: the file must be Parquet, got something else ({said}); check what wrote it."
        )
    if "utf-8" in said or "utf8" in said:
        return DataError(f"{path}: the file must be UTF-8 text, got other bytes; convert it first.")
    if "schema" in said.lower() and len(paths) > 1:
        return DataError(
            f"{path.parent}: all files must have the same columns, got different ones; read them apart."
        )
    if separator is not None:
        rule = _ragged(path, separator) or f"a text table must be well formed, got {said!r}"
        return DataError(f"{path}: {rule}; mend the file, or pass another separator.")
    return DataError(f"{path}: {_not_json(path) or said}; mend the file.")


def _opens(path: Path) -> bool:
    """Whether a file begins and ends as its ending promises."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as file:
                while file.read(1 << 20):
                    pass
        elif is_packed(path):
            pl.read_csv(path, has_header=False, separator="\x01", quote_char=None, infer_schema=False)
        return True
    except (OSError, EOFError, pl.exceptions.PolarsError):
        return False


def _ragged(path: Path, separator: str) -> str:
    """Which row of a text file has more fields than the header, in words; nothing if none has."""
    if path.suffix.lower() in PACKED[1:]:
        return ""
    with gzip.open(path, "rt") if is_packed(path) else path.open(newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        width = len(next(rows))
        for number, row in enumerate(rows, start=1):
            if len(row) > width:
                return f"row {number}: a row must have as many fields as the header ({width}), got {len(row)}"
    return ""


def _not_json(path: Path) -> str:
    """Which line is not a JSON object, in words; nothing if all are."""
    for number, line in enumerate(unpacked(path).splitlines(), start=1):
        try:
            good = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError:
            good = False
        if not good:
            return (
                f"row {number}: every line must be a JSON object, got {line[:60].decode(errors='replace')!r}"
            )
    return ""
