"""Read interactions from files and databases."""

import csv
import glob
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from shortlist.core.options import take_options
from shortlist.data.columns import (
    PREVIEW_ROWS,
    REQUIRED,
    Table,
    check_distinct,
    column_names,
    match_columns,
    named_columns,
    preview_columns,
    row_conditions,
    settle_names,
    to_polars,
)
from shortlist.data.ids import id_kind
from shortlist.data.interactions import Interactions, check_trainable
from shortlist.data.profile import MIN_DOUBTED, with_doubts
from shortlist.data.read_options import ColumnNames, Format, ReadOptions, advise_reading
from shortlist.data.select import flat_types, path_value, select
from shortlist.data.sql import SCHEME, read_sql
from shortlist.errors import ConfigError, DataError
from shortlist.text import redact_uri, short_repr

# ---------------------------------------------------------------------- files on disk
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
CHECKED_FIRST = 1000  # rows, because most columns of strings can be recognized by them


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
    form = "lines of JSON objects with the same types" if separator is None else "a well-formed text table"
    return DataError(f"{path}: the file must be {form}, got {reason[:150]!r}; correct it.")


ID_ROLES = ("user_id", "item_id", "basket_id")
# The text of a JSON value that is not a string; polars converts such values if the column also has strings.
BARE = r"^(-?\d|true$|false$|\{|\[)"


def check_json_ids(paths: list[Path], frame: pl.LazyFrame, named: ColumnNames) -> pl.DataFrame:
    """Collect the needed columns; raise DataError for an id of another type than the others."""
    roles = match_columns(frame.collect_schema().names(), named)
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
    if len(ids) > CHECKED_FIRST and parse_integers(ids.head(CHECKED_FIRST)).dtype == pl.String:
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
    if kind == "parquet":
        parquet: Any = open_sources(paths, kind)
        return pl.scan_parquet(parquet, glob=False).collect()
    if kind == "jsonl":
        lines: Any = open_sources(paths, kind)
        return pl.scan_ndjson(lines, infer_schema_length=None).collect()
    dialect = recognize_dialect(paths[0], kind, None, None)
    sources: Any = open_sources(paths, kind, dialect.encoding)
    layout: Any = {"separator": dialect.separator, "skip_rows": dialect.skipped, "glob": False}
    names = pl.scan_csv(sources, **layout).collect_schema().names()
    ids = list(find_ids(check_distinct(names)))
    frame = pl.scan_csv(
        sources,
        **layout,
        infer_schema_length=None,
        try_parse_dates=True,
        schema_overrides=dict.fromkeys(ids, pl.String),
    ).collect()
    return frame.with_columns(parse_integers(frame[name]) for name in ids)


# ---------------------------------------------------------------------- tables of interactions
MAX_SPARK_ROWS = 100_000_000  # of a DataFrame that is collected
NUMBER = re.compile(r"^-?\d+(\.\d+)?(_duplicated_\d+)?$")  # polars renames duplicate columns


