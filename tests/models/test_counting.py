"""Counting models against scores computed by hand."""

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.models.counting import PersonalFrequency, Popularity
from tests.models.cases import dense

DAY = 86_400
ROWS = [
    ("a", "x", 0), ("a", "y", 0),
    ("a", "x", 10 * DAY),
    ("a", "z", 20 * DAY), ("a", "x", 20 * DAY),
    ("b", "y", 20 * DAY),
]  # fmt: skip
BOTH = np.arange(2, dtype=np.int32)


def test_popularity_is_the_number_of_sales():
    scores = dense(Popularity().fit(Interactions.from_tuples(ROWS)), BOTH)
    assert scores.tolist() == [[3, 2, 1]] * 2


def test_popularity_decays_with_the_half_life():
    scores = dense(Popularity(half_life=10).fit(Interactions.from_tuples(ROWS)), BOTH[:1])
    np.testing.assert_allclose(scores[0], [0.25 + 0.5 + 1, 0.25 + 1, 1])


def test_personal_frequency_counts_baskets_back_from_the_last():
    scores = dense(PersonalFrequency(decay=0.5, popularity=6).fit(Interactions.from_tuples(ROWS)), BOTH)
    popularity = [3, 2, 1]  # shares of six sales, times six
    np.testing.assert_allclose(scores[0], np.add(popularity, [0.25 + 0.5 + 1, 0.25, 1]))
    np.testing.assert_allclose(scores[1], np.add(popularity, [0, 1, 0]))


def test_zero_popularity_leaves_only_personal_counts():
    scores = dense(PersonalFrequency(popularity=0).fit(Interactions.from_tuples(ROWS)), BOTH)
    assert scores[1].tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", [Popularity, PersonalFrequency])
def test_half_life_needs_timestamps(kind):
    without_times = Interactions.from_tuples([row[:2] for row in ROWS])
    kind().fit(without_times)
    with pytest.raises(ConfigError, match="half_life needs timestamps"):
        kind(half_life=3).fit(without_times)


@pytest.mark.parametrize("kind", [Popularity, PersonalFrequency])
def test_observe_counts_new_data(kind):
    one = kind().fit(Interactions.from_tuples(ROWS))
    one.observe([("c", "new", 21 * DAY), ("a", "y", 21 * DAY)])
    assert one.users_.values.to_list() == ["a", "b", "c"]
    assert one.items_.values.to_list() == ["x", "y", "z", "new"]
    whole = Interactions.from_tuples([*ROWS, ("c", "new", 21 * DAY), ("a", "y", 21 * DAY)])
    fresh = kind().fit(whole)
    order = one.items_.lookup(fresh.items_.values)
    np.testing.assert_array_equal(dense(one, BOTH)[:, order], dense(fresh, BOTH))
