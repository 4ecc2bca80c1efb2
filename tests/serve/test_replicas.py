"""Three servers on one PostgreSQL, behind a proxy: what one learns all know, and no request is lost."""

import http.client
import json
import shutil
import threading
import time

import pytest
import sqlalchemy as sa

import shortlist as sl
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import Deployment
from shortlist.serve.projections import add_activation, erase_user, find_activations
from shortlist.serve.store import (
    EVENTS_LOCK,
    MAX_WAITING,
    EventStore,
    StoreAwayError,
    StoreError,
    StoreWriter,
)
from shortlist.serve.tokens import create_token
from tests.postgres import PostgresServer
from tests.serve.proxy import Proxy
from tests.serve.server import Server, free_port
from tests.serve.test_app import wait_for

pytestmark = pytest.mark.resources
USERS = [f"u{n}" for n in range(1, 60)]


def save_popular(path, n):
    """A model that can be told from others by the length of its lists."""
    model = sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=n))
    return model.save(path)


class Cluster:
    """Three servers with one folder of models; the third one has its own database user."""

    def __init__(self, room, model_file):
        self.postgres = PostgresServer()
        self.folder = room
        self.logs = [room / f"log-{number}" for number in range(3)]
        self.ports = [free_port() for _ in self.logs]
        self.servers = [None] * 3
        self.token = create_token(room / "tokens", "all", ["read", "events", "admin"])
        shutil.copy(model_file, room / "shop.shortlist")

    def start(self, number, *, wait=True, **more):
        """Start a server."""
        port, user = self.ports[number], "other" if number == 2 else "shop"
        with self.logs[number].open("w") as log:
            self.servers[number] = Server(
                self.folder,
                self.postgres.uri.replace("shop@", f"{user}@"),
                self.folder / "tokens",
                self.token,
                log=log,
                port=port,
                wait=wait,
                **{"poll": 0.1, "drain": 1} | more,
            )

    def call(self, number, path, body=None):
        """The answer of one server, which must be 200."""
        status, answer = self.servers[number].call(path, body)
        assert status == 200, answer
        return answer

    def lists(self, number):
        """The lists of one server, without their ids."""
        answer = self.call(number, "/v1/recommend", {"users": USERS, "max_items": 20})
        rows = [(row["user_id"], row["reason"], row["items"]) for row in answer["lists"]]
        return answer["model"], rows

    def agree(self):
        """Whether all servers give the same lists."""
        first = self.lists(0)
        return all(self.lists(number) == first for number in (1, 2))

    def close(self):
        """Stop everything."""
        for server in self.servers:
            if server is not None:
                server.kill()
        self.postgres.stop()
        shutil.rmtree(self.postgres.room, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, model_file):
    """Two servers start before their database."""
    found = Cluster(tmp_path_factory.mktemp("cluster"), model_file)
    try:
        found.start(0, wait=False)
        found.start(1, wait=False)
        wait_for(lambda: "waiting" in found.logs[0].read_text(), seconds=120)
        assert found.servers[0].call("/ready")[0] == 0
        found.postgres.start()
        found.postgres.execute("create role other superuser login")
        found.servers[0].wait()
        found.start(2)
        found.servers[1].wait()
        yield found
    finally:
        found.close()


class Load:
    """Clients that request lists and send events through the proxy until they are stopped."""

    def __init__(self, proxy, token, n=4):
        self.proxy, self.token = proxy, token
        self.acknowledged, self.failed, self.n_requests = set(), [], 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(n)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client):
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=30)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        for number in range(1_000_000):
            if self._stop.is_set():
                break
            event_id, user = f"{id(self)}-{client}-{number}", USERS[number % len(USERS)]
            event = {"user_id": user, "item_id": f"i{number % 90}", "event_id": event_id}
            path, body = (
                ("/v1/events", {"events": [event]})
                if number % 3 == 0
                else ("/v1/recommend", {"users": [user]})
            )
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            self.n_requests += 1
            if answer.status != 200:
                self.failed.append((answer.status, int(answer.headers["x-server"]), content))
            elif path == "/v1/events":
                self.acknowledged.add(event_id)
        connection.close()


@pytest.fixture
def proxy(cluster):
    """A proxy before the servers."""
    found = Proxy(cluster.ports)
    wait_for(lambda: all(found.ready.values()))
    yield found
    found.close()


def test_events_activations_and_experiments_reach_all_servers(cluster):
    before = cluster.lists(2)
    events = [{"user_id": user, "item_id": "i5"} for user in USERS]
    assert cluster.call(0, "/v1/events", {"events": events})["accepted"] == len(USERS)
    wait_for(lambda: cluster.agree() and cluster.lists(2) != before)

    save_popular(cluster.folder / "popular.shortlist", 3)
    assert cluster.call(1, "/v1/model", {"name": "popular"})["name"] == "popular"
    wait_for(lambda: cluster.agree() and cluster.lists(0)[0] == "popular")
    assert "popular" in cluster.call(0, "/v1/model")["available"]
    cluster.call(0, "/v1/model", {"name": "shop"})  # from another server than before
    wait_for(lambda: cluster.agree() and cluster.lists(2)[0] == "shop")

    save_popular(cluster.folder / "arm.shortlist", 2)
    arms = [{"name": "now", "share": 0.5}, {"name": "two", "share": 0.5, "model": "arm"}]
    cluster.call(0, "/v1/experiment", {"name": "lengths", "arms": arms})

    def arms_of(number):
        answer = cluster.call(number, "/v1/recommend", {"users": USERS})
        return [
            (row.get("arm"), len(row["items"]) if "two" in row.get("arm", "") else 0)
            for row in answer["lists"]
        ]

    wait_for(lambda: ("lengths/two", 2) in arms_of(2) and arms_of(0) == arms_of(1) == arms_of(2))
    cluster.call(1, "/v1/experiment/stop", {"name": "lengths"})
    wait_for(lambda: arms_of(2)[0][0] is None)