@take_options(ReadOptions)
def read_interactions(
    source: str | Path | Sequence[str | Path] | Any, *, options: ReadOptions
) -> Interactions:
    """Read interactions from files, a database or a table.

    What was recognized, dropped or is in doubt is kept in `source` of the result, and doubts are warnings.

    Parameters
    ----------
    source
        File (CSV, TSV, Parquet, JSON Lines, RecBole; also .gz or .zst), folder, glob pattern, list of files,
        database URI such as "sqlite:///shop.db", a polars, pandas or Arrow table, or a Spark DataFrame of at
        most 100 million rows.
    user_id, item_id, timestamp, weight, basket_id, item_name
        Column names. None finds the column by its conventional name or a common alias such as `customer_id`;
        "" ignores an optional column. Nested columns are paths: `item.id`, or `items[].item_id`, which gives
        each entry of the list a row. Models use weights if their `weighting` is not "none".
    time_format
        Format of timestamps that are neither numbers nor ISO 8601, such as "%d.%m.%Y". Without it, a format
        is used if it is the only common one that fits all rows.
    negative_weights
        What a negative quantity, such as a return, does: "subtract" it from the latest earlier purchases of
        the same user and item, and remove those of which nothing is left; "drop" the row; or "keep" it as
        negative feedback. Negative ratings are dropped instead of subtracted.
    min_rating
        The lowest weight that counts as liked. Rows below it are negative feedback: they are dropped, or kept
        with the (negative) distance from `min_rating` as weight, as `negative_weights` says.
    missing
        Whether a row without a user or an item, such as the order of a guest, is an error, or dropped and
        counted in `source`.
    where
        Condition in SQL for the rows to read, such as "event = 'purchase' and price > 0"; of several, all
        must be true.
    future
        Whether a time after tomorrow is an error, or such rows are dropped or kept.
    format
        File format, for files without a known extension.
    separator
        Field separator of a text file; None recognizes commas, semicolons, tabs and bars.
    header
        Column names of a text file that has no header line, as "user_id,item_id".
    encoding
        Encoding of a text file, such as "latin-1", "cp1252" or "utf-16". None is UTF-8, or "cp1252" for a
        file that is not UTF-8. Other text than UTF-8 is read into memory as a whole.
    query
        SQL query, which a database needs.
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

    if isinstance(source, str) and SCHEME.match(source):
        label = source.partition(":")[0] + " database"
        check_encoding(label, options.encoding)
        with _name_errors(label):
            return _build(_open_scan(read_sql(source, options.query).lazy(), options, label), options)
    is_table = (
        isinstance(source, pl.LazyFrame) or hasattr(source, "columns") or hasattr(source, "column_names")
    )
    if options.query is not None:
        raise ConfigError(
            "query needs a database such as sqlite:///shop.db, got "
            f"{'a table' if is_table else redact_uri(source)[:80]!r}; omit it.",
            parameter="query",
        )
    if is_table:
        with _name_errors("table"):
            return _build(_open_frame(source, options), options)
    paths, kind, label = find_sources(source, options.format)
    check_encoding(kind, options.encoding)
    with explain_errors(paths, kind, options.separator):
        if kind not in SEPARATORS:
            return _read_files(paths, kind, label, options, Dialect(""))
        dialect = recognize_dialect(paths[0], kind, options.separator, options.encoding)
        try:
            return _read_files(paths, kind, label, options, dialect)
        except pl.exceptions.PolarsError as error:
            if dialect.encoding is not None or not is_encoding_error(error):
                raise
        dialect = dialect._replace(encoding=WINDOWS, notes=(*dialect.notes, NOT_UTF8))
        return _read_files(paths, kind, label, options, dialect)


def _read_files(
    paths: list[Path], kind: Format, label: str, options: ReadOptions, dialect: Dialect
) -> Interactions:
    """The interactions in files of one format."""
    sources = open_sources(paths, kind, dialect.encoding)
    with _name_errors(label):
        is_array = kind == "jsonl" and is_json_array(paths[0])
        scan = _scan(sources, kind, dialect, options.header, is_array=is_array)
        return _build(_open_scan(scan, options, label, kind, paths, dialect.notes), options)


def _build(table: Table, options: ReadOptions) -> Interactions:
    """The interactions of a table, with doubts about them if a model is to learn from them."""
    data = Interactions.from_table(table)
    if not options.training:
        return data
    check_trainable(data)
    return with_doubts(data) if data.n_rows >= MIN_DOUBTED else data


@contextmanager
def _name_errors(label: str) -> Iterator[None]:
    """Let errors name the source."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None


def _open_scan(
    scan: pl.LazyFrame,
    options: ReadOptions,
    label: str = "table",
    kind: Format | None = None,
    paths: Sequence[Path] = (),
    notes: tuple[str, ...] = (),
) -> Table:
    """The table of files, nested or flat; no kind: of rows that have types."""
    names, is_nested = _flat_names(scan)
    options, recognized = settle_names(partial(_preview, scan), names, options)
    notes = (*notes, *recognized)
    rows: pl.LazyFrame | pl.DataFrame = scan
    whole = scan
    conditions = row_conditions(options)
    if conditions or is_nested:
        rows, names, roles, more = select(scan, named_columns(options), conditions)
        whole, options = _with_names(scan, names), replace(options, **roles)
        notes = (*notes, *more)
    if kind == "jsonl":
        rows = check_json_ids(list(paths), rows.lazy(), named_columns(options))
    elif kind in SEPARATORS:
        rows = _parse_text(rows.lazy(), named_columns(options))
    columnar = kind == "parquet" and rows is scan
    return _open_table(rows, options, label, notes, whole=whole, columnar=columnar)


