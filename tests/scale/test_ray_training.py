"""Training on a Ray cluster: the same bits as threads, also if workers, nodes or the driver are lost."""

import os
import signal
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

import shortlist as sl
from shortlist.errors import ConfigError
from shortlist.models.factorization import training
from tests.models.cases import bits, checkerboard, crowd, fit, model
from tests.models.factorization.test_training import Recorder, split
from tests.scale.cluster import kill_before, kill_worker, needs_ray, no_workers_remain, run_killed

pytestmark = [
    *needs_ray,
    pytest.mark.skipif(sys.platform == "win32", reason="Ray's test cluster needs POSIX"),
]


TERMS = {"repeat_decay": 0.9, "trend_half_life": 2.0}


@pytest.mark.parametrize(
    ("name", "n_workers", "changed"),
    [
        ("BPRMF", 3, {"negative_draws": 3}),
        ("LogMF", 2, {"negatives": "uniform"}),
        ("CRRMF", 2, {"lr": 0.05}),
        ("DKBPRMF", 2, {"loss": "hinge", "penalty": "l1", "bias": False}),
        ("HRM", 2, {"pool_items": "max", "pool_user": "max", "window": 2}),
        ("DKHRM", 3, {"negative_draws": 2} | TERMS),
    ],
)
def test_same_bits_as_threads(cluster, name, n_workers, changed):
    """Seven epochs: the items are relabeled once."""
    expected = fit(name, crowd(), n_epochs=7, **changed)
    recorder = Recorder()
    found = model(name, n_epochs=7, **changed).fit(
        crowd(), engine=sl.RayEngine(n_workers=n_workers), progress=recorder
    )
    assert bits(found) == bits(expected)
    assert found.losses_ == expected.losses_
    assert found.fingerprint_ == expected.fingerprint_
    assert [call.epoch for call in recorder.calls] == list(range(1, 8))
    assert no_workers_remain()


def test_als_has_the_same_bits_as_threads(cluster):
    build = partial(sl.ALS, n_factors=40, n_epochs=2)
    expected, found = build().fit(crowd()), build()
    found.fit(crowd(), engine=sl.RayEngine(n_workers=2))
    assert bits(found) == bits(expected)


def test_validation_and_checkpoints_move_between_engines(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1)
    train, valid = split()
    never = model("DKBPRMF", n_epochs=9, patience=3).fit(train, valid=valid)
    engines = (sl.RayEngine(n_workers=1), None, sl.RayEngine(n_workers=2))
    for engine, n_epochs in zip(engines, (2, 4, 9), strict=True):
        one = model("DKBPRMF", n_epochs=n_epochs, patience=3)
        one.fit(train, valid=valid, checkpoint=tmp_path / "run", engine=engine)
    assert bits(one) == bits(never)
    assert one.valid_scores_ == never.valid_scores_
    assert one.losses_ == never.losses_
    assert (one.n_epochs_, one.stopped_) == (never.n_epochs_, never.stopped_)


def test_ctrl_c_keeps_completed_epochs(cluster):
    recorder = Recorder(4, KeyboardInterrupt())
    one = model("DKHRM").fit(crowd(), engine=sl.RayEngine(n_workers=1), progress=recorder)
    assert (one.stopped_, one.n_epochs_) == ("interrupted", 4)
    assert bits(one) == bits(fit("DKHRM", crowd(), n_epochs=4))


def test_ctrl_c_during_an_epoch_stops_the_workers(cluster):
    def interrupt(progress):
        if progress.epoch == 2:
            timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
            timer.start()

    # a shell starts background processes with interrupts ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        one = model("DKHRM", n_epochs=100_000).fit(
            crowd(), engine=sl.RayEngine(n_workers=2), progress=interrupt
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert one.stopped_ == "interrupted"
    assert 2 <= one.n_epochs_ < 100_000
    assert all(np.isfinite(array).all() for array in one._state.parameters)


def test_steps_shrink_after_divergence_as_with_threads(cluster):
    name = "DKHRM"
    expected = model(name, lr=10.0, n_epochs=7).fit(crowd())
    found = model(name, lr=10.0, n_epochs=7).fit(crowd(), engine=sl.RayEngine(n_workers=2))
    assert bits(found) == bits(expected)
    assert found.losses_ == expected.losses_
    assert found.lr_ == expected.lr_ < 10


def test_other_code_on_a_node_is_refused(cluster, monkeypatch):
    from shortlist.scale import cluster as ray_cluster

    monkeypatch.setattr(ray_cluster, "code_stamp", lambda: {"numba": "0.1"})
    with pytest.raises(ConfigError, match=r"must run the same code, but .* has numba .* instead of 0\.1"):
        model("BPRMF").fit(checkerboard(), engine=sl.RayEngine(n_workers=1))