def test_a_server_that_is_cut_off_serves_lists_and_catches_up(cluster):
    cluster.postgres.execute("alter role other nologin")
    cluster.postgres.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'other'")
    events = [{"user_id": user, "item_id": "i7", "event_id": f"cut-{user}"} for user in USERS]
    assert cluster.call(0, "/v1/events", {"events": events})["accepted"] == len(USERS)
    wait_for(lambda: cluster.lists(0) == cluster.lists(1) != cluster.lists(2))
    status, answer = cluster.servers[2].call("/v1/events", {"events": events})
    assert (status, answer["error"]) == (503, "store_unavailable")
    assert cluster.servers[2].call("/ready")[0] == 200
    cluster.postgres.execute("alter role other login")
    wait_for(cluster.agree)
    assert cluster.call(2, "/v1/events", {"events": events})["duplicates"] == len(USERS)


def test_kills_and_a_database_restart_lose_no_acknowledged_event(cluster, proxy):
    killed = []
    with Load(proxy, cluster.token) as load:
        time.sleep(0.3)
        cluster.postgres.stop()
        cluster.postgres.start()
        time.sleep(0.3)
        for number in (0, 2):
            killed.append(cluster.ports[number])
            cluster.servers[number].kill()
            cluster.start(number)
            wait_for(lambda port=killed[-1]: proxy.ready[port])
    assert load.n_requests > 100
    assert load.acknowledged
    failed = [entry for entry in load.failed if entry[:2] not in {(502, port) for port in killed}]
    assert not failed, failed[:3]
    store = EventStore(ServeConfig(model="x", db=cluster.postgres.uri).database)
    stored = [row.event_id for row in store.events_after(0, 1_000_000)]
    store.close()
    assert len(stored) == len(set(stored))
    assert load.acknowledged <= set(stored)
    wait_for(cluster.agree)


def test_a_rolling_update_of_the_model_fails_no_request(cluster, proxy):
    with Load(proxy, cluster.token) as load:
        save_popular(cluster.folder / "shop.shortlist", 5)
        for number in range(3):
            cluster.servers[number].stop()
            assert cluster.servers[number].call("/ready")[0] == 0
            cluster.start(number)
            wait_for(lambda port=cluster.ports[number]: proxy.ready[port])
    assert not load.failed, load.failed[:3]
    assert load.n_requests > 100
    wait_for(cluster.agree)
    assert {len(items) for _, _, items in cluster.lists(1)[1]} == {5}


def test_ready_says_503_while_requests_are_still_answered(cluster):
    server = cluster.servers[1]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    server.process.terminate()
    wait_for(lambda: server.call("/ready")[0] == 503)
    connection.request("GET", "/v1/model", headers={"authorization": f"Bearer {cluster.token}"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    connection.close()
    assert server.process.wait(timeout=60) is not None


class TestStore:
    @pytest.fixture
    def store(self, cluster):
        """A database of its own."""
        name = f"test{time.monotonic_ns()}"
        cluster.postgres.execute(f"create database {name}")
        address = cluster.postgres.uri.replace("/postgres", f"/{name}")
        found = EventStore(ServeConfig(model="x", db=address).database)
        found.create()
        yield found
        found.close()

    def test_a_server_that_can_load_no_activated_model_changes_nothing_for_the_others(self, store, folder):
        first = Deployment(folder, store)
        first.start(folder / "shop.shortlist")
        add_activation(store, "unknown", "0" * 64, 0, "elsewhere")
        add_activation(store, "unknown", "1" * 64, 0, "elsewhere")
        latest = find_activations(store, 1)
        again = Deployment(folder, store)
        again.start(folder / "shop.shortlist")
        assert again.served.name == "shop"
        assert find_activations(store, 1) == latest

    def test_a_lock_that_another_server_keeps_is_not_waited_for(self, store):
        """Such as one whose network broke in the middle of a transaction, which the database then ends."""
        with store.read() as connection:
            limits = [
                connection.exec_driver_sql(f"show {name}").scalar()
                for name in ("lock_timeout", "idle_in_transaction_session_timeout")
            ]
        assert limits == ["10s", "30s"]
        engine = sa.create_engine(store.url)
        lock = sa.text(f"select pg_advisory_xact_lock({EVENTS_LOCK})")
        sa.event.listen(
            store._engine, "begin", lambda c: c.exec_driver_sql("set local lock_timeout = '50ms'")
        )
        with engine.begin() as connection:
            connection.execute(lock)
            with pytest.raises(StoreAwayError):
                erase_user(store, "u1")
        erase_user(store, "u1")
        engine.dispose()


def test_few_events_wait_for_a_database_and_none_for_ever():
    class Away:
        is_away = True

        def add_events(self, batches):
            if self.is_away:
                raise StoreAwayError("away")
            return [len(rows) for rows in batches]

    store = Away()
    writer = StoreWriter(store, patience=0.1)
    early = writer.add_events(["a"])
    with pytest.raises(StoreAwayError):
        early.result(9)
    writer._patience = 60.0
    waiting = [writer.add_events(["a"])]
    wait_for(lambda: writer._is_away)
    with writer._wake:
        waiting += [writer.add_events(["a"]) for _ in range(MAX_WAITING - len(writer._events))]
        with pytest.raises(StoreError, match="cannot be reached"):
            writer.add_events(["a"])
    store.is_away = False
    assert {future.result(9) for future in waiting} == {1}
    writer.close()
