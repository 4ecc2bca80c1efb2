"""reproduce: tune, train and evaluate the paper's models, and check its claims. Interrupted runs resume."""

import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shortlist.auto.space import SPACES
from shortlist.auto.tune import Tuned, tune
from shortlist.core.engine import Engine, check_engine
from shortlist.core.files import atomic_write
from shortlist.core.params import check_whole
from shortlist.errors import ConfigError
from shortlist.paper import protocol, runs
from shortlist.paper.report import markdown_table, render_reproduction
from shortlist.paper.runs import Calls, Experiment, ResultCache
from shortlist.paper.verdicts import findings, verdicts

CHOICES = (*protocol.DATASETS, "sample", "all")
COVER_RATIO_TOLERANCE = 0.05  # distance from the paper's Cover-Ratio that counts as equal
SWEEP_FIGURES = ("f1_covered", "ndcg_covered", "cover_ratio", "f1", "length")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """The amount of work; what a cached result depends on is part of its settings."""

    n_trials: int = 12  # per model
    n_epochs: int = 60  # at most
    patience: int = 6
    sweep_seeds: int = 2
    strictness_steps: int = 8  # of the search for the paper's Cover-Ratio
    n_candidates: int = 50  # per user, for cutoffs
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50


FULL = Budget()
QUICK = Budget(
    n_trials=4, n_epochs=25, patience=4, sweep_seeds=1, strictness_steps=6, n_candidates=30, users=2000
)


