"""Exports from file to the right rows: counts and rows are those of pandas."""

import json
import re

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError, DataWarning
from tests import exports


def truth(rows):
    """(users, items, baskets, rows) of distinct order lines."""
    distinct = rows.drop_duplicates(["user", "item", "order"])
    return distinct["user"].nunique(), distinct["item"].nunique(), distinct["order"].nunique(), len(distinct)


def counts(data):
    return data.n_users, data.n_items, data.n_baskets, data.n_rows


def notes(data):
    return " ".join(data.source.notes)


@pytest.mark.parametrize("seed", range(3))
class TestRecognized:
    """The plain call reads what was bought, and prints what it left out."""

    def test_shopify(self, tmp_path, seed):
        expected = exports.shopify(tmp_path / "orders.csv", seed)
        data = sl.read_interactions(tmp_path / "orders.csv")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()
        assert "SKU-4" in data.items.values
        assert "Product 3" in data.items.values  # it has no SKU
        for words in ("Shopify", "cancelled orders", "refunded", "test orders", "no 'Email'"):
            assert words in notes(data)

    def test_german_excel(self, tmp_path, seed):
        expected = exports.german_excel(tmp_path / "export.csv", seed)
        data = sl.read_interactions(tmp_path / "export.csv")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()
        assert data.item_labels([0]) == ["Tüte 0"]
        assert data.time.min() == expected["when"].min().floor("min").timestamp() * 1e6
        for words in ("semicolons", "cp1252", "%d.%m.%Y %H:%M", "decimal commas", "40 of", "subtracted"):
            assert words in notes(data)

    def test_clickstream(self, tmp_path, seed):
        expected = exports.clickstream(tmp_path / "events.ndjson", seed)
        data = sl.read_interactions(
            tmp_path / "events.ndjson", where="event = 'purchase'", basket_id="session"
        )
        assert counts(data) == truth(expected)
        assert data.source.columns["item_id"] == "item.id"

    def test_ga4(self, tmp_path, seed):
        expected = exports.ga4(tmp_path / "events.json", seed)
        data = sl.read_interactions(tmp_path / "events.json")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()
        assert {"u1", "2.17"} <= set(data.users.values)
        assert "GA4" in notes(data)

    def test_woocommerce(self, tmp_path, seed):
        expected = exports.woocommerce(tmp_path / "orders.csv", seed)
        data = sl.read_interactions(tmp_path / "orders.csv")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()

    def test_matomo(self, tmp_path, seed):
        expected = exports.matomo(tmp_path / "visits.json", seed)
        data = sl.read_interactions(tmp_path / "visits.json")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()

    def test_amazon_seller(self, tmp_path, seed):
        expected = exports.amazon_seller(tmp_path / "report.txt", seed)
        data = sl.read_interactions(tmp_path / "report.txt")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()

    def test_magento(self, tmp_path, seed):
        expected = exports.magento(tmp_path / "items.csv", seed)
        data = sl.read_interactions(tmp_path / "items.csv")
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()
        assert data.source.columns["item_id"] == "sku"  # item_id is the number of the line

    def test_prestashop(self, tmp_path, seed):
        expected = exports.prestashop(tmp_path / "details.csv", seed)
        data = sl.read_interactions(tmp_path / "details.csv")
        assert counts(data) == truth(expected)

    def test_etsy(self, tmp_path, seed):
        expected = exports.etsy(tmp_path / "sold.csv", seed)
        data = sl.read_interactions(tmp_path / "sold.csv")
        assert counts(data) == truth(expected)
        assert "'SKU' is empty" in notes(data)
        assert "'Transaction ID' differs in every row" in notes(data)


