"""Interactions: rows are sorted, merged and grouped into baskets, from every source."""

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError

SECOND = 1_000_000
ROWS = [("b", "x", 20), ("a", "y", 10), ("b", "y", 10), ("a", "x", 10), ("b", "x", 10), ("a", "x", 30)]


def triples(data):
    """(user_id, item_id, seconds) of every row, in order."""
    frame = data.to_frame()
    return [
        (user, item, time.timestamp())
        for user, item, time in frame.with_columns(pl.col("timestamp").dt.replace_time_zone("UTC"))
        .select("user_id", "item_id", "timestamp")
        .rows()
    ]


def test_rows_are_sorted_by_user_time_and_item():
    data = Interactions.from_tuples(ROWS)
    assert triples(data) == sorted(ROWS, key=lambda row: (row[0], row[2], row[1]))
    assert data.indptr.tolist() == [0, 3, 6]
    assert (data.n_users, data.n_items, data.n_rows, data.n_baskets) == (2, 2, 6, 4)
    assert data.baskets.tolist() == [0, 2, 3, 5, 6]
    assert data.user_baskets.tolist() == [0, 2, 4]
    assert data.time.tolist()[:3] == [10 * SECOND, 10 * SECOND, 30 * SECOND]


row_lists = st.lists(
    st.tuples(st.text(min_size=1, max_size=3), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=60
)


@given(row_lists)
def test_duplicates_are_merged_and_counted(rows):
    data = Interactions.from_tuples(rows)
    assert triples(data) == sorted(set(rows), key=lambda row: (row[0], row[2], row[1]))
    assert data.duplicates == len(rows) - len(set(rows))
    assert data.n_baskets == len({(user, time) for user, _, time in rows})


@given(row_lists, st.randoms())
def test_input_order_does_not_matter(rows, random):
    shuffled = rows.copy()
    random.shuffle(shuffled)
    assert Interactions.from_tuples(rows).fingerprint == Interactions.from_tuples(shuffled).fingerprint


def test_all_tables_give_the_same_interactions():
    frame = pl.DataFrame(ROWS, schema=["user_id", "item_id", "timestamp"], orient="row")
    expected = Interactions.from_tuples(ROWS).fingerprint
    columns = frame.to_dict(as_series=False)
    for table in (frame, frame.lazy(), pd.DataFrame(columns), pa.table(columns), frame.to_arrow()):
        assert Interactions.from_frame(table).fingerprint == expected


def test_weights_of_merged_rows_are_added():
    data = Interactions.from_tuples([(1, 1, 5, 2.0), (1, 1, 5, 3.0), (1, 2, 5, 1.0)])
    assert data.duplicates == 1
    assert data.weight.tolist() == [5.0, 1.0]


def test_rows_of_a_basket_share_its_first_time():
    frame = pl.DataFrame(
        {
            "user_id": ["a", "a", "a", "a", "b"],
            "item_id": [1, 2, 3, 1, 1],
            "timestamp": [50, 10, 40, 60, 10],
            "order_id": ["o2", "o1", "o1", "o2", "o2"],
        }
    )
    data = Interactions.from_frame(frame)
    assert data.items.to_ids(data.item).to_list() == [2, 3, 1, 1]  # item 1, twice in o2, is merged
    assert (data.time // SECOND).tolist() == [10, 10, 50, 10]
    assert data.n_baskets == 3
    assert data.duplicates == 1


def test_without_times_a_user_has_one_basket_in_item_order():
    data = Interactions.from_tuples([("a", 2), ("a", 1), ("b", 2)])
    assert data.time is None
    assert data.item.tolist() == [0, 1, 1]
    assert data.n_baskets == 2


class TestCsr:
    matrix = csr_array(np.array([[0, 1.5, 0], [2, 0, 1]], np.float32))

    def test_round_trip_keeps_values_and_shape(self):
        data = Interactions.from_csr(self.matrix)
        assert (data.to_csr() != self.matrix).nnz == 0
        assert data.users.values.to_list() == [0, 1]

    def test_matrix_shares_memory(self):
        data = Interactions.from_csr(self.matrix)
        assert np.shares_memory(data.to_csr().indices, data.item)
        assert np.shares_memory(data.to_csr().data, data.weight)

    def test_users_and_items_without_rows_stay(self):
        data = Interactions.from_csr(csr_array((3, 4), dtype=np.float32), ["a", "b", "c"], range(4))
        assert (data.n_users, data.n_items, data.n_rows) == (3, 4, 0)

    def test_stored_zeros_are_not_interactions_and_the_input_is_unchanged(self):
        matrix = csr_array(([1.0, 0.0], [0, 1], [0, 2]), shape=(1, 2))
        assert Interactions.from_csr(matrix).n_rows == 1
        assert matrix.nnz == 2

    def test_values_of_one_are_not_weights(self):
        assert Interactions.from_csr(csr_array(np.eye(2))).weight is None

    def test_invalid_values_and_ids_are_rejected(self):
        with pytest.raises(DataError, match="matrix values must be finite"):
            Interactions.from_csr(csr_array(np.array([[np.nan, 1]])))
        with pytest.raises(DataError, match="got 1 user ids and 3 item ids"):
            Interactions.from_csr(self.matrix, user_ids=["a"])


class TestTuples:
    def test_invalid_shapes_and_mixed_types_are_rejected(self):
        for rows, got in (([], "no rows"), ([(1, 2), (1, 2, 3)], "lengths"), ([(1,)], "lengths")):
            with pytest.raises(DataError, match=got):
                Interactions.from_tuples(rows)
        with pytest.raises(DataError, match="ids must be strings or integers, all of one type"):
            Interactions.from_tuples([(1, 2), ("1", 2)])

    def test_integer_and_fractional_weights_mix(self):
        assert Interactions.from_tuples([(1, 1, 1, 1), (1, 2, 1, 0.5)]).weight.tolist() == [1.0, 0.5]

    def test_times_in_two_formats_are_rejected(self):
        with pytest.raises(DataError, match="row 2: all times must have one format"):
            Interactions.from_tuples([(1, 1, 1), (1, 2, "2024-01-01")])


def test_arrays_are_read_only():
    data = Interactions.from_tuples(ROWS)
    for array in (data.indptr, data.item, data.time, data.baskets, data.user_baskets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_input_arrays_stay_writable():
    time = np.array([3, 2, 1])
    Interactions.from_frame(pl.DataFrame({"user_id": [1, 1, 1], "item_id": [1, 2, 3], "timestamp": time}))
    time[0] = 5
    assert time.tolist() == [5, 2, 1]


def test_fingerprint_sees_every_part():
    base = [("a", 1, 10, 1.0), ("a", 2, 20, 1.0), ("b", 1, 10, 2.0)]
    changes = [
        [("c", 1, 10, 1.0), ("c", 2, 20, 1.0), ("b", 1, 10, 2.0)],
        [("a", 1, 10, 1.0), ("a", 3, 20, 1.0), ("b", 1, 10, 2.0)],
        [("a", 1, 10, 1.0), ("a", 2, 21, 1.0), ("b", 1, 10, 2.0)],
        [("a", 1, 10, 1.0), ("a", 2, 20, 1.5), ("b", 1, 10, 2.0)],
        [row[:3] for row in base],
    ]
    prints = {Interactions.from_tuples(rows).fingerprint for rows in [base, *changes]}
    assert len(prints) == 6
    # Saved models contain the fingerprint: if it changes, they no longer match their data.
    assert Interactions.from_tuples(base).fingerprint == "ad5c8e2649b9ea8538a788a63d3440a7"


def test_names_follow_their_items_through_selection():
    frame = pl.DataFrame(
        {
            "user": ["a", "a", "b"],
            "item": ["x", "z", "y"],
            "title": ["Ex", None, "Why"],
            "date": [date(2024, 1, 1)] * 3,
        }
    )
    data = Interactions.from_frame(frame)
    assert data.item_names.to_list() == ["Ex", "Why", "z"]
    assert data.where(data.user == 1).compact().item_names.to_list() == ["Why"]
    assert data.with_item_names(pl.Series(["y", "nobody"]), pl.Series(["New", "?"])).item_names.to_list() == [
        "x",
        "New",
        "z",
    ]


@given(row_lists, st.randoms())
def test_where_equals_building_from_the_rows_that_are_kept(rows, random):
    data = Interactions.from_tuples(rows)
    keep = np.array([random.random() < 0.6 for _ in range(data.n_rows)], bool)
    kept = [row for row, is_kept in zip(triples(data), keep, strict=True) if is_kept]
    part = data.where(keep)
    assert triples(part) == kept
    assert part.n_users == data.n_users
    assert part.active_users.tolist() == sorted({data.users.index(user) for user, _, _ in kept})
    assert part.n_baskets == len({(user, time) for user, _, time in kept})
    if kept:
        assert part.compact().fingerprint == Interactions.from_tuples(kept).fingerprint


def test_item_sets_are_distinct():
    sets = Interactions.from_tuples(ROWS).item_sets
    assert [sets.row(user).tolist() for user in range(2)] == [[0, 1], [0, 1]]
