"""The public names: complete, resolvable, and cheap to import."""

import ast
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import shortlist as sl

HEAVY = ("numpy", "polars", "numba", "scipy", "pyarrow", "pandas", "cyclopts", "rich", "jinja2")


def loaded_by(code: str, watched: tuple[str, ...]) -> set[str]:
    """Return which of the watched packages a fresh interpreter has imported after running the code."""
    probe = f"{code}\nimport sys; sys.stdout.write(' '.join(m for m in {watched!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) if done.stdout.strip() else set()


@pytest.mark.parametrize("name", sl.__all__)
def test_every_public_name_resolves(name):
    assert getattr(sl, name) is not None


def test_all_is_sorted_without_duplicates():
    assert sl.__all__ == sorted(set(sl.__all__))


def test_dir_shows_all():
    assert dir(sl) == sl.__all__


def test_every_lazy_name_is_public_and_visible_to_type_checkers():
    tree = ast.parse(Path(sl.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    for name, module in sl._MODULES.items():
        assert typed[name] in (f"{module}.{name}", module), "run `make fix`"
    assert set(typed) == set(sl._MODULES) == set(sl.__all__) - {"__version__"}


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Popularty'") as caught:
        _ = sl.Popularty
    if sys.version_info >= (3, 12):
        assert "Did you mean: 'Popularity'?" in traceback.format_exception_only(caught.value)[-1]


def test_import_loads_nothing_heavy():
    assert loaded_by("import shortlist", HEAVY) == set()


def test_probe_detects_an_import():
    assert loaded_by("import numpy", HEAVY) == {"numpy"}


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert sl.__version__ == version("shortlist")
