"""Training from files on a Ray cluster: the same bits as reading them on one machine."""

import sys

import numpy as np
import pytest

import shortlist as sl
from shortlist.data import ranges as user_ranges
from tests.models.cases import bits, crowd, model
from tests.models.factorization.test_training import Recorder
from tests.models.test_folders_models import write_files
from tests.scale.cluster import kill_before, needs_ray, run_killed

TERMS = {"repeat_decay": 0.9, "trend_half_life": 2.0}
pytestmark = [
    *needs_ray,
    pytest.mark.skipif(sys.platform == "win32", reason="Ray's test cluster needs POSIX"),
]


@pytest.mark.parametrize(
    ("name", "n_workers", "changed"),
    [
        ("LogMF", 2, {"negatives": "uniform"}),
        ("DKBPRMF", 2, {"negative_draws": 2}),
        ("HRM", 2, {"pool_items": "max", "window": 2} | TERMS),
        ("DKHRM", 2, {"negatives": "uniform"} | TERMS),
        ("BPRMF", 2, {"weighting": "linear"}),
        ("DKHRM", 2, {"negatives": "uniform", "weighting": "log"} | TERMS),
    ],
)
def test_same_bits_as_one_machine(cluster, name, n_workers, changed, tmp_path, monkeypatch):
    monkeypatch.setattr(user_ranges, "RANGE_ROWS", 3000)
    coming = kill_before(monkeypatch, "save_shard") if name == "DKBPRMF" else []
    frame = crowd().to_frame()
    if "weighting" in changed:
        frame = frame.with_columns(weight=np.random.default_rng(8).integers(1, 9, len(frame)) / 2)
    write_files(tmp_path / "files", frame)
    whole = model(name, n_epochs=6, **changed).fit(sl.read_interactions(tmp_path / "files"))
    engine, calls = sl.RayEngine(n_workers=n_workers), []
    folder = sl.fit_to_folder(
        model(name, n_epochs=6, **changed),
        tmp_path / "files",
        tmp_path / "model",
        engine=engine,
        progress=calls.append,
    )
    assert coming == []
    assert [call.epoch for call in calls] == list(range(1, 7))
    paths = sorted(folder.iterdir())
    assert [path.suffix for path in paths] == [".shortlist"] * n_workers
    joined = sl.load_model(folder)
    assert bits(joined) == bits(whole)
    assert joined.losses_ == whole.losses_
    assert joined.history_.fingerprint == whole.history_.fingerprint
    assert joined.fingerprint_ == whole.fingerprint_
    shard = sl.load_model(paths[1])
    assert 0 < len(shard.users_) < len(whole.users_)
    ids = shard.users_.values
    for options in ({"N": 5}, {"max_items": 9, "fallback": "popular"} if shard.has_boundary else {"N": 3}):
        one, other = shard.recommend(ids, **options), whole.recommend(ids, **options)
        assert np.array_equal(one.indptr, other.indptr)
        assert np.array_equal(one.items, other.items)
        assert np.array_equal(one.scores, other.scores)
    again = sl.load_model(shard.save(tmp_path / "again.shortlist"))
    assert np.array_equal(again.recommend(ids, N=5).scores, shard.recommend(ids, N=5).scores)
    assert again.history_.fingerprint == shard.history_.fingerprint


KILLED_DRIVER = """
    import os, signal
    import shortlist as sl
    from shortlist.models.factorization import training
    from tests.models.cases import model

    training.CHECKPOINT_SECONDS = -1

    def progress(call):
        if call.epoch == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = sl.RayEngine({address!r}, n_workers=2)
    sl.fit_to_folder(
        model("DKHRM", n_epochs=9, patience=2, lr=0.3),
        {place!r} + "/files",
        {place!r} + "/model",
        valid="last_basket",
        checkpoint={place!r} + "/run",
        engine=engine,
        progress=progress,
    )
"""


def test_validation_and_checkpoint_of_a_killed_driver(cluster, tmp_path, monkeypatch):
    """Training stops early, and continues on another number of workers, with the bits of one machine."""
    write_files(tmp_path / "files", crowd().to_frame())
    run_killed(KILLED_DRIVER.format(address=cluster.address, place=str(tmp_path)))
    assert (tmp_path / "model" / "_rows").exists()
    split, recorder = sl.split.last_basket(sl.read_interactions(tmp_path / "files")), Recorder()
    one = model("DKHRM", n_epochs=9, patience=2, lr=0.3)
    folder = sl.fit_to_folder(
        one,
        tmp_path / "files",
        tmp_path / "model",
        valid="last_basket",
        checkpoint=tmp_path / "run",
        engine=sl.RayEngine(n_workers=1),
        progress=recorder,
    )
    expected = one.clone().fit(split.train_valid, valid=split.test)
    assert recorder.calls[0].epoch == 3  # the checkpoint was written after epoch 2
    found = sl.load_model(folder)
    assert expected.n_epochs_ < len(expected.losses_) < 9
    assert bits(found) == bits(expected)
    assert found.valid_scores_ == expected.valid_scores_
    assert (found.n_epochs_, found.stopped_) == (expected.n_epochs_, expected.stopped_)
    assert found.fingerprint_ == expected.fingerprint_
