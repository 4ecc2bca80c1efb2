"""One model with one seed: train, fit all cutoffs on the validation set, evaluate on the test set."""

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.auto.validation import Holdout, Validation, build_model, validate
from shortlist.core.engine import Engine, Fixed, ThreadEngine, thread_count
from shortlist.core.files import atomic_write
from shortlist.cutoff import (
    Boundary,
    Calibration,
    Cutoff,
    ExpectedF1,
    ExpectedNDCG,
    ExpectedValue,
    FixedN,
    Guarantee,
    Threshold,
)
from shortlist.data.datasets import load_dataset
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import (
    Report,
    best_fixed_n,
    evaluate,
    fixed_n_curve,
    match_baselines,
    oracle,
    risk_coverage,
)
from shortlist.models.base import Recommender
from shortlist.paper.protocol import BOUNDARY, EXPECTED_F1, FIXED, LENGTHS, MAX_ITEMS, ORACLE
from shortlist.split import Split, last_basket
from shortlist.types import Doubles

MAX_BYTES = 1 << 30  # of one unpacked array
LAYOUT = 2  # increased when the content of a result changes, so that older files are not reused


class ResultCache:
    """A folder of finished results."""

    def __init__(self, folder: Path, progress: Callable[[str], None] | None = None) -> None:
        self.folder, self.progress = folder, progress
        self.seconds = 0.0  # compute time of all results returned, cached or not

    def path(self, kind: str, settings: dict[str, Any], suffix: str = "json") -> Path:
        """The file of a result with these settings."""
        text = json.dumps([LAYOUT, kind, settings], sort_keys=True)
        return self.folder / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.{suffix}"

    def get(
        self, kind: str, settings: dict[str, Any], compute: Callable[[], dict[str, Any]], label: str
    ) -> dict[str, Any]:
        """Read the result, or compute and write it."""
        path = self.path(kind, settings)
        entry = _read(path)
        if entry is None:
            start = time.perf_counter()
            result = compute()
            entry = {
                "kind": kind,
                "settings": settings,
                "seconds": round(time.perf_counter() - start, 2),
                "result": result,
            }
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps(entry, allow_nan=False), encoding="utf-8")
            if self.progress is not None:
                self.progress(f"{label}: {entry['seconds']:.1f} s")
        self.seconds += entry["seconds"]
        copy: dict[str, Any] = json.loads(json.dumps(entry["result"]))  # same types, computed or read
        return copy


