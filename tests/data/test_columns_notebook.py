"""Display in notebooks: tables are short, escaped and bounded; pandas tables equal polars tables."""

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.core.tables import CHARACTERS, html
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError

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


def test_pandas_tables_equal_polars_tables(data, lists):
    for one in (data, lists):
        for names in (False, True):
            assert pl.DataFrame(one.to_pandas(names=names)).equals(one.to_frame(names=names))


def test_missing_pandas_is_reported(data, monkeypatch):
    def fail(_):
        raise ImportError("no pandas")

    monkeypatch.setattr(pl.DataFrame, "to_pandas", fail)
    with pytest.raises(DataError, match="to_pandas needs the packages pandas and pyarrow"):
        data.to_pandas()


def test_item_names_follow_selection_and_are_checked(lists):
    assert lists.take([2]).head(1).item_names is lists.item_names
    with pytest.raises(DataError, match="item_names must have 100 values, got 1"):
        RankedLists(
            lists.users,
            lists.item_ids,
            lists.indptr,
            lists.items,
            lists.scores,
            item_names=pl.Series(["one"]),
        )


def test_reprs_are_bounded(data, lists):
    long = IdMap.of(["y" * 1000, "z", "a", "b"])
    assert len(repr(long)) < 150
    assert repr(IdMap.of([1, 2])) == "IdMap(2 ids: 1, 2)"
    assert len(repr(lists["a"])) < 300
    assert repr(lists["b"]) == "RankedList(user 'b', 0 items: [], reason=None)"


def test_one_list_and_the_lengths_of_all(tmp_path):
    lists = sl.Popularity().fit(sl.load_dataset("sample")).recommend(["u1", "u2"], N=3)
    page = lists["u1"]._repr_html_()
    assert "3 items for user u1" in page
    assert "the same number of items for every user" in page
    assert page.count("<tr>") == 4
    assert (
        "<b>x"
        not in sl.RankedLists.from_frame(pl.DataFrame({"user_id": ["<b>x"], "item_id": ["<i>y"]}))[
            "<b>x"
        ]._repr_html_()
    )
    figure = lists.plot()
    assert figure.title == "List lengths of 2 users"
    assert figure.save(tmp_path / "lengths.svg").read_text().count("<rect") >= 5
    assert lists[:0].plot(longest=3).title == "List lengths of 0 users"
