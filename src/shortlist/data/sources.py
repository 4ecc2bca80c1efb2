"""Find data files, open them, compressed or not, and explain why they cannot be read."""

import csv
import glob
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from shortlist.data.columns import check_distinct, match_columns
from shortlist.data.ids import id_kind
from shortlist.data.read_options import ColumnNames, Format, advise_reading
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri, short_repr

COMPRESSED = (".gz", ".zst", ".zstd")
GZIP, ZSTD, ZLIB = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"x\x01", b"x\x9c", b"x\xda")
CHUNK = 1 << 20
ALWAYS_ALLOWED = 256 << 20  # bytes after decompression at which the ratio begins to matter
MAX_RATIO = 100  # text tables shrink to a third … a fiftieth
MAX_BYTES = 4 << 30


def is_compressed(path: Path) -> bool:
    """Whether the file name has a compression suffix."""
    return path.suffix.lower() in COMPRESSED


def plain_sources(paths: list[Path]) -> list[Path] | list[bytes]:
    """What polars may read: the paths, or the contents if a file is compressed.

    The first bytes decide, not the names, because polars decompresses whatever starts like a compressed file.
    """
    starts = [_start(path) for path in paths]
    for path, start in zip(paths, starts, strict=True):
        if start[:2] in ZLIB:
            raise DataError(f"{path}: zlib-compressed files are not supported; decompress the file.")
    return [decompress(path) for path in paths] if any(map(_is_packed, starts)) else paths


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _is_packed(start: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed by gzip or zstd."""
    return start[:2] == GZIP or start[:4] == ZSTD


def decompress(path: Path) -> bytes:
    """The contents of a file, decompressed if it starts like a gzip or zstd file; bounded."""
    if not _is_packed(_start(path)):
        if is_compressed(path):
            raise damaged_error(path)
        return path.read_bytes()
    chunks, size = [], 0
    try:
        with open_packed(path) as stream:
            while chunk := bytes(stream.read(CHUNK)):
                size += len(chunk)
                check_size(path, size)
                chunks.append(chunk)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, gzip.BadGzipFile):
            raise
        raise damaged_error(path) from None
    content = b"".join(chunks)
    if _is_packed(content):
        raise DataError(f"{path}: the file is compressed twice; decompress it once.")
    return content


@contextmanager
def open_packed(path: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed; zstd needs the standard library (3.14), zstandard or pyarrow."""
    with path.open("rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        if start[:2] == GZIP:
            yield gzip.GzipFile(fileobj=raw)
        elif start != ZSTD:
            yield raw
        elif find_spec("compression") is not None:
            yield import_module("compression.zstd").ZstdFile(raw)
        elif find_spec("zstandard") is not None:
            yield import_module("zstandard").ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        elif find_spec("pyarrow") is not None:
            yield import_module("pyarrow").CompressedInputStream(raw, "zstd")
        else:
            raise DataError(
                f"{path}: this zstd file needs the package zstandard; install it, or decompress the file."
            )


def damaged_error(path: Path) -> DataError:
    """The error for a compressed file that cannot be read to its end."""
    return DataError(f"{path}: the compressed file is truncated or damaged; download or export it again.")


def check_size(path: Path, size: int) -> None:
    """Raise DataError if a file may not expand to `size` bytes."""
    ratio = size / max(path.stat().st_size, 1)
    if size > MAX_BYTES or (size > ALWAYS_ALLOWED and ratio > MAX_RATIO):
        limit = f"{MAX_BYTES >> 30} GB" if size > MAX_BYTES else f"{MAX_RATIO} times its size"
        raise DataError(
            f"{path}: the compressed file must not expand to more than {limit}, got more; if you trust it, "
            "decompress it and read the result."
        )


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
SEPARATORS = {"csv": ",", "tsv": "\t", "inter": "\t"}  # inter: atomic file of RecBole
BARE_SUFFIXES: dict[str, Format] = {".txt": "csv", ".json": "jsonl"}  # only of files that are named
PREVIEW_ROWS = 1000  # checked first, because most columns of strings can be recognized by them


def find_files(source: Any) -> list[Path]:
    """The files of a path, folder or pattern, sorted; at least one."""
    if not isinstance(source, (str, Path)):
        if not isinstance(source, Sequence) or not all(isinstance(entry, (str, Path)) for entry in source):
            raise DataError(
                "source must be a path, a list of paths, a database URI or a polars, pandas or Arrow table, "
                f"got {short_repr(source)} ({type(source).__name__}); for rows use Interactions.from_tuples, "
                "for a matrix Interactions.from_csr."
            )
        paths = [path for entry in source for path in find_files(entry)]
        if not paths:
            raise DataError("a list of files must have at least one entry, got an empty list; add one.")
        return paths
    path = Path(source)
    try:
        if path.is_file():
            return [_check_not_empty(path)]
        if path.is_dir():
            return _files_in(path)
        matches = _match(path)
    except DataError:
        raise
    except (OSError, ValueError) as error:  # a name that is too long, a null byte, no permission
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{redact_uri(path)}: {reason}; check the path.") from None
    if matches:
        return list(map(_check_not_empty, matches))
    if glob.has_magic(str(path)):
        raise DataError(
            f"{redact_uri(path)}: a pattern must match at least one file, got none; check the folder and the "
            "extension."
        )
    raise DataError(f"{redact_uri(path)}: no such file; {_suggest(path)}")


def _match(pattern: Path) -> list[Path]:
    """The files that match a pattern; folders at its beginning that exist are taken literally."""
    literal, parts = Path(), []
    for name in pattern.parts:
        literal = literal / name
        parts.append(glob.escape(name) if literal.is_dir() else name)
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


SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
HEAD = 1 << 16  # bytes that show how a text table is written
WINDOWS = "cp1252"  # the encoding of text that is not UTF-8, unless another is given
NOT_UTF8 = (
    f"the file is not UTF-8 and was read as {WINDOWS}; if it is another: {advise_reading(encoding='…')}."
)


class Dialect(NamedTuple):
    """How a text table is written, and sentences on what was recognized."""

    separator: str
    encoding: str | None = None
    skipped: int = 0  # lines before the header
    notes: tuple[str, ...] = ()


def recognize_dialect(path: Path, kind: str, separator: str | None, encoding: str | None) -> Dialect:
    """The separator and encoding of a text table, as given or from its first lines; None: UTF-8."""
    head, notes = _head_bytes(path), list[str]()
    if encoding is None and head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
        notes.append("the file is UTF-16 text.")
    elif encoding is None and _is_other_text(head):
        encoding = WINDOWS
        notes.append(NOT_UTF8)
    try:
        text = head.decode(encoding or "utf-8", errors="replace").removeprefix("\ufeff")
    except (LookupError, TypeError):
        text = ""  # an error follows when the file is decoded
    lines = text.splitlines()[:50]
    lines = lines[:-1] if len(head) == HEAD and len(lines) < 50 else lines
    default = SEPARATORS[kind]
    hint = re.fullmatch(r"sep=(.)", lines[0].strip()) if lines else None  # Excel writes it
    if separator is not None or kind == "inter":
        return Dialect(separator or default, encoding, int(hint is not None), tuple(notes))
    if hint is not None:
        return Dialect(hint[1], encoding, 1, tuple(notes))
    widths = {mark: _count_fields(lines, mark) for mark in SEPARATOR_NAMES}
    best = max(widths, key=lambda mark: (widths[mark], mark == default))
    if best == default or widths[best] < 2:
        return Dialect(default, encoding, 0, tuple(notes))
    notes.insert(0, f"the columns are separated by {SEPARATOR_NAMES[best]}.")
    return Dialect(best, encoding, 0, tuple(notes))


def _is_other_text(head: bytes) -> bool:
    """Whether bytes are text that is not UTF-8; the last character may be cut."""
    if b"\0" in head or head[:2] in ZLIB or _is_packed(head):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) < HEAD or error.start <= HEAD - 4
    return False


def _count_fields(lines: list[str], separator: str) -> int:
    """How many fields the header has, if nearly all lines have as many; else 0."""
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:
        return 0
    return widths[0] if widths and widths.count(widths[0]) >= 0.9 * len(widths) else 0


def _head_bytes(path: Path) -> bytes:
    """The first bytes of a file, decompressed; empty if it is damaged, which is reported later."""
    try:
        with open_packed(path) as stream:
            return bytes(stream.read(HEAD))
    except (OSError, EOFError, zlib.error, DataError):
        return b""


def is_json_array(path: Path) -> bool:
    """Whether a file is one JSON array instead of an object per line."""
    return _head_bytes(path).lstrip()[:1] == b"["


def check_encoding(kind: str, encoding: str | None) -> None:
    """Raise ConfigError for an encoding of what is no text table."""
    if encoding is not None and kind not in ("csv", "tsv", "inter"):
        raise ConfigError(
            f"encoding needs a text table such as CSV, got {kind}; omit it.", parameter="encoding"
        )


def _decode(paths: list[Path], kind: str, encoding: str) -> list[bytes]:
    """The contents of text files in another encoding, as UTF-8; they are read into memory."""
    check_encoding(kind, encoding)
    texts = []
    for path in paths:
        try:
            texts.append(decompress(path).decode(encoding).encode())
        except (LookupError, TypeError, ValueError) as error:
            if isinstance(error, UnicodeError):
                at = f" at byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else ""
                raise DataError(
                    f"{path}: the file must be {encoding} text, got other bytes{at}; use another encoding, "
                    "such as 'cp1252' or 'utf-16'.",
                    parameter="encoding",
                ) from None
            raise ConfigError(
                f"encoding must be one that Python knows, got {short_repr(encoding)}; try 'latin-1', "
                "'cp1252' or 'utf-16'.",
                parameter="encoding",
            ) from None
    return texts


def _check_not_empty(path: Path) -> Path:
    if path.stat().st_size == 0:
        raise _empty_error(path)
    return path


def _empty_error(path: Path) -> DataError:
    return DataError(f"{path}: the file is empty; a data file must have at least one row, export it again.")


def _files_in(folder: Path) -> list[Path]:
    """The data files below a folder, without names that start with . or _."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    shown = [path for path in files if not any(name[0] in "._" for name in path.relative_to(folder).parts)]
    tables = [path for path in shown if _suffix(path) in FORMATS]
    if not tables:
        raise DataError(f"{folder}: a folder must hold data files ({KNOWN}), got none; pass the file itself.")
    return list(map(_check_not_empty, tables))


def _suggest(path: Path) -> str:
    """Similar names, or the missing folder."""
    if not path.parent.is_dir():
        return f"the folder {redact_uri(path.parent)} does not exist either; check the path."
    near = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "check the path."


def _suffix(path: Path) -> str:
    """The suffix that determines the format, without a compression suffix."""
    return (Path(path.stem) if is_compressed(path) else path).suffix.lower()


def detect_format(paths: list[Path]) -> Format:
    """The common format of the files, by their suffix."""
    kinds = {(FORMATS | BARE_SUFFIXES).get(_suffix(path)) for path in paths}
    if None in kinds:
        other = next(path for path in paths if _suffix(path) not in FORMATS | BARE_SUFFIXES)
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
        return f"for SQLite, read sqlite:///{path} by {advise_reading(query='SELECT …')}"
    if path.suffix.lower() in SPREADSHEETS:
        return "save the sheet as CSV"
    if path.suffix.lower() == ".shortlist":
        return "it is a saved model; pass the file with the interactions"
    return f"rename it; or use {advise_reading(format='csv')}"


def find_sources(
    source: str | Path | Sequence[str | Path], kind: Format | None
) -> tuple[list[Path], Format, str]:
    """(files, their format, what to call them in messages)."""
    paths = find_files(source)
    label = paths[0] if len(paths) == 1 or not isinstance(source, (str, Path)) else source
    return paths, kind or detect_format(paths), str(label)


@contextmanager
def explain_errors(paths: list[Path], kind: str, separator: str | None = None) -> Iterator[None]:
    """Turn the errors of a reader into a DataError that names the file and the problem."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _explain_read_error(error, paths, kind, separator or SEPARATORS.get(kind)) from None


def is_encoding_error(error: BaseException) -> bool:
    """Whether a reader failed because a text is not UTF-8."""
    return "utf-8" in str(error) or "utf8" in str(error)


def _explain_read_error(
    error: BaseException, paths: list[Path], kind: str, separator: str | None
) -> DataError:
    """The error of a reader as a DataError that names the file and the problem."""
    path = paths[0]
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, PermissionError):
        return DataError(f"{path}: no permission to read the file; change its permissions.")
    if isinstance(error, pl.exceptions.NoDataError) or "empty" in reason.lower():
        return _empty_error(path)
    if kind == "parquet":
        return DataError(f"{path}: the file is not valid Parquet ({reason[:200]}); check how it was written.")
    if is_encoding_error(error):
        return DataError(
            f"{path}: the file must be UTF-8 text, got other bytes; convert it; or use "
            f"{advise_reading(encoding=WINDOWS)}.",
            parameter="encoding",
        )
    if "schema lengths" in reason and len(paths) > 1:
        return DataError(
            f"{path.parent}: all files must have the same columns, got different ones; read them separately."
        )
    if separator is not None:
        return DataError(
            f"{path}: a text table must be well formed, got {reason[:150]!r}; correct the file, or use "
            "another separator."
        )
    return DataError(
        f"{path}: lines must be JSON objects with the same types, got {reason[:150]!r}; correct the file."
    )


