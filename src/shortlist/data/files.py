"""Read interactions from files and databases."""

import csv
import glob
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal

import polars as pl

from shortlist.core.params import short_repr
from shortlist.data.columns import (
    REQUIRED,
    ColumnNames,
    NegativeWeights,
    Table,
    check_distinct,
    match_columns,
)
from shortlist.data.filters import check_trainable
from shortlist.data.ids import id_kind
from shortlist.data.interactions import Interactions
from shortlist.data.sql import is_uri, read_sql
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri

COMPRESSED = (".gz", ".zst", ".zstd")
GZIP, ZSTD, ZLIB = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"x\x01", b"x\x9c", b"x\xda")
CHUNK = 1 << 20
ALWAYS_ALLOWED = 256 << 20  # bytes after decompression at which the ratio begins to matter
MAX_RATIO = 100  # text tables shrink to a third … a fiftieth
MAX_BYTES = 4 << 30
ZSTD_BLOCK = 128 << 10  # no block of zstd expands to more


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
        if start == ZSTD:
            check_zstd(path)
    if not any(start[:2] == GZIP for start in starts):
        return paths
    return [decompress(path) for path in paths]


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def decompress(path: Path) -> bytes:
    """The contents of a file, decompressed if it starts like a gzip or zstd file; bounded."""
    start = _start(path)
    if start[:2] != GZIP and start != ZSTD:
        if is_compressed(path):
            raise damaged_error(path)
        return path.read_bytes()
    chunks, size = [], 0
    try:
        for chunk in _gzip_chunks(path) if start[:2] == GZIP else _zstd_chunks(path):
            size += len(chunk)
            check_size(path, size)
            chunks.append(chunk)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, gzip.BadGzipFile):
            raise
        raise damaged_error(path) from None
    found = b"".join(chunks)
    if found[:2] == GZIP or found[:4] == ZSTD:
        raise DataError(f"{path}: the file is compressed twice; decompress it once.")
    return found


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


