"""Table 1 under every reading of the protocol, with and without item biases. Interrupted runs resume."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.auto.space import Range, Space
from shortlist.core.engine import Engine, check_engine
from shortlist.core.files import atomic_write, check_writable
from shortlist.core.params import check_whole
from shortlist.evaluation import holm
from shortlist.paper import protocol
from shortlist.paper.protocol import (
    CAPS,
    METRICS,
    READINGS,
    Outcomes,
    Reading,
    best_lengths,
    boundary_values,
    fixed_values,
    read_truth,
    users_to_test,
)
from shortlist.paper.runs import Calls, Experiment, ResultCache, pack, unpack
from shortlist.paper.search import (
    SPACES,
    TOLERANCE,
    Calibrated,
    Entry,
    OwnLists,
    Search,
    ValidationUsers,
    take_users,
)
from shortlist.types import Doubles

RESAMPLES = 4000
BLOCK = 200  # resamples at a time
TEST_SEED = 7000
P_LEVEL = 0.05
BIAS_NAMES = {True: "with item biases", False: "without item biases"}
N_NAMES = {True: "each metric's own N or setting", False: "one N or setting"}
SELECTED_BY_F1 = ""
SELECTED_BY_NDCG = "selected by NDCG"  # only dynamic models; the others have an N of its own for NDCG
UNIFORM = "uniform sampling"  # the literal reading of the paper's sampling
Row = dict[str, Any]


def summarize_variants(experiment: Experiment, readings: tuple[Reading, ...], rows: list[Row]) -> Row:
    """Rows with means, deviations and tests, and the number of cells at or above the paper by variant."""
    printed = protocol.TABLE.get(experiment.name, {})
    values = [stack_runs(row) for row in rows]
    table = [summarize_row(row, one) for row, one in zip(rows, values, strict=True)]
    for row, one in zip(table, values, strict=True):
        if row["model"] in protocol.ORIGINAL:
            baseline = next(
                others
                for other, others in zip(table, values, strict=True)
                if other["model"] == protocol.ORIGINAL[row["model"]]
                and (other["bias"], other["reading"]) == (row["bias"], row["reading"])
            )
            row["tests"] = compare_with_original(one, baseline)
    finish_rows(table, experiment.name)
    return {
        "data": experiment.describe(),
        "readings": [reading.name for reading in readings],
        "rows": table,
        "cells": count_cells(table, [reading.name for reading in readings]) if printed else [],
    }


def finish_rows(table: list[Row], dataset: str) -> None:
    """Add Holm's correction over all tests of the table, and the paper's figures."""
    printed = protocol.TABLE.get(dataset, {})
    tests = [test for row in table for test in row.get("tests", {}).values()]
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = float(p)
    for row in table:
        row["paper"] = printed[row["model"]]._asdict() if row["model"] in printed else None


def summarize_row(row: Row, values: dict[str, Doubles]) -> Row:
    """The row without its runs, with mean and standard deviation of every figure."""
    found = {name: value for name, value in row.items() if name != "runs"}
    by_seed = {name: one.mean(axis=1) for name, one in values.items()}
    if "covered" in values:
        covered = values["covered"]
        by_seed = {"cover_ratio": covered.mean(axis=1), "long": values["long"].mean(axis=1)}
        for cap in CAPS:
            by_seed[f"f1_all_{cap}"] = values[f"f1_{cap}"].mean(axis=1)
            for metric in METRICS:
                by_seed[f"{metric}_{cap}"] = _covered_means(
                    values[f"{metric}_{cap}"], covered, np.ones((covered.shape[1], 1))
                )[:, 0]
    found["figures"] = {
        name: {
            "mean": float(one.mean()),
            "sd": float(one.std(ddof=1)) if one.size > 1 else None,
        }
        for name, one in by_seed.items()
    }
    return found | {"n_users": int(next(iter(values.values())).shape[1])}


def stack_runs(row: Row) -> dict[str, Doubles]:
    """By name, (n_seeds, n_users) values."""
    return {name: np.stack([unpack(run[name]) for run in row["runs"]]) for name in row["runs"][0]}


def _covered_means(values: Doubles, covered: Doubles, weights: Doubles) -> Doubles:
    """(n_seeds, n_resamples) mean over covered users; weights: (n_users, n_resamples)."""
    total = covered @ weights
    return np.divide(values @ weights, total, out=np.zeros_like(total), where=total > 0)


# ---------------------------------------------------------------------- tests
def compare_with_original(dynamic: dict[str, Doubles], baseline: dict[str, Doubles]) -> dict[str, Row]:
    """The dynamic model against the top-N model it extends, by a bootstrap over seeds and users.

    `f1_20` and the like: covered users against all users, as the paper compares, N chosen by F1.
    `f1_all_20`: all users, an empty list counting 0.
    """
    pairs: dict[str, tuple[Doubles, Doubles | None, Doubles]] = {}
    for cap in CAPS:
        for metric in METRICS:
            pairs[f"{metric}_{cap}"] = dynamic[f"{metric}_{cap}"], dynamic["covered"], baseline[metric]
        pairs[f"f1_all_{cap}"] = dynamic[f"f1_{cap}"], None, baseline["f1"]
    return bootstrap(pairs, RESAMPLES, TEST_SEED)


def bootstrap(
    pairs: dict[str, tuple[Doubles, Doubles | None, Doubles]], resamples: int, seed: int
) -> dict[str, Row]:
    """Difference, 95% interval and p-value of each pair (values, covered, baseline), all (n_seeds, n_users).

    A resample draws users, the same for both models, and seeds, independently for each model.
    """
    first = next(iter(pairs.values()))
    n_users = first[0].shape[1]
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn: dict[str, list[Doubles]] = {name: [] for name in pairs}
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        weights = np.column_stack(
            [np.bincount(rng.integers(n_users, size=n_users), minlength=n_users) for _ in range(size)]
        ).astype(np.float64)
        picks = [
            rng.multinomial(len(one), np.full(len(one), 1 / len(one)), size=size).T / len(one)
            for one in (first[0], first[2])
        ]
        for name, (values, covered, base) in pairs.items():
            means = _means(values, covered, weights)
            drawn[name].append(
                (means * picks[0]).sum(axis=0) - (_means(base, None, weights) * picks[1]).sum(0)
            )
    found = {}
    ones = np.ones((n_users, 1))
    for name, (values, covered, base) in pairs.items():
        observed = float(_means(values, covered, ones).mean() - _means(base, None, ones).mean())
        differences = np.concatenate(drawn[name])
        extreme = int((np.abs(differences - observed) >= abs(observed) * (1 - 1e-12)).sum())
        low, high = np.quantile(differences, [0.025, 0.975])
        found[name] = {
            "difference": observed,
            "low": float(low),
            "high": float(high),
            "p": (1 + extreme) / (1 + resamples),
        }
    return found


def _means(values: Doubles, covered: Doubles | None, weights: Doubles) -> Doubles:
    """(n_seeds, n_resamples) weighted means."""
    if covered is None:
        return np.asarray(values @ weights / weights.sum(axis=0))
    return _covered_means(values, covered, weights)


# ---------------------------------------------------------------------- cells
def count_cells(table: list[Row], readings: list[str]) -> list[Row]:
    """F1 and NDCG cells at or above the paper's, for every named variant."""
    found = []
    for reading in readings:
        for bias in BIAS_NAMES:
            rows = [row for row in table if (row["reading"], row["bias"]) == (reading, bias)]
            for own in (False, True):
                for cap in CAPS:
                    cells = [
                        (row["model"], metric, cell(row, metric, own, cap), row["paper"][metric])
                        for metric in METRICS
                        for row in rows
                        if row["kind"] == _kind_for(row["model"], metric, own)
                    ]
                    below = [
                        f"{protocol.title(model)} {METRICS[metric]}"
                        for model, metric, ours, theirs in cells
                        if round(ours, 3) < theirs
                    ]
                    found.append(
                        {
                            "reading": reading,
                            "bias": bias,
                            "own_N": own,
                            "cap": cap,
                            "cells": len(cells),
                            "reached": len(cells) - len(below),
                            "below": below,
                        }
                    )
    return found


