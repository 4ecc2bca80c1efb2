"""Returns as events: they take purchases away from histories, lists, refits and outcomes."""

import json
import time

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.serve.deployment import Deployment
from shortlist.serve.projections import erase_user, read_timelines
from shortlist.serve.store import EventStore, ListRow
from tests.serve.conftest import start, usual_items
from tests.serve.test_app import wait_for


def event(user="ann", item="i1", day=1, weight=None, **more):
    return {"user_id": user, "item_id": item, "time": f"2025-01-{day:02}", "weight": weight, **more}


def send(client, *events):
    answer = client.post("/v1/events", json={"events": list(events)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def items_of(client, user="ann"):
    """(day, item) of what the service knows of a user, oldest first."""
    answer = client.get(f"/v1/users/{user}").json()
    return sorted((row["time"][8:10], row["item_id"]) for row in answer.get("events", []))


def rows_of(served):
    return sorted(served.model.history_.to_frame().rows())


def stored(number, user, item, day, weight=None):
    micros = 1_735_689_600_000_000 + day * 86_400_000_000
    row = {"event_id": f"e{number}", "user_id": user, "item_id": item, "time": micros, "weight": weight}
    return row | {"list_id": None, "received": time.time() - 3_600}


def random_events(seed):
    """Purchases of three users, returns of some of them, returns of nothing, in any order."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(60):
        user, item = f"u{rng.integers(1, 4)}", f"i{rng.integers(1, 6)}"
        weight = float(rng.choice([1, 2, 3, -1, -2]))
        rows.append(stored(number, user, item, int(rng.integers(1, 30)), weight))
    return rows


@pytest.fixture(params=["without weights", "with weights"])
def shop(request, tmp_path):
    """A folder with a model."""
    frame = sl.load_dataset("sample").to_frame()
    if request.param == "with weights":
        frame = frame.with_columns(weight=np.random.default_rng(0).integers(1, 4, frame.height))
    settings = {"weighting": "linear"} if request.param == "with weights" else {}
    model = sl.PersonalFrequency(**settings).fit(frame).set_cutoff(sl.cutoff.FixedN(N=5))
    model.save(tmp_path / "shop.shortlist")
    return tmp_path


def serve(folder, store):
    deployment = Deployment(folder, store)
    deployment.start(folder / "shop.shortlist")
    deployment.follow()
    return deployment.served


def new_store(folder, name, batches=()):
    store = EventStore(f"sqlite:///{folder / name}.sqlite")
    store.create()
    for batch in batches:
        store.add_events([batch])
    return store


def test_a_return_removes_the_purchase_from_the_history_and_the_lists(shop):
    with start(shop) as client:
        send(client, event(item="i1", day=1), event(item="i2", day=2), event(item="i2", day=3))
        wait_for(lambda: len(items_of(client)) == 3)
        shown = client.post("/v1/recommend", json={"users": ["ann"], "N": 2}).json()["lists"][0]["items"]
        assert [item["item_id"] for item in shown] == ["i2", "i1"]
        send(client, event(item="i1", day=4, weight=-1.0))
        wait_for(lambda: items_of(client) == [("02", "i2"), ("03", "i2")])
        shown = client.post("/v1/recommend", json={"users": ["ann"], "N": 2}).json()["lists"][0]["items"]
        assert shown[0]["item_id"] == "i2"
        assert "i1" not in [item["item_id"] for item in shown]
    with start(shop) as client:  # after a restart
        assert items_of(client) == [("02", "i2"), ("03", "i2")]


def test_a_return_of_everything_leaves_a_user_without_events(shop):
    with start(shop) as client:
        send(client, event(day=1, weight=2.0), event(day=1, weight=-2.0))
        send(client, event("bob", day=2))
        wait_for(lambda: items_of(client, "bob"))
        assert items_of(client) == []
        assert client.post("/v1/recommend", json={"users": ["ann"], "N": 3}).status_code == 200


@pytest.mark.parametrize("seed", range(4))
def test_batches_restarts_and_workers_agree(shop, seed):
    rows, rng = random_events(seed), np.random.default_rng(seed)
    store = new_store(shop, "whole", [rows])
    expected = serve(shop, store)
    worker = Deployment(shop, other := new_store(shop, "batches"))
    worker.start(shop / "shop.shortlist")
    for batch in np.array_split(rng.permutation(len(rows)), 9):
        other.add_events([[rows[number] for number in batch]])
        worker.follow()
    restarted = serve(shop, other)
    second = serve(shop, other)
    users = [f"u{n}" for n in range(1, 20)]
    lists = expected.model.recommend(users, N=10).to_frame()
    for served in (worker.served, restarted, second):
        assert rows_of(served) == rows_of(expected)
        assert served.model.recommend(users, N=10).to_frame().equals(lists)
    for each in (store, other):
        each.close()


def test_the_history_is_that_of_a_file_with_the_same_rows(shop):
    """The rule of the readers, on all rows at once."""
    rows = random_events(7)
    base = sl.load_model(shop / "shop.shortlist").history_
    served = serve(shop, store := new_store(shop, "store", [rows]))
    weighted = base.weight is not None
    more = pl.DataFrame(rows).select(
        "user_id", "item_id", pl.col("time").cast(pl.Datetime("us")).alias("timestamp"), "weight"
    )
    if not weighted:  # equal rows are one purchase, and a return takes one purchase away
        sign = pl.col("weight").sign()
        bought = more.filter(pl.col("weight") > 0).unique(["user_id", "item_id", "timestamp"])
        more = pl.concat([bought, more.filter(pl.col("weight") < 0)]).with_columns(weight=sign)
    known = base.to_frame().with_columns(weight=pl.col("weight") if weighted else pl.lit(1.0))
    joined = pl.concat([known.with_columns(pl.col("weight").cast(pl.Float64)), more], how="vertical_relaxed")
    file = sl.Interactions.from_frame(joined)
    frame = file.to_frame() if weighted else file.to_frame().drop("weight")
    assert rows_of(served) == sorted(frame.rows())
    assert file.n_rows < joined.filter(pl.col("weight") > 0).height
    store.close()


def test_a_refit_learns_from_what_was_kept(shop, capsys):
    rows = [stored(n, f"u{n}", "i1", 40, 1.0) for n in range(1, 30)]
    rows += [stored(100 + n, f"u{n}", "i1", 41, -1.0) for n in range(1, 11)]
    usual = usual_items(shop / "shop.shortlist", [f"u{n}" for n in range(1, 30)])
    rows += [stored(200 + n, f"u{n}", usual[f"u{n}"], 42, 1.0) for n in range(1, 30)]
    before = sl.load_model(shop / "shop.shortlist").history_.n_rows
    new_store(shop, "shop.events", [rows[:20], rows[20:]]).close()
    db = f"sqlite:///{shop / 'shop.events.sqlite'}"
    assert main(["service", "refit", str(shop / "shop.shortlist"), "--db", db, "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    history = sl.load_model(shop / about["file"]).history_
    assert about["lists"] == 29
    assert history.n_rows == before + 29 + 29 - 10
    latest = history.to_frame().filter(pl.col("timestamp") > pl.datetime(2025, 2, 1), item_id="i1")
    assert sorted(latest["user_id"]) == sorted(f"u{n}" for n in range(11, 30))


def test_an_erased_user_leaves_no_returns(shop):
    store = new_store(shop, "store", [[stored(1, "ann", "i1", 3), stored(2, "ann", "i1", 4, -1.0)]])
    deployment = Deployment(shop, store)
    deployment.start(shop / "shop.shortlist")
    erase_user(store, "ann")
    deployment.follow()
    history = deployment.served.model.event_history
    assert "ann" not in history.users
    assert "ann" not in history.returns["user_id"]
    assert history.merged.n_rows == history.totals.n_rows
    store.add_events([[stored(3, "ann", "i1", 5)]])
    deployment.follow()
    assert deployment.served.model.history_.to_frame().filter(user_id="ann").height == 1
    store.close()


def test_a_return_is_no_success_of_a_list(shop):
    store = new_store(shop, "store")
    at = time.time()
    row = {"list_id": "l", "user_id": "u1", "model": "shop", "cutoff": None, "made": at - 4_000}
    store.add_lists([ListRow(**row, items='["i1"]', probabilities=None, reason=None, share=1.0)])
    store.add_events([[stored(1, "u1", "i1", 3, -1.0)]])
    assert read_timelines(store, ["u1"], 0, at + 60)["u1"].purchases(0, at + 60) == []
    store.close()


def test_ratings_cannot_be_returned(tmp_path):
    frame = sl.load_dataset("sample").to_frame().with_columns(rating=4.0)
    model = sl.Popularity().fit(frame).set_cutoff(sl.cutoff.FixedN(N=3))
    model.save(tmp_path / "shop.shortlist")
    with start(tmp_path) as client:
        answer = client.post("/v1/events", json={"events": [event(weight=-1.0)]})
        assert answer.status_code == 422
        assert "ratings" in answer.text