def _gzip_chunks(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    """The contents of a zstd file, through the standard library (Python 3.14), zstandard or pyarrow."""
    with path.open("rb") as raw:
        stream: Any
        if find_spec("compression") is not None:
            stream = import_module("compression.zstd").ZstdFile(raw)
        elif find_spec("zstandard") is not None:
            stream = import_module("zstandard").ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        elif find_spec("pyarrow") is not None:
            stream = import_module("pyarrow").CompressedInputStream(raw, "zstd")
        else:
            raise DataError(
                f"{path}: this zstd file needs the package zstandard; install it, or decompress the file."
            )
        while chunk := bytes(stream.read(CHUNK)):
            yield chunk


def check_zstd(path: Path) -> None:
    """Raise DataError if a zstd file expands beyond the limit; its block headers alone give a bound."""
    try:
        with path.open("rb") as file:
            check_size(path, zstd_bound(file))
    except DataError:
        if all(find_spec(name) is None for name in ("compression", "zstandard", "pyarrow")):
            raise
        size = 0
        try:
            for chunk in _zstd_chunks(path):  # many small blocks make the bound too high
                check_size(path, size := size + len(chunk))
        except OSError:
            raise damaged_error(path) from None


def zstd_bound(file: BinaryIO) -> int:
    """An upper bound of the decompressed size, without decompressing (RFC 8878, section 3.1)."""
    total = 0
    while len(magic := file.read(4)) == 4:
        if magic[1:] == b"\x2a\x4d\x18" and magic[0] & 0xF0 == 0x50:  # a skippable frame
            file.seek(int.from_bytes(file.read(4), "little"), 1)
            continue
        if magic != ZSTD:
            break
        flags = (file.read(1) or b"\0")[0]
        single = flags >> 5 & 1
        content = (single, 2, 4, 8)[flags >> 6]
        file.seek((1 - single) + (0, 1, 2, 4)[flags & 3] + content, 1)
        total += _blocks_bound(file)
        file.seek(4 if flags >> 2 & 1 else 0, 1)
    return total


def _blocks_bound(file: BinaryIO) -> int:
    """The bound of one frame; the file is left behind its last block."""
    total = 0
    while len(raw := file.read(3)) == 3:
        header = int.from_bytes(raw, "little")
        kind, size = header >> 1 & 3, header >> 3
        total += ZSTD_BLOCK if kind == 2 else size  # 0: stored, 1: one byte repeated
        file.seek(1 if kind == 1 else size, 1)
        if header & 1:
            break
    return total


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


ID_ROLES = ("user_id", "item_id", "basket_id")
# The text of a JSON value that is not a string; polars converts such values if the column also has strings.
BARE = r"^(-?\d|true$|false$|\{|\[)"


def check_json_ids(paths: list[Path], frame: pl.LazyFrame, given: ColumnNames) -> pl.DataFrame:
    """Collect the needed columns; raise DataError for an id of another type than the others."""
    try:
        roles = match_columns(frame.collect_schema().names(), given)
        rows = frame.select(list(roles.values())).collect()
    except pl.exceptions.PolarsError:
        explain_json_error(paths, given)
        raise
    check_converted(paths, rows, [roles[role] for role in ID_ROLES if role in roles])
    return rows


def check_converted(paths: list[Path], rows: pl.DataFrame, names: Iterable[str]) -> None:
    """Raise DataError if a column of strings holds values that are no strings in the files."""
    for name in names:
        if rows[name].dtype == pl.String and rows[name].str.contains(BARE).any():
            _check_column(paths, name)


def explain_json_error(paths: list[Path], given: ColumnNames) -> None:
    """Raise DataError if polars failed because an id has another type than the others."""
    names = next((list(row) for path in paths for _, row in _objects(path)), [])
    roles = match_columns(names, given) if names else {}
    for role in ID_ROLES:
        if role in roles:
            _check_column(paths, roles[role], skip_strings=False)


def _check_column(paths: list[Path], name: str, *, skip_strings: bool = True) -> None:
    """Raise DataError for the first value that is no id, or has another type than the first one."""
    first: Any = None
    for path in paths:
        for number, row in _objects(path, name if skip_strings else None):
            value = row.get(name)
            if value is None:
                continue
            first = ("" if skip_strings else value) if first is None else first
            kind = id_kind(value)
            if kind is None or kind != id_kind(first):
                rule = (
                    "an id must be a string or an integer" if kind is None else "all ids must have one type"
                )
                raise DataError(
                    f"column {name!r}, row {number}: {rule}, got {json.dumps(value)[:60]}, while others are "
                    f"{id_kind(first) or 'other value'}s; write all ids as strings, or all as integers."
                )


def _objects(path: Path, skip_strings_of: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row, object) of the lines of a file; lines whose column is a string can be skipped, which is fast."""
    key = re.escape(json.dumps(skip_strings_of, ensure_ascii=False)).encode()
    bare, present = re.compile(key + rb'\s*:\s*[^"\s]'), re.compile(key + rb"\s*:")
    for number, line in enumerate(_lines(path), start=1):
        if skip_strings_of is not None and bare.search(line) is None and present.search(line) is not None:
            continue
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield number, row


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not."""
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as file:
            yield from file
    elif is_compressed(path):
        yield from decompress(path).splitlines()
    else:
        with path.open("rb") as file:
            yield from file


Missing = Literal["error", "drop"]


def check_missing(missing: Any) -> None:
    """Raise ConfigError unless rows without an id are an error or dropped."""
    if missing not in ("error", "drop"):
        raise ConfigError(
            f"missing must be 'error' or 'drop', got {short_repr(missing)}; choose one.", parameter="missing"
        )


def select_known(rows: Any, given: ColumnNames, missing: Missing) -> tuple[Any, str | None]:
    """(the rows with a user and an item, a sentence on the others); polars tables, lazy or not."""
    if missing == "error":
        return rows, None  # an error follows when the ids are read
    schema = rows.collect_schema()
    roles = match_columns(schema.names(), given)
    known = pl.lit(True)
    for role in REQUIRED:
        column = pl.col(roles[role])
        known &= column.is_not_null()
        if schema[roles[role]] == pl.String:
            known &= column != ""
    counted = rows.lazy().select(n=pl.len(), known=known.sum()).collect()
    n_rows, n_known = counted.row(0)
    if n_rows == n_known:
        return rows, None
    names = " or ".join(repr(roles[role]) for role in REQUIRED)
    if not n_known:
        raise DataError(
            f"{n_rows:,} of {n_rows:,} rows have no {names}, which leaves none; check the columns."
        )
    return rows.filter(known), f"{n_rows - n_known:,} of {n_rows:,} rows have no {names} and were dropped."


SEPARATORS = {"csv": ",", "tsv": "\t", "inter": "\t"}  # inter: atomic file of RecBole
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

PREVIEW_ROWS = 1000  # checked first, because most columns of strings can be recognized by them
NUMBER = re.compile(r"^-?\d+(\.\d+)?(_duplicated_\d+)?$")  # polars renames duplicate columns


def read_interactions(
    source: str | Path | Sequence[str | Path],
    *,
    user_id: str | None = None,
    item_id: str | None = None,
    timestamp: str | None = None,
    weight: str | None = None,
    basket_id: str | None = None,
    item_name: str | None = None,
    time_format: str | None = None,
    negative_weights: NegativeWeights = "drop",
    min_rating: float | None = None,
    missing: Missing = "error",
    format: Format | None = None,  # noqa: A002  the usual name of this option
    separator: str | None = None,
    header: Sequence[str] | None = None,
    encoding: str | None = None,
    query: str | None = None,
    table: str | None = None,
    training: bool = True,
) -> Interactions:
    """Read interactions from files or a database.

    Parameters
    ----------
    source
        File (CSV, TSV, Parquet, JSON Lines, RecBole; also .gz or .zst), folder, glob pattern, list of files,
        or database URI such as "sqlite:///shop.db".
    user_id, item_id, timestamp, weight, basket_id, item_name
        Column names. None finds the column by its conventional name or a common alias such as `customer_id`;
        "" ignores an optional column. Models use weights if their `weighting` is not "none".
    time_format
        Format of timestamps that are neither numbers nor ISO 8601, such as "%d.%m.%Y".
    negative_weights
        Whether to drop rows with a negative weight, such as returns, with a warning, or to keep them.
    min_rating
        The lowest weight that counts as liked. Rows below it are negative feedback: they are dropped, or kept
        with the (negative) distance from `min_rating` as weight, as `negative_weights` says.
    missing
        Whether a row without a user or an item, such as the order of a guest, is an error, or dropped and
        counted in `source`.
    format
        File format, for files without a known extension.
    separator
        Field separator of a text file.
    header
        Column names of a text file that has no header line.
    encoding
        Encoding of a text file, such as "latin-1", "cp1252" or "utf-16"; None: UTF-8. The whole file is read
        into memory.
    query, table
        SQL query or table name; a database needs exactly one of them.
    training
        Whether to reject data with fewer than two users or items.

    Returns
    -------
    Interactions

    Raises
    ------
    DataError
        If the source cannot be read, a required column is missing, or a value is invalid.
    ConfigError
        If options contradict each other.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("events.csv").write_text("user,item,date\\nann,milk,2024-05-01\\nbob,tea,2024-05-02\\n")
    >>> sl.read_interactions("events.csv")
    Interactions(2 rows, 2 users, 2 items, 2 baskets)
    """
    given = ColumnNames(user_id, item_id, timestamp, weight, basket_id, item_name)
    check_missing(missing)
    if isinstance(source, str) and is_uri(source):
        label = source.partition(":")[0] + " database"
        check_encoding(label, encoding)

        def query_table() -> Table:
            names: list[str] = []  # of all columns, if only those needed are fetched

            def needed(found: list[str]) -> list[str]:
                names.extend(found)
                return list(match_columns(check_distinct(found), given).values())

            rows, dropped = select_known(read_sql(source, query, table, needed), given, missing)
            found = Table(
                rows,
                given,
                time_format=time_format,
                negative_weights=negative_weights,
                min_rating=min_rating,
                label=label,
                whole=pl.LazyFrame(schema=dict.fromkeys(names, pl.Null)) if names else None,
            )
            return _noted(found, dropped)

        return _build(query_table, label, training)
    if query is not None or table is not None:
        raise ConfigError(
            "query and table need a database such as sqlite:///shop.db, got "
            f"{redact_uri(source)[:80]!r}; omit them."
        )
    paths = find_files(source)
    kind = format or detect_format(paths)
    label = str(paths[0] if len(paths) == 1 or not isinstance(source, (str, Path)) else source)

    def scan_table() -> Table:
        scan = _scan(sources, kind, separator, header)
        rows = _parse_text(scan, given) if kind in SEPARATORS else scan
        if kind == "jsonl":
            rows = check_json_ids(paths, scan, given)
        rows, dropped = select_known(rows, given, missing)
        found = Table(
            rows,
            given,
            time_format=time_format,
            columnar=kind == "parquet",
            negative_weights=negative_weights,
            min_rating=min_rating,
            label=label,
            whole=scan,
        )
        return _noted(found, dropped)

    try:
        sources = open_sources(paths, kind, encoding)
        return _build(scan_table, label, training)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise explain_read_error(error, paths, kind, separator or SEPARATORS.get(kind)) from None


def _noted(table: Table, sentence: str | None) -> Table:
    """The table with a note."""
    if sentence is not None:
        table.note(sentence)
    return table


def _build(open_table: Callable[[], Table], label: str, training: bool) -> Interactions:
    """Interactions, or an error that names the source."""
    try:
        data = Interactions.from_table(open_table())
        if training:
            check_trainable(data)
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None
    return data


def _parse_text(frame: pl.LazyFrame, given: ColumnNames) -> pl.DataFrame:
    """The needed columns of a text table; ids that are all written as integers become integers."""
    roles = match_columns(frame.collect_schema().names(), given)
    text = frame.select(list(roles.values())).collect()
    return text.with_columns([parse_integers(text[roles[role]]) for role in REQUIRED])


def parse_integers(ids: pl.Series) -> pl.Series:
    """Integers if every id is a canonical integer, else the strings: 007 and +7 stay strings."""
    if len(ids) > PREVIEW_ROWS and parse_integers(ids.head(PREVIEW_ROWS)).dtype == pl.String:
        return ids
    whole = ids.cast(pl.Int64, strict=False)
    if whole.null_count() != ids.null_count():
        return ids
    unusual = (ids.str.starts_with("0") & (ids != "0")) | ids.str.starts_with("+") | ids.str.starts_with("-0")
    return ids if unusual.any() else whole


def _scan(sources: Any, kind: str, separator: str | None, header: Sequence[str] | None) -> pl.LazyFrame:
    """A lazy table over what `open_sources` returned; only headers are read."""
    if kind == "parquet":
        return pl.scan_parquet(sources, glob=False)
    if kind == "jsonl":
        return pl.scan_ndjson(sources, infer_schema_length=None)
    if kind not in SEPARATORS:
        raise ConfigError(f"format must be one of {sorted(set(FORMATS.values()))}, got {kind!r}; choose one.")
    separator = separator or SEPARATORS[kind]
    if len(separator.encode()) != 1:
        raise ConfigError(f"separator must be one ASCII character, got {separator!r}; pass ',' or ';'.")
    # Read as text until the roles of the columns are known: 007 is not 7, and errors can name the row.
    frame = pl.scan_csv(
        sources,
        glob=False,
        separator=separator,
        infer_schema=False,
        has_header=header is None,
        new_columns=list(header) if header else None,
        quote_char=None if kind == "inter" else '"',
    )
    if header is None:
        _check_header(frame.collect_schema().names(), separator)
    return frame


def _check_header(names: list[str], separator: str) -> None:
    """Raise DataError if the header has another separator, repeats a name, is a row of data, or not UTF-8."""
    if any("\0" in name for name in names):
        raise DataError(
            "the file must be UTF-8 text, got UTF-16 or binary; pass encoding='utf-16' "
            "(--encoding utf-16), or convert it.",
            parameter="encoding",
        )
    if len(names) > 1 and all(NUMBER.match(name) for name in names):
        raise DataError(
            f"the first line must name the columns, got {', '.join(names[:4])}; "
            "pass header=['user_id', 'item_id', …] for a file without a header."
        )
    check_distinct(names)
    other = max((mark for mark in SEPARATOR_NAMES if mark != separator), key=names[0].count)
    if len(names) == 1 and other in names[0]:
        own = SEPARATOR_NAMES.get(separator, repr(separator))
        raise DataError(
            f"the columns must be separated by {own}, got a header separated by {SEPARATOR_NAMES[other]} "
            f"({names[0]!r}); pass separator={other!r}.",
            parameter="separator",
        )