# ------------------------------------------------------------------ faults
def validated(data):
    """Nine tenths of the rows of some interactions, and the others."""
    is_valid = np.arange(data.n_rows) % 10 == 0
    return data.where(~is_valid), data.where(is_valid)


@pytest.mark.parametrize(
    ("name", "n_workers", "after", "methods"),
    [
        ("BPRMF", 2, -1, ["report", "user_rows", "user_arrays", "prepare_epoch"]),
        ("BPRMF", 1, -1, ["user_arrays"]),
        ("DKHRM", 2, 3600, ["connect", "run_epoch"]),
    ],
)
def test_killed_worker_is_replaced(cluster, name, n_workers, after, methods, monkeypatch):
    """With a copy after every epoch, and with none."""
    from shortlist.scale import trainer as ray_trainer

    monkeypatch.setattr(ray_trainer, "SNAPSHOT_SECONDS", after)
    coming, recorded = kill_before(monkeypatch, *methods), Recorder()
    train, valid = validated(crowd())
    one = model(name, n_epochs=3, patience=9).fit(
        train, valid=valid, engine=sl.RayEngine(n_workers=n_workers), progress=recorded
    )
    expected = model(name, n_epochs=3, patience=9).fit(train, valid=valid)
    assert coming == []
    assert bits(one) == bits(expected)
    assert one.valid_scores_ == expected.valid_scores_
    assert [call.epoch for call in recorded.calls] == [1, 2, 3]


def test_lost_node_is_done_without(cluster, monkeypatch, caplog):
    """Two of three nodes have three CPUs, so that each of them has a worker; one of them is lost."""
    from shortlist.scale import trainer as ray_trainer

    monkeypatch.setattr(ray_trainer, "SNAPSHOT_SECONDS", -1)
    nodes = [cluster.add_node(num_cpus=3, object_store_memory=100 << 20)]
    cluster.wait_for_nodes()

    def progress(call):
        if call.epoch == 4:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    engine = sl.RayEngine(n_workers=2, threads_per_worker=3)
    one = model("DKBPRMF", n_epochs=8).fit(crowd(), engine=engine, progress=progress)
    assert nodes == []
    assert "a worker was lost" in caplog.text
    assert bits(one) == bits(fit("DKBPRMF", crowd(), n_epochs=8))


KILLED_DRIVER = """
    import os, signal
    import shortlist as sl
    from shortlist.models.factorization import training
    from tests.models.cases import crowd, model

    training.CHECKPOINT_SECONDS = -1

    def progress(call):
        if call.epoch == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = sl.RayEngine({address!r}, n_workers=1)
    model("DKHRM", n_epochs=7).fit(crowd(), checkpoint={place!r}, progress=progress, engine=engine)
"""


def test_killed_driver_resumes_to_the_same_bits(cluster, tmp_path):
    place = tmp_path / "run"
    run_killed(KILLED_DRIVER.format(place=str(place), address=cluster.address))
    recorder = Recorder()
    one = model("DKHRM", n_epochs=7).fit(
        crowd(), checkpoint=place, progress=recorder, engine=sl.RayEngine(n_workers=2)
    )
    assert recorder.calls[0].epoch == 4  # the checkpoint was written after epoch 3
    assert bits(one) == bits(fit("DKHRM", crowd(), n_epochs=7))


@pytest.mark.fuzz
@pytest.mark.skipif("SHORTLIST_FUZZ" not in os.environ, reason="long; `make fuzz` runs it")
def test_kills_at_random_moments(cluster, monkeypatch):
    from shortlist.scale import trainer as ray_trainer

    monkeypatch.setattr(ray_trainer, "SNAPSHOT_SECONDS", 0.5)
    rng, kills, ended = np.random.default_rng(int(os.environ["SHORTLIST_FUZZ"])), [], threading.Event()

    def kill():
        while len(kills) < 20 and not ended.wait(rng.uniform(0.5, 8)):
            if kill_worker(int(rng.integers(3))):
                kills.append(time.monotonic())
        enough.set()

    enough = threading.Event()
    thread = threading.Thread(target=kill)
    thread.start()
    expected = {name: bits(fit(name, crowd(), n_epochs=20)) for name in ("DKBPRMF", "DKHRM")}
    number = 0
    try:
        while not enough.is_set():
            name = ("DKBPRMF", "DKHRM")[number % 2]
            engine = sl.RayEngine(n_workers=1 + number % 3)
            found = model(name, n_epochs=20).fit(crowd(), engine=engine, progress=lambda _: time.sleep(0.2))
            assert bits(found) == expected[name]
            number += 1
    finally:
        ended.set()
        thread.join()
    assert len(kills) == 20
