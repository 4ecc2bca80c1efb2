"""Atomic file writes: readers see the old file or the new file, never a part of either."""

import os
import platform
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from shortlist.errors import DataError

_ACTIVE: set[str] = set()  # temporary files of this process that are being written


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it onto `target` if the block succeeds, else remove it.

    Temporary files that crashed processes left for the same target are removed first.
    """
    try:
        temporary = _reserve(target)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}; choose another path.") from None
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise _write_error(target, error.strerror or str(error)) from None
    except pl.exceptions.PolarsError as error:
        if "os error" not in str(error):
            raise
        raise _write_error(target, str(error).rpartition("error: ")[2]) from None
    finally:
        _discard(temporary)


def check_writable(target: Path) -> None:
    """Raise DataError if no file can be written at `target`; its folder is created."""
    if target.is_dir():
        raise DataError(f"cannot write {target}: it is a folder; pass the path of a file.")
    try:
        temporary = _reserve(target)
        temporary.touch()
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}; choose another path.") from None
    _discard(temporary)


def _reserve(target: Path) -> Path:
    """Register a new temporary path for `target` before the file exists, so that no interrupt leaks it."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        if not stat.S_ISREG(mode := target.stat().st_mode) and not stat.S_ISDIR(mode):
            raise DataError(f"cannot write {target}: it is not a regular file; choose another path.")
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.{zlib.crc32(platform.node().encode()):08x}-"
    _remove_leftovers(target.parent, prefix)
    temporary = target.parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}.tmp"
    _ACTIVE.add(str(temporary))
    return temporary


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove temporary files of dead processes on this host."""
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.startswith(prefix) and e.name.endswith(".tmp")]
    for name in names:
        pid = name.removeprefix(prefix).partition("-")[0]
        path = folder / name
        if pid.isdecimal() and str(path) not in _ACTIVE and not _is_running(int(pid)):
            path.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    """Whether another process has this id; assumed on Windows, where `os.kill` would send a signal."""
    if os.name == "nt":
        return True
    if pid == os.getpid():
        return False  # left by an earlier process with this id: files of this process are in _ACTIVE
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _discard(temporary: Path) -> None:
    """Remove the temporary file if it is still there, even when Ctrl-C arrives here."""
    try:
        temporary.unlink(missing_ok=True)
    except KeyboardInterrupt:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        _ACTIVE.discard(str(temporary))


def _write_error(target: Path, reason: str) -> DataError:
    return DataError(f"cannot write {target}: {reason}; free some space or choose another path.")
