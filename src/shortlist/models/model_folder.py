"""fit_to_folder: train on files that need not fit in memory, and save the model in shards of users."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shortlist.core.calls import explain_call
from shortlist.core.engine import Engine, ThreadEngine, check_engine
from shortlist.data.aliases import ColumnNames
from shortlist.data.negative_rows import NegativeWeights
from shortlist.data.range_files import ReadOptions, remove_ranges
from shortlist.data.readers import read_interactions
from shortlist.data.sources import detect_format, find_files
from shortlist.data.user_ranges import UserRanges, divide_files
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.mf import TERMS
from shortlist.models.base import Recommender
from shortlist.models.factorization.dynamic_k import DynamicK
from shortlist.models.factorization.mf import MatrixFactorization
from shortlist.models.factorization.objective import single_precision
from shortlist.models.factorization.parameters import mean_of_sums, parameter_shapes
from shortlist.models.factorization.representation import UserFactors
from shortlist.models.factorization.shards import Shard, shard_paths
from shortlist.models.factorization.trainer import FileTask
from shortlist.models.factorization.training import TrainingOptions, train

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
    engine: Engine | None = None,
    progress: Callable[[Any], None] | None = None,
) -> Path:
    """Train on a folder of Parquet files, and save the model as a folder of shards.

    On a cluster, each worker reads the rows of its users, trains on them and saves a shard: a model file with
    these users and all items. Neither the rows nor the user factors are ever on one machine. `load_model`
    loads a shard, or all of them as one model, which is the same, bit for bit, as if the files had been read
    and trained on one machine.

    Parameters
    ----------
    model
        `BPRMF`, `LogMF`, `CRRMF`, or `DKBPRMF` with `boundary="learned"`. It stays as it is.
    source
        Parquet files: a folder, a pattern or a list. All nodes must see them under the same path.
    folder
        A new or empty folder, which all nodes must see under the same path. While the model is trained, it
        also holds a copy of the rows, divided by user.
    user_id, item_id, timestamp, weight, basket_id, item_name
        As in `read_interactions`.
    time_format, negative_weights, min_rating
        As in `read_interactions`.
    engine
        Where to train: `RayEngine(…)` on a cluster, with one shard per worker; None or `ThreadEngine()` reads
        everything into this process and writes one shard.
    progress
        As in `fit`.

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
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} must be a new or empty folder; choose another path.", parameter="folder")
    if isinstance(place, ThreadEngine):
        data = read_interactions(
            source,
            **names._asdict(),
            time_format=time_format,
            negative_weights=negative_weights,
            min_rating=min_rating,
        )
        one = type(model)(**model.get_params()).fit(data, progress=progress)
        target.mkdir(parents=True, exist_ok=True)
        one.save(shard_paths(target, 1)[0])
        return target
    _fit_files(_check_model(model), _find_parquet(source), options, target, place, progress, str(source))
    return target


def _check_model(model: Recommender) -> MatrixFactorization:
    """The model, if a worker can train it on the rows of its users alone."""
    if model.weight_transform.is_used:
        raise ConfigError(
            f"weighting must be 'none' to train from files on a cluster, got "
            f"{model.weight_transform.name!r}; read the data and use fit(engine=…).",
            parameter="weighting",
        )
    if isinstance(model, MatrixFactorization) and not (isinstance(model, DynamicK) and model.maximizes_f1):
        return model
    advice = 'pass boundary="learned"' if isinstance(model, MatrixFactorization) else "use fit(engine=…)"
    raise ConfigError(
        "model must be BPRMF, LogMF, CRRMF or DKBPRMF with boundary='learned' to be trained from files on a "
        f"cluster, got {model!r:.60}; {advice}.",
        parameter="model",
    )


def _find_parquet(source: Any) -> list[Path]:
    paths = [path.absolute() for path in find_files(source)]
    kind = detect_format(paths)
    if kind != "parquet":
        raise DataError(f"files must be Parquet to be read on a cluster, got {kind}; convert them first.")
    return paths


def _fit_files(
    model: MatrixFactorization,
    paths: list[Path],
    options: ReadOptions,
    folder: Path,
    engine: Engine,
    progress: Callable[[Any], None] | None,
    label: str,
) -> None:
    """Divide the files by user, train, and save one shard per worker."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        data = divide_files(paths, options, folder / ROWS, engine, label)
        for what, n in (("user", data.n_users), ("item", data.n_items)):
            if n < 2:
                raise DataError(f"interactions must have at least two {what}s, got {n}; use more data.")
        _train_files(model, data, folder, engine, progress)
    finally:
        remove_ranges(folder / ROWS)


def _train_files(
    model: MatrixFactorization,
    data: UserRanges,
    folder: Path,
    engine: Engine,
    progress: Callable[[Any], None] | None,
) -> None:
    weights: tuple[float | None, ...] = (None,) * len(TERMS)
    task = FileTask(
        start=model._initializer(weights, data.n_items),
        data=data,
        representation=UserFactors(),
        objective=model.objective(),
        hyper=single_precision(model._hyperparameters()),
        n_factors=model.n_factors,
        seed=model.seed,
        n_threads=model.n_threads,
    )
    training = TrainingOptions(
        n_epochs=model.n_epochs,
        patience=model.patience,
        tol=model.tol,
        shapes=parameter_shapes(data.n_users, data.n_items, model.n_factors, model.bias, model.terms_on),
        identity={},
        progress=progress,
    )
    trainer_of: Any = engine.open_trainer(task)
    with trainer_of as trainer:
        run = train(trainer, model.lr, training)
        mean = mean_of_sums(trainer.user_sums(), data.n_users)
        plain = type(model)(**model.get_params())
        trainer.save_shards(Shard(plain, data.items, data.item_names, data.source, mean, run), folder)
