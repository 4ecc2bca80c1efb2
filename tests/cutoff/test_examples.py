"""The examples in the docstrings of sl.cutoff run and print what they say."""

import doctest
from importlib import import_module
from pkgutil import iter_modules

import pytest

import shortlist as sl

MODULES = [f"shortlist.cutoff.{module.name}" for module in iter_modules(sl.cutoff.__path__)]
EXAMPLES = [
    test
    for name in MODULES
    for test in doctest.DocTestFinder().find(import_module(name), globs={"sl": sl})
    if test.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example(example):
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


@pytest.mark.parametrize("name", sl.cutoff.__all__)
def test_every_public_name_documents_its_parameters_and_has_an_example(name):
    text = vars(sl.cutoff)[name].__doc__
    assert "Parameters\n" in text
    assert ">>> " in text
