"""Each doubt is raised where it should be, with what settles it, and on none of the published datasets."""

import warnings

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.data.datasets import REGISTRY, cache_home
from shortlist.data.profile import render_page
from shortlist.errors import DataWarning
from tests import exports


def shop(seed=0):
    """Order lines without anything odd."""
    rows = exports.purchases(seed).drop_duplicates(["order", "item"])
    return pl.DataFrame(
        {
            "customer": [f"c{user}" for user in rows["user"]],
            "sku": [f"s{item}" for item in rows["item"]],
            "order_id": rows["order"].to_numpy(),
            "created_at": rows["when"].dt.tz_localize(None).to_numpy(),
        }
    )


def doubts_of(table, **options):
    """The doubts about a table; Python users get them as warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = sl.read_interactions(table, **options)
    doubts = sl.check_data(data).doubts
    assert [str(warning.message) for warning in caught] == list(doubts)
    assert all(issubclass(warning.category, DataWarning) for warning in caught)
    return doubts


def test_nothing_is_odd():
    assert doubts_of(shop()) == ()


class TestColumns:
    def test_sessions_beside_baskets_of_one_item(self):
        rng = np.random.default_rng(0)
        table = shop().rename({"order_id": "session"})
        table = table.with_columns(
            pl.col("created_at") + pl.Series(rng.permutation(table.height) * 1000).cast(pl.Duration("us"))
        )
        (doubt,) = doubts_of(table)
        assert "column 'session' is not used" in doubt
        assert "basket_id='session'" in doubt
        assert doubts_of(table, basket_id="session") == ()
        assert doubts_of(table, basket_id="") == ()

    @pytest.mark.parametrize(
        ("name", "values", "advice"),
        [
            ("event", ["view", "cart", "purchase"], "event = 'purchase'"),
            ("behavior_type", ["pv", "fav", "buy"], "behavior_type = 'buy'"),
            ("Event Type", ["PageView", "AddToCart", "Purchase"], "Event Type = 'Purchase'"),
            ("status", ["paid", "shipped", "Cancelled"], "status not in ('Cancelled')"),
            ("État", ["Livré", "Annulé", "Remboursé"], "État not in ('Annulé', 'Remboursé')"),
            ("Statut", ["payé", "annulé", "expédié"], "Statut not in ('annulé')"),
            ("is_test", ["false", "false", "true"], "is_test = 'false'"),
            ("cancelled", [False, False, True], "cancelled = false"),
            ("cancelled_at", [None, None, "2024-01-01"], "cancelled_at is null"),
        ],
    )
    def test_rows_that_are_no_purchases(self, name, values, advice):
        table = shop()
        column = pl.Series(name, [values[k % 3] for k in range(table.height)])
        (doubt,) = doubts_of(table.with_columns(column))
        assert repr(advice) in doubt
        assert "where=" in doubt
        settled = sl.read_interactions(table.with_columns(column), where=advice)
        assert settled.source.doubts == ()
        assert settled.n_rows < table.height
        assert doubts_of(table.with_columns(column), where="true") == ()

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("type", ["book", "film", "game"]),
            ("status", ["paid", "shipped", "open"]),
            ("event", ["purchase", "purchase", "purchase"]),
            ("is_test", ["false", "false", "false"]),
            ("order_status", [None, None, None]),
        ],
    )
    def test_other_columns_are_fine(self, name, values):
        table = shop()
        assert (
            doubts_of(table.with_columns(pl.Series(name, [values[k % 3] for k in range(table.height)]))) == ()
        )


class TestRows:
    @pytest.mark.parametrize("share", [0.3, 0.6])
    def test_a_guest_or_a_bot(self, share):
        table = shop()
        n = int(share * table.height)
        table = table.with_columns(
            pl.when(pl.int_range(pl.len()) < n).then(pl.lit("guest")).otherwise("customer").alias("customer")
        )
        (doubt,) = doubts_of(table)
        assert "user 'guest' has" in doubt
        assert "customer <> 'guest'" in doubt
        assert doubts_of(table, where="customer <> 'guest'") == ()

    def test_a_fee(self):
        table = shop()
        fees = table.unique("order_id", maintain_order=True).with_columns(sku=pl.lit("shipping"))
        (doubt,) = doubts_of(pl.concat([table, fees]))
        assert "item 'shipping' has" in doubt
        assert doubts_of(pl.concat([table, fees]), where="sku <> 'shipping'") == ()

    def test_times_in_the_future(self):
        table = shop()
        late = table.head(3).with_columns(created_at=pl.datetime(2034, 3, 1), order_id=pl.lit(9999, pl.Int64))
        with pytest.raises(sl.errors.DataError, match=r"3 of .* rows have a time in the future"):
            sl.read_interactions(pl.concat([table, late]))
        assert doubts_of(pl.concat([table, late]), future="drop") == ()
        (doubt,) = doubts_of(pl.concat([table, late]), future="keep")
        assert "future='drop'" in doubt

    def test_all_times_in_the_future(self):
        table = shop().with_columns(created_at=pl.col("created_at").dt.offset_by("40y"))
        for future in ("error", "drop"):
            with pytest.raises(sl.errors.DataError, match="keep them by"):
                sl.read_interactions(table, future=future)
        (doubt,) = doubts_of(table, future="keep")
        assert "in the future" in doubt


@pytest.mark.parametrize("name", REGISTRY)
def test_no_doubt_about_published_data(name):
    if name != "sample" and not (cache_home() / "datasets" / name).is_dir():
        pytest.skip("not in the cache")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sl.check_data(sl.load_dataset(name)).doubts == ()


class TestShown:
    def test_counts_are_those_of_the_table(self):
        table = shop()
        counts = sl.check_data(sl.read_interactions(table)).counts
        assert counts["rows"] == table.height
        assert counts["baskets"] == table["order_id"].n_unique()
        assert counts["items per basket"] == round(table.height / table["order_id"].n_unique(), 2)
        repeats = 1 - table.unique(["customer", "sku"]).height / table.height
        assert counts["repeats"] == pytest.approx(repeats, abs=1e-4)
        assert counts["first day"] == "2024-01-01"

    def test_page_is_escaped_and_complete(self):
        table = shop().with_columns(customer=pl.lit("<script>") + pl.col("customer"))
        guest = table.head(400).with_columns(customer=pl.lit("<b>guest"))
        with pytest.warns(DataWarning):
            check = sl.check_data(sl.read_interactions(pl.concat([table, guest])))
        page = render_page(check, "<orders>")
        assert "<script>" not in page
        assert "<b>guest" not in page
        assert page.count("<figure>") == 3
        assert check._repr_html_() in page

    def test_without_times_and_source(self):
        import scipy.sparse

        check = sl.check_data(scipy.sparse.eye_array(3, format="csr"))
        assert "no doubts" in str(check)
        assert len(check.figures) == 2
