"""Atomic file writes: readers see the old file or the new file, never a part of either."""

import errno
import os
import platform
import secrets
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl

from shortlist.errors import DataError

UNTOUCHED = 0  # modification time of a temporary file before anything is written to it


class _TemporaryFile(NamedTuple):
    """A temporary file beside its target; it is not removed while a process holds its lock."""

    path: Path
    lock: int  # descriptor; -1 where the system has no locks


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it onto `target` if the block succeeds, else remove it.

    Temporary files that crashed processes left for the same target are removed first.
    """
    temporary = _reserve(target)
    try:
        yield temporary.path
        if temporary.path.stat().st_mtime_ns == UNTOUCHED:
            raise FileNotFoundError(errno.ENOENT, "nothing was written")
        temporary.path.replace(target)
    except OSError as error:
        raise _write_error(target, error.strerror or str(error)) from None
    except pl.exceptions.PolarsError as error:
        if "os error" not in str(error):
            raise
        raise _write_error(target, str(error).rpartition("error: ")[2]) from None
    finally:
        _discard(temporary)


def write_text(target: Path, text: str) -> None:
    """Write a text file as a whole or not at all."""
    with atomic_write(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_writable(*targets: Path | None) -> None:
    """Raise DataError if a file cannot be written at one of these paths; their folders are created."""
    for target in targets:
        if target is None:
            continue
        if target.is_dir():
            raise DataError(f"cannot write {target}: it is a folder; pass the path of a file.")
        _discard(_reserve(target))


def _reserve(target: Path) -> _TemporaryFile:
    """Create an empty temporary file for `target`, and lock it; DataError if this is not possible."""
    try:
        return _create_locked(target)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}; choose another path.") from None


def _create_locked(target: Path) -> _TemporaryFile:
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        if not stat.S_ISREG(mode := target.stat().st_mode) and not stat.S_ISDIR(mode):
            raise DataError(f"cannot write {target}: it is not a regular file; choose another path.")
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.{zlib.crc32(platform.node().encode()):08x}-"
    _remove_leftovers(target.parent, prefix)
    while True:
        path = target.parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}.tmp"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            lock_file(lock, wait=True)
            if not _is_same_file(path, lock):  # another process removed it before it was locked
                os.close(lock)
                continue
            os.utime(path, ns=(UNTOUCHED, UNTOUCHED))
        except BaseException:
            _discard(_TemporaryFile(path, lock))
            raise
        if sys.platform == "win32":  # an open file cannot be renamed there
            os.close(lock)
            lock = -1
        return _TemporaryFile(path, lock)


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove temporary files that no process has locked: their writers ended without removing them."""
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.startswith(prefix) and e.name.endswith(".tmp")]
    for name in names if sys.platform != "win32" else ():
        with suppress(OSError):
            lock = os.open(folder / name, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if lock_file(lock, wait=False):
                    (folder / name).unlink()
            finally:
                os.close(lock)


def lock_file(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file for this process; the system releases the lock when the process ends.

    Return whether it was locked; BlockingIOError if another process has it. File systems without locks lock
    nothing.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _discard(temporary: _TemporaryFile) -> None:
    """Remove the temporary file if it is still there, even when Ctrl-C arrives here."""
    try:
        temporary.path.unlink(missing_ok=True)
    except KeyboardInterrupt:
        temporary.path.unlink(missing_ok=True)
        raise
    finally:
        if temporary.lock >= 0:
            os.close(temporary.lock)


def _write_error(target: Path, reason: str) -> DataError:
    return DataError(f"cannot write {target}: {reason}; free some space or choose another path.")
