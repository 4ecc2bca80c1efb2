"""min_rating: which rows count as liked, for every way to build interactions."""

import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError

RATINGS = [("ann", "tea", 1, 5), ("ann", "jam", 2, 3.5), ("bob", "tea", 1, 4), ("bob", "oil", 3, 1)]


def read(rows, **options):
    """Interactions of a table with a row per tuple."""
    names = ["user_id", "item_id", "timestamp", "weight"][: len(rows[0])]
    return sl.Interactions.from_frame(pl.DataFrame(rows, names, orient="row"), **options)


def weights(data):
    """(user, item) → weight."""
    return {(row["user_id"], row["item_id"]): row["weight"] for row in data.to_frame().to_dicts()}


def test_rows_below_are_dropped_and_counted_without_a_warning():
    data = read(RATINGS, min_rating=4)
    assert weights(data) == {("ann", "tea"): 5, ("bob", "tea"): 4}
    assert data.source.notes == ("2 of 4 rows have a rating below 4 (column 'weight') and were dropped.",)
    assert data.items.values.to_list() == ["tea"]  # items that nobody likes disappear


def test_rows_below_are_kept_as_negative_weights():
    data = read(RATINGS, min_rating=4, negative_weights="keep")
    liked = {("ann", "tea"): 5, ("bob", "tea"): 4}
    assert weights(data) == liked | {("ann", "jam"): -0.5, ("bob", "oil"): -3}
    assert "2 of 4 rows have a rating below 4" in data.source.notes[0]
    assert "kept as negative feedback" in data.source.notes[0]


def test_reading_the_liked_rows_again_changes_nothing():
    data = read(RATINGS, min_rating=4)
    again = sl.Interactions.from_frame(data.to_frame(), min_rating=4)
    assert weights(again) == weights(data)
    assert again.source.notes == ("0 of 2 rows have a rating below 4 (column 'weight') and were dropped.",)


def test_file(tmp_path):
    path = tmp_path / "ratings.csv"
    pl.DataFrame(RATINGS, ["user", "item", "date", "stars"], orient="row").write_csv(path)
    data = sl.read_interactions(path, min_rating=3.5)
    assert sorted(data.weight.tolist()) == [3.5, 4, 5]
    assert "1 of 4 rows have a rating below 3.5 (column 'stars')" in data.source.notes[0]


def test_no_row_is_left():
    with pytest.raises(DataError, match=r"4 of 4 rows have a rating below 9 .* leaves none") as caught:
        read(RATINGS, min_rating=9)
    assert caught.value.parameter == "min_rating"


def test_a_table_without_ratings_is_refused():
    with pytest.raises(DataError, match="min_rating needs a column of ratings"):
        read([row[:3] for row in RATINGS], min_rating=4)


@pytest.mark.parametrize("bad", ["4", float("nan"), float("inf"), True, [4]])
def test_other_values_are_refused(bad):
    with pytest.raises(ConfigError, match="min_rating must be a number"):
        read(RATINGS, min_rating=bad)
