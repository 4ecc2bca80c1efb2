"""Read compressed files, and refuse those that expand beyond a limit before they fill the memory."""

import gzip
import zlib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from shortlist.errors import DataError

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
