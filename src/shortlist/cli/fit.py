"""`shortlist fit`: interactions in, a model folder out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.params import DEFAULTS, Name, Params, model_of
from shortlist.cli.progress import epochs
from shortlist.cli.screen import Json, say, show_json, show_text
from shortlist.cli.source import AS_NAMED, Reading, Source, interactions, write_rows
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.models import Recommender


def fit(
    source: Source,
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder of the model; an older model there is replaced.")] = Path(
        "model"
    ),
    model: Annotated[Name | None, Parameter(help="DKHRM where there are baskets, else DKBPRMF.")] = None,
    test: Annotated[
        Path | None, Parameter(help="Hold out every user's last basket, and write it to this file.")
    ] = None,
    quick: Annotated[
        bool, Parameter(help="Do not choose the number of epochs on validation.", show_default=False)
    ] = False,
    params: Params = DEFAULTS,
    reading: Reading = AS_NAMED,
    json: Json = False,
) -> None:
    """Train a model and save it: columns are found, epochs chosen on the users' last baskets.

    For example:
      shortlist fit sample --out shop --test held.parquet
    """
    began = time.perf_counter()
    data = interactions(source, reading)
    chosen = model_of(model, params, data)
    if test is not None:
        split = sl.split.last_basket(data)
        data = split.train_valid
        write_rows(split.test, test)
        say(f"held out {split.test.n_rows:,} rows of {split.test.active_users.size:,} users in {test}")
    fitted = trained(chosen, data, choose=not quick)
    place = fitted.save(out)
    about = summary(fitted) | {"model": str(place), "seconds": round(time.perf_counter() - began, 2)}
    if json:
        return show_json(about)
    learned = f", {about['n_epochs']} epochs, {about['stopped']}" if "n_epochs" in about else ""
    show_text(f"{about['class']} on {about['rows']:,} rows{learned}, in {about['seconds']} s: {place}")
    return show_text(f"Look at it: shortlist inspect {place}")


def trained(model: Any, data: "Interactions", *, choose: bool) -> Any:
    """Fitted on all of `data`; how long to train is chosen beforehand on every user's last basket."""
    from shortlist.models.joint import JointModel

    if not isinstance(model, JointModel):
        return model.fit(data)
    name = type(model).__name__
    if choose:
        try:
            split = sl.split.last_basket(data)
        except DataError as error:
            say(f"the number of epochs stays {model.n_epochs}: {error}")
        else:
            with epochs(f"choosing epochs for {name}") as progress:
                trial = model.clone().fit(split.train_valid, valid=split.test, progress=progress)
            stop_if_interrupted(trial)
            model = model.clone()
            model.n_epochs = trial.n_epochs_
            say(f"{name}: {trial.n_epochs_} epochs are best on the users' last baskets")
    with epochs(f"training {name}") as progress:
        model.fit(data, progress=progress)
    stop_if_interrupted(model)
    return model


def stop_if_interrupted(model: Any) -> None:
    """A library keeps the state it has; a command that was stopped writes nothing."""
    if model.stopped_ == "interrupted":
        raise KeyboardInterrupt


def summary(model: "Recommender") -> dict[str, Any]:
    """What a fitted model is, in plain values."""
    past = model.past
    learned = {
        name: getattr(model, f"{name}_") for name in ("n_epochs", "stopped") if hasattr(model, f"{name}_")
    }
    return {
        "class": type(model).__name__,
        "params": model.get_params(),
        "rows": past.n_rows,
        "users": past.n_users,
        "items": past.n_items,
        "data": past.fingerprint,
    } | learned
