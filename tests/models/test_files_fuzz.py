"""Crafted model files with valid checksums: each one loads and works, or is refused with a sentence.

Bounded and seeded. SHORTLIST_FUZZ=50 runs fifty times as many cases, SHORTLIST_FUZZ_SEED=3 other ones. A
worker process loads and uses every file; it is started again after a crash, and the crash counts for its
file. With NUMBA_BOUNDSCHECK=1 the kernels of the workers check every index.
"""

import copy
import json
import os
import select
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from shortlist.cutoff import (
    ExpectedF1,
    ExpectedValue,
    FixedN,
    Guarantee,
    Threshold,
)
from shortlist.models.base import find_model_class
from shortlist.models.selection import SelectionReport
from tests.models.cases import ALL_MODELS, checkerboard, fit, other_scores
from tests.models.crafted import mutate, read_parts, write_parts

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore:.* of the rows of truth"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs select on pipes"),
]
TIMES = int(os.environ.get("SHORTLIST_FUZZ", "1"))
SEED = int(os.environ.get("SHORTLIST_FUZZ_SEED", "0"))
CASES = 50 * TIMES
SECONDS = 120  # for one file; the first ones include compilation


def build_models():
    """Fitted models of every class, some with a cutoff, names, weights or a report."""
    data = checkerboard()
    named = replace(
        data,
        item_names=pl.Series([f"item {k}" for k in range(data.n_items)]),
        weight=np.ones(data.n_rows, np.float32),
    )
    short = {"n_epochs": 2}
    models = {
        name: fit(name, named, **(short if find_model_class(name).uses_epochs else {}))
        for name in ALL_MODELS
        if name not in ("TwoStage", "UPCF")  # the process that reads the files does not know UPCF
    }
    models["TwoStage"] = fit("TwoStage", data, n_rounds=4, n_bags=2)
    models["HRM-terms"] = fit("DKHRM", data, repeat_decay=0.9, trend_half_life=2.0, **short)
    scores = other_scores(data)
    models["sparse"] = fit("PrecomputedScores", data, scores=csr_array(scores * (scores > 0.5)))
    models["factors"] = fit(
        "PrecomputedScores", data, scores=(scores, np.eye(data.n_items, dtype=np.float32))
    )
    return data, models


def build_cutoffs(data, lists):
    """Fitted cutoffs and calibrations of every class and method."""
    cutoffs = {
        "fixed": FixedN(),
        "threshold": Threshold(on="probability", calibration="isotonic"),
        "f1": ExpectedF1(calibration="features"),
        "value": ExpectedValue(calibration="platt"),
        "guarantee": Guarantee(min_precision=0.01, fallback="empty"),
    }
    return {name: one.fit(lists, data, history=data) for name, one in cutoffs.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Name → (kind, parts) of valid files."""
    folder = tmp_path_factory.mktemp("valid")
    data, models = build_models()
    lists = models["PersonalFrequency"].recommend(N=20, filter_seen=False)
    cutoffs = build_cutoffs(data, lists)
    for name, cutoff in zip(
        ("BPRMF", "EASE", "TIFUKNN", "TwoStage", "PersonalFrequency"), cutoffs.values(), strict=False
    ):
        report = SelectionReport("test", [{"model": name, "params": {}, "N": 3, "score": 0.5}], [])
        models[name].set_cutoff(cutoff, report)
    found = {}
    for name, one in {**models, **cutoffs}.items():
        parts = read_parts(one.save(folder / name))
        found[name] = (parts.description["kind"], parts)
    return found


class Worker:
    """A process that loads and uses files; started again when it ended."""

    def __init__(self, environment=()):
        self.environment = {**os.environ, **dict(environment)}
        self.process = None

    def run(self, kind, path):
        """The outcome for one file."""
        if self.process is None:
            command = [sys.executable, "-m", "tests.models.fuzz_worker"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=self.environment
            )
            assert self.process.stdout.readline() == "ready\n"
        self.process.stdin.write(f"{kind} {path}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if line.endswith("\n"):
            return json.loads(line)
        self.stop()
        return {"raw": "crash" if ready else f"no answer in {SECONDS} seconds"}

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture
def worker():
    one = Worker()
    yield one
    one.stop()


def test_valid_files_load_and_work(files, worker, tmp_path):
    for name, (kind, parts) in files.items():
        write_parts(tmp_path / "file", parts)
        outcome = worker.run(kind, tmp_path / "file")
        assert "raw" not in outcome, (name, outcome)
        assert outcome["load"] == "done", (name, outcome)
        used = "top 5" if kind == "model" else "describe"
        assert outcome[used] == "done", (name, outcome)


def test_crafted_files_are_refused_or_work(files, worker, tmp_path):
    names, counts, faults = list(files), Counter(), []
    for number in range(CASES):
        rng = np.random.default_rng([SEED, number])
        name = names[number % len(names)]
        kind, parts = files[name]
        parts = copy.deepcopy(parts)
        changes = mutate(parts, files[names[rng.integers(len(names))]][1], rng)
        write_parts(tmp_path / "file", parts)
        outcome = worker.run(kind, tmp_path / "file")
        counts[outcome.get("load", "fault")] += 1
        if "raw" in outcome:
            faults.append(f"case {number}, {name}, {changes}: {outcome['raw']}")
    sys.stdout.write(f"{CASES} files: {dict(counts)}, {len(faults)} faults\n")  # shown with pytest -s
    assert not faults, "\n".join(faults[:5])
    assert counts["refused"] > CASES // 3
    assert CASES < 50 or counts["done"] > CASES // 50  # changes that are harmless are not refused
