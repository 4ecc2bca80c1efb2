"""One request in every façade: the same options, lists and probabilities."""

import json
from dataclasses import fields
from inspect import signature

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.recommend import RecommendFlags
from shortlist.models.base import Recommender
from shortlist.recommend.options import RequestOptions
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.schemas import RecommendBody
from shortlist.serve.service import Service

NAMES = {field.name for field in fields(RequestOptions)}
USERS = ["u1", "u2", "u7"]
REQUESTS = {
    "saved cutoff": {},
    "N": {"N": 4},
    "limits": {"min_items": 3, "max_items": 5},
    "candidates": {"candidates": ["i1", "i3", "i57", "i84", "i92"], "exclude": ["i92"]},
    "seen": {"filter_seen": True, "N": 6},
    "time": {"at": "2024-03-01"},
    "fallback": {"candidates": ["i1", "i2", "i84"], "fallback": "popular"},  # of u1, i84 is probable enough
    "history": {"history": {"s1": ["i1", "i10"], "s2": ["i5"]}, "N": 3},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(model, its file, a client of a service): probabilities that are not in the order of the scores."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.PersonalFrequency().fit(split.train)
    candidates = model.recommend(N=30, filter_seen=False)
    cutoff = sl.cutoff.ExpectedF1(n_candidates=30, calibration="features")
    model.set_cutoff(cutoff.fit(candidates, split.valid, history=split.train))
    path = model.save(tmp_path_factory.mktemp("facades") / "shop.shortlist")
    with TestClient(
        create_app(Service(ServeConfig(model=str(path)))), base_url="http://127.0.0.1:8000"
    ) as client:
        yield model, path, client


def rows_of(lists):
    """{user: ([items], [probabilities, None if unknown])} of RankedLists."""
    p = lists.probabilities if lists.probabilities is not None else np.full(lists.items.size, np.nan)
    known = [None if np.isnan(value) else value for value in p.tolist()]
    cuts = lists.indptr[1:-1]
    items = lists.item_ids.to_ids(lists.items).to_list()
    rows = zip(lists.users.values, np.split(np.arange(lists.items.size), cuts), strict=True)
    return {user: ([items[at] for at in row], [known[at] for at in row]) for user, row in rows}


def over_http(client, options, **more):
    body = dict(options) if "history" in options else {"users": USERS, **options}
    answer = client.post("/v1/recommend", json=body | more)
    assert answer.status_code == 200, answer.text
    return answer.json()["lists"]


def on_the_command_line(capsys, path, folder, options):
    words = ["recommend", str(path), "--json"]
    for name, value in options.items():
        if name in ("candidates", "exclude"):
            (folder / name).write_text("\n".join(value))
            value = folder / name
        if name == "history":
            rows = [(user, item) for user, items in value.items() for item in items]
            table = pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row")
            value = folder / "history.csv"
            table.write_csv(value)
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    if "history" not in options:
        words += ["--user", *USERS]
    capsys.readouterr()
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


def test_every_facade_takes_every_option_with_the_same_default():
    defaults = {field.name: field.default for field in fields(RequestOptions)}
    calls = [
        Recommender.recommend,
        Recommender.recommend_to_file,
        Recommender.explain,
        sl.spark.recommend,
    ]
    for call in calls:
        given = {name: value.default for name, value in signature(call).parameters.items()}
        assert given.keys() >= NAMES, call
        assert {name: given[name] for name in NAMES} == {name: defaults[name] for name in NAMES}, call
    assert {field.name for field in fields(RecommendFlags)} >= NAMES
    assert RecommendBody.model_fields.keys() >= NAMES


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_request_gives_the_same_lists_everywhere(name, world, tmp_path, capsys):
    model, path, client = world
    options = REQUESTS[name]
    users = None if "history" in options else USERS
    expected = rows_of(model.recommend(users, **options))
    assert any(items for items, _ in expected.values())
    file = model.recommend_to_file(tmp_path / "lists.parquet", users, **options)
    assert rows_of(sl.RankedLists.read(file)) == expected
    for user, (items, p) in expected.items():
        table = model.explain(user, **options)
        shown = table.filter("shown")
        assert shown["item_id"].to_list() == items
        assert shown["probability"].to_list() == p
    for answer in over_http(client, options):
        items, p = expected[answer["user_id"]]
        assert [item["item_id"] for item in answer["items"]] == items
        assert [item["probability"] for item in answer["items"]] == p
    for answer in on_the_command_line(capsys, path, tmp_path, options):
        items, p = expected[answer["user_id"]]
        assert answer["items"] == items
        assert (answer["probabilities"] or [None] * len(p)) == p


def test_a_wrong_keyword_names_the_right_one(world):
    model, *_ = world
    for call in (model.recommend_to_file, model.explain):
        with pytest.raises(TypeError, match=r"keyword argument 'max_itms'. Did you mean 'max_items'"):
            call("u1", max_itms=3)


def test_an_item_has_one_probability_wherever_it_is_shown(world):
    model, _, client = world
    single = dict(zip(*rows_of(model.recommend(USERS, N=60, filter_seen=False))["u1"], strict=True))
    assert len(single) == 60  # beyond the candidates that the cutoff considers, too
    requests = [
        {},
        {"N": 5},
        {"min_items": 25},
        {"max_items": 2},
        {"cutoff": sl.cutoff.FixedN(N=7)},
        {"cutoff": sl.cutoff.Threshold(threshold=0.5)},
    ]
    for options in requests:
        lists = rows_of(model.recommend(USERS, filter_seen=False, **options))["u1"]
        table = model.explain("u1", filter_seen=False, n_withheld=20, **options)
        assert {item: single[item] for item in lists[0]} == dict(zip(*lists, strict=True)), options
        explained = dict(table.select("item_id", "probability").iter_rows())
        assert {item: single[item] for item in explained} == explained, options
    answer = over_http(client, {"filter_seen": False}, withheld=20)[0]
    for item in answer["items"] + answer["withheld"]:
        assert item["probability"] == single[item["item_id"]]
    assert len(answer["withheld"]) == 20


def test_lists_are_in_the_order_of_what_is_shown(world):
    model, _, _ = world
    top = model.recommend(N=30, filter_seen=False)
    scores = [np.diff(scores) for scores in np.split(top.scores, top.indptr[1:-1])]
    assert any((rise > 0).any() for rise in scores)  # another order than that of the scores
    for options in ({}, {"N": 40}, {"min_items": 12}):
        lists = model.recommend(filter_seen=False, **options)
        for p in np.split(lists.probabilities, lists.indptr[1:-1]):
            assert (np.diff(p) <= 0).all()


def test_n_is_a_prefix_of_a_longer_list(world):
    model, _, _ = world
    long = rows_of(model.recommend(USERS, N=40))
    for n in (3, 20, 35):
        short = rows_of(model.recommend(USERS, N=n))
        assert {user: (items[:n], p[:n]) for user, (items, p) in long.items()} == short


def test_without_a_calibration_there_are_scores_only(world, capsys):
    model = sl.PersonalFrequency().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=2))
    assert model.recommend(["u1"]).probabilities is None
    path = model.save(world[1].with_name("scores.shortlist"))
    assert main(["recommend", str(path), "--user", "u1"]) == 0
    out = capsys.readouterr().out
    assert "score" in out
    assert "probability" not in out
    assert main(["recommend", str(world[1]), "--user", "u1"]) == 0
    out = capsys.readouterr().out
    assert "score" not in out
    assert "probability" in out
