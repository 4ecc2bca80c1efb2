"""fit_to_folder: train on files that need not fit in memory, and save the model in shards of users."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from shortlist.core.calls import explain_call
from shortlist.core.engine import Engine, ThreadEngine, check_engine
from shortlist.core.estimator import short_repr
from shortlist.data.aliases import ColumnNames
from shortlist.data.negative_rows import NegativeWeights
from shortlist.data.range_files import ReadOptions, remove_ranges
from shortlist.data.readers import read_interactions
from shortlist.data.sources import detect_format, find_files
from shortlist.data.user_ranges import divide_files
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import Recommender
from shortlist.models.factorization.engine import FactorModel
from shortlist.models.factorization.file_training import train_files
from shortlist.models.factorization.hrm import HRM
from shortlist.models.factorization.shards import NAME, remove_shards, shard_paths
from shortlist.split.splits import last_basket

ROWS = "_rows"  # folder of the divided rows, beside the shards, until the model is saved


@explain_call
def fit_to_folder(
    model: Recommender,
    source: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    user_id: str | None = None,
    item_id: str | None = None,
    timestamp: str | None = None,
    weight: str | None = None,
    basket_id: str | None = None,
    item_name: str | None = None,
    time_format: str | None = None,
    negative_weights: NegativeWeights = "drop",
    min_rating: float | None = None,
    valid: Literal["last_basket"] | None = None,
    checkpoint: str | Path | None = None,
    engine: Engine | None = None,
    progress: Callable[[Any], None] | None = None,
    reading: Callable[[str, int, int], None] | None = None,
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
    time_format, negative_weights, min_rating
        As in `read_interactions`.
    valid
        "last_basket": train without the last basket of each user who has two, stop early on them as with
        `fit(split.train_valid, valid=split.test)`, and keep the best parameters. The model does not know the
        held-out rows; to train on all rows, call again without `valid` and with the best number of epochs.
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
    names = ColumnNames(user_id, item_id, timestamp, weight, basket_id, item_name)
    options = ReadOptions(names, time_format, negative_weights, min_rating)
    if valid not in (None, "last_basket"):
        raise ConfigError(
            f'valid must be "last_basket" or None, got {short_repr(valid)}; pass one of them.',
            parameter="valid",
        )
    saved = None if checkpoint is None else Path(checkpoint).absolute()
    _check_target(target, saved)
    if isinstance(place, ThreadEngine):
        data = read_interactions(
            source,
            **names._asdict(),
            time_format=time_format,
            negative_weights=negative_weights,
            min_rating=min_rating,
        )
        rows, held = data, None
        if valid is not None:
            split = last_basket(data)
            rows, held = split.train_valid, split.test
        one = type(model)(**model.get_params())
        one.fit(rows, valid=held, checkpoint=saved, progress=progress)
        target.mkdir(parents=True, exist_ok=True)
        one.save(shard_paths(target, 1)[0])
        return target
    factors, paths = _check_model(model), _find_parquet(source)
    target.mkdir(parents=True, exist_ok=True)
    remove_ranges(target / ROWS)
    try:
        rows_of_files = divide_files(
            paths,
            options,
            target / ROWS,
            place,
            str(source),
            holds_out=valid is not None,
            counts_baskets=isinstance(factors, HRM),
            progress=reading,
        )
        train_files(factors, rows_of_files, target, place, progress, saved)
    finally:
        remove_ranges(target / ROWS)
    return target


def _check_target(target: Path, checkpoint: Path | None) -> None:
    """Raise DataError unless the folder is new, empty, or that of an interrupted call, which is cleared."""
    if not target.exists():
        return
    found = {path.name for path in target.iterdir()} if target.is_dir() else {""}
    if checkpoint is not None and checkpoint.exists():
        found = {name for name in found if not NAME.fullmatch(name)}
    if found - {ROWS}:
        raise DataError(f"{target} must be a new or empty folder; choose another path.", parameter="folder")
    if checkpoint is not None and checkpoint.is_relative_to(target):
        raise ConfigError(
            f"checkpoint must not lie in the folder of the model, got {checkpoint}; choose another path.",
            parameter="checkpoint",
        )
    remove_shards(target)


def _check_model(model: Recommender) -> FactorModel:
    """The model, if it can be trained on a cluster."""
    if model.weight_transform.is_used:
        raise ConfigError(
            f"weighting must be 'none' to train from files on a cluster, got "
            f"{model.weight_transform.name!r}; read the data and use fit(engine=…).",
            parameter="weighting",
        )
    if isinstance(model, FactorModel):
        return model
    raise ConfigError(
        "model must be BPRMF, LogMF, CRRMF, DKBPRMF, HRM or DKHRM to be trained from files on a cluster, got "
        f"{model!r:.60}; read the files with read_interactions and call fit.",
        parameter="model",
    )


def _find_parquet(source: Any) -> list[Path]:
    paths = [path.absolute() for path in find_files(source)]
    kind = detect_format(paths)
    if kind != "parquet":
        raise DataError(f"files must be Parquet to be read on a cluster, got {kind}; convert them first.")
    return paths
