"""Content in TwoStage: features by hand, new items as candidates, no information from the future, files."""

from copy import copy
from functools import cache

import numpy as np
import polars as pl
import pytest

from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.kernels.snapshot_features import DAY, LinkTable, Snapshots
from shortlist.models.base import load_model
from shortlist.models.two_stage.content import FAST, SLOW, ItemContent
from shortlist.models.two_stage.two_stage import TwoStage
from tests.threads import use_threads

pytest.importorskip("lightgbm")
SMALL = {"n_rounds": 15, "n_bags": 1, "min_leaf": 5, "candidates_per_source": 6}
SECONDS = 86_400


def table(n=60):
    return pl.DataFrame(
        {
            "item_id": [f"i{i:02}" for i in range(n)],
            "kind": ["tea", "soap", "rope"] * (n // 3),
            "price": [1.0 + i for i in range(n)],
            "listed": pl.Series([i * DAY for i in range(n)]).cast(pl.Datetime("us")),
        }
    )


@cache
def shop():
    """User u buys items of kind u % 3; a new item of every kind appears every three days."""
    rng = np.random.default_rng(3)
    rows = []
    for visit in range(12):
        for user in range(45):
            day = 4 * visit + user % 4
            newest = min(3 * (5 + day // 4), 57)
            items = (max(newest - 3 * back, 0) + user % 3 for back in rng.choice(6, 2, replace=False))
            rows += [(f"u{user:02}", f"i{item:02}", day * SECONDS) for item in items]
    return Interactions.from_tuples(rows)


@cache
def fitted():
    return TwoStage(**SMALL).fit(shop(), items=table())


def snapshot(model, user, at):
    users = np.array([model.users_.lookup([user])[0]], np.int32)
    return Snapshots(users, np.array([at]), np.array([-1]))


def link_table(data, weights, totals):
    """A table of the weights of pairs such as "xz", and the total of each item."""
    n = data.n_items
    dense, total = np.zeros((n, n), np.float32), np.zeros(n)
    for pair, weight in weights.items():
        dense[tuple(data.items.lookup(list(pair)))] = weight
    for item, value in totals.items():
        total[data.items.lookup([item])[0]] = value
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(n + 1)).astype(np.int64)
    return LinkTable(starts, columns.astype(np.int32), dense[rows, columns], total)


def test_features_by_hand():
    data = Interactions.from_tuples([("a", "x", 0), ("a", "y", SECONDS), ("a", "z", SECONDS), ("b", "w", 0)])
    items = pl.DataFrame(
        {"item_id": list("wxyz"), "kind": ["k", "k", "m", "k"], "price": [8.0, 2.0, 4.0, None]}
    ).with_columns(pl.Series("listed", [0, 0, 0, DAY]).cast(pl.Datetime("us")))
    history = History.of(data)
    content = ItemContent.fit(Items.from_frame(items, categories=["kind"]), history)
    assert content.names == (
        "content_kind_profile", "content_kind_latest", "content_price_relative", "content_listed_days",
        "content_linked", "content_companions",
    )  # fmt: skip
    log = TwoStage(**SMALL)._replay(history, has_clock=False).whole.timeline.log.users
    at = Snapshots(np.array([0, 0], np.int32), np.array([DAY, 3 * DAY]), np.array([-1, -1]))
    w = data.items.lookup(["w"])[0]
    links = {"xz": 3, "zx": 3, "wy": 2, "yw": 2}
    together = link_table(data, links, {"x": 4, "z": 3, "w": 4, "y": 5})
    found = content.features(log, together, at, np.array([0, 1, 2]), np.array([w, w], np.int32))
    # the basket of that day is not known yet; x is bought with z, which is of the kind of w, and w with y
    assert found[0] == pytest.approx([1, 1, np.log(8 / 2), 1, 3 / 4, 0])
    both = 2 + SLOW
    usual = (SLOW * 2 + 4) / (SLOW + 1)  # z has no price
    assert found[1] == pytest.approx(
        [
            (SLOW + 1) / both,
            (FAST + 1) / (2 + FAST),
            np.log(8 / usual),
            3,
            (SLOW * 3 / 4 + 2 / 5 + 3 / 3) / both,
            2 / 4 / both,  # w is bought with y only
        ],
        rel=1e-5,
    )


def test_new_items_of_the_users_kind_are_proposed():
    model = fitted()
    timeline, content = model._state.replay.whole.timeline, model._state.content
    first = timeline.first_sales
    at = 30 * DAY
    for user in ("u00", "u01", "u02"):
        sets = content.propose(timeline.log.users, snapshot(model, user, at), first, timeline.end, 6)
        ids = model.items_.to_ids(sets.items).to_list()
        assert ids
        assert {int(one[1:]) % 3 for one in ids} == {int(user[1:]) % 3}
        assert (first[sets.items] < at).all(), "an item that is first sold later is not known yet"
        assert (first[sets.items] >= at - 30 * DAY).all()


def test_items_without_sales_are_proposed_after_the_history_only():
    model = TwoStage(**SMALL).fit(shop(), items=table())
    model.add_items(table(3).with_columns(pl.Series("item_id", ["n0", "n1", "n2"])))
    timeline, content = model._state.replay.whole.timeline, model._state.content
    first = timeline.first_sales
    new = model.items_.lookup(["n0"])[0]
    for at, known in ((timeline.end - 1, False), (timeline.end, True)):
        sets = content.propose(timeline.log.users, snapshot(model, "u00", at), first, timeline.end, 60)
        assert (new in sets.items) == known
    lists = model.recommend(["u00", "u01"], candidates=["n0", "n1", "n2"], N=3)
    assert lists.lengths.tolist() == [3, 3]
    assert lists["u00"].items[0] == "n0"
    assert lists["u01"].items[0] == "n1"


def test_a_saved_model_gives_the_same_lists(tmp_path):
    model = TwoStage(**SMALL).fit(shop(), items=table())
    model.add_items(table(3).with_columns(pl.Series("item_id", ["n0", "n1", "n2"])))
    again = load_model(model.save(tmp_path / "m"))
    assert again.recommend(N=8).to_frame().equals(model.recommend(N=8).to_frame())
    assert again._state.content.names == model._state.content.names


def test_threads_do_not_change_the_lists():
    with use_threads(3):
        more = TwoStage(**SMALL).fit(shop(), items=table())
    assert more.recommend(N=8).to_frame().equals(fitted().recommend(N=8).to_frame())


def test_content_stays_with_new_items():
    model = TwoStage(**SMALL).fit(shop(), items=table())
    model.observe([("u00", "i57", 60 * SECONDS), ("new", "unseen", 60 * SECONDS)])
    assert model._state.content.vectors.shape[0] == len(model.items_)
    kinds = model._state.content.vectors[model.items_.lookup(["i57", "unseen"])]
    assert (np.diff(kinds.indptr) > 0).tolist() == [True, False]
    model.observe([("u00", "another", 61 * SECONDS * 1_000_000)])
    assert model._state.content.vectors.shape[0] == len(model.items_)
    assert model.recommend(["u00"], N=5).lengths[0] == 5


def test_explain_names_the_content():
    found = fitted().explain("u00", N=1)["contributions"][0]
    assert any(one["source"] == "content of the item" for one in found)


def test_add_items_needs_a_model_with_content():
    with pytest.raises(ConfigError, match="needs a model fitted with the content"):
        TwoStage(**SMALL).fit(shop()).add_items(table())


def test_content_features_can_be_excluded():
    names = fitted()._state.content.names
    model = TwoStage(**SMALL, exclude_features=names).fit(shop(), items=table())
    assert model.recommend(["u00"], N=2).lengths[0] == 2
    assert not any(
        one["source"] == "content of the item" for one in model.explain("u00", N=1)["contributions"][0]
    )


def test_later_sales_do_not_change_a_list():
    """An item first sold after the prediction is proposed like one that is never sold."""
    model = TwoStage(**SMALL).fit(shop(), items=table())
    new = ["n0", "n1", "n2"]
    model.add_items(table(3).with_columns(pl.Series("item_id", new)))
    users, at = shop().users.values, (shop().end_time + DAY) / 1e6
    expected = model.recommend(users, N=10, at=at).to_frame()
    assert expected["item_id"].is_in(new).any()
    later = [(user, new[number % 3], at + 3 * SECONDS) for number, user in enumerate(users[:6])]
    assert copy(model).observe(later).recommend(users, N=10, at=at).to_frame().equals(expected)


def test_first_sales_are_the_earliest_of_each_item():
    data = Interactions.of(shop())
    model = TwoStage(**SMALL).fit(data)
    model.observe([("u00", "unsold until now", "2035-01-01")])
    sales = model._state.replay.whole.timeline.first_sales
    table = data.to_frame().group_by("item_id").agg(pl.col("timestamp").min())
    expected = {item: time.timestamp() * 1e6 for item, time in table.iter_rows()}
    found = dict(zip(model.items_.values.to_list(), sales.tolist(), strict=True))
    assert found.pop("unsold until now") == np.datetime64("2035-01-01", "us").astype(np.int64)
    assert found == expected
