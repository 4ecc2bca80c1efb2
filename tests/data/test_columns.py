"""Finding columns by name and alias, and the errors for invalid tables."""

import math
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from shortlist.data.columns import ALIASES, Table, find_column
from shortlist.data.read_options import ReadOptions
from shortlist.errors import DataError


class Found:
    """All columns of a table."""

    def __init__(self, frame, **given):
        table = Table(frame, ReadOptions(**given, future=None))
        self.user_id, self.item_id = table.required_ids("user_id"), table.required_ids("item_id")
        self.time, self.weight = table.times(), table.weights()
        self.basket_id, self.item_name = table.ids("basket_id"), table.labels()


PLAIN = {"user_id": ["a", "b"], "item_id": [1, 2]}


@pytest.mark.parametrize(
    ("user", "item", "time", "weight"),
    [
        ("user_id", "item_id", "timestamp", "weight"),
        ("user", "item", "datetime", "rating"),
        ("userId", "movieId", "date", "Rating"),
        ("CUSTOMER_ID", "PRODUCT_ID", "TRANSACTION_DT", "quantity"),
        ("user_id:token", "item_id:token", "timestamp:float", "rating:float"),
        ("visitorid", "itemid", "ts", "plays"),
        ("Customer ID", "StockCode", "InvoiceDate", "Quantity"),
    ],
)
def test_conventional_names_and_aliases_are_found(user, item, time, weight):
    frame = pl.DataFrame({"noise": [0, 0], user: ["a", "b"], item: [1, 2], time: [5, 6], weight: [0.5, 2]})
    found = Found(frame)
    assert found.user_id.to_list() == ["a", "b"]
    assert found.item_id.to_list() == [1, 2]
    assert found.time.tolist() == [5_000_000, 6_000_000]
    assert found.weight.tolist() == [0.5, 2.0]


def test_given_names_win_over_aliases_and_empty_ignores_a_column():
    frame = pl.DataFrame({**PLAIN, "buyer": ["x", "y"], "rating": [1, 2], "title": ["A", None]})
    found = Found(frame, user_id="buyer", weight="")
    assert found.user_id.to_list() == ["x", "y"]
    assert found.weight.size == 0
    assert found.item_name.to_list() == ["A", None]


def test_recbole_column_can_be_named_without_its_type():
    found = Found(pl.DataFrame({"who:token": [1], "what:token": [2]}), user_id="who", item_id="what")
    assert found.item_id.to_list() == [2]


def test_conventional_name_wins_over_aliases():
    found = Found(pl.DataFrame({**PLAIN, "customer_id": ["c", "d"], "userId": ["e", "f"]}))
    assert found.user_id.to_list() == ["a", "b"]


def test_polars_pandas_and_arrow_tables_give_the_same_columns():
    columns = {**PLAIN, "weight": [1.0, 2.0]}
    for table in (pl.DataFrame(columns), pl.LazyFrame(columns), pd.DataFrame(columns), pa.table(columns)):
        found = Found(table)
        assert found.user_id.to_list() == ["a", "b"]
        assert found.weight.tolist() == [1.0, 2.0]


def test_pandas_columns_may_be_numbers():
    assert Found(pd.DataFrame([["a", 1], ["b", 2]]), user_id="0", item_id="1").item_id.to_list() == [1, 2]


def test_categories_become_strings():
    frame = pd.DataFrame({"user_id": pd.Categorical(["b", "a"]), "item_id": [1, 2]})
    assert Found(frame).user_id.to_list() == ["b", "a"]


