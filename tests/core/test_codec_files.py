"""A saved file loads exactly as it was saved or is refused with one sentence; it is never half written."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open

from shortlist.core import codec
from shortlist.core.codec import (
    ZEROS,
    Artifact,
    check_model_path,
    load_artifact,
    read_header,
    save_artifact,
)
from shortlist.errors import DataError, ModelFileError

ARTIFACT = Artifact(
    "model",
    "Toy",
    {"lr": 0.1, "name": "ä", "none": None},
    {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "empty": np.empty(0, np.float32),
        "flags": np.array([True, False, True]),
        "scalar": np.array(2.5),
    },
    {
        "users": pl.Series(["x", "ÿ", ""]),
        "items": pl.Series([3, -1], dtype=pl.Int32),
        "names": pl.Series(["a", None, "é"]),
        "none": pl.Series([], dtype=pl.String),
        "codes": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
    },
    {"losses": [0.5, 0.25]},
)


@pytest.fixture
def path(tmp_path):
    return save_artifact(tmp_path / "deep" / "toy.shortlist", ARTIFACT)


def test_artifact_round_trip(path):
    back = load_artifact(path, "model")
    assert (back.kind, back.name, back.params, back.notes) == (
        "model",
        "Toy",
        ARTIFACT.params,
        ARTIFACT.notes,
    )
    assert back.arrays.keys() == ARTIFACT.arrays.keys()
    for name, array in ARTIFACT.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        assert back.arrays[name].shape == array.shape
        assert back.arrays[name].flags.aligned
        np.testing.assert_array_equal(back.arrays[name], array)
    assert back.series.keys() == ARTIFACT.series.keys()
    for name, series in ARTIFACT.series.items():
        assert back.series[name].dtype == series.dtype
        assert back.series[name].to_list() == series.to_list()
    assert list(path.parent.iterdir()) == [path]


def test_file_is_readable_with_safetensors(path):
    with safe_open(path, "np") as file:
        np.testing.assert_array_equal(file.get_tensor("a"), ARTIFACT.arrays["a"])
        assert json.loads(file.metadata()["shortlist"])["params"] == ARTIFACT.params


def test_header_describes_the_file(path):
    header = read_header(path)
    with safe_open(path, "np") as file:
        text, names = file.metadata()["shortlist"], sorted(file.keys())
        digest = hashlib.sha256()
        for name in names:
            array, code = file.get_tensor(name), file.get_slice(name).get_dtype()
            digest.update(f"{name} {code} {list(array.shape)}\n".encode() + array.tobytes())
    assert header["sha256"] == digest.hexdigest()
    blank = text.replace(header["checksum"], ZEROS)
    assert header["checksum"] == hashlib.sha256(blank.encode()).hexdigest()
    assert header["series"]["users"] == "String"
    assert (header["format"], header["version"], header["class"]) == ("shortlist", 3, "Toy")


def test_equal_artifacts_give_equal_bytes(path):
    first = path.read_bytes()
    assert save_artifact(path, ARTIFACT).read_bytes() == first


def test_numpy_numbers_in_params_become_python_numbers(tmp_path):
    params = {"lr": np.float32(0.5), "n": np.int64(3), "on": np.bool_(True)}
    back = load_artifact(save_artifact(tmp_path / "m", Artifact("model", "Toy", params, {})), "model")
    assert back.params == {"lr": 0.5, "n": 3, "on": True}
    assert [type(value) for value in back.params.values()] == [float, int, bool]


def test_views_are_saved_as_they_appear(tmp_path):
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = {"transposed": wide.T, "columns": wide[:, 1:3], "big_endian": wide.astype(">f4")}
    back = load_artifact(save_artifact(tmp_path / "m", Artifact("model", "Toy", {}, arrays)), "model")
    for name, array in arrays.items():
        np.testing.assert_array_equal(back.arrays[name], array)


@pytest.mark.parametrize(
    ("arrays", "series"),
    [
        ({"a": np.array([object()])}, {}),
        ({"a/b": np.ones(2)}, {}),
        ({}, {"when": pl.Series([1.5])}),
        ({}, {"../users": pl.Series(["u"])}),
    ],
)
def test_unsupported_values_are_not_saved(tmp_path, arrays, series):
    with pytest.raises(DataError, match="saved"):
        save_artifact(tmp_path / "m", Artifact("model", "Toy", {}, arrays, series))
    assert list(tmp_path.iterdir()) == []


def pack(header, payload):
    """The bytes of a file with this header and a matching checksum."""
    text = header["__metadata__"].get("shortlist")
    if isinstance(text, str) and ZEROS in text:
        header["__metadata__"]["shortlist"] = text.replace(
            ZEROS, hashlib.sha256(text.encode()).hexdigest(), 1
        )
    raw = json.dumps(header, separators=(",", ":")).encode()
    return len(raw).to_bytes(8, "little") + raw + payload


def parts(path):
    """(header with a blank checksum, payload) of a file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    found = json.loads(header["__metadata__"]["shortlist"]) | {"checksum": ZEROS}
    header["__metadata__"]["shortlist"] = json.dumps(found)
    return header, raw[8 + length :]


