"""Logged lists and counters are deleted after a while; events stay."""

import time

import pytest

from shortlist.serve import service as retention
from shortlist.serve import store as store_module
from shortlist.serve.config import ServeConfig
from shortlist.serve.metrics import counters_since, put_counters
from shortlist.serve.service import DAY_SECONDS, Retention
from shortlist.serve.store import EventStore, ListRow
from tests.postgres import started
from tests.serve.conftest import logged_lists, start
from tests.serve.test_app import wait_for

NOW = 200 * DAY_SECONDS + 5_000.0


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    """An empty event store."""

    def create(address):
        found = EventStore(ServeConfig(model="x", db=address).database)
        found.create()
        return found

    if request.param == "sqlite":
        found = create(f"sqlite:///{tmp_path / 'e.sqlite'}")
        yield found
        found.close()
    else:
        with started() as address:
            found = create(address)
            yield found
            found.close()


def log(store, made):
    store.add_lists([ListRow(f"l{one}", "u1", "shop", "N", one, "[]", None, "top_n", 1.0) for one in made])


def test_a_turn_is_claimed_once(store):
    assert [store.claim("work", turn, ahead=10) for turn in (5, 5, 4, 6, 6)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert store.claim("other work", 5, ahead=10)


def test_old_lists_and_counters_are_deleted_in_steps_and_events_stay(store, monkeypatch):
    monkeypatch.setattr(retention, "DELETE_AT_ONCE", 2)
    days = [NOW - day * DAY_SECONDS for day in (100, 95, 91, 89, 1)]
    log(store, days)
    for made in days:
        put_counters(store, "w", int(made // 60), {"lists": 1.0})
    event = {"event_id": "e", "user_id": "u1", "item_id": "i1", "time": 1, "received": 1.0}
    store.add_events([[event | {"weight": None, "list_id": None}]])
    job = Retention(store, 90)
    assert [job.step(NOW) for _ in range(3)] == [2, 1, 0]
    assert [row.made for row in logged_lists(store)] == days[3:]
    assert [row.minute for row in counters_since(store, 0)] == [made // 60 for made in days[3:]]
    assert len(store.events_after(0, 10)) == 1
    log(store, [NOW - 99 * DAY_SECONDS])
    assert job.step(NOW + 60) == 0  # once a day
    assert job.step(NOW + 2 * DAY_SECONDS) == 2


def test_one_worker_of_all_deletes(store):
    log(store, [1.0])
    workers = [Retention(store, 90) for _ in range(3)]
    assert [worker.step(NOW) for worker in workers] == [1, 0, 0]


def test_the_service_applies_its_setting(folder, monkeypatch):
    monkeypatch.setattr(store_module, "SETTLE_SECONDS", 0.1)
    store = EventStore(f"sqlite:///{folder / 'shop.events.sqlite'}")
    store.create()
    log(store, [time.time() - 20 * DAY_SECONDS, time.time() - 5 * DAY_SECONDS])
    with start(folder, keep_lists_days=14):
        wait_for(lambda: len(logged_lists(store)) == 1)
    store.close()