def test_pandas_and_arrow_are_not_imported():
    code = """
import sys
import polars as pl
from shortlist.data.interactions import Interactions
Interactions.from_frame(pl.DataFrame({"user_id": [1, 2], "item_id": ["a", "b"], "date": ["2024-01-01"] * 2}))
print(sorted({"pandas", "pyarrow"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def error_of(frame, **given):
    with pytest.raises(DataError) as caught:
        Found(frame, **given)
    return str(caught.value)


class TestErrors:
    def test_missing_column(self):
        message = error_of(pl.DataFrame({"usr_id": [1], "item_id": [2]}))
        assert "must have a column 'user_id'" in message
        assert "did you mean 'usr_id'?" in message
        assert "user_id='…'" in message
        message = error_of(pl.DataFrame({"user_id": [1], "x": [2]}))
        assert "'item_id'" in message
        assert "the columns are 'user_id', 'x'" in message

    def test_given_column_that_does_not_exist(self):
        message = error_of(pl.DataFrame({**PLAIN, "score": [1, 2]}), weight="scores")
        assert message == "weight must name a column of the table, got 'scores'; did you mean 'score'?"

    def test_required_column_cannot_be_ignored(self):
        assert "user_id must name a column" in error_of(pl.DataFrame(PLAIN), user_id="")

    def test_ambiguous_aliases(self):
        message = error_of(pl.DataFrame({"user": [1], "customer_id": [1], "item": [1]}))
        assert "'user' or 'customer_id'" in message
        assert "user_id='user')" in message
        message = error_of(pl.DataFrame({**PLAIN, "date": [1, 2], "time": [1, 2]}))
        assert "use none by read_interactions(…, timestamp='')" in message

    def test_one_column_for_two_roles(self):
        assert "must be different columns" in error_of(pl.DataFrame(PLAIN), user_id="item_id")

    @pytest.mark.parametrize("column", ["user_id", "item_id", "basket_id"])
    def test_null_ids(self, column):
        frame = pl.DataFrame({**PLAIN, "basket_id": [1, 2], column: [7, None]})
        assert f"column '{column}', row 2: an id must not be empty" in error_of(frame)

    def test_product_titles_are_names(self):
        frame = pl.DataFrame({"user_id": ["a"], "SKU": ["x"], "Product title": ["Tea"]})
        assert find_column("item_name", frame.columns) == "Product title"

    def test_the_number_of_incomplete_rows_is_named(self):
        frame = pl.DataFrame({"user_id": ["a", None, "b", None], "item_id": [1, 2, 3, 4]})
        assert "row 2: an id must not be empty, got null in 2 of 4 rows" in error_of(frame)
        frame = pl.DataFrame({**PLAIN, "weight": [None, -1]})
        message = error_of(frame)
        assert "got null (1 of 2 rows have none)" in message
        assert "use no weights, which counts returns as purchases" in message

    def test_null_ids_in_pandas(self):
        assert "column 'user_id', row 1" in error_of(
            pd.DataFrame({"user_id": [None, "a"], "item_id": [1, 2]})
        )

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, 1e300])
    def test_weights_that_are_not_finite(self, bad):
        message = error_of(pl.DataFrame({**PLAIN, "weight": pl.Series([1.0, bad], dtype=pl.Float64)}))
        assert "column 'weight', row 2: a weight must be a finite number" in message
        assert "weight=''" in message

    def test_weights_that_are_not_numbers(self):
        assert "row 2: a weight must be a finite number, got 'x'" in error_of(
            pl.DataFrame({**PLAIN, "weight": ["1", "x"]})
        )
        assert "weights must be numbers" in error_of(pl.DataFrame({**PLAIN, "weight": [[1], [2]]}))

    def test_ids_of_other_types(self):
        assert "got Float64; cast the column" in error_of(pl.DataFrame({**PLAIN, "user_id": [1.0, 2.0]}))

    def test_mixed_types_in_pandas(self):
        assert "one type" in error_of(pd.DataFrame({"user_id": [1, "a"], "item_id": [1, 2]}))

    def test_no_rows_and_no_columns(self):
        assert "at least one row" in error_of(pl.DataFrame({"user_id": [], "item_id": []}))
        assert "the table has no columns" in error_of(pl.DataFrame())

    def test_other_objects_are_rejected(self):
        assert "got ndarray" in error_of(np.zeros((2, 2)))
        assert "got dict" in error_of(PLAIN)


def test_every_role_has_aliases_that_no_other_role_has():
    spellings = [alias for aliases in ALIASES for alias in aliases.split()]
    assert len(spellings) == len(set(spellings))
    for role, aliases in ALIASES._asdict().items():
        assert aliases.split()[0] == role.replace("_", "")
        assert all(find_column(role, ["other", alias]) == alias for alias in aliases.split())