def _kind_for(model: str, metric: str, own: bool) -> str:
    """The row that stands for a model: a dynamic one may have a setting of its own for NDCG."""
    return SELECTED_BY_NDCG if own and metric == "ndcg" and model in protocol.ORIGINAL else SELECTED_BY_F1


def cell(row: Row, metric: str, own: bool, cap: int) -> float:
    """The figure that stands beside the paper's."""
    if row["model"] in protocol.ORIGINAL:
        return float(row["figures"][f"{metric}_{cap}"]["mean"])
    name = "ndcg_own" if own and metric == "ndcg" else metric
    return float(row["figures"][name]["mean"])


# ---------------------------------------------------------------------- Markdown
def paper_markdown(found: Row) -> list[str]:
    """The variants side by side, and the cells at or above the paper."""
    return [*_table(found), "", *_cells_table(found)]


def _table(found: Row) -> list[str]:
    variants = [(reading, bias) for reading in found["readings"] for bias in BIAS_NAMES]
    head = ["model", "figure", "paper", *(f"{reading}, {BIAS_NAMES[bias]}" for reading, bias in variants)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---:|" + "---:|" * len(variants)]
    by = {(row["model"], row["kind"], row["reading"], row["bias"]): row for row in found["rows"]}
    kinds = (SELECTED_BY_F1, SELECTED_BY_NDCG, UNIFORM)
    for model in protocol.MODELS:
        for kind in kinds if model in protocol.ORIGINAL else kinds[:1]:
            rows, uniform = [by[model, kind, *variant] for variant in variants], kind == UNIFORM
            for label, name, metric in figures_of(model):
                printed = rows[0]["paper"]
                paper = f"{printed[metric]:g}" if printed and metric is not None and not uniform else ""
                cells = [cell_text(row, name, None if uniform else metric) for row in rows]
                title = protocol.title(model) + (f", {kind}" if kind else "")
                lines.append("| " + " | ".join([title, label, paper, *cells]) + " |")
    return lines


def figures_of(model: str) -> list[tuple[str, str, str | None]]:
    """(label, name of the figure, the paper's figure beside it) of every row of a model."""
    if model not in protocol.ORIGINAL:
        return [
            ("F1", "f1", "f1"),
            ("NDCG, N of F1", "ndcg", "ndcg"),
            ("NDCG, its own N", "ndcg_own", "ndcg"),
        ]
    rows: list[tuple[str, str, str | None]] = [("Cover-Ratio", "cover_ratio", "cover_ratio")]
    for cap in CAPS:
        rows += [(f"F1, at most {cap}", f"f1_{cap}", "f1"), (f"NDCG, at most {cap}", f"ndcg_{cap}", "ndcg")]
    return [*rows, (f"F1 of all users, at most {CAPS[0]}", f"f1_all_{CAPS[0]}", None)]


def cell_text(row: Row, name: str, metric: str | None) -> str:
    """A figure with its deviation and marks."""
    one = row["figures"][name]
    digits = 2 if name == "cover_ratio" else 4 if name.startswith("f1") else 3
    text = f"{one['mean']:.{digits}f}" + ("" if one["sd"] is None else f" ± {one['sd']:.{digits}f}")
    if metric in METRICS and row["paper"] is not None and round(one["mean"], 3) >= row["paper"][metric]:
        text += " *"
    if name == "cover_ratio" and row["paper"] is not None and metric is not None:
        missed = abs(row["valid"]["cover_ratio"] - row["paper"]["cover_ratio"]) > TOLERANCE
        text += f" (validation {row['valid']['cover_ratio']:.2f})" if missed else ""
    test = row.get("tests", {}).get(name)
    if test is not None and test["p_holm"] <= P_LEVEL:
        text += " ▲" if test["difference"] > 0 else " ▼"
    return text


def _cells_table(found: Row) -> list[str]:
    if not found["cells"]:
        return []
    lines = ["| variant | cells at or above the paper | below |", "|---|---:|---|"]
    for (name, reached), one in zip(list_cells(found), found["cells"], strict=True):
        lines.append(f"| {name} | {reached} | {', '.join(one['below']) or '–'} |")
    return lines


def list_cells(found: Row) -> list[tuple[str, str]]:
    """(name of the variant, cells at or above the paper) of every variant."""
    return [
        (
            f"{one['reading']}, {BIAS_NAMES[one['bias']]}, {N_NAMES[one['own_N']]}, at most {one['cap']}",
            f"{one['reached']} of {one['cells']}",
        )
        for one in found["cells"]
    ]


REPEATS: dict[str, Range | tuple[Any, ...]] = {"repeat_decay": Range(0.7, 1.0, log=False)}
TREND: dict[str, Range | tuple[Any, ...]] = {"trend_half_life": (1.0, 3.0, 7.0, 30.0)}
BIAS: dict[str, Range | tuple[Any, ...]] = {"bias": (True, False)}
FIXED_N, LEARNED = "", "learned boundary"
# lists that end where the model's own probabilities expect the most, or calibrated ones
OWN = {"F1-optimal boundary": "f1", "NDCG-optimal length": "ndcg"}
CALIBRATED = {"calibrated F1-optimal length": "f1", "calibrated NDCG-optimal length": "ndcg"}
ExtensionRow = dict[str, Any]


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

    def rows(self) -> list[ExtensionRow]:
        """One row per model, kind of lists and reading, with the runs of all seeds."""
        rows = []
        for extension in EXTENSIONS:
            found = self._select(extension)
            self._add_runs(found)
            rows += found
        return rows

    def _select(self, extension: Extension) -> list[ExtensionRow]:
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
    def _row(extension: str, model: str, entry: Entry, reading: Reading, lists: str) -> ExtensionRow:
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

    def _add_runs(self, rows: list[ExtensionRow]) -> None:
        """Add the runs of all seeds; rows with the same settings share the training."""
        shared: dict[str, list[ExtensionRow]] = {}
        for row in rows:
            shared.setdefault(json.dumps([row["model"], row["params"]], sort_keys=True), []).append(row)
        points = [(group, seed) for group in shared.values() for seed in self.seeds]
        finished = self.calls.map(lambda point: self._run(*point), points)
        for row in rows:
            row["runs"] = []
        for (group, _), found in zip(points, finished, strict=True):
            for number, row in enumerate(group):
                row["runs"].append(found[str(number)])

    def _run(self, group: list[ExtensionRow], seed: int) -> dict[str, Any]:
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


WantedRow = tuple[Reading, str, dict[str, int] | None]  # a reading, the kind of lists, the N of each metric


def evaluate_extension(
    experiment: Experiment,
    users: ValidationUsers,
    model: str,
    params: dict[str, Any],
    wanted: list[WantedRow],
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


EXTENDED_MODELS = {extension.model for extension in EXTENSIONS}


class Combination(NamedTuple):
    """Which rows stand for HRM, DK-BPRMF and DK-HRM; the other models are the paper's."""

    name: str
    lists: dict[str, str]  # kinds of lists of the dynamic models, and the metric each maximizes


COMBINATIONS = (Combination("F1-optimal boundary", OWN), Combination("calibrated length", CALIBRATED))


def summarize_extensions(paper: Row, paper_runs: list[Row], rows: list[Row], dataset: str) -> Row:
    """Rows with means, deviations and tests, and the cells reached if they stand for the paper's models.

    `paper` is the summary of the paper's models, `paper_runs` are its rows with all runs.
    """
    table = [summarize_row(row, stack_runs(row)) for row in rows]
    for row, summary in zip(rows, table, strict=True):
        if row["model"] in protocol.ORIGINAL:
            baseline = _find_original(row, [*rows, *paper_runs])
            summary["tests"] = compare_with_original(stack_runs(row), stack_runs(baseline))
    finish_rows(table, dataset)
    has_paper = dataset in protocol.TABLE
    return {
        "readings": paper["readings"],
        "rows": table,
        "cells": count_extended_cells(paper["rows"], table, paper["readings"]) if has_paper else [],
    }


def _find_original(row: Row, candidates: list[Row]) -> Row:
    """The top-N model that a dynamic one extends: with the same terms, or with the same item biases."""
    has_terms = "trend_half_life" in row["params"]
    return next(
        one
        for one in candidates
        if (one["model"], one["reading"]) == (protocol.ORIGINAL[row["model"]], row["reading"])
        and ("trend_half_life" in one["params"]) == has_terms
        and (has_terms or one["bias"] == row["bias"])
    )


# ---------------------------------------------------------------------- cells
def count_extended_cells(paper: list[Row], extended: list[Row], readings: list[str]) -> list[Row]:
    """F1 and NDCG cells at or above the paper's if the rows of a combination stand for their models."""
    found = []
    for combination in COMBINATIONS:
        for reading in readings:
            for bias in BIAS_NAMES:
                plain = [
                    row
                    for row in paper
                    if (row["reading"], row["bias"], row["kind"]) == (reading, bias, SELECTED_BY_F1)
                ]
                own = [row for row in extended if row["reading"] == reading]
                for own_setting in (False, True):
                    for cap in CAPS:
                        below, n_cells = _below(plain, own, combination, own_setting, cap)
                        found.append(
                            {
                                "combination": combination.name,
                                "reading": reading,
                                "bias": bias,
                                "own_N": own_setting,
                                "cap": cap,
                                "cells": n_cells,
                                "reached": n_cells - len(below),
                                "below": below,
                            }
                        )
    return found


def _below(
    plain: list[Row], extended: list[Row], combination: Combination, own: bool, cap: int
) -> tuple[list[str], int]:
    """(cells below the paper, number of cells)."""
    below = []
    for metric in METRICS:
        for row in plain:
            stands = find_standing(row, extended, combination, metric, own)
            if round(cell(stands, metric, own, cap), 3) < row["paper"][metric]:
                below.append(f"{protocol.title(row['model'])} {METRICS[metric]}")
    return below, len(METRICS) * len(plain)


def find_standing(row: Row, extended: list[Row], combination: Combination, metric: str, own: bool) -> Row:
    """The row that stands for a model: the paper's, or an extended one.

    With a setting of its own for NDCG, the lists that maximize NDCG stand for a dynamic model.
    """
    model = row["model"]
    if model not in EXTENDED_MODELS:
        return row
    maximized = metric if own else "f1"
    lists = next(name for name, one in combination.lists.items() if one == maximized)
    return next(
        one
        for one in extended
        if (one["model"], one["lists"]) == (model, lists if model in protocol.ORIGINAL else FIXED_N)
        and (model == "DKBPRMF" or "trend_half_life" in one["params"])
    )


# ---------------------------------------------------------------------- Markdown
def variants_markdown(results: Row) -> str:
    """Per dataset, the paper's models under every reading and the models beyond it, with cells reached."""
    settings, parts = results["settings"], []
    for name, found in results["datasets"].items():
        parts += [f"## {name}", "", *paper_markdown(found), ""]
        parts += [f"### {name}, beyond the paper", "", *extension_markdown(found["extended"]), ""]
        parts += _counts(found)
    users = "all users" if settings["users"] is None else f"a sample of {settings['users']:,} users"
    parts += [
        f"{settings['n_trials']} trials per model, with and without item biases each; "
        f"{settings['n_seeds']} seeds; {users}; rounds of {', '.join(map(str, settings['epochs']))} epochs. "
        f"Beyond the paper: {settings['n_extended']} trials per model, item biases are part of the search.",
        "",
        "Mean ± standard deviation over seeds; the paper's columns: covered users, NDCG against the ideal "
        "list of the same length. *: at or above the paper (three digits). ▲ better, ▼ worse than the "
        "model it extends at the N of F1 (bootstrap over seeds and users, Holm's correction over each "
        "table, p ≤ .05).",
    ]
    return "\n".join(parts) + "\n"


def _counts(found: Row) -> list[str]:
    """The cells of the best variant, for the paper's models and beyond."""
    if not found["cells"]:
        return []
    texts = [
        f"{name} {best_count(cells, CAPS[0])} cells with at most {CAPS[0]} items, "
        f"{best_count(cells, CAPS[1])} with at most {CAPS[1]}"
        for name, cells in (
            ("the paper's models", found["cells"]),
            ("with the rows beyond the paper", found["extended"]["cells"]),
        )
    ]
    return [f"At or above the paper in the best variant: {'; '.join(texts)}.", ""]


def extension_markdown(found: Row) -> list[str]:
    """The rows of all extensions, the readings side by side, and the cells."""
    readings = found["readings"]
    lines = [
        "| model | figure | paper | " + " | ".join(readings) + " |",
        "|---|---|---:|" + "---:|" * len(readings),
    ]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in found["rows"]:
        groups.setdefault((row["model"], row["extension"], row["lists"]), []).append(row)
    for (model, extension, lists), rows in groups.items():
        title = ", ".join(filter(None, (protocol.title(model), extension, lists)))
        for label, name, metric in figures_of(model):
            printed = rows[0]["paper"]
            paper = f"{printed[metric]:g}" if printed and metric is not None else ""
            cells = [cell_text(row, name, metric) for row in rows]
            lines.append("| " + " | ".join([title, label, paper, *cells]) + " |")
    return [*lines, "", *_cells_lines(found)] if found["cells"] else lines


def _cells_lines(found: Row) -> list[str]:
    """One line per combination, reading and bias of the other models."""
    lines = [
        "| rows of HRM, DK-BPRMF and DK-HRM | the other models | one N, at most 20 | one N, at most 100 "
        "| its own, at most 20 | its own, at most 100 | below, its own |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    by: dict[tuple[str, str, bool], list[Row]] = {}
    for one in found["cells"]:
        by.setdefault((one["combination"], one["reading"], one["bias"]), []).append(one)
    for (combination, reading, bias), ones in by.items():
        counts = " | ".join(f"{one['reached']} of {one['cells']}" for one in ones)
        below = "; ".join(
            f"at most {one['cap']}: {', '.join(one['below']) or '–'}" for one in ones if one["own_N"]
        )
        lines.append(f"| {combination} | {reading}, {BIAS_NAMES[bias]} | {counts} | {below} |")
    return lines


def list_extended_cells(found: Row) -> list[tuple[str, str]]:
    """(name, cells at or above the paper) with a setting of its own for NDCG and lists of any length."""
    return [
        (
            f"{one['combination']}; {one['reading']}, {BIAS_NAMES[one['bias']]}, at most {one['cap']}",
            f"{one['reached']} of {one['cells']}",
        )
        for one in found["cells"]
        if one["own_N"]
    ]


def best_count(cells: list[Row], cap: int) -> str:
    """The most cells that one variant reaches with lists of at most this length."""
    best = max((one for one in cells if one["cap"] == cap), key=lambda one: one["reached"])
    return f"{best['reached']} of {best['cells']}"


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
