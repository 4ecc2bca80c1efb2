"""Writers killed at random moments: the old or the new file is there and loads, and nothing is left over.

SHORTLIST_FUZZ=50 kills fifty times as many writers, and lets readers and a writer run fifty times as long.
"""

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

from shortlist.core.codec import load_artifact
from shortlist.core.files import atomic_write, check_writable

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.resources,
    pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL"),
]
TIMES = int(os.environ.get("SHORTLIST_FUZZ", "1"))
SECONDS = min(1.2 * TIMES, 60.0)

# Each writer numbers what it writes and prints a number when it is on disk.
START = """
import json, sys
from itertools import count
from pathlib import Path
import numpy as np
path, numbers = Path(sys.argv[1]), count(int(sys.argv[2]))
"""
SAVE = """
from shortlist.core.codec import Artifact, save_artifact
for number in numbers:
    arrays = {"model.popularity": np.full(1 << 18, number, np.float32)}
    save_artifact(path, Artifact("model", "Toy", {"number": number}, arrays))
    print(number, flush=True)
"""
REPORT = """
from shortlist.core.files import atomic_write
for number in numbers:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps([number] * 100_000), encoding="utf-8")
    print(number, flush=True)
"""
LISTS = """
import shortlist as sl
model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
for number in numbers:
    model.recommend_to_file(path, N=1 + number % 7, filter_seen=False)
    print(number, flush=True)
"""


def check_model(path):
    """The number of a saved model."""
    (number,) = set(load_artifact(path, "model").arrays["model.popularity"].tolist())
    return number


def check_report(path):
    """The number of a report."""
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found == [found[0]] * 100_000
    return found[0]


def check_lists(path):
    """None: lists of one length, for all users."""
    lengths = pl.read_parquet(path).group_by("user_id").len()["len"]
    assert lengths.n_unique() == 1
    assert len(lengths) == 300


WRITERS = {  # script, check, kills with SHORTLIST_FUZZ=50: 200 in total
    "model.shortlist": (SAVE, check_model, 80),
    "report.json": (REPORT, check_report, 100),
    "lists.parquet": (LISTS, check_lists, 20),
}


def start(script, path, number):
    command = [sys.executable, "-c", START + script, str(path), str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", WRITERS)
def test_killed_writer_leaves_the_old_or_the_new_file(name, tmp_path):
    script, check, kills = WRITERS[name]
    path, number, rng = tmp_path / name, 1, random.Random(name)
    for _ in range(max(1, kills * TIMES // 50)):
        with start(script, path, number) as process:
            reported = int(process.stdout.readline())
            time.sleep(rng.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split()
        reported = int(rest[-1]) if rest else reported
        found = check(path)
        assert found in (None, reported, reported + 1)
        number = reported + 2
    check_writable(path)
    assert {one.name for one in tmp_path.iterdir()} <= {name}  # leftovers of the killed are removed


READ = """
import sys, time
from shortlist.core.codec import load_artifact
end, loads, last = time.monotonic() + float(sys.argv[2]), 0, 0
while time.monotonic() < end:
    (number,) = set(load_artifact(sys.argv[1], "model").arrays["model.popularity"].tolist())
    assert number >= last
    loads, last = loads + 1, number
print(loads, int(last))
"""


def test_two_readers_beside_a_writer_see_whole_files_only(tmp_path):
    path = tmp_path / "model.shortlist"
    with start(SAVE, path, 1) as writer:
        assert writer.stdout.readline() == "1\n"
        command = [sys.executable, "-c", READ, str(path), str(SECONDS)]
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        results = [reader.communicate()[0].split() for reader in readers]
        writer.kill()
        last = int(writer.stdout.read().split()[-1])
    assert [reader.returncode for reader in readers] == [0, 0]  # nothing lost, nothing mixed
    for loads, number in results:
        assert int(loads) > 0
        assert int(number) <= last + 1
    sys.stdout.write(f"{last} saves, {[int(loads) for loads, _ in results]} loads\n")  # shown with pytest -s
    with atomic_write(path) as temporary:
        np.ones(3).tofile(temporary)
    assert list(tmp_path.iterdir()) == [path]
