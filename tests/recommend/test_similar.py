"""similar_items, with cosines worked by hand."""

import numpy as np
import polars as pl
import pytest

from shortlist.errors import ConfigError, UnknownIdError
from shortlist.recommend import similar_items
from tests.models.cases import fitted
from tests.recommend.toys import Toy, history

ITEMS = np.array([[2, 0], [0, 3], [5, 5], [-1, 0], [0, 0], [4, 0]], np.float32)


@pytest.fixture
def toy():
    return Toy(history([(0, 0)]), pair=(np.ones((4, 2), np.float32), ITEMS, np.arange(6, dtype=np.float32)))


def test_the_direction_counts_and_neither_length_nor_bias(toy):
    frame = similar_items(toy, "i0")
    assert frame.columns == ["item_id", "similarity"]
    # i1 at a right angle and i4 without a direction are equal: the smaller id first
    assert frame["item_id"].to_list() == ["i5", "i2", "i1", "i4", "i3"]
    assert frame["similarity"].to_list() == pytest.approx([1, np.sqrt(0.5), 0, 0, -1], abs=1e-6)
    assert similar_items(toy, "i0", N=2)["item_id"].to_list() == ["i5", "i2"]
    assert similar_items(toy, "i4", 2)["similarity"].to_list() == [0, 0]


def test_names_are_told_where_there_are_any(toy):
    toy.history = toy.history.with_item_names(toy.items_.values, pl.Series([f"thing {n}" for n in range(6)]))
    assert similar_items(toy, "i0", 1).row(0)[:2] == ("i5", "thing 5")


def test_strangers_nonsense_and_models_without_vectors_are_refused(toy):
    with pytest.raises(UnknownIdError, match="i77"):
        similar_items(toy, "i77")
    with pytest.raises(ConfigError, match="N must be at least 1, got 0"):
        similar_items(toy, "i0", N=0)
    with pytest.raises(ConfigError, match="got a Toy, whose scores are no inner products"):
        similar_items(Toy(history([(0, 0)]), np.zeros((4, 6))), "i0")


@pytest.mark.parametrize("name", ["BPRMF", "DKHRM"])
def test_a_model_finds_the_items_of_one_taste(name):
    found = fitted(name).similar_items("i04", N=9)["item_id"].to_list()
    assert {int(item[1:]) % 2 for item in found} == {0}
