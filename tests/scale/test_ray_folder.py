"""Training from files on a Ray cluster: the same bits as reading them on one machine."""

import sys

import numpy as np
import pytest

import shortlist as sl
from shortlist.data import user_ranges
from tests.models.cases import bits, crowd, model
from tests.models.test_model_folder import write_files
from tests.scale.cluster import kill_before, needs_ray

pytestmark = [
    *needs_ray,
    pytest.mark.skipif(sys.platform == "win32", reason="Ray's test cluster needs POSIX"),
]


@pytest.mark.parametrize(
    ("name", "n_workers", "changed"),
    [("LogMF", 3, {"negatives": "uniform"}), ("DKBPRMF", 2, {"boundary": "learned"})],
)
def test_same_bits_as_one_machine(cluster, name, n_workers, changed, tmp_path, monkeypatch):
    monkeypatch.setattr(user_ranges, "RANGE_ROWS", 3000)
    coming = kill_before(monkeypatch, "save_shard") if name == "DKBPRMF" else []
    write_files(tmp_path / "files", crowd().to_frame())
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
    one, other = shard.recommend(ids, N=5), whole.recommend(ids, N=5)
    assert np.array_equal(one.items, other.items)
    assert np.array_equal(one.scores, other.scores)
