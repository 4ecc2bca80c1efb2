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
from shortlist.cli.training import Seen, keeps_seen, learned, rehearse, relearned
from shortlist.errors import DataError

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
    data = interactions(source, reading)
    wanted = model_of(model, params, data)
    if test is not None:
        split = sl.split.last_basket(data)
        data = split.train_valid
        write_rows(split.test, test)
        say(f"held out {split.test.n_rows:,} rows of {split.test.active_users.size:,} users in {test}")
    rehearsal = None if quick else rehearse(wanted, data, keeps_seen(seen, data))
    fitted = learned(wanted, data) if rehearsal is None else relearned(rehearsal, data)
    place = fitted.save(out)
    if rehearsal is not None and cutoff != "none":
        rehearsal.decided(getattr(sl.cutoff, cutoff)()).save(place / CUTOFF)
    about = summary(fitted, place) | {"seconds": round(time.perf_counter() - began, 2)}
    if json:
        return show_json(about)
    decides = about["cutoff"] or "its own boundary"
    show_text(
        f"{about['class']} on {about['rows']:,} rows, cut by {decides}, in {about['seconds']} s: {place}"
    )
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