def reproduce(
    dataset: str = "all",
    *,
    out: str | Path = "results",
    n_seeds: int = 5,
    seed: int = 0,
    n_jobs: int = 0,
    engine: Engine | None = None,
    budget: Budget = FULL,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run all experiments of the paper and write the results, a report and a table.

    The files in `out` are `results.json`, `machine.json`, `report.html` and `table.md`. Finished results are
    cached in `out/cache` and never computed again, so an interrupted run resumes where it stopped.

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
        The amount of tuning and training: `FULL`, or `QUICK`, which takes minutes.
    progress
        Called with one line of text after each finished step.

    Returns
    -------
    dict
        The content of `results.json`: `settings` and `datasets`, each with tables, figures and verdicts.

    Raises
    ------
    ConfigError
        If `dataset` is unknown or a number is out of range.
    """
    if dataset not in CHOICES:
        raise ConfigError(f"dataset must be one of {', '.join(CHOICES)}, got {dataset!r}; choose one.")
    check_whole(1, n_seeds=n_seeds)
    check_whole(0, seed=seed, n_jobs=n_jobs)
    folder = Path(out)
    cache = ResultCache(folder / "cache", progress)
    results: dict[str, Any] = {
        "settings": asdict(budget) | {"seed": seed, "n_seeds": n_seeds},
        "datasets": {},
    }
    for name in protocol.DATASETS if dataset == "all" else (dataset,):
        experiment = Experiment.load(name, budget.users, seed)
        calls = Calls(experiment, check_engine(engine), n_jobs)
        reproduction = _Reproduction(calls, budget, cache, seed, n_seeds, progress)
        results["datasets"][name] = reproduction.run()
        write_results(folder, results, _describe_machine(cache))
    return results


@dataclass(frozen=True)
class _Reproduction:
    """All experiments on one dataset."""

    calls: Calls
    budget: Budget
    cache: ResultCache
    seed: int
    n_seeds: int
    progress: Progress | None

    @property
    def experiment(self) -> Experiment:
        """The data and its split."""
        return self.calls.experiment

    def run(self) -> dict[str, Any]:
        """Tune, train and evaluate every model; return tables, figures and verdicts."""
        dynamic = {model: self._tune_dynamic(model) for model in protocol.ORIGINAL}
        params = {
            model: dynamic[model]["selected"] if model in dynamic else dict(self._tune(model).params)
            for model in (*protocol.MODELS, *protocol.BASELINES)
        }
        points = [(model, seed) for model in params for seed in self._seeds(model)]
        finished = self.calls.map(lambda point: self._run(point[0], point[1], params), points)
        by_model: dict[str, list[dict[str, Any]]] = {model: [] for model in params}
        for (model, _), result in zip(points, finished, strict=True):
            by_model[model].append(result)
        sweeps = self._sweeps(dynamic["DKHRM"]["plain"], protocol.SWEEPS)
        biased = self._sweeps(dynamic["DKHRM"]["biased"], {"t": protocol.SWEEPS["t"]})
        results = {
            "data": self.experiment.describe(),
            "params": params,
            "strictness": {model: one["strictness"] for model, one in dynamic.items()},
            **findings(self.experiment.name, by_model),
            "figure1": sweeps | {protocol.BIASED_SWEEP: biased["t"]},
            "figure1_params": dynamic["DKHRM"]["plain"],
        }
        return results | {"verdicts": verdicts(self.experiment.name, results)}

    def _tune_dynamic(self, model: str) -> dict[str, Any]:
        """Tune a dynamic model without item biases, as in the paper, and with them.

        The plain variant is selected if it can cover as many validation users as in the paper, else the one
        that comes closer.
        """
        found: dict[str, Any] = {"strictness": {}}
        distance = {}
        for name, bias in (("plain", False), ("biased", True)):
            tuned = self._tune(model, bias=bias)
            strictness = found["strictness"][name] = self._strictness(model, tuned)
            found[name] = tuned.params | {"negatives": strictness["negatives"]}
            distance[name] = abs(strictness["cover_ratio"] - strictness["target"])
        near = distance["plain"] <= COVER_RATIO_TOLERANCE
        best = "plain" if near else min(distance, key=lambda name: distance[name])
        return found | {"selected": found[best]}

    # ------------------------------------------------------------------ cached results
    def _tune(self, model: str, **params: Any) -> Tuned:
        budget, name = self.budget, self.experiment.name
        fixed: dict[str, Any] = dict(protocol.SETTINGS.get(model, {})) | params
        if "lr" in SPACES[model]:
            fixed |= {"n_factors": budget.n_factors, "n_epochs": budget.n_epochs, "patience": budget.patience}
        settings = {
            "data": self.experiment.fingerprint,
            "model": model,
            "fixed": fixed,
            "seed": self.seed,
            "space": repr(SPACES[model]),
        }
        tuned = tune(
            model,
            self.experiment.split.train_valid,
            n_trials=budget.n_trials,
            space=SPACES[model],
            fixed=fixed,
            seed=self.seed,
            n_jobs=self.calls.n_jobs,
            engine=self.calls.engine,
            study=self.cache.path("tune", settings, "jsonl"),
        )
        variant = "" if params.get("bias", True) else ", no item biases"
        if self.progress is not None:
            self.progress(f"{name}, {protocol.title(model)}{variant}: validation F1 {tuned.score:.4f}")
        return tuned

    def _strictness(self, model: str, tuned: Tuned) -> dict[str, Any]:
        params = tuned.params | {"seed": self.seed}
        target = protocol.target_cover_ratio(self.experiment.name, model)
        steps = self.budget.strictness_steps
        return self.cache.get(
            "strictness",
            self._settings(model, params) | {"target": target, "steps": steps},
            lambda: self.calls.compute(runs.strictness, model, params, target, steps),
            f"{self.experiment.name}, {protocol.title(model)}, strictness",
        )

    def _run(self, model: str, seed: int, params: dict[str, dict[str, Any]]) -> dict[str, Any]:
        own = params[model] | ({"seed": seed} if model in protocol.MODELS else {})
        n_candidates = self.budget.n_candidates
        return self.cache.get(
            "run",
            self._settings(model, own) | {"n_candidates": n_candidates},
            lambda: self.calls.compute(runs.run, model, own, n_candidates),
            f"{self.experiment.name}, {protocol.title(model)}, seed {seed}",
        )

    def _sweeps(self, params: dict[str, Any], sweeps: dict[str, tuple[float, ...]]) -> dict[str, Any]:
        """Vary one parameter at a time; means over seeds."""
        seeds = range(self.seed, self.seed + min(self.budget.sweep_seeds, self.n_seeds))
        points = [
            (name, value, seed) for name, values in sweeps.items() for value in values for seed in seeds
        ]
        finished = self.calls.map(lambda point: self._sweep(params, *point), points)
        found: dict[str, Any] = {}
        for name, values in sweeps.items():
            found[name] = {"values": list(values)}
            for figure in SWEEP_FIGURES:
                totals = dict.fromkeys(values, 0.0)
                for (varied, value, _), one in zip(points, finished, strict=True):
                    if varied == name:
                        totals[value] += (one[figure] or 0.0) / len(seeds)
                found[name][figure] = list(totals.values())
        return found

    def _sweep(self, params: dict[str, Any], name: str, value: float, seed: int) -> dict[str, Any]:
        own = params | {name: value, "seed": seed}
        return self.cache.get(
            "sweep",
            self._settings("DKHRM", own),
            lambda: self.calls.compute(runs.sweep, "DKHRM", own),
            f"{self.experiment.name}, DK-HRM with {name} = {value:g}, seed {seed}",
        )

    def _settings(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": version("shortlist"),
            "data": self.experiment.fingerprint,
            "model": model,
            "params": params,
        }

    def _seeds(self, model: str) -> Iterable[int]:
        """The seeds of a model; counting models have none and run once."""
        return range(self.seed, self.seed + (self.n_seeds if model in protocol.MODELS else 1))


def _describe_machine(cache: ResultCache) -> dict[str, Any]:
    """Versions and hardware; stored separately, because the results do not depend on them."""
    return {
        "shortlist": version("shortlist"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("numpy", "scipy", "numba", "polars")},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "seconds_of_runs": round(cache.seconds),
    }


def write_results(folder: Path, results: dict[str, Any], machine: dict[str, Any]) -> None:
    """Write the four files, each atomically."""
    files = {
        "results.json": json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "machine.json": json.dumps(machine, indent=1) + "\n",
        "report.html": render_reproduction(results, machine),
        "table.md": markdown_table(results),
    }
    for name, text in files.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
