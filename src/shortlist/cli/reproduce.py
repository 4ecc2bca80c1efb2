"""`shortlist reproduce`: the paper's experiments from data to report, with one command."""

import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shortlist.cli.screen import Json, say, show_json, show_table, show_text


def reproduce(
    *,
    dataset: Annotated[
        Literal["ml-100k", "ta-feng", "sample", "all"], Parameter(help="all: the paper's two.")
    ] = "all",
    quick: Annotated[
        bool, Parameter(help="A few minutes: few trials, two seeds, 2,000 users.", show_default=False)
    ] = False,
    out: Annotated[Path, Parameter(help="Folder of results.json, report.html and table.md.")] = Path(
        "results"
    ),
    seeds: Annotated[int | None, Parameter(help="Runs of every model; 5, or 2 with --quick.")] = None,
    seed: Annotated[int, Parameter(help="The first seed.")] = 0,
    trials: Annotated[int | None, Parameter(help="Of tuning, per model; 12, or 4 with --quick.")] = None,
    users: Annotated[int | None, Parameter(help="Keep at most so many; all, or 2,000 with --quick.")] = None,
    jobs: Annotated[int, Parameter(help="ResultCache at a time; 0: one per core. Changes no result.")] = 0,
    json: Json = False,
) -> None:
    """Tune, train and judge the paper's models; say which of its claims hold. A killed run continues.

    For example:
      shortlist reproduce --dataset ml-100k --quick --out results
    """
    from dataclasses import replace

    from shortlist.paper.reproduce import FULL, QUICK
    from shortlist.paper.reproduce import reproduce as work

    began = time.monotonic()
    said = {"n_trials": trials, "users": users}
    budget = replace(QUICK if quick else FULL, **{k: v for k, v in said.items() if v is not None})

    def tell(line: str) -> None:
        say(f"{time.monotonic() - began:6.0f} s  {line}")

    found = work(
        dataset,
        budget=budget,
        out=out,
        n_seeds=(2 if quick else 5) if seeds is None else seeds,
        seed=seed,
        n_jobs=jobs,
        progress=tell,
    )
    if json:
        return show_json({name: one["verdicts"] for name, one in found["datasets"].items()})
    for name, one in found["datasets"].items():
        show_table(["claim", "verdict"], [(v["claim"], v["verdict"]) for v in one["verdicts"]], title=name)
    return show_text(f"Read it: {out / 'report.html'}")
