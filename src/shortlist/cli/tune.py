"""`shortlist tune`: search hyperparameters and write the best ones to a file."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.auto.tune import Trial
from shortlist.cli.screen import Json, print_note, progress_lines, show_json, show_text
from shortlist.cli.source import (
    BY_NAME,
    DEFAULTS,
    VALIDATIONS,
    Params,
    Ray,
    Reading,
    Source,
    ValidationName,
    build_engine,
    choose_model,
    given_flags,
    read_source,
)
from shortlist.cli.stopping import ModelName
from shortlist.core.files import check_writable
from shortlist.text import printable, redact_uri


def tune_command(
    source: Source,
    /,
    *,
    model: Annotated[
        ModelName | None, Parameter(help="Default: DKHRM for data with baskets, otherwise DKBPRMF.")
    ] = None,
    out: Annotated[Path, Parameter(help="TOML file for the result; use it with fit --config.")] = Path(
        "tuned.toml"
    ),
    trials: Annotated[int, Parameter(help="Number of parameter sets to try.")] = 20,
    sampler: Annotated[
        Literal["random", "tpe"], Parameter(help="tpe learns from earlier trials and needs optuna.")
    ] = "random",
    folds: Annotated[int, Parameter(help="Number of last baskets to validate on.")] = 1,
    validation: Annotated[
        ValidationName, Parameter(help="by-time: learn before a cut, score later baskets.")
    ] = "last-basket",
    jobs: Annotated[int, Parameter(help="Parallel trials; 0: one per core. Does not affect the result.")] = 0,
    study: Annotated[
        Path | None, Parameter(help="JSON Lines file of the trials; an interrupted search continues from it.")
    ] = None,
    ray: Ray = None,
    params: Params = DEFAULTS,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Search the hyperparameters of a model.

    Each trial is scored on validation data. Parameters given as flags stay fixed.

    For example:
      shortlist tune sample --model BPRMF --trials 8 --out tuned.toml
    """
    check_writable(out)
    data = read_source(source, reading)
    name, fixed = choose_model(model, params, data)

    def print_trial(trial: Trial) -> None:
        print_note(f"trial {trial.number + 1} of {trials}: {trial}")

    tuned = sl.tune(
        name,
        data,
        n_trials=trials,
        sampler=sampler,
        fixed=fixed,
        n_folds=folds,
        validation=VALIDATIONS[validation],
        seed=fixed.get("seed", 0),
        n_jobs=jobs,
        study=study,
        progress=None if progress_lines() is None else print_trial,
        engine=build_engine(ray),
    )
    path = tuned.write(out)
    if json:
        about = {"file": str(path), "model": name, "score": tuned.score, "trials": trials}
        return show_json(about | {"params": tuned.params})
    best = ", ".join(f"{key} {value}" for key, value in tuned.params.items())
    show_text(f"{name}: validation F1 {tuned.score:.4f} with {best}")
    words = [redact_uri(source), "--config", str(path), *given_flags(reading)]
    return show_text("Next: shortlist fit " + " ".join(quote(printable(word)) for word in words))
