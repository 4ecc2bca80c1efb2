"""What made experiments of release 0.3 wrong, over HTTP with two servers on one PostgreSQL.

Its pacing of budgets, which waited for the database in the event loop, is gone; that a database which hangs
delays no list is tested here all the same.
"""

import json
import os
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.serve.config import ServeConfig
from shortlist.serve.experiments import DAY, Experiments
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import create_token
from tests.postgres import running
from tests.serve.server import Server
from tests.serve.test_app import wait_for

pytestmark = pytest.mark.resources
N_USERS, N_INVENTED, WINDOW = 1_200, 20, 40.0
ITEMS = [f"i{n}" for n in range(10)]
USERS = [f"u{n}" for n in range(N_USERS)]
ARMS = [{"name": "all", "share": 0.5}, {"name": "short", "share": 0.5, "model": "short"}]


def save_popular(path, frame, n):
    sl.Popularity().fit(sl.Interactions.from_frame(frame)).set_cutoff(sl.cutoff.FixedN(N=n)).save(path)


@pytest.fixture(scope="module")
def activity():
    return np.random.default_rng(1).integers(1, 40, N_USERS)


@pytest.fixture(scope="module")
def shop(tmp_path_factory, activity):
    """A folder with a model of all events, and one of the first two of each user."""
    rng, folder = np.random.default_rng(2), tmp_path_factory.mktemp("attacks")
    user = np.repeat(USERS, activity)
    day = np.concatenate([np.arange(n) for n in activity])
    times = 1_700_000_000 + 86_400 * day
    frame = pl.DataFrame({"user_id": user, "item_id": rng.choice(ITEMS, user.size), "timestamp": times})
    save_popular(folder / "shop.shortlist", frame, 10)
    save_popular(folder / "short.shortlist", frame.group_by("user_id", maintain_order=True).head(2), 10)
    sl.cutoff.FixedN(N=3).save(folder / "three.shortlist")
    return folder


@pytest.fixture(scope="module")
def postgres():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def servers(shop, postgres):
    """Two servers; both may do everything."""
    token = create_token(shop / "tokens", "all", ["read", "events", "admin"])
    pair = [Server(shop, postgres.uri, shop / "tokens", token, max_users=N_USERS, poll=0.1) for _ in range(2)]
    yield pair
    for server in pair:
        server.kill()


@pytest.fixture(scope="module")
def store(servers, shop, postgres):
    config = ServeConfig(model=str(shop / "shop.shortlist"), db=postgres.uri)
    store = EventStore(config.database)
    yield store
    store.close()


def call(server, path, body=None):
    status, answer = server.call(path, body)
    assert status == 200, answer
    return answer


def ask(server, users):
    """The lists of users, by user."""
    lists = call(server, "/v1/recommend", {"users": users, "filter_seen": False})["lists"]
    return {row["user_id"]: row for row in lists}


def send(server, events):
    for first in range(0, len(events), 5_000):
        call(server, "/v1/events", {"events": events[first : first + 5_000]})


def test_an_experiment_without_a_difference_ends_without_a_verdict(shop, servers, store, activity):
    body = {"name": "null", "metric": "hits", "window_days": WINDOW / DAY, "arms": ARMS}
    call(servers[0], "/v1/experiment", body)
    wait_for(lambda: all("arm" in ask(server, USERS[:1])[USERS[0]] for server in servers), seconds=60)
    experiments = Experiments(store)
    experiment = experiments.find("null")
    candidates = (f"x{k}" for k in range(10_000))
    invented = [name for name in candidates if experiment.assign(name).name == "short"][:N_INVENTED]

    # both servers show the same list to everybody, also after the file of an arm was replaced
    short = shop / "short.shortlist"
    kept = short.read_bytes()
    some_events = pl.DataFrame({"user_id": USERS[:2], "item_id": ITEMS[:2]})
    save_popular(short, some_events, 2)
    shown = ask(servers[0], USERS[::2] + invented) | ask(servers[1], USERS[1::2] + invented)
    assert all(len(shown[name]["items"]) == 10 for name in USERS)
    assert {name for name, row in shown.items() if "arm" not in row} == set(invented)
    arms = {name: shown[name]["arm"].removeprefix("null/") for name in USERS}
    assert arms == {name: experiment.assign(name).name for name in USERS}
    short.write_bytes(kept)
    wait_for(lambda: sum(experiments.count_users("null").values()) == N_USERS)

    # a server with a wrong clock closes all windows
    while experiments.step(store.now() + 8 * DAY):
        pass
    assert len(experiments.users("null")) == N_USERS

    # purchases do not depend on the arm; invented ids buy everything, some users return what they buy
    chosen = np.random.default_rng(3).random((N_USERS, len(ITEMS))) < activity[:, None] / 80
    chosen[:100] = True
    buys = [(USERS[u], ITEMS[i]) for u, i in np.argwhere(chosen).tolist()]
    buys += [(name, item) for name in invented for item in ITEMS]
    send(servers[0], [{"user_id": u, "item_id": i, "event_id": f"{u}-{i}"} for u, i in buys])
    returns = [(u, i) for u in USERS[:100] for i in ITEMS]
    weights = {"weight": -1.0}
    send(
        servers[1], [{"user_id": u, "item_id": i, "event_id": f"back-{u}-{i}"} | weights for u, i in returns]
    )

    def hits_by_user():
        return {row.user_id: json.loads(row.outcome)["hits"] for row in experiments.users("null")}

    wait_for(lambda: len(hits_by_user()) == N_USERS and sum(hits_by_user().values()) > 0, seconds=200)
    expected = dict(zip(USERS, chosen.sum(1).tolist(), strict=True)) | dict.fromkeys(USERS[:100], 0)
    assert hits_by_user() == expected
    assert [row.n_before for row in experiments.users("null")].count(
        2
    ) < N_USERS / 10  # not of the short model
    report = experiments.compare(experiment)
    assert report.verdict == "not yet"
    summary = Experiments(store).describe("null")["summary"]
    assert f"invents user ids: the {N_INVENTED}" in summary
    call(servers[1], "/v1/experiment/stop", {"name": "null"})


