"""What was read is said: columns, unused columns, unused times, returns, and the order of baskets."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import shortlist as sl
from shortlist.data.columns import DataSource
from shortlist.errors import ConfigError, DataError, DataWarning, ModelFileError


@pytest.fixture
def read(tmp_path):
    """Write a text file and read it."""

    def read(text, name="orders.csv", **options):
        path = tmp_path / name
        path.write_text(text)
        return sl.read_interactions(path, **options)

    return read


def warning_of(build):
    """The text of the only warning."""
    with pytest.warns(DataWarning) as caught:
        build()
    assert len(caught) == 1
    return str(caught[0].message)


ORDERS = "order_no,customer,sku,Product Name,purchased_at,qty,price\n" + "".join(
    f"{number},{user},{sku},name {sku},2024-05-0{number},1,9.99\n"
    for number, user, sku in [(1, "ann", "tea"), (2, "ann", "jam"), (3, "bob", "tea"), (4, "bob", "milk")]
)
COLUMNS = {
    "user_id": "customer",
    "item_id": "sku",
    "timestamp": "purchased_at",
    "weight": "qty",
    "basket_id": "order_no",
    "item_name": "Product Name",
}


class TestSource:
    def test_file(self, read, tmp_path):
        source = read(ORDERS).source
        assert source == DataSource(str(tmp_path / "orders.csv"), COLUMNS, ("price",))
        assert source.describe() == (
            "columns: user_id = customer, item_id = sku, timestamp = purchased_at, weight = qty, "
            "basket_id = order_no, item_name = Product Name; not used: price"
        )

    @pytest.mark.parametrize("convert", [pl.DataFrame, pl.LazyFrame, pd.DataFrame, pa.table])
    def test_table(self, convert):
        table = convert({"user": ["a", "b"], "item": [1, 2], "price": [1.0, 2.0]})
        source = sl.Interactions.from_frame(table).source
        assert source == DataSource("table", {"user_id": "user", "item_id": "item"}, ("price",))

    def test_parquet_json_and_database(self, read, tmp_path):
        frame = pl.DataFrame({"user": ["a", "b"], "item": [1, 2], "price": [1.0, 2.0]})
        frame.write_parquet(tmp_path / "e.parquet")
        frame.write_ndjson(tmp_path / "e.jsonl")
        for name in ("e.parquet", "e.jsonl"):
            assert sl.read_interactions(tmp_path / name).source.unused == ("price",)

    def test_a_database_names_the_columns_that_were_not_used(self, tmp_path):
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            connection.execute("CREATE TABLE events (user TEXT, item TEXT, price REAL, shipped_at TEXT)")
            connection.executemany(
                "INSERT INTO events VALUES (?, ?, 1.5, '2024-05-01')", [("a", "x"), ("b", "y")]
            )
        connection.close()
        uri = f"sqlite:///{tmp_path / 'shop.db'}"
        with pytest.warns(DataWarning, match="'shipped_at' looks like a time"):
            source = sl.read_interactions(uri, query="SELECT * FROM events").source
        assert source.label == "sqlite database"
        assert source.unused == ("price", "shipped_at")

    def test_dataset_and_tuples_and_matrix(self):
        assert sl.load_dataset("sample").source.label == "sample"
        assert sl.Interactions.from_tuples([("a", 1)]).source.columns == {
            "user_id": "user_id",
            "item_id": "item_id",
        }
        assert sl.Interactions.from_csr(csr_array(np.eye(2))).source is None

    def test_splits_filters_and_saved_models_keep_it(self, read, tmp_path):
        data = read(ORDERS)
        split = sl.split.last_basket(data)
        assert split.train.source == split.test.source == data.source
        assert data.compact().source == data.source
        assert data.concat(sl.Interactions.from_frame(data.to_frame())).source == data.source
        model = sl.Popularity().fit(data)
        loaded = sl.load_model(model.save(tmp_path / "shop.shortlist"))
        assert loaded.history_.source == DataSource("", COLUMNS, ("price",))

    def test_model_files_do_not_depend_on_the_name_of_the_data(self, read, tmp_path):
        files = [
            sl.Popularity().fit(read(ORDERS, name)).save(tmp_path / f"{name}.shortlist")
            for name in ("a.csv", "b.csv")
        ]
        assert files[0].read_bytes() == files[1].read_bytes()

    def test_malformed_source_in_a_model_is_refused(self, read, tmp_path, monkeypatch):
        model = sl.Popularity().fit(read(ORDERS))
        object.__setattr__(model.history_, "source", DataSource("", {"user_id": 5}))
        with pytest.raises(ModelFileError, match=r"'history\.source\.columns' must be a dictionary"):
            sl.load_model(model.save(tmp_path / "shop.shortlist"))

    def test_many_and_strange_columns_stay_on_one_line(self):
        line = DataSource("x", {"user_id": "a\nb"}, tuple(f"column {n}" * 20 for n in range(40))).describe()
        assert "\n" not in line
        assert "user_id = a\\nb" in line
        assert line.endswith("and 28 more")
        assert len(line) < 700


class TestTimes:
    @pytest.mark.parametrize(
        "name",
        [
            "purchased_at",
            "ordered_at",
            "order_ts",
            "event_timestamp",
            "created",
            "created_at",
            "placed_at",
            "date_time",
            "order_date",
            "invoice_date",
            "InvoiceDate",
            "ts",
            "timestamp_ms",
            "purchasedAt",
            "EventTime",
            "CREATED_ON",
            "orderTimestampMs",
            "created_at_utc",
            "sale_date",
            "transactionDate",
            "boughtAt",
        ],
    )
    def test_names_that_are_recognized(self, read, name):
        data = read(f"user,item,{name}\na,x,2024-05-01\nb,y,2024-05-02\n")
        assert data.source.columns["timestamp"] == name
        assert data.time is not None

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("purchased", ["2024-05-01", "2024-05-02"]),
            ("purchased", ["01.05.2024", "2.5.2024 13:45"]),
            ("wann", ["5/1/24 1:45 PM", "5/2/24 2:45 AM"]),
            ("bought", ["01-May-2024", "2 June 2024"]),
            ("when", ["1700000000", "1700000001"]),
            ("shipping_day", ["20240501", "20240502"]),
        ],
    )
    def test_unused_column_that_looks_like_a_time_is_a_warning(self, read, name, values):
        text = f"user,item,{name}\na,x,{values[0]}\nb,y,{values[1]}\n"
        message = warning_of(lambda: read(text))
        assert f"column '{name}' looks like a time and is not used" in message
        assert f"timestamp='{name}'" in message
        assert read(text, timestamp="").source.notes == ()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ean", "1700000000"),
            ("delivery_time", "express"),
            ("update", "7"),
            ("version", "1.2.3-beta"),
            ("day_no", "12"),
        ],
    )
    def test_other_columns_are_not(self, read, name, value):
        assert read(f"user,item,{name}\na,x,{value}\nb,y,{value}\n").source.notes == ()

    def test_no_warning_beside_a_time_that_is_used(self, read):
        assert (
            read(
                "user,item,date,shipped\na,x,2024-05-01,2024-05-02\nb,y,2024-05-01,2024-05-02\n"
            ).source.notes
            == ()
        )

    @pytest.mark.parametrize("convert", [pl.DataFrame, pl.LazyFrame, pd.DataFrame, pa.table])
    def test_column_of_datetimes(self, convert):
        days = pd.to_datetime(["2024-01-01", "2024-01-02"])
        table = convert({"user": ["a", "b"], "item": [1, 2], "x": days})
        assert "column 'x' looks like a time" in warning_of(lambda: sl.Interactions.from_frame(table))

    def test_warning_points_at_the_caller(self, read):
        with pytest.warns(DataWarning) as caught:
            read("user,item,when\na,x,2024-05-01\nb,y,2024-05-02\n")
        assert caught[0].filename == __file__


class TestMissingColumns:
    @pytest.mark.parametrize(
        "header",
        ["order_id,sku", "order_number,sku,date", "invoice_id,itemid,qty", "other_id,item,basket_id,cart_id"],
    )
    def test_no_order_is_suggested_as_the_user(self, read, header):
        for options in ({}, {"user_id": "userid"}):
            with pytest.raises(DataError) as caught:
                read(f"{header}\n" + "1" + ",1" * header.count(",") + "\n", **options)
            assert "did you mean" not in str(caught.value) or "'other_id'" in str(caught.value)
            assert not any(
                f"mean '{name}'" in str(caught.value) for name in header.split(",") if "other" not in name
            )

    def test_columns_of_people_are_suggested(self, read):
        with pytest.raises(DataError, match="did you mean 'shopper_hash'\\?"):
            read("order_id,shopper_hash,sku\n1,2,3\n")

    def test_an_address_is_the_user_if_nothing_else_is(self, read):
        text = "order_id,customer_email,sku\n1,a@x,3\n2,b@x,4\n"
        assert read(text).source.columns["user_id"] == "customer_email"
        both = text.replace("sku", "sku,customer_id").replace("3\n", "3,7\n").replace("4\n", "4,8\n")
        assert read(both).source.columns["user_id"] == "customer_id"


RETURNS = "user,item,date,qty\na,x,2024-01-01,2\na,y,2024-01-02,-1\nb,w,2024-01-03,1\nc,z,2024-01-04,-3\n"


class TestReturns:
    def test_dropped_and_counted(self, read):
        message = warning_of(lambda: read(RETURNS, negative_weights="drop"))
        assert "2 of 4 rows have a negative weight (column 'qty')" in message
        assert "negative_weights='keep'" in message
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            data = read(RETURNS, negative_weights="drop")
        assert data.to_frame().select("user_id", "item_id", "weight").rows() == [
            ("a", "x", 2.0),
            ("b", "w", 1.0),
        ]
        assert (data.n_users, data.n_items) == (2, 2)  # c and z only occur in returns
        assert data.source.notes == (message,)

    def test_kept_if_asked(self, read):
        data = read(RETURNS, negative_weights="keep")
        assert data.n_rows == 4
        assert data.weight.min() == -3
        assert "2 of 4 rows have a negative weight" in data.source.notes[0]

    def test_basket_time_comes_from_rows_that_are_kept(self):
        table = pl.DataFrame(
            {
                "user": ["a", "a", "b"],
                "item": [1, 2, 1],
                "order_id": [7, 7, 8],
                "date": ["2024-01-01", "2024-01-05", "2024-01-02"],
                "qty": [-1, 1, 1],
            }
        )
        data = sl.Interactions.from_frame(table)
        assert "1 of 3 rows have a negative weight" in data.source.notes[0]
        assert data.to_frame()["timestamp"].dt.day().to_list() == [5, 2]

    def test_only_returns_are_an_error(self, read):
        with pytest.raises(DataError, match=r"2 of 2 rows have a negative weight .* leaves none"):
            read("user,item,qty\na,x,-1\nb,y,-2\n")

    def test_matrix(self):
        matrix = csr_array(np.array([[1.0, -1], [0, 2]]))
        with pytest.warns(DataWarning, match="1 negative values of the matrix"):
            assert sl.Interactions.from_csr(matrix).n_rows == 2
        assert sl.Interactions.from_csr(matrix, negative_weights="keep").n_rows == 3
        assert matrix.nnz == 3

    @pytest.mark.parametrize("bad", ["remove", None, True])
    def test_other_options_are_refused(self, read, bad):
        with pytest.raises(ConfigError, match="negative_weights must be one of subtract, drop, keep"):
            read(RETURNS, negative_weights=bad)


def baskets(numbers):
    """Two users who buy item n in basket number n."""
    return "user,item,order_id\n" + "".join(f"{user},{n},{n}\n" for user in "ab" for n in numbers)


class TestBasketOrder:
    def test_numbers_are_ordered_as_numbers(self, read):
        data = read(baskets([9, 10, 2]))
        assert sl.split.last_basket(data).test.items.to_ids(
            sl.split.last_basket(data).test.item
        ).to_list() == [10, 10]
        assert "ordered by the number in column 'order_id'" in data.source.notes[0]

    def test_strings_of_digits_are_ordered_as_numbers(self):
        table = pl.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 1], "order_id": ["9", "10", "3"]})
        test = sl.split.last_basket(table).test
        assert test.items.to_ids(test.item).to_list() == [2]

    @pytest.mark.parametrize("ids", [["A9", "A10"], ["7", "007"]])
    def test_strings_are_refused(self, ids):
        table = pl.DataFrame({"user": ["a", "a", "b", "b"], "item": [1, 2, 1, 2], "order_id": [*ids, *ids]})
        with pytest.warns(DataWarning, match="the order of the baskets is unknown"):
            data = sl.Interactions.from_frame(table)
        for part in (data, data.compact(), data.where(np.ones(4, bool)), data.concat(data)):
            for split in (sl.split.last_basket, sl.split.last_items):
                with pytest.raises(
                    DataError, match=r'needs the order of the baskets.*pass the timestamp.*basket_id=""'
                ):
                    split(part)
        with pytest.raises(DataError, match="needs the order of the baskets"):
            sl.fit(data, budget="quick")
        times = table.with_columns(date=pl.Series(["2024-01-02", "2024-01-01"] * 2))
        test = sl.split.last_basket(times).test
        assert test.items.to_ids(test.item).to_list() == [1, 1]

    def test_saved_models_remember_that_the_order_is_unknown(self, tmp_path):
        table = pl.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 1], "order_id": ["x", "y", "z"]})
        with pytest.warns(DataWarning):
            model = sl.Popularity().fit(table)
        loaded = sl.load_model(model.save(tmp_path / "m.shortlist"))
        with pytest.raises(DataError, match="needs the order of the baskets"):
            sl.split.last_basket(loaded.history_)


def jsonl(*users):
    return "".join(json.dumps({"user": user, "item": n}) + "\n" for n, user in enumerate(users))


class TestJsonIds:
    @pytest.mark.parametrize("users", [(1, "1"), ("1", 1), ("a", 1, "b"), ("1.0", 1.0), (1, "a")])
    def test_numbers_and_strings_are_not_one_user(self, read, users):
        with pytest.raises(
            DataError, match=r"column 'user', row \d: .*write all ids as strings, or all as integers"
        ):
            read(jsonl(*users), "e.jsonl")

    @pytest.mark.parametrize("other", ["a", 7])
    @pytest.mark.parametrize("bad", [True, 1.5])
    def test_other_values_are_no_ids(self, read, bad, other):
        for users, row in (((other, bad), 2), ((bad, other), 1), ((bad, bad), 1)):
            with pytest.raises(
                DataError, match=rf"column 'user', row {row}: |ids must be strings or integers|as Int64"
            ):
                read(jsonl(*users), "e.jsonl")

    @pytest.mark.parametrize("users", [("a", {"id": 1}), ({"id": 1}, 7), ({}, {}), (["a"], ["b"]), ([], "a")])
    def test_objects_beside_other_values_and_lists(self, read, users):
        with pytest.raises(DataError):
            read(jsonl(*users), "e.jsonl")

    @pytest.mark.parametrize("bad", ["", None])
    def test_empty_ids(self, read, bad):
        with pytest.raises(DataError, match="column 'user', row 2: an id must not be empty"):
            read(jsonl("a", bad), "e.jsonl")

    def test_baskets_and_compressed_files(self, tmp_path):
        import gzip

        rows = [{"user": "a", "item": 1, "order_id": "5"}, {"user": "b", "item": 2, "order_id": 5}]
        with gzip.open(tmp_path / "e.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        with pytest.raises(DataError, match="column 'order_id', row 2"):
            sl.read_interactions(tmp_path / "e.jsonl.gz")

    def test_strings_that_look_like_other_values_are_fine(self, read):
        data = read(jsonl("1", "true", "{", "[]", 'a"user": 1'), "e.jsonl")
        assert data.n_users == 5

    def test_lists(self, tmp_path):
        path = tmp_path / "lists.jsonl"
        path.write_text('{"user_id": 1, "item_id": "a"}\n{"user_id": "1", "item_id": "b"}\n')
        with pytest.raises(DataError, match="column 'user_id', row 1: all ids must have one type"):
            sl.RankedLists.read(path)

    def test_deep_nesting_is_a_sentence(self, read):
        deep = '{"user": "a", "item": 1, "z": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
        with pytest.raises(DataError, match="must be lines of JSON objects") as caught:
            read(deep, "e.jsonl")
        assert len(str(caught.value)) < 400


class TestHeaders:
    def test_repeated_name_in_text(self, read):
        with pytest.raises(DataError, match="every column must have its own name, got 'user' twice"):
            read("user,item,user\na,x,b\nb,y,c\n")
        with pytest.raises(DataError, match="got 'price' twice"):
            read("user,item,price,price\na,x,1,2\nb,y,3,4\n")

    def test_columns_without_a_name_may_repeat(self, read):
        assert read("user,item,,\na,x,,\nb,y,,\n").n_rows == 2

    def test_repeated_name_in_tables_and_lists(self, tmp_path):
        rows, names = [["a", "x", "b"], ["b", "y", "c"]], ["user", "item", "user"]
        columns = [list(column) for column in zip(*rows, strict=True)]
        for table in (pd.DataFrame(rows, columns=names), pa.table(columns, names=names)):
            with pytest.raises(DataError, match="got 'user' twice"):
                sl.Interactions.from_frame(table)
        path = tmp_path / "lists.csv"
        path.write_text("user_id,item_id,user_id\na,x,b\n")
        with pytest.raises(DataError, match="got 'user_id' twice"):
            sl.RankedLists.read(path)


class TestTuples:
    @pytest.mark.parametrize(
        "bad", [True, None, float("nan"), "", ("a",), ["a"], {"a": 1}, b"a", 2.0, np.arange(2)]
    )
    def test_values_that_are_no_ids(self, bad):
        for row in ((bad, "x"), ("a", bad)):
            with pytest.raises(DataError, match=r"row 2: (ids must be strings|an id must not be empty)"):
                sl.Interactions.from_tuples([("a", "x"), row])

    def test_one_type(self):
        with pytest.raises(DataError, match=r"item_id, row 2: ids must be .* of one type, got str '1'"):
            sl.Interactions.from_tuples([("a", 1), ("b", "1")])


@pytest.mark.parametrize("value", [[""], ["a", ""]])
def test_empty_strings_in_frames(value):
    with pytest.raises(DataError, match="an id must not be empty, got an empty string"):
        sl.Interactions.from_frame(pl.DataFrame({"user": value, "item": range(len(value))}))
