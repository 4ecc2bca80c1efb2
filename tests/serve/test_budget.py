"""The budget of a service: never exceeded, the same for all workers and after a restart, and visible."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

import shortlist as sl
from shortlist.errors import ConfigError
from shortlist.serve.budget import DAY, HOUR, MONDAY, WEEK, BudgetKeeper, Pace, Traffic
from shortlist.serve.config import ServeConfig
from shortlist.serve.store import EventStore
from tests.postgres import started
from tests.serve.conftest import start

NOON = MONDAY + 12 * HOUR


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    with ExitStack() as stack:
        address = f"sqlite:///{tmp_path / 'events.db'}"
        if request.param == "postgresql":
            address = stack.enter_context(started())
        yield from open_store(ServeConfig(model="m", db=address).database)


def open_store(address):
    found = EventStore(address)
    found.create()
    yield found
    found.close()


@pytest.fixture(scope="module")
def lists():
    return (
        sl.Popularity().fit(sl.load_dataset("sample")).recommend(["u1", "u2", "u3"], N=4, filter_seen=False)
    )


@pytest.mark.parametrize(
    ("per", "at", "first", "length"),
    [
        ("day", NOON, MONDAY, DAY),
        ("week", MONDAY + 6.9 * DAY, MONDAY, WEEK),
        ("week", MONDAY - 1, MONDAY - WEEK, WEEK),
    ],
)
def test_periods_are_days_and_weeks_from_monday(per, at, first, length):
    assert Pace(1, per).period(at) == (first, first + length)


def test_expected_lists_by_hand():
    traffic = Traffic({int(MONDAY // HOUR) + hour: 100.0 for hour in range(12)})
    assert traffic.expect(NOON, NOON + 5 * HOUR) == pytest.approx(500, rel=0.05)
    pace = Pace(1000, "day", "traffic")
    assert pace.items_per_list(NOON, 400, traffic) == pytest.approx(600 / 1200, rel=0.05)
    even = Pace(1000, "day", "even")  # 13 of 24 hours until one o'clock
    assert even.items_per_list(NOON, 400, traffic) == pytest.approx((1000 * 13 / 24 - 400) / 100, rel=0.05)
    assert even.items_per_list(NOON, 900, traffic) == 0
    assert Pace(1000).items_per_list(NOON, 1000, traffic) == 0


def test_the_pattern_of_a_week_is_learned():
    rows = {}
    for hour in range(2 * 168):
        rows[int(MONDAY // HOUR) + hour] = 300.0 if hour % 24 >= 12 else 100.0
    traffic, now = Traffic(rows), MONDAY + 14 * DAY + 6 * HOUR
    rows |= {int(MONDAY // HOUR) + 14 * 24 + hour: 200.0 for hour in range(6)}  # twice the usual traffic
    assert traffic.expect(now, now + 12 * HOUR) == pytest.approx(2 * (6 * 100 + 6 * 300), rel=0.1)


@pytest.mark.parametrize("n_workers", [1, 4])
def test_workers_together_never_exceed_the_budget(store, n_workers):
    keepers = [BudgetKeeper(store, Pace(1000)) for _ in range(n_workers)]

    def spend(number):
        rng, keeper = np.random.default_rng(number), keepers[number]
        return sum(keeper.take(int(rng.integers(0, 5)), NOON) for _ in range(800 // n_workers))

    with ThreadPoolExecutor(n_workers) as pool:
        shown = sum(pool.map(spend, range(n_workers)))
    for keeper in keepers:
        keeper.close()
    assert shown == 1000
    again = BudgetKeeper(store, Pace(1000))  # after a restart
    assert again.take(10, NOON) == 0
    assert again.take(10, NOON + DAY) == 10  # tomorrow


def test_what_a_worker_did_not_show_returns(store):
    keeper = BudgetKeeper(store, Pace(100_000))
    assert keeper.take(3, NOON) == 3
    keeper.close()
    again = BudgetKeeper(store, Pace(100_000))
    again.follow(NOON)
    assert again.spent == 3
    assert again.left == 99_997


def test_lists_are_cut_where_the_budget_ends(store, lists):
    keeper = BudgetKeeper(store, Pace(10))
    cut = keeper.cover(lists, {"u1": 1, "u2": 1, "u3": 1}, NOON)
    assert cut.lengths.tolist() == [4, 4, 2]
    assert cut.summary()["reason"].to_list() == ["top_n", "top_n", "budget_spent"]
    assert keeper.cover(lists, {}, NOON).lengths.tolist() == [0, 0, 0]
    twice = BudgetKeeper(store, Pace(10)).cover(lists, {"u1": 2, "u2": 1, "u3": 1}, NOON + DAY)
    assert twice.lengths.tolist() == [4, 2, 0]  # the list of u1 is shown twice


def test_without_a_store_nothing_is_shown(store, lists, monkeypatch):
    keeper = BudgetKeeper(store, Pace(10))

    def fail(*_):
        raise sl.serve.store.StoreError("gone")

    monkeypatch.setattr(store, "_begin", fail)
    assert keeper.cover(lists, {}, NOON).lengths.sum() == 0


def post(client, users):
    return client.post("/v1/recommend", json={"users": users}).json()["lists"]


@pytest.fixture
def paced(folder):
    """A model with a price, in a service with 40 items a day."""
    data = sl.load_dataset("sample")
    split = sl.split.last_basket(data)
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=30, filter_seen=False)
    model.set_cutoff(sl.cutoff.Budget(items_per_list=1.0).fit(lists, split.valid)).save(
        folder / "shop.shortlist"
    )
    return folder


def test_a_service_stops_at_its_budget_and_a_restart_goes_on(paced):
    users = [f"u{number}" for number in range(1, 200)]
    with start(paced, budget=40) as client:
        answers = [one for user in users for one in post(client, [user])]
        shown = sum(len(one["items"]) for one in answers)
        status = client.get("/v1/status").json()
        (check,) = [one for one in status["checks"] if one["name"] == "Budget"]
        metrics = client.get("/metrics").text
    assert 30 <= shown <= 40
    assert "items are left" in check["sentence"]
    assert "shortlist_budget_left_items" in metrics
    assert "shortlist_budget_price" in metrics
    with start(paced, budget=40) as client:
        more = sum(len(one["items"]) for user in users for one in post(client, [user]))
        assert client.post("/v1/recommend", json={"users": ["u1"], "explain": True, "N": 3}).json()["lists"][
            0
        ]["items"]
    assert shown + more == 40


def test_a_user_gets_so_many_lists_a_week(folder):
    with start(folder, lists_per_week=2) as client:
        reasons = []
        for _ in range(6):
            (one,) = client.post("/v1/recommend", json={"users": ["u1"], "N": 2}).json()["lists"]
            reasons.append((len(one["items"]) > 0, one["reason"]))
            time.sleep(0.3)  # a list counts when it is logged
    assert [shown for shown, _ in reasons] == [True, True, False, False, False, False]
    assert reasons[-1][1] == "user_limit"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": -1}, "budget"),
        ({"budget_per": "month"}, "budget_per"),
        ({"budget_spend": "fast"}, "budget_spend"),
        ({"lists_per_week": 2, "log_share": 0.5}, "log_share"),
    ],
)
def test_settings(settings, words):
    with pytest.raises(ConfigError, match=words):
        ServeConfig(model="m", **settings)
