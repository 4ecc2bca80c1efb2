"""atomic_write: the target is the old file or the new file, never a part of either."""

import os
import subprocess
import sys

import pytest

from shortlist.core.files import atomic_write, check_writable
from shortlist.errors import DataError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_complete_and_folders_are_created(tmp_path):
    target = tmp_path / "deep" / "er" / "report.json"
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert temporary.parent == target.parent
        assert not target.exists()
    assert target.read_text() == "new"
    assert names(target.parent) == ["report.json"]


def test_file_is_replaced_only_at_the_end(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("old")
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError("power cut"), KeyboardInterrupt("power cut")])
def test_failure_keeps_the_old_file_and_removes_the_temporary_one(tmp_path, error):
    target = tmp_path / "report.json"
    target.write_text("old")

    def fail():
        with atomic_write(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error), match="power cut"):
        fail()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["report.json"]


def test_folder_is_not_replaced_by_a_file(tmp_path):
    (tmp_path / "model").mkdir()

    def write():
        with atomic_write(tmp_path / "model") as temporary:
            temporary.touch()

    with pytest.raises(DataError, match=r"cannot write .*model: Is a directory"):
        write()
    assert names(tmp_path) == ["model"]


def test_block_that_writes_nothing_is_an_error(tmp_path):
    def idle():
        with atomic_write(tmp_path / "report.json"):
            pass

    with pytest.raises(DataError, match=r"cannot write .*report\.json"):
        idle()
    assert names(tmp_path) == []


@pytest.mark.parametrize("check", [check_writable, lambda path: atomic_write(path).__enter__()])
def test_parent_that_is_a_file_is_an_error(tmp_path, check):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="choose another path"):
        check(tmp_path / "file" / "report.json")


@pytest.mark.skipif(sys.platform == "win32", reason="needs /dev/null")
@pytest.mark.parametrize("check", [check_writable, lambda path: atomic_write(path).__enter__()])
def test_device_is_not_replaced(tmp_path, check):
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    with pytest.raises(DataError, match="it is not a regular file"):
        check(link)


def test_check_writable_leaves_no_file(tmp_path):
    check_writable(tmp_path / "new" / "report.json")
    assert names(tmp_path / "new") == []
    with pytest.raises(DataError, match="it is a folder"):
        check_writable(tmp_path / "new")


CRASH = """
import os, sys
from pathlib import Path
from shortlist.core.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os._exit(9)
"""


WRITE_SLOWLY = """
import sys
from pathlib import Path
from shortlist.core.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("from another process")
    print(temporary.name, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
def test_next_write_removes_leftovers_of_dead_processes_only(tmp_path):
    target = tmp_path / "report.json"
    subprocess.run([sys.executable, "-c", CRASH, str(target)], timeout=60, check=False)
    (leftover,) = names(tmp_path)
    reused = leftover.replace(f"-{leftover.split('-')[1]}-", f"-{os.getppid()}-")  # a running process
    own = leftover.replace(f"-{leftover.split('-')[1]}-", f"-{os.getpid()}-")
    foreign = [".report.json.tmp", ".report.json.other-1-aa.tmp", ".other.json" + leftover[12:]]
    for name in (*foreign, reused, own):
        (tmp_path / name).touch()
    with atomic_write(target) as temporary:
        check_writable(target)  # does not remove what this process is writing
        temporary.write_text("new")
        assert sorted([*foreign, temporary.name]) == names(tmp_path)
    assert names(tmp_path) == sorted([*foreign, "report.json"])


@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
def test_file_of_a_running_writer_is_not_removed(tmp_path):
    target = tmp_path / "report.json"
    command = [sys.executable, "-c", WRITE_SLOWLY, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        being_written = other.stdout.readline().strip()
        with atomic_write(target) as temporary:
            temporary.write_text("from this process")
        assert names(tmp_path) == sorted([being_written, "report.json"])
        other.communicate("")
    assert other.returncode == 0
    assert target.read_text() == "from another process"
    assert names(tmp_path) == ["report.json"]


def test_empty_file_can_be_written(tmp_path):
    with atomic_write(tmp_path / "lists.jsonl") as temporary:
        temporary.open("wb").close()
    assert (tmp_path / "lists.jsonl").read_bytes() == b""


def test_file_has_the_usual_permissions(tmp_path):
    with atomic_write(tmp_path / "new") as temporary:
        temporary.write_text("new")
    (tmp_path / "plain").write_text("plain")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
