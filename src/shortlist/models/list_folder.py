"""recommend_to_folder: lists of all users as a folder of Parquet files, in parallel and resumable."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.engine import Engine, ThreadEngine, check_engine
from shortlist.core.estimator import check_whole, pack
from shortlist.core.files import atomic_write
from shortlist.cutoff.base import Cutoff
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import Recommender
from shortlist.models.shard_folder import ShardFolder, load_shard
from shortlist.recommend.request import CutoffChoice, Fallback, parse_users

MANIFEST = "request.json"


@dataclass(frozen=True)
class _Part:
    """One file of the folder and its users."""

    path: Path
    users: pl.Series


@dataclass(frozen=True)
class _ShardPart:
    """One file of the folder, with users of one shard of the model."""

    path: Path
    shard: Path
    checksum: str  # of the shard
    first: int  # users first … last - 1 of the shard
    last: int


def recommend_to_folder(
    model: Recommender | str | Path,
    folder: str | Path,
    users: Any = None,
    *,
    N: int | None = None,
    cutoff: CutoffChoice = "auto",
    candidates: Any = None,
    exclude: Any = None,
    filter_seen: bool | None = None,
    min_items: int = 0,
    max_items: int | None = None,
    at: Any = None,
    fallback: Fallback | None = None,
    n_threads: int = 0,
    users_per_file: int = 100_000,
    engine: Engine | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the lists that `recommend` returns to a folder of Parquet files.

    A file appears when it is complete. If the call is repeated, for example after a crash, files that exist
    are not written again. The files have the same bytes with every engine.

    Parameters
    ----------
    model
        A fitted model of any class; or the folder of a model that `fit_to_folder` wrote. Then each task loads
        the shard of its users, and no process holds the whole model; the lists are the same, but a file holds
        users of one shard only.
    folder
        The folder; it is created if it does not exist. It must be visible on all nodes of a cluster.
    users, N, cutoff, candidates, exclude, filter_seen, min_items, max_items, at, fallback
        As in `recommend`. `candidates`, `exclude` and `at` apply to all users. With the folder of a model,
        lists are made for all users.
    n_threads
        Number of threads of `ThreadEngine`; on a cluster, each file is written by one thread.
    users_per_file
        Number of users per file, rounded up to whole batches unless the model is a folder.
    engine
        Where to compute: None or `ThreadEngine()` in this process, `RayEngine(…)` on a cluster.
    progress
        Called after each file with the number of finished files and of all files.

    Returns
    -------
    The path of the folder, which `evaluate` accepts in place of lists.

    Raises
    ------
    DataError
        If the folder holds the lists of another request, or other files.
    ConfigError
        If an argument is invalid.

    Examples
    --------
    >>> import tempfile
    >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = sl.recommend_to_folder(model, folder + "/lists", N=5)
    ...     n_files = len(list(path.glob("*.parquet")))
    """
    check_whole(1, users_per_file=users_per_file)
    place, target = check_engine(engine), Path(folder)
    options = {
        "N": N,
        "cutoff": cutoff,
        "candidates": candidates,
        "exclude": exclude,
        "filter_seen": filter_seen,
        "min_items": min_items,
        "max_items": max_items,
        "at": at,
        "fallback": fallback,
        "n_threads": n_threads if isinstance(place, ThreadEngine) else 1,
    }
    if isinstance(model, str | Path):
        if users is not None:
            raise ConfigError(
                "users must be None with the folder of a model; load the model to recommend to some users.",
                parameter="users",
            )
        return _recommend_shards(
            ShardFolder.open(Path(model)), target, options, users_per_file, place, progress
        )
    state = model._fitted_state()
    ids = parse_users(state.history, users)
    batch = model.batch_size(state)
    size = -(-users_per_file // batch) * batch  # the batches are those of one machine
    n_parts = max(1, -(-len(ids) // size))
    parts = [
        _Part(target / f"part-{number:05}-of-{n_parts:05}.parquet", ids[number * size : (number + 1) * size])
        for number in range(n_parts)
    ]
    model.recommend(ids.head(1), **options)  # finds invalid options before any work is distributed
    _check_folder(target, _describe(model, ids, size, options))
    _write_missing(partial(_write_part, model, options), parts, place, progress)
    return target


def _recommend_shards(
    shards: ShardFolder,
    target: Path,
    options: dict[str, Any],
    users_per_file: int,
    engine: Engine,
    progress: Callable[[int, int], None] | None,
) -> Path:
    """Write the lists of all users of a model in shards."""
    checksums = [str(header["sha256"]) for header in shards.headers]
    found = [
        (path.absolute(), checksum, first, min(first + users_per_file, n_users))
        for path, checksum, n_users in zip(shards.paths, checksums, shards.users, strict=True)
        for first in range(0, n_users, users_per_file)
    ]
    parts = [
        _ShardPart(target / f"part-{number:05}-of-{len(found):05}.parquet", *one)
        for number, one in enumerate(found)
    ]
    request = {
        "model": type(shards.model).__name__,
        "shards": checksums,
        "n_users": sum(shards.users),
        "users_per_file": users_per_file,
        "options": _digest_options(options),
    }
    _check_folder(target, request)
    _write_missing(partial(_write_shard_part, options), parts, engine, progress)
    return target


def _write_missing(
    write: Callable[[Any], int],
    parts: Sequence[_Part | _ShardPart],
    engine: Engine,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Write the files that do not exist."""
    missing = [part for part in parts if not part.path.exists()]
    done = len(parts) - len(missing)
    for _ in engine.map(write, missing):
        done += 1
        if progress is not None:
            progress(done, len(parts))


def _write_shard_part(options: dict[str, Any], part: _ShardPart) -> int:
    """Write one file of the users of a shard; return its number of lists."""
    model = load_shard(part.shard, part.checksum)
    users = model.users_.values[part.first : part.last]
    model.recommend_to_file(part.path, users, **options)
    return len(users)


def _write_part(model: Recommender, options: dict[str, Any], part: _Part) -> int:
    """Write one file; return its number of lists."""
    model.recommend_to_file(part.path, part.users, **options)
    return len(part.users)


def _describe(model: Recommender, ids: pl.Series, size: int, options: dict[str, Any]) -> dict[str, Any]:
    """What determines the lists, to recognize the folder of the same request."""
    users = hashlib.sha256("\n".join(map(repr, ids.to_list())).encode()).hexdigest()
    return {
        "model": type(model).__name__,
        "fingerprint": model.fingerprint_,
        "history": model.history_.fingerprint,
        "saved_cutoff": None if model.cutoff_ is None else _digest(model.cutoff_),
        "users": users,
        "n_users": len(ids),
        "users_per_file": size,
        "options": _digest_options(options),
    }


def _digest_options(options: dict[str, Any]) -> str:
    """A digest of the options that determine the lists."""
    cutoff = options["cutoff"]
    shown = {name: value for name, value in options.items() if name != "n_threads"}
    shown["cutoff"] = _digest(cutoff) if isinstance(cutoff, Cutoff) else cutoff
    text = json.dumps(shown, default=repr, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(cutoff: Cutoff) -> str:
    """A digest of the parameters of a cutoff and of what it has learned."""
    arrays: dict[str, Any] = {}
    series: dict[str, pl.Series] = {}
    digest = hashlib.sha256(json.dumps(pack(cutoff, "cutoff", arrays, series), default=str).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    for name in sorted(series):
        digest.update(f"{name}{series[name].to_list()}".encode())
    return digest.hexdigest()


def _check_folder(target: Path, request: dict[str, Any]) -> None:
    """Create the folder with a description of the request, or check that it holds the same request."""
    manifest = target / MANIFEST
    if target.exists() and not target.is_dir():
        raise DataError(f"{target} must be a folder, got a file; choose another path.")
    if manifest.exists():
        try:
            known = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        if known != request:
            changed = ", ".join(name for name in request if known.get(name) != request[name])
            raise DataError(
                f"{target} holds the lists of another request ({changed} differ); choose another folder, or "
                "delete it."
            )
        return
    if target.exists() and any(target.iterdir()):
        raise DataError(
            f"{target} must be empty or hold earlier lists, got other files; choose another folder."
        )
    target.mkdir(parents=True, exist_ok=True)
    with atomic_write(manifest) as temporary:
        temporary.write_text(json.dumps(request, indent=1), encoding="utf-8")
