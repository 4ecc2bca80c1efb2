"""TIFUKNN, against the vectors and the neighbours worked out one by one."""

import numpy as np
import pytest

from shortlist.errors import ConfigError
from shortlist.models.tifuknn import TIFUKNN
from tests.models.cases import all_users, checkerboard, crowd, dense


def plain_vector(data, user, one):
    """Baskets in groups from the newest back, each the fading mean of its baskets, then of the groups."""
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
        far = ((vectors - vectors[user]) ** 2).sum(axis=1)
        far[user] = np.inf
        others = vectors[np.argsort(far, kind="stable")[:5]].mean(axis=0)
        np.testing.assert_allclose(scores[row], 0.6 * vectors[user] + 0.4 * others, atol=1e-6)


def test_neighbours_bring_what_their_like_take():
    """Even users take even items: what an even user has not taken yet still beats every odd item."""
    data = checkerboard()
    scores = dense(TIFUKNN(n_neighbors=10, own=0.5).fit(data))
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    assert all(scores[u, own[u]].min() > scores[u, ~own[u]].max() for u in all_users(data))


@pytest.mark.parametrize("name", ["basket_decay", "group_decay", "own"])
def test_shares_lie_between_0_and_1(name):
    for value in (-0.1, 1.1):
        with pytest.raises(ConfigError, match=f"^{name} must"):
            TIFUKNN(**{name: value}).fit(checkerboard())
