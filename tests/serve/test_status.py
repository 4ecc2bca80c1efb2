"""What the page reads: example users, counts by minute, and lists that are only looked at."""

import time

import pytest
from starlette.testclient import TestClient

from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.health import MIN_COUNT, describe_status
from shortlist.serve.metrics import KEPT_MINUTES, Metrics, put_counters
from shortlist.serve.service import Service
from shortlist.serve.store import StoreError
from tests.serve.conftest import logged_lists


@pytest.fixture
def service(folder):
    """A service in this process; `service.client` calls it."""
    found = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
    with TestClient(create_app(found), base_url="http://127.0.0.1:8000") as client:
        found.client = client
        yield found


def test_a_list_that_is_looked_at_is_explained_but_not_logged(service):
    body = {"users": ["u10"], "explain": True, "withheld": 4}
    one = service.client.post("/v1/recommend", json=body).json()["lists"][0]
    assert len(one["withheld"]) == 4
    for row in (*one["items"], *one["withheld"]):
        assert row["contributions"]
        assert 0 < row["probability"] < 1
    other = service.client.post("/v1/recommend", json={"users": ["u11"]}).json()["lists"][0]
    end = time.monotonic() + 20
    while not (logged := logged_lists(service.store)):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert [row.list_id for row in logged] == [other["list_id"]]
    assert "shortlist_lists_total 1.0" in service.client.get("/metrics").text


def counts_of(service):
    total = {}
    for counts in service.metrics.minutes().values():
        for name, value in counts.items():
            total[name] = total.get(name, 0) + value
    return total


def test_a_list_that_is_looked_at_counts_neither_for_latency_nor_for_unknown_users(service):
    for user in ("u10", "nobody"):
        answer = service.client.post("/v1/recommend", json={"users": [user], "explain": True})
        assert answer.status_code == 200
    service.client.get("/v1/users/nobody")
    counts = counts_of(service)
    assert counts["requests"] == 3
    assert not [name for name in counts if name.startswith(("seconds:", "unknown", "lists"))]
    service.client.post("/v1/recommend", json={"users": ["u10", "nobody"]})
    counts = counts_of(service)
    assert (counts["lists"], counts["unknown"]) == (2, 1)
    assert sum(n for name, n in counts.items() if name.startswith("seconds:")) == 1


SHARES = ("Lists", "Failed requests", "Latency", "Empty lists", "List lengths", "Unknown users", "Events")


def checks_of(service, times):
    """The checks after an hour with slow answers, unknown users and rejected events."""
    store, deployment = service.store, service.deployment
    slow = {"requests": times, "seconds:0.5": times, "lists": times, "length:0": times, "unknown": times}
    put_counters(
        store, "w", int(time.time() // 60), slow | {"events:rejected": 1, "events:accepted": times - 1}
    )
    found = describe_status(store, deployment, [3] * 100)["checks"]
    return {one["name"]: one for one in found if one["name"] in SHARES}


def test_a_few_lists_requests_and_events_get_no_status(service):
    few = checks_of(service, MIN_COUNT - 1)
    events = few.pop("Events")
    assert {check["state"] for check in few.values()} == {"unknown"}
    assert few["Unknown users"]["value"] == "too few lists"
    assert few["Latency"]["value"] == "too few requests"
    assert events["state"] == "warning"  # however few: somebody sends what cannot be stored
    assert events["sentence"].startswith("1 event of 49 was rejected.")
    enough = checks_of(service, MIN_COUNT)
    assert "unknown" not in {one["state"] for one in enough.values()}
    assert enough["Unknown users"]["state"] == "bad"
    assert enough["Events"]["state"] == "warning"


def test_counts_of_a_finished_minute_wait_until_they_are_stored():
    now = 0.0
    counts = Metrics(lambda: now)
    for minute in (100, 101):
        now = 60.0 * minute
        counts.count_events(3, 0, 0)
    assert {minute: found["events:accepted"] for minute, found in counts.minutes().items()} == {
        100: 3,
        101: 3,
    }
    counts.forget_before(101)
    assert list(counts.minutes()) == [101]
    for minute in range(200, 200 + 2 * KEPT_MINUTES):
        now = 60.0 * minute
        counts.count_events(1, 0, 0)
    assert len(counts.minutes()) == KEPT_MINUTES


def test_the_error_of_a_store_goes_when_the_store_is_back(service, monkeypatch):
    def fail():
        raise StoreError("the event store cannot be reached; repeat the request in a few seconds.")

    def state():
        checks = service.client.get("/v1/status").json()["checks"]
        return next(one["state"] for one in checks if one["name"] == "Event store")

    def wait_for(wanted):
        end = time.monotonic() + 20
        while state() != wanted:
            assert time.monotonic() < end, f"the state never became {wanted}"
            time.sleep(0.02)

    wait_for("ok")
    with monkeypatch.context() as patch:
        patch.setattr(service.deployment, "follow", fail)
        wait_for("warning")
    wait_for("ok")