@contextmanager
def hanging(postgres):
    """The database answers nobody, without closing a connection."""
    first = int((postgres.data / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    processes = [first, *map(int, children)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_lists_and_health_do_not_wait_for_a_database_that_hangs(servers, postgres):
    body = {"users": USERS[:3], "cutoff": "three"}  # a file: it was read in every request
    assert [len(row["items"]) for row in call(servers[0], "/v1/recommend", body)["lists"]] == [3, 3, 3]
    with hanging(postgres):
        for _ in range(50):
            started = time.monotonic()
            assert servers[0].call("/v1/recommend", body, timeout=5)[0] == 200
            assert servers[0].call("/health", timeout=5)[0] == 200
            assert time.monotonic() - started < 2
    wait_for(
        lambda: servers[0].call("/v1/events", {"events": [{"user_id": "u0", "item_id": "i0"}]})[0] == 200
    )


def test_a_server_without_the_model_of_an_arm_is_not_ready(servers, shop, postgres):
    """And takes no user into the experiment."""
    kept = (shop / "short.shortlist").read_bytes()
    call(servers[0], "/v1/experiment", {"name": "second", "arms": ARMS, "window_days": 7.0})
    elsewhere = shop / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(shop / "shop.shortlist", elsewhere)
    other = Server(elsewhere, postgres.uri, shop / "tokens", servers[0].token, wait=False)
    try:
        wait_for(lambda: other.call("/ready")[0] == 503, seconds=120)
        wait_for(lambda: other.call("/health")[0] == 200)
        assert all("arm" not in row for row in ask(other, USERS[:20]).values())
        (elsewhere / "short.shortlist").write_bytes(kept)
        wait_for(lambda: other.call("/ready")[0] == 200, seconds=60)
        wait_for(lambda: all("arm" in row for row in ask(other, USERS[:20]).values()))
    finally:
        other.kill()
        call(servers[0], "/v1/experiment/stop", {"name": "second"})


def test_nothing_that_is_replaced_activated_or_restarted_changes_an_arm(shop, servers, postgres):
    """The files of a cutoff and of the model in service, the activated model, and one of the servers.

    The server that starts again finds a new file under the name on its command line, and activates it.
    """
    users = USERS[:60]
    kept = {name: (shop / f"{name}.shortlist").read_bytes() for name in ("shop", "short", "three")}
    arms = [
        {"name": "three", "share": 0.4, "options": {"cutoff": "three"}},
        {"name": "short", "share": 0.3, "model": "short"},
        {"name": "now", "share": 0.3},
    ]
    call(servers[0], "/v1/experiment", {"name": "frozen", "arms": arms, "window_days": 7.0})
    wait_for(lambda: all("arm" in row for server in servers for row in ask(server, users).values()), 60)

    def lists_of(server):
        """User → arm and items, which are the same everywhere."""
        return {
            name: (row["arm"], [item["item_id"] for item in row["items"]])
            for name, row in ask(server, users).items()
        }

    first = lists_of(servers[0])
    assert {arm for arm, _ in first.values()} == {"frozen/three", "frozen/short", "frozen/now"}
    assert {len(items) for arm, items in first.values() if arm == "frozen/three"} == {3}
    assert lists_of(servers[1]) == first
    some_events = pl.DataFrame({"user_id": USERS[:2], "item_id": ITEMS[:2]})
    try:
        sl.cutoff.FixedN(N=7).save(shop / "three.shortlist")
        save_popular(shop / "shop.shortlist", some_events, 1)
        save_popular(shop / "other.shortlist", some_events, 2)
        call(servers[1], "/v1/model", {"name": "other"})
        servers[1].kill()
        port, token = servers[1].port, servers[1].token
        servers[1] = Server(shop, postgres.uri, shop / "tokens", token, port=port, max_users=N_USERS)
        for server in servers:
            wait_for(lambda server=server: lists_of(server) == first, seconds=60)
    finally:
        for name, content in kept.items():
            (shop / f"{name}.shortlist").write_bytes(content)
        call(servers[0], "/v1/experiment/stop", {"name": "frozen"})
