"""What happened to lists, and the harmonic F1 by hand."""

import numpy as np
import pytest

import shortlist as sl
from reproduction.runs import Outcomes
from shortlist.data.ids import IdMap
from shortlist.data.lists import RankedLists


def outcomes(scores, boundaries):
    """Candidates of users 0, 1, …; every item is relevant."""
    n_items = max(map(len, scores))
    lists = RankedLists(
        users=IdMap.of(np.arange(len(scores))),
        item_ids=IdMap.of(np.arange(n_items)),
        indptr=np.cumsum([0, *map(len, scores)]),
        items=np.concatenate([np.arange(len(one)) for one in scores]).astype(np.int32),
        scores=np.concatenate(scores).astype(np.float32),
        boundary=np.array(boundaries, np.float32),
    )
    truth = sl.Interactions.from_tuples(
        [(user, item) for user in range(len(lists)) for item in range(n_items)]
    )
    return Outcomes(lists, truth, np.arange(len(lists), dtype=np.int32))


def test_harmonic_f1_by_hand():
    """Two users with two relevant items each; lists of one and of two items, all hits.

    Precision 1 and 1; recall 1/2 and 1. Harmonic F1: 2 · 1 · .75 / 1.75 = .857; mean F1: (2/3 + 1) / 2.
    """
    found = outcomes([[0.6, 0.1], [0.3, 0.3]], boundaries=[0.3, 0.15])
    lengths = np.array([1, 2])
    precision, recall = (found.measure(lengths)[name] for name in ("precision", "recall"))
    assert precision.tolist() == [1, 1]
    assert recall.tolist() == [0.5, 1]
    assert found.means(lengths)["harmonic"] == pytest.approx(6 / 7)
    assert found.means(lengths)["f1"] == pytest.approx(5 / 6)
    assert found.means(np.array([1, 0]))["harmonic"] == pytest.approx(2 / 3)  # covered users only
    assert found.means(np.zeros(2, int))["harmonic"] == 0
    assert found.curves["harmonic"][:2] == pytest.approx([2 / 3, 1])


def test_fair_ndcg_does_not_depend_on_the_length_of_the_list():
    """Two relevant items, both found: 1; only the first of them: 1 / (1 + 1 / log2(3)); the paper's: 1."""
    found = outcomes([[0.6, 0.1], [0.3, 0.3]], boundaries=[0.3, 0.15])
    first = 1 / (1 + 1 / np.log2(3))
    assert found.measure(np.array([1, 2]))["ndcg_fair"] == pytest.approx([first, 1])
    assert found.measure(np.array([1, 2]))["ndcg"] == pytest.approx([1, 1])
    assert found.measure(np.zeros(2, int))["ndcg_fair"].tolist() == [0, 0]


def test_shifted_boundaries_cover_the_wanted_share():
    found = outcomes([[0.6, 0.1], [0.3, 0.3], [0.9, 0.8]], boundaries=[0.3, 0.15, 0.0])
    assert (found.above() > 0).tolist() == [True, True, True]
    assert found.above(found.shift_for(1 / 3)).tolist() == [0, 0, 2]
    assert found.above(found.shift_for(2 / 3)).tolist() == [1, 0, 2]
