"""Folders of files: fit_to_folder writes a model in shards, recommend_to_folder writes lists."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np
import polars as pl

from shortlist.core.checks import check_whole_value
from shortlist.core.engine import Engine, ThreadEngine, check_engine
from shortlist.core.files import claim_folder, write_text
from shortlist.core.params import MAX_WHOLE, check_whole, short_repr, show_options
from shortlist.core.serialization import INTEGERS, pack, read_header
from shortlist.core.shards import NAME, find_shards, remove_shards, shard_paths
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.data.columns import ReadKeywords, ReadOptions
from shortlist.data.files import open_each, read_interactions
from shortlist.data.ids import IdMap, is_id_list
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.data.ranges import divide_files
from shortlist.data.sources import detect_format, find_files
from shortlist.errors import ConfigError, DataError, ModelFileError
from shortlist.models.base import MODEL_MODULES, Recommender, find_model_class, load_model
from shortlist.models.factorization.files import train_files
from shortlist.models.factorization.model import FactorModel
from shortlist.recommend.request import (
    BatchRecommender,
    RecommendRequest,
    RequestKeywords,
    RequestOptions,
)
from shortlist.split import last_basket


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
        return self._numbers("n_learned")

    @property
    def rows(self) -> int:
        """Number of rows of all users."""
        return sum(self._numbers("rows"))

    def _numbers(self, name: str) -> list[int]:
        """A note of each shard."""
        numbers = []
        for path, header in zip(self.paths, self.headers, strict=True):
            try:
                numbers.append(check_whole_value(header["notes"], name, 0, MAX_WHOLE))
            except ModelFileError as error:
                raise ModelFileError(f"cannot load {path}: {error}") from None
        return numbers

    @property
    def notes(self) -> dict[str, Any]:
        """What the first shard says about training."""
        notes: dict[str, Any] = self.headers[0]["notes"]
        return notes

    @property
    def item_kind(self) -> IdMap:
        """A map without items, whose ids have the type of the items' ids."""
        kind = INTEGERS.get(self.headers[0]["series"].get("items"), pl.String)
        return IdMap(pl.Series([], dtype=kind))


@lru_cache(maxsize=1)
def load_shard(path: Path, checksum: str) -> Recommender:
    """The model of a shard; the last one stays in memory, for the next task of this process."""
    return load_model(path)


MANIFEST = "request.json"


@dataclass(frozen=True)
class ListFile:
    """One file of the folder, and users first … last - 1 of a model, or of a shard of it."""

    path: Path
    first: int
    last: int
    shard: Path | None = None
    checksum: str = ""  # of the shard


