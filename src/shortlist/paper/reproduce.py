"""reproduce: run the paper's experiments and write what they show. Interrupted runs resume."""

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shortlist.core.engine import Engine, check_engine
from shortlist.core.files import atomic_write, check_writable
from shortlist.core.params import check_whole
from shortlist.errors import ConfigError
from shortlist.paper import protocol
from shortlist.paper.claims import FULL, ClaimBudget, Claims
from shortlist.paper.experiment import Experiment, Runner
from shortlist.paper.report import markdown_table, render_reproduction, variants_markdown
from shortlist.paper.variants import VariantBudget, Variants
from shortlist.paper.verdicts import findings, summarize_variants, verdicts

CHOICES = (*protocol.DATASETS, "sample", "all")


def reproduce(
    dataset: str = "all",
    *,
    out: str | Path = "results",
    n_seeds: int = 5,
    seed: int = 0,
    n_jobs: int = 0,
    engine: Engine | None = None,
    budget: ClaimBudget | VariantBudget = FULL,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run the experiments of the paper and write the results, a report and a table.

    The claims write `results.json`, `machine.json`, `report.html` and `table.md` to `out`, the variants
    `variants.json` and `variants.md`. Finished results are kept in `out/cache` and never computed again, so
    an interrupted run resumes where it stopped.

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
    engine
        Where to tune, train and evaluate: None or `ThreadEngine()` in this process, `RayEngine(…)` as tasks
        of a cluster. The results do not depend on it.
    budget
        What to run, and the amount of tuning and training: a `ClaimBudget` for the claims (`FULL`, or
        `QUICK`, which takes minutes), a `VariantBudget` for Table 1 under every reading of the protocol.
    progress
        Called with one line of text after each finished step.

    Returns
    -------
    dict
        The content of `results.json` or `variants.json`: `settings` and `datasets`, each with tables and
        figures.

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
    results: dict[str, Any] = {
        "settings": asdict(budget) | {"seed": seed, "n_seeds": n_seeds},
        "datasets": {},
    }
    for name in protocol.DATASETS if dataset == "all" else (dataset,):
        experiment = Experiment.load(name, budget.users, seed)
        check_writable(folder / "results.json")
        runner = Runner(experiment, folder / "cache", check_engine(engine), n_jobs, progress)
        if isinstance(budget, ClaimBudget):
            results["datasets"][name] = _find_claims(Claims(runner, budget, seed, n_seeds))
        else:
            results["datasets"][name] = _find_variants(Variants(runner, budget, seed, n_seeds))
        seconds += runner.seconds
        _write(folder, results, budget, seconds)
    return results


def _find_claims(claims: Claims) -> dict[str, Any]:
    """Tables, figures and verdicts."""
    name, found = claims.runner.experiment.name, claims.run()
    results = {"data": claims.runner.experiment.describe(), **found, **findings(name, found["runs"])}
    del results["runs"]
    return results | {"verdicts": verdicts(name, results)}


def _find_variants(variants: Variants) -> dict[str, Any]:
    """The tables of the paper's models and of those beyond the paper."""
    experiment, users, found = variants.runner.experiment, variants.users, variants.run()
    readings = [reading.name for reading in users.readings]
    return {
        "data": experiment.describe(),
        **summarize_variants(experiment.name, readings, found["rows"], found["extended"]),
        "valid_users": {name: int(drawn.size) for name, drawn in users.users.items()},
        "seconds_of_runs": round(variants.runner.seconds),
    }


def _write(
    folder: Path, results: dict[str, Any], budget: ClaimBudget | VariantBudget, seconds: float
) -> None:
    """Write all files of a part, each atomically."""
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if isinstance(budget, ClaimBudget):
        machine = _describe_machine(seconds)
        files = {
            "results.json": text,
            "machine.json": json.dumps(machine, indent=1) + "\n",
            "report.html": render_reproduction(results, machine),
            "table.md": markdown_table(results),
        }
    else:
        files = {"variants.json": text, "variants.md": variants_markdown(results)}
    for name, content in files.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text(content, encoding="utf-8")


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
