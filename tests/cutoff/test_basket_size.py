"""ListSize: what the lists foretell is used where they foretell it, and asked for again."""

from dataclasses import replace

import numpy as np
import pytest

from shortlist.cutoff.basket_size import ListSize
from shortlist.cutoff.labels import label
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError

N = 300


def case():
    """Users whose next list holds 1 to 6 items; the lists know twice the size."""
    sizes = np.arange(N) % 6 + 1
    truth = Interactions.from_tuples([(u, i) for u in range(N) for i in range(sizes[u])])
    lists = RankedLists(
        users=truth.users,
        item_ids=IdMap.of(range(6)),
        indptr=np.arange(N + 1, dtype=np.int64),
        items=np.zeros(N, np.int32),
        scores=np.ones(N, np.float32),
        expected_sizes=2.0 * sizes,
    )
    return sizes, truth, lists


def test_foretold_sizes_are_rescaled_to_the_truth():
    sizes, truth, lists = case()
    known = label(lists, truth)
    found = ListSize().learn(known, known.n_relevant, None).predict(lists, None)
    np.testing.assert_allclose(found, sizes, rtol=0.02)
    blind = replace(lists, expected_sizes=None)
    known = label(blind, truth)
    found = ListSize().learn(known, known.n_relevant, None).predict(blind, None)
    np.testing.assert_allclose(found, sizes.mean(), rtol=1e-6)


def test_lists_that_foretell_nothing_are_refused_after_lists_that_did():
    _, truth, lists = case()
    known = label(lists, truth)
    size = ListSize().learn(known, known.n_relevant, None)
    with pytest.raises(DataError, match="learned from lists that foretell them"):
        size.predict(replace(lists, expected_sizes=None), None)


def test_sizes_follow_their_lists():
    sizes, _, lists = case()
    assert (lists.take([5, 2]).expected_sizes == 2.0 * sizes[[5, 2]]).all()
    assert (lists.head(0).expected_sizes == lists.expected_sizes).all()
    with pytest.raises(DataError, match="300 values of sizes, got 3"):
        replace(lists, expected_sizes=np.ones(3))