def edit_metadata(**changes):
    def edit(header, payload):
        header["__metadata__"] |= changes
        return header, payload

    return edit


def edit_description(**changes):
    def edit(header, payload):
        found = json.loads(header["__metadata__"]["shortlist"]) | changes
        header["__metadata__"]["shortlist"] = json.dumps(found)
        return header, payload

    return edit


def edit_array(name, **changes):
    def edit(header, payload):
        header[name] |= changes
        return header, payload

    return edit


def rewrite_payload(name, change):
    """Change the numbers of one array and update both checksums."""

    def edit(header, payload):
        arrays = {}
        body = bytearray(payload)
        for key, entry in header.items():
            if key != "__metadata__":
                start, end = entry["data_offsets"]
                array = np.frombuffer(payload[start:end], codec.DTYPES[entry["dtype"]]).copy()
                arrays[key] = array.reshape(entry["shape"])
                if key == name:
                    change(array)
                    body[start:end] = array.tobytes()
        return edit_description(sha256=codec.hash_arrays(arrays))(header, bytes(body))

    return edit


def rename(old, new):
    def edit(header, payload):
        return {new if name == old else name: entry for name, entry in header.items()}, payload

    return edit


def deep(levels):
    return json.loads("[" * levels + "]" * levels)


NOT_WHOLE = "truncated, or its header was edited"
CRAFTED = {
    "later version": (edit_description(version=99), "format version is '99', this release reads 3"),
    "version a text": (edit_description(version="3"), "format version is '3', this release reads 3"),
    "version a float": (edit_description(version=3.0), "unknown, missing or invalid"),
    "unknown metadata": (edit_metadata(extra="1"), "metadata has other entries"),
    "metadata not text": (edit_metadata(extra=1), NOT_WHOLE),
    "description not JSON": (edit_metadata(shortlist="{"), "not a plain JSON object"),
    "description a list": (edit_metadata(shortlist="[]"), "not a plain JSON object"),
    "description deep": (edit_metadata(shortlist="[" * 9000 + "]" * 9000), "not a plain JSON object"),
    "notes deep": (edit_description(notes={"a": deep(20)}), "not a plain JSON object"),
    "infinite number": (edit_metadata(shortlist='{"a": 1e999}'), "not a plain JSON object"),
    "NaN": (edit_metadata(shortlist='{"a": NaN}'), "not a plain JSON object"),
    "duplicate key": (edit_metadata(shortlist='{"a": 1, "a": 2}'), "not a plain JSON object"),
    "unknown entry": (edit_description(extra=1), "unknown, missing or invalid"),
    "params a list": (edit_description(params=[]), "unknown, missing or invalid"),
    "class a path": (edit_description(**{"class": "../Toy"}), "name '../Toy' is not allowed"),
    "array a path": (rename("a", "../a"), "name '../a' is not allowed"),
    "series a path": (edit_description(series={"a/b": "String"}), "name 'a/b' is not allowed"),
    "series without arrays": (edit_description(series={"ghosts": "String"}), "series 'ghosts' is invalid"),
    "series of another type": (edit_description(series={"items": "Int64"}), "series 'items' is invalid"),
    "series type a list": (edit_description(series={"items": ["Int64"]}), "series 'items' is invalid"),
    "unknown dtype": (edit_array("a", dtype="OBJECT"), NOT_WHOLE),
    "dtype that NumPy lacks": (edit_array("a", dtype="BF16", shape=[3, 4]), "entry of array 'a' is invalid"),
    "wrong shape": (edit_array("a", shape=[3, 3]), NOT_WHOLE),
    "negative shape": (edit_array("a", shape=[-2, -3]), NOT_WHOLE),
    "boolean shape": (edit_array("a", shape=[True, 6]), NOT_WHOLE),
    "overflowing shape": (edit_array("a", shape=[1 << 62, 1 << 62]), NOT_WHOLE),
    "empty but endless": (edit_array("empty", shape=[0, 1 << 62]), "entry of array 'empty' is invalid"),
    "many dimensions": (edit_array("a", shape=[1] * 9 + [6]), "entry of array 'a' is invalid"),
    "offsets apart": (edit_array("a", data_offsets=[1 << 40, (1 << 40) + 24]), NOT_WHOLE),
    "offsets of another array": (edit_array("a", data_offsets=[0, 24]), NOT_WHOLE),
    "other shape of the same size": (edit_array("a", shape=[3, 2]), "checksum differs"),
    "other type of the same size": (edit_array("a", dtype="I32"), "checksum differs"),
    "offsets descend": (
        rewrite_payload("series.users.offsets", lambda a: a.put(1, 99)),
        "'users' is invalid",
    ),
    "offsets start late": (
        rewrite_payload("series.users.offsets", lambda a: a.put(0, 1)),
        "'users' is invalid",
    ),
    "not UTF-8": (rewrite_payload("series.users.bytes", lambda a: a.fill(255)), "series 'users' is invalid"),
    "payload cut": (lambda header, payload: (header, payload[:-5]), "truncated"),
    "payload longer": (lambda header, payload: (header, payload + b"x"), NOT_WHOLE),
    "other payload": (lambda h, payload: (h, payload[:-1] + bytes([payload[-1] ^ 1])), "checksum differs"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_file_is_refused(path, case):
    edit, sentence = CRAFTED[case]
    path.write_bytes(pack(*edit(*parts(path))))
    with pytest.raises(ModelFileError, match="cannot load") as caught:
        load_artifact(path, "model")
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_unchanged_parts_pack_to_the_same_file(path):
    before = path.read_bytes()
    header, payload = parts(path)
    path.write_bytes(pack(header, payload))
    load_artifact(path, "model")
    assert 0 <= len(before) - len(path.read_bytes()) < 8  # the padding


RAW = {
    "empty": b"",
    "seven bytes": b"1234567",
    "text": b"user_id,item_id\n1,2\n",
    "huge header": (1 << 62).to_bytes(8, "little") + b"{}",
    "another safetensors file": (2).to_bytes(8, "little") + b"{}",
    "huge header of ours": (1 << 62).to_bytes(8, "little") + codec.START,
}


@pytest.mark.parametrize("case", RAW)
def test_other_file_is_refused(tmp_path, case):
    path = tmp_path / "m"
    path.write_bytes(RAW[case])
    with pytest.raises(ModelFileError, match="it is not a saved model, or it is truncated"):
        load_artifact(path, "model")
    if codec.START in RAW[case]:
        return
    with pytest.raises(DataError, match="exists and is not a saved model; choose another path"):
        save_artifact(path, ARTIFACT)
    assert path.read_bytes() == RAW[case]


def test_file_of_an_earlier_format_is_refused_and_may_be_replaced(tmp_path):
    path = tmp_path / "m"
    header = b'{"__metadata__":{"format":"shortlist","version":"2"}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelFileError, match=r"it is a file of shortlist 0\.3; fit again with 0\.4"):
        load_artifact(path, "model")
    save_artifact(path, ARTIFACT)
    assert load_artifact(path, "model").params == ARTIFACT.params


def test_missing_path_folder_and_device_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"no saved model at .*; check the path"):
        load_artifact(tmp_path / "m", "model")
    with pytest.raises(ModelFileError, match="is a folder"):
        load_artifact(tmp_path, "model")
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError, match="not a file"):
            load_artifact(tmp_path / "pipe", "model")


