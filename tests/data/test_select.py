"""Nested columns as paths, and rows by conditions in SQL."""

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError


def notes(data):
    return " ".join(data.source.notes)


class TestNested:
    ROWS = (
        {"user": {"id": "a"}, "when": 1, "cart": {"lines": [{"sku": "x", "n": 1}, {"sku": "y", "n": 2}]}},
        {"user": {"id": "b"}, "when": 2, "cart": {"lines": []}},
        {"user": {"id": "c"}, "when": 3, "cart": {"lines": [{"sku": "y", "n": 1}]}},
    )

    def test_paths(self, tmp_path):
        path = tmp_path / "e.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in self.ROWS))
        data = sl.read_interactions(
            path, user_id="user.id", item_id="cart.lines[].sku", weight="cart.lines[].n", timestamp="when"
        )
        assert data.to_frame().select("user_id", "item_id", "weight").rows() == [
            ("a", "x", 1.0),
            ("a", "y", 2.0),
            ("c", "y", 1.0),
        ]
        assert "1 rows with an empty list 'cart.lines' were dropped" in notes(data)
        assert (
            data.fingerprint
            == sl.read_interactions(path, timestamp="when", weight="cart.lines[].n").fingerprint
        )

    def test_parquet_and_conditions_on_paths(self, tmp_path):
        pl.DataFrame(self.ROWS).write_parquet(tmp_path / "e.parquet")
        data = sl.read_interactions(
            tmp_path / "e.parquet", timestamp="when", where="cart.lines[].n < 2", weight=""
        )
        assert data.to_frame().select("user_id", "item_id").rows() == [("a", "x"), ("c", "y")]

    def test_lists_of_plain_values(self):
        table = pl.DataFrame({"user": ["a", "b"], "bought": [["x", "y"], ["y"]]})
        assert sl.read_interactions(table, item_id="bought[]").n_rows == 3

    def test_two_lists_are_refused(self):
        table = pl.DataFrame({"user": ["a"], "p": [[{"id": 1}]], "q": [[{"n": 1}]]})
        with pytest.raises(DataError, match=r"one list only, got 'p\[\]' and 'q\[\]'"):
            sl.read_interactions(table, item_id="p[].id", weight="q[].n")

    def test_an_object_as_an_id_says_its_path(self):
        table = pl.DataFrame({"user": ["a", "b"], "item": [{"a": 1}, {"a": 2}]})
        with pytest.raises(DataError, match=r"'item\.a'"):
            sl.read_interactions(table)


TABLE = pl.DataFrame(
    {
        "user": ["a", "a", "b", "c"],
        "item": ["x", "y", "x", "y"],
        "what happened": ["view", "purchase", "purchase", None],
        "price": ["1,50", "2,00", "3,00", "4,00"],
    }
)


class TestWhere:
    @pytest.mark.parametrize(
        ("condition", "n_rows"),
        [
            ("\"what happened\" = 'purchase'", 2),
            ("\"what happened\" <> 'purchase'", 1),
            ("\"what happened\" in ('view', 'purchase') and price > 1.5", 2),
            ("price between 2 and 3 or user = 'c'", 3),
            ("lower(\"what happened\") like 'pur%'", 2),
            ("user = 'a(b)' or item = 'x'", 2),
        ],
    )
    def test_rows(self, condition, n_rows):
        data = sl.read_interactions(TABLE, where=condition, training=False)
        assert data.n_rows == n_rows
        assert f"{4 - n_rows} of 4 rows are not where" in notes(data)

    def test_files(self, tmp_path):
        TABLE.write_csv(tmp_path / "e.csv")
        TABLE.write_parquet(tmp_path / "e.parquet")
        TABLE.write_ndjson(tmp_path / "e.jsonl")
        for name in ("e.csv", "e.parquet", "e.jsonl"):
            data = sl.read_interactions(tmp_path / name, where="\"what happened\" = 'purchase'")
            assert data.to_frame()["user_id"].to_list() == ["a", "b"]

    @pytest.mark.parametrize(
        "bad",
        [
            "",
            5,
            "event = ",
            "nothing = 'x'",
            "price",
            "1 = 1",
            "user = 3",
            "user in (select user from self)",
            "read_csv('e.csv') = 1",
            "rpad(user, 1000000000, 'x') = 'a'",
            "count(user) > 1",
            "user = 'a'; drop table x",
            "__import__('os') = 1",
            "user = 'a' -- " + "x" * 3000,
            "(" * 500 + "user = 'a'" + ")" * 500,
        ],
    )
    def test_other_text_is_refused(self, bad):
        with pytest.raises(ConfigError, match=r"where must be a (condition in SQL|text or a list)") as caught:
            sl.read_interactions(TABLE, where=bad)
        assert len(str(caught.value)) < 600

    def test_no_row_is_left(self):
        with pytest.raises(DataError, match=r"got none of 4 .*'purchase'"):
            sl.read_interactions(TABLE, where="\"what happened\" = 'buy'")

    def test_of_several_conditions_all_must_be_true(self, tmp_path):
        TABLE.write_csv(tmp_path / "e.csv")
        conditions = ["\"what happened\" = 'purchase'", "price > 2.5", "true"]
        data = sl.read_interactions(tmp_path / "e.csv", where=conditions, training=False)
        assert data.to_frame()["user_id"].to_list() == ["b"]
        assert "2 of 4 rows are not where" in notes(data)
        assert "1 of 2 rows are not where price > 2.5" in notes(data)