def _flat_names(scan: pl.LazyFrame) -> tuple[list[str], bool]:
    """The names of all columns, and whether some are nested."""
    schema = scan.collect_schema()
    is_nested = any(isinstance(kind, (pl.Struct, pl.List, pl.Array)) for kind in schema.dtypes())
    return list(dict(flat_types(schema))) if is_nested else schema.names(), is_nested


def _preview(scan: pl.LazyFrame, names: list[str]) -> pl.DataFrame:
    """The first values of some columns that are not in lists."""
    columns = scan.collect_schema().names()
    return scan.head(PREVIEW_ROWS).select(path_value(name, columns).alias(name) for name in names).collect()


def _open_frame(frame: Any, options: ReadOptions) -> Table:
    """The table of a polars, pandas or Arrow table, or of a Spark DataFrame."""
    if is_spark_frame(frame):
        return _open_spark(frame, options)
    names = column_names(frame)
    if isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        scan = frame.lazy()
    elif not row_conditions(options) and options.missing == "error":
        options, notes = settle_names(partial(preview_columns, frame), names, options)
        return Table(frame, options, notes=notes)  # which converts only the columns that it needs
    else:
        scan = to_polars(frame).lazy()
    return _open_scan(scan, options)


def _open_spark(df: Any, options: ReadOptions) -> Table:
    """The table of a Spark DataFrame; only the columns that are needed are collected, if these are plain."""
    names = check_distinct(df.columns)
    is_plain = not any(kind.startswith(("struct", "array", "map")) for _, kind in df.dtypes)
    if is_plain and not row_conditions(options):
        preview = pl.DataFrame(collect_arrow(df.limit(PREVIEW_ROWS)))
        options, notes = settle_names(partial(preview_columns, preview), names, options)
        needed = match_columns(names, named_columns(options)).values()
        rows = collect_arrow(spark_columns(df, dict(zip(needed, needed, strict=True))), MAX_SPARK_ROWS)
        return _open_table(pl.DataFrame(rows), options, "table", notes, whole=preview.lazy())
    scan = pl.DataFrame(collect_arrow(df, MAX_SPARK_ROWS)).lazy()
    return _open_scan(scan, options)


def is_spark_frame(value: Any) -> bool:
    """Whether the value is a Spark DataFrame, without importing pyspark."""
    return type(value).__module__.startswith("pyspark.sql") and hasattr(value, "mapInArrow")


def spark_columns(df: Any, columns: Mapping[str, str]) -> Any:
    """These columns of a Spark DataFrame, named by the keys."""
    quoted = {name: column.replace("`", "``") for name, column in columns.items()}
    return df.select(*(df[f"`{column}`"].alias(name) for name, column in quoted.items()))


def collect_arrow(df: Any, max_rows: int | None = None) -> Any:
    """All rows of a Spark DataFrame as an Arrow table; DataError if there are more than `max_rows`."""
    if max_rows is not None and (n_rows := df.count()) > max_rows:
        raise DataError(
            f"a Spark DataFrame must have at most {max_rows:,} rows to be read into one process, got "
            f"{n_rows:,}; fit on a sample of users with sl.spark.fit, and recommend to all with "
            "sl.spark.recommend."
        )
    if hasattr(df, "toArrow"):
        return df.toArrow()
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.Table.from_batches(df._collect_as_arrow(), to_arrow_schema(df.schema))  # Spark 3.5