def test_every_flipped_byte_is_detected(path):
    body = path.read_bytes()
    for at in range(len(body)):
        path.write_bytes(bytes([*body[:at], body[at] ^ 0x20, *body[at + 1 :]]))
        with pytest.raises(ModelFileError):
            load_artifact(path, "model")


def test_every_truncation_is_detected(path):
    body = path.read_bytes()
    for size in range(0, len(body), 7):
        path.write_bytes(body[:size])
        with pytest.raises(ModelFileError):
            load_artifact(path, "model")


def test_kind_must_match(path):
    with pytest.raises(ModelFileError, match="holds a model, not a cutoff"):
        load_artifact(path, "cutoff")


def test_saving_again_replaces_everything(path):
    save_artifact(path, Artifact("model", "Toy", {"lr": 0.3}, {"b": np.ones(2, np.float32)}))
    back = load_artifact(path, "model")
    assert back.params == {"lr": 0.3}
    assert list(back.arrays) == ["b"]
    assert not back.series
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("place", ["json.dumps", "save", "os.fsync"])
def test_failure_while_saving_keeps_the_old_model(path, monkeypatch, place, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(f"shortlist.core.codec.{place}", fail)
    expected = error if isinstance(error, type) else (OSError, DataError)
    with pytest.raises(expected):
        save_artifact(path, Artifact("model", "Toy", {}, {"b": np.ones(2, np.float32)}))
    monkeypatch.undo()
    assert load_artifact(path, "model").params == ARTIFACT.params
    assert list(path.parent.iterdir()) == [path]


FULL = """
import resource, sys
import numpy as np
from shortlist.core.codec import Artifact, save_artifact
from shortlist.errors import DataError

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # like a full disk
try:
    save_artifact(sys.argv[1], Artifact("model", "Toy", {}, {"a": np.ones(1 << 16, np.float32)}))
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs file size limits")
def test_full_disk_is_reported_and_keeps_the_old_model(path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"cannot write {path}: ")
    assert done.stdout.endswith("; free some space or choose another path.\n")
    assert load_artifact(path, "model").params == ARTIFACT.params
    assert list(path.parent.iterdir()) == [path]


SAVE_FOREVER = """
import sys
import numpy as np
from shortlist.core.codec import Artifact, save_artifact

number = int(sys.argv[2])
while True:
    number += 1
    arrays = {"a": np.full(1 << 18, number, np.int32), "b": np.full(1 << 18, number, np.int32)}
    save_artifact(sys.argv[1], Artifact("model", "Toy", {"number": number}, arrays))
    print(number, flush=True)
"""


def saver(path, number):
    return subprocess.Popen(
        [sys.executable, "-c", SAVE_FOREVER, str(path), str(number)], stdout=subprocess.PIPE, text=True
    )


def check_whole(path):
    """The number of the save at `path`, after a check that all parts belong to it."""
    back = load_artifact(path, "model")
    number = back.params["number"]
    assert (back.arrays["a"] == number).all()
    assert (back.arrays["b"] == number).all()
    return number


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_saver_leaves_the_old_or_the_new_file(tmp_path):
    path = tmp_path / "toy.shortlist"
    number, rng = 0, random.Random(7)
    for _ in range(8):  # `make fuzz` kills more savers, in test_kills.py
        with saver(path, number) as process:
            reported = int(process.stdout.readline())
            time.sleep(rng.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split()
        reported = int(rest[-1]) if rest else reported
        number = check_whole(path)
        assert number in (reported, reported + 1)
    with saver(path, number) as process:
        process.stdout.readline()
        process.kill()
        process.communicate()
    assert check_whole(path) > number
    save_artifact(path, Artifact("model", "Toy", {}, {}))
    assert list(tmp_path.iterdir()) == [path]  # what the killed processes left is removed


@pytest.mark.skipif(sys.platform != "linux", reason="needs a path where nothing can be written")
def test_unwritable_path_is_reported():
    for write in (check_model_path, lambda path: save_artifact(path, ARTIFACT)):
        with pytest.raises(DataError, match=r"cannot write /proc/nothing/model: .*; choose another path"):
            write(codec.Path("/proc/nothing/model"))


def test_folder_is_not_replaced(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "monday.txt").write_text("mine")
    for write in (check_model_path, lambda path: save_artifact(path, ARTIFACT)):
        with pytest.raises(DataError, match="exists and is not a saved model; choose another path"):
            write(tmp_path / "notes")
    assert (tmp_path / "notes" / "monday.txt").read_text() == "mine"


def test_check_model_path_accepts_new_and_own_paths(path):
    check_model_path(path)
    check_model_path(path.parent / "new")
    assert list(path.parent.iterdir()) == [path]
