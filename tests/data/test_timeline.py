"""The view of a history by time, beside what the features of TwoStage test of it."""

import numpy as np
import polars as pl

from shortlist.data.interactions import Interactions
from shortlist.data.timeline import DAY, GrowingArray, event_times


def test_without_times_baskets_are_a_day_apart():
    frame = {"user_id": ["a", "a", "b"], "item_id": ["x", "y", "x"], "basket_id": [1, 2, 3]}
    assert event_times(Interactions.from_frame(pl.DataFrame(frame))).tolist() == [0, DAY, 0]


def test_arrays_grow_in_place_and_earlier_ones_stay():
    start = GrowingArray(np.arange(8))
    one = start.append(np.array([8]))
    two, other = one.append(np.array([9])), one.append(np.array([-1]))
    assert np.shares_memory(one.values, two.values)
    assert not np.shares_memory(two.values, other.values)
    assert start.values.tolist() == list(range(8))
    assert two.values.tolist() == list(range(10))
    assert other.values.tolist() == [*range(9), -1]
    assert not two.values.flags.writeable


def test_other_values_after_the_first_ones_are_written_elsewhere():
    start = GrowingArray(np.arange(4))
    longer = start.append(np.array([4, 5]))
    other = longer.append(np.array([7]), 3)
    assert other.values.tolist() == [0, 1, 2, 7]
    assert longer.values.tolist() == [0, 1, 2, 3, 4, 5]
    assert not np.shares_memory(other.values, longer.values)
