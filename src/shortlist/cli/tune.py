"""`shortlist tune`: interactions in, a file of the best parameters found out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shortlist.cli.params import DEFAULTS, Name, Params, chosen_model
from shortlist.cli.screen import Json, say, show_json, show_text
from shortlist.cli.source import AS_NAMED, Reading, Source, interactions

if TYPE_CHECKING:
    from shortlist.tuning.study import Trial


def tune(
    source: Source,
    /,
    *,
    model: Annotated[Name | None, Parameter(help="DKHRM where there are baskets, else DKBPRMF.")] = None,
    out: Annotated[Path, Parameter(help="TOML file of the result, for fit --config.")] = Path("tuned.toml"),
    trials: Annotated[int, Parameter(help="How many sets of parameters to try.")] = 20,
    sampler: Annotated[
        Literal["random", "tpe"], Parameter(help="tpe learns from earlier trials and needs optuna.")
    ] = "random",
    folds: Annotated[int, Parameter(help="Validate on this many last baskets, each after its past.")] = 1,
    jobs: Annotated[int, Parameter(help="Trials at a time; 0: one per core. Changes no result.")] = 0,
    study: Annotated[
        Path | None, Parameter(help="JSON Lines file of the trials; a search found there is continued.")
    ] = None,
    params: Params = DEFAULTS,
    reading: Reading = AS_NAMED,
    json: Json = False,
) -> None:
    """Search a model's hyper-parameters on what users took last; flags that name one hold it fixed.

    For example:
      shortlist tune sample --model BPRMF --trials 8 --out tuned.toml
    """
    from shortlist.core.files import check_writable
    from shortlist.tuning.tune import tune as search

    check_writable(out)
    data = interactions(source, reading)
    name, given = chosen_model(model, params, data)

    def tell(trial: "Trial") -> None:
        ended = "" if trial.stopped == "done" else f" ({trial.stopped})"
        say(f"trial {trial.number + 1} of {trials}: validation F1 {trial.score:.4f}{ended}")

    found = search(
        name,
        data,
        n_trials=trials,
        sampler=sampler,
        fixed=given,
        n_folds=folds,
        seed=given.get("seed", 0),
        n_jobs=jobs,
        study=study,
        progress=tell,
    )
    place = found.write(out)
    if json:
        about = {"file": str(place), "model": name, "score": found.score, "trials": trials}
        return show_json(about | {"params": found.params})
    chosen = ", ".join(f"{key} {value}" for key, value in found.params.items())
    show_text(f"{name}: validation F1 {found.score:.4f} with {chosen}")
    return show_text(f"Train it: shortlist fit {source} --config {place}")
