"""Strengths of the past against plain counting."""

import numpy as np
import pytest

from shortlist.kernels.repeats import Trace, past_strengths, repeats_tally
from tests import naive

F, MEMORY = np.float32, 0.8
USERS = [
    [[0, 3], [5, 8], [0, 8, 1]],
    [[1, 2]],
    [],
    [[4, 9], [10, 7, 6], [4], [9, 4]],
    [[0, 1], [2, 3, 10]],
    [[5], [5]],
]


def trace_of(n_items):
    kinds = (np.int32, F, np.int32, np.int32)
    return Trace(*(np.zeros(n_items, kind) for kind in kinds))


def test_strengths_before_a_basket_are_counted_afresh():
    baskets = [basket for user in USERS for basket in user]
    owner = [user for user, own in enumerate(USERS) for _ in own]
    at = np.concatenate([[0], np.cumsum([len(one) for one in baskets])]).astype(np.int64)
    item = np.array([i for one in baskets for i in one], np.int32)
    first = np.concatenate([[0], np.cumsum([len(own) for own in USERS])]).astype(np.int64)
    groups, wanted = (each.ravel().astype(np.int32) for each in np.mgrid[: len(baskets), :11])
    out, fade = np.empty(groups.size, F), F(np.log(MEMORY))
    past_strengths(groups, wanted, first[np.array(owner)[groups]], at, item, fade, out)
    plain = [
        naive.strength(i, [baskets[b] for b in range(first[owner[g]], g)], MEMORY)
        for g, i in zip(groups, wanted, strict=True)
    ]
    np.testing.assert_allclose(out, plain, rtol=1e-5)
    chances = sum(
        len({i for b in range(first[owner[g]], g) for i in baskets[b]}) for g in range(len(baskets))
    )
    again = [x for g, i, x in zip(groups, wanted, plain, strict=True) if x > 0 and i in baskets[g]]
    found = repeats_tally(first, at, item, fade, trace_of(11))
    assert found[:2] == (chances, len(again))
    assert found[2] == pytest.approx(sum(again), rel=1e-5)