class TestAdvice:
    """The condition that a doubt suggests gives the right rows when it is copied."""

    @pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
    @pytest.mark.parametrize("language", ["french", "spanish"])
    def test_states(self, tmp_path, language, encoding):
        expected = exports.with_states(tmp_path / "e.csv", language, encoding)
        with pytest.warns(DataWarning, match="some rows are no purchases") as caught:
            sl.read_interactions(tmp_path / "e.csv")
        (advice,) = re.findall(r'where="(.*?)"', str(caught[0].message))[:1]
        data = sl.read_interactions(tmp_path / "e.csv", where=advice)
        assert counts(data) == truth(expected)
        assert data.weight.sum() == expected["quantity"].sum()
        assert data.source.doubts == ()

    def test_documents(self, tmp_path):
        expected = exports.mongo(tmp_path / "e.jsonl")
        data = sl.read_interactions(
            tmp_path / "e.jsonl", where="status <> 'cancelled' and createdAt.$date > '2000'"
        )
        assert counts(data) == truth(expected)

    def test_flat_visits(self, tmp_path):
        (tmp_path / "v.csv").write_text("visitorId,itemSKU (actionDetails 2 itemDetails 0)\nv,s\n")
        with pytest.raises(DataError, match=r"must be exported as JSON"):
            sl.read_interactions(tmp_path / "v.csv")

    @pytest.mark.parametrize("line", [[f"p{k}" for k in range(30)], ["0", "1", "4.5"] * 10])
    def test_a_matrix(self, tmp_path, line):
        (tmp_path / "m.csv").write_text(f"{','.join(line)}\n{','.join('1' * 30)}\n")
        with pytest.raises(DataError, match=r"one row per user and item"):
            sl.read_interactions(tmp_path / "m.csv")

    def test_no_header(self, tmp_path):
        (tmp_path / "m.csv").write_text("1,10,5\n2,11,3\n")
        with pytest.raises(DataError, match=r"header='user_id,item_id") as caught:
            sl.read_interactions(tmp_path / "m.csv")
        assert caught.value.parameter == "header"
        data = sl.read_interactions(tmp_path / "m.csv", header="user_id,item_id,weight")
        assert data.weight.tolist() == [5, 3]

    def test_several_candidates(self):
        rows = {"user": ["a", "a", "b", "b"], "sku": [1, 2, 1, 2]}
        same = pl.DataFrame(rows | {"product_code": ["x", "y", "x", "y"]})
        for table in (same, same.lazy(), same.to_pandas(), same.to_arrow()):
            data = sl.read_interactions(table)
            assert "item_id is column 'sku'; 'product_code' tells the same rows apart" in notes(data)
        with pytest.raises(DataError, match="item_id must match one column"):
            sl.read_interactions(pl.DataFrame(rows | {"product_code": ["x", "x", "x", "y"]}))

    def test_dates_with_the_name_of_a_month(self):
        for text, expected in (
            ("May 1, 2024", "%B %d, %Y"),
            ("May-01-24", "%B-%d-%y"),
            ("1 May 2024 08:30", "%d %B %Y %H:%M"),
            ("01-MAY-2024", "%d-%B-%Y"),
        ):
            data = sl.read_interactions(
                pl.DataFrame({"user": ["a", "b"], "item": [1, 2], "date": [text] * 2})
            )
            assert expected in notes(data)
            assert data.time[0] // 86_400_000_000 == 19_844


