"""Acknowledged events survive: kill -9, a disk that is full. Databases that stop: test_replicas.py.

SHORTLIST_FUZZ=50 kills fifty times as often.
"""

import os
import random
import signal
import threading
import time

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.service import Service
from shortlist.serve.store import EventStore
from tests.postgres import started
from tests.serve.server import Server

pytestmark = pytest.mark.resources
KILLS = 2 * int(os.environ.get("SHORTLIST_FUZZ", "1"))


def events(start, n):
    return [
        {"user_id": f"u{i % 300}", "item_id": f"i{i % 140}", "event_id": f"e{i}", "time": "2025-01-01"}
        for i in range(start, start + n)
    ]


def send_until_dead(server, first, acknowledged):
    """Send batches until the service is gone; remember what it acknowledged."""
    at = first
    while True:
        status, _ = server.call("/v1/events", {"events": events(at, 20)})
        if status != 200:
            return
        acknowledged.update(f"e{i}" for i in range(at, at + 20))
        at += 20


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, folder):
    """The address of an event store."""
    if request.param == "sqlite":
        yield f"sqlite:///{folder / 'events.sqlite'}"
    else:
        with started() as address:
            yield address


@pytest.mark.fuzz
def test_every_acknowledged_event_is_there_exactly_once_after_kill(folder, database):
    rng = random.Random(5)
    acknowledged = set()
    for number in range(KILLS):
        server = Server(folder, database)
        senders = [
            threading.Thread(target=send_until_dead, args=(server, (10 * number + k) * 100_000, acknowledged))
            for k in range(4)
        ]
        for sender in senders:
            sender.start()
        time.sleep(rng.uniform(0.05, 0.6))
        server.kill()
        for sender in senders:
            sender.join()
    store = EventStore(ServeConfig(model="x", db=database).database)
    stored = [row.event_id for row in store.events_after(0, 10_000_000)]
    store.close()
    assert len(stored) == len(set(stored))
    assert acknowledged <= set(stored)
    assert acknowledged


def test_graceful_shutdown_answers_what_was_begun(folder):
    server = Server(folder)
    answers = []
    senders = [
        threading.Thread(
            target=lambda: answers.append(server.call("/v1/recommend", {"users": ["u1"] * 500})[0])
        )
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    time.sleep(0.02)
    assert server.stop() in (0, -signal.SIGTERM)
    for sender in senders:
        sender.join()
    assert set(answers) <= {200, 0}  # answered, or never accepted


def test_full_disk_refuses_events_and_serves_lists(folder):
    """A small file system would need privileges; SQLite's own limit of pages fails with the same error."""
    service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
    with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
        with service.store._engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        sa.event.listen(
            service.store._engine,
            "checkout",
            lambda raw, *_: raw.execute(f"PRAGMA max_page_count={pages + 2}"),
        )
        statuses = []
        for start in range(0, 200_000, 5_000):
            answer = client.post("/v1/events", json={"events": events(start, 5_000)})
            statuses.append(answer.status_code)
            if answer.status_code != 200:
                break
        assert statuses[-1] == 507
        assert answer.json()["error"] == "store_full"
        assert client.post("/v1/recommend", json={"users": ["u1"]}).status_code == 200
