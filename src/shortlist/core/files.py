"""Writing that is never seen half-done."""

import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from shortlist.errors import DataError

ADVICE = "choose a place that can be written."


@contextmanager
def write_beside(target: Path) -> Iterator[Path]:
    """A temporary path in the same folder, renamed onto `target` when the block ends well, else removed."""
    refuse_device(target)
    room: Path | None = None
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            room = _fresh(target)
            room.mkdir(mode=0o700)
        except OSError as error:
            raise DataError(f"cannot write {target}: {error.strerror or error}; {ADVICE}") from None
        try:
            yield room / target.name
            _replace(room / target.name, target)
        except (OSError, pl.exceptions.PolarsError) as error:
            if isinstance(error, pl.exceptions.PolarsError) and "os error" not in str(error):
                raise
            said = getattr(error, "strerror", None) or str(error).rpartition("error: ")[2]
            raise DataError(
                f"cannot write {target}: {said}; free some space or choose another place."
            ) from None
    finally:
        if room is not None:
            _sweep(room)


def refuse_file(target: Path) -> None:
    """Refuse, before long work, a place where no file can be written afterwards; its folder is made."""
    if target.is_dir():
        raise DataError(f"cannot write {target}: it is a folder; name a file in it.")
    refuse_place(target)


def refuse_place(target: Path) -> None:
    """Refuse a place beside which nothing can be written."""
    with suppress(_TriedError), write_beside(target):
        raise _TriedError


def refuse_device(target: Path) -> None:
    """Refuse to replace what is neither a file nor a folder: /dev/null must stay what it is."""
    with suppress(OSError):
        mode = target.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(f"cannot write {target}: it is no ordinary file; {ADVICE}")


class _TriedError(Exception):
    """Ends a trial before anything is renamed."""


def _fresh(target: Path) -> Path:
    """A name that nobody has; made known before it exists, so that no interrupt can leave it behind."""
    return target.parent / f".{target.name}.{secrets.token_hex(4)}"


def _sweep(room: Path) -> None:
    """Remove the temporary folder, even where Ctrl-C comes just now."""
    try:
        shutil.rmtree(room, ignore_errors=True)
    except (KeyboardInterrupt, OSError):  # an interrupt may also surface as a file closed twice
        shutil.rmtree(room, ignore_errors=True)
        raise


def _replace(made: Path, target: Path) -> None:
    """Rename a file, or a folder together with what it replaces, so that no moment shows a mixture."""
    if not made.is_dir() or not target.exists():
        made.replace(target)
        return
    old = made.parent / "old"
    try:
        target.rename(old)
        made.rename(target)
    except BaseException:  # Ctrl-C too may come between the two
        if old.exists() and not target.exists():
            old.rename(target)
        raise
