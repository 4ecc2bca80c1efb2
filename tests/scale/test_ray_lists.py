"""Batch recommendation, evaluation and tuning on a Ray cluster: the same results as in one process."""

import os
import signal
import sys
from functools import partial

import numpy as np
import pytest

import shortlist as sl
from shortlist.core.engine import FixedFunction, ThreadEngine
from shortlist.errors import ConfigError
from shortlist.paper.experiment import Experiment, Runner
from shortlist.paper.variants import ValidationUsers, evaluate_trial
from tests.models.cases import crowd, fit, model
from tests.scale.cluster import needs_ray

pytestmark = [
    *needs_ray,
    pytest.mark.skipif(sys.platform == "win32", reason="Ray's test cluster needs POSIX"),
]


def contents(folder):
    """The bytes of each list file."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


@pytest.mark.parametrize("name", ["TwoStage", "DKHRM", "PersonalFrequency"])
def test_same_bytes_as_one_process(cluster, name, tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.models.base.MAX_BATCH", 64)
    monkeypatch.setattr("shortlist.models.factorization.model.MAX_BATCH", 64)
    monkeypatch.setattr("shortlist.models.two_stage.two_stage.BATCH", 64)
    fitted = fit(name, crowd(), **({"n_epochs": 2} if name == "DKHRM" else {}))
    one, other = tmp_path / "one", tmp_path / "other"
    options = {"N": 5, "users_per_file": 128}
    sl.recommend_to_folder(fitted, one, **options)
    calls = []
    sl.recommend_to_folder(
        fitted, other, engine=sl.RayEngine(), progress=lambda *call: calls.append(call), **options
    )
    assert contents(one) == contents(other)
    assert len(contents(one)) == len(calls) == 4
    lists = fitted.recommend(N=5)
    truth = crowd()
    with pytest.warns(sl.errors.DataWarning):
        expected = sl.evaluate(lists, truth).to_dict()
    assert sl.evaluate(other, truth).to_dict() == expected
    history = crowd() if name == "DKHRM" else None
    report = sl.evaluate(other, truth, history=history, engine=sl.RayEngine())
    assert report.to_dict() == sl.evaluate(other, truth, history=history).to_dict()
    assert np.array_equal(report.cells, sl.evaluate(lists, truth).cells)


def test_two_stage_learns_from_examples_of_the_cluster(cluster, monkeypatch):
    monkeypatch.setattr("shortlist.models.two_stage.training.SLICE", 100)
    one, other = fit("TwoStage", crowd()), model("TwoStage").fit(crowd(), engine=sl.RayEngine())
    assert other.fingerprint_ == one.fingerprint_


class Dying(sl.PersonalFrequency):
    """Kills its process when it scores the users of one file, once."""

    def score(self, request):
        if request.user_ids[0] == self.user and os.getpid() != self.driver and not self.killed.exists():
            self.killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(request)


def test_lists_are_the_same_if_a_worker_is_killed(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.models.base.MAX_BATCH", 64)
    fitted = fit("PersonalFrequency", crowd())
    dying = Dying(**fitted.get_params())
    dying._state = fitted._state
    one, other = tmp_path / "one", tmp_path / "other"
    dying.killed, dying.driver = tmp_path / "killed", os.getpid()
    sl.recommend_to_folder(fitted, one, N=5, users_per_file=64)
    dying.user = sl.RankedLists.read(one / "part-00002-of-00007.parquet").users.values[0]
    sl.recommend_to_folder(dying, other, N=5, users_per_file=64, engine=sl.RayEngine())
    assert dying.killed.exists()
    assert len(contents(one)) == 7
    assert contents(one) == contents(other)


def test_a_killed_task_is_repeated_and_errors_are_raised(cluster, tmp_path):
    squares = list(sl.RayEngine().map(partial(kill_once, tmp_path / "killed"), range(20)))
    assert (tmp_path / "killed").exists()  # a process was killed
    assert squares == [n * n for n in range(20)]
    with pytest.raises(ConfigError, match="not 7"):
        list(sl.RayEngine().map(refuse, [1, 7]))


def test_arrays_of_a_task_are_in_the_store_of_its_node(cluster, monkeypatch):
    """Once per node, and not in the memory of each process."""
    from shortlist.scale import cluster as ray_session

    monkeypatch.setattr(ray_session, "SMALL", 1000)
    data = crowd()
    function = FixedFunction(partial(describe_arrays, data, np.ones(500)))
    found = (False, False, True, data.n_rows)  # arrays that can be written are copied
    assert list(sl.RayEngine().map(function, [0, 1])) == [found] * 2
    assert list(sl.RayEngine().map(function, [2])) == [found]
    assert len(ray_session.fixed_functions) == 1


def describe_arrays(data, other, _):
    held = data.item
    while isinstance(held.base, np.ndarray):
        held = held.base
    is_copy = isinstance(held.base, (bytes, bytearray)) or held.flags.owndata
    return is_copy, data.item.flags.writeable, other.flags.writeable, data.n_rows


def test_runs_of_the_paper_are_those_of_one_process(cluster, tmp_path):
    experiment = Experiment.load("sample", 150)
    params = {"n_factors": 8, "n_epochs": 3, "seed": 1}
    users = ValidationUsers(experiment, seed=1, limit=100)
    found = {}
    for name, engine in (("one", ThreadEngine()), ("other", sl.RayEngine())):
        runner = Runner(experiment, tmp_path / name, engine)

        def run(model, runner=runner):
            return runner.compute("trial", model, evaluate_trial, users, model, params)

        found[name] = runner.map(run, [("BPRMF",), ("DKBPRMF",)])
    assert found["one"] == found["other"]


def kill_once(marker, n):
    """The square of n; the process that gets 7 first is killed."""
    if n == 7 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


def refuse(n):
    if n == 7:
        raise ConfigError("not 7")
    return n
