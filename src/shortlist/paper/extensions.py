"""Rows beyond the paper: models with repeat and trend terms, and lists of optimal length."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shortlist.paper import protocol
from shortlist.paper.calls import Calls
from shortlist.paper.optimal_lists import Calibrated, OwnLists, take_users
from shortlist.paper.readings import (
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
from shortlist.paper.search import SPACES, Entry, Search, ValidationUsers
from shortlist.tuning.space import Range, Space

REPEATS: dict[str, Range | tuple[Any, ...]] = {"repeat_decay": Range(0.7, 1.0, log=False)}
TREND: dict[str, Range | tuple[Any, ...]] = {"trend_half_life": (1.0, 3.0, 7.0, 30.0)}
BIAS: dict[str, Range | tuple[Any, ...]] = {"bias": (True, False)}
FIXED_N, LEARNED = "", "learned boundary"
# lists that end where the model's own probabilities expect the most, or calibrated ones
OWN = {"F1-optimal boundary": "f1", "NDCG-optimal length": "ndcg"}
CALIBRATED = {"calibrated F1-optimal length": "f1", "calibrated NDCG-optimal length": "ndcg"}
Row = dict[str, Any]


class Extension(NamedTuple):
    """One model, and how it differs from the paper's."""

    model: str
    lists: tuple[str, ...]  # kinds of lists that are evaluated
    has_terms: bool = False

    def name(self, has_repeats: bool) -> str:
        """How the model differs from the paper's, "" if only its lists do."""
        if not self.has_terms:
            return ""
        return "repeat and trend terms" if has_repeats else "trend term"

    def space(self, has_repeats: bool) -> Space:
        """What is searched. A repeat term is of no use where seen items are removed."""
        terms = (TREND | (REPEATS if has_repeats else {})) if self.has_terms else {}
        return {**SPACES[self.model], **BIAS, **terms}


EXTENSIONS = (
    Extension("HRM", (FIXED_N,), has_terms=True),
    Extension("DKHRM", (LEARNED, *OWN, *CALIBRATED), has_terms=True),
    Extension("DKBPRMF", (*OWN, *CALIBRATED)),
    Extension("DKHRM", tuple(OWN)),
)


