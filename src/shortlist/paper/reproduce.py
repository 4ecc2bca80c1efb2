"""reproduce: tune, train, judge, and write down what of the paper holds. Work done is never done twice."""

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shortlist.core.files import atomic_write
from shortlist.errors import ConfigError
from shortlist.models.base import whole
from shortlist.paper import paper, runs
from shortlist.paper.bench import Bench
from shortlist.paper.findings import findings
from shortlist.paper.report import html_report, markdown_table
from shortlist.paper.result_cache import ResultCache
from shortlist.paper.verdicts import verdicts
from shortlist.tuning.space import SPACES
from shortlist.tuning.tune import Tuned, tune

DATASETS = ("ml-100k", "ta-feng")
CHOICES = (*DATASETS, "sample", "all")
NEAR = 0.05  # a Cover-Ratio within this of the paper's is comparable
Told = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """How much work is done; part of the settings of every unit it bears on."""

    n_trials: int = 12  # per model
    n_epochs: int = 60  # at most
    patience: int = 6
    sweep_seeds: int = 2
    steps: int = 8  # of the search for the strictness
    depth: int = 50  # candidates a decider looks at
    users: int | None = None  # kept of a larger dataset; None: all
    n_factors: int = 50


FULL = Budget()
QUICK = Budget(n_trials=4, n_epochs=25, patience=4, sweep_seeds=1, steps=6, depth=30, users=2000)


def reproduce(
    dataset: str = "all",
    *,
    quick: bool = False,
    out: str | Path = "results",
    n_seeds: int = 5,
    seed: int = 0,
    n_jobs: int = 0,
    budget: Budget | None = None,
    progress: Told | None = None,
) -> dict[str, Any]:
    """All of the paper's experiments; results.json, report.html and table.md are written to `out`.

    The outcome depends on dataset, seeds and budget alone. What lies under `out`/units is not done again.
    """
    if dataset not in CHOICES:
        raise ConfigError(f"dataset must be one of {', '.join(CHOICES)}, got {dataset!r}; choose one.")
    whole(1, n_seeds=n_seeds)
    whole(0, seed=seed, n_jobs=n_jobs)
    chosen = budget or (QUICK if quick else FULL)
    place = Path(out)
    units = ResultCache(place / "units", progress)
    names = DATASETS if dataset == "all" else (dataset,)
    results: dict[str, Any] = {
        "settings": asdict(chosen) | {"seed": seed, "seeds": n_seeds},
        "datasets": {},
    }
    for name in names:
        work = _Work(Bench.of(name, chosen.users, seed), chosen, units, seed, n_seeds, n_jobs, progress)
        results["datasets"][name] = work.done()
        _write(place, results, _machine(units))
    return results


