"""`shortlist fit`: interactions in, a model folder out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.params import DEFAULTS, Name, Params, model_of
from shortlist.cli.screen import Json, say, show, show_json, show_text
from shortlist.cli.source import AS_NAMED, Reading, Source, interactions, write_rows
from shortlist.cli.training import Seen, Taught, chosen_for, judged, keeps_seen, taught, write_page
from shortlist.errors import ConfigError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.models import Recommender

Budget = int | Literal["quick", "default"]
Decider = Literal["auto", "ExpectedF1", "ExpectedNDCG", "Threshold", "Boundary", "FixedN", "none"]


def fit(
    source: Source,
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder of the model; an older one there is replaced.")] = Path(
        "model"
    ),
    model: Annotated[
        Name | None, Parameter(help="Else all are tried on validation and the best is kept.")
    ] = None,
    budget: Annotated[
        Budget | None,
        Parameter(help="Settings to try per ranker: a number, quick for 1 (if not said), default for 4."),
    ] = None,
    cutoff: Annotated[
        Decider,
        Parameter(help="What decides the lengths; auto: the best on validation, or ExpectedF1 for --model."),
    ] = "auto",
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
    """Train a model, choose what ends its lists on the users' last baskets, and save both.

    Without --model, every ranker that suits the data is tried as it comes, with
    --budget also in other settings, and the best is kept, as by sl.fit in Python.
    shortlist tune looks for settings of one model.

    For example:
      shortlist fit sample --out shop --test held.parquet
    """
    began = time.perf_counter()
    if report is not None and quick:
        raise ConfigError("a report needs what --quick leaves out, validation; got both: drop one.")
    wishes = (model, cutoff, seen, quick)
    settled = wishes != (None, "auto", "auto", False) or not params.only("seed", "n_threads")
    if budget is not None and settled:
        raise ConfigError(
            "--budget is for choosing among all rankers, got it with a flag that settles one of them or how "
            "it learns; drop the one or the other."
        )
    free(out, test, report)
    data = interactions(source, reading)
    keep = keeps_seen(seen, data)
    split = sl.split.last_basket(data) if test is not None or report is not None else None
    whole = data
    if test is not None and split is not None:
        data = split.train_valid
        write_rows(split.test, test)
        say(f"held out {split.test.n_rows:,} rows of {split.test.active_users.size:,} users in {test}")

    def teach(rows: "Interactions") -> Taught:
        if not settled:
            return chosen_for(rows, "quick" if budget is None else budget, params.given())
        end = "ExpectedF1" if cutoff == "auto" else cutoff
        return taught(model_of(model, params, whole), rows, end, keep, quick=quick)

    made = teach(data)
    if report is not None and split is not None:
        if test is None:
            say("for the report, once more without the users' last baskets")
        tried = made if test is not None else teach(split.train_valid)
        write_page(judged(source, tried, split, keep), report)
    return told(made, made.save(out), report, round(time.perf_counter() - began, 2), json)


def told(made: Taught, place: Path, report: Path | None, seconds: float, json: bool) -> None:
    """What was made, why, and where to look at it."""
    about = summary(made.model, place) | {"seconds": seconds}
    if json:
        return show_json(about if report is None else about | {"report": str(report)})
    if made.chosen is not None:
        show(made.chosen)
    ends = f"cut by {about['cutoff'] or 'its own boundary'}"
    if about["cutoff"] is None and made.model.boundaries(made.model.history.active_users[:1]) is None:
        ends = "which only ranks, so recommend needs --N"
    show_text(f"{about['class']} on {about['rows']:,} rows, {ends}, in {seconds} s: {place}")
    if report is not None:
        show_text(f"Read how good it is: {report}")
    return show_text(f"Look at it: shortlist inspect {place}")


def free(out: Path, *files: Path | None) -> None:
    """Refuse, before hours of training, places where nothing can be saved afterwards."""
    from shortlist.core.files import check_writable
    from shortlist.core.serialization import check_model_path

    check_model_path(out)
    for path in files:
        if path is not None:
            check_writable(path)


def summary(model: "Recommender", place: Path) -> dict[str, Any]:
    """What a saved model is, in plain values."""
    past, cutoff = model.history_, model.cutoff_
    learned = {
        name: getattr(model, f"{name}_") for name in ("n_epochs", "stopped") if hasattr(model, f"{name}_")
    }
    return {
        "model": str(place),
        "class": type(model).__name__,
        "cutoff": None if cutoff is None else type(cutoff).__name__,
        "rows": past.n_rows,
        "users": past.n_users,
        "items": past.n_items,
        "data": past.fingerprint,
        **learned,
        "params": model.get_params(),
        "reason": getattr(getattr(model, "selection_", None), "reason", None),
    }
