"""Candidate columns, each counted plainly; bent lines against the same written with NumPy."""

import numpy as np

from shortlist.cutoff.features import PAST, PLACE, candidate_features, mean_basket, recent_basket
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.kernels.features import hinges_fill, hinges_sum

# ann: {p, q}, {p}, {r}; bob: {q}; what cat did is unknown
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
    names = PLACE + (PAST if history is not None else ())
    return candidate_features(LISTS, LISTS.scores.astype(float), history)[:, names.index(name)].tolist()


def test_place():
    assert column("gap_to_top") == [0, 0, 1, 4]
    assert column("log_rank") == [0, 0, np.log(2), np.log(3)]
    assert column("one_over_rank", None) == [1, 1, 1 / 2, 1 / 3]
    assert candidate_features(LISTS, LISTS.scores.astype(float), None).shape == (4, len(PLACE))


def test_past():
    assert column("log_history") == [0, np.log(5), np.log(5), np.log(5)]
    np.testing.assert_allclose(column("log_basket"), np.log([5 / 4, 4 / 3, 4 / 3, 4 / 3]))
    np.testing.assert_allclose(np.exp(column("log_popularity")) * 9, [3, 3, 3, 1])  # 5 rows + 3 items + 1
    np.testing.assert_allclose(column("share_of_baskets"), [0, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(column("freshness"), [0, 1 / 2, 1 / 3, 0])


def test_basket_sizes():
    users = HISTORY.users.lookup(["ann", "bob", "cat"])
    np.testing.assert_allclose(mean_basket(HISTORY, users), [4 / 3, 1, 5 / 4])
    np.testing.assert_allclose(recent_basket(HISTORY, users, 0), [1, 1, 5 / 4])
    np.testing.assert_allclose(recent_basket(HISTORY, users, 2), [2, 1, 5 / 4])


def test_hinges_sum_is_hinges_fill_times_beta():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(50, 3))
    starts, knots = np.array([0, 2, 2, 5]), np.array([-0.5, 0.5, -1.0, 0.0, 1.0])
    bent = np.empty((50, 8))
    hinges_fill(columns, starts, knots, bent)
    plain = [columns[:, 0], *(np.maximum(columns[:, 0] - k, 0) for k in knots[:2]), columns[:, 1]]
    plain += [columns[:, 2], *(np.maximum(columns[:, 2] - k, 0) for k in knots[2:])]
    np.testing.assert_array_equal(bent, np.column_stack(plain))
    beta, line = rng.normal(size=8), np.full(50, 7.0)
    hinges_sum(columns, starts, knots, beta, line)
    np.testing.assert_allclose(line, 7 + bent @ beta)