def _read(path: Path) -> dict[str, Any] | None:
    """Read an entry; None if the file is missing or damaged."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        return None
    valid = isinstance(entry, dict) and isinstance(entry.get("result"), dict)
    return entry if valid and isinstance(entry.get("seconds"), int | float) else None


def pack(values: Doubles) -> str:
    """(n,) numbers as compressed single-precision text, because plain JSON would be much larger."""
    return base64.b85encode(zlib.compress(np.asarray(values, "<f4").tobytes(), 6)).decode()


def unpack(text: str) -> Doubles:
    """The inverse of `pack`."""
    raw = zlib.decompressobj().decompress(base64.b85decode(text), MAX_BYTES)
    return np.frombuffer(raw, "<f4").astype(np.float64)


N_CANDIDATES = 100  # per user; no list is longer
SUBSAMPLE_STREAM = 11  # second seed of the subsample, so that it differs from other random streams
TUNED_METRICS = ("f1", "ndcg", "ndcg_paper")  # metrics for which N is chosen on the validation set
CURVE_POINTS = 50  # of a risk-coverage curve
BINS = 30  # of the histogram of boundaries


@dataclass(frozen=True, eq=False)
class Experiment:
    """A dataset and its split."""

    name: str
    split: Split

    @classmethod
    def load(cls, name: str, users: int | None = None, seed: int = 0) -> "Experiment":
        """A dataset by name; `users` is the size of a random sample of users."""
        data = load_dataset(name)
        if users is not None and users < data.active_users.size:
            rng = np.random.Generator(np.random.PCG64([seed, SUBSAMPLE_STREAM]))
            sampled = np.zeros(data.n_users, np.bool_)
            sampled[rng.choice(data.active_users, users, replace=False)] = True
            data = data.where(sampled[data.user])
        return cls(name, last_basket(data))

    @cached_property
    def filter_seen(self) -> bool:
        """Whether items from the user's history are excluded."""
        return not self.split.train_valid.has_repeats

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the data in the settings of cached results."""
        return self.split.data.fingerprint

    def validate(
        self, model: str, params: dict[str, Any], history: Interactions, truth: Interactions
    ) -> Validation:
        """Train for exactly `n_epochs` on one thread; candidates are for the users in `truth`."""
        fresh = build_model(model, params)
        if fresh.uses_epochs:
            fresh.set_params(n_threads=1, tol=0.0)
        return validate(
            fresh,
            Holdout(history, truth, self.name),
            n_candidates=N_CANDIDATES,
            filter_seen=self.filter_seen,
            n_threads=1,
            early_stopping=False,
        )

    def describe(self) -> dict[str, Any]:
        """Sizes of the dataset and its split."""
        data, split = self.split.data, self.split
        return {
            "rows": data.n_rows,
            "users": int(data.active_users.size),
            "items": data.n_items,
            "valid_users": int(split.valid.active_users.size),
            "test_users": int(split.test.active_users.size),
            "test_rows": split.test.n_rows,
            "filter_seen": self.filter_seen,
            "fingerprint": self.fingerprint,
        }


def cutoffs(n_candidates: int) -> dict[str, Cutoff]:
    """All cutoffs that are compared, unfitted, for candidates with probabilities."""
    shared: dict[str, Any] = {"calibration": "none", "n_candidates": n_candidates}
    return {
        "score threshold": Threshold(n_candidates=n_candidates),
        "probability threshold": Threshold(on="probability", **shared),
        "fitted boundary": Boundary(n_candidates=n_candidates),
        EXPECTED_F1: ExpectedF1(**shared),
        "expected NDCG": ExpectedNDCG(**shared),
        "expected value, gain 20 × cost": ExpectedValue(gain=1.0, cost=0.05, **shared),
        "precision ≥ 3% guaranteed": Guarantee(
            min_precision=0.03, fallback="empty", n_candidates=n_candidates
        ),
    }


def run(experiment: Experiment, model: str, params: dict[str, Any], n_candidates: int) -> dict[str, Any]:
    """Choose on the validation set, refit on train and validation, evaluate every list on the test set."""
    split = experiment.split
    valid = experiment.validate(model, params, split.train, split.valid).candidates
    valid_curve = fixed_n_curve(valid, split.valid, LENGTHS)
    best_N = {metric: best_fixed_n(valid_curve, metric) for metric in TUNED_METRICS}
    final = experiment.validate(model, params, split.train_valid, split.test)
    test = final.candidates
    lists = {FIXED: FixedN(N=best_N["f1"]).apply(test)}
    if test.boundary is not None:
        lists[BOUNDARY] = Boundary().apply(test)
    lists |= _apply_cutoffs(experiment, valid, test, n_candidates)
    curve = fixed_n_curve(test, split.test, LENGTHS)
    reports = {name: evaluate(each, split.test, max_items=MAX_ITEMS) for name, each in lists.items()}
    reports[ORACLE] = oracle(test, split.test, max_items=MAX_ITEMS)
    figures = {name: summarize(report) for name, report in reports.items()}
    figures[FIXED] = _with_best_lengths(experiment, figures[FIXED], test, best_N)
    return {
        "N": best_N,
        "curve": {name: curve[name].to_list() for name in TUNED_METRICS},
        "lists": figures,
        "matched": {
            name: _matched(experiment, lists[name], test, best_N["f1"])
            for name in (BOUNDARY, EXPECTED_F1)
            if name in lists
        },
        "risk": {name: _risk(report) for name, report in reports.items() if name != ORACLE},
        "boundaries": _boundaries(final.model, experiment),
    }


def _apply_cutoffs(
    experiment: Experiment, valid: RankedLists, test: RankedLists, n_candidates: int
) -> dict[str, RankedLists]:
    """The test lists of every cutoff; all use one calibration, fitted on the validation set."""
    split = experiment.split
    calibration = Calibration(n_candidates=n_candidates).fit(valid, split.valid, history=split.train)
    valid = calibration.apply(valid, history=split.train)
    test = calibration.apply(test, history=split.train_valid)
    # the protocol refits the model between the two sets, so the guarantee is not kept: without fingerprints,
    # its threshold is compared like any other
    valid, test = (replace(lists, source=None) for lists in (valid, test))
    return {
        name: cutoff.fit(valid, split.valid, history=split.train).apply(test, history=split.train_valid)
        for name, cutoff in cutoffs(n_candidates).items()
    }


def summarize(report: Report) -> dict[str, Any]:
    """Means over all users and over covered users, and the per-user values that tests need."""
    return {
        "f1": report.f1,
        "ndcg": report.ndcg,
        "precision": report.mean("precision"),
        "recall": report.mean("recall"),
        "cover_ratio": report.cover_ratio,
        "length": report.mean("length"),
        "f1_covered": _none_if_nan(report.mean("f1", "covered")),
        "ndcg_covered": _none_if_nan(report.mean("ndcg_paper", "covered")),
        "precision_covered": _none_if_nan(report.mean("precision", "covered")),
        "lengths": np.bincount(np.minimum(report.lengths, MAX_ITEMS + 1), minlength=MAX_ITEMS + 2).tolist(),
        "users": {name: pack(report.values(name)) for name in (*TUNED_METRICS, "length")},
    }


def _with_best_lengths(
    experiment: Experiment, for_f1: dict[str, Any], test: RankedLists, best_N: dict[str, int]
) -> dict[str, Any]:
    """Replace both NDCGs by those at the N that was best for them on the validation set."""
    figures = for_f1 | {"users": dict(for_f1["users"])}
    for metric, figure in (("ndcg", "ndcg"), ("ndcg_paper", "ndcg_covered")):
        lists = FixedN(N=best_N[metric]).apply(test)
        other = summarize(evaluate(lists, experiment.split.test, max_items=MAX_ITEMS))
        figures[figure] = other[figure]
        figures["users"][metric] = other["users"][metric]
    return figures


def sweep(experiment: Experiment, model: str, params: dict[str, Any]) -> dict[str, Any]:
    """One point of Figure 1: the lists above the boundaries, evaluated on the test set."""
    split = experiment.split
    fitted = experiment.validate(model, params, split.train_valid, split.test)
    # alpha = 0 learns no boundary, and every t_u keeps its initial value
    figures = summarize(
        evaluate(Boundary(t=params["t"]).apply(fitted.candidates), split.test, max_items=MAX_ITEMS)
    )
    del figures["users"]
    return figures | {"boundaries": _boundaries(fitted.model, experiment)}


def strictness(
    experiment: Experiment, model: str, params: dict[str, Any], target: float, steps: int
) -> dict[str, Any]:
    """Bisect `negatives` until the boundary covers the share `target` of validation users."""
    split = experiment.split
    low, high = -3.0, 11.0  # exponents of two; more negatives cover fewer users
    tried = []
    for _ in range(steps):
        middle = (low + high) / 2
        changed = params | {"negatives": 2.0**middle}
        candidates = experiment.validate(model, changed, split.train, split.valid).candidates
        report = evaluate(Boundary().apply(candidates), split.valid, max_items=MAX_ITEMS)
        tried.append(
            {
                "negatives": round(2.0**middle, 4),
                "cover_ratio": report.cover_ratio,
                "f1_covered": _none_if_nan(report.mean("f1", "covered")) or 0.0,
                "length": report.mean("length"),
            }
        )
        low, high = (middle, high) if report.cover_ratio > target else (low, middle)
    best = min(tried, key=lambda one: abs(one["cover_ratio"] - target))
    return best | {"target": target, "tried": tried}


def _matched(experiment: Experiment, lists: RankedLists, test: RankedLists, N: int) -> dict[str, Any]:
    """The same ranking at fixed lengths, restricted to the users, empty lists or item count of `lists`."""
    names = ("top N", "same users", "same abstention", "same items")
    truth = experiment.split.test
    return {
        name: summarize(evaluate(each, truth, max_items=MAX_ITEMS))
        for name, each in zip(names, match_baselines(lists, test, truth, N).values(), strict=True)
    }


def _risk(report: Report) -> dict[str, Any]:
    risk = risk_coverage(report)
    curve = risk.curve(CURVE_POINTS)
    return {
        "coverage": curve["coverage"].to_list(),
        "f1": curve["f1"].to_list(),
        "area": risk.area,
        "area_random": risk.area_random,
    }


def _boundaries(model: Recommender, experiment: Experiment) -> dict[str, Any] | None:
    """The distribution of the test users' boundaries."""
    test = experiment.split.test
    boundaries = model.boundaries(test.users.to_ids(test.active_users))
    if boundaries is None:
        return None
    counts, edges = np.histogram(boundaries, BINS)
    levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    quantiles = np.quantile(boundaries, levels)
    return {
        "sd": float(boundaries.std()),
        "quantiles": {f"{q:g}": float(value) for q, value in zip(levels, quantiles, strict=True)},
        "counts": counts.tolist(),
        "edges": edges.tolist(),
    }


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value


@dataclass(frozen=True)
class Calls:
    """Where the runs of an experiment are computed."""

    experiment: Experiment
    engine: Engine
    n_jobs: int  # parallel runs in this process; 0: one per core

    def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(experiment, *args), here or on the cluster."""
        if isinstance(self.engine, ThreadEngine):
            return function(self.experiment, *args)
        return next(iter(self.engine.map(self._bound, [(function, args)])))

    @cached_property
    def _bound(self) -> Fixed:
        """One function for all tasks, so that a cluster gets the experiment once."""
        return Fixed(partial(_apply, self.experiment))

    def map(self, job: Callable[[Any], Any], points: Iterable[Any]) -> list[Any]:
        """The results of a job, in the order of the points; as many at once as there are places."""
        is_local = isinstance(self.engine, ThreadEngine)
        with ThreadPoolExecutor(thread_count(self.n_jobs) if is_local else self.engine.n_tasks) as pool:
            return list(pool.map(job, points))


def _apply(experiment: Experiment, task: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, args = task
    return function(experiment, *args)
