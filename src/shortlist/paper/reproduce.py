"""reproduce: run the paper's experiments and write what they show. Interrupted runs resume."""

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shortlist.core.files import check_writable, write_text
from shortlist.core.params import check_whole
from shortlist.errors import ConfigError
from shortlist.paper import protocol
from shortlist.paper.experiment import Experiment, Runner
from shortlist.paper.report import render_reproduction, render_tables
from shortlist.paper.variants import FULL, Variants, Workload
from shortlist.paper.verdicts import best_variants, count_cells, find_claims, summarize_rows

CHOICES = (*protocol.DATASETS, "sample", "all")


def reproduce(
    dataset: str = "all",
    *,
    out: str | Path = "results",
    n_seeds: int = 5,
    seed: int = 0,
    n_jobs: int = 0,
    budget: Workload = FULL,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run the experiments of the paper and write the results, a report and a table.

    Writes `results.json`, `machine.json`, `report.html` and `table.md` to `out`. Finished results are kept in
    `out/cache` and never computed again, so an interrupted run resumes where it stopped.

    Parameters
    ----------
    dataset
        `"ml-100k"`, `"ta-feng"`, `"sample"`, or `"all"` for the two datasets of the paper.
    out
        Folder to write to.
    n_seeds, seed
        Number of runs per model, and the seed of the first. The results depend on them, on the dataset and on
        the budget only.
    n_jobs
        Number of parallel runs; 0 uses all cores. The results do not depend on it.
    budget
        The amount of tuning and training: `FULL`, or `QUICK`, which takes minutes.
    progress
        Called with one line of text after each finished step.

    Returns
    -------
    dict
        The content of `results.json`: `settings`, `datasets`, each with tables and figures, and `best`, the
        readings that come closest to the paper.

    Raises
    ------
    ConfigError
        If `dataset` is unknown or a number is out of range.
    """
    if dataset not in CHOICES:
        raise ConfigError(f"dataset must be one of {', '.join(CHOICES)}, got {dataset!r}; choose one.")
    check_whole(1, n_seeds=n_seeds, n_trials=budget.n_trials)
    check_whole(0, seed=seed, n_jobs=n_jobs)
    folder, seconds = Path(out), 0.0
    datasets: dict[str, Any] = {}
    results = {"settings": asdict(budget) | {"seed": seed, "n_seeds": n_seeds}, "datasets": datasets}
    for name in protocol.DATASETS if dataset == "all" else (dataset,):
        experiment = Experiment.load(name, budget.users, seed)
        check_writable(folder / "results.json")
        runner = Runner(experiment, folder / "cache", n_jobs, progress)
        datasets[name] = _find(Variants(runner, budget, seed, n_seeds))
        seconds += runner.seconds
        counts = {each: tables["cells"] for each, tables in datasets.items() if tables["cells"]}
        results["best"] = best_variants(counts) if counts else {}
        _write(folder, results, seconds)
    return results


def _find(variants: Variants) -> dict[str, Any]:
    """Table 1 under every reading, tables, figures and verdicts."""
    experiment, users, rows = variants.runner.experiment, variants.users, variants.rows()
    figure1 = variants.sweeps(rows)
    readings = [reading.name for reading in users.readings]
    table = summarize_rows(experiment.name, rows)
    return {
        "data": experiment.describe(),
        "readings": readings,
        "rows": table,
        "cells": count_cells(table, readings) if experiment.name in protocol.TABLE else [],
        "claims": find_claims(experiment.name, rows, table, figure1),
        "valid_users": {name: int(drawn.size) for name, drawn in users.users.items()},
    }


def _write(folder: Path, results: dict[str, Any], seconds: float) -> None:
    """Write all files, each atomically."""
    machine = _describe_machine(seconds)
    files = {
        "results.json": json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "machine.json": json.dumps(machine, indent=1) + "\n",
        "report.html": render_reproduction(results, machine),
        "table.md": render_tables(results),
    }
    for name, content in files.items():
        write_text(folder / name, content)


def _describe_machine(seconds: float) -> dict[str, Any]:
    """Versions and hardware; stored separately, because the results do not depend on them."""
    return {
        "shortlist": version("shortlist"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("numpy", "scipy", "numba", "polars")},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "seconds_of_runs": round(seconds),
    }
