"""Display in notebooks: tables are short, escaped and bounded."""

import numpy as np
import polars as pl
import pytest

from shortlist.core.tables import CHARACTERS, html
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def data():
    table = pl.DataFrame(
        {
            "user_id": [f"u{n}" for n in range(100)],
            "item_id": [EVIL, *[f"i{n}" for n in range(99)]],
            "timestamp": np.arange(100),
            "item_name": ["x" * 500, *["thing"] * 99],
        }
    )
    return Interactions.from_frame(table)


@pytest.fixture
def lists(data):
    return RankedLists(
        users=IdMap.of(["a", "b", "c"]),
        item_ids=data.items,
        indptr=np.array([0, 60, 60, 61]),
        items=np.r_[np.arange(60), 0].astype(np.int32),
        scores=np.linspace(1, 0, 61, dtype=np.float32),
        item_names=data.item_names,
    )


def test_html_of_interactions_is_short_and_escaped(data):
    page = data._repr_html_()
    assert "Interactions(100 rows, 100 users, 100 items, 100 baskets)" in page
    assert page.count("<tr>") == 6
    assert "95 more rows" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "x" * CHARACTERS not in page
    assert len(page) < 3000


def test_html_of_lists_is_short_and_shows_item_names(lists):
    page = lists._repr_html_()
    assert page.count("<tr>") == 1 + 5 + 1 + 1  # header, first items of a, empty list of b, list of c
    assert "item_name" in page
    assert "thing" in page
    assert "<script>" not in page
    assert len(page) < 5000


def test_html_of_empty_lists(lists):
    assert lists[:0]._repr_html_().count("<tr>") == 1


def test_numbers_are_rounded_and_nulls_are_blank():
    page = html(pl.DataFrame({"a": [0.123456789, None]}), "t")
    assert "<td>0.1235</td>" in page
    assert "<td></td>" in page
    assert "more rows" not in page


def test_item_names_are_a_column_on_request(data, lists):
    assert "item_name" not in data.to_frame().columns
    assert "item_name" not in lists.to_frame().columns
    names = dict(data.to_frame(names=True).select("item_id", "item_name").rows())
    assert names["i3"] == "thing"
    shown = lists.to_frame(names=True)
    assert shown.drop("item_name").equals(lists.to_frame())
    assert shown["item_name"].to_list() == [names.get(item) for item in shown["item_id"]]
