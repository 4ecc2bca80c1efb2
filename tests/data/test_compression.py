"""Compressed files: bounded in size, recognized by their first bytes."""

import gzip
import io
import subprocess
import sys
import zlib
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.data import files as compression
from shortlist.data.files import read_interactions
from shortlist.errors import DataError

TABLE = b"user_id,item_id\na,x\nb,y\n"
ZSTD = bytes.fromhex("28b52ffd")


def gzip_bomb(size):
    """Members that each expand to 16 MB."""
    return gzip.compress(b"user_id,item_id\n") + gzip.compress(b"\0" * (16 << 20)) * (size >> 24)


def zstd_frame(blocks):
    """A frame with a window of 1 MB from (kind, size, content) blocks."""
    parts = [ZSTD, b"\x00\x50"]
    for number, (kind, size, content) in enumerate(blocks):
        last = number == len(blocks) - 1
        parts.append((size << 3 | kind << 1 | last).to_bytes(3, "little") + content)
    return b"".join(parts)


def zstd_bomb(size):
    return zstd_frame([(1, 128 << 10, b"\0")] * (size >> 17))


BOMBS = {"gz": gzip_bomb, "zst": zstd_bomb}
CODE = """
import re, sys
import shortlist as sl
try:
    sl.read_interactions(sys.argv[1])
except sl.errors.DataError as error:
    print(error)
with open("/proc/self/status") as status:  # ru_maxrss would count the process that started this one
    print(int(re.search(r"VmHWM:\\s*(\\d+)", status.read())[1]) >> 10)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("name", ["bomb.csv.{}", "bomb.jsonl.{}", "bomb.parquet.{}", "bomb.csv"])
def test_bombs_are_refused_before_they_fill_the_memory(tmp_path, kind, name):
    path = tmp_path / name.format(kind)
    path.write_bytes(BOMBS[kind](3 << 30))
    done = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, text=True, timeout=100)
    if kind == "zst":
        pytest.importorskip("pyarrow", reason="needs something that reads zstd")
    message, megabytes = done.stdout.splitlines()
    assert "must not expand to more than 100 times its size" in message
    assert "decompress it and read the result" in message
    assert int(megabytes) < 1200


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_among_lists_are_refused(tmp_path, kind):
    path = tmp_path / "lists.csv"
    path.write_bytes(BOMBS[kind](1 << 30))
    with pytest.raises(DataError, match="must not expand"):
        sl.RankedLists.read(path)


def test_the_absolute_limit(tmp_path, monkeypatch):
    path = tmp_path / "e.csv.gz"
    path.write_bytes(gzip.compress(TABLE))
    assert read_interactions(path).n_rows == 2
    monkeypatch.setattr(compression, "MAX_BYTES", len(TABLE) - 1)
    with pytest.raises(DataError, match="must not expand to more than"):
        read_interactions(path)


def test_the_content_decides_not_the_name(tmp_path):
    (tmp_path / "e.csv").write_bytes(gzip.compress(TABLE))
    (tmp_path / "e.csv.gz").write_bytes(TABLE)
    assert read_interactions(tmp_path / "e.csv").n_rows == 2
    assert read_interactions(tmp_path / "e.csv.gz").n_rows == 2


def test_double_compression_and_zlib_are_refused(tmp_path):
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(gzip.compress(TABLE)))
    (tmp_path / "z.csv").write_bytes(zlib.compress(TABLE))
    with pytest.raises(DataError, match="compressed twice"):
        read_interactions(tmp_path / "e.csv.gz")
    with pytest.raises(DataError, match="zlib-compressed files are not supported"):
        read_interactions(tmp_path / "z.csv")


def test_many_small_blocks_are_no_bomb(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="needs something that reads zstd")
    monkeypatch.setattr(compression, "ALWAYS_ALLOWED", 1 << 20)
    pa = pytest.importorskip("pyarrow")
    body = io.BytesIO()
    for line in TABLE.splitlines(keepends=True) + [b"c,%d\n" % number for number in range(20)]:
        body.write(pa.compress(line, codec="zstd", asbytes=True))
    path = tmp_path / "e.csv.zst"
    path.write_bytes(body.getvalue())
    assert read_interactions(path).n_rows == 22


def test_deeply_nested_json(tmp_path):
    path = tmp_path / "deep.jsonl"
    for depth in (3_000, 100_000):
        path.write_text('{"user_id": "a", "item_id": ' + "[" * depth + "]" * depth + "}\n")
        with pytest.raises(DataError, match="must be lines of JSON objects"):
            read_interactions(path)
        with pytest.raises(
            DataError, match=r"not a readable|an id must be a string"
        ):  # Python 3.13 parses it
            sl.RankedLists.read(path)


def test_plain_files_are_not_read_twice(tmp_path):
    pl.DataFrame({"user_id": ["a", "b"], "item_id": [1, 2]}).write_csv(tmp_path / "e.csv")
    paths = [tmp_path / "e.csv"]
    assert compression.plain_sources(paths) is paths
