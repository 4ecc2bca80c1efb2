"""Lists that maximize an expected metric: whom they cover, and how long they are."""

from types import SimpleNamespace

import numpy as np
import pytest

import shortlist as sl
from shortlist.data.ids import IdMap
from shortlist.data.lists import RankedLists
from shortlist.paper.protocol import ProtocolReading
from shortlist.paper.variants import Outcomes, cover_best, fit_calibrated, take_lists


def outcomes(probabilities, sizes, boundaries):
    """Candidates of users 0, 1, …; the score of an item is its probability."""
    n_items = max(map(len, probabilities))
    lists = RankedLists(
        users=IdMap.of(np.arange(len(probabilities))),
        item_ids=IdMap.of(np.arange(n_items)),
        indptr=np.cumsum([0, *map(len, probabilities)]),
        items=np.concatenate([np.arange(len(one)) for one in probabilities]).astype(np.int32),
        scores=np.concatenate(probabilities).astype(np.float32),
        probabilities=np.concatenate(probabilities).astype(np.float64),
        boundary=np.array(boundaries, np.float32),
        expected_sizes=np.array(sizes, np.float64),
    )
    truth = sl.Interactions.from_tuples(
        [(user, item) for user in range(len(lists)) for item in range(n_items)]
    )
    return Outcomes.of(lists, truth, np.arange(len(lists), dtype=np.int32))


@pytest.fixture(scope="module")
def fitted():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    return split, sl.DKBPRMF(n_factors=4, n_epochs=5).fit(split.train)


def test_users_who_can_expect_most_are_covered():
    lengths, expected = np.array([2, 0, 3, 1]), np.array([0.1, 0.9, 0.3, 0.2])
    assert cover_best(lengths, expected, 0.5).tolist() == [0, 0, 3, 1]  # an empty list covers nobody
    assert cover_best(lengths, expected, 1.0).tolist() == [2, 0, 3, 1]
    assert cover_best(lengths, expected, 0.0).tolist() == [0, 0, 0, 0]


def test_expected_f1_decides_who_gets_a_list():
    """2 · .6 / (1 + 1) = .6; 2 · (.3 + .3) / (2 + 2) = .3; 2 · .4 / (1 + 3) = .2."""
    found = outcomes([[0.6, 0.1], [0.3, 0.3], [0.4, 0.2]], sizes=[1, 2, 3], boundaries=[0.3, 0.15, 0.3])
    assert found.optimal_lengths("f1", 1.0).tolist() == [1, 2, 1]
    assert found.optimal_lengths("f1", 2 / 3).tolist() == [1, 2, 0]
    assert found.optimal_lengths("f1", 1 / 3).tolist() == [1, 0, 0]


def test_expected_ndcg_of_one_relevant_item():
    """With one relevant item, a second candidate adds p / log2(3): .5 + .3 / 1.585 = .69, but 1 + 0 = 1."""
    found = outcomes([[0.5, 0.3], [1.0, 0.0]], sizes=[1, 1], boundaries=[0.9, 0.9])
    assert found.optimal_lengths("ndcg", 1.0).tolist() == [2, 1]
    assert found.optimal_lengths("ndcg", 0.5).tolist() == [0, 1]


def test_lengths_are_those_of_the_lists_of_the_model(fitted):
    split, model = fitted
    users = split.valid.active_users
    ids = split.valid.users.to_ids(users)
    found = Outcomes.of(model.recommend(ids, N=100, at=split.valid), split.valid, users)
    assert (
        found.optimal_lengths("f1", 1.0).tolist()
        == np.minimum(model.recommend(ids, at=split.valid).lengths, 100).tolist()
    )


@pytest.mark.parametrize("metric", ["f1", "ndcg"])
def test_calibrated_lists_cover_the_wanted_share_of_validation_users(fitted, metric):
    split, model = fitted
    users = split.valid.active_users[::2]
    lists = model.recommend(split.valid.users.to_ids(split.valid.active_users), N=100, at=split.valid)
    validation = SimpleNamespace(truth=split.valid, users={"all": users})
    cutoff = fit_calibrated(metric, 0.6, lists, validation, ProtocolReading("all"), split.train)
    cut = cutoff.apply(take_lists(lists, split.valid, users), history=split.train)
    assert len(cut) == users.size
    assert cut.cover_ratio == pytest.approx(0.6, abs=0.02)
    assert cut.lengths.max() <= 100


def test_lists_of_some_users_are_taken_in_their_order(fitted):
    split, model = fitted
    users = split.valid.active_users
    lists = model.recommend(split.valid.users.to_ids(users), N=5, at=split.valid)
    some = take_lists(lists, split.valid, users[2::7])
    assert some.users.values.to_list() == list(split.valid.users.to_ids(users[2::7]))


def test_harmonic_f1_by_hand():
    """Two users with two relevant items each; lists of one and of two items, all hits.

    Precision 1 and 1; recall 1/2 and 1. Harmonic F1: 2 · 1 · .75 / 1.75 = .857; mean F1: (2/3 + 1) / 2.
    """
    found = outcomes([[0.6, 0.1], [0.3, 0.3]], sizes=[1, 2], boundaries=[0.3, 0.15])
    lengths = np.array([1, 2])
    precision, recall = found.precision_and_recall(lengths)
    assert precision.tolist() == [1, 1]
    assert recall.tolist() == [0.5, 1]
    assert found.covered(lengths)["harmonic"] == pytest.approx(6 / 7)
    assert found.covered(lengths)["f1"] == pytest.approx(5 / 6)
    assert found.covered(np.array([1, 0]))["harmonic"] == pytest.approx(2 / 3)  # covered users only
    assert found.covered(np.zeros(2, int))["harmonic"] == 0
    assert found.curves["harmonic"][:2] == pytest.approx([2 / 3, 1])
