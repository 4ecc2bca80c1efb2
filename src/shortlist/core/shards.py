"""The names of the files of a model in shards."""

import re
from pathlib import Path

from shortlist.errors import ModelFileError

NAME = re.compile(r"shard-(\d{5})-of-(\d{5})\.shortlist")


def shard_paths(folder: Path, n: int) -> list[Path]:
    """The files of n shards."""
    return [folder / f"shard-{number:05}-of-{n:05}.shortlist" for number in range(n)]


def remove_shards(folder: Path) -> None:
    """Remove the files of shards."""
    for path in folder.iterdir():
        if NAME.fullmatch(path.name):
            path.unlink(missing_ok=True)


def find_shards(folder: Path) -> list[Path]:
    """The files of all shards of a folder; ModelFileError unless they are complete."""
    paths = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
    match = NAME.fullmatch(paths[0].name) if paths else None
    expected = shard_paths(folder, 0 if match is None else int(match[2]))
    if not paths or paths != expected:
        missing = next((path.name for path in expected if path not in paths), "shard-00000-of-…")
        raise ModelFileError(
            f"{folder} must hold all shards of one model, but {missing} is missing or others are there too; "
            "run fit_to_folder again."
        )
    return paths
