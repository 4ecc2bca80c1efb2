"""Exports from file to the right rows: counts and rows are those of pandas."""

import json
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.errors import DataError, DataWarning
from tests import exports


def truth(rows):
    """(users, items, baskets, rows) of distinct order lines."""
    distinct = rows.drop_duplicates(["user", "item", "order"])
    return distinct["user"].nunique(), distinct["item"].nunique(), distinct["order"].nunique(), len(distinct)


def counts(data):
    return data.n_users, data.n_items, data.n_baskets, data.n_rows


def notes(data):
    return " ".join(data.source.notes)


DOCS = Path(__file__).parents[2] / "docs" / "data.md"
RECIPES = dict(
    re.findall(
        r"^\*\*(\w+).*?^```(?:bash|py)\n(.*?)^```$",
        DOCS.read_text(encoding="utf-8").partition("\n## Exports\n")[2].partition("\n## ")[0],
        re.MULTILINE | re.DOTALL,
    )
)


@pytest.mark.parametrize("seed", range(3))
class TestRecipes:
    """The recipes of the page read what was bought."""

    @pytest.mark.parametrize(
        ("title", "write", "name"),
        [
            ("WooCommerce", exports.woocommerce, "orders.csv"),
            ("Magento", exports.magento, "items.csv"),
            ("PrestaShop", exports.prestashop, "details.csv"),
            ("Amazon", exports.amazon_seller, "report.txt"),
            ("Google", exports.ga4, "events.json"),
            ("Matomo", exports.matomo, "visits.json"),
        ],
    )
    def test_command(self, tmp_path, monkeypatch, capsys, seed, title, write, name):
        expected = write(tmp_path / name, seed)
        monkeypatch.chdir(tmp_path)
        words = shlex.split(RECIPES[title].replace("\\\n", " "))
        assert main([*words[1:], "--json"]) == 0
        about = json.loads(capsys.readouterr().out)
        assert (about["users"], about["items"], about["baskets"], about["rows"]) == truth(expected)
        assert about["doubts"] == []

    def test_shopify(self, tmp_path, monkeypatch, seed):
        expected = exports.shopify(tmp_path / "orders.csv", seed)
        monkeypatch.chdir(tmp_path)
        names = {}
        exec(compile(RECIPES["Shopify"], "data.md", "exec"), names)
        assert counts(names["data"]) == truth(expected)
        assert names["data"].weight.sum() == expected["quantity"].sum()
        assert "no 'Email'" in notes(names["data"])

    def test_every_recipe_is_tested(self, seed):
        assert set(RECIPES) == {
            "WooCommerce",
            "Magento",
            "PrestaShop",
            "Amazon",
            "Google",
            "Matomo",
            "Shopify",
        }


@pytest.mark.parametrize("seed", range(3))
class TestRecognized:
    """The plain call reads what was bought, and prints what it left out."""

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


@pytest.mark.parametrize("preamble", ["", "sep=;\r\n", "\ufeff"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-16"])
def test_everything_excel_writes(tmp_path, encoding, preamble):
    if preamble == "\ufeff" and encoding != "utf-8":
        preamble = ""
    expected = exports.german_excel(tmp_path / "e.csv", encoding=encoding, preamble=preamble)
    data = sl.read_interactions(tmp_path / "e.csv")
    assert counts(data) == truth(expected)


class TestFuture:
    ROWS = "user,item,date\na,x,2024-01-01\nb,y,2034-03-01\nb,x,2024-01-03\nc,z,2024-01-04\n"

    def test_refused_with_the_row(self, tmp_path):
        (tmp_path / "e.csv").write_text(self.ROWS)
        with pytest.raises(
            DataError, match=r"must not lie in the future.*1 of 4 rows.*row 2 \(2034-03-01\)"
        ) as caught:
            sl.read_interactions(tmp_path / "e.csv")
        assert "future='drop'" in str(caught.value)

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
