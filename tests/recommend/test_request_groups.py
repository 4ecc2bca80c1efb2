"""max_per_group: a limit per list and group, in every form of a request, against a slow oracle."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.cli import main
from shortlist.data.ids import IdMap
from shortlist.data.items import ItemGroups
from shortlist.errors import ConfigError

DATA = sl.load_dataset("sample")
COLORS, SIZES = ["red", "blue", None], ["s", "m", "l", "xl"]
ITEMS = pl.DataFrame(
    {
        "item_id": DATA.items.values,
        "color": [COLORS[n % 3] for n in range(DATA.n_items)],
        "size": [SIZES[n % 4] for n in range(DATA.n_items)],
    }
)
GROUP_OF = {field: dict(zip(ITEMS["item_id"], ITEMS[field], strict=True)) for field in ("color", "size")}
WANTED = {"color": 2, "size": 1}
USERS = DATA.users.values[:30].to_list()


def skip(items, wanted):
    """The items that remain, written plainly."""
    kept, used = [], {}
    for item in items:
        groups = [(field, GROUP_OF[field][item]) for field in wanted if GROUP_OF[field][item] is not None]
        if all(used.get(group, 0) < wanted[group[0]] for group in groups):
            kept.append(item)
            used |= {group: used.get(group, 0) + 1 for group in groups}
    return kept


MODELS = [
    sl.Popularity(),
    sl.PersonalFrequency(),
    sl.EASE(),
    sl.BPRMF(n_epochs=1),
    sl.DKBPRMF(n_epochs=1, boundary="learned"),
    sl.ContentProfile(),  # sparse scores
]


@pytest.fixture(scope="module")
def frequency():
    cutoff = sl.cutoff.ExpectedF1(calibration="platt")  # keeps the order of the scores
    return sl.fit(DATA, models="PersonalFrequency", cutoff=cutoff).set_groups(ITEMS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("wanted", [{"color": 1}, WANTED, {"size": 3}], ids=str)
def test_a_skipped_item_takes_no_place(model, wanted):
    items = ITEMS if isinstance(model, sl.ContentProfile) else None
    model = model.fit(DATA, items=items).set_groups(ITEMS)
    whole = model.recommend(USERS, N=DATA.n_items, filter_seen=False)
    lists = model.recommend(USERS, N=5, max_per_group=wanted, filter_seen=False)
    for user in USERS:
        expected = skip(whole[user].items, wanted)
        assert lists[user].items == expected[:5]
        ended = len(expected) < 5 and len(expected) < len(whole[user])
        assert lists[user].reason == ("group_limit" if ended else "top_n")


def test_deeper_search_only_for_users_who_need_it(monkeypatch):
    monkeypatch.setattr("shortlist.recommend.retrieval.CELLS", 40)  # a few users at a time
    model = sl.BPRMF(n_epochs=2).fit(DATA).set_groups(ITEMS)
    whole = model.recommend(N=DATA.n_items, filter_seen=False)
    lists = model.recommend(N=7, max_per_group=WANTED, filter_seen=False)
    assert [one.items for one in lists] == [skip(one.items, WANTED)[:7] for one in whole]


def test_the_cutoff_sees_only_what_remains(frequency):
    top = frequency.recommend(USERS, N=100)
    limited = top.limit_groups(WANTED, ITEMS)
    by_hand = frequency.cutoff_.apply(limited, history=frequency.history_)
    lists = frequency.recommend(USERS, max_per_group=WANTED)
    assert [one.items for one in lists] == [one.items for one in by_hand]
    np.testing.assert_array_equal(lists.probabilities, by_hand.probabilities)
    assert all(skip(one.items, WANTED) == one.items for one in lists)
    assert "group_limit" in lists.summary()["reason"].to_list()


def test_lists_of_any_ranker_keep_their_expected_sizes():
    pytest.importorskip("lightgbm")
    model = sl.HRM(n_epochs=1).fit(DATA)
    lists = model.recommend(USERS, N=20)
    limited = lists.limit_groups({"color": 1}, ITEMS)
    assert (limited.expected_sizes is None) == (lists.expected_sizes is None)
    assert limited.source == lists.source
    assert [one.items for one in limited] == [skip(one.items, {"color": 1}) for one in lists]


def test_boundary_min_items_and_fallback():
    model = sl.DKBPRMF(n_epochs=2, seed=1).fit(DATA).set_groups(ITEMS)
    for options in (
        {"cutoff": "boundary"},
        {"cutoff": "boundary", "min_items": 4},
        {"cutoff": "boundary", "max_items": 2},
    ):
        for one in model.recommend(USERS, max_per_group=WANTED, **options):
            assert skip(one.items, WANTED) == one.items
    popular = model.recommend(["nobody"], N=5, fallback="popular", max_per_group=WANTED)["nobody"]
    counts = dict(zip(DATA.items.values, np.asarray(DATA.item_counts).tolist(), strict=True))
    order = sorted(DATA.items.values, key=lambda item: -counts[item])  # stable: ties by item
    assert popular.items == skip(order, WANTED)[:5]
    named = model.recommend(["nobody"], N=5, fallback=lambda user: order, max_per_group=WANTED)
    assert named["nobody"].items == popular.items


def test_all_forms_of_a_request_agree(frequency, tmp_path, capsys):
    lists = frequency.recommend(USERS, max_per_group=WANTED)
    expected = {one.user_id: one.items for one in lists}
    path = frequency.recommend_to_file(tmp_path / "lists.parquet", USERS, max_per_group=WANTED)
    assert {one.user_id: one.items for one in sl.RankedLists.read(path)} == expected
    for user in USERS[:3]:
        table = frequency.explain(user, max_per_group=WANTED)
        assert table.filter(pl.col("shown"))["item_id"].to_list() == expected[user]
    file = frequency.save(tmp_path / "shop.shortlist")
    request = [str(file), "--user", *USERS, "--max-per-group", "color=2", "size=1", "--json"]
    assert main(["recommend", *request]) == 0
    assert {one["user_id"]: one["items"] for one in json.loads(capsys.readouterr().out)} == expected
    plain = sl.load_model(file)
    plain._state = plain._state.__class__(**{**vars(plain._state), "groups": None})
    bare, items = plain.save(tmp_path / "bare.shortlist"), tmp_path / "items.csv"
    ITEMS.write_csv(items)
    request[0] = str(bare)
    assert main(["recommend", *request]) == 2
    assert "set_groups" in capsys.readouterr().err
    assert main(["recommend", *request, "--items", str(items)]) == 0
    assert {one["user_id"]: one["items"] for one in json.loads(capsys.readouterr().out)} == expected


def test_the_service_agrees(frequency, tmp_path):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from shortlist.serve.app import create_app
    from shortlist.serve.config import ServeConfig
    from shortlist.serve.service import Service

    expected = {one.user_id: one.items for one in frequency.recommend(USERS, max_per_group=WANTED)}
    config = ServeConfig(model=str(frequency.save(tmp_path / "shop.shortlist")))
    with TestClient(create_app(Service(config)), base_url="http://127.0.0.1:8000") as client:
        body = {"users": USERS, "max_per_group": WANTED, "withheld": 3}
        for one in client.post("/v1/recommend", json=body).json()["lists"]:
            shown = [item["item_id"] for item in one["items"]]
            assert shown == expected[one["user_id"]]
            more = [item["item_id"] for item in one["withheld"]]
            assert skip(shown + more, WANTED) == shown + more
        for wrong in ({"color": 0}, {"family": 2}, {"color": "2"}, 3):
            answer = client.post("/v1/recommend", json={"users": ["u1"], "max_per_group": wrong})
            assert answer.status_code == 422


def test_groups_are_kept(tmp_path):
    model = sl.ContentProfile().fit(DATA, items=ITEMS)
    assert model.groups_.columns_of("categories") == ["color", "size"]
    again = sl.load_model(model.save(tmp_path / "model.shortlist"))
    assert again.groups_.table.equals(model.groups_.table)
    again.observe([("u1", "i1", "2030-01-01")])
    again.add_items(pl.DataFrame({"item_id": ["new"], "color": ["green"], "size": ["s"]}))
    assert dict(zip(again.groups_.ids.values, again.groups_.table["color"], strict=True))["new"] == "green"
    codes = again._state.groups.codes
    assert codes.shape == (len(again.items_), 2)
    assert (codes[-1] >= 0).all()
    grown = sl.Popularity().fit(DATA).set_groups(ITEMS, ["size"])
    new = DATA.to_frame().head(1).with_columns(item_id=pl.lit("a first item"))  # sorts before all others
    grown.observe(new)
    shown = grown.recommend("u1", N=4, max_per_group={"size": 1})["u1"].items
    assert skip(shown, {"size": 1}) == shown
    assert grown._state.groups.codes[grown.items_.index("a first item")].tolist() == [-1]


@pytest.mark.parametrize("make", [pl.DataFrame, sl.Items.from_frame])
def test_few_new_items_have_groups_or_none(make, tmp_path):
    """Three distinct values are no categories by themselves; the model knows that the column groups items."""
    model = sl.ContentProfile().fit(DATA, items=ITEMS)
    few = pl.DataFrame({"item_id": ["n0", "n1", "n2"], "color": ["red", "mauve", "teal"]})
    model.add_items(few if make is pl.DataFrame else sl.Items.from_frame(few, categories=["color"]))
    model.add_items(make(pl.DataFrame({"item_id": ["m0", "m1"]})))
    again = sl.load_model(model.save(tmp_path / "model.shortlist"))
    groups = again.groups_.table.with_columns(item_id=again.groups_.ids.values)
    assert groups.height == len(ITEMS) + 5
    assert groups.tail(5).rows() == [
        ("red", None, "n0"),
        ("mauve", None, "n1"),
        ("teal", None, "n2"),
        (None, None, "m0"),
        (None, None, "m1"),
    ]


@given(
    groups=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=12),
    limit=st.integers(1, 3),
)
@settings(max_examples=50, deadline=None)
def test_codes(groups, limit):
    table = pl.DataFrame({"item_id": range(len(groups)), "g": pl.Series(groups, dtype=pl.String)})
    items = sl.Items.from_frame(table, categories="g")
    found = ItemGroups.of(items, IdMap(pl.Series(range(-1, len(groups)))), ["g"])
    names = {None: -1} | {name: n for n, name in enumerate(sorted({g for g in groups if g}))}
    assert found.codes[:, 0].tolist() == [-1] + [names[group] for group in groups]
    assert found.limits({"g": limit}).group_limits.tolist() == [limit] * (len(names) - 1)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (2, ("max_per_group", "mapping", "2", "category")),
        ({"color": 0}, ("max_per_group", "color", "at least 1", "0")),
        ({"color": True}, ("max_per_group", "whole number", "True")),
        ({"family": 1}, ("max_per_group", "'family'", "'color'")),
    ],
)
def test_errors_name_the_rule(frequency, wanted, said):
    with pytest.raises(ConfigError) as caught:
        frequency.recommend("u1", max_per_group=wanted)
    assert all(words in str(caught.value) for words in said)


def test_families_of_two_words_are_groups():
    families = [f"home and garden {n % 3}" for n in range(DATA.n_items)]
    words = [f"a name of its own {n}" for n in range(DATA.n_items)]
    table = pl.DataFrame({"item_id": DATA.items.values, "family": families, "title": words})
    model = sl.Popularity().fit(DATA).set_groups(table)
    assert model.groups_.table.columns == ["family"]
    assert len(model.recommend("u1", N=9, max_per_group={"family": 2})["u1"]) == 6


def test_a_model_without_groups_says_what_to_call():
    with pytest.raises(ConfigError, match="set_groups"):
        sl.Popularity().fit(DATA).recommend("u1", N=2, max_per_group={"color": 1})
    with pytest.raises(ConfigError, match="fields="):
        sl.Popularity().fit(DATA).set_groups(pl.DataFrame({"item_id": DATA.items.values, "price": 1.0}))


def test_a_list_of_n_items_ends_at_n_also_if_its_ranking_is_by_probability():
    """The candidates that are ranked may be exhausted by the limits of groups, the list is not."""
    model = sl.DKBPRMF(n_epochs=2, seed=1).fit(DATA).set_groups(ITEMS)
    lists = model.recommend(USERS, N=5, max_per_group={"size": 3}, filter_seen=False)
    assert (lists.lengths == 5).all()
    assert set(lists.to_frame()["reason"]) == {"top_n"}
