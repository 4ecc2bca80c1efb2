"""Sales shares and best sellers, against plain loops over the baskets."""

import numpy as np
import pytest

from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.data.timeline import TREND_WINDOW
from shortlist.kernels.snapshot_features import DAY, CandidateRules, replay_until, top_positive
from shortlist.models.two_stage.snapshots import WINDOWS, EventReplay
from tests.kernels.cases import baskets


def whole(data, window=2):
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, 4, window, 0.5, data.has_repeats)
    return EventReplay(History.of(data), rules).whole


def test_trend_is_the_share_of_sales_in_the_window_before_the_row():
    data = baskets(2)
    users, order = whole(data).timeline.log.users, np.argsort(data.time[data.baskets[:-1]], kind="stable")
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
        History.of(data), CandidateRules(np.array(WINDOWS, np.int64) * DAY, 4, 2, 0.5, data.has_repeats)
    )
    at = minute * 60_000_000
    state = replay._take_state(at)
    replay_until(replay.whole.timeline.log, state, replay.rules, np.arange(2, dtype=np.int32), at)
    for best in state.best:
        assert [data.items.values[int(i)] for i in best if i >= 0] == expected
