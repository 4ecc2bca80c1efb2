"""Model files in the folder that all servers read.

People put files with names into it. What is activated is kept beside them under its checksum, so that it
stays what it was when a file with a name is replaced. Servers need only read the folder.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from shortlist.core.files import atomic_write
from shortlist.core.serialization import read_header
from shortlist.errors import ModelFileError
from shortlist.models.base import Recommender

SUFFIX = ".shortlist"
CHECKSUM = re.compile(r"[0-9a-f]{64}")
UNUSED_SECONDS = 3_600.0  # a file that nothing names may be about to be activated


def file_checksum(path: Path) -> str:
    """The checksum in the header of a model file."""
    return str(read_header(path)["checksum"])


def kept_path(folder: Path, checksum: str) -> Path:
    """Where the file with a checksum is kept."""
    return folder / f"{checksum}{SUFFIX}"


def model_names(folder: Path) -> list[str]:
    """Names of the files that people put into the folder, newest first; all of them are UTF-8."""
    paths = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file() and _is_name(path)]
    paths.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    return [path.name.removesuffix(SUFFIX) for path in paths]


def _is_name(path: Path) -> bool:
    try:
        path.name.encode()
    except UnicodeEncodeError:
        return False
    return not CHECKSUM.fullmatch(path.name.removesuffix(SUFFIX))


def find_model(folder: Path, name: str, checksum: str, *, is_new: bool = False) -> Path:
    """The file with this checksum: the one that was kept, or the one with the name if it has not changed.

    The latter comes first if it is new: a damaged file may have the checksum of one that was kept.
    """
    named = folder / f"{name}{SUFFIX}"
    paths = (kept_path(folder, checksum), named)
    for path in reversed(paths) if is_new else paths:
        if path.parent == folder and path.is_file() and file_checksum(path) == checksum:
            return path
    problem = "has changed" if named in folder.glob(f"*{SUFFIX}") else "is not in the folder of models"
    raise ModelFileError(f"the file of model {name!r} {problem}; activate it again where the file is.")


def keep_model(folder: Path, path: Path, checksum: str) -> None:
    """Copy a model file into the folder, under its checksum."""
    kept = kept_path(folder, checksum)
    if kept.is_file():
        with suppress(OSError):
            os.utime(kept)  # what is about to be activated is not deleted
        return
    with atomic_write(kept) as temporary:
        shutil.copyfile(path, temporary)
        if file_checksum(temporary) != checksum:
            raise ModelFileError("the file was replaced while it was read; activate it again.")


def save_model(model: Recommender, folder: Path) -> str:
    """Save a model into the folder, under its checksum; the checksum."""
    with tempfile.TemporaryDirectory(prefix=".refit-", dir=folder) as room:
        path = model.save(Path(room) / f"model{SUFFIX}")
        checksum = file_checksum(path)
        path.replace(kept_path(folder, checksum))
    return checksum


def remove_models(folder: Path, checksums: Iterable[str]) -> None:
    """Delete kept files, but those of the last hour; a folder that cannot be written stays as it is."""
    for checksum in checksums:
        path = kept_path(folder, checksum)
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - UNUSED_SECONDS:
                path.unlink()
