"""What hostile or broken clients, files, clocks and databases do to the service: nothing that lasts."""

import asyncio
import math
import os
import stat
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

import shortlist as sl
from shortlist.errors import ConfigError, DataError
from shortlist.serve import app, deployment, lists, tokens
from shortlist.serve import store as store_module
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import Deployment, kept_path, load_refit_data
from shortlist.serve.experiments import Experiments
from shortlist.serve.metrics import Metrics
from shortlist.serve.projections import add_activation, erase_user, find_activations
from shortlist.serve.run import served_model
from shortlist.serve.schemas import RecommendBody
from shortlist.serve.service import DAY_SECONDS, Service
from shortlist.serve.store import EventStore, RowError, StoreError, StoreWriter
from shortlist.serve.tokens import create_token
from tests.postgres import PostgresServer, started
from tests.serve.conftest import logged_lists, start, usual_items
from tests.serve.server import free_port
from tests.serve.test_app import wait_for


def event(user="u1", item="i1", **more):
    return {"user_id": user, "item_id": item, "time": "2025-01-01", **more}


def stored_row(number, **more):
    row = {
        "event_id": f"e{number}",
        "user_id": f"new{number}",
        "item_id": "i1",
        "time": 1_735_689_600_000_000,
    }
    return row | {"weight": None, "list_id": None, "received": time.time()} | more


def check_of(client, name):
    return next(check for check in client.get("/v1/status").json()["checks"] if check["name"] == name)


@pytest.fixture
def weighted(tmp_path):
    """A model whose data has weights."""
    frame = sl.load_dataset("sample").to_frame()
    weights = np.random.default_rng(0).integers(1, 5, frame.height)
    data = sl.Interactions.from_frame(frame.with_columns(weight=weights))
    model = sl.PersonalFrequency(weighting="linear").fit(data)
    model.set_cutoff(sl.cutoff.FixedN(N=3)).save(tmp_path / "shop.shortlist")
    return tmp_path


