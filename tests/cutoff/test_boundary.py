"""Boundary: read from lists, t for users without one."""

from dataclasses import replace

import numpy as np
import pytest

from shortlist.cutoff import Boundary, top_candidates
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError


def test_lists_with_boundaries_need_no_fit():
    lists = replace(
        top_candidates(np.array([[3.0, 2.0, 1.0]] * 3)), boundary=np.array([2.0, 0.0, np.nan], np.float32)
    )
    shown = Boundary().apply(lists)
    assert shown.lengths.tolist() == [1, 3, 0]
    assert [shown.at(n).reason for n in range(3)] == ["boundary", "all_candidates", "unknown_user"]
    assert Boundary(t=2.5).lengths(lists).tolist() == [1, 3, 1]


def test_reason_when_no_candidate_is_above_the_boundary():
    lists = replace(top_candidates(np.ones((1, 2))), boundary=np.array([1.0], np.float32))
    assert Boundary().apply(lists).at(0).reason == "no_candidate_above_boundary"


def test_lists_without_boundaries_are_refused():
    scores = top_candidates(np.ones((2, 3)))
    with pytest.raises(ConfigError, match="Boundary needs lists that carry boundaries"):
        Boundary().lengths(scores)
    with pytest.raises(ConfigError, match="Boundary needs lists that carry boundaries"):
        Boundary().fit(scores, Interactions.from_tuples([(0, 1)]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"t": "low"}, "t must be a number"),
        ({"n_candidates": 0}, "n_candidates must be a whole number of at least 1"),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        Boundary(**params)
