"""TIFUKNN against vectors and neighbors computed one by one."""

import numpy as np
import pytest

from shortlist.errors import ConfigError
from shortlist.models.tifuknn import TIFUKNN
from tests.models.cases import all_users, checkerboard, crowd, dense


def plain_vector(data, user, one):
    """The decayed mean of groups of baskets, latest first; each is the decayed mean of its baskets."""
    baskets = [
        data.item[data.baskets[b] : data.baskets[b + 1]]
        for b in range(data.user_baskets[user], data.user_baskets[user + 1])
    ][::-1]
    groups = [baskets[k : k + one.group_size] for k in range(0, len(baskets), one.group_size)]
    vector = np.zeros(data.n_items)
    for age, group in enumerate(groups):
        mean = np.zeros(data.n_items)
        for back, items in enumerate(group):
            mean[items] += one.basket_decay**back / len(group)
        vector += one.group_decay**age * mean / len(groups)
    return vector


@pytest.mark.parametrize("group_size", [1, 2, 7])
def test_scores_mix_own_and_nearest_vectors(group_size):
    data = crowd()
    one = TIFUKNN(n_neighbors=5, group_size=group_size, own=0.6, basket_decay=0.8, group_decay=0.5).fit(data)
    vectors = np.array([plain_vector(data, user, one) for user in all_users(data)])
    users = np.array([3, 200, 17], np.int32)
    scores = dense(one, users)
    for row, user in enumerate(users):
        distance = ((vectors - vectors[user]) ** 2).sum(axis=1)
        distance[user] = np.inf
        others = vectors[np.argsort(distance, kind="stable")[:5]].mean(axis=0)
        np.testing.assert_allclose(scores[row], 0.6 * vectors[user] + 0.4 * others, atol=1e-6)


def test_neighbors_raise_the_scores_of_their_items():
    """Even users buy even items, so unseen even items score above all odd items."""
    data = checkerboard()
    scores = dense(TIFUKNN(n_neighbors=10, own=0.5).fit(data))
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    assert all(scores[u, own[u]].min() > scores[u, ~own[u]].max() for u in all_users(data))


@pytest.mark.parametrize("name", ["basket_decay", "group_decay", "own"])
def test_decays_and_own_must_lie_between_0_and_1(name):
    for value in (-0.1, 1.1):
        with pytest.raises(ConfigError, match=f"^{name} must"):
            TIFUKNN(**{name: value}).fit(checkerboard())
