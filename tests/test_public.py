"""The public names: complete, resolvable, and cheap to import."""

import ast
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import shortlist as sl
from shortlist import models
from shortlist.models.base import Recommender

HEAVY = ("numpy", "polars", "numba", "scipy", "pyarrow", "pandas", "cyclopts", "rich", "jinja2", "pydantic")


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


def test_every_public_name_is_visible_to_type_checkers():
    tree = ast.parse(Path(sl.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname for node in imports for alias in node.names} == set(sl.__all__) - {"__version__"}


def test_every_model_is_public():
    for module in walk_packages(models.__path__, "shortlist.models."):
        import_module(module.name)
    public = {name for name, kind in Recommender.classes.items()
              if kind.__module__.startswith("shortlist.") and "Examples\n" in kind.__doc__}  # fmt: skip
    assert public == set(sl.MODEL_MODULES), "run `make fix`"


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
