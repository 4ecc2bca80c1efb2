"""The generated sample: always the same, with varied users."""

import numpy as np

from shortlist.data.datasets import CATEGORIES, N_USERS, sample
from shortlist.data.interactions import Interactions


def data():
    return Interactions.from_frame(sample())


def test_sample_is_the_same_on_every_machine():
    assert data().fingerprint == "6ceeeaa7db8370a6b54546aad769e5f5"


def test_sample_has_the_documented_size():
    interactions = data()
    assert interactions.n_users == N_USERS
    assert 120 <= interactions.n_items <= 160
    assert 12_000 <= interactions.n_rows <= 18_000
    assert interactions.duplicates == 0


def test_basket_sizes_differ_between_users_by_more_than_chance():
    interactions = data()
    sizes = np.diff(interactions.baskets)
    owner = np.repeat(np.arange(interactions.n_users), np.diff(interactions.user_baskets))
    means = np.bincount(owner, sizes) / np.bincount(owner)
    assert np.quantile(means, 0.1) < 2.5
    assert np.quantile(means, 0.9) > 7
    within = np.mean((sizes - means[owner]) ** 2)
    assert np.var(means) > within / 2


def test_share_of_repeats_differs_between_users():
    interactions = data()
    repeated = 1 - interactions.item_sets.lengths / interactions.user_counts
    assert np.quantile(repeated, 0.1) < 0.3
    assert np.quantile(repeated, 0.9) > 0.6


def test_items_have_seasons():
    frame = sample()
    month = (frame["timestamp"] - frame["timestamp"].min()) // (30 * 86_400)
    soup = frame["item_name"].is_in(["chicken soup", "beef stew", "lentil soup", "goulash"])
    share = [soup.filter(month == m).mean() for m in range(6)]
    assert max(share) == share[1]
    assert share[1] > 2 * share[5]


def test_every_item_has_one_name():
    pairs = sample().select("item_id", "item_name").unique()
    assert pairs["item_id"].n_unique() == pairs["item_name"].n_unique() == pairs.height
    assert CATEGORIES.count(", ") + len(CATEGORIES.strip().splitlines()) >= pairs.height
