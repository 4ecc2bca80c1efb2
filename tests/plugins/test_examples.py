"""The examples in the docstrings of the package run."""

import doctest

import pytest
import shortlist_extras

import shortlist as sl


@pytest.mark.parametrize("name", ["FrozenBoundary", "PerK", "UPCF", "measure_diversity"])
def test_example(name):
    thing = getattr(shortlist_extras, name)
    (test,) = doctest.DocTestFinder(recurse=False).find(thing, name, globs={"sl": sl})
    assert test.examples
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0
