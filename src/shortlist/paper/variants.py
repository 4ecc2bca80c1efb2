"""Table 1 under every reading of the protocol, with and without item biases. Interrupted runs resume."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.estimator import check_whole
from shortlist.core.files import atomic_write, check_writable
from shortlist.core.threads import thread_count
from shortlist.paper import protocol
from shortlist.paper.protocol import LENGTHS, MAX_ITEMS
from shortlist.paper.readings import READINGS, Outcomes, Reading, read_truth, users_to_test
from shortlist.paper.result_cache import ResultCache, pack
from shortlist.paper.runs import Experiment
from shortlist.paper.search import CAPS, Entry, Search, ValidationUsers
from shortlist.paper.variant_table import summarize_variants, variants_markdown

UNIFORM = "uniform"  # the literal reading of the paper's sampling
BIASES = (True, False)


@dataclass(frozen=True)
class VariantBudget:
    """The amount of work; what a cached result depends on is part of its settings."""

    n_trials: int = 50  # per model, with and without item biases each
    epochs: tuple[int, ...] = (4, 12, 36)  # of the rounds of successive halving
    cover_steps: int = 5
    valid_users: int = 4000  # at most
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50


FULL_VARIANTS = VariantBudget()
QUICK_VARIANTS = VariantBudget(n_trials=6, epochs=(3, 9), cover_steps=2, valid_users=1000, users=2000)


def reproduce_variants(
    names: Iterable[str],
    out: Path,
    n_seeds: int,
    seed: int,
    n_jobs: int,
    budget: VariantBudget,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run all variants of some datasets; write `variants.json` and `variants.md` after each dataset."""
    check_whole(1, n_seeds=n_seeds, n_trials=budget.n_trials)
    check_whole(0, seed=seed, n_jobs=n_jobs)
    cache = ResultCache(out / "cache", progress)
    settings = asdict(budget) | {"epochs": list(budget.epochs), "seed": seed, "n_seeds": n_seeds}
    results: dict[str, Any] = {"settings": settings, "datasets": {}}
    for name in names:
        experiment = Experiment.load(name, budget.users, seed)
        check_writable(out / "variants.json")
        before = cache.seconds
        found = _Variants(experiment, budget, cache, seed, n_seeds, n_jobs).run()
        results["datasets"][name] = found | {"seconds_of_runs": round(cache.seconds - before)}
        files = {
            "variants.json": json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
            "variants.md": variants_markdown(results),
        }
        for file, text in files.items():
            with atomic_write(out / file) as temporary:
                temporary.write_text(text, encoding="utf-8")
    return results


@dataclass(frozen=True)
class _Variants:
    """All variants of one dataset."""

    experiment: Experiment
    budget: VariantBudget
    cache: ResultCache
    seed: int
    n_seeds: int
    n_jobs: int

    def run(self) -> dict[str, Any]:
        """Search, train the selected settings with every seed, and summarize."""
        budget, readings = self.budget, READINGS[self.experiment.name]
        users = ValidationUsers(self.experiment, self.seed, budget.valid_users)
        settings = self._settings() | {"valid_users": budget.valid_users, "draw": self.seed}
        search = Search(
            self.experiment,
            users,
            self.cache,
            settings,
            budget.n_trials,
            budget.epochs,
            budget.n_factors,
            budget.cover_steps,
            self.seed,
            self._map,
        )
        selected: dict[tuple[str, bool, str], Entry] = {}
        for model in protocol.MODELS:
            for bias in BIASES:
                tried = search.run(model, bias)
                for reading in readings:
                    selected[model, bias, reading.name] = search.select(model, tried, reading)
        rows = [
            self._row(model, bias, reading, entry)
            for (model, bias, name), entry in selected.items()
            for reading in readings
            if reading.name == name
        ]
        rows += [
            self._row(model, bias, reading, selected[model, bias, reading.name], uniform=True)
            for model in protocol.ORIGINAL
            for bias in BIASES
            for reading in readings
        ]
        return summarize_variants(self.experiment, readings, rows) | {
            "valid_users": {name: int(found.size) for name, found in users.users.items()}
        }

    def _row(
        self, model: str, bias: bool, reading: Reading, entry: Entry, uniform: bool = False
    ) -> dict[str, Any]:
        """One model in one variant: the selected settings, and the runs of all seeds."""
        params = dict(entry["params"]) | ({"negatives": UNIFORM} if uniform else {})
        figures = entry["figures"][reading.name]
        lengths = {metric: int(np.argmax(figures[metric])) + LENGTHS[0] for metric in protocol.METRICS}
        dynamic = model in protocol.ORIGINAL
        seeds = range(self.seed, self.seed + self.n_seeds)
        runs = self._map(lambda seed: self._run(model, params | {"seed": seed}, reading, lengths), seeds)
        return {
            "model": model,
            "bias": bias,
            "reading": reading.name,
            "uniform": uniform,
            "params": params,
            "N": None if dynamic else lengths,
            "valid": {
                name: value for name, value in figures.items() if name not in (*protocol.METRICS, "shift")
            },
            "runs": runs,
        }

    def _run(
        self, model: str, params: dict[str, Any], reading: Reading, lengths: dict[str, int]
    ) -> dict[str, Any]:
        return self.cache.get(
            "variant",
            self._settings()
            | {"model": model, "params": params, "reading": list(reading), "lengths": lengths},
            lambda: evaluate_run(self.experiment, model, params, reading, lengths),
            f"{self.experiment.name}, {protocol.title(model)}, {reading.name}, seed {params['seed']}",
        )

    def _settings(self) -> dict[str, Any]:
        return {"version": version("shortlist"), "data": self.experiment.fingerprint}

    def _map(self, job: Callable[[Any], Any], points: Iterable[Any]) -> list[Any]:
        with ThreadPoolExecutor(thread_count(self.n_jobs)) as pool:
            return list(pool.map(job, points))


def evaluate_run(
    experiment: Experiment, model: str, params: dict[str, Any], reading: Reading, lengths: dict[str, int]
) -> dict[str, Any]:
    """Train on everything before the test set; the values of every test user.

    A top-N model has F1 and NDCG at the N of F1, and NDCG at its own N; a dynamic one F1 and NDCG for each
    longest length, and which users are covered.
    """
    split = experiment.split
    users = users_to_test(split.train_valid, split.test, reading)
    kept = np.zeros(split.test.n_users, np.bool_)
    kept[users] = True
    truth = split.test.where(kept[split.test.user])
    lists = experiment.validate(model, params, split.train_valid, truth).candidates
    found = Outcomes.of(lists, read_truth(truth, reading), users)
    if model not in protocol.ORIGINAL:
        values = {
            "f1": found.f1(lengths["f1"]),
            "ndcg": found.ndcg(lengths["f1"]),
            "ndcg_own": found.ndcg(lengths["ndcg"]),
        }
    else:
        values = {"covered": (found.above(cap=1)).astype(np.float64)}
        for cap in CAPS:
            values[f"f1_{cap}"] = found.f1(found.above(cap=cap))
            values[f"ndcg_{cap}"] = found.ndcg(found.above(cap=cap))
        values["long"] = (found.above() > MAX_ITEMS).astype(np.float64)
    return {name: pack(one) for name, one in values.items()}
