"""A saved folder: it comes back as it went, or it is refused with a sentence; it is never half there."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shortlist.core import serialization as store
from shortlist.core.serialization import ARRAYS, HEADER, Artifact, load_artifact, read_header, save_artifact
from shortlist.errors import DataError, ModelFileError

PARTS = Artifact(
    "model",
    "Toy",
    {"lr": 0.1, "name": "ä", "none": None},
    {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "empty": np.empty(0, np.float32)},
    {"users": pl.DataFrame({"user_id": ["x", "ÿ"]})},
    {"losses": [0.5, 0.25]},
)


@pytest.fixture
def place(tmp_path):
    return save_artifact(tmp_path / "deep" / "model", PARTS)


def test_what_is_saved_comes_back(place):
    back = load_artifact(place, "model")
    assert (back.kind, back.name, back.params, back.notes) == ("model", "Toy", PARTS.params, PARTS.notes)
    assert back.arrays.keys() == PARTS.arrays.keys()
    for name, array in PARTS.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array)
    assert back.tables["users"].equals(PARTS.tables["users"])
    assert sorted(file.name for file in place.iterdir()) == [ARRAYS, HEADER, "users.parquet"]
    assert list(place.parent.iterdir()) == [place]


def test_numpy_numbers_among_the_parameters_become_plain(tmp_path):
    parts = Artifact(
        "model", "Toy", {"lr": np.float32(0.5), "n": np.int64(3), "on": np.bool_(True)}, PARTS.arrays
    )
    back = load_artifact(save_artifact(tmp_path / "m", parts), "model")
    assert back.params == {"lr": 0.5, "n": 3, "on": True}
    assert [type(value) for value in back.params.values()] == [float, int, bool]


def test_a_view_is_saved_as_what_it_shows(tmp_path):
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    parts = Artifact("model", "Toy", {}, {"turned": wide.T, "cut": wide[:, 1:3]})
    back = load_artifact(save_artifact(tmp_path / "m", parts), "model")
    np.testing.assert_array_equal(back.arrays["turned"], wide.T)
    np.testing.assert_array_equal(back.arrays["cut"], wide[:, 1:3])


# ------------------------------------------------------------------ refusals
def truncated(place):
    file = place / ARRAYS
    file.write_bytes(file.read_bytes()[:-5])


def edited(place):
    file = place / ARRAYS
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(bytes(body))


def change_header(place, **changed):
    header = json.loads((place / HEADER).read_text())
    (place / HEADER).write_text(json.dumps(header | changed))


DAMAGES = {
    "truncated arrays": (truncated, "is damaged or was edited"),
    "edited arrays": (edited, "is damaged or was edited"),
    "missing arrays": (lambda p: (p / ARRAYS).unlink(), "is incomplete: arrays.safetensors is missing"),
    "missing table": (lambda p: (p / "users.parquet").unlink(), "is incomplete: users.parquet is missing"),
    "edited table": (
        lambda p: pl.DataFrame({"user_id": ["x", "z"]}).write_parquet(p / "users.parquet"),
        "users.parquet is damaged or was edited",
    ),
    "missing header": (lambda p: (p / HEADER).unlink(), "model.json is missing"),
    "truncated header": (
        lambda p: (p / HEADER).write_text((p / HEADER).read_text()[:40]),
        "cannot be read",
    ),
    "header of bytes": (lambda p: (p / HEADER).write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "edited parameters": (lambda p: change_header(p, params={"lr": 0.2}), "changed after it was written"),
    "later version": (
        lambda p: change_header(p, version=99),
        "is of format version 99, this release reads 1",
    ),
    "no version": (lambda p: change_header(p, version=None), "is of format version None"),
    "something else": (lambda p: change_header(p, format="other"), "does not describe a saved model"),
    "a list": (lambda p: (p / HEADER).write_text("[]"), "does not describe a saved model"),
    "nothing there": (shutil.rmtree, "no saved model at"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_refused(place, damage):
    harm, sentence = DAMAGES[damage]
    harm(place)
    with pytest.raises(ModelFileError, match=sentence):
        load_artifact(place, "model")


def test_every_flipped_byte_is_noticed(place):
    for file in place.iterdir():
        body = file.read_bytes()
        for at in range(0, len(body), max(1, len(body) // 40)):
            changed = bytes([*body[:at], body[at] ^ 0x20, *body[at + 1 :]])
            file.write_bytes(changed)
            try:
                back = load_artifact(place, "model")
            except ModelFileError:
                continue
            # only white space of the header may differ unseen: nothing that is read
            assert file.name == HEADER
            assert back.params == PARTS.params
        file.write_bytes(body)
    load_artifact(place, "model")


def test_the_kind_is_asked_for(place):
    with pytest.raises(ModelFileError, match="holds a model, not a cutoff"):
        load_artifact(place, "cutoff")
    assert read_header(place)["class"] == "Toy"


# ------------------------------------------------------------------ never half there
def test_saving_again_replaces_all(place):
    other = Artifact("model", "Toy", {"lr": 0.3}, {"b": np.ones(2, np.float32)})
    save_artifact(place, other)
    back = load_artifact(place, "model")
    assert back.params == {"lr": 0.3}
    assert list(back.arrays) == ["b"]
    assert not (place / "users.parquet").exists()
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("moment", ["save_file", "_hash_file", "json"])
def test_a_failure_while_saving_leaves_the_old_model(place, monkeypatch, moment, error):
    def fail(*_, **__):
        raise error

    target = "json.dumps" if moment == "json" else moment
    monkeypatch.setattr(f"shortlist.core.serialization.{target}", fail)
    wanted = DataError if isinstance(error, OSError) else error
    with pytest.raises(wanted):
        save_artifact(place, Artifact("model", "Toy", {}, {"b": np.ones(2, np.float32)}))
    monkeypatch.undo()
    assert load_artifact(place, "model").params == PARTS.params
    assert list(place.parent.iterdir()) == [place]


def test_a_failure_at_the_first_save_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise store.SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        )

    monkeypatch.setattr(store, "save_file", fail)
    with pytest.raises(DataError, match=r"cannot write .*No space left"):
        save_artifact(tmp_path / "model", PARTS)
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys
import numpy as np
from shortlist.core.serialization import Artifact, save_artifact
from shortlist.errors import DataError

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # as a disk with no more room
try:
    save_artifact(sys.argv[1], Artifact("model", "Toy", {}, {"a": np.ones(1 << 16, np.float32)}))
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on what a process may write")
def test_a_full_disk_is_told_and_leaves_the_old_model(place):
    found = subprocess.run(
        [sys.executable, "-c", FULL, str(place)], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.startswith(f"cannot write {place}: ")
    assert found.stdout.endswith("; free some space or choose another place.\n")
    assert load_artifact(place, "model").params == PARTS.params
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a place where nobody may write")
def test_a_place_that_cannot_be_written_is_told():
    with pytest.raises(DataError, match=r"cannot write /proc/nothing/model: .*; choose a place"):
        save_artifact("/proc/nothing/model", PARTS)


def test_what_others_wrote_is_not_replaced(tmp_path):
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "monday.txt").write_text("mine")
    (tmp_path / "note").write_text("mine")
    for name in ("diary", "note"):
        with pytest.raises(DataError, match="exists and is not a saved model; choose a path that is free"):
            save_artifact(tmp_path / name, PARTS)
    assert (tmp_path / "diary" / "monday.txt").read_text() == "mine"
    assert (tmp_path / "note").read_text() == "mine"