@dataclass(frozen=True)
class _Work:
    bench: Bench
    budget: Budget
    units: ResultCache
    seed: int
    n_seeds: int
    n_jobs: int
    told: Told | None

    def done(self) -> dict[str, Any]:
        """Everything about one dataset."""
        dynamic = {model: self._dynamic(model) for model in paper.ORIGINAL}
        params = {
            model: dynamic[model]["chosen"] if model in dynamic else dict(self._tuned(model).params)
            for model in (*paper.MODELS, *paper.BASELINES)
        }
        points = [(model, seed) for model in params for seed in self._seeds(model)]
        made = self._side_by_side(lambda point: self._run(point[0], point[1], params), points)
        by_model: dict[str, list[dict[str, Any]]] = {model: [] for model in params}
        for (model, _), result in zip(points, made, strict=True):
            by_model[model].append(result)
        sweeps = self._sweeps(dynamic["DKHRM"]["plain"], paper.SWEEPS)
        biased = self._sweeps(dynamic["DKHRM"]["biased"], {"t": paper.SWEEPS["t"]})
        body = {
            "about": self.bench.about(),
            "params": params,
            "strictness": {model: one["strictness"] for model, one in dynamic.items()},
            **findings(self.bench.name, by_model),
            "figure1": sweeps | {paper.BIASED: biased["t"]},
            "figure1_params": dynamic["DKHRM"]["plain"],
        }
        return body | {"verdicts": verdicts(self.bench.name, body)}

    def _dynamic(self, model: str) -> dict[str, Any]:
        """A dynamic model without item biases, as the paper writes it, and with them.

        As written, where validation users can be covered as in the paper; else whichever comes closer.
        """
        found: dict[str, Any] = {"strictness": {}}
        far = {}
        for name, bias in (("plain", False), ("biased", True)):
            tuned = self._tuned(model, bias=bias)
            strict = found["strictness"][name] = self._strictness(model, tuned)
            found[name] = tuned.params | {"negatives": strict["negatives"]}
            far[name] = abs(strict["cover"] - strict["target"])
        best = "plain" if far["plain"] <= NEAR else min(far, key=lambda name: far[name])
        return found | {"chosen": found[best]}

    # ------------------------------------------------------------------ units
    def _tuned(self, model: str, **held: Any) -> Tuned:
        budget = self.budget
        fixed: dict[str, Any] = dict(paper.SETTINGS.get(model, {})) | held
        if "lr" in SPACES[model]:
            fixed |= {"n_factors": budget.n_factors, "n_epochs": budget.n_epochs, "patience": budget.patience}
        settings = {"data": self.bench.fingerprint, "model": model, "fixed": fixed, "seed": self.seed}
        found = tune(
            model,
            self.bench.split.train_valid,
            n_trials=budget.n_trials,
            space=SPACES[model],
            fixed=fixed,
            seed=self.seed,
            n_jobs=self.n_jobs,
            study=self.units.path("tune", settings | {"space": repr(SPACES[model])}, "jsonl"),
        )
        variant = "" if held.get("bias", True) else ", no item biases"
        self._tell(f"{self.bench.name}, {paper.title(model)}{variant}: validation F1 {found.score:.4f}")
        return found

    def _strictness(self, model: str, tuned: Tuned) -> dict[str, Any]:
        params = tuned.params | {"seed": self.seed}
        target = paper.target_cover(self.bench.name, model)
        settings = self._settings(model, params) | {"target": target, "steps": self.budget.steps}
        return self.units.get(
            "strictness",
            settings,
            lambda: runs.strictness(self.bench, model, params, target, self.budget.steps),
            f"{self.bench.name}, {paper.title(model)}, strictness",
        )

    def _run(self, model: str, seed: int, params: dict[str, dict[str, Any]]) -> dict[str, Any]:
        own = params[model] | ({"seed": seed} if model in paper.MODELS else {})
        return self.units.get(
            "run",
            self._settings(model, own) | {"depth": self.budget.depth},
            lambda: runs.run(self.bench, model, own, self.budget.depth),
            f"{self.bench.name}, {paper.title(model)}, seed {seed}",
        )

    def _sweeps(self, params: dict[str, Any], sweeps: dict[str, tuple[float, ...]]) -> dict[str, Any]:
        """One parameter moved at a time; means over seeds."""
        seeds = range(self.seed, self.seed + min(self.budget.sweep_seeds, self.n_seeds))
        points = [
            (name, value, seed) for name, values in sweeps.items() for value in values for seed in seeds
        ]
        made = self._side_by_side(lambda point: self._point(params, *point), points)
        found: dict[str, Any] = {}
        for name, values in sweeps.items():
            found[name] = {"values": list(values)}
            for figure in ("f1_covered", "ndcg_covered", "cover", "f1", "length"):
                totals = dict.fromkeys(values, 0.0)
                for (moved, value, _), one in zip(points, made, strict=True):
                    if moved == name:
                        totals[value] += (one[figure] or 0.0) / len(seeds)
                found[name][figure] = list(totals.values())
        return found

    def _point(self, params: dict[str, Any], name: str, value: float, seed: int) -> dict[str, Any]:
        own = params | {name: value, "seed": seed}
        return self.units.get(
            "sweep",
            self._settings("DKHRM", own),
            lambda: runs.sweep(self.bench, "DKHRM", own),
            f"{self.bench.name}, DK-HRM with {name} = {value:g}, seed {seed}",
        )

    # ------------------------------------------------------------------ small things
    def _settings(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": version("shortlist"),
            "data": self.bench.fingerprint,
            "model": model,
            "params": params,
        }

    def _seeds(self, model: str) -> Iterable[int]:
        """Counting models have no seed."""
        return range(self.seed, self.seed + (self.n_seeds if model in paper.MODELS else 1))

    def _side_by_side(self, job: Callable[[Any], Any], points: Iterable[Any]) -> list[Any]:
        with ThreadPoolExecutor(self.n_jobs or os.cpu_count() or 1) as pool:
            return list(pool.map(job, points))

    def _tell(self, line: str) -> None:
        if self.told is not None:
            self.told(line)


def _machine(units: ResultCache) -> dict[str, Any]:
    """Where and with what; apart from the results, which do not depend on it."""
    return {
        "shortlist": version("shortlist"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("numpy", "scipy", "numba", "polars")},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "seconds_of_runs": round(units.seconds),
    }


def _write(place: Path, results: dict[str, Any], machine: dict[str, Any]) -> None:
    """The three files, each replaced in one step."""
    files: Sequence[tuple[str, str]] = (
        ("results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"),
        ("machine.json", json.dumps(machine, indent=1) + "\n"),
        ("report.html", html_report(results, machine)),
        ("table.md", markdown_table(results)),
    )
    for name, text in files:
        with atomic_write(place / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