ID_ROLES = ("user_id", "item_id", "basket_id")
# The text of a JSON value that is not a string; polars converts such values if the column also has strings.
BARE = r"^(-?\d|true$|false$|\{|\[)"


def check_json_ids(paths: list[Path], frame: pl.LazyFrame, given: ColumnNames) -> pl.DataFrame:
    """Collect the needed columns; raise DataError for an id of another type than the others."""
    roles = match_columns(frame.collect_schema().names(), given)
    rows = frame.select(list(roles.values())).collect()
    check_converted(paths, rows, [roles[role] for role in ID_ROLES if role in roles])
    return rows


def check_converted(paths: list[Path], rows: pl.DataFrame, names: Iterable[str]) -> None:
    """Raise DataError if a column of strings holds values that are no strings in the files."""
    for name in names:
        if rows[name].dtype == pl.String and rows[name].str.contains(BARE).any():
            for path in paths:
                _check_strings(path, name)


def _check_strings(path: Path, name: str) -> None:
    """Raise DataError for the first value that is no string; only lines that may have one are parsed."""
    key = re.escape(json.dumps(name, ensure_ascii=False)).encode()
    bare, present = re.compile(key + rb'\s*:\s*[^"\s]'), re.compile(key + rb"\s*:")
    with io.BytesIO(decompress(path)) if _is_packed(_start(path)) else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or (bare.search(line) is None and present.search(line) is not None):
                continue
            value = json.loads(line).get(name)
            if value is not None and not isinstance(value, str):
                is_id = id_kind(value) is not None
                rule = "all ids must have one type" if is_id else "an id must be a string or an integer"
                raise DataError(
                    f"column {name!r}, row {number}: {rule}, got {json.dumps(value)[:60]}, while others are "
                    "strings; write all ids as strings, or all as integers."
                )


