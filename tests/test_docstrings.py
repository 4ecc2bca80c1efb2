"""Docstrings of the public API: complete `Parameters` sections, and examples that run."""

import doctest
import inspect
import re
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist import evaluation
from shortlist.models.base import Recommender

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def public_members(cls: type) -> dict[str, Any]:
    """Return the public methods and properties of a class that this library defines."""
    found = {}
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        function = plain_function(member)
        if not name.startswith("_") and function is not None and function.__module__.startswith("shortlist."):
            found[name] = member
    return found


def plain_function(member: Any) -> Any:
    """Return the function behind a method, property, class method or static method, else None."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if inspect.isfunction(member) else None


def public_names() -> dict[str, Any]:
    """Return every public function and class by its public path."""
    names = {name: getattr(sl, name) for name in sl.__all__ if name != "__version__"}
    for module_name in [name for name, value in names.items() if inspect.ismodule(value)]:
        module = names.pop(module_name)
        names |= {f"{module_name}.{name}": getattr(module, name) for name in module.__all__}
    names |= {f"evaluation.{name}": getattr(evaluation, name) for name in evaluation.__all__}
    return {path: value for path, value in names.items() if callable(value)}


def is_exception(value: Any) -> bool:
    """Return whether the value is an exception class."""
    return inspect.isclass(value) and issubclass(value, Exception)


NAMES = public_names()


def public_objects() -> dict[str, Any]:
    """Return every public function, class, method and property by its public path; inherited ones once.

    The public methods of models are those of `Recommender`; what else a model defines serves its base class.
    """
    found, known = {}, set()
    for path, value in [("Recommender", Recommender), *NAMES.items()]:
        found[path] = value
        is_model = inspect.isclass(value) and issubclass(value, Recommender) and value is not Recommender
        if inspect.isclass(value) and not is_model and not is_exception(value):
            for name, member in public_members(value).items():
                function = plain_function(member)
                if function not in known:
                    known.add(function)
                    found[f"{path}.{name}"] = member
    return found


def needs_example(value: Any) -> bool:
    """Return whether the value is a function, or a class that users create."""
    return inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception | tuple))


OBJECTS = public_objects()


def doc_of(value: Any) -> str:
    """Return the docstring without indentation."""
    return inspect.getdoc(plain_function(value) or value) or ""


def section(doc: str, title: str) -> str:
    """Return the text of one section of a NumPy-style docstring."""
    parts = SECTION.split(doc)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "")


def documented_parameters(doc: str) -> set[str]:
    """Return the names in the `Parameters` section; one entry may name several."""
    lines = section(doc, "Parameters").splitlines()
    return {name.strip(" *") for line in lines if line[:1].strip() for name in line.split(",")}


def parameters(value: Any) -> set[str]:
    """Return the names of the parameters of a function, or of the constructor of a class."""
    if isinstance(value, property | cached_property):
        return set()
    names = list(inspect.signature(plain_function(value) or value).parameters)
    return set(names) - {"self", "cls"}


@pytest.mark.parametrize("path", OBJECTS)
def test_public_object_has_a_docstring(path):
    assert doc_of(OBJECTS[path])


@pytest.mark.parametrize("path", [path for path, value in OBJECTS.items() if not is_exception(value)])
def test_parameters_section_matches_the_signature(path):
    assert documented_parameters(doc_of(OBJECTS[path])) == parameters(OBJECTS[path])


@pytest.mark.parametrize("path", [path for path, value in OBJECTS.items() if ">>>" in doc_of(value)])
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some examples write files
    doc = doc_of(OBJECTS[path])
    assert "+SKIP" not in doc
    test = doctest.DocTestParser().get_doctest(doc, {"sl": sl, "np": np, "pl": pl}, path, path, 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("path", [path for path, value in NAMES.items() if needs_example(value)])
def test_public_name_has_an_example(path):
    assert ">>>" in section(doc_of(NAMES[path]), "Examples")
