"""Features of candidates counted by hand; labels against plain sets."""

import numpy as np

from shortlist.cutoff.calibration import (
    HISTORY_FEATURES,
    RANK_FEATURES,
    basket_sizes,
    candidate_features,
)
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists

# ann: {p, q}, {p}, {r}; bob: {q}; cat is unknown
HISTORY = Interactions.from_tuples(
    [("ann", "p", 0), ("ann", "q", 0), ("ann", "p", 1), ("ann", "r", 2), ("bob", "q", 5)]
)
LISTS = RankedLists(
    users=IdMap.of(["cat", "ann", "bob"]),
    item_ids=IdMap.of(["new", "q", "p"]),
    indptr=np.array([0, 1, 4, 4]),
    items=np.array([1, 2, 1, 0], np.int32),
    scores=np.array([5, 3, 2, -1], np.float32),
)


def column(name, history=HISTORY):
    names = RANK_FEATURES + (HISTORY_FEATURES if history is not None else ())
    return candidate_features(LISTS, LISTS.scores.astype(float), history)[:, names.index(name)].tolist()


def test_rank_features():
    assert column("gap_to_top") == [0, 0, 1, 4]
    assert column("log_rank") == [0, 0, np.log(2), np.log(3)]
    assert column("reciprocal_rank", None) == [1, 1, 1 / 2, 1 / 3]
    assert candidate_features(LISTS, LISTS.scores.astype(float), None).shape == (4, len(RANK_FEATURES))


def test_history_features():
    assert column("log_history") == [0, np.log(5), np.log(5), np.log(5)]
    np.testing.assert_allclose(column("log_basket"), np.log([5 / 4, 4 / 3, 4 / 3, 4 / 3]))
    np.testing.assert_allclose(np.exp(column("log_popularity")) * 9, [3, 3, 3, 1])  # 5 rows + 3 items + 1
    np.testing.assert_allclose(column("share_of_baskets"), [0, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(column("recency"), [0, 1 / 2, 1 / 3, 0])


def test_recency_counts_the_baskets_of_the_user_alone():
    lists = RankedLists(
        users=IdMap.of(["bob"]),
        item_ids=IdMap.of(["p", "q"]),
        indptr=np.array([0, 2]),
        items=np.array([0, 1], np.int32),
        scores=np.array([2, 1], np.float32),
    )
    features = candidate_features(lists, lists.scores.astype(float), HISTORY)[:, len(RANK_FEATURES) :]
    assert features[:, HISTORY_FEATURES.index("share_of_baskets")].tolist() == [0, 1]
    assert features[:, HISTORY_FEATURES.index("recency")].tolist() == [0, 1]


def test_basket_sizes():
    users = HISTORY.users.lookup(["ann", "bob", "cat"])
    expected = [[4 / 3, 1, 1, 3], [1, 1, 1, 1], [5 / 4, 5 / 4, 5 / 4, 0]]
    np.testing.assert_allclose(basket_sizes(HISTORY, users), expected)


def test_basket_sizes_without_any_basket_are_1():
    nothing = HISTORY.where(np.zeros(HISTORY.n_rows, np.bool_))
    assert basket_sizes(nothing, np.array([0, 1, -1], np.int32)).tolist() == [[1, 1, 1, 0]] * 3
