"""UPCF against similarities and frequencies computed one by one."""

import numpy as np
import pytest
from shortlist_extras import UPCF

from shortlist.errors import ConfigError
from shortlist.models.counting import PersonalFrequency
from tests.models.cases import all_users, checkerboard, crowd, dense


def baskets_of(data, user):
    """The items of every basket of a user, in order of time."""
    return [
        set(data.item[data.baskets[b] : data.baskets[b + 1]].tolist())
        for b in range(data.user_baskets[user], data.user_baskets[user + 1])
    ]


def plain_frequencies(data, user, window):
    last = baskets_of(data, user)[-window:] if window else baskets_of(data, user)
    return np.array([sum(i in basket for basket in last) / len(last) for i in range(data.n_items)])


@pytest.mark.parametrize(("window", "alpha", "locality"), [(2, 0.25, 5.0), (None, 0.5, 1.0), (9, 1.0, 2.0)])
def test_scores_sum_weighted_frequencies(window, alpha, locality):
    data = crowd(n_rows=900, n_users=40, n_items=60)
    one = UPCF(window=window, n_neighbors=7, alpha=alpha, locality=locality).fit(data)
    sets = [set().union(*baskets_of(data, user)) for user in all_users(data)]
    frequencies = np.array([plain_frequencies(data, user, window) for user in all_users(data)])
    scores = dense(one)
    for u in all_users(data):
        similar = {
            v: len(sets[u] & sets[v]) / (len(sets[u]) ** alpha * len(sets[v]) ** (1 - alpha))
            for v in all_users(data)
            if v != u
        }
        near = sorted(similar, key=lambda v: -similar[v])
        smallest = similar[near[6]]
        if sum(value == smallest for value in similar.values()) > 1:
            continue  # which of the equally similar users count is decided by their number
        wanted = frequencies[u] + sum(similar[v] ** locality * frequencies[v] for v in near[:7])
        np.testing.assert_allclose(scores[u], wanted, rtol=1e-5, atol=1e-6)


def test_similar_users_raise_the_scores_of_their_items():
    data = checkerboard()
    scores = dense(UPCF(n_neighbors=10).fit(data))
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    assert all(scores[u, own[u]].min() > scores[u, ~own[u]].max() for u in all_users(data))


def test_gp_top_freq_ranks_own_frequencies_before_popularity():
    data = crowd()
    scores = dense(PersonalFrequency(decay=1.0, popularity=1.0).fit(data))
    for u in (0, 5, 77):
        counts = np.bincount(np.concatenate([list(basket) for basket in baskets_of(data, u)]), minlength=120)
        wanted = sorted(range(120), key=lambda i: (-counts[i], -data.item_counts[i], i))
        assert np.argsort(-scores[u], kind="stable").tolist() == wanted


@pytest.mark.parametrize(("name", "value"), [("alpha", 1.1), ("alpha", -1), ("window", 0), ("locality", -1)])
def test_parameters_are_checked(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must"):
        UPCF(**{name: value}).fit(checkerboard())
