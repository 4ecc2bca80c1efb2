"""ShardFolder: a model in shards, known by the headers of its files; neither rows nor parameters are read."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import polars as pl

from shortlist.core.checks import check_whole_value
from shortlist.core.estimator import MAX_WHOLE
from shortlist.core.serialization import INTEGERS, read_header
from shortlist.data.id_map import IdMap
from shortlist.errors import ModelFileError
from shortlist.models.base import MODEL_MODULES, Recommender, find_model_class, load_model
from shortlist.models.factorization.shards import find_shards


@dataclass(frozen=True, eq=False)
class ShardFolder:
    """A folder that `fit_to_folder` wrote."""

    folder: Path
    paths: tuple[Path, ...]
    headers: tuple[dict[str, Any], ...]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the headers of all shards."""
        paths = find_shards(folder)
        headers = [read_header(path) for path in paths]
        first = headers[0]
        for path, header in zip(paths, headers, strict=True):
            same = all(header[name] == first[name] for name in ("kind", "class", "params"))
            if not same or header["kind"] != "model" or header["class"] not in MODEL_MODULES:
                raise ModelFileError(f"{path} must be a shard of the same model as the others; fit it again.")
        return cls(folder, tuple(paths), tuple(headers))

    @cached_property
    def model(self) -> Recommender:
        """The model with its parameters, not fitted."""
        first = self.headers[0]
        return find_model_class(first["class"])(**first["params"])

    @property
    def users(self) -> list[int]:
        """The number of users of each shard."""
        pairs = zip(self.paths, self.headers, strict=True)
        return [_whole(path, header["notes"], "n_learned") for path, header in pairs]

    @property
    def rows(self) -> int:
        """Number of rows of all users."""
        pairs = zip(self.paths, self.headers, strict=True)
        return sum(_whole(path, header["notes"], "rows") for path, header in pairs)

    @property
    def notes(self) -> dict[str, Any]:
        """What the first shard says about training."""
        found: dict[str, Any] = self.headers[0]["notes"]
        return found

    @property
    def item_kind(self) -> IdMap:
        """A map without items, whose ids have the type of the items' ids."""
        kind = INTEGERS.get(self.headers[0]["series"].get("items"), pl.String)
        return IdMap(pl.Series([], dtype=kind))


def _whole(path: Path, notes: dict[str, Any], name: str) -> int:
    try:
        return check_whole_value(notes, name, 0, MAX_WHOLE)
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {path}: {error}") from None


@lru_cache(maxsize=1)
def load_shard(path: Path, checksum: str) -> Recommender:
    """The model of a shard; the last one stays in memory, for the next task of this process."""
    return load_model(path)
