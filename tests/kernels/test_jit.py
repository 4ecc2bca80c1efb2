"""The cache of compiled kernels depends on the sources that a kernel imports; compilation is announced."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from shortlist.kernels import jit, retrieval
from shortlist.kernels.jit import (
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


def test_stamp_depends_on_every_imported_source(tmp_path):
    def stamp():
        sources_stamp.cache_clear()
        return sources_stamp(tmp_path / "a.py")

    (tmp_path / "a.py").write_text("from shortlist.kernels.b import B")
    (tmp_path / "b.py").write_text("if 1:\n    from shortlist.kernels.c import (\n        C,\n    )\nB = C")
    (tmp_path / "c.py").write_text("from shortlist.kernels.a import A\nC = 1")  # a cycle ends
    (tmp_path / "other.py").write_text("D = 1")
    before = stamp()
    (tmp_path / "c.py").write_text("C = 2")
    changed = stamp()
    assert changed != before
    (tmp_path / "other.py").write_text("D = 2")
    assert stamp() == changed


def test_kernels_carry_the_stamp():
    stamp = sources_stamp(Path(retrieval.__file__))
    assert select_top._cache._cache_file._source_stamp[1] == stamp
    assert stamp != sources_stamp(Path(jit.__file__))


def test_kernels_import_each_other_in_the_form_that_the_stamp_reads():
    for file in Path(jit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("shortlist") for name in node.names), file
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, file
                assert node.module != "shortlist.kernels", file


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
    monkeypatch.setattr(jit, "sources_stamp", lambda _: "changed elsewhere")
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


LOADED = """
import numpy as np
from numba.core.registry import cpu_target
from shortlist.kernels.jit import announce_compilation
from shortlist.kernels.rows import mark_present

with announce_compilation(print):
    mark_present(np.arange(3, dtype=np.int64), 0, np.zeros(3, np.int32))
print(cpu_target.target_context.codegen().magic_tuple()[1:])
"""


def test_kernels_of_an_image_are_used_on_another_machine(tmp_path):
    """As in the container image: compiled for any processor of the family, in another folder."""

    def run(folder):
        variables = {"NUMBA_CACHE_DIR": str(tmp_path / folder), "NUMBA_CPU_NAME": "generic"}
        command = [sys.executable, "-c", LOADED]
        found = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout.split("\n")[:-1]

    built = run("image")
    shutil.copytree(tmp_path / "image", tmp_path / "elsewhere")
    assert built == ["mark_present", "('generic', '')"]  # nothing depends on this processor
    assert run("elsewhere") == built[1:]
