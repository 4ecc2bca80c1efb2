"""`shortlist fit`: interactions in, a model folder out."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.params import DEFAULTS, Name, Params, model_of
from shortlist.cli.screen import Json, say, show_json, show_text
from shortlist.cli.source import AS_NAMED, Reading, Source, interactions, write_rows
from shortlist.cli.training import Seen, judged, keeps_seen, taught, write_page
from shortlist.errors import ConfigError, DataError

if TYPE_CHECKING:
    from shortlist.models import Recommender

Decider = Literal["ExpectedF1", "ExpectedNDCG", "Threshold", "Boundary", "FixedN", "none"]
CUTOFF = "cutoff"  # folder inside the model's


def fit(
    source: Source,
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder of the model; an older one there is replaced.")] = Path(
        "model"
    ),
    model: Annotated[Name | None, Parameter(help="DKHRM where there are baskets, else DKBPRMF.")] = None,
    cutoff: Annotated[
        Decider, Parameter(help="What decides the lengths; fitted on validation, saved with the model.")
    ] = "ExpectedF1",
    seen: Annotated[Seen, Parameter(help="Whether items taken before may be shown again.")] = "auto",
    test: Annotated[
        Path | None, Parameter(help="Hold out every user's last basket, and write it to this file.")
    ] = None,
    report: Annotated[
        Path | None,
        Parameter(help="HTML page on how good the lists are; without --test it costs one more training."),
    ] = None,
    quick: Annotated[
        bool,
        Parameter(help="Train once: no choice of epochs and no cutoff on validation.", show_default=False),
    ] = False,
    params: Params = DEFAULTS,
    reading: Reading = AS_NAMED,
    json: Json = False,
) -> None:
    """Train a model, choose its epochs and its cutoff on the users' last baskets, and save it.

    For example:
      shortlist fit sample --out shop --test held.parquet
    """
    began = time.perf_counter()
    free(out)
    if report is not None and quick:
        raise ConfigError("a report needs what --quick leaves out, validation; got both: drop one.")
    data = interactions(source, reading)
    wanted = model_of(model, params, data)
    keep = keeps_seen(seen, data)
    split = sl.split.last_basket(data) if test is not None or report is not None else None
    if test is not None and split is not None:
        data = split.train_valid
        write_rows(split.test, test)
        say(f"held out {split.test.n_rows:,} rows of {split.test.active_users.size:,} users in {test}")
    made = taught(wanted, data, cutoff, keep, quick=quick)
    if report is not None and split is not None:
        tried = made
        if test is None:
            say("for the report, once more without the users' last baskets")
            tried = taught(wanted, split.train_valid, cutoff, keep)
        write_page(judged(source, tried, split, keep), report)
    place = made.model.save(out)
    if made.cutoff is not None:
        made.cutoff.save(place / CUTOFF)
    about = summary(made.model, place) | {"seconds": round(time.perf_counter() - began, 2)}
    if report is not None:
        about["report"] = str(report)
    if json:
        return show_json(about)
    ends = f"cut by {about['cutoff'] or 'its own boundary'}"
    if about["cutoff"] is None and made.model.boundaries(made.model.past.active_users[:1]) is None:
        ends = "which only ranks, so recommend needs --N"
    show_text(f"{about['class']} on {about['rows']:,} rows, {ends}, in {about['seconds']} s: {place}")
    if report is not None:
        show_text(f"Read how good it is: {report}")
    return show_text(f"Look at it: shortlist inspect {place}")


def free(out: Path) -> None:
    """Refuse, before hours of training, a place where nothing can be saved afterwards."""
    from shortlist.data.store import HEADER

    if out.exists() and not (out / HEADER).is_file():
        raise DataError(f"{out} exists and is not a saved model; choose another place with --out.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(dir=out.parent).cleanup()
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; choose another --out.") from None


def summary(model: "Recommender", place: Path) -> dict[str, Any]:
    """What a saved model is, in plain values."""
    from shortlist.data.store import read_header

    past, cutoff = model.past, place / CUTOFF
    learned = {
        name: getattr(model, f"{name}_") for name in ("n_epochs", "stopped") if hasattr(model, f"{name}_")
    }
    return {
        "model": str(place),
        "class": type(model).__name__,
        "cutoff": read_header(cutoff)["class"] if cutoff.is_dir() else None,
        "rows": past.n_rows,
        "users": past.n_users,
        "items": past.n_items,
        "data": past.fingerprint,
        **learned,
        "params": model.get_params(),
    }