def parse_integers(ids: pl.Series) -> pl.Series:
    """Integers if every id is a canonical integer, else the strings: 007 and +7 stay strings."""
    if len(ids) > PREVIEW_ROWS and parse_integers(ids.head(PREVIEW_ROWS)).dtype == pl.String:
        return ids
    whole = ids.cast(pl.Int64, strict=False)
    if whole.null_count() != ids.null_count():
        return ids
    unusual = (ids.str.starts_with("0") & (ids != "0")) | ids.str.starts_with("+") | ids.str.starts_with("-0")
    return ids if unusual.any() else whole


def read_plain_table(
    paths: list[Path], kind: Format, find_ids: Callable[[list[str]], Iterable[str]]
) -> pl.DataFrame:
    """All columns of some files; ids of text files are integers if all of them are written as integers.

    `find_ids` chooses the columns with ids from the names of all columns.
    """
    sources: Any = open_sources(paths, kind)
    if kind == "parquet":
        return pl.scan_parquet(sources, glob=False).collect()
    if kind == "jsonl":
        return pl.scan_ndjson(sources, infer_schema_length=None).collect()
    separator = SEPARATORS[kind]
    names = pl.scan_csv(sources, separator=separator, glob=False).collect_schema().names()
    ids = list(find_ids(check_distinct(names)))
    frame = pl.scan_csv(
        sources,
        separator=separator,
        glob=False,
        infer_schema_length=None,
        try_parse_dates=True,
        schema_overrides=dict.fromkeys(ids, pl.String),
    ).collect()
    return frame.with_columns(parse_integers(frame[name]) for name in ids)
