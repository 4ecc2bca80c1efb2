"""The file of every model and of every calibration has the same hash, whatever runs it."""

import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from shortlist.cutoff.calibration import Method
from tests.models.cases import ALL_MODELS

SAVE = """
import hashlib, json, os, sys
folder, on_one_core = sys.argv[1], sys.argv[2] == "one core"
if on_one_core and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
import shortlist as sl
from shortlist.cutoff.calibration import Method
from typing import get_args
from tests.models.cases import ALL_MODELS, content, crowd, model
split, digests = sl.split.last_basket(crowd()), {}
def keep(name, fitted):
    path = fitted.save(os.path.join(folder, "model"))
    digests[name] = hashlib.sha256(open(path, "rb").read()).hexdigest()
for name in ALL_MODELS:
    changed = {"n_epochs": 3} if name not in ("ALS",) and "n_epochs" in model(name).get_params() else {}
    if name == "PrecomputedScores":
        changed["scores"] = np.random.default_rng(0).normal(size=(split.train.n_users, split.train.n_items))
    keep(name, model(name, **changed).fit(split.train, **content(name, split.train)))
ranker = sl.PersonalFrequency().fit(split.train)
lists = ranker.recommend(N=50, at=split.valid)
for method in get_args(Method):
    if method != "none":
        cut = sl.cutoff.ExpectedF1(calibration=method, n_candidates=50)
        keep(method, ranker.set_cutoff(cut.fit(lists, split.valid, history=split.train)))
print(json.dumps(digests))
"""
RUNS = {  # threads of ours, cores, variables of the libraries
    "one core": (0, "one core", {}),
    "libraries with one thread": (2, "all", {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}),
    "libraries with two threads": (1, "all", {"OPENBLAS_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2"}),
    "four threads": (4, "all", {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}),
}


@pytest.fixture(scope="module")
def digests(tmp_path_factory):
    """The hash of each file, by run and name."""
    found = {}
    for run, (n_threads, cores, variables) in RUNS.items():
        environment = {key: value for key, value in os.environ.items() if not key.endswith("_THREADS")}
        environment |= variables | {"SHORTLIST_THREADS": str(n_threads)}
        environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        folder = str(tmp_path_factory.mktemp("bits"))
        command = [sys.executable, "-c", SAVE, folder, cores]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found[run] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [*ALL_MODELS, *(method for method in get_args(Method) if method != "none")])
def test_files_are_the_same_on_any_number_of_threads_and_cores(digests, name):
    assert len({by_name[name] for by_name in digests.values()}) == 1


def test_different_models_have_different_files(digests):
    hashes = list(digests["one core"].values())
    assert len(set(hashes)) >= len(hashes) - 1  # "auto" is one of the other calibrations
