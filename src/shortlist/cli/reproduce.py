"""`shortlist reproduce`: the paper's experiments, from data to report."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from shortlist.cli.screen import Json, print_note, show_json, show_table, show_text
from shortlist.cli.source import Ray, build_engine


def reproduce_command(
    *,
    dataset: Annotated[
        Literal["ml-100k", "ta-feng", "sample", "all"], Parameter(help="all: both datasets of the paper.")
    ] = "all",
    part: Annotated[
        Literal["all", "claims", "variants"],
        Parameter(
            help="claims: figures and verdicts; variants: Table 1 under every reading of the protocol."
        ),
    ] = "all",
    quick: Annotated[
        bool, Parameter(help="Takes minutes: few trials, two seeds, 2,000 users.", show_default=False)
    ] = False,
    out: Annotated[
        Path, Parameter(help="Folder for results.json, report.html, table.md and variants.md.")
    ] = Path("results"),
    seeds: Annotated[int | None, Parameter(help="Runs per model; 5, or 2 with --quick.")] = None,
    seed: Annotated[int, Parameter(help="First seed.")] = 0,
    trials: Annotated[int | None, Parameter(help="Trials per model; 12 for claims, 50 for variants.")] = None,
    users: Annotated[int | None, Parameter(help="Maximum number of users; with --quick 2,000.")] = None,
    jobs: Annotated[int, Parameter(help="Parallel runs; 0: one per core. Does not affect the results.")] = 0,
    ray: Ray = None,
    json: Json = False,
) -> None:
    """Repeat the experiments of the paper.

    The models are tuned, trained and evaluated, and the claims of the paper are
    checked. An interrupted run continues.

    For example:
      shortlist reproduce --dataset ml-100k --quick --out results
      shortlist reproduce --dataset ta-feng --out results --ray auto
    """
    from dataclasses import replace

    from shortlist.paper.claims import FULL, QUICK
    from shortlist.paper.protocol import DATASETS
    from shortlist.paper.report import list_cells
    from shortlist.paper.reproduce import reproduce as run
    from shortlist.paper.variants import FULL_VARIANTS, QUICK_VARIANTS

    start, engine = time.monotonic(), build_engine(ray)
    limits: dict[str, Any] = {"n_trials": trials, "users": users}
    given = {name: value for name, value in limits.items() if value is not None}
    n_seeds = (2 if quick else 5) if seeds is None else seeds
    names = DATASETS if dataset == "all" else (dataset,)

    def print_progress(line: str) -> None:
        print_note(f"{time.monotonic() - start:6.0f} s  {line}")

    options: dict[str, Any] = {"out": out, "n_seeds": n_seeds, "seed": seed, "n_jobs": jobs, "engine": engine}
    claims: dict[str, Any] = {}
    variants: dict[str, Any] = {}
    if part != "claims":
        budget = replace(QUICK_VARIANTS if quick else FULL_VARIANTS, **given)
        variants = run(dataset, budget=budget, progress=print_progress, **options)["datasets"]
    if part != "variants":
        claimed = replace(QUICK if quick else FULL, **given)
        claims = run(dataset, budget=claimed, progress=print_progress, **options)["datasets"]
    if json:
        return show_json(
            {
                name: {
                    **({"verdicts": claims[name]["verdicts"]} if claims else {}),
                    **(_cells(variants[name]) if variants else {}),
                }
                for name in names
            }
        )
    for name, one in variants.items():
        show_table(["variant", "cells at or above the paper"], list_cells(one["cells"]), title=name)
        extended = list_cells(one["extended"]["cells"])
        show_table(["beyond the paper", "cells at or above the paper"], extended, title=name)
    for name, one in claims.items():
        show_table(["claim", "verdict"], [(v["claim"], v["verdict"]) for v in one["verdicts"]], title=name)
    if variants:
        show_text(f"Variants: {out / 'variants.md'}")
    if claims:
        show_text(f"Report: {out / 'report.html'}")
    return None


def _cells(found: dict[str, Any]) -> dict[str, Any]:
    """The cells of the paper's models, and with rows beyond the paper."""
    return {"cells": found["cells"], "extended_cells": found["extended"]["cells"]}