@dataclass(frozen=True)
class ExtensionRuns:
    """The search for settings of all extensions, and the runs with all seeds."""

    calls: Calls
    search: Search
    cache: ResultCache
    users: ValidationUsers
    settings: dict[str, Any]  # what cached runs depend on beside model, parameters and lists
    seeds: Sequence[int]

    @property
    def experiment(self) -> Experiment:
        """The data and its split."""
        return self.calls.experiment

    def rows(self) -> list[Row]:
        """One row per model, kind of lists and reading, with the runs of all seeds."""
        rows = []
        for extension in EXTENSIONS:
            found = self._select(extension)
            self._add_runs(found)
            rows += found
        return rows

    def _select(self, extension: Extension) -> list[Row]:
        """The rows of one extension; all readings and kinds of lists share one setting."""
        model, has_repeats = extension.model, not self.experiment.filter_seen
        fixed = {"boundary": "expected_f1"} if model in protocol.ORIGINAL else {}
        tried = self.search.halve(model, fixed, extension.space(has_repeats))
        best = self.search.select_by_mean(model, tried, lambda one: self._score(model, one))
        settings = dict.fromkeys(extension.lists, best)
        if LEARNED in settings:
            settings[LEARNED] = self._with_learned_boundary(model, best)
        return [
            self._row(extension.name(has_repeats), model, entry, reading, lists)
            for reading in self.users.readings
            for lists, entry in settings.items()
        ]

    def _score(self, model: str, one: Entry) -> float:
        """F1 at the best N, or of covered users; the mean over the readings."""
        found = [one["figures"][reading.name] for reading in self.users.readings]
        is_dynamic = model in protocol.ORIGINAL
        return float(np.mean([each["f1_at_target"] if is_dynamic else max(each["f1"]) for each in found]))

    def _with_learned_boundary(self, model: str, best: Entry) -> Entry:
        """The same setting with the learned boundary; `negatives` is changed to reach the Cover-Ratio."""
        learned = self.search.trial(model, best["params"] | {"boundary": "learned"})
        near = [learned, *self.search.approach_cover_ratio(model, learned)]
        return min(near, key=lambda one: self.search.cover_distance(model, one))

    @staticmethod
    def _row(extension: str, model: str, entry: Entry, reading: Reading, lists: str) -> Row:
        """One model and kind of lists under one reading, without its runs."""
        figures = entry["figures"][reading.name]
        return {
            "model": model,
            "bias": entry["params"]["bias"],
            "reading": reading.name,
            "extension": extension,
            "lists": lists,
            "params": entry["params"],
            "N": best_lengths(figures) if lists == FIXED_N else None,
            "valid": {name: figures[name] for name in figures if name.endswith(("target", "ratio"))},
        }

    def _add_runs(self, rows: list[Row]) -> None:
        """Add the runs of all seeds; rows with the same settings share the training."""
        shared: dict[str, list[Row]] = {}
        for row in rows:
            shared.setdefault(json.dumps([row["model"], row["params"]], sort_keys=True), []).append(row)
        points = [(group, seed) for group in shared.values() for seed in self.seeds]
        finished = self.calls.map(lambda point: self._run(*point), points)
        for row in rows:
            row["runs"] = []
        for (group, _), found in zip(points, finished, strict=True):
            for number, row in enumerate(group):
                row["runs"].append(found[str(number)])

    def _run(self, group: list[Row], seed: int) -> dict[str, Any]:
        by_name = {reading.name: reading for reading in self.users.readings}
        model, params = group[0]["model"], group[0]["params"] | {"seed": seed}
        wanted = [(by_name[row["reading"]], row["lists"], row["N"]) for row in group]
        listed = [[list(reading), lists, lengths] for reading, lists, lengths in wanted]
        return self.cache.get(
            "extension",
            self.settings | {"model": model, "params": params, "wanted": listed},
            lambda: self.calls.compute(evaluate_extension, self.users, model, params, wanted),
            f"{self.experiment.name}, {protocol.title(model)} extended, seed {seed}",
        )


Wanted = tuple[Reading, str, dict[str, int] | None]  # a reading, the kind of lists, the N of each metric


def evaluate_extension(
    experiment: Experiment, users: ValidationUsers, model: str, params: dict[str, Any], wanted: list[Wanted]
) -> dict[str, dict[str, str]]:
    """Train on all data before the test set; by number in `wanted`, the packed values of every test user."""
    split = experiment.split
    test = experiment.validate(model, params, split.train_valid, split.test).candidates
    valid = None
    if any(lists in CALIBRATED for _, lists, _ in wanted):
        valid = experiment.validate(model, params, split.train, users.truth).candidates
    target, values = protocol.target_cover_ratio(experiment.name, model), {}
    for number, (reading, lists, lengths) in enumerate(wanted):
        tested = users_to_test(split.train_valid, split.test, reading)
        truth = read_truth(split.test, reading)
        if lists in OWN:
            own = OwnLists.of(test, truth, tested)
            found = boundary_values(own.outcomes, own.lengths(OWN[lists], target))
        elif valid is not None and lists in CALIBRATED:
            read = read_truth(users.truth, reading)
            calibrated = Calibrated(valid, read, split.train, users.users[reading.name])
            shown = take_users(test, truth, tested)
            cut = calibrated.cut(CALIBRATED[lists], target, shown, split.train_valid)
            found = boundary_values(Outcomes.of(cut, truth, tested), cut.lengths.astype(np.int64))
        else:
            outcomes = Outcomes.of(test, truth, tested)
            found = boundary_values(outcomes) if lengths is None else fixed_values(outcomes, lengths)
        values[str(number)] = {name: pack(array) for name, array in found.items()}
    return values
