"""Lists at given prices against all subsets, and the auction against an exhaustive search."""

from itertools import combinations, product

import numpy as np
import pytest

from shortlist.kernels.allocation import (
    DIGITS,
    Market,
    Offers,
    UserLimits,
    count_digits,
    price_users,
    run_auction,
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
@pytest.mark.parametrize("n_fields", [0, 1, 2])
def test_a_list_at_given_prices_is_the_best_of_all_subsets(seed, n_fields):
    rng = np.random.default_rng(seed)
    limits = random_limits(rng, 9, n_fields, int(rng.integers(1, 6)))
    items, values = rng.permutation(9)[:8].astype(np.int32), rng.normal(0.2, 1, 8)
    worth, order = np.empty(1), np.argsort(-values)
    offers = Offers(np.array([0, 8]), items[order], values[order] + 0.3)
    price_users(offers, limits, 0.1, np.full(9, 0.2), 100_000, worth)
    assert worth[0] == pytest.approx(best_list(limits, items, values))


def test_a_search_that_is_cut_short_still_gives_an_upper_bound():
    rng = np.random.default_rng(0)
    limits = random_limits(rng, 12, 2, 5)
    items, values = np.arange(12, dtype=np.int32), np.sort(rng.random(12))[::-1].copy()
    worth = np.empty(1)
    price_users(Offers(np.array([0, 12]), items, values), limits, 0.0, np.zeros(12), 2, worth)
    assert worth[0] >= best_list(limits, items, values)


def market_of(stock, n_offers):
    """A market without bids."""
    starts = np.concatenate([[0], np.cumsum(np.maximum(stock, 0))])
    size = int(starts[-1])
    return Market(
        stock,
        starts,
        np.zeros(stock.size, np.int64),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size, np.int32),
        np.zeros(n_offers, np.bool_),
    )


@pytest.mark.parametrize("seed", range(12))
def test_auction_finds_the_best_assignment_up_to_its_step(seed):
    rng = np.random.default_rng(seed)
    n_users, n_items, n_offers = 4, 3, 3
    limits = UserLimits(int(rng.integers(1, 3)), np.empty((n_items, 0), np.int32), np.empty(0, np.int64))
    stock = rng.integers(1, 3, n_items)
    stock[0] = -1 if seed % 3 == 0 else stock[0]
    values = np.sort(rng.random((n_users, n_offers)), axis=1)[:, ::-1]
    items = np.array([rng.permutation(n_items) for _ in range(n_users)], np.int32)
    offers = Offers(np.arange(n_users + 1) * n_offers, items.ravel(), values.ravel().copy())
    market, price, step = market_of(stock, items.size), 0.2, 1e-4
    run_auction(offers, limits, market, np.arange(n_users, dtype=np.int32), price, step)
    best = 0.0
    for held in product([False, True], repeat=items.size):
        mask = np.array(held)
        sold = np.bincount(items.ravel()[mask], minlength=n_items)
        lengths = mask.reshape(n_users, n_offers).sum(axis=1)
        if ((stock < 0) | (sold <= stock)).all() and (lengths <= limits.max_items).all():
            best = max(best, (values.ravel()[mask] - price).sum())
    held = market.held
    sold = np.bincount(items.ravel()[held], minlength=n_items)
    assert ((stock < 0) | (sold <= stock)).all()
    assert (held.reshape(n_users, n_offers).sum(axis=1) <= limits.max_items).all()
    assert (offers.values[held] - price).sum() >= best - step * items.size
    assert (market.n_bids == np.where(stock < 0, 0, sold)).all()


def test_digits_are_counted_below_a_prefix():
    values = np.array([0.5, 0.25, 0.5, 0.75])
    bits, counts = values.view(np.uint64), np.zeros(DIGITS, np.int64)
    count_digits(bits, 0, 48, counts)
    top = bits >> np.uint64(48)
    assert (counts == np.bincount(top.astype(np.int64), minlength=DIGITS)).all()
    counts[:] = 0
    count_digits(bits, int(top[0]), 32, counts)
    assert counts.sum() == 2
