"""The cache of compiled kernels depends on the source of every kernel; compilation is announced."""

from pathlib import Path
from typing import NamedTuple

from shortlist.kernels import jit
from shortlist.kernels.jit import (
    STAMP,
    announce_compilation,
    exact,
    inlined,
    ir_inlined,
    kernel,
    sources_stamp,
)
from shortlist.kernels.retrieval import select_top


class Pair(NamedTuple):
    """A class that is missing in another version."""

    a: int


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

    kept = []  # code of a module that cannot be imported is loaded again only while its first copy lives

    def cache_hits():
        again = kernel(space["twice"])
        kept.append(again)
        assert again(3) == 6
        return sum(again.stats.cache_hits.values())

    assert cache_hits() == 0
    assert cache_hits() == 1
    monkeypatch.setattr(jit, "STAMP", "changed elsewhere")
    assert cache_hits() == 0
    assert cache_hits() == 1


def test_code_cached_by_another_version_is_compiled_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    source = tmp_path / "first.py"
    source.write_text("def first(pair):\n    return pair.a\n")
    space = {"__name__": "first"}
    exec(compile(source.read_text(), str(source), "exec"), space)
    monkeypatch.setattr("tests.kernels.cases.Pair", Pair, raising=False)
    Pair.__module__, Pair.__qualname__ = "tests.kernels.cases", "Pair"
    assert kernel(space["first"])(Pair(7)) == 7
    monkeypatch.delattr("tests.kernels.cases.Pair")  # as if a later version had no such class
    assert kernel(space["first"])(Pair(8)) == 8


def test_each_compilation_is_announced_by_name():
    said = []

    @exact
    def add_one(x):
        return x + 1

    @ir_inlined
    def add_two(x):
        return add_one(x) + 1

    @ir_inlined
    def add_three(x):
        return x + 3

    with announce_compilation(said.append):
        assert (add_two(1), add_three(1)) == (3, 4)
    assert said == ["add_two", "add_three"]  # not the function that add_two calls
    with announce_compilation(said.append):
        assert add_two(2) == 4  # compiled before
    assert said == ["add_two", "add_three"]


def test_helpers_can_be_called_from_python():
    @inlined
    def twice(x):
        return 2 * x

    assert twice(3) == 6
    assert twice(1.5) == 3
