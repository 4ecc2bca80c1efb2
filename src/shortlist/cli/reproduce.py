"""`shortlist reproduce`: the paper's experiments, from data to report."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from shortlist.cli.output import Json, print_note, show_json, show_table, show_text


def reproduce_command(
    *,
    dataset: Literal["ml-100k", "ta-feng", "sample", "all"] = "all",
    quick: Annotated[bool, Parameter(show_default=False)] = False,
    out: Path = Path("results"),
    seeds: int | None = None,
    seed: int = 0,
    trials: int | None = None,
    users: int | None = None,
    jobs: int = 0,
    json: Json = False,
) -> None:
    """Repeat the experiments of the paper.

    The models are tuned, trained and evaluated, and the claims of the paper are
    checked. An interrupted run continues.

    For example:
      shortlist reproduce --dataset ml-100k --quick --out results
      shortlist reproduce --dataset ta-feng --out results

    Parameters
    ----------
    dataset
        all: both datasets of the paper.
    quick
        Takes minutes: few trials, two seeds, 2,000 users.
    out
        Folder for results.json, report.html and table.md.
    seeds
        Runs per model; 5, or 2 with --quick.
    seed
        First seed.
    trials
        Trials per model and bias; 36, or 6 with --quick.
    users
        Maximum number of users; with --quick 2,000.
    jobs
        Parallel runs; 0: one per core. Does not affect the results.
    """
    from dataclasses import replace

    from shortlist.paper.report import BEST_COLUMNS, best_rows
    from shortlist.paper.reproduce import reproduce as run
    from shortlist.paper.variants import FULL, QUICK

    start = time.monotonic()
    limits: dict[str, Any] = {"n_trials": trials, "users": users}
    given = {name: value for name, value in limits.items() if value is not None}

    def print_progress(line: str) -> None:
        print_note(f"{time.monotonic() - start:6.0f} s  {line}")

    results = run(
        dataset,
        out=out,
        n_seeds=(2 if quick else 5) if seeds is None else seeds,
        seed=seed,
        n_jobs=jobs,
        budget=replace(QUICK if quick else FULL, **given),
        progress=print_progress,
    )
    verdicts = {name: figures["claims"]["verdicts"] for name, figures in results["datasets"].items()}
    if json:
        return show_json({"verdicts": verdicts, "best": results["best"]})
    for name, rows in verdicts.items():
        show_table(["claim", "verdict"], [(row["claim"], row["verdict"]) for row in rows], title=name)
    if results["best"]:
        show_table(BEST_COLUMNS, best_rows(results["best"]))
    show_text(f"Report: {out / 'report.html'}")
    return None