@show_options(RequestOptions)
def recommend_to_folder(
    model: Recommender | str | Path,
    folder: str | Path,
    users: Any = None,
    *,
    users_per_file: int = 100_000,
    engine: Engine | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[RequestKeywords],
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
    users, N, cutoff, candidates, exclude, history, filter_seen, min_items, max_items
        As in `recommend`. With the folder of a model, lists are made for all users, without `history`, and
        `candidates`, `exclude` and `at` are the same for all.
    max_per_group, at, fallback, explore
        As in `recommend`.
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
    checked = RequestOptions(**options)
    if checked.history is not None and not isinstance(checked.history, Mapping):
        checked = replace(checked, history=Interactions.of(checked.history))
    if not isinstance(place, ThreadEngine):
        checked = replace(checked, n_threads=1)
    places: list[tuple[Any, ...]]
    if isinstance(model, str | Path):
        for name, value in (("users", users), ("history", checked.history)):
            if value is not None:
                raise ConfigError(
                    f"{name} must be None with the folder of a model; load the model to recommend to some "
                    "users.",
                    parameter=name,
                )
        description, places = _plan_shards(ShardFolder.open(Path(model)), users_per_file)
        write = partial(_write_shard, checked)
    else:
        request = model.plan(users, checked).request  # checked before any work is distributed
        batch = model.batch_size(request.state)
        size = -(-users_per_file // batch) * batch  # the batches are those of one machine
        description = _describe(model, request.user_ids, size)
        places = [(first, first + size) for first in range(0, max(1, len(request)), size)]
        write = partial(_write_lists, model, request)
    files = [
        ListFile(target / f"part-{number:05}-of-{len(places):05}.parquet", *users_of_file)
        for number, users_of_file in enumerate(places)
    ]
    _check_folder(target, description | {"options": _digest_options(checked)})
    missing = [file for file in files if not file.path.exists()]
    for done, _ in enumerate(place.map(write, missing), 1 + len(files) - len(missing)):
        if progress is not None:
            progress(done, len(files))
    return target


def _plan_shards(shards: ShardFolder, size: int) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """(request, places): what determines the lists of all users of a model in shards, and `ListFile`s."""
    checksums = [str(header["sha256"]) for header in shards.headers]
    request = {
        "model": type(shards.model).__name__,
        "shards": checksums,
        "n_users": sum(shards.users),
        "users_per_file": size,
    }
    places = [
        (first, min(first + size, n_users), path.absolute(), checksum)
        for path, checksum, n_users in zip(shards.paths, checksums, shards.users, strict=True)
        for first in range(0, n_users, size)
    ]
    return request, places


def _write_lists(model: Recommender, request: RecommendRequest[Any], file: ListFile) -> None:
    """Write the lists of some users of a request."""
    BatchRecommender(model, request.take(slice(file.first, file.last))).write(file.path)


def _write_shard(options: RequestOptions, file: ListFile) -> None:
    """Write the lists of some users of a shard."""
    assert file.shard is not None
    model = load_shard(file.shard, file.checksum)
    model.plan(model.users_.values[file.first : file.last], options).write(file.path)


def _describe(model: Recommender, ids: pl.Series, size: int) -> dict[str, Any]:
    """What determines the lists, to recognize the folder of the same request."""
    users = hashlib.sha256("\n".join(map(repr, ids.to_list())).encode()).hexdigest()
    groups = model._fitted_state().groups
    return ({} if groups is None else {"groups": groups.fingerprint}) | {
        "model": type(model).__name__,
        "fingerprint": model.fingerprint_,
        "history": model.history_.fingerprint,
        "saved_cutoff": None if model.cutoff_ is None else _digest(model.cutoff_),
        "users": users,
        "n_users": len(ids),
        "users_per_file": size,
    }


def _digest_options(options: RequestOptions) -> str:
    """A digest of the options that determine the lists."""
    values = {name: value for name, value in vars(options).items() if name != "n_threads"}
    return hashlib.sha256(json.dumps(values, default=_plain, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """An option in values that JSON has."""
    if isinstance(value, Cutoff):
        return _digest(value)
    if isinstance(value, Interactions):
        return value.fingerprint
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    return value.tolist() if hasattr(value, "tolist") else list(value) if is_id_list(value) else repr(value)


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
            saved = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            saved = {}
        if saved != request:
            changed = ", ".join(name for name in request if saved.get(name) != request[name])
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
    write_text(manifest, json.dumps(request, indent=1))


ROWS = "_rows"  # folder of the divided rows, beside the shards, until the model is saved


@show_options(ReadOptions)
def fit_to_folder(
    model: Recommender,
    source: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    valid: Literal["last_basket"] | None = None,
    items: Items | Any = None,
    cutoff: Cutoff | None = None,
    checkpoint: str | Path | None = None,
    engine: Engine | None = None,
    progress: Callable[[Any], None] | None = None,
    reading: Callable[[str, int, int], None] | None = None,
    **options: Unpack[ReadKeywords],
) -> Path:
    """Train on a folder of Parquet files, and save the model as a folder of shards.

    On a cluster, each worker reads the rows of its users, trains on them and saves a shard: a model file with
    these users and all items. Neither the rows nor the user factors are ever on one machine. `load_model`
    loads a shard, or all of them as one model, which is the same, bit for bit, as if the files had been read
    and trained on one machine.

    Parameters
    ----------
    model
        `BPRMF`, `LogMF`, `CRRMF`, `DKBPRMF`, `HRM` or `DKHRM`, with any parameters. It stays as it is.
    source
        Parquet files: a folder, a pattern or a list. All nodes must see them under the same path.
    folder
        A new or empty folder, which all nodes must see under the same path. While the model is trained, it
        also holds a copy of the rows, divided by user. What an interrupted call left there is removed.
    user_id, item_id, timestamp, weight, basket_id, item_name
        As in `read_interactions`.
    time_format, min_rating, missing, where, future
        As in `read_interactions`.
    negative_weights
        Rows of negative weight are dropped unless "keep" is given: a return may be in another file than the
        purchase, so that it cannot be subtracted.
    separator, header, encoding, query, table
        As in `read_interactions`, if files are read in this process.
    format
        The kind of an export, as in `read_interactions`. Only the first line of a Shopify order says whether
        it was cancelled, so on a cluster such orders must be in one file.
    valid
        "last_basket": train without the last basket of each user who has two, stop early on them as with
        `fit(split.train_valid, valid=split.test)`, and keep the best parameters. The model does not know the
        held-out rows; to train on all rows, call again without `valid` and with the best number of epochs.
    items
        Content of items, as in `fit`; it is trained in one process, so `engine` must be None with it.
    cutoff
        A fitted cutoff that every shard keeps, as in `save`: `recommend` uses it by default.
    checkpoint
        File for the state of training, as in `fit`. If the driver is lost, the same call continues from it,
        on the same or another cluster, after it has read the files again.
    engine
        Where to train: `RayEngine(…)` on a cluster, with one shard per worker; None or `ThreadEngine()` reads
        everything into this process and writes one shard.
    progress
        As in `fit`.
    reading
        Called while files are read on a cluster, with the name of a step, and with how many of its tasks
        are finished, of how many.

    Returns
    -------
    The path of the folder.

    Raises
    ------
    ConfigError
        If the model cannot be trained this way.
    DataError
        If the files cannot be read, or the folder is not empty.

    Examples
    --------
    >>> import tempfile
    >>> data = sl.load_dataset("sample")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     data.to_frame().write_parquet(place + "/events.parquet")
    ...     model = sl.BPRMF(n_epochs=2)
    ...     folder = sl.fit_to_folder(model, place + "/events.parquet", place + "/model")
    ...     fitted = sl.load_model(folder)
    """
    place, target = check_engine(engine), Path(folder).absolute()
    if options.get("negative_weights", "subtract") == "subtract":
        options["negative_weights"] = "drop"
    read = ReadOptions(**options)
    if valid not in (None, "last_basket"):
        raise ConfigError(
            f'valid must be "last_basket" or None, got {short_repr(valid)}; pass one of them.',
            parameter="valid",
        )
    if cutoff is not None:
        check_cutoff(cutoff, "a fitted cutoff or None")
    saved = None if checkpoint is None else Path(checkpoint).absolute()
    if isinstance(place, ThreadEngine) or target.is_file():
        _check_target(target, saved)
    if isinstance(place, ThreadEngine):
        data = read_interactions(source, **options)
        rows, held = data, None
        if valid is not None:
            split = last_basket(data)
            rows, held = split.train_valid, split.test
        fitted = type(model)(**model.get_params())
        fitted.fit(rows, valid=held, checkpoint=saved, progress=progress, items=items)
        target.mkdir(parents=True, exist_ok=True)
        if cutoff is not None:
            fitted.set_cutoff(cutoff)
        fitted.save(shard_paths(target, 1)[0])
        return target
    factors, paths = _check_model(model, items), _find_parquet(source)
    target.mkdir(parents=True, exist_ok=True)
    with claim_folder(target):
        _check_target(target, saved)
        shutil.rmtree(target / ROWS, ignore_errors=True)
        try:
            ranges = divide_files(
                paths,
                open_each(paths, read),
                target / ROWS,
                place,
                str(source),
                holds_out=valid is not None,
                progress=reading,
            )
            train_files(factors, ranges, target, place, cutoff=cutoff, progress=progress, checkpoint=saved)
        finally:
            shutil.rmtree(target / ROWS, ignore_errors=True)
    return target


def _check_target(target: Path, checkpoint: Path | None) -> None:
    """Raise DataError unless the folder is new, empty, or that of an interrupted call, which is cleared."""
    if not target.exists():
        return
    names = {path.name for path in target.iterdir()} if target.is_dir() else {""}
    if checkpoint is not None and checkpoint.exists():
        names = {name for name in names if not NAME.fullmatch(name)}
    if names - {ROWS}:
        raise DataError(f"{target} must be a new or empty folder; choose another path.", parameter="folder")
    if checkpoint is not None and checkpoint.is_relative_to(target):
        raise ConfigError(
            f"checkpoint must not lie in the folder of the model, got {checkpoint}; choose another path.",
            parameter="checkpoint",
        )
    remove_shards(target)


def _check_model(model: Recommender, items: Any) -> FactorModel:
    """The model, if it can be trained on a cluster."""
    if not isinstance(model, FactorModel):
        raise ConfigError(
            "model must be BPRMF, LogMF, CRRMF, DKBPRMF, HRM or DKHRM to be trained from files on a cluster, "
            f"got {model!r:.60}; read the files with read_interactions and call fit.",
            parameter="model",
        )
    if items is not None:
        raise ConfigError(
            "items must be None on a cluster: the content of items is trained in one process; omit engine.",
            parameter="items",
        )
    return model


def _find_parquet(source: Any) -> list[Path]:
    paths = [path.absolute() for path in find_files(source)]
    kind = detect_format(paths)
    if kind != "parquet":
        raise DataError(f"files must be Parquet to be read on a cluster, got {kind}; convert them first.")
    return paths
