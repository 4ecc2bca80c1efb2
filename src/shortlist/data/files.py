"""Writing that is never seen half-done."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shortlist.errors import DataError


@contextmanager
def write_beside(target: Path) -> Iterator[Path]:
    """A temporary path in the same folder, renamed onto `target` when the block ends well, else removed."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}; choose a place that can be written."
        ) from None
    try:
        yield room / target.name
        _replace(room / target.name, target)
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}; free some space or choose another place."
        ) from None
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _replace(made: Path, target: Path) -> None:
    """Rename a file, or a folder together with what it replaces, so that no moment shows a mixture."""
    if made.is_dir() and target.exists():
        old = made.parent / "old"
        target.rename(old)
        try:
            made.rename(target)
        except OSError:
            old.rename(target)
            raise
        return
    made.replace(target)
