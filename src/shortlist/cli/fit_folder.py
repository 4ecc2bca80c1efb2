"""`shortlist fit --ray … --out model/`: train from Parquet files on a cluster, and save a model in shards."""

import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import shortlist as sl
from shortlist.cli.params import Params, name_model
from shortlist.cli.ray import build_engine
from shortlist.cli.screen import hide_panics, print_note, progress_lines, show_json, show_text
from shortlist.cli.source import BY_NAME, Reading
from shortlist.errors import ConfigError, DataError, DataWarning
from shortlist.models.base import find_model_class
from shortlist.models.shard_folder import ShardFolder
from shortlist.text import printable
from shortlist.tuning.progress import show_progress

OF_FILES = ("separator", "encoding", "query", "table")  # flags that say nothing about Parquet files


def fit_folder(
    source: str,
    out: Path,
    model: str | None,
    params: Params,
    reading: Reading,
    ray: str,
    checkpoint: Path | None,
    others: dict[str, Any],
    json: bool,
) -> None:
    """Train one model; `others` are flags that need validation lists, None where they are not given."""
    start = time.perf_counter()
    columns = asdict(reading)
    others = others | {name: columns.pop(name) for name in OF_FILES}
    missing = columns.pop("missing")
    others["missing"] = None if missing == BY_NAME.missing else missing  # rows are checked file by file
    unused = next((name for name, value in others.items() if value is not None), None)
    if unused is not None:
        raise ConfigError(
            f"--{unused} cannot be combined with a folder as --out: one model is trained once, from Parquet "
            "files; drop it, or pass a file such as --out model.shortlist."
        )
    chosen = _choose(model, params)
    with warnings.catch_warnings(record=True) as caught, show_progress(progress_lines()) as display:
        warnings.simplefilter("always", DataWarning)
        try:
            with hide_panics(source):
                sl.fit_to_folder(
                    chosen,
                    source,
                    out,
                    engine=build_engine(ray),
                    checkpoint=checkpoint,
                    progress=display.epochs(f"training {type(chosen).__name__}"),
                    reading=display.update,
                    **columns,
                )
        except DataError as error:
            if error.parameter != "folder":
                raise
            raise DataError(str(error), parameter="out") from None
    for doubt in caught:
        print_note(f"note: {doubt.message}")
    shards = ShardFolder.open(out)
    seconds, n_users = round(time.perf_counter() - start, 2), sum(shards.users)
    name, place = type(chosen).__name__, printable(out)
    if json:
        about = {"class": name, "rows": shards.rows, "users": n_users, "shards": len(shards.paths)}
        return show_json({"model": str(out), **about, "seconds": seconds})
    files = "1 shard" if len(shards.paths) == 1 else f"{len(shards.paths)} shards"
    show_text(f"{name} trained on {shards.rows:,} rows in {seconds} s: {files} in {place}")
    length = "" if chosen.has_boundary else " --N 10"
    return show_text(f"Next: shortlist recommend {place}{length} --out lists/ --ray {printable(ray)}")


def _choose(name: str | None, params: Params) -> Any:
    """The model that the flags describe."""
    found, settings = name_model(name, params)
    if found is None:
        raise ConfigError("--model must name a factor model if --out is a folder, such as --model BPRMF.")
    return find_model_class(found)().set_params(**settings)
