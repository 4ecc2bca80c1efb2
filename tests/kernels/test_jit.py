"""The cache of compiled kernels depends on the source of every kernel; compilation is announced."""

from pathlib import Path

from shortlist.kernels import jit
from shortlist.kernels.jit import STAMP, announce_compilation, exact, kernel, sources_stamp
from shortlist.kernels.topk import select_top


def test_stamp_depends_on_every_source(tmp_path):
    (tmp_path / "a.py").write_text("A = 1")
    before = sources_stamp(tmp_path)
    (tmp_path / "b.py").write_text("B = 1")
    assert sources_stamp(tmp_path) != before
    (tmp_path / "b.py").unlink()
    assert sources_stamp(tmp_path) == before


def test_kernels_carry_the_stamp():
    assert sources_stamp(Path(jit.__file__).parent) == STAMP
    assert select_top._cache._cache_file._source_stamp[1] == STAMP


def test_changed_stamp_invalidates_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    source = tmp_path / "twice.py"
    source.write_text("def twice(x):\n    return 2 * x\n")
    space = {"__name__": "twice"}
    exec(compile(source.read_text(), str(source), "exec"), space)

    def cache_hits():
        again = kernel(space["twice"])
        assert again(3) == 6
        return sum(again.stats.cache_hits.values())

    assert cache_hits() == 0
    assert cache_hits() == 1
    monkeypatch.setattr(jit, "STAMP", "changed elsewhere")
    assert cache_hits() == 0
    assert cache_hits() == 1


def test_first_compilation_is_announced_once():
    said = []
    one, two = exact(lambda x: x + 1), exact(lambda x: x + 2)
    with announce_compilation(lambda: said.append("compiling")):
        assert (one(1), two(1)) == (2, 3)
    assert said == ["compiling"]
    with announce_compilation(lambda: said.append("again")):
        assert one(2) == 3  # compiled before
    assert said == ["compiling"]
