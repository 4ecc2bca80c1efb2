"""What is compiled and kept on disk is forgotten when any kernel's source changes."""

from pathlib import Path

from shortlist.kernels import jit
from shortlist.kernels.head import rows_head
from shortlist.kernels.jit import STAMP, kernel, sources_stamp


def test_the_stamp_hangs_on_every_source(tmp_path):
    (tmp_path / "a.py").write_text("A = 1")
    before = sources_stamp(tmp_path)
    (tmp_path / "b.py").write_text("B = 1")
    assert sources_stamp(tmp_path) != before
    (tmp_path / "b.py").unlink()
    assert sources_stamp(tmp_path) == before


def test_kernels_carry_the_stamp_of_all():
    assert sources_stamp(Path(jit.__file__).parent) == STAMP
    assert rows_head._cache._cache_file._source_stamp[1] == STAMP


def test_with_another_stamp_nothing_kept_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    source = tmp_path / "twice.py"
    source.write_text("def twice(x):\n    return 2 * x\n")
    space = {"__name__": "twice"}
    exec(compile(source.read_text(), str(source), "exec"), space)

    def hits():
        again = kernel(space["twice"])
        assert again(3) == 6
        return sum(again.stats.cache_hits.values())

    assert hits() == 0
    assert hits() == 1
    monkeypatch.setattr(jit, "STAMP", "changed elsewhere")
    assert hits() == 0
    assert hits() == 1