class TestEvents:
    @pytest.mark.parametrize(
        "weight", ["1e39", "3e38", "-1e39", "1000001", "NaN", "Infinity", "1" + "0" * 400]
    )
    def test_a_weight_that_cannot_be_learned_is_refused_alone(self, client, weight):
        body = f'{{"events": [{{"user_id": "u1", "item_id": "i1", "weight": {weight}}}, '
        body += '{"user_id": "u1", "item_id": "i2", "weight": 2}]}'
        answer = client.post("/v1/events", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == 1
        assert [rejection["index"] for rejection in answer.json()["rejected"]] == [0]
        assert "weight" in answer.json()["rejected"][0]["reason"]

    @pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
    @pytest.mark.parametrize("digits", [20, 400, 5_000])
    def test_whole_numbers_of_any_length_are_refused(self, client, digits, kind):
        body = f'{{"user_id": "u1", "item_id": "i1", "weight": {"9" * digits}}}'
        body = f'{{"events": [{body}]}}' if kind == "application/json" else body
        assert client.post("/v1/events", content=body, headers={"content-type": kind}).status_code == 422

    def test_a_request_whose_events_were_all_refused_is_refused(self, client):
        answer = client.post("/v1/events", json={"events": [event(user=5), event(weight=1e39)]})
        assert answer.status_code == 422
        assert [rejection["index"] for rejection in answer.json()["rejected"]] == [0, 1]
        assert client.post("/v1/events", json={"events": []}).status_code == 200

    def test_health_warns_of_refused_events(self, folder):
        service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
        with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
            client.post("/v1/events", json={"events": [event(), event(user=5)]})
            service._store_counters()
            assert check_of(client, "Events")["state"] in ("warning", "bad")

    def test_a_poisoned_store_stops_neither_the_start_nor_other_events(self, weighted):
        store = EventStore(f"sqlite:///{weighted / 'shop.events.sqlite'}")
        store.create()
        poison = [
            {"weight": 1e39},
            {"weight": -2e6},
            {"weight": math.inf},
            {"time": 2**62},
            {"time": -(2**62)},
        ]
        store.add_events([[stored_row(n, **bad) for n, bad in enumerate(poison)] + [stored_row(9)]])
        with start(weighted) as client:
            assert client.get("/v1/users/new9").status_code == 200
            assert client.post("/v1/events", json={"events": [event("later", weight=3.0)]}).status_code == 200
            wait_for(lambda: client.get("/v1/users/later").status_code == 200)
            assert "5 stored events" in check_of(client, "Events")["sentence"]
        with start(weighted) as client:
            assert client.get("/v1/users/later").status_code == 200
            (weighted / "again.shortlist").write_bytes((weighted / "shop.shortlist").read_bytes())
            add_activation(store, "again", find_activations(store, 1)[0].checksum, 0, "elsewhere")
            wait_for(lambda: client.get("/ready").json()["model"] == "again")
            assert "5 stored events" in check_of(client, "Events")["sentence"]  # not counted twice
        assert load_refit_data(store, weighted, "shop").events.purchases.n_rows == 2
        store.close()

    def test_an_event_that_fails_for_any_reason_is_set_aside(self, folder, monkeypatch):
        """Whatever the model refuses, the events around it reach it."""
        observe = deployment.with_events

        def fragile(model, events):
            if "new7" in events.purchases.users:
                raise MemoryError
            return observe(model, events)

        monkeypatch.setattr(deployment, "with_events", fragile)
        store = EventStore(f"sqlite:///{folder / 'events.sqlite'}")
        store.create()
        store.add_events([[stored_row(n) for n in range(20)]])
        served = Deployment(folder, store)
        served.start(folder / "shop.shortlist")
        users = served.served.model.users_
        assert [n for n in range(20) if f"new{n}" not in users] == [7]
        assert served.served.n_skipped == 1
        store.close()

    def test_negative_weights_are_rows_where_the_data_has_them(self, tmp_path):
        frame = sl.load_dataset("sample").to_frame()
        weights = np.where(np.arange(frame.height) % 50 == 0, -1.0, 1.0)
        frame = frame.with_columns(weight=weights)
        data = sl.Interactions.from_frame(frame, negative_weights="keep")
        folder = tmp_path / "returns"
        folder.mkdir()
        model = sl.Popularity(weighting="linear").fit(data).set_cutoff(sl.cutoff.FixedN(N=3))
        model.save(folder / "shop.shortlist")
        with start(folder) as returns:
            returns.post("/v1/events", json={"events": [event("ann", weight=-2.0)]})
            wait_for(lambda: returns.get("/v1/users/ann").status_code == 200)


class FragileStore:
    """A store that refuses some rows."""

    def __init__(self, refuses):
        self.refuses, self.rows = refuses, []

    def add_events(self, batches):
        if any(self.refuses(row) for rows in batches for row in rows):
            raise UnicodeEncodeError("latin-1", "x", 0, 1, "no")
        self.rows += [row for rows in batches for row in rows]
        return [len(rows) for rows in batches]

    def add_lists(self, rows):
        if any(self.refuses(row) for row in rows):
            raise RowError("no")
        self.rows += rows


class TestThreads:
    def test_a_bad_row_of_the_log_is_dropped_and_the_others_are_written(self, capsys):
        store = FragileStore(lambda row: row in (13, 700))
        writer = StoreWriter(store)
        writer.add_lists(list(range(2_000)))
        wait_for(lambda: not writer._lists)
        assert writer.is_alive
        writer.close()
        assert store.rows == [row for row in range(2_000) if row not in (13, 700)]
        assert "2 lists could not be logged" in capsys.readouterr().err

    def test_events_that_the_database_refuses_do_not_fail_those_of_others(self):
        store = FragileStore(lambda row: row == "bad")
        writer = StoreWriter(store)
        with writer._wake:  # the thread cannot take them one by one
            futures = [writer.add_events(rows) for rows in (["a"], ["bad"], ["b", "c"])]
        assert [futures[0].result(9), futures[2].result(9)] == [1, 2]
        with pytest.raises(UnicodeEncodeError):
            futures[1].result(9)
        writer.close()

    @pytest.mark.parametrize("name", ["writer", "follower"])
    def test_a_thread_that_has_ended_takes_health_with_it(self, folder, name):
        service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
        with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
            assert client.get("/health").status_code == 200
            if name == "writer":
                service.writer.close()
            else:
                service._stop.set()
                service._follower.join()
            answer = client.get("/health")
            assert answer.status_code == 503
            assert answer.json()["error"] == "not_healthy"

    @pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
    def test_a_database_that_is_not_utf8_is_refused_at_the_start(self, encoding):
        server = PostgresServer()
        try:
            server.start()
            server.execute(f"create database other encoding '{encoding}' locale 'C' template template0")
            address = f"postgresql://shop@/other?host={server.room}"
            store = EventStore(ServeConfig(model="x", db=address).database)
            with pytest.raises(ConfigError, match=f"UTF8, got {encoding}"):
                store.create()
            store.close()
        finally:
            server.stop()

    def test_a_database_that_cannot_be_opened_is_named_at_the_start(self):
        store = EventStore("postgresql+psycopg://shop:secret@127.0.0.1:1/none")
        with pytest.raises(StoreError, match="check db") as caught:
            store.create()
        assert "secret" not in str(caught.value)


class TestWork:
    def test_users_times_items_are_bounded(self, client):
        users = [f"u{n}" for n in range(1_000)]
        for more in ({"N": 1_000}, {"max_items": 500}, {"min_items": 600}, {"N": 60, "withheld": 50}):
            answer = client.post("/v1/recommend", json={"users": users, **more})
            assert answer.status_code == 422, more
            assert answer.json()["error"] == "too_many"
        assert client.post("/v1/recommend", json={"users": users, "N": 50}).status_code == 200

    def test_lists_that_nothing_limits_are_bounded_too(self, folder):
        model = sl.Popularity().fit(sl.load_dataset("sample"))
        model.set_cutoff(sl.cutoff.FixedN(N=140)).save(folder / "long.shortlist")
        (folder / "shop.shortlist").unlink()
        (folder / "long.shortlist").rename(folder / "shop.shortlist")
        users = [f"u{n}" for n in range(1, 11)]
        with start(folder, max_items=1_000) as client:
            answer = client.post("/v1/recommend", json={"users": users, "filter_seen": False})
            assert answer.status_code == 422
            assert answer.json()["error"] == "too_many"
            whole = client.post("/v1/recommend", json={"users": users[:5], "filter_seen": False}).json()
            assert {len(one["items"]) for one in whole["lists"]} == {140}

    def test_small_requests_do_not_wait_for_large_ones(self, folder, monkeypatch):
        service = Service(ServeConfig(model=str(folder / "shop.shortlist")))
        blocked, answer_group = threading.Event(), lists.answer_group
        monkeypatch.setattr(
            lists,
            "answer_group",
            lambda jobs: (lists.is_small(jobs[0].body) or blocked.wait(20)) and answer_group(jobs),
        )

        async def scenario():
            await asyncio.to_thread(service.open)
            body = RecommendBody(users=["u1"], withheld=1)
            large = asyncio.create_task(service.lists.answer(body))
            await asyncio.sleep(0.1)
            await asyncio.wait_for(service.lists.answer(RecommendBody(users=["u2"])), 10)
            assert not large.done()
            blocked.set()
            await large
            await asyncio.to_thread(service.close)

        asyncio.run(scenario())

    @pytest.mark.parametrize("hangs_up", [False, True])
    def test_a_body_that_does_not_arrive_is_no_failure_of_the_service(self, folder, capsys, hangs_up):
        service = Service(ServeConfig(model=str(folder / "shop.shortlist"), timeout=9 if hangs_up else 1.1))
        application = create_app(service)
        sent = []

        async def receive():
            await asyncio.sleep(1.1 if hangs_up else 60)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        for path in ("/v1/recommend", "/v1/events"):
            scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
            asyncio.run(application(scope | {"query_string": b"", "root_path": ""}, receive, send))
        assert [message["status"] for message in sent if "status" in message] == [408, 408]
        assert capsys.readouterr().err == ""  # clients cannot fill the log
        [counts] = service.metrics.minutes().values()
        assert [name for name in counts if name.startswith(("seconds", "status"))] == ["status:4xx"]

    def test_work_of_callers_who_have_gone_is_not_computed(self, folder, monkeypatch):
        service = Service(ServeConfig(model=str(folder / "shop.shortlist")))
        application, computed, first = create_app(service), [], threading.Event()
        answer_group = lists.answer_group

        def slow(jobs):
            computed.extend(job.users for job in jobs)
            first.wait(20)
            return answer_group(jobs)

        monkeypatch.setattr(lists, "answer_group", slow)

        async def post(user, *, leaves=False):
            statuses = []
            content = f'{{"users": ["{user}"], "withheld": 1}}'.encode()
            messages = [{"type": "http.request", "body": content}]

            async def receive():
                if messages:
                    return messages.pop()
                await asyncio.sleep(0.1 if leaves else 60)
                return {"type": "http.disconnect"}

            async def send(message):
                statuses.extend([message["status"]] if "status" in message else [])

            headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/v1/recommend", "headers": headers}
            await application(scope, receive, send)
            return statuses

        async def scenario():
            await asyncio.to_thread(service.open)
            running = asyncio.create_task(post("u1"))
            while not computed:
                await asyncio.sleep(0.01)
            assert await asyncio.wait_for(post("u2", leaves=True), 10) == [408]
            first.set()
            assert await running == await post("u3") == [200]
            await asyncio.to_thread(service.close)

        asyncio.run(scenario())
        assert computed == [["u1"], ["u3"]]

    def test_large_bodies_are_read_beside_the_others(self, client, monkeypatch):
        """They are computed in a thread of their own, and answered as small ones are."""
        threads = []
        parse = app.parse_events

        def noted(*arguments):
            threads.append(threading.current_thread().name)
            return parse(*arguments)

        monkeypatch.setattr(app, "parse_events", noted)
        body = {"users": ["u1", "u2"], "N": 3}
        small = client.post("/v1/recommend", json=body).json()
        large = client.post("/v1/recommend", json=body | {"exclude": ["nothing"] * 20_000}).json()
        assert [one["items"] for one in large["lists"]] == [one["items"] for one in small["lists"]]
        assert "20,000 of 20,000 items are unknown" in large["notes"][0]
        wrong = client.post("/v1/recommend", json=body | {"exclude": [1.5] * 20_000})
        assert wrong.status_code == 422
        for n in (2, 2_000):
            answer = client.post("/v1/events", json={"events": [event(f"n{n}-{at}") for at in range(n)]})
            assert (answer.status_code, answer.json()["accepted"]) == (200, n)
        assert threads[0] != threads[1]
        assert threads[1].startswith("large-body")

    def test_bodies_in_progress_are_bounded(self, folder):
        """Nine requests that send a body without its end; the one that is too much is refused."""
        application = create_app(Service(ServeConfig(model=str(folder / "shop.shortlist"), max_body=1_024)))
        statuses = []

        async def send(message):
            statuses.extend([message["status"]] if "status" in message else [])

        async def post(path, ends):
            messages = [{"type": "http.request", "body": b" " * 1_000, "more_body": True}]

            async def receive():
                if messages:
                    return messages.pop()
                await ends.wait()
                return {"type": "http.disconnect"}

            headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
            await application(scope | {"query_string": b"", "root_path": ""}, receive, send)

        async def scenario():
            ends = asyncio.Event()
            paths = ["/v1/recommend", "/v1/events"] * 4 + ["/v1/events"]
            waiting = [asyncio.create_task(post(path, ends)) for path in paths]
            await asyncio.sleep(0.2)
            assert statuses == [503]
            ends.set()
            await asyncio.gather(*waiting)
            assert sorted(statuses) == [408] * 8 + [503]
            assert application._held == 0

        asyncio.run(scenario())

    @pytest.mark.parametrize("field", ["user", "item", "score"])
    @pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
    def test_whole_numbers_out_of_range_are_refused(self, client, field, number):
        item = {"item_id": number if field == "item" else 1, "score": number if field == "score" else 0.5}
        scored = {"user_id": number if field == "user" else 7, "items": [item]}
        answer = client.post("/v1/cut", json={"lists": [scored], "cutoff": "none"})
        is_float = field == "score" and number != 10**400
        assert answer.status_code == (404 if is_float else 422), answer.text


class TestModels:
    def test_the_last_activation_is_served_after_many(self, folder, tokens):
        sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=3)).save(
            folder / "refit.shortlist"
        )
        store = EventStore(f"sqlite:///{folder / 'events.sqlite'}")
        store.create()
        first = Deployment(folder, store)
        first.start(folder / "shop.shortlist")
        first.activate("refit", "once")
        last = find_activations(store, 1)[0]
        for _ in range(60):
            add_activation(store, last.model, last.checksum, last.events_until, "threshold moved")
        again = Deployment(folder, store)
        again.start(folder / "shop.shortlist")
        assert again.served.name == "refit"
        given = Deployment(folder, store)
        given.start(folder / "shop.shortlist", prefer_given=True)
        assert given.served.name == "shop"
        assert find_activations(store, 1)[0].model == "shop"  # every worker follows
        store.close()

    def test_the_model_that_is_announced_is_the_one_that_is_served(self, folder):
        from tests.serve.server import Server

        sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=3)).save(
            folder / "popular.shortlist"
        )
        store = EventStore(f"sqlite:///{folder / 'shop.events.sqlite'}")
        store.create()
        deployed = Deployment(folder, store)
        deployed.start(folder / "shop.shortlist")
        deployed.activate("popular", "by request")
        store.close()
        server = Server(folder)
        try:
            assert served_model("127.0.0.1", server.port) == "popular"
            assert server.call("/v1/recommend", {"users": ["u1"]})[1]["model"] == "popular"
        finally:
            server.kill()

    def test_an_activation_that_failed_is_tried_again(self, folder, monkeypatch):
        """The file arrives on a replica after the activation."""
        monkeypatch.setattr(deployment, "RETRY_SECONDS", 0.05)
        service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
        with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
            model = sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=3))
            path = model.save(folder / "late.bin")
            add_activation(service.store, "late", deployment.file_checksum(path), 0, "refit elsewhere")
            wait_for(lambda: check_of(client, "Model")["state"] == "warning")
            assert check_of(client, "Event store")["state"] == "ok"
            assert client.get("/ready").json()["model"] == "shop"
            path.rename(folder / "late.shortlist")
            wait_for(lambda: client.get("/ready").json()["model"] == "late")
            assert check_of(client, "Model")["state"] == "ok"

    @pytest.mark.parametrize("activation", [2**63, 10**400, 2**63 - 1])
    def test_activations_out_of_range(self, guarded, activation):
        body = {"name": "shop", "activation": activation}
        answer = guarded.post("/v1/model", json=body, headers=guarded.bearer("admin"))
        assert answer.status_code == (404 if activation < 2**63 else 422)

    def test_names_that_are_not_utf8_are_left_out(self, guarded, folder):
        try:
            (folder / os.fsdecode(b"caf\xe9.shortlist")).write_bytes(b"x")
        except OSError:
            pytest.skip("this file system has UTF-8 names only")
        answer = guarded.get("/v1/model", headers=guarded.bearer("read"))
        assert answer.status_code == 200
        assert answer.json()["available"] == ["shop"]
        for name, status in (("shop", 200), ("caf\xe9", 422)):
            answer = guarded.post("/v1/model", json={"name": name}, headers=guarded.bearer("admin"))
            assert answer.status_code == status, answer.text

    def test_answers_hold_no_paths(self, guarded, folder):
        model = sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=3))
        content = bytearray(model.save(folder / "damaged.shortlist").read_bytes())
        content[-1] ^= 1
        (folder / "damaged.shortlist").write_bytes(content)
        (folder / "empty.shortlist").write_bytes(b"")
        admin = guarded.bearer("admin")
        for name in ("damaged", "empty"):
            answer = guarded.post("/v1/model", json={"name": name}, headers=admin)
            assert answer.status_code == 409
            assert str(folder) not in answer.text


