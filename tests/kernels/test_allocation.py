"""Lists at given prices against all subsets, and lists that fit all limits."""

from itertools import combinations

import numpy as np
import pytest

from shortlist.kernels.allocation import (
    DIGITS,
    LimitPrices,
    Offers,
    UserLimits,
    count_digits,
    fill_in_order,
    number_places,
    take_at_prices,
)


def random_limits(rng, n_items, n_fields, max_items):
    """Three groups per field, of which a list may contain one or two items."""
    groups = rng.integers(-1, 3, (n_items, n_fields)).astype(np.int32)
    groups[groups >= 0] += (3 * np.arange(n_fields) * np.ones((n_items, 1), int))[groups >= 0].astype(
        np.int32
    )
    return UserLimits(max_items, groups, rng.integers(1, 3, 3 * n_fields))


def is_allowed(limits, items):
    """Whether a list keeps the limits of a user."""
    used = limits.groups[list(items)].ravel()
    counts = np.bincount(used[used >= 0], minlength=limits.group_limits.size)
    return len(items) <= limits.max_items and bool((counts <= limits.group_limits).all())


def best_list(limits, items, values):
    """The largest sum over all subsets."""
    best = 0.0
    for n in range(1, len(items) + 1):
        for chosen in combinations(range(len(items)), n):
            if is_allowed(limits, items[list(chosen)]):
                best = max(best, values[list(chosen)].sum())
    return best


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_fields", [0, 1])
def test_a_list_at_given_prices_is_the_best_of_all_subsets(seed, n_fields):
    rng = np.random.default_rng(seed)
    limits = random_limits(rng, 9, n_fields, int(rng.integers(1, 6)))
    items, values = rng.permutation(9)[:8].astype(np.int32), rng.normal(0.2, 1, 8)
    worth, order, taken = np.empty(1), np.argsort(-values), np.empty(8, np.bool_)
    offers = Offers(np.array([0, 8]), items[order], values[order] + 0.3)
    prices = LimitPrices(0.1, np.full(9, 0.2), np.empty(0))
    take_at_prices(offers, limits, prices, np.empty((8, 0), np.int64), taken, worth)
    assert worth[0] == pytest.approx(best_list(limits, items, values))
    assert is_allowed(limits, offers.items[taken])
    assert (offers.values[taken] - 0.3).sum() == pytest.approx(worth[0])


@pytest.mark.parametrize("seed", range(8))
def test_prices_of_places_bound_the_best_list_within_groups_of_two_fields(seed):
    rng = np.random.default_rng(seed)
    limits = random_limits(rng, 9, 2, int(rng.integers(1, 6)))
    items, values = rng.permutation(9)[:8].astype(np.int32), np.sort(rng.normal(0.5, 1, 8))[::-1].copy()
    offers, places = Offers(np.array([0, 8]), items, values), np.empty((8, 2), np.int64)
    n = number_places(offers, limits, 0, places)
    groups = limits.groups[items]
    assert n == np.unique(groups[groups >= 0]).size
    assert ((places < 0) == (groups < 0)).all()
    assert all(np.unique(places[groups == group]).size == 1 for group in np.unique(groups))
    rooms = np.empty(n, np.int64)
    rooms[places[groups >= 0]] = limits.group_limits[groups[groups >= 0]]
    first = UserLimits(limits.max_items, limits.groups[:, :1], limits.group_limits)
    for _ in range(5):
        prices = rng.random(n) * (rng.random(n) < 0.5)
        prices[np.unique(places[:, 0][places[:, 0] >= 0])] = 0  # the first field has limits instead
        worth, taken = np.empty(1), np.empty(8, np.bool_)
        take_at_prices(
            offers, first, LimitPrices(0.0, np.zeros(9), prices), places[:, 1:].copy(), taken, worth
        )
        assert worth[0] + prices @ rooms >= best_list(limits, items, values) - 1e-12


def test_offers_are_shown_in_order_as_far_as_limits_allow():
    items = np.array([0, 1, 2, 0, 1], np.int32)  # of two users
    places = np.array([[0], [0], [1], [-1], [2]])
    stock, rooms, lengths = np.array([1, 9, 9]), np.array([1, 1, 1]), np.array([2, 5])
    order, held = np.array([1, 3, 0, 2, 4]), np.zeros(5, np.bool_)
    users = np.array([0, 0, 0, 1, 1], np.int32)[order]
    left = fill_in_order(order, users, items, places, stock, rooms, lengths, held, 3)
    assert held.tolist() == [False, True, True, True, False]  # a full group, an item sold out, a full total
    assert left == 0
    assert (stock.tolist(), rooms.tolist(), lengths.tolist()) == ([0, 8, 8], [0, 0, 1], [0, 4])
    assert fill_in_order(order, users, items, places, stock, rooms, lengths, held, 3) == 2
    assert held.tolist() == [False, True, True, True, True]


def test_digits_are_counted_below_a_prefix():
    values = np.array([0.5, 0.25, 0.5, 0.75])
    bits, counts = values.view(np.uint64), np.zeros(DIGITS, np.int64)
    count_digits(bits, 0, 48, counts)
    top = bits >> np.uint64(48)
    assert (counts == np.bincount(top.astype(np.int64), minlength=DIGITS)).all()
    counts[:] = 0
    count_digits(bits, int(top[0]), 32, counts)
    assert counts.sum() == 2
