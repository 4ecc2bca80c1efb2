"""Repeat the experiments of the paper: python -m reproduction [--quick] [--dataset NAME] [--out FOLDER]."""

import argparse
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reproduction.findings import best_variants, compare_models, count_cells, summarize
from reproduction.protocol import PAPER, READINGS
from reproduction.report import render
from reproduction.runs import FULL, QUICK, Runs, Workload
from shortlist.core.files import write_text


def reproduce(datasets: list[str], out: Path, work: Workload, n_jobs: int) -> dict[str, Any]:
    """Run the experiments; write results.json, machine.json, report.html and table.md.

    The results depend on the datasets and the workload only. What is finished is kept in `out/cache`, so that
    an interrupted run continues.
    """
    results: dict[str, Any] = {"settings": asdict(work), "datasets": {}, "best": {}}
    for name in datasets:
        runs = Runs(name, work, out / "cache", n_jobs)
        rows = runs.rows()
        table, readings = summarize(name, rows), [reading.name for reading in runs.readings]
        results["datasets"][name] = {
            "data": runs.sizes,
            "readings": readings,
            "rows": table,
            "cells": count_cells(table, readings) if name in PAPER else [],
            "claims": {"figure1": runs.sweeps(rows), **compare_models(rows, table)},
        }
        cells = {each: found["cells"] for each, found in results["datasets"].items() if found["cells"]}
        results["best"] = best_variants(cells) if cells else {}
    packages = {name: version(name) for name in ("numpy", "scipy", "numba", "polars")}
    machine: dict[str, Any] = {"shortlist": version("shortlist"), "python": platform.python_version()}
    machine |= {"packages": packages, "system": f"{platform.system()} {platform.machine()}"}
    machine["cores"] = os.cpu_count()
    write_text(out / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_text(out / "machine.json", json.dumps(machine, indent=1) + "\n")
    write_text(out / "report.html", render("report.html.j2", results, machine=machine))
    write_text(out / "table.md", render("table.md.j2", results))
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("--dataset", choices=READINGS, nargs="+", default=list(PAPER))
    parser.add_argument("--quick", action="store_true", help="minutes: few trials, two seeds, 2,000 users")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel runs; changes no result")
    given = parser.parse_args()
    reproduce(given.dataset, given.out, QUICK if given.quick else FULL, given.jobs)