class TestClock:
    @pytest.fixture
    def times(self, monkeypatch):
        """The machine's clock and the monotonic one, both in the hands of the test."""

        class Times:
            wall, steady = 1_700_000_000.0, 50.0

            def time(self):
                return self.wall

            def monotonic(self):
                return self.steady

            def go(self, seconds):
                self.wall += seconds
                self.steady += seconds

        found = Times()
        monkeypatch.setattr(store_module, "time", found)
        return found

    @pytest.fixture
    def store(self, times, tmp_path):
        store = EventStore(f"sqlite:///{tmp_path / 'e.sqlite'}")
        store.read_time()
        yield store
        store.close()

    def test_the_time_is_settled_after_ten_even_minutes(self, times, store):
        """A machine that starts with a wrong clock corrects it soon."""
        assert not store.time_is_settled
        times.go(store_module.SETTLE_SECONDS - 1)
        store.read_time()
        assert not store.time_is_settled
        times.wall -= 8 * DAY_SECONDS  # the clock was wrong at the start
        store.read_time()
        assert store.now() == times.wall
        assert store.has_jumped
        times.go(store_module.SETTLE_SECONDS - 1)
        store.read_time()
        assert not store.time_is_settled
        times.go(2)
        store.read_time()
        assert store.time_is_settled
        assert not store.has_jumped

    def test_a_slow_correction_is_no_jump(self, times, store):
        for _ in range(400):
            times.go(2)
            times.wall += 0.5
            store.read_time()
        assert store.time_is_settled
        assert store.now() == times.wall

    def test_between_two_looks_the_time_only_grows(self, times, store):
        begin = store.now()
        times.wall -= 365 * DAY_SECONDS
        times.steady += 1
        assert store.now() == begin + 1

    def test_the_time_of_the_database_is_stored(self, times):
        with started() as address:
            store = EventStore(ServeConfig(model="m", db=address).database)
            store.create()
            times.wall -= 365 * DAY_SECONDS  # of this machine
            add_activation(store, "shop", "0" * 64, 0, "start")
            assert find_activations(store, 1)[0].activated == pytest.approx(time.time(), abs=60)
            assert store.time_is_settled
            store.close()

    @pytest.mark.parametrize("jump", [8 * DAY_SECONDS, -8 * DAY_SECONDS])
    def test_a_wrong_clock_closes_no_window_of_an_experiment(self, folder, monkeypatch, tokens, jump):
        """Seconds after a start at the wrong time, outcomes would be stored as complete, for good."""
        monkeypatch.setattr("shortlist.serve.service.FLUSH_SECONDS", 0.05)
        monkeypatch.setattr("shortlist.serve.service.TURN_SECONDS", 0.001)
        arms = [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]
        headers = {"authorization": f"Bearer {tokens['admin']}"}
        with start(folder, token_file=str(folder / "tokens")) as client:
            body = {"name": "spring", "arms": arms, "window_days": 7.0}
            assert client.post("/v1/experiment", json=body, headers=headers).status_code == 200
            headers["authorization"] = f"Bearer {tokens['read']}"
            ask = {"json": {"users": ["u1", "u2"]}, "headers": headers}
            wait_for(lambda: "arm" in client.post("/v1/recommend", **ask).json()["lists"][0])
        store = EventStore(f"sqlite:///{folder / 'shop.events.sqlite'}")
        assert sum(Experiments(store).count_users("spring").values()) == 2
        real, steps = time.time, []
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        monkeypatch.setattr(Experiments, "step", lambda self: steps.append(self._store.now()))
        with start(folder, token_file=str(folder / "tokens")):
            time.sleep(1)
            assert steps == []
            monkeypatch.setattr(store_module, "SETTLE_SECONDS", 0.0)
            wait_for(lambda: steps)
        store.close()

    def test_events_reach_the_model_while_the_clock_is_a_year_behind(self, folder, monkeypatch):
        """They lie in the future of this machine, where a file could not have them."""
        with start(folder) as client:
            real = time.time()
            monkeypatch.setattr(time, "time", lambda: real - 365 * DAY_SECONDS)
            sent = [{"user_id": f"later{n}", "item_id": "i1"} for n in range(3)]
            assert client.post("/v1/events", json={"events": sent}).json()["accepted"] == 3
            wait_for(lambda: client.get("/v1/users/later2").status_code == 200)
            assert "cannot use" not in check_of(client, "Events")["sentence"]

    def test_turns_of_a_clock_that_was_wrong_are_taken_over(self, tmp_path):
        store = EventStore(f"sqlite:///{tmp_path / 'e.sqlite'}")
        store.create()
        assert store.claim("retention turn", 1_000_000, ahead=60)  # a year ahead
        assert store.claim("retention turn", 500, ahead=60)
        assert not store.claim("retention turn", 500, ahead=60)
        assert not store.claim("retention turn", 490, ahead=60)  # another worker, slightly behind
        store.close()

    def test_counters_go_on_after_a_jump_back(self):
        now = 0.0
        counts = Metrics(lambda: now)
        for minute in (900_000, 400_000):
            now = 60.0 * minute
            counts.count_events(1, 0, 0)
            counts.forget_before(minute)
        assert list(counts.minutes()) == [400_000]


