"""Table 1 under every reading of the protocol, with and without item biases. Interrupted runs resume."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shortlist.core.engine import Engine, check_engine
from shortlist.core.estimator import check_whole
from shortlist.core.files import atomic_write, check_writable
from shortlist.paper import protocol
from shortlist.paper.calls import Calls
from shortlist.paper.extension_table import summarize_extensions, variants_markdown
from shortlist.paper.extensions import ExtensionRuns
from shortlist.paper.readings import (
    READINGS,
    Outcomes,
    Reading,
    best_lengths,
    boundary_values,
    fixed_values,
    read_truth,
    users_to_test,
)
from shortlist.paper.result_cache import ResultCache, pack
from shortlist.paper.runs import Experiment
from shortlist.paper.search import Entry, Search, ValidationUsers
from shortlist.paper.variant_table import (
    SELECTED_BY_F1,
    SELECTED_BY_NDCG,
    UNIFORM,
    summarize_variants,
)

Wanted = tuple[Reading, dict[str, int] | None]  # a reading, and the N of each metric for a top-N model
BIASES = (True, False)
KINDS = {SELECTED_BY_F1: "f1", SELECTED_BY_NDCG: "ndcg", UNIFORM: "f1"}  # of rows: what selects the settings


@dataclass(frozen=True)
class VariantBudget:
    """The amount of work; what a cached result depends on is part of its settings."""

    n_trials: int = 50  # per model, with and without item biases each
    epochs: tuple[int, ...] = (4, 12, 36)  # of the rounds of successive halving
    cover_steps: int = 5
    valid_users: int = 4000  # at most
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50
    n_extended: int = 24  # trials of each model beyond the paper


FULL_VARIANTS = VariantBudget()
QUICK_VARIANTS = VariantBudget(
    n_trials=6, epochs=(3, 9), cover_steps=2, valid_users=1000, users=2000, n_extended=3
)


def reproduce_variants(
    names: Iterable[str],
    out: Path,
    n_seeds: int,
    seed: int,
    n_jobs: int,
    budget: VariantBudget,
    progress: Callable[[str], None] | None = None,
    engine: Engine | None = None,
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
        calls = Calls(experiment, check_engine(engine), n_jobs)
        found = _Variants(calls, budget, cache, seed, n_seeds).run()
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

    calls: Calls
    budget: VariantBudget
    cache: ResultCache
    seed: int
    n_seeds: int

    @property
    def experiment(self) -> Experiment:
        """The data and its split."""
        return self.calls.experiment

    def run(self) -> dict[str, Any]:
        """Search, train the selected settings with every seed, and summarize."""
        budget, readings = self.budget, READINGS[self.experiment.name]
        users = ValidationUsers(self.experiment, self.seed, budget.valid_users)
        settings = self._settings() | {"valid_users": budget.valid_users, "draw": self.seed}
        search = Search(
            self.calls,
            users,
            self.cache,
            settings,
            budget.n_trials,
            budget.epochs,
            budget.n_factors,
            budget.cover_steps,
            self.seed,
        )
        rows = self._paper_rows(search, readings)
        self._add_runs(rows, readings)
        seeds = range(self.seed, self.seed + self.n_seeds)
        own_search = replace(search, n_trials=budget.n_extended)
        extended = ExtensionRuns(self.calls, own_search, self.cache, users, settings, seeds).rows()
        found = summarize_variants(self.experiment, readings, rows)
        return found | {
            "extended": summarize_extensions(found, rows, extended, self.experiment.name),
            "valid_users": {name: int(found.size) for name, found in users.users.items()},
        }

    def _paper_rows(self, search: Search, readings: tuple[Reading, ...]) -> list[dict[str, Any]]:
        """The rows of the paper's own models, with the selected settings."""
        selected: dict[tuple[str, str, bool, str], Entry] = {}
        for model in protocol.MODELS:
            for bias in BIASES:
                tried = search.run(model, bias)
                for metric in protocol.METRICS if model in protocol.ORIGINAL else ("f1",):
                    for reading in readings:
                        found = search.select(model, tried, reading, metric)
                        selected[metric, model, bias, reading.name] = found
        return [
            self._row(model, bias, reading, selected[metric, model, bias, reading.name], kind)
            for kind, metric in KINDS.items()
            for model in (protocol.MODELS if kind == SELECTED_BY_F1 else protocol.ORIGINAL)
            for bias in BIASES
            for reading in readings
        ]

    @staticmethod
    def _row(model: str, bias: bool, reading: Reading, entry: Entry, kind: str) -> dict[str, Any]:
        """One model in one variant: the selected settings, and what they reached on validation."""
        figures = entry["figures"][reading.name]
        left_out = (*protocol.METRICS, "shift")
        return {
            "model": model,
            "bias": bias,
            "reading": reading.name,
            "kind": kind,
            "params": dict(entry["params"]) | ({"negatives": "uniform"} if kind == UNIFORM else {}),
            "N": None if model in protocol.ORIGINAL else best_lengths(figures),
            "valid": {name: value for name, value in figures.items() if name not in left_out},
        }

    def _add_runs(self, rows: list[dict[str, Any]], readings: tuple[Reading, ...]) -> None:
        """Add the runs of all seeds to the rows; rows with the same settings share the training."""
        shared: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            shared.setdefault(json.dumps([row["model"], row["params"]], sort_keys=True), []).append(row)
        by_name = {reading.name: reading for reading in readings}
        points = []
        for group in shared.values():
            wanted = [(by_name[row["reading"]], row["N"]) for row in group]
            points += [
                (group[0]["model"], group[0]["params"] | {"seed": seed}, wanted)
                for seed in range(self.seed, self.seed + self.n_seeds)
            ]
        finished = iter(self.calls.map(lambda point: self._run(*point), points))
        for group in shared.values():
            runs = [next(finished) for _ in range(self.n_seeds)]
            for row in group:
                row["runs"] = [run[row["reading"]] for run in runs]

    def _run(self, model: str, params: dict[str, Any], wanted: list[Wanted]) -> dict[str, Any]:
        evaluations = [[list(reading), lengths] for reading, lengths in wanted]
        return self.cache.get(
            "variant",
            self._settings() | {"model": model, "params": params, "wanted": evaluations},
            lambda: self.calls.compute(evaluate_run, model, params, wanted),
            f"{self.experiment.name}, {protocol.title(model)}, seed {params['seed']}",
        )

    def _settings(self) -> dict[str, Any]:
        return {"version": version("shortlist"), "data": self.experiment.fingerprint, "figures": 2}


def evaluate_run(
    experiment: Experiment, model: str, params: dict[str, Any], wanted: list[Wanted]
) -> dict[str, dict[str, str]]:
    """Train on everything before the test set; by reading, the packed values of every test user.

    A top-N model has F1 and NDCG at the N of F1, and NDCG at its own N; a dynamic one F1 and NDCG for each
    longest length, and which users are covered.
    """
    split = experiment.split
    lists = experiment.validate(model, params, split.train_valid, split.test).candidates
    values: dict[str, dict[str, str]] = {}
    for reading, lengths in wanted:
        users = users_to_test(split.train_valid, split.test, reading)
        found = Outcomes.of(lists, read_truth(split.test, reading), users)
        one = boundary_values(found) if lengths is None else fixed_values(found, lengths)
        values[reading.name] = {name: pack(array) for name, array in one.items()}
    return values
