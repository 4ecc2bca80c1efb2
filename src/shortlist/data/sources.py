"""Find data files, detect their format, and explain why a file cannot be read."""

import csv
import glob
import io
import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import polars as pl

from shortlist.core.estimator import short_repr
from shortlist.data.compression import (
    COMPRESSED,
    ZSTD,
    damaged_error,
    decompress,
    is_compressed,
    plain_sources,
)
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri

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
DATABASES = (".db", ".sqlite", ".sqlite3")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
KNOWN = ", ".join(FORMATS) + ", each also .gz or .zst"


def find_files(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files of a path, folder or pattern, sorted; at least one."""
    if not isinstance(source, (str, Path)):
        found = [path for one in source for path in find_files(one)]
        if not found:
            raise DataError("a list of files must have at least one entry, got an empty list; add one.")
        return found
    path = _expand_user(Path(source))
    try:
        if path.is_file():
            return [_check_not_empty(path)]
        if path.is_dir():
            return _files_in(path)
        found = _match(path)
    except DataError:
        raise
    except (OSError, ValueError) as error:  # a name that is too long, a null byte, no permission
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{redact_uri(path)}: {reason}; check the path.") from None
    if found:
        return list(map(_check_not_empty, found))
    if glob.has_magic(str(path)):
        raise DataError(
            f"{redact_uri(path)}: a pattern must match at least one file, got none; check the folder and the "
            "extension."
        )
    raise DataError(f"{redact_uri(path)}: no such file; {_suggest(path)}")


def _expand_user(path: Path) -> Path:
    """The path with ~ replaced by the home folder, unless a folder or file has that very name."""
    try:
        return path if Path(*path.parts[:1]).exists() else path.expanduser()
    except (RuntimeError, OSError, ValueError):  # no such user; a name that is too long or has a null byte
        return path


def _match(pattern: Path) -> list[Path]:
    """The files that match a pattern; folders at its beginning that exist are taken literally."""
    literal, parts = Path(), []
    for part in pattern.parts:
        literal = literal / part
        parts.append(glob.escape(part) if literal.is_dir() else part)
    names = glob.glob(str(Path(*parts)), recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
    return sorted(Path(name) for name in names if Path(name).is_file())


def open_sources(
    paths: list[Path], kind: str, encoding: str | None = None
) -> list[Path] | list[str] | list[bytes]:
    """What polars scans without treating a name as a pattern: paths, or the contents of compressed files."""
    whole = list(map(Path.absolute, paths))
    if encoding is not None:
        return _decode(whole, kind, encoding)
    if kind == "parquet":
        return list(map(decompress, whole)) if any(map(is_compressed, whole)) else whole
    sources = plain_sources(whole)
    if kind == "jsonl" and sources is whole:  # scan_ndjson has no glob=False
        return [glob.escape(str(path)) for path in whole]
    return sources


def check_encoding(kind: str, encoding: str | None) -> None:
    """Raise ConfigError for an encoding of what is no text table."""
    if encoding is not None and kind not in ("csv", "tsv", "inter"):
        raise ConfigError(
            f"encoding needs a text table such as CSV, got {kind}; omit it.", parameter="encoding"
        )


def _decode(paths: list[Path], kind: str, encoding: str) -> list[bytes]:
    """The contents of text files in another encoding, as UTF-8; they are read into memory."""
    check_encoding(kind, encoding)
    found = []
    for path in paths:
        try:
            found.append(decompress(path).decode(encoding).encode())
        except (LookupError, TypeError, ValueError) as error:
            if isinstance(error, UnicodeError):
                at = f" at byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else ""
                raise DataError(
                    f"{path}: the file must be {encoding} text, got other bytes{at}; pass another encoding, "
                    "such as 'cp1252' or 'utf-16'.",
                    parameter="encoding",
                ) from None
            raise ConfigError(
                f"encoding must be one that Python knows, got {short_repr(encoding)}; try 'latin-1', "
                "'cp1252' or 'utf-16'.",
                parameter="encoding",
            ) from None
    return found


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
        return f"the folder {redact_uri(path.parent)} does not exist either; check the path."
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
            f"{advise_format(other)}."
        )
    if len(kinds) > 1:
        listed = ", ".join(sorted(str(kind) for kind in kinds))
        raise DataError(
            f"{paths[0].parent}: all files must have one format, got {listed}; select files with a pattern."
        )
    return next(kind for kind in kinds if kind)


def advise_format(path: Path) -> str:
    """What to do with a file that is no data file, by its suffix."""
    if path.suffix.lower() in DATABASES:
        return f"read a SQLite database as sqlite:///{path} and name its table (table=…, --table)"
    if path.suffix.lower() in SPREADSHEETS:
        return "save the sheet as CSV"
    if path.suffix.lower() == ".shortlist":
        return "it is a saved model; pass the file with the interactions"
    return "rename it, or call read_interactions with format='csv'"


def explain_read_error(
    error: BaseException, paths: list[Path], kind: str, separator: str | None
) -> DataError:
    """The error of a reader as a DataError that names the file and the problem."""
    path = next((path for path in paths if not _is_readable(path)), paths[0])
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, PermissionError):
        return DataError(f"{path}: no permission to read the file; change its permissions.")
    if not _is_readable(path):
        return damaged_error(path)
    if isinstance(error, pl.exceptions.NoDataError) or "empty" in reason.lower():
        return _empty_error(path)
    if kind == "parquet":
        return DataError(f"{path}: the file is not valid Parquet ({reason[:200]}); check how it was written.")
    if "utf-8" in reason or "utf8" in reason:
        return DataError(
            f"{path}: the file must be UTF-8 text, got other bytes; pass its encoding, such as "
            "encoding='cp1252' (--encoding cp1252), or convert it.",
            parameter="encoding",
        )
    if "schema" in reason.lower() and len(paths) > 1:
        return DataError(
            f"{path.parent}: all files must have the same columns, got different ones; read them separately."
        )
    if separator is not None:
        rule = _find_long_row(path, separator) or f"a text table must be well formed, got {reason[:150]!r}"
        return DataError(f"{path}: {rule}; correct the file, or pass another separator.")
    if "DepthLimitExceeded" in reason:
        return DataError(f"{path}: a line must not be nested hundreds of levels deep; export flat rows.")
    return DataError(f"{path}: {_find_invalid_json(path) or reason[:200]}; correct the file.")


def _is_readable(path: Path) -> bool:
    """Whether a zstd file can be read to its end; others have been read already."""
    try:
        with path.open("rb") as file:
            if file.read(4) != ZSTD:
                return True
        pl.read_csv(
            path.absolute(),
            glob=False,
            has_header=False,
            separator="\x01",
            quote_char=None,
            infer_schema=False,
        )
        return True
    except (OSError, pl.exceptions.PolarsError):
        return False


def _find_long_row(path: Path, separator: str) -> str:
    """A sentence about the first row with more fields than the header, or nothing."""
    lines = io.StringIO(decompress(path).decode(errors="replace"), newline="")
    try:
        rows = csv.reader(lines, delimiter=separator)
        width = len(next(rows))
        for number, row in enumerate(rows, start=1):
            if len(row) > width:
                return f"row {number}: a row must have as many fields as the header ({width}), got {len(row)}"
    except (csv.Error, StopIteration, ValueError, TypeError):  # a separator or text that this module refuses
        pass
    return ""


def _find_invalid_json(path: Path) -> str:
    """A sentence about the first line that is not a JSON object, or nothing."""
    for number, line in enumerate(decompress(path).splitlines(), start=1):
        got = line[:60].decode(errors="replace")
        try:
            if not line.strip() or isinstance(json.loads(line), dict):
                continue
        except RecursionError:
            return f"row {number}: a JSON object must not be nested deeply, got {got!r}"
        except ValueError:
            pass
        return f"row {number}: every line must be a JSON object, got {got!r}"
    return ""
