"""`shortlist reproduce`: the paper's experiments, from data to report."""

import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shortlist.cli.screen import Json, print_note, show_json, show_table, show_text


def reproduce(
    *,
    dataset: Annotated[
        Literal["ml-100k", "ta-feng", "sample", "all"], Parameter(help="all: both datasets of the paper.")
    ] = "all",
    quick: Annotated[
        bool, Parameter(help="Takes minutes: few trials, two seeds, 2,000 users.", show_default=False)
    ] = False,
    out: Annotated[Path, Parameter(help="Folder for results.json, report.html and table.md.")] = Path(
        "results"
    ),
    seeds: Annotated[int | None, Parameter(help="Runs per model; 5, or 2 with --quick.")] = None,
    seed: Annotated[int, Parameter(help="First seed.")] = 0,
    trials: Annotated[int | None, Parameter(help="Tuning trials per model; 12, or 4 with --quick.")] = None,
    users: Annotated[int | None, Parameter(help="Maximum number of users; with --quick 2,000.")] = None,
    jobs: Annotated[int, Parameter(help="Parallel runs; 0: one per core. Does not affect the results.")] = 0,
    json: Json = False,
) -> None:
    """Repeat the experiments of the paper.

    The models are tuned, trained and evaluated, and the claims of the paper are checked.
    An interrupted run continues.

    For example:
      shortlist reproduce --dataset ml-100k --quick --out results
    """
    from dataclasses import replace

    from shortlist.paper.reproduce import FULL, QUICK
    from shortlist.paper.reproduce import reproduce as run

    start = time.monotonic()
    limits = {"n_trials": trials, "users": users}
    budget = replace(QUICK if quick else FULL, **{k: v for k, v in limits.items() if v is not None})

    def print_progress(line: str) -> None:
        print_note(f"{time.monotonic() - start:6.0f} s  {line}")

    results = run(
        dataset,
        budget=budget,
        out=out,
        n_seeds=(2 if quick else 5) if seeds is None else seeds,
        seed=seed,
        n_jobs=jobs,
        progress=print_progress,
    )
    if json:
        return show_json({name: one["verdicts"] for name, one in results["datasets"].items()})
    for name, one in results["datasets"].items():
        show_table(["claim", "verdict"], [(v["claim"], v["verdict"]) for v in one["verdicts"]], title=name)
    return show_text(f"Report: {out / 'report.html'}")