def _with_names(scan: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    """A table that has these columns, for the list of unused ones; those in lists are empty."""
    columns = scan.collect_schema().names()
    values = (pl.lit(None) if "[]" in name else path_value(name, columns) for name in names)
    return scan.select(value.alias(name) for value, name in zip(values, names, strict=True))


def _open_table(
    rows: Any,
    options: ReadOptions,
    label: str,
    notes: Iterable[str],
    *,
    whole: pl.LazyFrame | None,
    columnar: bool = False,
) -> Table:
    """A table without the rows that have no user or no item, if they are to be dropped."""
    dropped = None
    if options.missing == "drop":  # otherwise an error follows when the ids are read
        rows, dropped = _drop_missing(rows, named_columns(options))
    table = Table(rows, options, columnar=columnar, label=label, whole=whole, notes=notes)
    if dropped is not None:
        table.note(dropped)
    return table


def _drop_missing(rows: Any, named: ColumnNames) -> tuple[Any, str | None]:
    """(the rows with a user and an item, a sentence on the others); polars tables, lazy or not."""
    schema = rows.collect_schema()
    roles = match_columns(schema.names(), named)
    is_filled = pl.lit(True)
    for role in REQUIRED:
        column = pl.col(roles[role])
        is_filled &= column.is_not_null()
        if schema[roles[role]] == pl.String:
            is_filled &= column != ""
    n_rows, n_filled = rows.lazy().select(pl.len(), n_filled=is_filled.sum()).collect().row(0)
    if n_rows == n_filled:
        return rows, None
    names = " or ".join(repr(roles[role]) for role in REQUIRED)
    if not n_filled:
        raise DataError(
            f"{n_rows:,} of {n_rows:,} rows have no {names}, which leaves none; check the columns."
        )
    return rows.filter(
        is_filled
    ), f"{n_rows - n_filled:,} of {n_rows:,} rows have no {names} and were dropped."


def _parse_text(frame: pl.LazyFrame, named: ColumnNames) -> pl.DataFrame:
    """The needed columns of a text table; ids that are all written as integers become integers."""
    roles = match_columns(frame.collect_schema().names(), named)
    text = frame.select(list(roles.values())).collect()
    return text.with_columns([parse_integers(text[roles[role]]) for role in REQUIRED])


def _scan(sources: Any, kind: str, dialect: Dialect, header: str | None, *, is_array: bool) -> pl.LazyFrame:
    """A lazy table over what `open_sources` returned; only headers are read."""
    if kind == "parquet":
        return pl.scan_parquet(sources, glob=False)
    if is_array:
        return pl.concat([pl.read_json(entry, infer_schema_length=None) for entry in sources]).lazy()
    if kind == "jsonl":
        return pl.scan_ndjson(sources, infer_schema_length=None)
    separator = dialect.separator
    if len(separator.encode()) != 1:
        raise ConfigError(f"separator must be one ASCII character, got {separator!r}; pass ',' or ';'.")
    # Read as text until the roles of the columns are known: 007 is not 7, and errors can name the row.
    frame = pl.scan_csv(
        sources,
        glob=False,
        separator=separator,
        infer_schema=False,
        has_header=header is None,
        skip_rows=dialect.skipped,
        new_columns=None if header is None else header.split(","),
        quote_char=None if kind == "inter" else '"',
    )
    if header is None:
        _check_header(frame.collect_schema().names(), separator)
    return frame


def _check_header(names: list[str], separator: str) -> None:
    """Raise DataError if the header has another separator, repeats a name, is a row of data, or not UTF-8."""
    if any("\0" in name for name in names):
        raise DataError(
            "the file must be UTF-8 text, got UTF-16 or binary; convert it; or use "
            f"{advise_reading(encoding='utf-16')}.",
            parameter="encoding",
        )
    if len(names) > 1 and all(NUMBER.match(name) for name in names):
        raise DataError(
            f"the first line must name the columns, got {', '.join(names[:4])}; add a header; or use "
            f"{advise_reading(header='user_id,item_id,…')}.",
            parameter="header",
        )
    check_distinct(names)
    other = max((mark for mark in SEPARATOR_NAMES if mark != separator), key=names[0].count)
    if len(names) == 1 and other in names[0]:
        marks = SEPARATOR_NAMES.get(separator, repr(separator))
        raise DataError(
            f"the columns must be separated by {marks}, got a header separated by {SEPARATOR_NAMES[other]} "
            f"({names[0]!r}); use {advise_reading(separator=other)}.",
            parameter="separator",
        )
