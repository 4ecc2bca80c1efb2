"""write_beside: the target is the old one or the new one, never a part of either."""

import pytest

from shortlist.core.files import write_beside
from shortlist.errors import DataError


def left_behind(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_and_folders_are_made(tmp_path):
    target = tmp_path / "deep" / "er" / "report.json"
    with write_beside(target) as made:
        made.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert left_behind(target.parent) == ["report.json"]


def test_a_file_is_replaced_only_at_the_end(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("old")
    with write_beside(target) as made:
        made.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_a_failure_leaves_the_old_one_and_nothing_else(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("old")

    def fail():
        with write_beside(target) as made:
            made.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert target.read_text() == "old"
    assert left_behind(tmp_path) == ["report.json"]


def test_a_folder_replaces_a_folder_and_its_contents(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "stale").touch()
    with write_beside(target) as made:
        made.mkdir()
        (made / "fresh").touch()
    assert left_behind(target) == ["fresh"]
    assert left_behind(tmp_path) == ["model"]


def test_a_folder_that_cannot_be_moved_in_leaves_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "model"
    target.mkdir()
    (target / "stale").touch()
    rename = type(target).rename

    def refuse(path, to):
        if to == target and path.name == "model":
            raise PermissionError(13, "Permission denied")
        return rename(path, to)

    monkeypatch.setattr(type(target), "rename", refuse)

    def write():
        with write_beside(target) as made:
            made.mkdir()

    with pytest.raises(DataError, match="Permission denied"):
        write()
    assert left_behind(target) == ["stale"]


def test_a_block_that_writes_nothing_is_told(tmp_path):
    def idle():
        with write_beside(tmp_path / "report.json"):
            pass

    with pytest.raises(DataError, match=r"cannot write .*report\.json"):
        idle()
    assert left_behind(tmp_path) == []


def test_a_place_that_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").touch()

    def write():
        with write_beside(tmp_path / "file" / "report.json"):
            pytest.fail("there is no place to write to")

    with pytest.raises(DataError, match="choose a place"):
        write()