class TestSecrets:
    def test_a_revoked_token_is_refused_without_a_restart(self, guarded, folder, monkeypatch):
        monkeypatch.setattr(tokens, "LOOK_SECONDS", 0.0)
        read = guarded.bearer("read")
        assert guarded.get("/v1/model", headers=read).status_code == 200
        path = folder / "tokens"
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if not line.startswith("read ")) + "\n")
        assert guarded.get("/v1/model", headers=read).status_code == 401
        admin = guarded.bearer("admin")
        assert guarded.get("/v1/model", headers=admin).status_code == 403
        path.write_text("half a line")  # the earlier tokens stay, and the page says so
        assert guarded.get("/v1/model", headers=admin).status_code == 403

    def test_a_revoked_token_is_refused_by_every_worker_and_a_hangup_ends_none(self, folder, tokens):
        import signal

        from tests.serve.server import Server

        def children(process):
            return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

        if not Path("/proc/self/task").exists():
            pytest.skip("the processes of a service are listed under /proc")
        server = Server(folder, token_file=folder / "tokens", token=tokens["read"], workers=2)
        try:
            assert server.call("/v1/model")[0] == 200
            before = children(server.process)
            (folder / "tokens").write_text("")
            server.process.send_signal(signal.SIGHUP)
            wait_for(lambda: {server.call("/v1/model")[0] for _ in range(20)} == {401})
            assert children(server.process) == before
            assert server.call("/health")[0] == 200
        finally:
            server.stop()

    def test_a_hangup_does_not_end_a_start(self, folder):
        import signal
        import subprocess
        import sys

        port = free_port()
        command = [sys.executable, "-m", "shortlist", "serve", str(folder / "shop.shortlist")]
        process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
        try:
            wait_for((folder / "shop.events.sqlite").exists)
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: served_model("127.0.0.1", port) == "shop")
        finally:
            process.kill()
            process.wait()

    def test_a_service_needs_no_standard_streams(self, folder):
        import subprocess
        import sys

        port = free_port()
        command = [sys.executable, "-m", "shortlist", "serve", str(folder / "shop.shortlist")]
        closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command, "--port", str(port)]
        process = subprocess.Popen(closed)
        try:
            wait_for(lambda: served_model("127.0.0.1", port) == "shop")
        finally:
            process.kill()
            process.wait()

    def test_workers_that_cannot_start_are_a_failure(self, folder):
        import subprocess
        import sys

        content = bytearray((folder / "shop.shortlist").read_bytes())
        content[-1] ^= 1
        (folder / "shop.shortlist").write_bytes(content)
        command = [sys.executable, "-m", "shortlist", "serve", str(folder / "shop.shortlist")]
        command += ["--port", str(free_port()), "--workers", "2"]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        assert ended.returncode == 3
        assert "shortlist: model 'shop' could not be activated" in ended.stderr
        assert "Traceback" not in ended.stderr

    @pytest.mark.parametrize("problem", [OSError(28, "full"), ValueError("closed"), None])
    def test_a_log_that_cannot_be_written_stops_nothing(self, folder, monkeypatch, problem):
        """A full disk or a closed terminal behind standard error."""

        class Broken:
            def write(self, _):
                raise problem

        service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
        with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
            with monkeypatch.context() as patched:
                patched.setattr(sys, "stderr", None if problem is None else Broken())
                patched.setattr(service.deployment, "follow", lambda: 1 / 0)
                time.sleep(0.2)
            assert client.get("/health").status_code == 200

    def test_a_token_that_could_not_be_shown_is_not_kept(self, tmp_path):
        def full(_):
            raise OSError(28, "No space left on device")

        with pytest.raises(DataError):
            create_token(tmp_path / "tokens", "shop", ["read"], full)
        assert list(tmp_path.iterdir()) == []

    def test_the_event_database_is_private(self, client, folder):
        mode = stat.S_IMODE((folder / "shop.events.sqlite").stat().st_mode)
        assert mode == 0o600
        for path in folder.glob("shop.events.sqlite*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0

    def test_ids_never_reach_the_log(self, client, capsys, monkeypatch):
        from shortlist.serve import middleware

        ticks = iter(range(0, 1_000_000, 5))  # every request seems to take seconds
        monkeypatch.setattr(middleware.time, "perf_counter", lambda: float(next(ticks)))
        client.get("/v1/users/ann@example.org")
        client.post(
            "/v1/recommend",
            json={"users": ["u1"], "candidates": ["ann@example.org"], "at": "ann@example.org"},
        )
        client.post("/v1/events", json={"events": [event("ann@example.org\x00")]})
        log = capsys.readouterr().err
        assert log.count("request_id") == 3
        assert "ann@" not in log

    def test_examples_are_no_addresses(self, tmp_path):
        frame = sl.load_dataset("sample").to_frame()
        frame = frame.with_columns(user_id=frame["user_id"] + "@example.org")
        model = sl.Popularity().fit(sl.Interactions.from_frame(frame))
        model.set_cutoff(sl.cutoff.FixedN(N=3)).save(tmp_path / "shop.shortlist")
        with start(tmp_path) as client:
            assert client.get("/v1/model").json()["examples"] == []

    def test_ids_with_unprintable_characters_that_the_data_has_can_be_asked_for(self, tmp_path):
        rows = [
            (user, item, f"2025-01-0{day}") for user in ("a\tb", "c") for day, item in enumerate("xyz", 1)
        ]
        model = sl.Popularity().fit(sl.Interactions.from_tuples(rows))
        model.set_cutoff(sl.cutoff.FixedN(N=2)).save(tmp_path / "shop.shortlist")
        with start(tmp_path) as client:
            assert client.post("/v1/recommend", json={"users": ["a\tb"]}).status_code == 200
            assert client.get("/v1/users/a%09b").status_code == 200
            assert client.post("/v1/recommend", json={"users": ["d\te"]}).status_code == 422


class TestErasure:
    def test_a_user_is_erased_everywhere(self, folder, tokens):
        bearer = {scope: {"authorization": f"Bearer {secret}"} for scope, secret in tokens.items()}
        settings = {"token_file": str(folder / "tokens")}
        store = EventStore(f"sqlite:///{folder / 'shop.events.sqlite'}")

        def reason(client, user):
            body = {"users": [user], "N": 3}
            return client.post("/v1/recommend", json=body, headers=bearer["read"]).json()["lists"][0][
                "reason"
            ]

        with start(folder, **settings) as client:
            assert client.delete("/v1/users/u1", headers=bearer["read"]).status_code == 403
            assert reason(client, "u1") == "top_n"
            sent = {"events": [event("u1", "i2"), event("u2", "i2")]}
            client.post("/v1/events", json=sent, headers=bearer["events"])
            wait_for(lambda: logged_lists(store))
            answer = client.delete("/v1/users/u1", headers=bearer["admin"])
            assert answer.json() == {"n_events": 1, "n_lists": 1}
            assert reason(client, "u1") == "unknown_user"
            assert client.get("/v1/users/u1", headers=bearer["read"]).status_code == 404
            assert reason(client, "u2") == "top_n"
            wait_for(lambda: logged_lists(store))
            assert b"u1\x00" not in (folder / "shop.events.sqlite").read_bytes()
        with start(folder, **settings) as client:  # the file still has the user
            assert reason(client, "u1") == "unknown_user"
            client.post("/v1/events", json={"events": [event("u1", "i9")]}, headers=bearer["events"])
            wait_for(lambda: reason(client, "u1") == "top_n")
            about = client.get("/v1/users/u1", headers=bearer["read"]).json()
            assert [row["item_id"] for row in about["events"]] == ["i9"]
        data = load_refit_data(store, folder, "shop")
        assert "u1" not in data.model.users_
        assert data.model.history_.n_rows < sl.load_model(folder / "shop.shortlist").history_.n_rows
        assert sorted(data.events.purchases.users.values.to_list()) == ["u1", "u2"]
        store.close()

    def test_a_refit_learns_without_the_user(self, folder, capsys):
        from shortlist.cli import main

        store = EventStore(f"sqlite:///{folder / 'shop.events.sqlite'}")
        store.create()
        before = sl.load_model(folder / "shop.shortlist").history_
        erase_user(store, "u1")
        usual = usual_items(folder / "shop.shortlist", [f"u{n + 2}" for n in range(80)]).items()
        rows = [stored_row(n, user_id=user, item_id=item) for n, (user, item) in enumerate(usual)]
        store.add_events([rows])
        assert main(["service", "refit", str(folder / "shop.shortlist"), "--json"]) == 0
        active = find_activations(store, 1)[0]
        refitted = sl.load_model(kept_path(folder, active.checksum))
        assert "u1" not in refitted.users_
        assert "u2" in refitted.users_
        lost = int((before.user == before.users.index("u1")).sum())
        assert refitted.history_.n_rows == before.n_rows - lost + 80
        assert active.erased_until == 1
        store.add_events([[stored_row(99, user_id="u1", event_id="again")]])
        served = Deployment(folder, store)
        served.start(folder / "shop.shortlist")
        assert "u1" in served.served.model.users_  # who came back
        store.close()


def test_store_errors_keep_the_lists_for_later():
    calls = []

    class Away:
        def add_lists(self, rows):
            calls.append(len(rows))
            raise StoreError("away")

    writer = StoreWriter(Away())
    writer.add_lists([1, 2, 3])
    wait_for(lambda: len(calls) > 1)
    assert list(writer._lists) == [1, 2, 3]
    writer._lists.clear()
    writer.close()


def test_a_lost_table_is_no_reason_to_end(folder):
    service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=0.02))
    with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
        with service.store._engine.begin() as connection:
            connection.execute(sa.text("drop table lists"))
        assert client.post("/v1/recommend", json={"users": ["u1"]}).status_code == 200
        assert client.post("/v1/events", json={"events": [event()]}).status_code == 200
        assert client.get("/health").status_code == 200