class TestChoices:
    def test_a_plain_table_can_be_asked_for(self, tmp_path):
        exports.woocommerce(tmp_path / "orders.csv")
        every = len(pd.read_csv(tmp_path / "orders.csv"))
        data = sl.read_interactions(
            tmp_path / "orders.csv",
            format="csv",
            user_id="billing_email",
            where="true",
            basket_id="order_id",
            item_id="item_product_id",
        )
        assert data.n_rows + data.duplicates == every
        assert "recognized" not in notes(data)

    def test_a_condition_on_the_event_replaces_the_rule(self, tmp_path):
        exports.ga4(tmp_path / "e.jsonl")
        data = sl.read_interactions(tmp_path / "e.jsonl", where="event_name = 'view_item'")
        assert data.n_rows == 400

    def test_named_columns_take_precedence(self, tmp_path):
        exports.shopify(tmp_path / "o.csv")
        data = sl.read_interactions(tmp_path / "o.csv", item_id="Lineitem name", item_name="")
        assert data.source.columns["item_id"] == "Lineitem name"
        assert data.item_names is None

    def test_the_format_can_be_named_for_any_file_name(self, tmp_path):
        expected = exports.ga4(tmp_path / "events-000000000000")
        assert counts(sl.read_interactions(tmp_path / "events-000000000000", format="ga4")) == truth(expected)

    def test_a_report_without_buyers(self, tmp_path):
        exports.amazon_seller(tmp_path / "r.txt")
        table = pd.read_csv(tmp_path / "r.txt", sep="\t").drop(columns="buyer-email")
        table.to_csv(tmp_path / "r.txt", sep="\t", index=False)
        with pytest.raises(DataError, match="must have a column that names the buyer"):
            sl.read_interactions(tmp_path / "r.txt")

    def test_tables_in_memory(self, tmp_path):
        expected = exports.shopify(tmp_path / "o.csv")
        table = pd.read_csv(tmp_path / "o.csv")
        for frame in (
            table,
            pl.from_pandas(table),
            pl.from_pandas(table).lazy(),
            pa.Table.from_pandas(table),
        ):
            assert counts(sl.read_interactions(frame)) == truth(expected)

    def test_a_missing_quantity_is_one(self, tmp_path):
        exports.ga4(tmp_path / "e.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
        for row in rows:
            row["items"] = [item | {"quantity": None} for item in row["items"]]
        (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = sl.read_interactions(tmp_path / "e.jsonl")
        assert set(data.weight.tolist()) == {1.0}

    def test_unknown_format(self, tmp_path):
        with pytest.raises(ConfigError, match=r"format must be one of .*shopify"):
            sl.read_interactions(tmp_path / "e.csv", format="xls")


@pytest.mark.parametrize("preamble", ["", "sep=;\r\n", "\ufeff"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-16"])
def test_everything_excel_writes(tmp_path, encoding, preamble):
    if preamble == "\ufeff" and encoding != "utf-8":
        preamble = ""
    expected = exports.german_excel(tmp_path / "e.csv", encoding=encoding, preamble=preamble)
    data = sl.read_interactions(tmp_path / "e.csv")
    assert counts(data) == truth(expected)


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
        with pytest.raises(ConfigError, match="where must be a condition in SQL") as caught:
            sl.read_interactions(TABLE, where=bad)
        assert len(str(caught.value)) < 600

    def test_no_row_is_left(self):
        with pytest.raises(DataError, match=r"got none of 4 .*'purchase'"):
            sl.read_interactions(TABLE, where="\"what happened\" = 'buy'")

    def test_a_database_has_its_own(self, tmp_path):
        with pytest.raises(ConfigError, match="query"):
            sl.read_interactions(f"sqlite:///{tmp_path}/x.db", table="t", where="a = 1")


class TestFuture:
    ROWS = "user,item,date\na,x,2024-01-01\nb,y,2034-03-01\nb,x,2024-01-03\nc,z,2024-01-04\n"

    def test_refused_with_the_row(self, tmp_path):
        (tmp_path / "e.csv").write_text(self.ROWS)
        with pytest.raises(
            DataError, match=r"must not lie in the future.*1 of 4 rows.*row 2 \(2034-03-01\)"
        ) as caught:
            sl.read_interactions(tmp_path / "e.csv")
        assert "--future drop" in str(caught.value)

    def test_dropped_or_kept(self, tmp_path):
        (tmp_path / "e.csv").write_text(self.ROWS)
        dropped = sl.read_interactions(tmp_path / "e.csv", future="drop")
        assert (dropped.n_rows, dropped.n_items) == (3, 2)
        assert "1 of 4 rows have a time in the future" in notes(dropped)
        kept = sl.read_interactions(tmp_path / "e.csv", future="keep")
        assert kept.n_rows == 4
        assert "were kept" in notes(kept)


class TestReturns:
    @staticmethod
    def left(*rows, **options):
        table = pl.DataFrame(rows, ["user", "item", "timestamp", "quantity"], orient="row")
        return sl.Interactions.from_frame(table, **options).to_frame().select("item_id", "weight").rows()

    def test_the_latest_earlier_purchase_is_reduced_or_removed(self):
        other = ("b", "z", 1, 1)
        assert self.left(("a", "x", 1, 3), ("a", "x", 2, 3), ("a", "x", 3, -1), other) == [
            ("x", 3),
            ("x", 2),
            ("z", 1),
        ]
        assert self.left(("a", "x", 1, 3), ("a", "x", 2, 3), ("a", "x", 3, -4), other) == [("x", 2), ("z", 1)]
        assert self.left(("a", "x", 1, 3), ("a", "x", 2, -9), ("a", "x", 3, 1), other) == [("x", 1), ("z", 1)]
        assert self.left(("a", "x", 2, 3), ("a", "x", 1, -1), other) == [("x", 3), ("z", 1)]
        assert self.left(("a", "y", 1, 3), ("a", "x", 2, -1), other) == [("y", 3), ("z", 1)]

    def test_a_dislike_is_no_return(self):
        table = pl.DataFrame(
            {"user": ["a", "a", "b"], "item": ["x", "x", "x"], "timestamp": [1, 2, 1], "rating": [3, -1, 1]}
        )
        with pytest.warns(sl.errors.DataWarning, match="dislike"):
            assert sl.Interactions.from_frame(table).n_rows == 2

    def test_nothing_is_left(self):
        with pytest.raises(DataError, match="leaves none"):
            self.left(("a", "x", 1, 1), ("a", "x", 2, -1))


class TestNumbers:
    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            (["1,50", "-2,00"], [1.5, -2]),
            (["1.234,50", "7"], [1234.5, 7]),
            (["1,234", "12"], [1234, 12]),
            (["1,234.5", "12"], [1234.5, 12]),
            (["0,125", "0,1"], [0.125, 0.1]),
        ],
    )
    def test_commas(self, texts, expected):
        table = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "qty": texts})
        data = sl.Interactions.from_frame(table, negative_weights="keep")
        assert data.weight.tolist() == pytest.approx(expected)
        assert "column 'qty' has" in notes(data)

    def test_a_mixture_is_an_error(self):
        table = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "qty": ["1,5", "1.5"]})
        with pytest.raises(DataError, match="a weight must be a finite number, got '1,5'"):
            sl.Interactions.from_frame(table)


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("Kundennr;Art.-Nr.;Datum;Anzahl;Bestell-Nr.", "user_id item_id timestamp weight basket_id"),
        (
            "N° client;Réf. produit;Date commande;Quantité;N° commande",
            "user_id item_id timestamp weight basket_id",
        ),
        (
            "ID cliente;Código producto;Fecha pedido;Cantidad;Número pedido",
            "user_id item_id timestamp weight basket_id",
        ),
        (
            "customer_id;product_sku;created_at;qty_ordered;increment_id",
            "user_id item_id timestamp weight basket_id",
        ),
        (
            "id_customer;product_reference;Date;product_quantity;id_order",
            "user_id item_id timestamp weight basket_id",
        ),
        ("Customer;Item;Completed Time;Qty.;Sale ID", "user_id item_id timestamp weight basket_id"),
        ("user;item;date;count;basket_no", "user_id item_id timestamp weight basket_id"),
    ],
)
def test_names_of_other_languages(tmp_path, header, roles):
    rows = "".join(f"u{n};i{n};2024-01-0{n + 1};1;{n}\n" for n in range(3))
    (tmp_path / "e.csv").write_text(header + "\n" + rows)
    data = sl.read_interactions(tmp_path / "e.csv")
    assert dict(zip(roles.split(), header.split(";"), strict=True)) == data.source.columns


@pytest.mark.parametrize("wrong", [5, None, [("a", "x")], {"user": ["a"]}, b"e.csv", []])
def test_other_arguments_are_explained(wrong):
    with pytest.raises(DataError, match=r"source must be a path|at least one entry"):
        sl.read_interactions(wrong)
