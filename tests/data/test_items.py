"""Items: kinds of columns, what is said about them, and errors."""

import datetime as dt

import polars as pl
import pytest

from shortlist.data.items import Items, read_items
from shortlist.errors import DataError

TABLE = pl.DataFrame(
    {
        "sku": ["a", "b", "c", "d"],
        "title": ["Deep lakes", None, "Sea and lakes", "Old sea maps"],
        "brand": ["x", "x", "x", None],
        "tags": [["new"], [], None, ["old", "map"]],
        "price": [1.5, None, 3.0, float("nan")],
        "since": [dt.date(2024, 1, day) for day in (1, 2, 3, 4)],
        "vector": [[1.0, 0.0], None, [0.0, 2.0], [1.0, 1.0]],
        "code": ["q1", "q2", "q3", "q4"],
        "numbers": [[1, 2], [3], None, []],
    }
)


def test_kinds_are_recognized_and_said():
    items = Items.from_frame(TABLE)
    assert items.kinds == {
        "title": "text", "brand": "categories", "tags": "tags", "price": "numbers", "since": "dates",
        "vector": "vector",
    }  # fmt: skip
    assert items.source.columns["item_id"] == "sku"
    assert items.source.unused == ("code", "numbers")
    assert "code" in items.source.notes[0]
    assert items.names is not None
    assert items.names[0] == "Deep lakes"
    assert items.table["price"].null_count() == 2  # NaN is missing


@pytest.mark.parametrize("form", ["lazy", "to_pandas", "to_arrow"])
def test_tables_of_any_library(form):
    table = TABLE.select("sku", "title", "price")
    assert Items.from_frame(getattr(table, form)()).table.equals(Items.from_frame(table).table)


def test_named_columns_are_not_guessed():
    items = Items.from_frame(TABLE, text=["code"], numbers=[])
    assert items.columns_of("text") == ["code"]
    assert set(items.source.unused) == {"price", "numbers"}  # the title is the name
    assert not items.columns_of("numbers")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": pl.concat([TABLE, TABLE.head(1)])}, "one row, got 'a' more than once"),
        ({"item_id": "nope"}, "column of ids, got 'nope'"),
        ({"frame": TABLE.drop("sku")}, "column of ids, got none"),
        ({"text": ["nope"]}, "text must name columns"),
        ({"text": ["title"], "categories": ["title"]}, "must have one kind"),
        ({"numbers": ["title"]}, "must hold numbers"),
        ({"frame": TABLE.with_columns(pl.lit(None, pl.String).alias("sku"))}, "id is missing"),
        ({"frame": TABLE.with_columns(vector=pl.Series([[1.0], [1.0, 2.0], None, None]))}, "one length"),
        ({"frame": {"sku": [1]}}, "must be a polars, pandas or Arrow table"),
    ],
)
def test_errors_name_the_fault(change, message):
    with pytest.raises(DataError, match=message) as caught:
        Items.from_frame(**{"frame": TABLE} | change)
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_files_are_read(tmp_path, suffix):
    path = tmp_path / f"items.{suffix}"
    table = TABLE.select("sku", "title", "price", "since")
    {"csv": table.write_csv, "parquet": table.write_parquet, "jsonl": table.write_ndjson}[suffix](path)
    items = read_items(path)
    assert items.ids.values.to_list() == ["a", "b", "c", "d"]
    assert items.kinds["title"] == "text"
    assert items.source.label == str(path)


def test_rows_of_known_items_are_replaced():
    items = Items.from_frame(TABLE.select("sku", "title"))
    more = Items.from_frame(pl.DataFrame({"sku": ["b", "z"], "title": ["Blue bay", "Red reef"]}))
    both = items.merge(more)
    assert both.ids.values.to_list() == ["a", "c", "d", "b", "z"]
    assert both.table["title"].to_list()[-2:] == ["Blue bay", "Red reef"]
