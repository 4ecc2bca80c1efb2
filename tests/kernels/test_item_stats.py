"""Item pairs and sales shares, against plain loops over the baskets."""

import numpy as np
import pytest

from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.kernels.item_stats import DAY, Rules, list_pairs, merge_pairs, replay_until, top_positive
from shortlist.models.two_stage.snapshots import TREND_WINDOW, WINDOWS, EventReplay


def baskets(seed, n_users=8, n_items=9):
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        for day in np.sort(rng.permutation(12)[: rng.integers(1, 6)]):
            rows += [
                (user, int(i), int(day) * 86_400) for i in rng.permutation(n_items)[: rng.integers(1, 4)]
            ]
    return Interactions.from_tuples(rows)


def layout(data, window=2):
    rules = Rules(np.array(WINDOWS, np.int64) * DAY, 4, window, 0.5, data.has_repeats)
    return EventReplay(History.of(data), rules).layout


def users_baskets(data):
    """[[items of each basket] of each user]"""
    return [
        [data.item[data.baskets[b] : data.baskets[b + 1]].tolist() for b in range(first, last)]
        for first, last in zip(data.user_baskets[:-1], data.user_baskets[1:], strict=True)
    ]


def plain_pairs(data, window):
    """Every (item, other) occurrence: within a basket, or from one of the last `window` baskets."""
    found = []
    for own in users_baskets(data):
        for b, items in enumerate(own):
            for earlier in range(max(b - window, 0), b) if window else [b]:
                found += [(i, j) for i in own[earlier] for j in items if i != j]
    return found


@pytest.mark.parametrize("window", [0, 1, 2, 5])
def test_pairs_are_those_of_the_window_and_no_others(window):
    data = baskets(window)
    log = layout(data).log
    keys = np.empty(10_000, np.int64)
    n = list_pairs(log, window, data.n_items, keys)
    expected = sorted(i * data.n_items + j for i, j in plain_pairs(data, window))
    assert len(expected) > 20
    assert sorted(keys[:n].tolist()) == expected


def test_pairs_beyond_the_array_are_only_counted():
    data = baskets(1)
    keys = np.full(3, -1, np.int64)
    n = list_pairs(layout(data).log, 2, data.n_items, keys)
    assert n == len(plain_pairs(data, 2))
    assert (keys >= 0).all()


def test_entries_hold_each_pair_once():
    data = baskets(4)
    for window, (starts, others) in zip((0, 2), (layout(data).together, layout(data).after), strict=True):
        expected = sorted(set(plain_pairs(data, window)))
        owner = np.repeat(np.arange(data.n_items), np.diff(starts))
        assert list(zip(owner.tolist(), others.tolist(), strict=True)) == expected


def test_trend_is_the_share_of_sales_in_the_window_before_the_row():
    data = baskets(2)
    users, order = layout(data).log.users, np.argsort(data.time[data.baskets[:-1]], kind="stable")
    rows = np.concatenate([np.arange(data.baskets[b], data.baskets[b + 1]) for b in order])
    basket = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    for number, row in enumerate(rows):
        before = rows[:number]
        recent = before[data.time[before] >= data.time[row] - TREND_WINDOW]
        same = (data.item[recent] == data.item[row]) & (basket[recent] != basket[row])
        assert users.trend[row] == same.sum() / max(recent.size, 1)
    assert users.trend.max() > 0.2


@pytest.mark.parametrize("width", [1, 2, 3, 10])
def test_largest_positive_values_come_first_and_the_earlier_of_equal_ones(width):
    values, ids = np.array([2.0, 3, 0, 3, -1, 1, 2, 3]), np.array([7, 0, 1, 2, 3, 4, 5, 6], np.int32)
    out = np.full(width, -1, np.int32)
    expected = sorted((i for i in ids.tolist() if values[i] > 0), key=lambda i: -values[i])[:width]
    assert top_positive(values, ids, ids.size, out) == len(expected)
    assert out[: len(expected)].tolist() == expected


@pytest.mark.parametrize(
    ("minute", "expected"),
    [(40, ["a"]), (60, ["a"]), (100, ["a"]), (120, ["b", "a"]), (130, ["b", "a"])],
)
def test_best_sellers_are_those_of_the_last_full_hour(minute, expected):
    """a is sold at 0:10, b twice at 1:20; before the first full hour with sales, the time itself counts."""
    data = Interactions.from_tuples([(1, "a", 600), (1, "b", 4800), (2, "b", 4800)])
    replay = EventReplay(
        History.of(data), Rules(np.array(WINDOWS, np.int64) * DAY, 4, 2, 0.5, data.has_repeats)
    )
    at = minute * 60_000_000
    state = replay._take_state(at)
    replay_until(replay.layout.log, state, replay.rules, np.arange(2, dtype=np.int32), at)
    for best in state.best:
        assert [data.items.values[int(i)] for i in best if i >= 0] == expected


@pytest.mark.parametrize("n_items", [4, 6])
def test_merged_pairs_are_those_of_both_lists(n_items):
    """Four known items, pairs of two of them, and new pairs of known and new items."""
    rng = np.random.default_rng(n_items)
    known = {(i, j) for i in range(4) for j in range(4) if rng.random() < 0.4}
    new = {(i, j) for i in range(n_items) for j in range(n_items) if rng.random() < 0.4}
    rows = sorted(known)
    starts = np.searchsorted([i for i, _ in rows], np.arange(5)).astype(np.int64)
    other = np.array([j for _, j in rows], np.int32)
    keys = np.array(sorted(i * n_items + j for i, j in new), np.int64)
    to_starts, to_other = np.empty(n_items + 1, np.int64), np.empty(len(known) + len(new), np.int32)
    n = merge_pairs(starts, other, keys, n_items, to_starts, to_other)
    merged = {(i, int(j)) for i in range(n_items) for j in to_other[to_starts[i] : to_starts[i + 1]]}
    assert n == len(known | new) == to_starts[-1]
    assert merged == known | new
